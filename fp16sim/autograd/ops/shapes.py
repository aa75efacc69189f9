"""Views and rearrangements: nothing is rounded."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from operator import index
from typing import Any

import numpy as np

from fp16sim.autograd.arithmetic import Arithmetic, Array
from fp16sim.autograd.operation import Op, run
from fp16sim.autograd.tensor import Context, Tensor, need_tensor

__all__ = ["broadcast_to", "expand_dims", "flatten", "flip", "reshape", "squeeze", "swapaxes", "transpose"]

Saved = tuple[Any, ...]
Parts = tuple[Array | None, ...]


def axis_of(name: str, axis: int, ndim: int, shape: tuple[int, ...]) -> int:
    """Count an axis from 0 and refuse one that is not there."""
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)) or not -ndim <= axis < ndim:
        axes = f"axes are {-ndim} to {ndim - 1}" if ndim else "there are no axes"
        raise ValueError(f"{name} with axis {axis!r} and shape {shape}: {axes}; name one of them")
    return int(axis) % ndim


def lengths_of(name: str, a: Tensor, shape: Sequence[int]) -> tuple[int, ...]:
    """Give a shape as a tuple, and refuse what is none."""
    try:
        return tuple([index(n) for n in shape])
    except TypeError:
        raise TypeError(
            f"{name} of a tensor of shape {a.shape} to {shape!r}: a shape is a tuple of integers, such as {a.shape}"
        ) from None


# ---------------------------------------------------------------------------------------------------- reshape


def _reshape(arithmetic: Arithmetic, a: Array, shape: tuple[int, ...]) -> tuple[Array, Saved]:
    return a.reshape(shape), (a.shape,)


def _reshape_gradient(context: Context, gradient: Array) -> Parts:
    return (gradient.reshape(context.saved[0]),)


_RESHAPE = Op("reshape", _reshape, _reshape_gradient)


def reshape(a: Tensor, shape: Sequence[int]) -> Tensor:
    """Give the values another shape, in C order; one length may be -1. Gradient: reshaped back.

    >>> reshape(Tensor([1.0, 2.0, 3.0, 4.0]), (2, -1)).data
    array([[1., 2.],
           [3., 4.]], dtype=float32)
    """
    need_tensor(a)
    goal = lengths_of("reshape", a, shape)
    free = goal.count(-1)
    known = prod(n for n in goal if n != -1)
    if free > 1 or any(n < -1 for n in goal) or (a.size % known if free and known else a.size != known):
        raise ValueError(
            f"reshape of a tensor of shape {a.shape} to {goal}: the {a.size} elements do not fit; lengths multiply to "
            "the same number, and one of them may be -1"
        )
    return run(_RESHAPE, a, shape=goal)


def flatten(a: Tensor, start: int = 0, end: int = -1) -> Tensor:
    """Make one axis of those from `start` to `end`, the latter included.

    >>> flatten(Tensor(np.zeros((2, 3, 4), np.float32)), 1).shape
    (2, 12)
    """
    need_tensor(a)
    if not a.ndim:
        return reshape(a, (1,))
    first, last = (axis_of("flatten", axis, a.ndim, a.shape) for axis in (start, end))
    if first > last:
        raise ValueError(
            f"flatten of axes {start} to {end} of a tensor of shape {a.shape}: name the first first"
        )
    return reshape(a, (*a.shape[:first], prod(a.shape[first : last + 1]), *a.shape[last + 1 :]))


def expand_dims(a: Tensor, axis: int) -> Tensor:
    """Insert an axis of length 1 that becomes axis `axis` of the result: torch's ``unsqueeze``.

    >>> expand_dims(Tensor([1.0, 2.0]), -1).shape
    (2, 1)
    """
    need_tensor(a)
    place = axis_of("expand_dims", axis, a.ndim + 1, a.shape)
    return reshape(a, (*a.shape[:place], 1, *a.shape[place:]))


def squeeze(a: Tensor, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Drop axes of length 1: all of them, or those named, which must have that length.

    >>> squeeze(Tensor([[[1.0], [2.0]]]), 0).shape
    (2, 1)
    """
    need_tensor(a)
    if axis is None:
        return reshape(a, [n for n in a.shape if n != 1])
    named = [axis_of("squeeze", n, a.ndim, a.shape) for n in (axis if isinstance(axis, tuple) else (axis,))]
    if any(a.shape[n] != 1 for n in named):
        raise ValueError(f"squeeze of axis {axis} of a tensor of shape {a.shape}: its length must be 1")
    return reshape(a, [n for i, n in enumerate(a.shape) if i not in named])


