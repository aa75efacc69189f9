"""Functions of each element: exponentials, logarithms, trigonometric functions, powers and roots.

Exponentials, logarithms, sine, cosine and erf are those of :meth:`Arithmetic.function`: correctly rounded in binary16,
fixed sequences rounded once in float32 and float64, and rounded from float32 once more in bfloat16. In the notes G is
the gradient of the result, x the operand, y the result. Formulas of gradients: torch 2.13, derivatives.yaml; each step
of theirs is rounded here.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np

from fp16sim.autograd.arithmetic import FLOAT16, FLOAT32, FLOAT64, Arithmetic, Array
from fp16sim.autograd.operation import Op, run
from fp16sim.autograd.ops.elementwise import as_number, is_number
from fp16sim.autograd.tensor import Context, Tensor

__all__ = [
    "cos",
    "erf",
    "exp",
    "expm1",
    "log",
    "log1p",
    "power",
    "reciprocal",
    "rsqrt",
    "sin",
    "sqrt",
    "square",
]

Saved = tuple[Any, ...]
Parts = tuple[Array | None, ...]

TWO_OVER_ROOT_PI = 1.1283791670955126
"""2 / sqrt(pi), rounded to binary64."""

# ---------------------------------------------------------------------------------------------------- exponentials


def _exp(arithmetic: Arithmetic, a: Array) -> tuple[Array, Saved]:
    result = arithmetic.function("exp", a)
    return result, (result,)


def _exp_gradient(context: Context, gradient: Array) -> Parts:
    return (context.arithmetic.multiply(gradient, context.saved[0]),)


_EXP = Op("exp", _exp, _exp_gradient)


def exp(a: Tensor) -> Tensor:
    """Exponential, rounded once. Gradient: G y, rounded once.

    >>> exp(Tensor(np.float16([1.0, 11.09375]))).data
    array([2.719,   inf], dtype=float16)
    """
    return run(_EXP, a)


def _expm1(arithmetic: Arithmetic, a: Array) -> tuple[Array, Saved]:
    result = arithmetic.function("expm1", a)
    return result, (result,)


def _expm1_gradient(context: Context, gradient: Array) -> Parts:
    arithmetic, (result,) = context.arithmetic, context.saved
    return (arithmetic.multiply(gradient, arithmetic.add(result, arithmetic.constant(1.0, gradient))),)


_EXPM1 = Op("expm1", _expm1, _expm1_gradient)


def expm1(a: Tensor) -> Tensor:
    """exp(x) - 1, rounded once. Gradient: s = y + 1; G s; each rounded.

    >>> expm1(Tensor(np.float16([2.0**-12, 1.0]))).data
    array([2.441e-04, 1.719e+00], dtype=float16)
    """
    return run(_EXPM1, a)


# ---------------------------------------------------------------------------------------------------- logarithms


def _log(arithmetic: Arithmetic, a: Array) -> tuple[Array, Saved]:
    return arithmetic.function("log", a), (a,)


def _log_gradient(context: Context, gradient: Array) -> Parts:
    return (context.arithmetic.divide(gradient, context.saved[0]),)


_LOG = Op("log", _log, _log_gradient)


def log(a: Tensor) -> Tensor:
    """Natural logarithm, rounded once; NaN below zero. Gradient: G / x, rounded once.

    >>> log(Tensor(np.float16([0.0, 10.0]))).data
    array([ -inf, 2.303], dtype=float16)
    """
    return run(_LOG, a)


def _log1p(arithmetic: Arithmetic, a: Array) -> tuple[Array, Saved]:
    return arithmetic.function("log1p", a), (a,)


def _log1p_gradient(context: Context, gradient: Array) -> Parts:
    arithmetic, (a,) = context.arithmetic, context.saved
    return (arithmetic.divide(gradient, arithmetic.add(a, arithmetic.constant(1.0, gradient))),)


_LOG1P = Op("log1p", _log1p, _log1p_gradient)


def log1p(a: Tensor) -> Tensor:
    """log(1 + x), rounded once. Gradient: s = x + 1; G / s; each rounded.

    >>> log1p(Tensor(np.float16([2.0**-12, 1.0]))).data
    array([2.441e-04, 6.934e-01], dtype=float16)
    """
    return run(_LOG1P, a)


# ---------------------------------------------------------------------------------------------------- sin, cos, erf


def _sin(arithmetic: Arithmetic, a: Array) -> tuple[Array, Saved]:
    return arithmetic.function("sin", a), (a,)


def _sin_gradient(context: Context, gradient: Array) -> Parts:
    return (context.arithmetic.multiply(gradient, context.arithmetic.function("cos", context.saved[0])),)


_SIN = Op("sin", _sin, _sin_gradient)


def sin(a: Tensor) -> Tensor:
    """Sine of an angle in radians, rounded once. Gradient: c = cos(x); G c; each rounded.

    >>> sin(Tensor(np.float16([1.0, 65504.0]))).data
    array([0.8413, 0.9756], dtype=float16)
    """
    return run(_SIN, a)


def _cos(arithmetic: Arithmetic, a: Array) -> tuple[Array, Saved]:
    return arithmetic.function("cos", a), (a,)


def _cos_gradient(context: Context, gradient: Array) -> Parts:
    arithmetic, (a,) = context.arithmetic, context.saved
    return (arithmetic.multiply(gradient, arithmetic.negative(arithmetic.function("sin", a))),)


_COS = Op("cos", _cos, _cos_gradient)


def cos(a: Tensor) -> Tensor:
    """Cosine of an angle in radians, rounded once. Gradient: s = sin(x); G (-s); each rounded.

    >>> cos(Tensor(np.float16([0.0, 1.0]))).data
    array([1.    , 0.5405], dtype=float16)
    """
    return run(_COS, a)


def _erf(arithmetic: Arithmetic, a: Array) -> tuple[Array, Saved]:
    return arithmetic.function("erf", a), (a,)


def _erf_gradient(context: Context, gradient: Array) -> Parts:
    arithmetic, (a,) = context.arithmetic, context.saved
    slope = arithmetic.function("exp", arithmetic.negative(arithmetic.multiply(a, a)))
    factor = arithmetic.constant(TWO_OVER_ROOT_PI, gradient)
    return (arithmetic.multiply(arithmetic.multiply(factor, slope), gradient),)


_ERF = Op("erf", _erf, _erf_gradient)


def erf(a: Tensor) -> Tensor:
    """Error function, rounded once. Gradient: q = x x; e = exp(-q); t = (2 / sqrt(pi)) e; t G; each rounded.

    The constant is rounded to the dtype first.

    >>> erf(Tensor(np.float16([0.5]))).data
    array([0.5205], dtype=float16)
    """
    return run(_ERF, a)


# ---------------------------------------------------------------------------------------------------- powers, roots


def _power(arithmetic: Arithmetic, a: Array, exponent: float) -> tuple[Array, Saved]:
    return arithmetic.power(a, exponent), (a, exponent)


def _power_gradient(context: Context, gradient: Array) -> Parts:
    arithmetic, (a, exponent) = context.arithmetic, context.saved
    if exponent == 0:
        return (np.zeros_like(gradient),)
    slope = arithmetic.multiply(arithmetic.constant(exponent, gradient), arithmetic.power(a, exponent - 1))
    return (arithmetic.multiply(gradient, slope),)


_POWER = Op("power", _power, _power_gradient)


def power(a: Tensor, exponent: float) -> Tensor:
    """Raise to a constant power, in float32 or float64; rounded once, and once more if the dtype is narrower.

    The exponent is rounded to float32 or float64 first. Special cases are those of C99: 1 for the exponent 0.

    Gradient: p = x^(exponent - 1), as forward; s = exponent p; G s; each rounded. It is +0 for the exponent 0.

    Raises
    ------
    TypeError, ValueError
        If the exponent is no finite number.

    Examples
    --------
    >>> power(Tensor(np.float16([41.0, 4.0])), 3).data, power(Tensor([4.0]), -0.5).data
    (array([inf, 64.], dtype=float16), array([0.5], dtype=float32))
    """
    if not is_number(exponent):
        raise TypeError(
            f"power with an exponent that is a {type(exponent).__name__}: it takes a number; write "
            "exp(log(x) * y) for an exponent that is a tensor"
        )
    exponent = as_number("power", exponent)
    if not isfinite(exponent):
        raise ValueError(f"power with the exponent {exponent}: pass a finite number")
    return run(_POWER, a, exponent=exponent)


def _square(arithmetic: Arithmetic, a: Array) -> tuple[Array, Saved]:
    return arithmetic.multiply(a, a), (a,)


def _square_gradient(context: Context, gradient: Array) -> Parts:
    arithmetic, (a,) = context.arithmetic, context.saved
    return (arithmetic.multiply(gradient, arithmetic.multiply(arithmetic.constant(2.0, gradient), a)),)


_SQUARE = Op("power", _square, _square_gradient)  # torch.square is pow(x, 2), also in its lists


def square(a: Tensor) -> Tensor:
    """Multiply by itself, rounded once. Policies treat it as `power`. Gradient: d = 2 x; G d; each rounded.

    >>> square(Tensor(np.float16([255.9, 256.0]))).data.tolist()
    [65472.0, inf]
    """
    return run(_SQUARE, a)


def _sqrt(arithmetic: Arithmetic, a: Array) -> tuple[Array, Saved]:
    result = arithmetic.sqrt(a)
    return result, (result,)


def _sqrt_gradient(context: Context, gradient: Array) -> Parts:
    arithmetic, (result,) = context.arithmetic, context.saved
    double = arithmetic.multiply(arithmetic.constant(2.0, gradient), result)
    return (arithmetic.divide(gradient, double),)


_SQRT = Op("sqrt", _sqrt, _sqrt_gradient)


def sqrt(a: Tensor) -> Tensor:
    """Square root, rounded once; NaN below zero. Gradient: d = 2 y; G / d; each rounded. At 0 it is infinite.

    >>> x = Tensor(np.float16([2.0, 0.0]), requires_grad=True)
    >>> sqrt(x).backward([1.0, 1.0])
    >>> x.grad
    array([0.3535,    inf], dtype=float16)
    """
    return run(_SQRT, a)


def _rsqrt(arithmetic: Arithmetic, a: Array) -> tuple[Array, Saved]:
    if a.dtype == FLOAT16:
        result = arithmetic.function("rsqrt", a)
    else:
        wide = arithmetic.cast(a, FLOAT64 if a.dtype == FLOAT64 else FLOAT32)
        root = arithmetic.divide(arithmetic.constant(1.0, wide), arithmetic.sqrt(wide))
        result = arithmetic.cast(root, a.dtype)
    return result, (result,)


def _rsqrt_gradient(context: Context, gradient: Array) -> Parts:
    arithmetic, (result,) = context.arithmetic, context.saved
    half = arithmetic.multiply(arithmetic.constant(-0.5, gradient), gradient)
    return (arithmetic.multiply(half, arithmetic.power(result, 3.0)),)


_RSQRT = Op("rsqrt", _rsqrt, _rsqrt_gradient)


def rsqrt(a: Tensor) -> Tensor:
    """1 / sqrt(x): an infinity of its sign for a zero, NaN below.

    Rounded once in float16; in float32 and float64 the root and its reciprocal are rounded each; in bfloat16 as in
    float32, then to bfloat16. Gradient: h = -0.5 G; c = y^3, as `power`; h c; each rounded.

    >>> rsqrt(Tensor(np.float16([4.0, 0.0]))).data
    array([0.5, inf], dtype=float16)
    """
    return run(_RSQRT, a)


def _reciprocal(arithmetic: Arithmetic, a: Array) -> tuple[Array, Saved]:
    result = arithmetic.divide(arithmetic.constant(1.0, a), a)
    return result, (result,)


def _reciprocal_gradient(context: Context, gradient: Array) -> Parts:
    arithmetic, (result,) = context.arithmetic, context.saved
    return (arithmetic.multiply(arithmetic.negative(gradient), arithmetic.multiply(result, result)),)


_RECIPROCAL = Op("reciprocal", _reciprocal, _reciprocal_gradient)


def reciprocal(a: Tensor) -> Tensor:
    """1 / x, rounded once. Gradient: q = y y; (-G) q; each rounded.

    >>> reciprocal(Tensor(np.float16([3.0]))).data
    array([0.3333], dtype=float16)
    """
    return run(_RECIPROCAL, a)
