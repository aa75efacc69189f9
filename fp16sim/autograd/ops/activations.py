"""Activation functions, each computed in one rounding, and softmax.

The functions come from the policy's backend: `Arithmetic.function` says how exact they are in each format. Where a
gradient is a formula, each of its steps is rounded to the dtype; G is the gradient of the result.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fp16sim.autograd.arithmetic import Arithmetic, Array, keep
from fp16sim.autograd.operation import Op, run
from fp16sim.autograd.ops.elementwise import is_number
from fp16sim.autograd.ops.reductions import axes_of
from fp16sim.autograd.tensor import Context, Tensor, need_tensor
from fp16sim.emulator.formats import nearest_name
from fp16sim.emulator.programs import program_of

__all__ = [
    "gelu",
    "leaky_relu",
    "log_softmax",
    "relu",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "tanh",
]

Saved = tuple[Any, ...]
Parts = tuple[Array | None, ...]

_REAL = (np.dtype(np.float32), np.dtype(np.float64))


# ---------------------------------------------------------------------------------------------------- rectifiers


def _relu(arithmetic: Arithmetic, a: Array) -> tuple[Array, Saved]:
    result = arithmetic.relu(a)
    return result, (result,)


def _relu_gradient(context: Context, gradient: Array) -> Parts:
    # The result is what the next operation keeps as well: saving it costs no memory. It is +0, positive or NaN.
    result = context.saved[0]
    return (keep(gradient, result.view(f"u{result.dtype.itemsize}") != 0),)


_RELU = Op("relu", _relu, _relu_gradient)


def relu(a: Tensor) -> Tensor:
    """Replace values <= 0 by +0; NaN stays. Nothing is rounded.

    Gradient: +0 where the value was <= 0, that of the result elsewhere.

    >>> relu(Tensor([-1.0, 2.0])).data
    array([0., 2.], dtype=float32)
    """
    return run(_RELU, a)


def _leaky_relu(arithmetic: Arithmetic, a: Array, slope: float) -> tuple[Array, Saved]:
    uint, above = f"u{a.dtype.itemsize}", arithmetic.relu(a)
    scaled = arithmetic.multiply(a, arithmetic.constant(slope, a))
    # Of the two encodings one is 0; a NaN is in `above`.
    bits = above.view(uint) | keep(scaled, above.view(uint) == 0).view(uint)
    result = bits.view(a.dtype)
    return result, (result if slope >= 0 else a, slope)


def _leaky_relu_gradient(context: Context, gradient: Array) -> Parts:
    values, slope = context.saved  # with a slope >= 0 the result is above zero where the operand is
    below = context.arithmetic.multiply(gradient, context.arithmetic.constant(slope, gradient))
    return (np.where(values > 0, gradient, below),)


_LEAKY_RELU = Op("leaky_relu", _leaky_relu, _leaky_relu_gradient)


def leaky_relu(a: Tensor, negative_slope: float = 0.01) -> Tensor:
    """Multiply values that are not above zero by a slope, which is rounded to the dtype first; rounded once.

    Gradient: G where the value was above zero, else G times the slope, rounded once.

    >>> leaky_relu(Tensor([-1.0, 2.0]), 0.25).data
    array([-0.25,  2.  ], dtype=float32)
    """
    if not is_number(negative_slope) or not math.isfinite(negative_slope):
        raise ValueError(f"negative_slope={negative_slope!r}: it is a finite number; pass such as 0.01")
    return run(_LEAKY_RELU, a, slope=float(negative_slope))


# ---------------------------------------------------------------------------------------------------- gelu, silu


def _gelu(arithmetic: Arithmetic, a: Array, name: str) -> tuple[Array, Saved]:
    return arithmetic.function(name, a), (a, name)


def _gelu_gradient(context: Context, gradient: Array) -> Parts:
    a, name = context.saved
    arithmetic = context.arithmetic
    if a.dtype in _REAL:
        slope = arithmetic.function(f"{name}_derivative", a)
    else:
        rule = _gelu_slope if name == "gelu" else _gelu_tanh_slope
        slope = arithmetic.tabulated(f"slope of {name}", rule, a)
    return (arithmetic.multiply(gradient, slope),)


def _gelu_slope(arithmetic: Arithmetic, a: Array) -> Array:
    times, number = arithmetic.multiply, arithmetic.constant
    x = _limited(a)
    above = arithmetic.add(number(1.0, x), arithmetic.function("erf", times(x, number(math.sqrt(0.5), x))))
    density = arithmetic.function("exp", times(times(x, x), number(-0.5, x)))
    density = times(density, number(1.0 / math.sqrt(2.0 * math.pi), x))
    return arithmetic.add(times(above, number(0.5, x)), times(x, density))


def _gelu_tanh_slope(arithmetic: Arithmetic, a: Array) -> Array:
    times, add, number = arithmetic.multiply, arithmetic.add, arithmetic.constant
    x = _limited(a)
    one, half, factor = number(1.0, x), number(0.5, x), number(math.sqrt(2.0 / math.pi), x)
    square = times(x, x)
    inner = times(times(x, factor), add(one, times(square, number(0.044715, x))))
    t = arithmetic.function("tanh", inner)
    rise = times(factor, add(one, times(square, number(3.0 * 0.044715, x))))
    bend = times(times(times(x, half), arithmetic.subtract(one, times(t, t))), rise)
    return add(times(add(one, t), half), bend)


def _limited(a: Array) -> Array:
    """Bring magnitudes down to 16, where both slopes are 0 or 1 in either narrow format and no square overflows."""
    bits = a.view(np.uint16)
    sixteen = np.asarray(16, a.dtype).view(np.uint16)
    # Encodings without their sign are ordered as magnitudes, infinity before NaN, which becomes that of all ones.
    magnitude, infinity = bits & np.uint16(0x7FFF), np.asarray(np.inf, a.dtype).view(np.uint16)
    held = np.minimum(magnitude, sixteen) | (magnitude > infinity) * np.uint16(0x7FFF)
    return np.asarray(held | (bits & np.uint16(0x8000))).view(a.dtype)


_GELU = Op("gelu", _gelu, _gelu_gradient)


def gelu(a: Tensor, approximate: str = "none") -> Tensor:
    """Compute x Phi(x), Phi the normal distribution function, or its approximation by tanh, rounded once.

    Parameters
    ----------
    a : Tensor
    approximate : {"none", "tanh"}
        With ``"tanh"`` x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).

    Notes
    -----
    Being one function, it has no x^3 that could overflow; composed of operations it overflows in float16 at 41.

    Gradient: G times a slope s. In float32 and float64 s is one function, rounded once. In float16 and bfloat16 each
    step of these is rounded, and so are the constants, after |x| above 16 was replaced by 16 with the sign of x:
    h = (1 + erf(x sqrt(1/2))) 0.5; e = exp((x x)(-0.5)) (1/sqrt(2 pi)); s = h + x e. With ``"tanh"``: q = x x;
    b = sqrt(2/pi); t = tanh((x b) (1 + q 0.044715)); r = b (1 + q 0.134145); w = ((x 0.5) (1 - t t)) r;
    s = (1 + t) 0.5 + w.

    Source: Hendrycks and Gimpel, arXiv 1606.08415; torch 2.13, ``torch.nn.functional.gelu``.

    >>> gelu(Tensor([-1.0, 1.0])).data
    array([-0.15865526,  0.8413448 ], dtype=float32)
    """
    names = {"none": "gelu", "tanh": "gelu_tanh"}
    if approximate not in names:
        raise ValueError(f"approximate={approximate!r}: {nearest_name(str(approximate), list(names))}")
    return run(_GELU, a, name=names[approximate])


def _silu(arithmetic: Arithmetic, a: Array) -> tuple[Array, Saved]:
    return arithmetic.function("silu", a), (a,)


def _silu_gradient(context: Context, gradient: Array) -> Parts:
    (a,) = context.saved
    arithmetic = context.arithmetic
    if a.dtype in _REAL:
        return (arithmetic.multiply(gradient, arithmetic.function("silu_derivative", a)),)
    one, s = arithmetic.constant(1.0, a), arithmetic.function("sigmoid", a)
    rise = arithmetic.add(one, arithmetic.multiply(a, arithmetic.subtract(one, s)))
    return (arithmetic.multiply(gradient, arithmetic.multiply(s, rise)),)


_SILU = Op("silu", _silu, _silu_gradient)


def silu(a: Tensor) -> Tensor:
    """Compute x sigmoid(x), rounded once.

    Gradient: G times a slope, in float32 and float64 one function, rounded once; in float16 and bfloat16
    s (1 + x (1 - s)), s = sigmoid(x), each step rounded from the inside out, as torch writes it: NaN at infinities.

    >>> silu(Tensor([0.0, 1.0])).data
    array([0.       , 0.7310586], dtype=float32)
    """
    return run(_SILU, a)


# ---------------------------------------------------------------------------------------------------- tanh, sigmoid


def _tanh(arithmetic: Arithmetic, a: Array) -> tuple[Array, Saved]:
    result = arithmetic.function("tanh", a)
    return result, (result,)


def _tanh_gradient(context: Context, gradient: Array) -> Parts:
    (y,), arithmetic = context.saved, context.arithmetic
    slope = arithmetic.subtract(arithmetic.constant(1.0, y), arithmetic.multiply(y, y))
    return (arithmetic.multiply(gradient, slope),)


_TANH = Op("tanh", _tanh, _tanh_gradient)


def tanh(a: Tensor) -> Tensor:
    """Hyperbolic tangent, rounded once.

    Gradient, from the result y, each step rounded: G (1 - y y).

    >>> tanh(Tensor([1.0])).data
    array([0.7615942], dtype=float32)
    """
    return run(_TANH, a)


def _sigmoid(arithmetic: Arithmetic, a: Array) -> tuple[Array, Saved]:
    result = arithmetic.function("sigmoid", a)
    return result, (result,)


def _sigmoid_gradient(context: Context, gradient: Array) -> Parts:
    (y,), arithmetic = context.saved, context.arithmetic
    slope = arithmetic.multiply(y, arithmetic.subtract(arithmetic.constant(1.0, y), y))
    return (arithmetic.multiply(gradient, slope),)


_SIGMOID = Op("sigmoid", _sigmoid, _sigmoid_gradient)


def sigmoid(a: Tensor) -> Tensor:
    """Compute 1/(1 + exp(-x)), rounded once.

    Gradient, from the result y, each step rounded: G (y (1 - y)). In float16 y is 1, and the gradient 0, from 8.32.

    >>> sigmoid(Tensor([0.0])).data
    array([0.5], dtype=float32)
    """
    return run(_SIGMOID, a)


def _softplus(arithmetic: Arithmetic, a: Array) -> tuple[Array, Saved]:
    return arithmetic.function("softplus", a), (a,)


def _softplus_gradient(context: Context, gradient: Array) -> Parts:
    slope = context.arithmetic.function("sigmoid", context.saved[0])
    return (context.arithmetic.multiply(gradient, slope),)


_SOFTPLUS = Op("softplus", _softplus, _softplus_gradient)


def softplus(a: Tensor) -> Tensor:
    """Compute log(1 + exp(x)), rounded once. Gradient: G sigmoid(x), both steps rounded.

    torch replaces it by x above 20; there the two differ by less than 2.1e-9.

    >>> softplus(Tensor([0.0])).data
    array([0.6931472], dtype=float32)
    """
    return run(_SOFTPLUS, a)


# ---------------------------------------------------------------------------------------------------- softmax


def _softmax(arithmetic: Arithmetic, a: Array, axis: int) -> tuple[Array, Saved]:
    shifted = arithmetic.subtract(a, arithmetic.maximum_of(a, axis))
    exponentials = arithmetic.function("exp", shifted)
    result = arithmetic.divide(exponentials, arithmetic.sum(exponentials, axis, keepdims=True))
    return result, (result, axis)


def _softmax_gradient(context: Context, gradient: Array) -> Parts:
    (y, axis), arithmetic = context.saved, context.arithmetic
    inner = arithmetic.sum(arithmetic.multiply(gradient, y), axis, keepdims=True)
    return tuple(arithmetic.perform(_SOFTMAX_GRADIENT, y, gradient, inner))


_SOFTMAX_GRADIENT = program_of(lambda y, g, inner: (y * (g - inner),), 3)
_SOFTMAX = Op("softmax", _softmax, _softmax_gradient)


def softmax(a: Tensor, axis: int = -1) -> Tensor:
    """Make exponentials along an axis that sum to about 1.

    Parameters
    ----------
    a : Tensor
    axis : int
        Along which they sum to 1.

    Notes
    -----
    Each step is rounded: z = x - max(x); e = exp(z); s = sum(e), by the policy's reduction; e / s. A row of nothing
    but -inf, such as a masked one, is NaN, as in torch.

    Gradient, from the result y: p = G y; t = sum(p); d = G - t; y d.

    >>> softmax(Tensor([0.0, 0.0])).data
    array([0.5, 0.5], dtype=float32)
    """
    return run(_SOFTMAX, a, axis=_one_axis("softmax", a, axis))


def _log_softmax(arithmetic: Arithmetic, a: Array, axis: int) -> tuple[Array, Saved]:
    shifted = arithmetic.subtract(a, arithmetic.maximum_of(a, axis))
    total = arithmetic.sum(arithmetic.function("exp", shifted), axis, keepdims=True)
    result = arithmetic.subtract(shifted, arithmetic.function("log", total))
    return result, (result, axis)


def _log_softmax_gradient(context: Context, gradient: Array) -> Parts:
    (y, axis), arithmetic = context.saved, context.arithmetic
    total = arithmetic.sum(gradient, axis, keepdims=True)
    spread = arithmetic.multiply(arithmetic.function("exp", y), total)
    return (arithmetic.subtract(gradient, spread),)


_LOG_SOFTMAX = Op("log_softmax", _log_softmax, _log_softmax_gradient)


def log_softmax(a: Tensor, axis: int = -1) -> Tensor:
    """Logarithms of :func:`softmax`, which stay finite where the softmax itself is 0.

    Notes
    -----
    Each step is rounded: z = x - max(x); s = sum(exp(z)), by the policy's reduction; z - log(s).

    Gradient, from the result y: t = sum(G); p = exp(y) t; G - p.

    >>> log_softmax(Tensor(np.float16([0.0, 0.0, 20.0]))).data
    array([-20., -20.,   0.], dtype=float16)
    """
    return run(_LOG_SOFTMAX, a, axis=_one_axis("log_softmax", a, axis))


def _one_axis(name: str, a: Tensor, axis: int) -> int:
    need_tensor(a)
    if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)):
        raise TypeError(f"{name} over axis {axis!r}: it runs over one axis; pass an integer, such as -1")
    (found,) = axes_of(name, a, int(axis))
    if not a.shape[found]:
        raise ValueError(f"{name} over axis {axis} of shape {a.shape}: it has no element; pass one or more")
    return found
