"""Views and rearrangements: nothing is rounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fp16sim.autograd.arithmetic import Arithmetic, Array
from fp16sim.autograd.operation import Op, run
from fp16sim.autograd.tensor import Context, Tensor

__all__ = ["reshape", "transpose"]

Saved = tuple[Any, ...]
Parts = tuple[Array | None, ...]


def _reshape(arithmetic: Arithmetic, a: Array, shape: tuple[int, ...]) -> tuple[Array, Saved]:
    return a.reshape(shape), (a.shape,)


def _reshape_gradient(context: Context, gradient: Array) -> Parts:
    return (gradient.reshape(context.saved[0]),)


_RESHAPE = Op("reshape", _reshape, _reshape_gradient)


def reshape(a: Tensor, shape: Sequence[int]) -> Tensor:
    """Give the values another shape, in C order. Gradient: reshaped back."""
    return run(_RESHAPE, a, shape=tuple(shape))


def _transpose(arithmetic: Arithmetic, a: Array, axes: tuple[int, ...]) -> tuple[Array, Saved]:
    return a.transpose(axes), (axes,)


def _transpose_gradient(context: Context, gradient: Array) -> Parts:
    return (gradient.transpose(np.argsort(context.saved[0])),)


_TRANSPOSE = Op("transpose", _transpose, _transpose_gradient)


def transpose(a: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    """Reorder the axes, by default reverse them. Gradient: ordered back."""
    order = tuple(range(a.ndim))[::-1] if axes is None else tuple(axis % a.ndim for axis in axes)
    if sorted(order) != list(range(a.ndim)):
        raise ValueError(f"axes {axes} of a tensor of shape {a.shape}: name each of its axes once")
    return run(_TRANSPOSE, a, axes=order)
