"""The activations of neural networks on float64 values, and their derivatives: the same bits on every machine.

Within 0.51 units in the last place, 1 where the result is subnormal, as `float64_functions`. Limits at infinity are
given (silu(-inf) = -0), where frameworks that multiply infinity by zero give NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.emulator import activation_functions, float64_cores as core
from fp16sim.emulator.activation_functions import sigmoid_product
from fp16sim.emulator.double_double import DoubleDouble
from fp16sim.emulator.elementary import power_of_two
from fp16sim.emulator.float32_cores import Float64Array

__all__ = [
    "gelu",
    "gelu_derivative",
    "gelu_tanh",
    "gelu_tanh_derivative",
    "sigmoid",
    "silu",
    "silu_derivative",
    "softplus",
]


def _pair(high: str, low: str) -> DoubleDouble:
    return DoubleDouble(float.fromhex(high), float.fromhex(low))


# 2 sqrt(2/pi), 0.044715 times that, and three times that.
_LINEAR = _pair("0x1.9884533d43651p+0", "-0x1.cbc0d30ebfd15p-54")
_CUBIC = _pair("0x1.2444f2a4d8b4bp-4", "-0x1.6c843a29d1c70p-61")
_TRIPLE_CUBIC = _pair("0x1.b6676bf7450f0p-3", "0x1.bba7351828aabp-57")

# The one root of each derivative, in three float64, and its Taylor coefficients there: two as double-double,
# two as float64. Within 2^-16 of the root, where the terms cancel, they leave 2^-66.
_SILU_ROOT = ("-0x1.474973c84120bp+0", "-0x1.f8d74bc9ac154p-54", "-0x1.44a50180ba780p-108")
_SILU_TAYLOR = (
    _pair("0x1.be1410460527fp-3", "-0x1.2541062177473p-58"),
    _pair("0x1.2c563458cc0adp-3", "-0x1.ae4095936c303p-57"),
    float.fromhex("0x1.353eb573ca457p-6"),
    float.fromhex("-0x1.f2d0e32bc2994p-7"),
)
_GELU_ROOT = ("-0x1.80ead197f00b4p-1", "0x1.13e74c58cada8p-56", "0x1.65d4b5b9cdd03p-111")
_GELU_TAYLOR = (
    _pair("0x1.b9d98fa5a3215p-2", "0x1.f7c1a23190c7cp-56"),
    _pair("0x1.8d9a941de3ac5p-2", "0x1.aea2e6afd7fdbp-56"),
    float.fromhex("-0x1.2a2ef9bb865aep-6"),
    float.fromhex("-0x1.d2fa4c17c7e84p-4"),
)
_GELU_TANH_ROOT = ("-0x1.81429f9e97e4dp-1", "0x1.4f523ed77dbdcp-55", "-0x1.a649fca8ac0e5p-109")
_GELU_TANH_TAYLOR = (
    _pair("0x1.b8bacd2c96b91p-2", "0x1.7625a206be83dp-56"),
    _pair("0x1.8cd1a2b2fff33p-2", "-0x1.d8ac0572d1edbp-56"),
    float.fromhex("-0x1.029615edb077ap-6"),
    float.fromhex("-0x1.d2b77346470abp-4"),
)
Taylor = tuple[DoubleDouble, DoubleDouble, float, float]


def sigmoid(x: npt.ArrayLike) -> Any:
    """1/(1 + exp(-x)) of float64 values.

    Parameters
    ----------
    x : float64 array of any shape

    Returns
    -------
    float64 array of the same shape
        Underflow is gradual.

    >>> sigmoid(np.array([-700.0, 0.0, 1.0]))
    array([9.85967654e-305, 5.00000000e-001, 7.31058579e-001])
    """
    return core.evaluate(_sigmoid, x)


def silu(x: npt.ArrayLike) -> Any:
    """x/(1 + exp(-x)) of float64 values.

    Parameters
    ----------
    x : float64 array of any shape

    Returns
    -------
    float64 array of the same shape
        Zeros keep their sign; silu(-inf) = -0.

    >>> silu(np.array([-np.inf, 1.0]))
    array([-0.        ,  0.73105858])
    """
    return core.evaluate(_silu, x)


def softplus(x: npt.ArrayLike) -> Any:
    """log(1 + exp(x)) of float64 values.

    Parameters
    ----------
    x : float64 array of any shape

    Returns
    -------
    float64 array of the same shape
        Underflow is gradual.

    >>> softplus(np.array([-np.inf, 0.0, 100.0]))
    array([  0.        ,   0.69314718, 100.        ])
    """
    return core.evaluate(_softplus, x)


def gelu(x: npt.ArrayLike) -> Any:
    """x Phi(x) of float64 values, Phi the normal distribution function.

    Parameters
    ----------
    x : float64 array of any shape

    Returns
    -------
    float64 array of the same shape
        Relatively accurate for negative x too; zeros keep their sign, gelu(-inf) = -0.

    >>> gelu(np.array([-30.0, -1.0, 1.0]))
    array([-1.47201418e-196, -1.58655254e-001,  8.41344746e-001])
    """
    return core.evaluate(_gelu, x)


def gelu_tanh(x: npt.ArrayLike) -> Any:
    """x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) of float64 values.

    Parameters
    ----------
    x : float64 array of any shape

    Returns
    -------
    float64 array of the same shape
        Zeros keep their sign; gelu_tanh(-inf) = -0.

    >>> gelu_tanh(np.array([-1.0, 1.0]))
    array([-0.15880801,  0.84119199])
    """
    return core.evaluate(_gelu_tanh, x)


def silu_derivative(x: npt.ArrayLike) -> Any:
    """s (1 + x (1 - s)), s = sigmoid(x), of float64 values.

    Parameters
    ----------
    x : float64 array of any shape

    Returns
    -------
    float64 array of the same shape
        Accurate near the root at -1.278 too; -0 at -inf, 1 at inf.

    >>> silu_derivative(np.array([-1.278, 0.0, 1.0]))
    array([1.01214500e-04, 5.00000000e-01, 9.27670512e-01])
    """
    return core.evaluate(_silu_derivative, x)


def gelu_derivative(x: npt.ArrayLike) -> Any:
    """Phi(x) + x phi(x) of float64 values, phi the normal density.

    Parameters
    ----------
    x : float64 array of any shape

    Returns
    -------
    float64 array of the same shape
        Accurate near the root at -0.752 too; -0 at -inf, 1 at inf.

    >>> gelu_derivative(np.array([-0.75, 0.0, 1.0]))
    array([7.74278261e-04, 5.00000000e-01, 1.08331547e+00])
    """
    return core.evaluate(_gelu_derivative, x)


def gelu_tanh_derivative(x: npt.ArrayLike) -> Any:
    """The derivative of `gelu_tanh` at float64 values.

    Parameters
    ----------
    x : float64 array of any shape

    Returns
    -------
    float64 array of the same shape
        Accurate near the root at -0.752 too; -0 at -inf, 1 at inf.

    >>> gelu_tanh_derivative(np.array([-0.75, 0.0, 1.0]))
    array([1.06174386e-03, 5.00000000e-01, 1.08296408e+00])
    """
    return core.evaluate(_gelu_tanh_derivative, x)


# Below -50 exp(x) is less than 2^-72: 1/(1 + exp(-x)) is exp(x) to the last place, and log(1 + exp(x)) already
# below -40. Where |x| < 2^-60 a product x f(x) is x f(0).
_FAR = -50.0
_TINY = 2.0**-60


def _ones(x: Float64Array) -> Float64Array:
    return np.ones_like(x)


def _sigmoid(x: Float64Array) -> Float64Array:
    usual = sigmoid_product(_ones(x), core.exact(np.clip(x, _FAR, -_FAR))).hi
    far = core.round_scaled(*core.exponential(core.exact(np.clip(x, -800.0, 0.0))))
    return np.where(x < _FAR, far, usual)


def _silu(x: Float64Array) -> Float64Array:
    near = np.clip(x, _FAR, -_FAR)
    usual = sigmoid_product(near, core.exact(near)).hi
    low = np.clip(x, -800.0, 0.0)
    value, exponent = core.exponential(core.exact(low))
    result = np.where(x < _FAR, core.round_scaled(value * low, exponent), usual)
    return np.where(x > -_FAR, x, np.where(np.abs(x) < _TINY, 0.5 * x, result))


def _softplus(x: Float64Array) -> Float64Array:
    usual = activation_functions.softplus(np.clip(x, -40.0, 40.0)).hi
    far = core.round_scaled(*core.exponential(core.exact(np.clip(x, -800.0, 0.0))))
    return np.where(x > 40.0, x, np.where(x < -40.0, far, usual))


def _gelu(x: Float64Array) -> Float64Array:
    inner = np.clip(x, -39.5, 12.0)  # the tail at 12 is 2^-108; the result at -39.5 below 2^-1100
    y = np.abs(inner)
    _, tail, exponent = core.normal_tail(core.exact(y), core.square(y).scaled(0.5))
    negative = core.round_scaled(tail * inner, exponent)
    positive = ((1.0 - tail.scaled(power_of_two(np.maximum(exponent, -1000.0)))) * inner).hi
    result = np.where(x < 0, negative, positive)
    return np.where(x > 12.0, x, np.where(np.abs(x) < _TINY, 0.5 * x, result))


def _tanh_form(x: Float64Array) -> tuple[Float64Array, DoubleDouble, DoubleDouble]:
    """x within bounds, x (a + b x^2), and x times the derivative of that."""
    inner = np.clip(x, -23.0, 12.0)  # at -23 the argument is -905, at 12 it is 142
    square = core.square(inner)
    return inner, (_CUBIC * square + _LINEAR) * inner, (_TRIPLE_CUBIC * square + _LINEAR) * inner


def _bounded(argument: DoubleDouble) -> DoubleDouble:
    """Keep the argument of a sigmoid within -50 and 50."""
    zero = np.zeros_like(argument.hi)
    bounded = DoubleDouble.where(argument.hi < _FAR, DoubleDouble(zero + _FAR, zero), argument)
    return DoubleDouble.where(argument.hi > -_FAR, DoubleDouble(zero - _FAR, zero), bounded)


def _gelu_tanh(x: Float64Array) -> Float64Array:
    inner, argument, _ = _tanh_form(x)
    usual = sigmoid_product(inner, _bounded(argument)).hi
    value, exponent = core.exponential(argument)
    result = np.where(argument.hi < _FAR, core.round_scaled(value * inner, exponent), usual)
    return np.where(x >= 12.0, x, np.where(np.abs(x) < _TINY, 0.5 * x, result))


def _sigmoid_rule(x: Float64Array, argument: DoubleDouble, slope: DoubleDouble) -> Float64Array:
    """s (1 + slope (1 - s)) with s the sigmoid of the argument."""
    bounded = _bounded(argument)
    s = sigmoid_product(_ones(x), bounded)
    usual = (s * (slope * sigmoid_product(_ones(x), -bounded) + 1.0)).hi
    value, exponent = core.exponential(argument)
    far = core.round_scaled(value * (slope + 1.0), exponent)
    return np.where(argument.hi < _FAR, far, usual)


def _with_root(x: Float64Array, usual: Float64Array, root: tuple[str, ...], taylor: Taylor) -> Float64Array:
    first, second, third = map(float.fromhex, root)
    near = np.abs(x - first) < 2.0**-16
    distance = core.exact(np.where(near, x - first, 0.0)) - second - third
    inner = (taylor[3] * distance.hi + taylor[2]) * distance.hi
    slope = (taylor[1] + inner) * distance + taylor[0]
    return np.where(near, (slope * distance).hi, usual)


def _silu_derivative(x: Float64Array) -> Float64Array:
    inner = core.exact(np.clip(x, -800.0, 80.0))
    return _with_root(x, _sigmoid_rule(x, inner, inner), _SILU_ROOT, _SILU_TAYLOR)


def _gelu_derivative(x: Float64Array) -> Float64Array:
    inner = np.clip(x, -39.5, 14.0)
    y = np.abs(inner)
    density, tail, exponent = core.normal_tail(core.exact(y), core.square(y).scaled(0.5))
    excess = density * y - tail
    negative = core.round_scaled(-excess, exponent)
    positive = (excess.scaled(power_of_two(np.maximum(exponent, -1000.0))) + 1.0).hi
    return _with_root(x, np.where(x < 0, negative, positive), _GELU_ROOT, _GELU_TAYLOR)


def _gelu_tanh_derivative(x: Float64Array) -> Float64Array:
    inner, argument, slope = _tanh_form(x)
    return _with_root(x, _sigmoid_rule(inner, argument, slope), _GELU_TANH_ROOT, _GELU_TANH_TAYLOR)
