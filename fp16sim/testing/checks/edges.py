"""Which steps of a long history are taken with gradients: the others are only told of."""

from __future__ import annotations

from itertools import groupby

__all__ = ["edges"]

_EACH_SIDE = 2


def edges(history: str) -> list[bool]:
    """Say of each step whether it is among the first two or the last two of its run.

    Within a run a scaler seldom does anything new, and a step with gradients takes ten times as long as one without.

    >>> edges("o.......o")
    [True, True, True, False, False, False, True, True, True]
    """
    found: list[bool] = []
    for _, run in groupby(history):
        length = len(list(run))
        found += [min(place, length - 1 - place) < _EACH_SIDE for place in range(length)]
    return found
