"""Sums and what is built on them, accumulated as the policy's reduction says."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.autograd.arithmetic import BFLOAT16, FLOAT32, Arithmetic, Array, round_array
from fp16sim.autograd.operation import Op, run
from fp16sim.autograd.ops.shapes import axis_of
from fp16sim.autograd.tensor import Context, Tensor, need_tensor

__all__ = ["amax", "amin", "argmax", "argmin", "cumsum", "logsumexp", "mean", "norm", "sum", "variance"]

Saved = tuple[Any, ...]
Parts = tuple[Array | None, ...]
Axis = int | tuple[int, ...] | None


def axes_of(name: str, a: Tensor, axis: Axis) -> tuple[int, ...]:
    """Give the axes that a reduction runs over, counted from 0, in order."""
    need_tensor(a)
    if axis is None:
        return tuple(range(a.ndim))
    given = axis if isinstance(axis, tuple) else (axis,)
    whole = all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in given)
    found = sorted([n + a.ndim if n < 0 else n for n in given]) if whole else []
    if not whole or any(not 0 <= n < a.ndim for n in found) or len(set(found)) < len(found):
        raise ValueError(
            f"{name} over axis {axis!r} of a tensor of shape {a.shape}: name axes that it has, each once"
        )
    return tuple(found)


def spread(gradient: Array, shape: tuple[int, ...], axes: tuple[int, ...]) -> Array:
    """Undo a reduction of `shape` over `axes` by repeating, without a copy."""
    kept = tuple(1 if i in axes else n for i, n in enumerate(shape))
    return np.broadcast_to(gradient.reshape(kept), shape)


# ------------------------------------------------------------------------------------------------ sum, mean


def _sum(arithmetic: Arithmetic, a: Array, axes: tuple[int, ...], keepdims: bool) -> tuple[Array, Saved]:
    return arithmetic.sum(a, axes, keepdims), (a.shape, axes)


def _sum_gradient(context: Context, gradient: Array) -> Parts:
    return (spread(gradient, *context.saved),)


_SUM = Op("sum", _sum, _sum_gradient)


def sum(a: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Sum in increasing C-order index from +0, rounded to the dtype once. Gradient: repeated.

    >>> sum(Tensor([[1.0, 2.0], [3.0, 4.0]]), 0).data
    array([4., 6.], dtype=float32)
    """
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

    >>> mean(Tensor(np.float16([40000.0, 40000.0, 40000.0]))).item()
    40000.0
    """
    return run(_MEAN, a, axes=axes_of("mean", a, axis), keepdims=keepdims)


# ------------------------------------------------------------------------------------------------ variance, norm


def _variance(
    arithmetic: Arithmetic, a: Array, axes: tuple[int, ...], correction: int, keepdims: bool
) -> tuple[Array, Saved]:
    centre = arithmetic.mean(a, axes, keepdims=True)
    differences = arithmetic.subtract(a, centre)
    squares = arithmetic.sum(arithmetic.multiply(differences, differences), axes, keepdims)
    terms = prod(a.shape[i] for i in axes) - correction
    return arithmetic.divide(squares, arithmetic.constant(terms, a)), (a, centre, axes, terms)


def _variance_gradient(context: Context, gradient: Array) -> Parts:
    arithmetic, (a, centre, axes, terms) = context.arithmetic, context.saved
    factor = arithmetic.multiply(arithmetic.constant(2.0 / terms, gradient), gradient)
    return (arithmetic.multiply(spread(factor, a.shape, axes), arithmetic.subtract(a, centre)),)


_VARIANCE = Op("variance", _variance, _variance_gradient)


def variance(a: Tensor, axis: Axis = None, correction: int = 1, keepdims: bool = False) -> Tensor:
    """Sum of squared distances from the mean, over the number of terms less `correction`, 1 as in torch.

    Each step is rounded to the dtype: m = mean; d = x - m; s = d d; their sum; its quotient by the number, which is
    rounded first. Gradient: f = (2 / number) G, the constant rounded from binary64; f (x - m), as forward; each
    rounded.

    >>> variance(Tensor([1.0, 2.0, 6.0])).item(), variance(Tensor([1.0, 2.0, 6.0]), correction=0).item()
    (7.0, 4.666666507720947)
    """
    axes = axes_of("variance", a, axis)
    terms = prod(a.shape[i] for i in axes)
    if terms <= correction:
        raise ValueError(
            f"variance of {terms} terms with correction={correction} (shape {a.shape}, axis {axis}): it divides by "
            "terms - correction; pass more terms or correction=0"
        )
    return run(_VARIANCE, a, axes=axes, correction=correction, keepdims=keepdims)


def _norm(arithmetic: Arithmetic, a: Array, axes: tuple[int, ...], keepdims: bool) -> tuple[Array, Saved]:
    result = arithmetic.norm(a, axes, keepdims)
    return result, (a, result, axes)


def _norm_gradient(context: Context, gradient: Array) -> Parts:
    a, result, axes = context.saved
    length = spread(result, a.shape, axes)
    direction = context.arithmetic.divide(a, length)
    chosen = np.where(length == 0, gradient.dtype.type(0), direction)
    return (context.arithmetic.multiply(spread(gradient, a.shape, axes), chosen),)


_NORM = Op("norm", _norm, _norm_gradient)


def norm(a: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Euclidean norm: the sum of squares and its square root in the accumulator's format, then rounded to the dtype.

    Gradient: q = x / y, +0 where y = 0; G q; each rounded.

    >>> norm(Tensor(np.float16([300.0, 400.0]))).item()
    500.0
    """
    return run(_NORM, a, axes=axes_of("norm", a, axis), keepdims=keepdims)


