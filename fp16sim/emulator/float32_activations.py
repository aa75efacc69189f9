"""The activations of neural networks on float32 values, and their derivatives: the same bits on every machine.

As in `float32_functions`: a fixed sequence of float64 operations, within 2^-44 relative of the true value also
where that is tiny, then one rounding. Limits at infinity are given (silu(-inf) = -0), where frameworks that
multiply infinity by zero give NaN.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.emulator import float32_cores as core
from fp16sim.emulator.float32_cores import Float64Array
from fp16sim.emulator.kernels import float32_constants as c

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


def sigmoid(x: npt.ArrayLike) -> Any:
    """1/(1 + exp(-x)) of float32 values, rounded once to float32.

    Parameters
    ----------
    x : float32 array of any shape

    Returns
    -------
    float32 array of the same shape
        Within 0.500001 units in the last place; underflow is gradual.

    >>> sigmoid(np.float32([-100.0, 0.0, 1.0]))
    array([3.783506e-44, 5.000000e-01, 7.310586e-01], dtype=float32)
    """
    values = core.from_float32(x)
    result = 1.0 / (1.0 + core.exp(-core.clip(values, -200.0, 200.0)))
    return core.to_float32(np.where(np.isnan(values), np.nan, result))


def silu(x: npt.ArrayLike) -> Any:
    """x/(1 + exp(-x)) of float32 values, rounded once to float32.

    Parameters
    ----------
    x : float32 array of any shape

    Returns
    -------
    float32 array of the same shape
        Within 0.500001 units in the last place; zeros keep their sign, silu(-inf) = -0.

    >>> silu(np.float32([-np.inf, 1.0]))
    array([-0.       ,  0.7310586], dtype=float32)
    """
    values = core.from_float32(x)
    # From -200 on down the result is -0.
    result = _above(values, -200.0) / (1.0 + core.exp(-core.clip(values, -200.0, 200.0)))
    return core.to_float32(np.where(np.isnan(values), np.nan, result))


def softplus(x: npt.ArrayLike) -> Any:
    """log(1 + exp(x)) of float32 values, rounded once to float32.

    Parameters
    ----------
    x : float32 array of any shape

    Returns
    -------
    float32 array of the same shape
        Within 0.500001 units in the last place; underflow is gradual.

    >>> softplus(np.float32([-100.0, 0.0, 100.0]))
    array([3.783506e-44, 6.931472e-01, 1.000000e+02], dtype=float32)
    """
    values = core.from_float32(x)
    # max(x, 0) + log1p(e), e = exp(-|x|) <= 1: the logarithm of 1 + e or ln 2 and that of (1 + e)/2, so that
    # |z| < 0.1716 for 2 atanh(z).
    e = core.exp(-core.clip(np.abs(values), 0.0, 200.0))
    large = e > c.SQRT_TWO - 1.0
    z = np.where(large, e - 1.0, e) / (e + np.where(large, 3.0, 2.0))
    logarithm = np.where(large, c.LN2, 0.0) + 2.0 * z * core.polynomial(z * z, c.ATANH)
    return core.to_float32(np.where(np.isnan(values), np.nan, _above(values, 0.0) + logarithm))


def gelu(x: npt.ArrayLike) -> Any:
    """x Phi(x) of float32 values, Phi the normal distribution function, rounded once to float32.

    Parameters
    ----------
    x : float32 array of any shape

    Returns
    -------
    float32 array of the same shape
        Within 0.500001 units in the last place down to the smallest result (-14.2 gives -2^-149); zeros keep
        their sign, gelu(-inf) = -0.

    >>> gelu(np.float32([-14.0, -1.0, 1.0]))
    array([-1.0930128e-43, -1.5865526e-01,  8.4134477e-01], dtype=float32)
    """
    values = core.from_float32(x)
    _, tail = _normal_tail(values)
    result = _above(values, -15.0) * np.where(values < 0, tail, 1.0 - tail)
    return core.to_float32(np.where(np.isnan(values), np.nan, result))


def gelu_tanh(x: npt.ArrayLike) -> Any:
    """x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) of float32 values, rounded once to float32.

    Parameters
    ----------
    x : float32 array of any shape

    Returns
    -------
    float32 array of the same shape
        Within 0.500001 units in the last place, computed as x sigmoid(2z); zeros keep their sign,
        gelu_tanh(-inf) = -0.

    Notes
    -----
    Hendrycks and Gimpel, "Gaussian error linear units", arXiv 1606.08415, section 2; torch's
    ``gelu(approximate="tanh")``.

    >>> gelu_tanh(np.float32([-1.0, 1.0]))
    array([-0.15880801,  0.841192  ], dtype=float32)
    """
    values = core.from_float32(x)
    inner = core.clip(values, -11.0, 11.0)  # at -11 the result is below 2^-150
    argument = inner * (c.GELU_LINEAR + c.GELU_CUBIC * (inner * inner))
    result = _above(values, -11.0) / (1.0 + core.exp(-argument))
    return core.to_float32(np.where(np.isnan(values), np.nan, result))


def silu_derivative(x: npt.ArrayLike) -> Any:
    """s (1 + x (1 - s)), s = sigmoid(x), of float32 values, rounded once to float32.

    Parameters
    ----------
    x : float32 array of any shape

    Returns
    -------
    float32 array of the same shape
        Within 0.500001 units in the last place, near the root at -1.278 too; -0 at -inf, 1 at inf.

    >>> silu_derivative(np.float32([-1.278, 0.0, 1.0]))
    array([1.01215126e-04, 5.00000000e-01, 9.27670538e-01], dtype=float32)
    """
    values = core.from_float32(x)
    inner = core.clip(values, -120.0, 120.0)
    e = core.exp(-inner)
    s = 1.0 / (1.0 + e)
    usual = s * (1.0 + inner * (e * s))
    return _with_root(values, usual, c.SILU_ROOT, c.SILU_SLOPE)


def gelu_derivative(x: npt.ArrayLike) -> Any:
    """Phi(x) + x phi(x) of float32 values, phi the normal density, rounded once to float32.

    Parameters
    ----------
    x : float32 array of any shape

    Returns
    -------
    float32 array of the same shape
        Within 0.500001 units in the last place, near the root at -0.752 too; -0 at -inf, 1 at inf.

    >>> gelu_derivative(np.float32([-0.75, 0.0, 1.0]))
    array([7.7427825e-04, 5.0000000e-01, 1.0833155e+00], dtype=float32)
    """
    values = core.from_float32(x)
    e, tail = _normal_tail(values)
    distance = core.clip(np.abs(values), 0.0, 15.0)
    excess = (e * c.INVERSE_SQRT_TWO_PI) * distance - tail
    usual = np.where(values < 0, -excess, 1.0 + excess)
    return _with_root(values, usual, c.GELU_ROOT, c.GELU_SLOPE)


def gelu_tanh_derivative(x: npt.ArrayLike) -> Any:
    """The derivative of `gelu_tanh` at float32 values, rounded once to float32.

    Parameters
    ----------
    x : float32 array of any shape

    Returns
    -------
    float32 array of the same shape
        Within 0.500001 units in the last place, near the root at -0.752 too; -0 at -inf, 1 at inf. With
        w = x (a + b x^2) and s = sigmoid(w) it is s (1 + x (a + 3 b x^2) (1 - s)).

    >>> gelu_tanh_derivative(np.float32([-0.75, 0.0, 1.0]))
    array([1.0617438e-03, 5.0000000e-01, 1.0829641e+00], dtype=float32)
    """
    values = core.from_float32(x)
    inner = core.clip(values, -11.0, 11.0)
    square = inner * inner
    e = core.exp(-(inner * (c.GELU_LINEAR + c.GELU_CUBIC * square)))
    s = 1.0 / (1.0 + e)
    slope = inner * (c.GELU_LINEAR + 3.0 * c.GELU_CUBIC * square)
    usual = s * (1.0 + slope * (e * s))
    return _with_root(values, usual, c.GELU_TANH_ROOT, c.GELU_TANH_SLOPE)


def _above(x: Float64Array, low: float) -> Float64Array:
    """Give the greater of x and low; a NaN stays in sight of the caller's own check."""
    return np.where(x > low, x, low)


def _normal_tail(x: Float64Array) -> tuple[Float64Array, Float64Array]:
    """exp(-x^2/2) and Phi(-|x|); at 15 both are far below what float32 tells from 0."""
    y = core.clip(np.abs(x), 0.0, 15.0)
    e = core.exp(-0.5 * (y * y))  # the square is exact: 48 bits
    return e, e * core.mills(y)


def _with_root(
    x: Float64Array, usual: Float64Array, root: tuple[float, ...], slope: tuple[float, ...]
) -> Any:
    """Round a derivative; near its root, where the terms cancel, it is the distance from there times a slope."""
    distance = (x - root[0]) - root[1]
    near = np.abs(distance) < c.NEAR_ROOT
    distance = np.where(near, distance, 0.0)
    result = np.where(near, distance * core.polynomial(distance, slope), usual)
    return core.to_float32(np.where(np.isnan(x), np.nan, result))
