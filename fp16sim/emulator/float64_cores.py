"""Building blocks of the float64 functions, in double-double on top of `elementary`.

Arguments are one-dimensional, without NaN; results that may leave float64's normal range carry their power of two
beside them, so that double-double never meets an underflow.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.emulator import elementary
from fp16sim.emulator.double_double import DoubleDouble, two_product, two_sum
from fp16sim.emulator.elementary import LN2, power_of_two
from fp16sim.emulator.float32_cores import Float64Array

__all__ = [
    "circular",
    "evaluate",
    "exact",
    "exponential",
    "from_float64",
    "logarithm",
    "mills",
    "normal_tail",
    "round_scaled",
    "square",
]

_INVERSE_LN2 = float.fromhex("0x1.71547652b82fep+0")
_INVERSE_SQRT_TWO_PI = DoubleDouble(
    float.fromhex("0x1.9884533d43651p-2"), float.fromhex("-0x1.cbc0d30ebfd15p-56")
)


def from_float64(x: npt.ArrayLike) -> Float64Array:
    """Take float64 values in native byte order, and refuse others.

    >>> from_float64(np.float64(0.5))
    array(0.5)
    """
    array = np.asarray(x)
    if array.dtype.newbyteorder("=") != np.float64:
        raise TypeError(
            f"dtype {array.dtype}: these functions take float64; convert with .astype(numpy.float64), or use "
            "float32_functions for float32 and fp16sim.exp and its like for float16"
        )
    return array.astype(np.float64)


def evaluate(function: Callable[[Float64Array], Float64Array], x: npt.ArrayLike) -> Any:
    """Apply a function of one-dimensional arrays without NaN to any array; NaN gives the positive quiet NaN.

    >>> evaluate(lambda x: x + 1, np.array([[1.0, np.nan]]))
    array([[ 2., nan]])
    """
    values = from_float64(x)
    flat = values.reshape(-1)
    nan = np.isnan(flat)
    with np.errstate(all="ignore"):  # overflow to infinity and underflow are results, not accidents
        result = function(np.where(nan, 0.0, flat))
    return np.where(nan | np.isnan(result), np.nan, result).reshape(values.shape)[()]


def exact(x: Float64Array) -> DoubleDouble:
    """Give float64 values as double-double.

    >>> exact(np.array([1.5])).hi
    array([1.5])
    """
    return DoubleDouble(x, np.zeros_like(x))


def round_scaled(value: DoubleDouble, exponent: Float64Array) -> Float64Array:
    """value * 2^exponent as float64, for values near 1; subnormal results are rounded a second time.

    >>> round_scaled(exact(np.array([1.0, 1.0])), np.array([-1080.0, 3.0]))
    array([0., 8.])
    """
    exponent = np.clip(exponent, -2000.0, 2000.0)
    half = np.floor(exponent / 2.0)
    scaled: Float64Array = value.hi * power_of_two(half) * power_of_two(exponent - half)
    return scaled


def exponential(x: DoubleDouble) -> tuple[DoubleDouble, Float64Array]:
    """exp(x) for |x| < 2^12 as a number between 0.7 and 1.5 and an exponent of 2, as float64.

    >>> value, exponent = exponential(exact(np.array([0.0])))
    >>> value.hi, exponent
    (array([1.]), array([0.]))
    """
    k = np.rint(x.hi * _INVERSE_LN2)
    return elementary.exp(x - LN2 * k), k


def logarithm(x: Float64Array) -> DoubleDouble:
    """Natural logarithm of positive finite values, subnormal ones too.

    >>> logarithm(np.array([1.0, 2.0**-1074])).hi
    array([   0.        , -744.44007192])
    """
    # `elementary.log` multiplies by powers of two down to the reciprocal of its argument.
    shift = np.where(x < 2.0**-500, 600.0, np.where(x > 2.0**500, -600.0, 0.0))
    return elementary.log(x * power_of_two(shift)) - LN2 * shift


_TERMS = 13  # of a Taylor series from a node at most 1/32 away: they leave 2^-80
_LAST_NODE = 640  # 40, beyond which exp(-y^2/2) is less than 2^-1150


@cache
def _mills_nodes() -> tuple[Float64Array, Float64Array]:
    """Taylor coefficients of the Mills ratio at y = j/16, j from 0 to 640, as double-doubles of shape (641, 13).

    M(y) = exp(y^2/2) times the integral of exp(-t^2/2) from y on. M' = y M - 1 gives each coefficient from the
    two before. M(40) is a continued fraction (Laplace); the series itself leads from node to node downwards,
    where errors shrink. All of it in integers, in units of 2^-320.
    """
    bits = 320
    one = 1 << bits
    denominator = 40 * one
    for n in range(200, 0, -1):
        denominator = 40 * one + n * one * one // denominator
    value = one * one // denominator
    hi, lo = np.empty((_LAST_NODE + 1, _TERMS)), np.empty((_LAST_NODE + 1, _TERMS))
    for j in range(_LAST_NODE, -1, -1):
        series = [value, j * value // 16 - one]
        for n in range(1, 60):
            series.append((j * series[n] // 16 + series[n - 1]) // (n + 1))
        for n in range(_TERMS):
            hi[j, n] = series[n] / one  # the quotient of two integers, rounded once
            top, bottom = hi[j, n].as_integer_ratio()
            lo[j, n] = (series[n] * bottom - top * one) / (one * bottom)
        value = sum((-1) ** n * (term >> (4 * n)) for n, term in enumerate(series))
    return hi, lo


def mills(y: DoubleDouble) -> DoubleDouble:
    """Ratio of the upper tail of the normal distribution to its density, for y from 0 to 40.

    >>> mills(exact(np.array([0.0]))).hi  # sqrt(pi/2)
    array([1.25331414])
    """
    hi, lo = _mills_nodes()
    j = np.rint(y.hi * 16.0)
    h = DoubleDouble(*two_sum(y.hi - j / 16.0, y.lo))
    row = j.astype(np.int64)
    tail = np.zeros_like(y.hi)
    for n in range(_TERMS - 1, 3, -1):  # h^4 is 2^-20: float64 is enough for what it multiplies
        tail = tail * h.hi + hi[row, n]
    total = exact(tail)
    for n in range(3, -1, -1):
        total = total * h + DoubleDouble(hi[row, n], lo[row, n])
    return total


def normal_tail(
    y: DoubleDouble, half_square: DoubleDouble
) -> tuple[DoubleDouble, DoubleDouble, Float64Array]:
    """Density and upper tail of the normal distribution at y from 0 to 40, both times 2^-exponent.

    The callers know y^2/2 better than y, a rounded number, would give it.

    >>> density, tail, exponent = normal_tail(exact(np.array([0.0])), exact(np.array([0.0])))
    >>> density.hi, tail.hi, exponent
    (array([0.39894228]), array([0.5]), array([-0.]))
    """
    value, exponent = exponential(-half_square)
    density = value * _INVERSE_SQRT_TWO_PI
    return density, density * mills(y), exponent


@cache
def _two_over_pi(bits: int) -> int:
    """2/pi in units of 2^-bits, by Machin's formula."""

    def arctangent(inverse: int) -> int:
        term, total, n = (1 << (bits + 20)) // inverse, 0, 1
        while term:
            total += term // n if n % 4 == 1 else -(term // n)
            term //= inverse * inverse
            n += 2
        return total

    pi = 16 * arctangent(5) - 4 * arctangent(239)
    return (2 << (2 * bits + 20)) // pi