# ------------------------------------------------------------------------------------------------ cumsum, logsumexp


def _cumsum(arithmetic: Arithmetic, a: Array, axis: int) -> tuple[Array, Saved]:
    return arithmetic.cumsum(a, axis), (axis,)


def _cumsum_gradient(context: Context, gradient: Array) -> Parts:
    (axis,) = context.saved
    return (np.flip(context.arithmetic.cumsum(np.flip(gradient, axis), axis), axis),)


_CUMSUM = Op("cumsum", _cumsum, _cumsum_gradient)


def cumsum(a: Tensor, axis: int) -> Tensor:
    """Sum the elements up to each one along an axis, each sum rounded once. Gradient: likewise from the far end.

    >>> cumsum(Tensor([1.0, 2.0, 3.0]), 0).data
    array([1., 3., 6.], dtype=float32)
    """
    need_tensor(a)
    return run(_CUMSUM, a, axis=axis_of("cumsum", axis, a.ndim, a.shape))


def _logsumexp(
    arithmetic: Arithmetic, a: Array, axes: tuple[int, ...], keepdims: bool
) -> tuple[Array, Saved]:
    largest = _extreme(arithmetic, a, axes, True)
    shift = np.where(np.isinf(largest), largest.dtype.type(0), largest)
    exponentials = arithmetic.function("exp", arithmetic.subtract(a, shift))
    logarithm = arithmetic.function("log", arithmetic.sum(exponentials, axes, True))
    result = arithmetic.add(logarithm, shift).reshape(_left(a.shape, axes, keepdims))
    return result, (a, result, axes)


def _logsumexp_gradient(context: Context, gradient: Array) -> Parts:
    arithmetic, (a, result, axes) = context.arithmetic, context.saved
    shares = arithmetic.function("exp", arithmetic.subtract(a, spread(result, a.shape, axes)))
    return (arithmetic.multiply(spread(gradient, a.shape, axes), shares),)


_LOGSUMEXP = Op("logsumexp", _logsumexp, _logsumexp_gradient)


