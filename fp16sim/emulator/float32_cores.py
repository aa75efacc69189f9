"""Building blocks of the float32 functions: float64 arrays in, float64 arrays out, by ``+ - * /`` and sqrt only.

The order of the operations is the definition: `kernels/float32_functions.py` performs the same ones. What callers
keep out (NaN, arguments beyond the stated range) is not looked at here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.emulator.kernels import float32_constants as c

__all__ = [
    "Float64Array",
    "by_quadrant",
    "clip",
    "exp",
    "expm1",
    "from_float32",
    "log",
    "log1p",
    "mills",
    "polynomial",
    "power_cases",
    "power_of_halves",
    "reduce",
    "to_float32",
    "two_over_pi_pieces",
]

Float64Array = npt.NDArray[np.float64]


def from_float32(x: npt.ArrayLike) -> Float64Array:
    """Widen float32 values, and refuse others.

    >>> from_float32(np.float32([0.5]))
    array([0.5])
    """
    array = np.asarray(x)
    if array.dtype.newbyteorder("=") != np.float32:
        raise TypeError(
            f"dtype {array.dtype}: these functions take float32; convert with .astype(numpy.float32), "
            "or use fp16sim.exp and its like for float16"
        )
    with np.errstate(invalid="ignore"):  # a signalling NaN is one like any other
        return array.astype(np.float64)


def to_float32(result: Float64Array) -> Any:
    """Round once to float32; every NaN becomes the positive quiet one.

    >>> to_float32(np.array([0.1]))
    array([0.1], dtype=float32)
    """
    with np.errstate(all="ignore"):  # overflow to infinity and underflow are results, not accidents
        rounded = result.astype(np.float32)
    # One NaN: an operation on NaN or infinity gives different signs of NaN on different processors.
    return np.where(np.isnan(rounded), np.float32(np.nan), rounded)[()]


def clip(x: Float64Array, low: float, high: float) -> Float64Array:
    """Keep x where the function still changes; a NaN becomes 0, and the caller puts it back.

    >>> clip(np.array([-9.0, 0.5, np.nan]), -2.0, 2.0)
    array([-2. ,  0.5,  0. ])
    """
    return np.where(np.isnan(x), 0.0, np.clip(x, low, high))


def _power_of_two(exponent: Any) -> Float64Array:
    """2^exponent for integers in the normal range of float64, from its bits."""
    bits = (exponent.astype(np.int64) + 1023) << 52
    return np.asarray(bits).view(np.float64)


def polynomial(x: Float64Array, coefficients: Sequence[float]) -> Float64Array:
    """Sum a polynomial, highest coefficient first, by Horner; each product and sum is rounded to float64.

    >>> polynomial(np.array([2.0]), [1.0, 0.0, 3.0])
    array([7.])
    """
    total = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return total


def _reduced_expm1(x: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Scale 2^k and expm1(x - k ln 2), |x| < 700."""
    k = np.rint(x * c.INVERSE_LN2)
    r = (x - k * c.LN2_HIGH) - k * c.LN2_LOW
    return _power_of_two(k), polynomial(r, c.EXPM1) * r


def exp(x: Float64Array) -> Float64Array:
    """Exponential, |x| < 700.

    >>> exp(np.array([0.0]))
    array([1.])
    """
    scale, p = _reduced_expm1(x)
    return scale * (1.0 + p)


def expm1(x: Float64Array) -> Float64Array:
    """exp(x) - 1, |x| < 700; near zero k = 0, and the series keeps its relative accuracy.

    >>> expm1(np.array([2.0**-30])) * 2.0**30
    array([1.])
    """
    scale, p = _reduced_expm1(x)
    return scale * p + (scale - 1.0)


def _log(u: Float64Array, minus_one: Float64Array | None) -> Float64Array:
    """k ln 2 + 2 atanh((m - 1)/(m + 1)), u = m 2^k, m in [sqrt(1/2), sqrt(2)); m - 1 is given where k = 0."""
    m, k = np.frexp(u)
    small = m < c.SQRT_HALF
    m = np.where(small, 2.0 * m, m)
    exponent = np.where(small, k - 1, k).astype(np.float64)
    above = m - 1.0
    if minus_one is not None:
        above = np.where(exponent == 0, minus_one, above)
    z = above / (m + 1.0)
    series = 2.0 * z * polynomial(z * z, c.ATANH)
    return exponent * c.LN2_HIGH + (exponent * c.LN2_LOW + series)


def log(x: Float64Array) -> Float64Array:
    """Natural logarithm of positive, normal, finite values.

    >>> log(np.array([1.0]))
    array([0.])
    """
    return _log(x, None)


