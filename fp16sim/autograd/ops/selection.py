"""Operations that choose among values or change signs: nothing is rounded forward.

Where values tie, gradients are as torch 2.13 has them (derivatives.yaml).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.autograd.arithmetic import Arithmetic, Array
from fp16sim.autograd.operation import Op, run
from fp16sim.autograd.ops.elementwise import as_number, is_number, operands
from fp16sim.autograd.tensor import Context, Tensor, need_tensor

__all__ = ["absolute", "clip", "maximum", "minimum", "where"]

Saved = tuple[Any, ...]
Parts = tuple[Array | None, ...]


def _absolute(arithmetic: Arithmetic, a: Array) -> tuple[Array, Saved]:
    return np.abs(a), (a,)


def _absolute_gradient(context: Context, gradient: Array) -> Parts:
    (a,) = context.saved
    zero = gradient.dtype.type(0)
    return (np.where(a > 0, gradient, np.where(a < 0, context.arithmetic.negative(gradient), zero)),)


_ABSOLUTE = Op("absolute", _absolute, _absolute_gradient)


def absolute(a: Tensor) -> Tensor:
    """Clear the sign. Gradient: G above zero, -G below, +0 at zero and NaN.

    >>> abs(Tensor([-2.0, 3.0])).data
    array([2., 3.], dtype=float32)
    """
    return run(_ABSOLUTE, a)


# ---------------------------------------------------------------------------------------------------- maximum, minimum


def _maximum(arithmetic: Arithmetic, a: Array, b: Array) -> tuple[Array, Saved]:
    first = (a > b) | ((a == b) & ~np.signbit(a))
    return _unless_nan(np.where(first, a, b), a, b), (a, b)


def _minimum(arithmetic: Arithmetic, a: Array, b: Array) -> tuple[Array, Saved]:
    first = (a < b) | ((a == b) & np.signbit(a))
    return _unless_nan(np.where(first, a, b), a, b), (a, b)


def _unless_nan(chosen: Array, a: Array, b: Array) -> Array:
    return np.where(np.isnan(a) | np.isnan(b), chosen.dtype.type(np.nan), chosen)


def _maximum_gradient(context: Context, gradient: Array) -> Parts:
    a, b = context.saved
    return _shared(context, gradient, a < b, a > b)


def _minimum_gradient(context: Context, gradient: Array) -> Parts:
    a, b = context.saved
    return _shared(context, gradient, a > b, a < b)


def _shared(context: Context, gradient: Array, without_a: Array, without_b: Array) -> Parts:
    """Give each operand the gradient where it was chosen, and both a half of it where they are equal."""
    arithmetic, (a, b) = context.arithmetic, context.saved
    zero = gradient.dtype.type(0)
    half = arithmetic.multiply(gradient, arithmetic.constant(0.5, gradient))
    either = np.where(a == b, half, gradient)
    return tuple(
        arithmetic.sum_to(np.where(without, zero, either), x.shape) if needed else None
        for x, without, needed in zip((a, b), (without_a, without_b), context.needs, strict=True)
    )


_MAXIMUM = Op("maximum", _maximum, _maximum_gradient)
_MINIMUM = Op("minimum", _minimum, _minimum_gradient)


def maximum(a: Any, b: Any) -> Tensor:
    """Choose the larger of two elements; NaN if either is; +0 is above -0 (IEEE 754-2019, 9.6).

    Gradients, as torch.maximum: G for the larger and +0 for the other; for equal elements G / 2 each, rounded once;
    G for both where either is NaN. Then summed over axes that broadcast.

    >>> x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    >>> maximum(x, 2.0).backward([1.0, 1.0, 1.0])
    >>> x.grad
    array([0. , 0.5, 1. ], dtype=float32)
    """
    return run(_MAXIMUM, *operands("maximum", a, b))


def minimum(a: Any, b: Any) -> Tensor:
    """Choose the smaller of two elements; NaN if either is; -0 is below +0. Gradients: as those of `maximum`.

    >>> minimum(Tensor([1.0, 2.0, 3.0]), 2.0).data
    array([1., 2., 2.], dtype=float32)
    """
    return run(_MINIMUM, *operands("minimum", a, b))


# ---------------------------------------------------------------------------------------------------- clip, where


def _clip(arithmetic: Arithmetic, a: Array, low: float, high: float) -> tuple[Array, Saved]:
    least, most = arithmetic.constant(low, a), arithmetic.constant(high, a)
    return np.where(a < least, least, np.where(a > most, most, a)), (a, least, most)


def _clip_gradient(context: Context, gradient: Array) -> Parts:
    a, least, most = context.saved
    return (np.where((a >= least) & (a <= most), gradient, gradient.dtype.type(0)),)


_CLIP = Op("clip", _clip, _clip_gradient)


def clip(a: Tensor, low: float | None = None, high: float | None = None) -> Tensor:
    """Replace values below `low` by it, and values above `high`; NaN stays. The bounds are rounded to the dtype.

    Gradient, as torch.clamp: G where low <= x <= high, +0 elsewhere and at NaN.

    Raises
    ------
    TypeError, ValueError
        If a bound is no number, none is given, or they are in the wrong order.

    Examples
    --------
    >>> clip(Tensor([-2.0, 0.5, 7.0]), -1.0, 1.0).data
    array([-1. ,  0.5,  1. ], dtype=float32)
    """
    need_tensor(a)
    for bound in (low, high):
        if bound is not None and not is_number(bound):
            raise TypeError(
                f"clip with a {type(bound).__name__} as bound: pass numbers, or None for no bound"
            )
    if low is None and high is None:
        raise ValueError("clip without bounds: pass low, high or both")
    least = -np.inf if low is None else as_number("clip", low)
    most = np.inf if high is None else as_number("clip", high)
    if not least <= most:
        raise ValueError(f"clip from {low} to {high}: pass numbers with low <= high")
    return run(_CLIP, a, low=least, high=most)


def _where(
    arithmetic: Arithmetic, a: Array, b: Array, condition: npt.NDArray[np.bool_]
) -> tuple[Array, Saved]:
    return np.where(condition, a, b), (condition, a.shape, b.shape)


def _where_gradient(context: Context, gradient: Array) -> Parts:
    condition, *shapes = context.saved
    zero = gradient.dtype.type(0)
    return tuple(
        context.arithmetic.sum_to(np.where(condition == side, gradient, zero), shape) if needed else None
        for side, shape, needed in zip((True, False), shapes, context.needs, strict=True)
    )


_WHERE = Op("where", _where, _where_gradient)


def where(condition: npt.ArrayLike, a: Any, b: Any) -> Tensor:
    """Take `a` where the condition is true and `b` elsewhere; all three broadcast.

    Gradients: G where the operand was taken, +0 elsewhere, summed over axes that broadcast.

    Parameters
    ----------
    condition : array of bool
        Such as ``x.data > 0``.
    a, b : Tensor or number, not both numbers

    Raises
    ------
    TypeError
        If the condition is not boolean.
    ValueError
        If the shapes do not broadcast.

    Examples
    --------
    >>> x = Tensor([1.0, -2.0])
    >>> where(x.data > 0, x, 0.0).data
    array([1., 0.], dtype=float32)
    """
    if isinstance(condition, Tensor):
        raise TypeError("where with a tensor as condition: pass an array of bool, such as x.data > 0")
    chosen = np.array(condition)  # a copy: the gradient must find what the forward pass saw
    if chosen.dtype != np.bool_:
        raise TypeError(
            f"where with a condition of {chosen.dtype}: pass an array of bool, such as x.data > 0"
        )
    left, right = operands("where", a, b)
    try:
        np.broadcast_shapes(chosen.shape, left.shape, right.shape)
    except ValueError:
        raise ValueError(
            f"where of shapes {chosen.shape}, {left.shape} and {right.shape}: they do not broadcast; reshape one"
        ) from None
    return run(_WHERE, left, right, condition=chosen)
