"""Double-double arithmetic: a number as the unevaluated sum of two float64, about 104 bits.

Only float64 ``+ - * /`` and ``sqrt`` are used, unfused: IEEE 754 fixes every bit of them, so a computation
in double-double gives the same bits on every machine. Algorithms and error bounds are those of Joldes, Muller
and Popescu, "Tight and rigorous error bounds for basic building blocks of double-word arithmetic", ACM TOMS
44(2), 2017; u is 2^-53. Values stay clear of overflow and of float64's subnormals: about 1e-130 to 1e130.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["DoubleDouble", "two_product", "two_sum"]

Float64 = Any  # a Python float or a float64 array: the code is the same


def two_sum(a: Float64, b: Float64) -> tuple[Float64, Float64]:
    """Add two float64 without error: the rounded sum, and what rounding lost (Knuth).

    Parameters
    ----------
    a, b : float or float64 array

    Returns
    -------
    tuple
        ``(s, e)`` with ``s + e == a + b`` exactly and s the rounded sum.

    >>> two_sum(1.0, 2.0**-60) == (1.0, 2.0**-60)
    True
    """
    s = a + b
    b_part = s - a
    return s, (a - (s - b_part)) + (b - b_part)


def _fast_two_sum(a: Float64, b: Float64) -> tuple[Float64, Float64]:
    """The same in three operations where |a| >= |b| (Dekker)."""
    s = a + b
    return s, b - (s - a)


def _split(a: Float64) -> tuple[Float64, Float64]:
    """Cut a float64 into two halves of at most 26 bits (Veltkamp)."""
    c = 134217729.0 * a  # 2^27 + 1
    high = c - (c - a)
    return high, a - high


def two_product(a: Float64, b: Float64) -> tuple[Float64, Float64]:
    """Multiply two float64 without error: the rounded product, and what rounding lost (Dekker, no fma).

    Parameters
    ----------
    a, b : float or float64 array

    Returns
    -------
    tuple
        ``(p, e)`` with ``p + e == a * b`` exactly and p the rounded product.

    >>> two_product(1.0 + 2.0**-52, 1.0 + 2.0**-52) == (1.0 + 2.0**-51, 2.0**-104)
    True
    """
    p = a * b
    a_high, a_low = _split(a)
    b_high, b_low = _split(b)
    return p, ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low


class DoubleDouble:
    """An array (or scalar) of numbers ``hi + lo``, with ``hi`` the float64 nearest to the sum.

    Parameters
    ----------
    hi, lo : float or float64 array

    Notes
    -----
    The operators take another DoubleDouble, or float64, on either side. Relative errors: add and subtract
    3 u^2 + 13 u^3, with a float64 2 u^2; multiply 5 u^2, by a float64 3 u^2; divide 15 u^2 + 56 u^3; square
    root 25/8 u^2.

    Examples
    --------
    >>> third = DoubleDouble(1.0) / 3.0
    >>> third.hi, third.lo
    (0.3333333333333333, 1.850371707708594e-17)
    """

    __slots__ = ("hi", "lo")
    __array_ufunc__ = None  # an array on the left hands over to the operators below

    def __init__(self, hi: Float64, lo: Float64 = 0.0) -> None:
        self.hi = hi
        self.lo = lo

    def __neg__(self) -> DoubleDouble:
        return DoubleDouble(-self.hi, -self.lo)

    def __add__(self, other: DoubleDouble | Float64) -> DoubleDouble:
        if not isinstance(other, DoubleDouble):  # DWPlusFP
            s, e = two_sum(self.hi, other)
            return DoubleDouble(*_fast_two_sum(s, self.lo + e))
        s, e = two_sum(self.hi, other.hi)  # AccurateDWPlusDW
        t, f = two_sum(self.lo, other.lo)
        s, e = _fast_two_sum(s, e + t)
        return DoubleDouble(*_fast_two_sum(s, f + e))

    __radd__ = __add__

    def __sub__(self, other: DoubleDouble | Float64) -> DoubleDouble:
        negated: DoubleDouble | Float64 = -other
        return self.__add__(negated)

    def __rsub__(self, other: Float64) -> DoubleDouble:
        return (-self).__add__(other)

    def __mul__(self, other: DoubleDouble | Float64) -> DoubleDouble:
        if not isinstance(other, DoubleDouble):  # DWTimesFP2
            p, e = two_product(self.hi, other)
            return DoubleDouble(*_fast_two_sum(p, e + self.lo * other))
        p, e = two_product(self.hi, other.hi)  # DWTimesDW1
        return DoubleDouble(*_fast_two_sum(p, e + (self.hi * other.lo + self.lo * other.hi)))

    __rmul__ = __mul__

    def __truediv__(self, other: DoubleDouble | Float64) -> DoubleDouble:
        divisor = other.hi if isinstance(other, DoubleDouble) else other  # DWDivDW2
        q = self.hi / divisor
        back = other * q if isinstance(other, DoubleDouble) else DoubleDouble(*two_product(q, other))
        rest = (self.hi - back.hi) + (self.lo - back.lo)
        return DoubleDouble(*_fast_two_sum(q, rest / divisor))

    def __rtruediv__(self, other: Float64) -> DoubleDouble:
        return DoubleDouble(other) / self

    def sqrt(self) -> DoubleDouble:
        """Square root of positive numbers: one Newton step from the rounded root of ``hi`` (SQRTDWtoDW)."""
        root = np.sqrt(self.hi)
        p, e = two_product(root, root)
        return DoubleDouble(*_fast_two_sum(root, ((self.hi - p) - e + self.lo) / (2.0 * root)))

    def scaled(self, power_of_two: Float64) -> DoubleDouble:
        """The product with a power of two: exact."""
        return DoubleDouble(self.hi * power_of_two, self.lo * power_of_two)

    def __getitem__(self, index: Any) -> DoubleDouble:
        return DoubleDouble(self.hi[index], self.lo[index])

    @staticmethod
    def where(condition: npt.NDArray[np.bool_], first: DoubleDouble, second: DoubleDouble) -> DoubleDouble:
        """Choose element by element, as `numpy.where` does."""
        return DoubleDouble(
            np.where(condition, first.hi, second.hi), np.where(condition, first.lo, second.lo)
        )
