"""Recordings of runs: exponent histograms of the gradients of each layer, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from hypothesis import strategies as st

from fp16sim.recording.histogram import Histogram
from fp16sim.testing.strategies.gradients import gradients

__all__ = ["Steps", "recordings"]

Steps: TypeAlias = list[dict[str, Histogram]]
"""What a recording holds: for each step the histogram of each layer, by its name."""

_MOST_LAYERS = 3
_SHIFTS = (0, 0, 3, 6, 12)
_FACTORS = (1, 10, 1000, 1_000_000)


def recordings(
    *,
    layers: int | Sequence[str] | None = None,
    most_steps: int = 8,
    most_values: int = 32,
    allow_nan: bool = True,
    allow_infinity: bool = True,
) -> st.SearchStrategy[Steps]:
    """Draw recordings of runs: a list of steps, each a dict of layer to :class:`fp16sim.recording.histogram.Histogram`.

    All steps have the same layers, and a layer counts the same number of gradients in each. The gradients are as
    :func:`gradients` draws them, unscaled, and smaller in some layers than in others. In 5% of the histograms or more,
    each: all zeros; gradients that are subnormal in binary16; flushed by it; subnormal in float32; infinities; NaNs;
    counts above 10,000; powers of two.

    Parameters
    ----------
    layers : int or sequence of str, optional
        How many, or their names. Default: one to three. Names are "layer1", "layer2" and so on.
    most_steps : int
        At most so many; at least one.
    most_values : int
        Gradients of a layer that are drawn; all counts of a layer are then multiplied by 1, 10, 1000 or a million.
    allow_nan, allow_infinity : bool
        Whether some gradients are.

    Returns
    -------
    SearchStrategy of list of dict of str to Histogram
        Shrinks to one step, one layer and one gradient that is zero.

    Raises
    ------
    TypeError, ValueError
        If an option is none.

    Examples
    --------
    >>> from hypothesis import find, settings
    >>> quiet = settings(derandomize=True, database=None, deadline=None)
    >>> runs = recordings(layers=["a"], most_steps=3, most_values=4)
    >>> find(runs, lambda steps: steps[-1]["a"].nans > 0, settings=quiet)
    [{'a': Histogram(counts={}, powers={}, zeros=0, infinities=0, nans=1)}]
    """
    for name, value in (("most_steps", most_steps), ("most_values", most_values)):
        _check_count(name, value)
    for name, flag in (("allow_nan", allow_nan), ("allow_infinity", allow_infinity)):
        if not isinstance(flag, (bool, np.bool_)):
            raise TypeError(f"{name}={flag!r}: they are allowed or not; pass True or False")
    return _recordings(
        _names(layers), int(most_steps), int(most_values), bool(allow_nan), bool(allow_infinity)
    )


@st.composite
def _recordings(
    draw: st.DrawFn,
    names: Sequence[str] | None,
    most_steps: int,
    most_values: int,
    allow_nan: bool,
    allow_infinity: bool,
) -> Steps:
    layer = st.tuples(st.integers(1, most_values), st.sampled_from(_FACTORS), st.sampled_from(_SHIFTS))
    fewest, most = (1, _MOST_LAYERS) if names is None else (len(names), len(names))
    layers = draw(st.lists(layer, min_size=fewest, max_size=most))
    named = _numbered(len(layers)) if names is None else names
    # All gradients of a step in one array: so a step is one piece of what is drawn, which Hypothesis can delete.
    values = gradients(sum(size for size, *_ in layers), allow_nan=allow_nan, allow_infinity=allow_infinity)
    ends = np.cumsum([size for size, *_ in layers])[:-1]
    return [
        {
            name: _histogram(part, factor, shift)
            for name, part, (_, factor, shift) in zip(named, np.split(step, ends), layers, strict=True)
        }
        for step in draw(st.lists(values, min_size=1, max_size=most_steps))
    ]


def _histogram(values: Any, factor: int, shift: int) -> Histogram:
    """Count gradients divided by 2^shift, each `factor` times."""
    found = Histogram()
    found.add(values, 2.0**shift)
    return Histogram(
        {exponent: factor * count for exponent, count in found.counts.items()},
        {exponent: factor * count for exponent, count in found.powers.items()},
        factor * found.zeros,
        factor * found.infinities,
        factor * found.nans,
    )


def _names(layers: Any) -> list[str] | None:
    if layers is None:
        return None
    if isinstance(layers, (int, np.integer)):
        _check_count("layers", layers)
        return _numbered(int(layers))
    if (
        isinstance(layers, str)
        or not isinstance(layers, Sequence)
        or not all(isinstance(n, str) for n in layers)
    ):
        raise TypeError(f"layers={layers!r}: pass how many, or their names in a list")
    if not layers or len(set(layers)) < len(layers):
        raise ValueError(
            f"layers={layers!r}: a recording has one or more, of different names; pass ['a', 'b'], say"
        )
    return list(layers)


def _numbered(count: int) -> list[str]:
    return [f"layer{number}" for number in range(1, count + 1)]


def _check_count(name: str, value: Any) -> None:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise TypeError(f"{name}={value!r}: it is counted; pass an integer, 1 or more")
    if value < 1:
        raise ValueError(f"{name}={value}: a recording has at least one; pass 1 or more")
