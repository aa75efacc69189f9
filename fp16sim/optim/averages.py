"""Exponential averages of gradients and of their squares, as Adam and RMSprop keep them."""

from __future__ import annotations

import numpy as np

from fp16sim.autograd.arithmetic import Arithmetic, Array

__all__ = ["average", "average_of_squares"]


def average(arithmetic: Arithmetic, before: Array | None, gradient: Array, decay: float) -> Array:
    """Move an average towards a gradient, as ``torch.Tensor.lerp`` does; None is an average of 0.

    With c = R(1 - decay), the difference in binary64: R(m + R(c R(g - m))) where c < 1/2, and
    R(g - R(R(g - m) R(1 - c))) elsewhere.
    """
    r = arithmetic
    m = np.zeros_like(gradient) if before is None else before
    c = r.constant(1.0 - decay, gradient)
    difference = r.subtract(gradient, m)
    if c < 0.5:
        return r.add(m, r.multiply(difference, c))
    return r.subtract(gradient, r.multiply(difference, r.subtract(r.constant(1.0, c), c)))


def average_of_squares(arithmetic: Arithmetic, before: Array | None, gradient: Array, decay: float) -> Array:
    """Move an average towards the square of a gradient; None is an average of 0.

    R(R(R(decay) v) + R(R(R(1 - decay) g) g)), the difference in binary64.
    """
    r = arithmetic
    square = r.multiply(r.multiply(gradient, r.constant(1.0 - decay, gradient)), gradient)
    v = np.zeros_like(gradient) if before is None else before
    return r.add(r.multiply(v, r.constant(decay, gradient)), square)
