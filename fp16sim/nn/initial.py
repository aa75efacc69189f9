"""Initial weights: each call takes the next random stream of :mod:`fp16sim.nn.random`."""

from __future__ import annotations

import math

import numpy as np

from fp16sim.autograd.arithmetic import Array
from fp16sim.nn.random import next_stream, normals, uniforms

__all__ = ["he_normal", "need_widths", "normal", "uniform"]


def he_normal(shape: tuple[int, ...], fan_in: int) -> Array:
    """Draw normal numbers with variance 2 / fan_in, rounded to float32 once (He et al., arXiv 1502.01852).

    >>> from fp16sim.nn.random import streams
    >>> with streams(0):
    ...     he_normal((1, 2), fan_in=8)
    array([[-0.127908 ,  0.5887956]], dtype=float32)
    """
    return normal(shape, math.sqrt(2.0 / fan_in))


def normal(shape: tuple[int, ...], deviation: float) -> Array:
    """Draw normal numbers of this standard deviation, in float64, rounded to float32 once.

    >>> from fp16sim.nn.random import streams
    >>> with streams(0):
    ...     normal((1, 2), 1.0)
    array([[-0.255816 ,  1.1775912]], dtype=float32)
    """
    seed, layer = next_stream()
    return (normals(seed, math.prod(shape), layer) * deviation).reshape(shape).astype(np.float32)


def uniform(shape: tuple[int, ...], bound: float) -> Array:
    """Draw numbers uniform over [-bound, bound), in float64, rounded to float32 once.

    >>> from fp16sim.nn.random import streams
    >>> with streams(0):
    ...     uniform((1, 2), 1.0)
    array([[-0.20190716,  0.76104033]], dtype=float32)
    """
    seed, layer = next_stream()
    return ((uniforms(seed, math.prod(shape), layer) * 2.0 - 1.0) * bound).reshape(shape).astype(np.float32)


def need_widths(**widths: int) -> None:
    """Refuse a size that is no positive integer."""
    for name, value in widths.items():
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise ValueError(f"{name}={value!r}: a layer has a size of 1 or more; pass a positive integer")