def log1p(x: Float64Array) -> Float64Array:
    """log(1 + x) for finite x > -1: where 1 + x has lost digits of x, x itself takes the place of m - 1.

    >>> log1p(np.array([2.0**-60])) * 2.0**60
    array([1.])
    """
    return _log(1.0 + x, x)


def mills(y: Float64Array) -> Float64Array:
    """exp(y^2/2) Phi(-y) for y from 0 to 15, Phi the normal distribution function.

    >>> mills(np.array([0.0]))
    array([0.5])
    """
    inverse = 1.0 / (y + 5.0)
    return polynomial((y - 5.0) * inverse, c.MILLS) * inverse


def power_of_halves(base: Float64Array, power: Float64Array) -> Float64Array:
    """base^power for multiples of 1/2 up to 32: square and multiply, exact wherever the power has 53 bits.

    >>> power_of_halves(np.array([9.0, 2.0]), np.array([1.5, -2.0]))
    array([27.  ,  0.25])
    """
    twice = np.abs(2 * power).astype(np.int64)
    square = np.where(twice & 1, np.sqrt(base), base)
    count = np.where(twice & 1, twice, twice >> 1)
    result = np.ones_like(base)
    for bit in range(6):
        result = np.where((count >> bit) & 1, result * square, result)
        square = square * square
    return np.where(power < 0, 1.0 / result, result)


def power_cases(base: Float64Array, power: Float64Array, usual_result: Float64Array) -> Float64Array:
    """Complete |base|^power, right where both are finite and base is not 0, by the cases of C99 and IEEE 754.

    >>> power_cases(np.array([-2.0, 0.0]), np.array([3.0, -1.0]), np.array([8.0, 1.0]))
    array([-8., inf])
    """
    magnitude = np.abs(base)
    whole = np.floor(power) == power  # infinities count as even integers
    odd = whole & (np.abs(power) < 2.0**53) & (np.floor(power / 2) * 2 != power)
    usual = (magnitude > 0) & np.isfinite(magnitude) & np.isfinite(power)
    # A base of 0 or infinity, or an infinite power: towards 0 or towards infinity.
    grows = ((magnitude > 1) & (power > 0)) | ((magnitude < 1) & (power < 0))
    limit = np.where(grows, np.inf, 0.0)
    result = np.where(usual, usual_result, np.where(magnitude == 1, 1.0, limit))
    result = np.where(np.signbit(base) & odd, -result, result)
    result = np.where(np.isnan(base) | np.isnan(power) | ((base < 0) & usual & ~whole), np.nan, result)
    return np.where((power == 0) | (base == 1), 1.0, result)


@cache
def two_over_pi_pieces() -> Float64Array:
    """2^e * 2/pi modulo 4 for e in [-24, 104], row e + 24, as four pieces of 28 bits each.

    2/pi comes from Machin's formula in integers: 300 bits after the point, the last 20 not used.

    >>> two_over_pi_pieces().shape
    (129, 4)
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


def reduce(x: Float64Array) -> tuple[npt.NDArray[np.int64], Float64Array]:
    """Write x >= 0, a float32 value, as quadrant * pi/2 + angle, |angle| <= pi/4, good to 2^-52 relative.

    >>> quadrant, angle = reduce(np.array([0.5, 2.0]))
    >>> quadrant
    array([0, 1])
    """
    small = x <= 0.75
    fraction, exponent = np.frexp(np.where(small, 1.0, x))
    significand = fraction * 2.0**24  # an integer: every product with a piece of 28 bits is exact
    pieces = two_over_pi_pieces()[exponent]  # x = significand * 2^(exponent - 24)
    first = significand * pieces[..., 0]
    first = first - 4.0 * np.floor(first / 4.0)
    second = significand * pieces[..., 1]
    whole = np.rint(first + second)
    # No float32 value is within 2^-32 of a multiple of pi/2 here: these sums lose nothing that matters.
    rest = ((first - whole) + second) + (significand * pieces[..., 2] + significand * pieces[..., 3])
    quadrant = np.where(small, 0.0, whole).astype(np.int64)
    return quadrant, np.where(small, x, rest * c.HALF_PI)


def by_quadrant(quadrant: npt.NDArray[np.int64], angle: Float64Array) -> Float64Array:
    """Sine of quadrant * pi/2 + angle, |angle| <= pi/4.

    >>> by_quadrant(np.array([1, 2]), np.array([0.0, 0.0]))
    array([ 1., -0.])
    """
    square = angle * angle
    sine = angle * polynomial(square, c.SIN)
    cosine = polynomial(square, c.COS)
    value = np.where(quadrant & 1, cosine, sine)
    return np.where(quadrant & 2, -value, value)
