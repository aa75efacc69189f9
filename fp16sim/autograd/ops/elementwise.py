"""Arithmetic on each element. Operands broadcast; numbers take the dtype of the tensor beside them, rounded once.

Outside of a policy two formats meet in the wider one. Every gradient is summed over the axes that broadcasting added
or stretched, by the policy's reduction.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.autograd import operation
from fp16sim.autograd.arithmetic import Arithmetic, Array, as_dtype
from fp16sim.autograd.operation import Op, run
from fp16sim.autograd.tensor import Context, Tensor, need_tensor

__all__ = ["add", "cast", "divide", "multiply", "negative", "subtract"]

Saved = tuple[Any, ...]
Parts = tuple[Array | None, ...]


def operands(name: str, a: Any, b: Any) -> tuple[Tensor, Tensor]:
    """Make tensors of both operands and check that they broadcast."""
    if type(a) is Tensor and type(b) is Tensor and a._array.shape == b._array.shape:
        return a, b
    if not isinstance(a, Tensor) and not isinstance(b, Tensor):
        need_tensor(a)
    left, right = (_tensor(name, x, other) for x, other in ((a, b), (b, a)))
    if left.shape != right.shape and left.shape and right.shape:
        try:
            np.broadcast_shapes(left.shape, right.shape)
        except ValueError:
            raise ValueError(
                f"{name} of shapes {left.shape} and {right.shape}: they do not broadcast; reshape one"
            ) from None
    return left, right


def is_number(x: object) -> bool:
    """Whether an operand is a Python or NumPy number, which has no format of its own."""
    return isinstance(x, (bool, int, float, np.number, np.bool_))


def as_number(name: str, x: Any) -> float:
    """Take a number as a float, refusing integers beyond all floats."""
    try:
        return float(x)
    except OverflowError:
        raise ValueError(
            f"{name} with an integer of {int(x).bit_length()} bits: the largest binary64 number is below 2**1024; pass "
            "a smaller one, or float('inf')"
        ) from None


def _tensor(name: str, x: Any, other: Any) -> Tensor:
    if isinstance(x, Tensor):
        return x
    if is_number(x):
        return Tensor.of_result(Arithmetic().constant(as_number(name, x), other._array))
    raise TypeError(
        f"{name} of a tensor and a {type(x).__name__}: operands are tensors or numbers; pass fs.Tensor(x)"
    )


# ---------------------------------------------------------------------------------------------------- add, subtract


def _add(arithmetic: Arithmetic, a: Array, b: Array) -> tuple[Array, Saved]:
    return arithmetic.add(a, b), (a.shape, b.shape)


def _add_gradient(context: Context, gradient: Array) -> Parts:
    return tuple(
        context.arithmetic.sum_to(gradient, shape) if needed else None
        for shape, needed in zip(context.saved, context.needs, strict=True)
    )


_ADD = Op("add", _add, _add_gradient)


def add(a: Any, b: Any) -> Tensor:
    """Add, rounded once.

    Gradient: that of the result.

    >>> add(Tensor(np.float16([2048.0])), 1.0).data
    array([2.048e+03], dtype=float16)
    """
    return run(_ADD, *operands("add", a, b))


def _subtract(arithmetic: Arithmetic, a: Array, b: Array) -> tuple[Array, Saved]:
    return arithmetic.subtract(a, b), (a.shape, b.shape)


def _subtract_gradient(context: Context, gradient: Array) -> Parts:
    arithmetic, (first, second) = context.arithmetic, context.saved
    return (
        arithmetic.sum_to(gradient, first) if context.needs[0] else None,
        arithmetic.negative(arithmetic.sum_to(gradient, second)) if context.needs[1] else None,
    )


_SUBTRACT = Op("subtract", _subtract, _subtract_gradient)


def subtract(a: Any, b: Any) -> Tensor:
    """Subtract, rounded once.

    Gradients: that of the result, and its negative.

    >>> subtract(1.0, Tensor([0.25, 3.0])).data
    array([ 0.75, -2.  ], dtype=float32)
    """
    return run(_SUBTRACT, *operands("subtract", a, b))


def _negative(arithmetic: Arithmetic, a: Array) -> tuple[Array, Saved]:
    return arithmetic.negative(a), ()


def _negative_gradient(context: Context, gradient: Array) -> Parts:
    return (context.arithmetic.negative(gradient),)


_NEGATIVE = Op("negative", _negative, _negative_gradient)


def negative(a: Tensor) -> Tensor:
    """Change the sign; nothing is rounded. Gradient: the negative of that of the result.

    >>> negative(Tensor([1.0, -2.0])).data
    array([-1.,  2.], dtype=float32)
    """
    return run(_NEGATIVE, a)


# ---------------------------------------------------------------------------------------------------- multiply, divide


def _multiply(arithmetic: Arithmetic, a: Array, b: Array) -> tuple[Array, Saved]:
    return arithmetic.multiply(a, b), (a, b)


def _multiply_gradient(context: Context, gradient: Array) -> Parts:
    arithmetic, (a, b) = context.arithmetic, context.saved
    return (
        arithmetic.sum_to(arithmetic.multiply(gradient, b), a.shape) if context.needs[0] else None,
        arithmetic.sum_to(arithmetic.multiply(gradient, a), b.shape) if context.needs[1] else None,
    )


_MULTIPLY = Op("multiply", _multiply, _multiply_gradient)


def _scale(arithmetic: Arithmetic, a: Array, value: float) -> tuple[Array, Saved]:
    return arithmetic.multiply(a, arithmetic.constant(value, a)), (value,)


def _scale_gradient(context: Context, gradient: Array) -> Parts:
    return (context.arithmetic.multiply(gradient, context.arithmetic.constant(context.saved[0], gradient)),)


_SCALE = Op("multiply", _scale, _scale_gradient)


def multiply(a: Any, b: Any) -> Tensor:
    """Multiply, rounded once; a number is rounded to the format in which the product is computed first.

    Gradients: that of the result times the other operand, rounded once.

    >>> multiply(Tensor(np.float16([3.0])), 0.1).data
    array([0.2998], dtype=float16)
    """
    for x, value in ((a, b), (b, a)):
        if isinstance(x, Tensor) and is_number(value):
            return run(_SCALE, x, value=as_number("multiply", value))
    return run(_MULTIPLY, *operands("multiply", a, b))


def _divide(arithmetic: Arithmetic, a: Array, b: Array) -> tuple[Array, Saved]:
    return arithmetic.divide(a, b), (a, b)


def _divide_gradient(context: Context, gradient: Array) -> Parts:
    arithmetic, (a, b) = context.arithmetic, context.saved
    first = arithmetic.divide(gradient, b)
    second = None
    if context.needs[1]:
        part = arithmetic.negative(arithmetic.multiply(first, arithmetic.divide(a, b)))
        second = arithmetic.sum_to(part, b.shape)
    return arithmetic.sum_to(first, a.shape) if context.needs[0] else None, second


_DIVIDE = Op("divide", _divide, _divide_gradient)


def divide(a: Any, b: Any) -> Tensor:
    """Divide, rounded once.

    Gradients: q = G / b; and -(q (a / b)), each operation rounded.

    >>> divide(Tensor(np.float16([1.0])), 3.0).data
    array([0.3333], dtype=float16)
    """
    return run(_DIVIDE, *operands("divide", a, b))


# ---------------------------------------------------------------------------------------------------- cast


def cast(a: Tensor, dtype: npt.DTypeLike) -> Tensor:
    """Convert to float16, bfloat16, float32 or float64, rounding once where the target is narrower.

    A tensor of that dtype is returned as it is. Gradient: converted back the same way.

    >>> cast(Tensor([65520.0]), "float16").data
    array([inf], dtype=float16)
    """
    need_tensor(a)
    return operation.cast(a, as_dtype(dtype))
