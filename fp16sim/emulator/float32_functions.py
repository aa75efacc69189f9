"""float32 exp, log, tanh, erf, sin, cos and pow: the same bits on every machine.

Each function is a fixed sequence of float64 ``+ - * /`` and ``sqrt``, unfused, rounded once to float32. NumPy
and libm round their own versions differently from machine to machine; these operations are IEEE 754 exact
everywhere. The float64 value is within 2^-43 relative of the true one, so the result is within 0.500001 units
in the last place of float32: the correctly rounded one except where the true value lies that close to a tie.

None of this is fast: mixed precision policies call it for losses and activations, never for matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["FLOAT32_FUNCTIONS", "cos", "erf", "exp", "log", "pow", "sin", "tanh"]

Float32Array = npt.NDArray[np.float32]
Float64Array = npt.NDArray[np.float64]

# ln 2 in two pieces: k * _LN2_HIGH is exact for |k| < 2^13, because the piece has 40 bits.
_LN2_HIGH = float.fromhex("0x1.62e42fefa2000p-1")
_LN2_LOW = float.fromhex("0x1.9ef35793c7673p-41")
_INVERSE_LN2 = float.fromhex("0x1.71547652b82fep+0")
_TWO_OVER_SQRT_PI = float.fromhex("0x1.20dd750429b6dp+0")
_HALF_PI = float.fromhex("0x1.921fb54442d18p+0")
_SQRT_HALF = float.fromhex("0x1.6a09e667f3bcdp-1")


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
    values = _float64(x)
    return _float32(np.where(np.isnan(values), np.nan, _exp(_clip(values, -200.0, 200.0))))


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
    values = _float64(x)
    usual = (values > 0) & (values < np.inf)
    result = _log(np.where(usual, values, 1.0))
    result = np.where(values == 0, -np.inf, result)
    result = np.where(values == np.inf, np.inf, result)
    return _float32(np.where(np.isnan(values) | (values < 0), np.nan, result))


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
    values = _float64(x)
    # 1 - tanh(20) is 2^-56.7: beyond 20 the rounded result is 1.
    grown = _expm1(2.0 * _clip(np.abs(values), 0.0, 20.0))
    return _float32(np.where(np.isnan(values), np.nan, np.copysign(grown / (grown + 2.0), values)))


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
    values = _float64(x)
    # 1 - erf(4) is 2^-25.9, less than half the 2^-24 to the next value below 1: beyond 4 the result is 1.
    u = _clip(np.abs(values), 0.0, 4.0)
    square = u * u  # exact: 48 bits
    # erf(u) = 2/sqrt(pi) exp(-u^2) u (1 + w/3 (1 + w/5 (1 + ...))) with w = 2u^2 <= 32: every term is
    # positive, and what follows w/121 adds less than 2^-60 of the sum.
    total = np.ones_like(u)
    for odd in range(121, 1, -2):
        total = 1.0 + (2.0 * square) / odd * total
    result = _TWO_OVER_SQRT_PI * _exp(-square) * u * total
    return _float32(np.where(np.isnan(values), np.nan, np.copysign(result, values)))


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
    values = _float64(x)
    usual = np.isfinite(values)
    quadrant, angle = _reduce(np.where(usual, np.abs(values), 0.0))
    result = _by_quadrant(quadrant, angle)
    return _float32(np.where(usual, np.where(np.signbit(values), -result, result), np.nan))


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
    values = _float64(x)
    usual = np.isfinite(values)
    quadrant, angle = _reduce(np.where(usual, np.abs(values), 0.0))
    return _float32(np.where(usual, _by_quadrant(quadrant + 1, angle), np.nan))


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
    base, power = np.broadcast_arrays(_float64(x), _float64(y))
    magnitude = np.abs(base)
    with np.errstate(all="ignore"):
        whole = np.floor(power) == power  # infinities count as even integers
        odd = whole & (np.abs(power) < 2.0**53) & (np.floor(power / 2) * 2 != power)
        usual = (magnitude > 0) & np.isfinite(magnitude) & np.isfinite(power)
        safe_base = np.where(usual, magnitude, 1.0)
        safe_power = np.where(usual, power, 0.0)
        result = _exp(_clip(safe_power * _log(safe_base), -200.0, 200.0))
        simple = usual & (np.abs(power) <= 32) & (np.floor(2 * power) == 2 * power)
        result = np.where(simple, _power_of_halves(safe_base, np.where(simple, power, 0.0)), result)
        # A base of 0 or infinity, or an infinite power: towards 0 or towards infinity.
        grows = ((magnitude > 1) & (power > 0)) | ((magnitude < 1) & (power < 0))
        limit = np.where(grows, np.inf, 0.0)
        result = np.where(usual, result, np.where(magnitude == 1, 1.0, limit))
        result = np.where(np.isnan(base) | np.isnan(power), np.nan, result)
        result = np.where(np.signbit(base) & odd, -result, result)
        result = np.where((base < 0) & usual & ~whole, np.nan, result)
    return _float32(np.where((power == 0) | (base == 1), 1.0, result))


FLOAT32_FUNCTIONS = {"exp": exp, "log": log, "tanh": tanh, "erf": erf, "sin": sin, "cos": cos}
"""The functions of one argument by name."""


def _float64(x: npt.ArrayLike) -> Float64Array:
    array = np.asarray(x)
    if array.dtype.newbyteorder("=") != np.float32:
        raise TypeError(
            f"dtype {array.dtype}: these functions take float32; convert with .astype(numpy.float32), "
            "or use fp16sim.exp and its like for float16"
        )
    return array.astype(np.float64)


def _float32(result: Float64Array) -> Any:
    with np.errstate(all="ignore"):  # overflow to infinity and underflow are results, not accidents
        rounded = result.astype(np.float32)
    # One NaN: an operation on NaN or infinity gives different signs of NaN on different processors.
    return np.where(np.isnan(rounded), np.float32(np.nan), rounded)[()]


def _clip(x: Float64Array, low: float, high: float) -> Float64Array:
    """Keep x where the function still changes; a NaN becomes 0, and the caller puts it back."""
    return np.where(np.isnan(x), 0.0, np.clip(x, low, high))


def _power_of_two(exponent: Any) -> Float64Array:
    """2^exponent for integers in the normal range of float64, from its bits."""
    bits = (exponent.astype(np.int64) + 1023) << 52
    return np.asarray(bits).view(np.float64)


def _horner(x: Float64Array, coefficients: Sequence[float]) -> Float64Array:
    """Polynomial with the highest coefficient first; each product and sum is rounded to float64."""
    total = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return total


def _factorials(degrees: range) -> list[float]:
    """1/n! for each n: the quotient of two exact integers, rounded once (18! is below 2^53)."""
    factorial = [1]
    for n in range(1, 19):
        factorial.append(factorial[-1] * n)
    return [1.0 / factorial[n] for n in degrees]


_EXPM1 = _factorials(range(14, 0, -1))
_SIN = [sign * c for sign, c in zip((1, -1) * 5, _factorials(range(17, 0, -2)), strict=False)]
_COS = [sign * c for sign, c in zip((1, -1) * 5, _factorials(range(16, -1, -2)), strict=False)]
_ATANH = [1.0 / n for n in range(23, 0, -2)]


def _reduced_expm1(x: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Scale 2^k and expm1(x - k ln 2), |x| < 1000: 14 terms reach 2^-57 of ln(2)/2."""
    k = np.rint(x * _INVERSE_LN2)
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    return _power_of_two(k), _horner(r, _EXPM1) * r


