"""The operations: a row each, forward and gradient together.

A forward takes arrays and gives the result with what its gradient needs. A gradient takes the gradient of the
result and gives one for each parent. Both compute through the
:class:`~fp16sim.autograd.arithmetic.Arithmetic` that they are handed and nothing else, so every rounding is
one of its methods.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.autograd.arithmetic import Arithmetic, Array, round_array
from fp16sim.autograd.policy import current_policy
from fp16sim.autograd.tensor import Context, Tensor, apply, need_tensor
from fp16sim.emulator.formats import nearest_name

__all__ = ["Op", "add", "cast", "cross_entropy", "matmul", "multiply", "relu", "reshape", "transpose"]


@dataclass(frozen=True)
class Op:
    """A row of the table of operations.

    Attributes
    ----------
    name : str
    forward : callable
        ``(arithmetic, *arrays, **options) -> (array, saved)``.
    gradient : callable
        ``(context, gradient) -> (gradient or None for each parent)``.
    """

    name: str
    forward: Callable[..., tuple[Array, tuple[Any, ...]]]
    gradient: Callable[[Context, Array], tuple[Array | None, ...]]


# ---------------------------------------------------------------------------------------------------- add


def _add(arithmetic: Arithmetic, a: Array, b: Array) -> tuple[Array, tuple[Any, ...]]:
    return arithmetic.add(a, b), (a.shape, b.shape)


def _add_gradient(context: Context, gradient: Array) -> tuple[Array | None, ...]:
    return tuple(
        context.arithmetic.sum_to(gradient, shape) if needed else None
        for shape, needed in zip(context.saved, context.needs, strict=True)
    )


_ADD = Op("add", _add, _add_gradient)


def add(a: Tensor, b: Tensor) -> Tensor:
    """Add, rounded once; shapes broadcast.

    Gradient: that of the result; over broadcast axes its sum, by the policy's reduction.
    """
    _same_dtype("add", a, b)
    try:
        np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        raise ValueError(
            f"add of shapes {a.shape} and {b.shape}: they do not broadcast; reshape one"
        ) from None
    return apply(_ADD, _arithmetic(), a, b)


# ----------------------------------------------------------------------------------------------------
# multiply


def _multiply(arithmetic: Arithmetic, a: Array, constant: Array) -> tuple[Array, tuple[Any, ...]]:
    return arithmetic.multiply(a, constant), (constant,)


def _multiply_gradient(context: Context, gradient: Array) -> tuple[Array | None, ...]:
    return (context.arithmetic.multiply(gradient, context.saved[0]),)


_MULTIPLY = Op("multiply", _multiply, _multiply_gradient)


def multiply(a: Tensor, constant: float) -> Tensor:
    """Multiply by a constant, which is rounded to the dtype of the tensor first; then rounded once.

    Gradient: that of the result times the constant, rounded once.
    """
    need_tensor(a)
    if isinstance(constant, Tensor):
        raise TypeError("a tensor times a tensor: multiply takes a constant; use @ for a matrix product")
    return apply(_MULTIPLY, _arithmetic(), a, constant=round_array(np.asarray(constant, np.float64), a.dtype))


# ---------------------------------------------------------------------------------------------------- matmul


def _matmul(arithmetic: Arithmetic, a: Array, b: Array) -> tuple[Array, tuple[Any, ...]]:
    return arithmetic.matmul(a, b), (a, b)


def _matmul_gradient(context: Context, gradient: Array) -> tuple[Array | None, ...]:
    a, b = context.saved
    return (
        context.arithmetic.matmul(gradient, b.T) if context.needs[0] else None,
        context.arithmetic.matmul(a.T, gradient) if context.needs[1] else None,
    )


_MATMUL = Op("matmul", _matmul, _matmul_gradient)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Multiply matrices (m, k) and (k, n): accumulated as the policy's matmul says, rounded to the dtype
    once.

    Gradients: G b^T, with its sum over n, and a^T G, with its sum over m; accumulated and rounded alike.
    """
    _same_dtype("matmul", a, b)
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(
            f"matmul of shapes {a.shape} and {b.shape}: it takes (m, k) and (k, n); reshape first"
        )
    return apply(_MATMUL, _arithmetic(), a, b)


# ---------------------------------------------------------------------------------------------------- relu


def _relu(arithmetic: Arithmetic, a: Array) -> tuple[Array, tuple[Any, ...]]:
    off = a <= 0
    return np.where(off, a.dtype.type(0), a), (off,)


def _relu_gradient(context: Context, gradient: Array) -> tuple[Array | None, ...]:
    return (np.where(context.saved[0], gradient.dtype.type(0), gradient),)


_RELU = Op("relu", _relu, _relu_gradient)


def relu(a: Tensor) -> Tensor:
    """Replace values <= 0 by +0; NaN stays. Nothing is rounded.

    Gradient: +0 where the value was <= 0, that of the result elsewhere.
    """
    return apply(_RELU, _arithmetic(), a)


# ---------------------------------------------------------------------------------------------------- cast


def _cast(arithmetic: Arithmetic, a: Array, dtype: np.dtype[Any]) -> tuple[Array, tuple[Any, ...]]:
    return round_array(a, dtype), (a.dtype,)


