"""exp, log, tanh, erf, sin, cos, pow and their kin on float64 values: the same bits on every machine.

Each is computed in double-double (`double_double`, about 104 bits) and rounded to float64: within 0.51 units in the
last place, and within 1 where the result is subnormal and is rounded twice. The activations stand in
`float64_activations`. None of this is fast: it serves numerical checks of gradients and comparisons.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.emulator import activation_functions, elementary, float64_cores as core
from fp16sim.emulator.double_double import DoubleDouble
from fp16sim.emulator.float32_cores import Float64Array, power_cases
from fp16sim.emulator.float64_activations import (
    gelu,
    gelu_derivative,
    gelu_tanh,
    gelu_tanh_derivative,
    sigmoid,
    silu,
    silu_derivative,
    softplus,
)

__all__ = [
    "FLOAT64_FUNCTIONS",
    "cos",
    "erf",
    "exp",
    "expm1",
    "gelu",
    "gelu_derivative",
    "gelu_tanh",
    "gelu_tanh_derivative",
    "log",
    "log1p",
    "pow",
    "sigmoid",
    "silu",
    "silu_derivative",
    "sin",
    "softplus",
    "tanh",
]

_SQRT_TWO = DoubleDouble(float.fromhex("0x1.6a09e667f3bcdp+0"), float.fromhex("-0x1.bdd3413b26456p-54"))
_TWO_OVER_SQRT_PI = DoubleDouble(
    float.fromhex("0x1.20dd750429b6dp+0"), float.fromhex("0x1.1ae3a914fed80p-56")
)


def exp(x: npt.ArrayLike) -> Any:
    """Exponential of float64 values.

    Parameters
    ----------
    x : float64 array of any shape

    Returns
    -------
    float64 array of the same shape
        Overflow gives infinity, underflow is gradual; exp(-inf) = 0.

    >>> exp(np.array([0.0, 1.0, -np.inf]))
    array([1.        , 2.71828183, 0.        ])
    """
    return core.evaluate(_exp, x)


def expm1(x: npt.ArrayLike) -> Any:
    """exp(x) - 1 of float64 values.

    Parameters
    ----------
    x : float64 array of any shape

    Returns
    -------
    float64 array of the same shape
        Zeros keep their sign.

    >>> expm1(np.array([-0.0, 1e-20, 1.0]))
    array([-0.00000000e+00,  1.00000000e-20,  1.71828183e+00])
    """
    return core.evaluate(_expm1, x)


def log(x: npt.ArrayLike) -> Any:
    """Natural logarithm of float64 values.

    Parameters
    ----------
    x : float64 array of any shape

    Returns
    -------
    float64 array of the same shape
        log(0) = -inf; NaN below zero.

    >>> log(np.array([1.0, 10.0, 0.0]))
    array([0.        , 2.30258509,       -inf])
    """
    return core.evaluate(_log, x)


def log1p(x: npt.ArrayLike) -> Any:
    """log(1 + x) of float64 values.

    Parameters
    ----------
    x : float64 array of any shape

    Returns
    -------
    float64 array of the same shape
        log1p(-1) = -inf; NaN below; zeros keep their sign.

    >>> log1p(np.array([-0.0, 1.0, -1.0]))
    array([-0.        ,  0.69314718,        -inf])
    """
    return core.evaluate(_log1p, x)


def tanh(x: npt.ArrayLike) -> Any:
    """Hyperbolic tangent of float64 values.

    Parameters
    ----------
    x : float64 array of any shape

    Returns
    -------
    float64 array of the same shape
        Odd, zeros keep their sign.

    >>> tanh(np.array([-0.0, 0.5, np.inf]))
    array([-0.        ,  0.46211716,  1.        ])
    """
    return core.evaluate(_tanh, x)


def erf(x: npt.ArrayLike) -> Any:
    """Error function of float64 values.

    Parameters
    ----------
    x : float64 array of any shape

    Returns
    -------
    float64 array of the same shape
        Odd, zeros keep their sign.

    >>> erf(np.array([-0.0, 0.5, np.inf]))
    array([-0.        ,  0.52049988,  1.        ])
    """
    return core.evaluate(_erf, x)


def sin(x: npt.ArrayLike) -> Any:
    """Sine of float64 values in radians.

    Parameters
    ----------
    x : float64 array of any shape
        Any magnitude: beyond 65504 the reduction by pi/2 is done in integers.

    Returns
    -------
    float64 array of the same shape
        NaN for infinities; odd, zeros keep their sign.

    >>> sin(np.array([-0.0, 1.0, 1e300]))
    array([-0.        ,  0.84147098, -0.81788191])
    """
    return core.evaluate(_sin, x)


def cos(x: npt.ArrayLike) -> Any:
    """Cosine of float64 values in radians.

    Parameters
    ----------
    x : float64 array of any shape
        Any magnitude, as for `sin`.

    Returns
    -------
    float64 array of the same shape
        NaN for infinities.

    >>> cos(np.array([0.0, 1.0, np.inf]))
    array([1.        , 0.54030231,        nan])
    """
    return core.evaluate(_cos, x)


def pow(x: npt.ArrayLike, y: npt.ArrayLike) -> Any:
    """x to the power y for float64 values; special cases as C99 and IEEE 754.

    Parameters
    ----------
    x, y : float64 arrays that broadcast

    Returns
    -------
    float64 array
        exp(y log x) with 91 bits at least: results that float64 holds are exact. NaN for a negative x and a y that
        is no integer.

    >>> pow(np.array([2.0, -2.0, 0.0]), np.array([0.5, 3.0, 0.0]))
    array([ 1.41421356, -8.        ,  1.        ])
    """
    base, power = np.broadcast_arrays(core.from_float64(x), core.from_float64(y))
    shape = base.shape
    base, power = base.reshape(-1), power.reshape(-1)
    magnitude = np.abs(base)
    with np.errstate(all="ignore"):
        usual = (magnitude > 0) & np.isfinite(magnitude) & np.isfinite(power)
        logarithm = core.logarithm(np.where(usual, magnitude, 1.0))
        rough = np.where(usual, power, 0.0) * logarithm.hi
        # Beyond 800 the result is 0 or infinity; the products of double-double would overflow on the way.
        reachable = np.abs(rough) < 800.0
        inner = np.where(usual & reachable & (logarithm.hi != 0), power, 0.0)
        value, exponent = core.exponential(logarithm * inner)
        result = core.round_scaled(value, np.where(reachable, exponent, np.copysign(2000.0, rough)))
        return power_cases(base, power, result).reshape(shape)[()]


FLOAT64_FUNCTIONS = {
    "exp": exp,
    "expm1": expm1,
    "log": log,
    "log1p": log1p,
    "tanh": tanh,
    "erf": erf,
    "sin": sin,
    "cos": cos,
    "sigmoid": sigmoid,
    "silu": silu,
    "softplus": softplus,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "silu_derivative": silu_derivative,
    "gelu_derivative": gelu_derivative,
    "gelu_tanh_derivative": gelu_tanh_derivative,
}
"""The functions of one argument by name."""


def _exp(x: Float64Array) -> Float64Array:
    return core.round_scaled(*core.exponential(core.exact(np.clip(x, -800.0, 800.0))))


def _expm1(x: Float64Array) -> Float64Array:
    usual = elementary.expm1(core.exact(np.clip(x, -50.0, 50.0))).hi
    # Below 2^-60 the rest is under 2^-61 of x; above 50 the 1 is under 2^-72 of the exponential.
    return np.where(np.abs(x) < 2.0**-60, x, np.where(x > 50.0, _exp(x), usual))


def _log(x: Float64Array) -> Float64Array:
    result = core.logarithm(np.where((x > 0) & (x < np.inf), x, 1.0)).hi
    result = np.where(x == 0, -np.inf, np.where(x == np.inf, np.inf, result))
    return np.where(x < 0, np.nan, result)


def _log1p(x: Float64Array) -> Float64Array:
    usual = (np.abs(x) >= 2.0**-60) & (x > -1.0) & (x < 2.0**60)
    result = elementary.log1p(core.exact(np.where(usual, x, 0.0))).hi
    result = np.where(np.abs(x) < 2.0**-60, x, result)
    result = np.where(x >= 2.0**60, _log(np.maximum(x, 1.0)), result)
    return np.where(x == -1.0, -np.inf, np.where(x < -1.0, np.nan, result))


def _tanh(x: Float64Array) -> Float64Array:
    u = np.abs(x)
    usual = activation_functions.tanh(np.maximum(u, 2.0**-30)).hi
    # x^3/3 is less than 2^-61 of such an x.
    return np.copysign(np.where(u < 2.0**-30, u, usual), x)


def _erf(x: Float64Array) -> Float64Array:
    u = np.minimum(np.abs(x), 6.0)  # 1 - erf(6) is 2^-55.4
    # Near zero 2/sqrt(pi) (u - u^3/3 + u^5/10 - ...): for u^2 <= 1/4 sixteen terms leave 2^-85.
    near = np.where(u < 0.5, u, 0.0)
    tiny = near < 2.0**-40
    square = core.square(np.where(tiny, 0.0, near))
    series = core.exact(np.zeros_like(u))
    factorial = 1
    factorials = [factorial := factorial * max(n, 1) for n in range(16)]
    for n in range(15, -1, -1):
        series = series * square + elementary.constant((-1) ** n, factorials[n] * (2 * n + 1))
    # Scaled, lest the halves of a product underflow.
    scale = np.where(tiny, 2.0**200, 1.0)
    small = (series * _TWO_OVER_SQRT_PI * (near * scale)).hi / scale
    _, tail, exponent = core.normal_tail(_SQRT_TWO * u, core.square(u))
    far = (1.0 - tail.scaled(elementary.power_of_two(exponent) * 2.0)).hi
    result: Float64Array = np.copysign(np.where(u < 0.5, small, far), x)
    return result


def _sin(x: Float64Array) -> Float64Array:
    u = np.where(np.isfinite(x), np.abs(x), 0.0)
    quadrant, sine, cosine = core.circular(u)
    value: Float64Array = DoubleDouble.where((quadrant & 1) == 1, cosine, sine).hi
    value = np.where(quadrant & 2, -value, value)
    value = np.where(u < 2.0**-30, u, value)  # u^3/6 is less than 2^-62 of it
    return np.where(np.isfinite(x), np.where(np.signbit(x), -value, value), np.nan)


def _cos(x: Float64Array) -> Float64Array:
    quadrant, sine, cosine = core.circular(np.where(np.isfinite(x), np.abs(x), 0.0))
    value: Float64Array = DoubleDouble.where((quadrant & 1) == 1, sine, cosine).hi
    return np.where(np.isfinite(x), np.where((quadrant + 1) & 2, -value, value), np.nan)
