"""The definition of normalisations: formulas on lists of encodings, as `reference_layers.py` has them.

A group is the list of numbers that have one mean: an example (layer_norm, rms_norm), or a channel of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fp16sim.emulator.reference_layers import Roundings

__all__ = [
    "Normalised",
    "batch_norm_gradient",
    "layer_norm_gradient",
    "normalise",
    "scale_and_shift",
]

Row = Sequence[int]


class Normalised(NamedTuple):
    """What a group is normalised to, and by.

    Parameters
    ----------
    n : list of int
        The group, normalised.
    mean : int or None
        Its mean; None where it is not centred.
    variance : int
        Its biased variance, or mean square.
    root : int
        1 / sqrt(variance + eps).
    """

    n: list[int]
    mean: int | None
    variance: int
    root: int


def normalise(r: Roundings, group: Row, eps: float, centred: bool = True) -> Normalised:
    """Give n = d r: m = mean(x), d = x - m, v = mean(d d), r = 1 / sqrt(v + eps), each step rounded."""
    mean = r.mean(group) if centred else None
    d = list(group) if mean is None else [r.subtract(x, mean) for x in group]
    variance = r.mean([r.multiply(each, each) for each in d])
    root = r.divide(r.number(1.0), r.sqrt(r.add(variance, r.number(eps))))
    return Normalised([r.multiply(each, root) for each in d], mean, variance, root)


def scale_and_shift(r: Roundings, n: Row, weight: Row | None, bias: Row | None) -> list[int]:
    """Give n w, rounded, plus b, rounded; one weight and bias for each number."""
    y = list(n) if weight is None else [r.multiply(a, w) for a, w in zip(n, weight, strict=True)]
    return y if bias is None else [r.add(a, b) for a, b in zip(y, bias, strict=True)]


def layer_norm_gradient(r: Roundings, to: Normalised, weight: Row | None, g: Row) -> list[int]:
    """Give (h - mean(h) - n mean(h n)) r of a group, h = g w; without mean(h) where it is not centred."""
    h = list(g) if weight is None else [r.multiply(a, w) for a, w in zip(g, weight, strict=True)]
    c = r.mean([r.multiply(a, b) for a, b in zip(h, to.n, strict=True)])
    q = [r.multiply(n, c) for n in to.n]
    if to.mean is not None:
        a = r.mean(h)
        h = [r.subtract(each, a) for each in h]
    return [r.multiply(r.subtract(x, y), to.root) for x, y in zip(h, q, strict=True)]


def batch_norm_gradient(
    r: Roundings, to: Normalised, weight: int | None, g: Row
) -> tuple[list[int], int, int]:
    """Give the gradients of a channel's numbers, of its weight and of its bias.

    b: s = sum(g); w: u = sum(g n); x: (g - s / M - n (u / M)) f, f = r w, M the number of numbers.
    """
    s = r.sum(g)
    u = r.sum([r.multiply(a, n) for a, n in zip(g, to.n, strict=True)])
    f = to.root if weight is None else r.multiply(to.root, weight)
    count = r.number(len(g))
    a, c = r.divide(s, count), r.divide(u, count)
    of_x = [
        r.multiply(r.subtract(r.subtract(each, a), r.multiply(n, c)), f)
        for each, n in zip(g, to.n, strict=True)
    ]
    return of_x, u, s
