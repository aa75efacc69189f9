"""exp, log, tanh, erf, sin, cos, pow and their kin on float32 values: the same bits on every machine.

Each function is a fixed sequence of float64 ``+ - * /`` and ``sqrt``, unfused, rounded once to float32. NumPy
and libm round their own versions differently from machine to machine; these operations are IEEE 754 exact
everywhere. The float64 value is within 2^-44 relative of the true one, so the result is within 0.500001 units
in the last place of float32: the correctly rounded one except where the true value lies that close to a tie.

Mixed precision policies call these for losses and activations, which stand in `float32_activations`; the cpu
backend performs the same operations in compiled loops (`kernels/float32_functions.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.emulator import float32_cores as core
from fp16sim.emulator.float32_activations import (
    gelu,
    gelu_derivative,
    gelu_tanh,
    gelu_tanh_derivative,
    sigmoid,
    silu,
    silu_derivative,
    softplus,
)
from fp16sim.emulator.kernels import float32_constants as c

__all__ = [
    "FLOAT32_FUNCTIONS",
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


def exp(x: npt.ArrayLike) -> Any:
    """Exponential of float32 values, rounded once to float32.

    Parameters
    ----------
    x : float32 array of any shape

    Returns
    -------
    float32 array of the same shape
        Within 0.500001 units in the last place. Overflow gives infinity, underflow is gradual; exp(-inf) = 0.

    >>> exp(np.float32([0.0, 1.0, -np.inf]))
    array([1.       , 2.7182817, 0.       ], dtype=float32)
    """
    values = core.from_float32(x)
    return core.to_float32(np.where(np.isnan(values), np.nan, core.exp(core.clip(values, -200.0, 200.0))))


def expm1(x: npt.ArrayLike) -> Any:
    """exp(x) - 1 of float32 values, rounded once to float32.

    Parameters
    ----------
    x : float32 array of any shape

    Returns
    -------
    float32 array of the same shape
        Within 0.500001 units in the last place, near zero too; zeros keep their sign.

    >>> expm1(np.float32([-0.0, 1.0, -np.inf]))
    array([-0.       ,  1.7182819, -1.       ], dtype=float32)
    """
    values = core.from_float32(x)
    result = np.copysign(core.expm1(core.clip(values, -200.0, 200.0)), values)
    return core.to_float32(np.where(np.isnan(values), np.nan, result))


def log(x: npt.ArrayLike) -> Any:
    """Natural logarithm of float32 values, rounded once to float32.

    Parameters
    ----------
    x : float32 array of any shape

    Returns
    -------
    float32 array of the same shape
        Within 0.500001 units in the last place. log(0) = -inf; NaN below zero.

    >>> log(np.float32([1.0, 10.0, 0.0]))
    array([0.       , 2.3025851,      -inf], dtype=float32)
    """
    values = core.from_float32(x)
    usual = (values > 0) & (values < np.inf)
    result = core.log(np.where(usual, values, 1.0))
    result = np.where(values == 0, -np.inf, result)
    result = np.where(values == np.inf, np.inf, result)
    return core.to_float32(np.where(np.isnan(values) | (values < 0), np.nan, result))


def log1p(x: npt.ArrayLike) -> Any:
    """log(1 + x) of float32 values, rounded once to float32.

    Parameters
    ----------
    x : float32 array of any shape

    Returns
    -------
    float32 array of the same shape
        Within 0.500001 units in the last place, near zero too; log1p(-1) = -inf, NaN below; zeros keep their sign.

    >>> log1p(np.float32([-0.0, 1.0, -1.0]))
    array([-0.       ,  0.6931472,       -inf], dtype=float32)
    """
    values = core.from_float32(x)
    usual = (values > -1) & (values < np.inf)
    result = np.copysign(core.log1p(np.where(usual, values, 0.0)), values)
    result = np.where(values == -1, -np.inf, result)
    result = np.where(values == np.inf, np.inf, result)
    return core.to_float32(np.where(np.isnan(values) | (values < -1), np.nan, result))


def tanh(x: npt.ArrayLike) -> Any:
    """Hyperbolic tangent of float32 values, rounded once to float32.

    Parameters
    ----------
    x : float32 array of any shape

    Returns
    -------
    float32 array of the same shape
        Within 0.500001 units in the last place; odd, zeros keep their sign.

    >>> tanh(np.float32([-0.0, 0.5, np.inf]))
    array([-0.        ,  0.46211717,  1.        ], dtype=float32)
    """
    values = core.from_float32(x)
    # 1 - tanh(20) is 2^-56.7: beyond 20 the rounded result is 1.
    grown = core.expm1(2.0 * core.clip(np.abs(values), 0.0, 20.0))
    return core.to_float32(np.where(np.isnan(values), np.nan, np.copysign(grown / (grown + 2.0), values)))


def erf(x: npt.ArrayLike) -> Any:
    """Error function of float32 values, rounded once to float32.

    Parameters
    ----------
    x : float32 array of any shape

    Returns
    -------
    float32 array of the same shape
        Within 0.500001 units in the last place; odd, zeros keep their sign.

    >>> erf(np.float32([-0.0, 0.5, np.inf]))
    array([-0.       ,  0.5204999,  1.       ], dtype=float32)
    """
    values = core.from_float32(x)
    # 1 - erf(4) is 2^-25.9, less than half the 2^-24 to the next value below 1: beyond 4 the result is 1.
    u = core.clip(np.abs(values), 0.0, 4.0)
    square = u * u  # exact: 48 bits
    near = u * core.polynomial(square, c.ERF)
    far = 1.0 - 2.0 * (core.exp(-square) * core.mills(u * c.SQRT_TWO))
    result = np.copysign(np.where(u <= 0.5, near, far), values)
    return core.to_float32(np.where(np.isnan(values), np.nan, result))


def sin(x: npt.ArrayLike) -> Any:
    """Sine of float32 values in radians, rounded once to float32.

    Parameters
    ----------
    x : float32 array of any shape
        Any magnitude: the reduction by pi/2 is exact to 86 bits after the point for every float32 value.

    Returns
    -------
    float32 array of the same shape
        Within 0.500001 units in the last place; NaN for infinities; odd, zeros keep their sign.

    >>> sin(np.float32([-0.0, 1.0, 1e30]))
    array([-0.        ,  0.84147096, -0.79116344], dtype=float32)
    """
    values = core.from_float32(x)
    usual = np.isfinite(values)
    quadrant, angle = core.reduce(np.where(usual, np.abs(values), 0.0))
    result = core.by_quadrant(quadrant, angle)
    return core.to_float32(np.where(usual, np.where(np.signbit(values), -result, result), np.nan))


def cos(x: npt.ArrayLike) -> Any:
    """Cosine of float32 values in radians, rounded once to float32.

    Parameters
    ----------
    x : float32 array of any shape
        Any magnitude, as for `sin`.

    Returns
    -------
    float32 array of the same shape
        Within 0.500001 units in the last place; NaN for infinities.

    >>> cos(np.float32([0.0, 1.0, np.inf]))
    array([1.       , 0.5403023,       nan], dtype=float32)
    """
    values = core.from_float32(x)
    usual = np.isfinite(values)
    quadrant, angle = core.reduce(np.where(usual, np.abs(values), 0.0))
    return core.to_float32(np.where(usual, core.by_quadrant(quadrant + 1, angle), np.nan))


def pow(x: npt.ArrayLike, y: npt.ArrayLike) -> Any:
    """x to the power y for float32 values, rounded once to float32; special cases as C99 and IEEE 754.

    Powers that are multiples of 1/2 up to 32 go through repeated multiplication (of the square root), so that
    results which are exact, or exactly between two float32 values, are rounded as such. Others are
    exp(y log x).

    Parameters
    ----------
    x, y : float32 arrays that broadcast

    Returns
    -------
    float32 array
        Within 0.50001 units in the last place. NaN for a negative x and a y that is no integer.

    >>> pow(np.float32([2.0, -2.0, 0.0]), np.float32([0.5, 3.0, 0.0]))
    array([ 1.4142135, -8.       ,  1.       ], dtype=float32)
    """
    base, power = np.broadcast_arrays(core.from_float32(x), core.from_float32(y))
    magnitude = np.abs(base)
    with np.errstate(all="ignore"):
        usual = (magnitude > 0) & np.isfinite(magnitude) & np.isfinite(power)
        safe_base = np.where(usual, magnitude, 1.0)
        safe_power = np.where(usual, power, 0.0)
        result = core.exp(core.clip(safe_power * core.log(safe_base), -200.0, 200.0))
        simple = usual & (np.abs(power) <= 32) & (np.floor(2 * power) == 2 * power)
        halves = core.power_of_halves(safe_base, np.where(simple, power, 0.0))
        return core.to_float32(core.power_cases(base, power, np.where(simple, halves, result)))


FLOAT32_FUNCTIONS = {
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
