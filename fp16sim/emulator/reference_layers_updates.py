"""The definition of what follows a backward pass: unscaling, clipping, optimizers, on lists of encodings.

Written from the docstrings of `scaling/protocol.py` and `optim/`; as in `reference_layers.py`, every step is one
rounded operation of the definition. Options are Python numbers, rounded where the docstrings say so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fp16sim.emulator import reference
from fp16sim.emulator.formats import Format
from fp16sim.emulator.reference_layers import Roundings

__all__ = ["adam", "clip_by_norm", "sgd", "unscale"]

Row = Sequence[int]


def unscale(
    r: Roundings, gradient: Row, source: Format, scale: float, method: str = "reciprocal"
) -> list[int]:
    """Convert to the format of unscaling, and multiply by 1 / scale, rounded once, or divide by the scale."""
    wide = [reference.convert(g, source, r.fmt).bits for g in gradient]
    if method == "divide":
        return [r.divide(g, r.number(scale)) for g in wide]
    return [r.multiply(g, r.number(1.0 / scale)) for g in wide]


def clip_by_norm(r: Roundings, gradients: Sequence[Row], max_norm: float) -> tuple[list[list[int]], int]:
    """Shrink gradients by max_norm / (norm + 1e-6) where that is below 1 or NaN; give them and their norm."""
    norm = r.sqrt(r.sum([r.sum([r.multiply(g, g) for g in gradient]) for gradient in gradients]))
    c = r.divide(r.number(max_norm), r.add(norm, r.number(1e-6)))
    if not r.is_nan(c) and r.compare(c, r.number(1.0)) >= 0:
        return [list(gradient) for gradient in gradients], norm
    return [[r.multiply(c, g) for g in gradient] for gradient in gradients], norm


def sgd(
    r: Roundings,
    weight: Row,
    gradient: Row,
    velocity: Row | None,
    lr: float,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
) -> tuple[list[int], list[int] | None]:
    """Give the weight and the velocity after a step; the velocity is None before the first and without momentum."""
    g = list(gradient)
    if weight_decay:
        g = [r.add(a, r.multiply(r.number(weight_decay), w)) for a, w in zip(g, weight, strict=True)]
    v = g
    if momentum and velocity is not None:
        v = [r.add(r.multiply(r.number(momentum), b), a) for b, a in zip(velocity, g, strict=True)]
    d = [r.add(a, r.multiply(r.number(momentum), b)) for a, b in zip(g, v, strict=True)] if nesterov else v
    moved = [r.subtract(w, r.multiply(r.number(lr), a)) for w, a in zip(weight, d, strict=True)]
    return moved, v if momentum else None


def adam(
    r: Roundings,
    weight: Row,
    gradient: Row,
    first: Row,
    second: Row,
    step: int,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
) -> tuple[list[int], list[int], list[int]]:
    """Give the weight and both averages after step t, which counts from 1; the averages begin with +0."""
    b1, b2 = betas
    power1 = power2 = 1.0
    for _ in range(step):
        power1, power2 = power1 * b1, power2 * b2
    c = r.number(1.0 - b1)
    moved, averages, squares = [], [], []
    for w, g, m, v in zip(weight, gradient, first, second, strict=True):
        away = r.subtract(g, m)
        if r.compare(c, r.number(0.5)) < 0:
            m = r.add(m, r.multiply(c, away))
        else:
            m = r.subtract(g, r.multiply(away, r.subtract(r.number(1.0), c)))
        v = r.add(r.multiply(r.number(b2), v), r.multiply(r.multiply(r.number(1.0 - b2), g), g))
        root = r.divide(r.sqrt(v), r.number(math.sqrt(1.0 - power2)))
        d = r.add(root, r.number(eps))
        moved.append(r.subtract(w, r.divide(r.multiply(r.number(lr / (1.0 - power1)), m), d)))
        averages.append(m)
        squares.append(v)
    return moved, averages, squares