def _exp(x: Float64Array) -> Float64Array:
    scale, p = _reduced_expm1(x)
    return scale * (1.0 + p)


def _expm1(x: Float64Array) -> Float64Array:
    # Near zero k = 0, and p keeps its relative accuracy.
    scale, p = _reduced_expm1(x)
    return scale * p + (scale - 1.0)


def _log(x: Float64Array) -> Float64Array:
    """Logarithm of positive finite values: k ln 2 + 2 atanh((m - 1)/(m + 1)), m in [sqrt(1/2), sqrt(2))."""
    m, k = np.frexp(x)
    small = m < _SQRT_HALF
    m = np.where(small, 2.0 * m, m)
    exponent = np.where(small, k - 1, k).astype(np.float64)
    z = (m - 1.0) / (m + 1.0)
    # |z| < 0.1716: 12 terms leave 2^-61 relative.
    series = 2.0 * z * _horner(z * z, _ATANH)
    return exponent * _LN2_HIGH + (exponent * _LN2_LOW + series)


def _power_of_halves(base: Float64Array, power: Float64Array) -> Float64Array:
    """base^power for multiples of 1/2 up to 32: square and multiply, exact wherever the power has 53 bits."""
    twice = np.abs(2 * power).astype(np.int64)
    square = np.where(twice & 1, np.sqrt(base), base)
    count = np.where(twice & 1, twice, twice >> 1)
    result = np.ones_like(base)
    for bit in range(6):
        result = np.where((count >> bit) & 1, result * square, result)
        square = square * square
    return np.where(power < 0, 1.0 / result, result)


