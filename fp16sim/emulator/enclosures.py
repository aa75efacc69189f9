"""Enclosures of real numbers: two Fractions with the number between them, and the series that give them.

An :class:`Enclosure` says "the number is at least ``low`` and at most ``high``". Arithmetic keeps that true, and after
each step widens the ends outward to ``bits`` significant bits so that the Fractions stay short. Asking for
more bits gives a narrower enclosure; `reference_functions` asks until both ends round the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import isqrt

from fp16sim.emulator.exact import floor_log2, power_of_two

__all__ = [
    "Enclosure",
    "arctangent",
    "cosine",
    "exponential",
    "logarithm",
    "odd_factorial_sum",
    "pi",
    "sine",
    "square_root",
]


@dataclass(frozen=True)
class Enclosure:
    """A number known to lie in [low, high], carried with ``bits`` significant bits.

    >>> third = Enclosure.of(1, 8) / 3
    >>> third.low, third.high
    (Fraction(85, 256), Fraction(171, 512))
    """

    low: Fraction
    high: Fraction
    bits: int

    @classmethod
    def of(cls, number: Fraction | int, bits: int) -> Enclosure:
        """Enclose a number that is known exactly."""
        return cls(Fraction(number), Fraction(number), bits)

    def _outward(self, low: Fraction, high: Fraction) -> Enclosure:
        return Enclosure(_shorten(low, self.bits, 0), _shorten(high, self.bits, 1), self.bits)

    def _other(self, other: Enclosure | Fraction | int) -> Enclosure:
        return other if isinstance(other, Enclosure) else Enclosure.of(other, self.bits)

    def __neg__(self) -> Enclosure:
        return Enclosure(-self.high, -self.low, self.bits)

    def __add__(self, other: Enclosure | Fraction | int) -> Enclosure:
        o = self._other(other)
        return self._outward(self.low + o.low, self.high + o.high)

    def __sub__(self, other: Enclosure | Fraction | int) -> Enclosure:
        o = self._other(other)
        return self._outward(self.low - o.high, self.high - o.low)

    def __mul__(self, other: Enclosure | Fraction | int) -> Enclosure:
        o = self._other(other)
        ends = [a * b for a in (self.low, self.high) for b in (o.low, o.high)]
        return self._outward(min(ends), max(ends))

    def __truediv__(self, other: Enclosure | Fraction | int) -> Enclosure:
        o = self._other(other)
        assert o.low > 0 or o.high < 0, "the divisor may be zero"
        ends = [a / b for a in (self.low, self.high) for b in (o.low, o.high)]
        return self._outward(min(ends), max(ends))

    def widened(self, by: Fraction) -> Enclosure:
        """The same with both ends moved outward: for what a series has left out."""
        return self._outward(self.low - by, self.high + by)

    def through(self, rising: Callable[[Fraction], Enclosure]) -> Enclosure:
        """The image under an increasing function that is itself known by enclosures."""
        return self._outward(rising(self.low).low, rising(self.high).high)


def _shorten(number: Fraction, bits: int, up: int) -> Fraction:
    """Round to ``bits`` significant bits, downward or (up = 1) upward."""
    if number == 0:
        return number
    unit = power_of_two(floor_log2(abs(number)) - bits + 1)
    scaled = number / unit
    floor = scaled.numerator // scaled.denominator
    return (floor + (up if floor != scaled else 0)) * unit


def exponential(x: Fraction, bits: int) -> Enclosure:
    """exp(x), |x| < 2^20, as exp(x / 2^k)^(2^k) with |x / 2^k| <= 1/16.

    The Taylor series up to y^n/n! leaves less than twice its next term when |y| <= 1/2. Each squaring doubles
    the relative width, so k more bits are carried.

    >>> e = exponential(Fraction(1), 30)
    >>> float(e.low) <= 2.718281828459 <= float(e.high)
    True
    """
    if x == 0:
        return Enclosure.of(1, bits)
    k = max(0, floor_log2(abs(x)) + 5)
    y = Enclosure.of(x / 2**k, bits + k + 8)
    total, term, n = Enclosure.of(1, y.bits), Enclosure.of(1, y.bits), 0
    while max(abs(term.low), abs(term.high)) >= power_of_two(-y.bits):
        n += 1
        term = term * y / n
        total = total + term
    total = total.widened(2 * max(abs(term.low), abs(term.high)))
    for _ in range(k):
        total = total * total
    return Enclosure(total.low, total.high, bits)


def _arctanh(z: Fraction, bits: int) -> Enclosure:
    """z + z^3/3 + z^5/5 + ... for |z| <= 1/3: the rest is below 9/8 of the first term left out."""
    power = Enclosure.of(z, bits)
    total, n = power, 1
    while z and abs(power.high) >= power_of_two(floor_log2(abs(z)) - bits):
        power = power * (z * z)
        n += 2
        total = total + power / n
    return total.widened(abs(power.high))


def logarithm(x: Fraction, bits: int) -> Enclosure:
    """log(x) for x > 0, as k log 2 + 2 artanh((m - 1)/(m + 1)) with x = m 2^k, m in [2/3, 4/3).

    >>> l = logarithm(Fraction(2), 30)
    >>> float(l.low) <= 0.69314718056 <= float(l.high)
    True
    """
    k = floor_log2(x * Fraction(3, 2))
    m = x / power_of_two(k)
    return Enclosure.of(k, bits) * _log2(bits) + _arctanh((m - 1) / (m + 1), bits) * 2


@cache
def _log2(bits: int) -> Enclosure:
    return _arctanh(Fraction(1, 3), bits) * 2


def _alternating(first: Enclosure, square: Fraction, n: int) -> Enclosure:
    """first (1 - x^2/((n+1)(n+2)) + ...), x^2 <= 1: the terms fall, so the rest is below the last one."""
    total = term = first
    size = max(abs(first.low), abs(first.high))
    while size and max(abs(term.low), abs(term.high)) >= size * power_of_two(-first.bits):
        term = -(term * square) / ((n + 1) * (n + 2))
        total = total + term
        n += 2
    return total.widened(max(abs(term.low), abs(term.high)))


def _quadrant(x: Fraction, bits: int) -> tuple[int, Enclosure]:
    """The integer k nearest to x / (pi/2), and x - k pi/2."""
    if abs(x) < Fraction(3, 4):
        return 0, Enclosure.of(x, bits)
    half_pi = pi(bits + floor_log2(abs(x)) + 8) / 2
    k = round(x / half_pi.low)
    rest = -(half_pi * k - x)
    return k, Enclosure(rest.low, rest.high, bits)


def _sine_near_zero(y: Fraction, bits: int) -> Enclosure:
    return _alternating(Enclosure.of(y, bits), y * y, 1)


def _cosine_near_zero(y: Fraction, bits: int) -> Enclosure:
    return _alternating(Enclosure.of(1, bits), y * y, 0)


def _turn(k: int, y: Enclosure) -> Enclosure:
    """sin(k pi/2 + y) for |y| < 1: the sine rises there, and the cosine falls on both sides of zero."""
    if k % 2 == 0:
        value = y.through(lambda end: _sine_near_zero(end, y.bits))
    else:
        near = min(abs(y.low), abs(y.high)) if y.low * y.high > 0 else Fraction(0)
        far = max(abs(y.low), abs(y.high))
        value = Enclosure(_cosine_near_zero(far, y.bits).low, _cosine_near_zero(near, y.bits).high, y.bits)
    return -value if k % 4 >= 2 else value


def sine(x: Fraction, bits: int) -> Enclosure:
    """sin(x): x is first brought to within pi/4 of a multiple of pi/2.

    >>> s = sine(Fraction(1), 30)
    >>> float(s.low) <= 0.8414709848 <= float(s.high)
    True
    """
    return _turn(*_quadrant(x, bits))


def cosine(x: Fraction, bits: int) -> Enclosure:
    """cos(x), which is sin(x + pi/2).

    >>> c = cosine(Fraction(1), 30)
    >>> float(c.low) <= 0.54030230586 <= float(c.high)
    True
    """
    k, y = _quadrant(x, bits)
    return _turn(k + 1, y)


def arctangent(x: Fraction, bits: int) -> Enclosure:
    """atan(x) by Euler's series, sum of 4^n n!^2/(2n+1)! x^(2n+1)/(1+x^2)^(n+1); atan(x) = pi/2 - atan(1/x) above 1.

    For |x| <= 1 each term is less than half of the one before, so the rest is below the last one.

    >>> a = arctangent(Fraction(1), 30)
    >>> float(a.low) <= 0.78539816339 <= float(a.high)
    True
    """
    if abs(x) > 1:
        half_pi = pi(bits) / 2
        return (half_pi if x > 0 else -half_pi) - arctangent(1 / x, bits)
    ratio = x * x / (1 + x * x)
    total = term = Enclosure.of(x / (1 + x * x), bits)
    n = 0
    while x and abs(term.high) >= abs(x) * power_of_two(-bits):
        n += 1
        term = term * ratio * Fraction(2 * n, 2 * n + 1)
        total = total + term
    return total.widened(max(abs(term.low), abs(term.high)))


@cache
def pi(bits: int) -> Enclosure:
    """pi = 16 atan(1/5) - 4 atan(1/239), by Machin.

    >>> float(pi(60).low)
    3.141592653589793
    """
    more = bits + 8
    value = arctangent(Fraction(1, 5), more) * 16 - arctangent(Fraction(1, 239), more) * 4
    return Enclosure(value.low, value.high, bits)


def odd_factorial_sum(w: Fraction, bits: int) -> Enclosure:
    """1 + w/3 + w^2/(3 5) + w^3/(3 5 7) + ... for w > 0; every term is positive.

    Once 2n + 3 >= 2w the terms at least halve, so the rest is below the last one.

    >>> s = odd_factorial_sum(Fraction(1), 30)
    >>> float(s.low) <= 1.4106861346 <= float(s.high)
    True
    """
    total = term = Enclosure.of(1, bits)
    odd = 1
    while odd < 2 * w or term.high >= power_of_two(-bits):
        odd += 2
        term = term * w / odd
        total = total + term
    return total.widened(term.high)


def square_root(x: Fraction | Enclosure, bits: int) -> Enclosure:
    """sqrt(x) for x > 0, by the integer square root.

    >>> r = square_root(Fraction(2), 30)
    >>> float(r.low) <= 1.41421356237 <= float(r.high)
    True
    """
    if isinstance(x, Enclosure):
        return x.through(lambda end: square_root(end, bits))
    g = bits - floor_log2(x) // 2
    scaled = x * power_of_two(2 * g)
    s = isqrt(scaled.numerator // scaled.denominator)
    return Enclosure(s * power_of_two(-g), (s + 1) * power_of_two(-g), bits)