def _cast_gradient(context: Context, gradient: Array) -> tuple[Array | None, ...]:
    return (context.arithmetic.cast(gradient, context.saved[0]),)


_CAST = Op("cast", _cast, _cast_gradient)


def cast(a: Tensor, dtype: npt.DTypeLike) -> Tensor:
    """Convert to float16 (rounded once) or float32 (exact); a tensor of that dtype is returned as it is.

    Gradient: converted back the same way.
    """
    need_tensor(a)
    name = dtype if isinstance(dtype, str) else np.dtype(dtype).name
    if name not in ("float16", "float32"):
        raise ValueError(f"cast to {name!r}: {nearest_name(name, ('float16', 'float32'))}")
    target = np.dtype(name)
    return a if a.dtype == target else apply(_CAST, _arithmetic(), a, dtype=target)


# ---------------------------------------------------------------------------------------------------- shapes


def _reshape(arithmetic: Arithmetic, a: Array, shape: tuple[int, ...]) -> tuple[Array, tuple[Any, ...]]:
    return a.reshape(shape), (a.shape,)


def _reshape_gradient(context: Context, gradient: Array) -> tuple[Array | None, ...]:
    return (gradient.reshape(context.saved[0]),)


_RESHAPE = Op("reshape", _reshape, _reshape_gradient)


def reshape(a: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Give the values another shape, in C order. Nothing is rounded. Gradient: reshaped back."""
    return apply(_RESHAPE, _arithmetic(), a, shape=shape)


def _transpose(arithmetic: Arithmetic, a: Array) -> tuple[Array, tuple[Any, ...]]:
    return a.T, ()


def _transpose_gradient(context: Context, gradient: Array) -> tuple[Array | None, ...]:
    return (gradient.T,)


_TRANSPOSE = Op("transpose", _transpose, _transpose_gradient)


def transpose(a: Tensor) -> Tensor:
    """Reverse the axes. Nothing is rounded. Gradient: reversed back."""
    return apply(_TRANSPOSE, _arithmetic(), a)


# ---------------------------------------------------------------------------------------------------- loss


def _cross_entropy(arithmetic: Arithmetic, logits: Array, labels: Array) -> tuple[Array, tuple[Any, ...]]:
    rows = np.arange(len(labels))
    shifted = arithmetic.subtract(logits, logits.max(axis=1, keepdims=True))
    exponentials = arithmetic.exp(shifted)
    sums = arithmetic.sum(exponentials, 1)
    losses = arithmetic.subtract(arithmetic.log(sums), shifted[rows, labels])
    count = np.asarray(len(labels), logits.dtype)
    loss = arithmetic.divide(arithmetic.sum(losses), count)
    return loss, (exponentials, sums, labels, count)


def _cross_entropy_gradient(context: Context, gradient: Array) -> tuple[Array | None, ...]:
    exponentials, sums, labels, count = context.saved
    arithmetic = context.arithmetic
    probabilities = arithmetic.divide(exponentials, sums[:, None])
    hot = np.zeros_like(probabilities)
    hot[np.arange(len(labels)), labels] = 1
    difference = arithmetic.subtract(probabilities, hot)
    return (arithmetic.multiply(difference, arithmetic.divide(gradient, count)),)


_CROSS_ENTROPY = Op("cross_entropy", _cross_entropy, _cross_entropy_gradient)


def cross_entropy(logits: Tensor, labels: npt.ArrayLike) -> Tensor:
    """Mean over the batch of -log softmax(logits)[label].

    Parameters
    ----------
    logits : Tensor, shape (batch, classes)
    labels : integers, shape (batch,)
        Classes from 0.

    Notes
    -----
    Each step is rounded to the dtype of the logits: z = logits - max; e = exp(z); s = sum(e); row = log(s) -
    z[label]; the sum over rows; its quotient by the batch size. Sums by the policy's reduction.

    Gradient, each step rounded: p = e / s; d = p - onehot; q = G / batch; d q.
    """
    need_tensor(logits)
    classes = np.asarray(labels)
    if len(logits.shape) != 2 or classes.shape != logits.shape[:1] or not classes.size:
        raise ValueError(
            f"cross_entropy of logits {logits.shape} and labels {classes.shape}: "
            "pass (batch, classes) and (batch,)"
        )
    if classes.dtype.kind not in "iu" or classes.min() < 0 or classes.max() >= logits.shape[1]:
        raise ValueError(
            f"labels must be integers from 0 to {logits.shape[1] - 1}; check the classes of the data"
        )
    return apply(_CROSS_ENTROPY, _arithmetic(), logits, labels=classes)


OPS = {op.name: op for op in (_ADD, _MULTIPLY, _MATMUL, _RELU, _CAST, _RESHAPE, _TRANSPOSE, _CROSS_ENTROPY)}
"""Every operation by name."""


def _arithmetic() -> Arithmetic:
    policy = current_policy()
    return Arithmetic(policy.matmul, policy.reduction)


def _same_dtype(name: str, a: Tensor, b: Tensor) -> None:
    for operand in (a, b):
        need_tensor(operand)
    if a.dtype != b.dtype:
        raise TypeError(
            f"{name} of {a.dtype} and {b.dtype}: cast one of them first, fp16sim.autograd.ops.cast"
        )
