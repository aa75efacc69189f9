"""exp, log, circular functions and roots of binary16 values in double-double: relative error below 2^-100.

Each function reduces its argument to within 1/64 of a node j/32, looks the node's value up (nodes are
computed here too, by longer series), and adds a Taylor series. Terms below 2^-48 of the sum are taken in
plain float64.

Arguments are float64 arrays that hold binary16 values, or DoubleDouble where the docstring says so; callers
keep them inside the domain. Results are not rounded to binary16 here: `tables` does that.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.emulator.double_double import DoubleDouble, two_product, two_sum

__all__ = [
    "HALF_PI",
    "LN2",
    "atan",
    "cbrt",
    "constant",
    "cos",
    "exp",
    "expm1",
    "log",
    "log1p",
    "power_of_two",
    "reciprocal",
    "rsqrt",
    "sin",
    "sqrt",
    "tan",
]

Array = npt.NDArray[np.float64]

LN2 = DoubleDouble(float.fromhex("0x1.62e42fefa39efp-1"), float.fromhex("0x1.abc9e3b39803fp-56"))
HALF_PI = DoubleDouble(float.fromhex("0x1.921fb54442d18p+0"), float.fromhex("0x1.1a62633145c07p-54"))
_INVERSE_LN2 = float.fromhex("0x1.71547652b82fep+0")
_TWO_OVER_PI = float.fromhex("0x1.45f306dc9c883p-1")
# Cody-Waite pieces: a multiple k of a piece is exact while k has no more bits than the piece leaves free.
_LN2_PIECES = [  # 40 bits each: |k| < 2^13
    float.fromhex(piece)
    for piece in ("0x1.62e42fefa2000p-1", "0x1.9ef35793c6000p-41", "0x1.673007e5ee000p-81")
]
_HALF_PI_PIECES = [  # 36 bits each: k < 2^17, enough for 65504; together 144 bits after the point
    float.fromhex(piece)
    for piece in (
        "0x1.921fb54440000p+0",
        "0x1.68c234c4c0000p-39",
        "0x1.98a2e03700000p-77",
        "0x1.cd129024e0000p-115",
    )
]
_NODES = 32.0


def constant(numerator: int, denominator: int = 1) -> DoubleDouble:
    """The double-double nearest to a fraction: both halves are quotients of integers, rounded once.

    >>> tenth = constant(1, 10)
    >>> tenth.hi, tenth.lo
    (0.1, -5.551115123125783e-18)
    """
    hi = numerator / denominator
    top, bottom = hi.as_integer_ratio()
    return DoubleDouble(hi, (numerator * bottom - top * denominator) / (denominator * bottom))


def power_of_two(exponent: Any) -> Array:
    """2^exponent for integers between -1022 and 1023, as float64, from its bits.

    >>> power_of_two(np.array([-1, 0, 10]))
    array([5.000e-01, 1.000e+00, 1.024e+03])
    """
    bits = (np.asarray(exponent).astype(np.int64) + 1023) << 52
    return bits.view(np.float64)


@cache
def _inverse_factorial(n: int) -> DoubleDouble:
    factorial = 1
    for k in range(2, n + 1):
        factorial *= k
    return constant(1, factorial)


@cache
def _inverse(n: int) -> DoubleDouble:
    return constant(1, n)


def _series(x: DoubleDouble, coefficients: list[DoubleDouble], exact: int) -> DoubleDouble:
    """Polynomial, lowest coefficient first: all but the first ``exact`` coefficients in plain float64."""
    tail = np.zeros_like(x.hi)
    for coefficient in coefficients[:exact:-1]:
        tail = (tail + coefficient.hi) * x.hi
    total = DoubleDouble(tail) + coefficients[exact]
    for coefficient in coefficients[exact - 1 :: -1] if exact else []:
        total = total * x + coefficient
    return total


# --- exponentials -------------------------------------------------------------------------------------------


def _expm1_near_zero(x: DoubleDouble, terms: int = 13, exact: int = 5) -> DoubleDouble:
    """x (1 + x/2! + x^2/3! + ...): for |x| <= 1/64 the 13 terms leave 2^-108."""
    return x * _series(x, [_inverse_factorial(n) for n in range(1, terms + 1)], exact)


@cache
def _exp_nodes() -> DoubleDouble:
    """exp(j/32) for j from -12 to 12."""
    x = np.arange(-12, 13) / _NODES
    return _expm1_near_zero(DoubleDouble(x, np.zeros_like(x)), terms=26, exact=20) + 1.0


def _exp_parts(x: DoubleDouble) -> tuple[Array, DoubleDouble, DoubleDouble]:
    """Scale 2^k, node value E and p with exp(x) = 2^k E (1 + p), for |x| < 5000."""
    k = np.rint(x.hi * _INVERSE_LN2)
    r = x
    for piece in _LN2_PIECES:
        r = r - k * piece
    j = np.rint(r.hi * _NODES)
    return power_of_two(k), _exp_nodes()[j.astype(np.int64) + 12], _expm1_near_zero(r - j / _NODES)


def exp(x: DoubleDouble) -> DoubleDouble:
    """Exponential of a double-double below 100 in magnitude.

    >>> exp(DoubleDouble(np.array([1.0]), np.array([0.0]))).hi
    array([2.71828183])
    """
    scale, node, p = _exp_parts(x)
    return (node * p + node).scaled(scale)


def expm1(x: DoubleDouble) -> DoubleDouble:
    """exp(x) - 1 without cancellation: near zero scale and node are exactly 1, and p stands alone.

    >>> expm1(DoubleDouble(np.array([2.0**-24]), np.array([0.0]))).hi * 2.0**24
    array([1.00000003])
    """
    scale, node, p = _exp_parts(x)
    node = node.scaled(scale)
    return node * p + (node - 1.0)


# --- logarithms ---------------------------------------------------------------------------------------------


def _atanh_over_x(square: DoubleDouble, terms: int = 9, exact: int = 3) -> DoubleDouble:
    """1 + x^2/3 + x^4/5 + ...: for |x| <= 2^-6.4 nine terms leave 2^-119."""
    return _series(square, [_inverse(2 * n + 1) for n in range(terms)], exact)


@cache
def _log_nodes() -> DoubleDouble:
    """log(j/32) for j from 22 to 46, as 2 atanh((j - 32)/(j + 32))."""
    j = np.arange(22.0, 47.0)
    z = DoubleDouble(j - 32.0) / (j + 32.0)
    return z.scaled(2.0) * _atanh_over_x(z * z, terms=26, exact=18)


def _log(x: DoubleDouble, minus_one: DoubleDouble) -> DoubleDouble:
    """Logarithm of x > 0, given x - 1 as well (which holds more when x is near 1)."""
    m, k = np.frexp(x.hi)
    small = m < 0.703125  # 22.5/32: m in [0.703125, 1.40625)
    k = k - small
    scale = power_of_two(-k)
    j = np.rint(x.hi * scale * _NODES)
    node = j / _NODES
    m_dd = x.scaled(scale)
    near_one = (k == 0) & (j == _NODES)
    z = DoubleDouble.where(near_one, minus_one, m_dd - node) / (m_dd + node)
    series = z.scaled(2.0) * _atanh_over_x(z * z)
    # Where k is not 0 the sum is at least 0.34, and k log 2 at most 17: little is lost.
    value: DoubleDouble = LN2 * k.astype(np.float64) + (_log_nodes()[j.astype(np.int64) - 22] + series)
    return value


def log(x: Array) -> DoubleDouble:
    """Natural logarithm of binary16 values above 0.

    >>> log(np.array([1.0, 2.0])).hi
    array([0.        , 0.69314718])
    """
    return _log(DoubleDouble(x, np.zeros_like(x)), DoubleDouble(x - 1.0, np.zeros_like(x)))


def log1p(x: DoubleDouble) -> DoubleDouble:
    """log(1 + x) for a double-double x above -1, below 2^30; relatively accurate near 0.

    >>> log1p(DoubleDouble(np.array([2.0**-24]), np.array([0.0]))).hi * 2.0**24
    array([0.99999997])
    """
    return _log(x + 1.0, x)


# --- circular functions -------------------------------------------------------------------------------------


def _sin_near_zero(x: DoubleDouble, square: DoubleDouble, terms: int = 8, exact: int = 3) -> DoubleDouble:
    """x - x^3/3! + ...: for |x| <= 1/64 eight terms leave 2^-140."""
    coefficients = [_inverse_factorial(2 * n + 1) for n in range(terms)]
    return x * _series(square, [-c if n % 2 else c for n, c in enumerate(coefficients)], exact)


def _cosm1_near_zero(square: DoubleDouble, terms: int = 8, exact: int = 3) -> DoubleDouble:
    """cos(x) - 1 = -x^2/2! + x^4/4! - ...: keeps the digits that the 1 would swallow."""
    coefficients = [_inverse_factorial(2 * n + 2) for n in range(terms)]
    return square * _series(square, [c if n % 2 else -c for n, c in enumerate(coefficients)], exact)


@cache
def _sin_cos_nodes() -> tuple[DoubleDouble, DoubleDouble]:
    """sin(j/32) and cos(j/32) for j from 0 to 26."""
    x = DoubleDouble(np.arange(27) / _NODES, np.zeros(27))
    square = x * x
    return _sin_near_zero(x, square, 15, 12), _cosm1_near_zero(square, 15, 12) + 1.0


def _circular(x: Array) -> tuple[npt.NDArray[np.int64], DoubleDouble, DoubleDouble]:
    """Quadrant, sine and cosine of the rest, for 0 <= x <= 65504.

    The rest is exact to 2^-128, and no binary16 value is within 2^-21 of a multiple of pi/2.
    """
    k = np.rint(x * _TWO_OVER_PI)
    rest = DoubleDouble(x, np.zeros_like(x))
    for piece in _HALF_PI_PIECES:
        rest = rest - k * piece
    negative = rest.hi < 0
    rest = DoubleDouble.where(negative, -rest, rest)
    j = np.rint(rest.hi * _NODES)
    rest = rest - j / _NODES
    square = rest * rest
    s, c = _sin_near_zero(rest, square), _cosm1_near_zero(square)
    sin_node, cos_node = (node[j.astype(np.int64)] for node in _sin_cos_nodes())
    # sin(a + b) = sin a + (sin a (cos b - 1) + cos a sin b): the small part is added last.
    sine = sin_node + (sin_node * c + cos_node * s)
    cosine = cos_node + (cos_node * c - sin_node * s)
    return k.astype(np.int64) & 3, DoubleDouble.where(negative, -sine, sine), cosine


def sin(x: Array) -> DoubleDouble:
    """Sine of binary16 values at or above 0, in radians.

    >>> sin(np.array([1.0, 65504.0])).hi
    array([0.84147098, 0.97537611])
    """
    quadrant, sine, cosine = _circular(x)
    value = DoubleDouble.where((quadrant & 1) == 1, cosine, sine)
    return DoubleDouble.where(quadrant >= 2, -value, value)


def cos(x: Array) -> DoubleDouble:
    """Cosine of binary16 values at or above 0, in radians.

    >>> cos(np.array([0.0, 1.0])).hi
    array([1.        , 0.54030231])
    """
    quadrant, sine, cosine = _circular(x)
    value = DoubleDouble.where((quadrant & 1) == 1, sine, cosine)
    return DoubleDouble.where((quadrant == 1) | (quadrant == 2), -value, value)


def tan(x: Array) -> DoubleDouble:
    """Tangent of binary16 values above 0, in radians.

    >>> tan(np.array([1.0])).hi
    array([1.55740772])
    """
    quadrant, sine, cosine = _circular(x)
    odd = (quadrant & 1) == 1
    return DoubleDouble.where(odd, -cosine, sine) / DoubleDouble.where(odd, sine, cosine)


def _atan_over_x(square: DoubleDouble, terms: int = 9, exact: int = 3) -> DoubleDouble:
    coefficients = [_inverse(2 * n + 1) for n in range(terms)]
    return _series(square, [-c if n % 2 else c for n, c in enumerate(coefficients)], exact)


@cache
def _atan_nodes() -> DoubleDouble:
    """atan(j/32) for j from 0 to 32: atan(t) = 2 atan(t / (1 + sqrt(1 + t^2))), four times over."""
    x = DoubleDouble(np.arange(33) / _NODES, np.zeros(33))
    for _ in range(4):
        x = x / ((x * x + 1.0).sqrt() + 1.0)
    return (x * _atan_over_x(x * x, terms=14, exact=10)).scaled(16.0)


def atan(x: Array) -> DoubleDouble:
    """Arc tangent of binary16 values above 0.

    >>> atan(np.array([1.0])).hi
    array([0.78539816])
    """
    large = x > 1.0
    j = np.rint(np.where(large, 1.0 / x, x) * _NODES)
    c = j / _NODES
    # atan(t) - atan(c) = atan((t - c)/(1 + tc)) with t = x or 1/x; numerator and denominator are exact.
    z = DoubleDouble(np.where(large, 1.0 - c * x, x - c)) / np.where(large, x + c, 1.0 + c * x)
    value = _atan_nodes()[j.astype(np.int64)] + z * _atan_over_x(z * z)
    return DoubleDouble.where(large, HALF_PI - value, value)


# --- roots and quotients ------------------------------------------------------------------------------------


def sqrt(x: Array) -> DoubleDouble:
    """Square root of binary16 values above 0.

    >>> sqrt(np.array([2.0])).hi
    array([1.41421356])
    """
    return DoubleDouble(x, np.zeros_like(x)).sqrt()


def rsqrt(x: Array) -> DoubleDouble:
    """1/sqrt(x) of binary16 values above 0.

    >>> rsqrt(np.array([4.0])).hi
    array([0.5])
    """
    y = 1.0 / np.sqrt(x)
    # y (1 + r/2 + 3 r^2/8) with r = 1 - x y^2, about 2^-52: the next term is below 2^-157.
    r = (1.0 - DoubleDouble(*two_product(y, y)) * x).hi
    return DoubleDouble(*two_sum(y, y * (r * (0.5 + 0.375 * r))))


def reciprocal(x: Array) -> DoubleDouble:
    """1/x of binary16 values other than 0.

    >>> reciprocal(np.array([4.0])).hi
    array([0.25])
    """
    return DoubleDouble(np.ones_like(x), np.zeros_like(x)) / x


def cbrt(x: Array) -> DoubleDouble:
    """Cube root of binary16 values above 0.

    >>> cbrt(np.array([27.0])).hi
    array([3.])
    """
    k = -(-np.frexp(x)[1] // 3)
    m = x * power_of_two(-3 * k)  # in [1/8, 1)
    y = 0.47 + 0.55 * m
    for _ in range(6):  # Newton in float64: 2^-3, 2^-6, ... to the last bit
        y = y - (y * y * y - m) / (3.0 * y * y)
    residue = (m - DoubleDouble(*two_product(y, y)) * y).hi
    return DoubleDouble(*two_sum(y, residue / (3.0 * y * y))).scaled(power_of_two(k))