# ---------------------------------------------------------------------------------------------------- transpose


def _transpose(arithmetic: Arithmetic, a: Array, axes: tuple[int, ...]) -> tuple[Array, Saved]:
    return a.transpose(axes), (axes,)


def _transpose_gradient(context: Context, gradient: Array) -> Parts:
    (axes,) = context.saved
    return (gradient.transpose(sorted(range(len(axes)), key=axes.__getitem__)),)


_TRANSPOSE = Op("transpose", _transpose, _transpose_gradient)


def transpose(a: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    """Reorder the axes, by default reverse them. Gradient: ordered back.

    >>> transpose(Tensor(np.zeros((2, 3, 4), np.float32)), (0, 2, 1)).shape
    (2, 4, 3)
    """
    need_tensor(a)
    if axes is None:
        return run(_TRANSPOSE, a, axes=tuple(range(a.ndim))[::-1])
    order = tuple(axis_of("transpose", axis, a.ndim, a.shape) for axis in axes)
    if sorted(order) != list(range(a.ndim)):
        raise ValueError(f"axes {axes} of a tensor of shape {a.shape}: name each of its axes once")
    return run(_TRANSPOSE, a, axes=order)


def swapaxes(a: Tensor, first: int, second: int) -> Tensor:
    """Exchange two axes: torch's ``transpose(first, second)``.

    >>> swapaxes(Tensor(np.zeros((2, 3, 4), np.float32)), 0, -1).shape
    (4, 3, 2)
    """
    need_tensor(a)
    order = list(range(a.ndim))
    i, j = (axis_of("swapaxes", axis, a.ndim, a.shape) for axis in (first, second))
    order[i], order[j] = order[j], order[i]
    return run(_TRANSPOSE, a, axes=tuple(order))


# ---------------------------------------------------------------------------------------------- broadcast_to, flip


def _broadcast_to(arithmetic: Arithmetic, a: Array, shape: tuple[int, ...]) -> tuple[Array, Saved]:
    return np.broadcast_to(a, shape).copy(), (a.shape,)


def _broadcast_to_gradient(context: Context, gradient: Array) -> Parts:
    return (context.arithmetic.sum_to(gradient, context.saved[0]),)


_BROADCAST_TO = Op("broadcast_to", _broadcast_to, _broadcast_to_gradient)


def broadcast_to(a: Tensor, shape: Sequence[int]) -> Tensor:
    """Repeat along new axes in front and along axes of length 1.

    Gradient: summed over those axes in C order, as the policy's reduction says, rounded once.

    >>> broadcast_to(Tensor([1.0, 2.0]), (2, 2)).data
    array([[1., 2.],
           [1., 2.]], dtype=float32)
    """
    need_tensor(a)
    goal = lengths_of("broadcast_to", a, shape)
    try:
        fits = np.broadcast_shapes(a.shape, goal) == goal
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"broadcast_to of a tensor of shape {a.shape} to {goal}: going from the last axis, lengths must be equal "
            "or 1 in the tensor; reshape it"
        )
    return run(_BROADCAST_TO, a, shape=goal)


def _flip(arithmetic: Arithmetic, a: Array, axes: tuple[int, ...]) -> tuple[Array, Saved]:
    return np.flip(a, axes), (axes,)


def _flip_gradient(context: Context, gradient: Array) -> Parts:
    return (np.flip(gradient, context.saved[0]),)


_FLIP = Op("flip", _flip, _flip_gradient)


def flip(a: Tensor, axis: int | tuple[int, ...]) -> Tensor:
    """Reverse the order along axes. Gradient: reversed likewise.

    >>> flip(Tensor([1.0, 2.0, 3.0]), 0).data
    array([3., 2., 1.], dtype=float32)
    """
    need_tensor(a)
    given = axis if isinstance(axis, tuple) else (axis,)
    return run(_FLIP, a, axes=tuple({axis_of("flip", n, a.ndim, a.shape) for n in given}))