def _reduced(x: float) -> tuple[int, float, float]:
    """Quadrant and rest of x > 0 in units of pi/2, the rest as two float64: from integers, for any magnitude."""
    bits = 1300  # 2^-276 for the largest x; none is within 2^-62 of a multiple of pi/2
    numerator, denominator = x.as_integer_ratio()
    value = numerator * _two_over_pi(bits)
    unit = bits + denominator.bit_length() - 1
    quadrant = (value + (1 << (unit - 1))) >> unit
    rest = value - (quadrant << unit)
    high = rest / (1 << unit)
    top, bottom = high.as_integer_ratio()
    return quadrant & 3, high, (rest * bottom - (top << unit)) / (bottom << unit)


def circular(x: Float64Array) -> tuple[npt.NDArray[np.int64], DoubleDouble, DoubleDouble]:
    """Quadrant, and sine and cosine of the rest, for finite x >= 0.

    >>> quadrant, sine, cosine = circular(np.array([0.0, 1e300]))
    >>> sine.hi, cosine.hi
    (array([ 0.        , -0.57538611]), array([1.        , 0.81788191]))
    """
    quadrant = np.zeros(x.shape, np.int64)
    angle = exact(x)
    large = np.flatnonzero(x > 65504.0)  # as far as `elementary` goes
    if large.size:
        rows = [_reduced(value) for value in x[large].tolist()]
        quadrant[large] = [row[0] for row in rows]
        rest = DoubleDouble(np.array([row[1] for row in rows]), np.array([row[2] for row in rows]))
        turned = rest * elementary.HALF_PI
        angle.hi = x.copy()
        angle.hi[large], angle.lo[large] = turned.hi, turned.lo
    negative = angle.hi < 0
    sine, cosine = elementary.sin(np.abs(angle.hi)), elementary.cos(np.abs(angle.hi))
    sine = DoubleDouble.where(negative, -sine, sine)
    return quadrant, sine + cosine.hi * angle.lo, cosine - sine.hi * angle.lo


def square(x: Float64Array) -> DoubleDouble:
    """x^2 without error.

    >>> square(np.array([3.0])).hi
    array([9.])
    """
    return DoubleDouble(*two_product(x, x))
