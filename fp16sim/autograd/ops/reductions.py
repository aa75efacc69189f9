"""Sums and what is built on them, accumulated as the policy's reduction says."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from fp16sim.autograd.arithmetic import Arithmetic, Array
from fp16sim.autograd.operation import Op, run
from fp16sim.autograd.tensor import Context, Tensor, need_tensor

__all__ = ["mean", "sum"]

Saved = tuple[Any, ...]
Parts = tuple[Array | None, ...]
Axis = int | tuple[int, ...] | None


def axes_of(name: str, a: Tensor, axis: Axis) -> tuple[int, ...]:
    """Give the axes that a reduction runs over, counted from 0, in order."""
    need_tensor(a)
    given = tuple(range(a.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    if any(not -a.ndim <= n < a.ndim for n in given) or len({n % a.ndim for n in given}) < len(given):
        raise ValueError(
            f"{name} over axis {axis} of a tensor of shape {a.shape}: name axes that it has, each once"
        )
    return tuple(sorted(n % a.ndim for n in given))


def spread(gradient: Array, shape: tuple[int, ...], axes: tuple[int, ...]) -> Array:
    """Undo a reduction of `shape` over `axes` by repeating, without a copy."""
    kept = tuple(1 if i in axes else n for i, n in enumerate(shape))
    return np.broadcast_to(gradient.reshape(kept), shape)


def _sum(arithmetic: Arithmetic, a: Array, axes: tuple[int, ...], keepdims: bool) -> tuple[Array, Saved]:
    return arithmetic.sum(a, axes, keepdims), (a.shape, axes)


def _sum_gradient(context: Context, gradient: Array) -> Parts:
    return (spread(gradient, *context.saved),)


_SUM = Op("sum", _sum, _sum_gradient)


def sum(a: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Sum in increasing C-order index from +0, rounded to the dtype once. Gradient: repeated."""
    return run(_SUM, a, axes=axes_of("sum", a, axis), keepdims=keepdims)


def _mean(arithmetic: Arithmetic, a: Array, axes: tuple[int, ...], keepdims: bool) -> tuple[Array, Saved]:
    return arithmetic.mean(a, axes, keepdims), (a.shape, axes)


def _mean_gradient(context: Context, gradient: Array) -> Parts:
    shape, axes = context.saved
    count = context.arithmetic.constant(prod(shape[i] for i in axes), gradient)
    return (spread(context.arithmetic.divide(gradient, count), shape, axes),)


_MEAN = Op("mean", _mean, _mean_gradient)


def mean(a: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Divide the sum by the number of terms, both in the accumulator's format, then round to the dtype.

    Gradient: G / count, rounded once, repeated; the count is rounded to the dtype first.
    """
    return run(_MEAN, a, axes=axes_of("mean", a, axis), keepdims=keepdims)