def logsumexp(a: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Logarithm of the sum of exponentials.

    Each step is rounded: m = largest element, 0 in place of an infinity; z = x - m; e = exp(z); their sum; its
    logarithm; its sum with m. Gradient: d = x - y; e = exp(d); G e; each rounded.

    >>> logsumexp(Tensor([1000.0, 1000.0])).item()
    1000.6931762695312
    """
    axes = axes_of("logsumexp", a, axis)
    _need_terms("logsumexp", a, axes)
    return run(_LOGSUMEXP, a, axes=axes, keepdims=keepdims)


# ------------------------------------------------------------------------------------------------ amax, amin, argmax


def _extreme(arithmetic: Arithmetic, a: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    rest = [i for i in range(a.ndim) if i not in axes]
    rows = a.transpose(*rest, *axes).reshape(*(a.shape[i] for i in rest), prod(a.shape[i] for i in axes))
    return arithmetic.maximum_of(rows, -1).reshape(_left(a.shape, axes, keepdims))


def _left(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    return tuple(1 if i in axes else n for i, n in enumerate(shape) if keepdims or i not in axes)


def _amax(arithmetic: Arithmetic, a: Array, axes: tuple[int, ...], keepdims: bool) -> tuple[Array, Saved]:
    result = _extreme(arithmetic, a, axes, keepdims)
    return result, (a, result, axes)


def _amin(arithmetic: Arithmetic, a: Array, axes: tuple[int, ...], keepdims: bool) -> tuple[Array, Saved]:
    opposite = _extreme(arithmetic, arithmetic.negative(a), axes, keepdims)
    result = np.where(np.isnan(opposite), opposite, arithmetic.negative(opposite))
    return result, (a, result, axes)


def _extreme_gradient(context: Context, gradient: Array) -> Parts:
    a, result, axes = context.saved
    equal = a == spread(result, a.shape, axes)
    count = np.count_nonzero(equal, axis=axes, keepdims=True)
    chosen = np.where(equal, spread(gradient, a.shape, axes), gradient.dtype.type(0))
    return (context.arithmetic.divide(chosen, context.arithmetic.cast(count, gradient.dtype)),)


_AMAX = Op("amax", _amax, _extreme_gradient)
_AMIN = Op("amin", _amin, _extreme_gradient)


def amax(a: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Choose the largest element; NaN if there is one; +0 is above -0.

    Gradient, as torch.amax: the n elements that equal the result get G / n each, rounded once, the others +0; if the
    result is NaN, all get NaN. (torch.max along one axis gives all of G to one of them.)

    >>> x = Tensor([3.0, 1.0, 3.0], requires_grad=True)
    >>> amax(x).backward()
    >>> x.grad
    array([0.5, 0. , 0.5], dtype=float32)
    """
    axes = axes_of("amax", a, axis)
    _need_terms("amax", a, axes)
    return run(_AMAX, a, axes=axes, keepdims=keepdims)


def amin(a: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Choose the smallest element; NaN if there is one; -0 is below +0. Gradient: as that of `amax`.

    >>> amin(Tensor([[3.0, 1.0], [2.0, 5.0]]), 1).data
    array([1., 2.], dtype=float32)
    """
    axes = axes_of("amin", a, axis)
    _need_terms("amin", a, axes)
    return run(_AMIN, a, axes=axes, keepdims=keepdims)


def argmax(a: Tensor, axis: int | None = None) -> npt.NDArray[np.int64]:
    """Give the index of the first largest element, as a NumPy array without gradient; of the first NaN if there is one.

    >>> int(argmax(Tensor([1.0, 3.0, 3.0])))
    1
    """
    return _place(np.argmax, "argmax", a, axis)


def argmin(a: Tensor, axis: int | None = None) -> npt.NDArray[np.int64]:
    """Give the index of the first smallest element, as `argmax`.

    >>> argmin(Tensor([[1.0, 3.0], [7.0, 2.0]]), 1)
    array([0, 1])
    """
    return _place(np.argmin, "argmin", a, axis)


def _place(function: Callable[..., Any], name: str, a: Tensor, axis: int | None) -> npt.NDArray[np.int64]:
    need_tensor(a)
    axes = axes_of(name, a, None if axis is None else axis_of(name, axis, a.ndim, a.shape))
    _need_terms(name, a, axes)
    values = a.data if a.dtype != BFLOAT16 else round_array(a.data, FLOAT32)
    with np.errstate(invalid="ignore"):
        return np.asarray(function(values, axis=None if axis is None else axes[0]), np.int64)


def _need_terms(name: str, a: Tensor, axes: tuple[int, ...]) -> None:
    if not prod(a.shape[i] for i in axes):
        raise ValueError(f"{name} of no elements (shape {a.shape}, axes {axes}): pass an axis that has some")