@cache
def _two_over_pi_pieces() -> Float64Array:
    """2^e * 2/pi modulo 4 for e in [-24, 104], row e + 24, as four pieces of 28 bits each.

    2/pi comes from Machin's formula in integers: 300 bits after the point, the last 20 not used.
    """
    bits = 320

    def arctangent(inverse: int) -> int:
        term, total, n = (1 << bits) // inverse, 0, 1
        while term:
            total += term // n if n % 4 == 1 else -(term // n)
            term //= inverse * inverse
            n += 2
        return total

    pi = 16 * arctangent(5) - 4 * arctangent(239)
    quotient = (2 << (2 * bits)) // pi  # 2/pi in units of 2^-bits
    rows = []
    for e in range(-24, 105):
        scaled = quotient << e if e >= 0 else quotient >> -e
        scaled &= (1 << (bits + 2)) - 1
        row = []
        for piece in range(4):
            low = bits + 2 - 28 * (piece + 1)
            row.append(float((scaled >> low) & (2**28 - 1)) * 2.0 ** (low - bits))
        rows.append(row)
    return np.array(rows)


def _reduce(x: Float64Array) -> tuple[npt.NDArray[np.int64], Float64Array]:
    """Write x >= 0, a float32 value, as quadrant * pi/2 + angle, |angle| <= pi/4, good to 2^-52 relative."""
    small = x <= 0.75
    fraction, exponent = np.frexp(np.where(small, 1.0, x))
    significand = fraction * 2.0**24  # an integer: every product with a piece of 28 bits is exact
    pieces = _two_over_pi_pieces()[exponent]  # x = significand * 2^(exponent - 24)
    first = significand * pieces[..., 0]
    first = first - 4.0 * np.floor(first / 4.0)
    second = significand * pieces[..., 1]
    whole = np.rint(first + second)
    # No float32 value is within 2^-32 of a multiple of pi/2 here: these sums lose nothing that matters.
    rest = ((first - whole) + second) + (significand * pieces[..., 2] + significand * pieces[..., 3])
    quadrant = np.where(small, 0.0, whole).astype(np.int64)
    return quadrant, np.where(small, x, rest * _HALF_PI)


def _by_quadrant(quadrant: npt.NDArray[np.int64], angle: Float64Array) -> Float64Array:
    square = angle * angle
    sine = angle * _horner(square, _SIN)
    cosine = _horner(square, _COS)
    value = np.where(quadrant & 1, cosine, sine)
    return np.where(quadrant & 2, -value, value)
