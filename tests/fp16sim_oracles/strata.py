"""Operands that go where rounding goes wrong: stratified, vectorised, the same on every machine.

Random bits come from PCG64's raw words alone (NumPy keeps the streams of its bit generators, not those of
its distributions); everything else is integer arithmetic or exact float64 arithmetic. `operands` gives equal
parts of each stratum of an operation, `strata` names them, and a test measures how many operands of each
reach the edge that it is named for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fp16sim_oracles.exact import FORMATS, FORMATS_OF_OPERANDS, Spec

Operands = tuple[Any, ...]


class Draw:
    """A stream of random integers."""

    def __init__(self, *seed: int) -> None:
        self.source = np.random.PCG64(list(seed))

    def words(self, count: int) -> Any:
        return self.source.random_raw(count)

    def below(self, limit: Any, count: int) -> Any:
        """Integers in [0, limit), limit at most 2^32; a bias of 2^-32 does not matter here."""
        high = self.words(count) >> np.uint64(32)
        return (high * np.asarray(limit, np.uint64) >> np.uint64(32)).astype(np.int64)

    def between(self, low: Any, high: Any, count: int) -> Any:
        """Integers in [low, high]."""
        return low + self.below(np.asarray(high) - low + 1, count)

    def bits32(self, count: int) -> Any:
        return (self.words(count) >> np.uint64(32)).astype(np.uint32)


class Grid:
    """Encodings of a format and their values, in NumPy."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.p = spec.precision
        self.emin = 2 - 2 ** (spec.exponent_bits - 1)
        self.sign = 1 << (spec.exponent_bits + spec.precision - 1)
        self.max = spec.max_code
        self.normal = 1 << (self.p - 1)  # the encoding of the smallest normal value

    def value(self, code: Any) -> Any:
        """Give the values of finite encodings."""
        magnitude = code & (self.sign - 1)
        field = magnitude >> (self.p - 1)
        m = (magnitude & (self.normal - 1)) + np.where(field > 0, self.normal, 0)
        value = np.ldexp(m.astype(np.float64), np.maximum(field, 1) + self.emin - self.p)
        return np.where(code & self.sign, -value, value)

    def truncate(self, value: Any) -> Any:
        """Give the encoding of the value toward zero, at most the largest finite one."""
        magnitude = np.minimum(np.abs(value), self.value(np.int64(self.max)))
        e = np.maximum(np.frexp(magnitude)[1] - 1, self.emin)
        # A carry-free packing: the implicit bit of a normal significand adds one to the exponent field.
        code = np.ldexp(magnitude, self.p - 1 - e).astype(np.int64)
        code += (e - self.emin).astype(np.int64) << (self.p - 1)
        code = np.where(magnitude == 0, 0, np.minimum(code, self.max))
        return code | np.where(np.signbit(value), self.sign, 0)

    def nudge(self, code: Any, steps: Any) -> Any:
        """Move a few encodings away from zero or toward it, staying finite."""
        magnitude = np.clip((code & (self.sign - 1)) + steps, 0, self.max)
        return magnitude | (code & self.sign)

    def signs(self, draw: Draw, n: int) -> Any:
        return draw.below(2, n) * self.sign

    def finite(self, draw: Draw, n: int, low: int = 0, high: int | None = None) -> Any:
        """Encodings of either sign with magnitudes in [low, high]."""
        return draw.between(low, self.max if high is None else high, n) | self.signs(draw, n)

    def at(self, draw: Draw, n: int, low: int, high: int) -> Any:
        """Values with exponents in [low, high], clipped to the format's, and any significand."""
        low, high = max(low, self.emin), min(high, self.spec.emax)
        low = min(low, high)
        e = draw.between(low, high, n)
        m = draw.below(self.normal, n)
        return np.minimum(((e - self.emin + 1) << (self.p - 1)) + m, self.max) | self.signs(draw, n)

    def specials(self, draw: Draw, n: int) -> Any:
        """Zeros, infinities, NaNs (signalling too), and the ends of the ranges."""
        quiet = 1 << (self.p - 2)
        top = (self.sign - 1) & ~(self.normal - 1)  # the all-ones exponent
        codes = [
            0,
            0,
            self.spec.inf_code,
            self.spec.inf_code,
            self.spec.nan,
            self.sign - 1,
            top | 1,
            top | (quiet - 1),
        ]
        codes += [1, self.normal - 1, self.normal, self.max, self.max - 1, top >> 1]
        return np.array(codes)[draw.below(len(codes), n)] | self.signs(draw, n)


def _random(op: str, g: Grid, draw: Draw, n: int) -> Operands:
    return tuple(draw.below(2 * g.sign, n) for _ in range(3))


def _special(op: str, g: Grid, draw: Draw, n: int) -> Operands:
    columns = [g.specials(draw, n) for _ in range(3)]
    columns[1] = np.where(draw.below(2, n), columns[1], draw.below(2 * g.sign, n))
    return tuple(columns)


def _subnormal(op: str, g: Grid, draw: Draw, n: int) -> Operands:
    """Subnormal operands."""
    small = [g.finite(draw, n, 0, g.normal + 2) for _ in range(3)]
    middle = g.at(draw, n, -g.p, g.p)
    if op in ("multiply", "divide", "fma"):
        return small[0], middle, small[2]
    return tuple(small)


def _tiny(op: str, g: Grid, draw: Draw, n: int) -> Operands:
    """Results around the smallest normal value and below."""
    e = draw.between(g.emin - g.p - 1, g.emin, n)
    target = np.ldexp((g.normal + draw.below(g.normal, n)).astype(np.float64), e - (g.p - 1))
    # Half of them just under the smallest normal value, where the two rules of tininess part.
    edge = np.ldexp(1.0 - np.ldexp(1.0 + draw.below(8, n), -g.p - 2), g.emin)
    target = np.where(draw.below(2, n), target, edge)
    half = (g.emin + g.p) // 2
    a = g.at(draw, n, half - 4, min(g.spec.emax, half + 8))
    b = g.truncate(target / np.abs(g.value(a))) | g.signs(draw, n)
    if op == "divide":
        b = g.at(draw, n, 0, g.spec.emax - 1)
        a = g.truncate(target * np.abs(g.value(b))) | g.signs(draw, n)
    if op in ("add", "subtract"):
        a = g.at(draw, n, g.emin, g.emin + 2)
        b = g.nudge(a, draw.between(-g.normal, g.normal, n))
        b ^= np.where(draw.below(8, n), g.sign if op == "add" else 0, 0)
    c = g.finite(draw, n, 0, 4)
    return a, g.nudge(b, draw.between(-1, 1, n)), c


def _product_of(bits: int, g: Grid, draw: Draw, n: int) -> Operands:
    """Odd x and y below 2^precision whose product has exactly this many bits (up to precision + 1)."""
    x = 2 * draw.between(1, max(1, (1 << (bits // 2)) // 2 - 1), n) + 1
    low, high = -(-(1 << (bits - 1)) // x), ((1 << bits) - 1) // x
    y = draw.between(low, high, n) | 1
    y = np.where(y > high, y - 2, y)
    return x, y


def _scaled(g: Grid, draw: Draw, m: Any, e: Any, n: int) -> Any:
    """Encode m * 2^e where that is a value of the format (else the nearest below), with a random sign."""
    return g.truncate(np.ldexp(m.astype(np.float64), e)) | g.signs(draw, n)


def _tie(op: str, g: Grid, draw: Draw, n: int) -> Operands:
    """Results half way between two values, normal and (in the last third) subnormal."""
    emin, emax, p = g.emin, g.spec.emax, g.p
    if op in ("add", "subtract"):
        # a + b in units of half an ulp of the sum: a is even, b odd and smaller by at least a bit.
        shift = draw.between(1, max(1, p - 2), n)
        small = draw.below(1 << 24, n) & ((1 << shift) - 1) | 1
        e = draw.between(emin - p + 1, emax - p - 1, n)
        a = _scaled(g, draw, 2 * (g.normal + draw.below(g.normal, n)), e, n)
        return a, _scaled(g, draw, small, e, n), np.zeros(n, np.int64)
    if op == "divide":
        # Only a subnormal quotient can be a tie: q odd, in units of half the smallest subnormal; b short.
        bits = draw.between(1, max(1, p // 2), n)
        b = draw.below(1 << 24, n) & ((1 << bits) - 1) | 1
        q = draw.below(1 << 24, n) & ((1 << np.maximum(p - bits, 1)) - 1) | 1
        e = draw.between(1, emax - p, n)
        a = _scaled(g, draw, q * b, emin - p + e, n)
        return a, _scaled(g, draw, b, e, n), np.zeros(n, np.int64)
    if op == "fma":
        # c has an even significand of 2^p half ulps and more; the odd product is small beside it.
        x, y = _product_of(max(2, p - 2), g, draw, n)
        e = draw.between(emin - p, emax - p - 1, n)
        split = draw.between(-2, 2, n) + e // 2
        c = _scaled(g, draw, 2 * (g.normal + draw.below(g.normal, n)), e, n)
        return _scaled(g, draw, x, split, n), _scaled(g, draw, y, e - split, n), c
    x, y = _product_of(p + 1, g, draw, n)
    e = draw.between(emin - p + 1, emax - p, n)
    # In the last third the product is shorter and its last bit is half the smallest subnormal.
    tail = np.arange(n) >= n - n // 3
    u, v = _product_of(max(2, p - 1), g, draw, n)
    x, y, e = np.where(tail, u, x), np.where(tail, v, y), np.where(tail, emin - p, e)
    split = draw.between(-2, 2, n) + e // 2
    return _scaled(g, draw, x, split, n), _scaled(g, draw, y, e - split, n), np.zeros(n, np.int64)


def _cancellation(op: str, g: Grid, draw: Draw, n: int) -> Operands:
    """Sums that leave a few units, or much less than their terms."""
    a = g.finite(draw, n, 1)
    steps = draw.between(-3, 3, n)
    if op in ("add", "subtract"):
        b = g.nudge(a, np.where(draw.below(2, n), steps, draw.between(-g.normal, g.normal, n)))
        return a, b ^ (g.sign if op == "add" else 0), np.zeros(n, np.int64)
    b = g.at(draw, n, -g.p - 2, g.p + 2)
    c = g.nudge(g.truncate(g.value(a) * g.value(b)), steps) ^ g.sign
    return a, b, c


def _overflow(op: str, g: Grid, draw: Draw, n: int) -> Operands:
    """Results around the largest finite value."""
    largest = float(g.value(np.int64(g.max)))
    emax, steps = g.spec.emax, draw.between(-2, 2, n)
    zero = np.zeros(n, np.int64)
    if op in ("add", "subtract"):
        # Half of the sums end within an ulp of the edge: a is near the end, b about half an ulp there.
        big = g.finite(draw, n, g.max - 3, g.max)
        small = g.at(draw, n, emax - g.p - 1, emax - g.p + 2)
        small = small & (g.sign - 1) | big & g.sign
        a = g.at(draw, n, emax - 1, emax)
        b = g.truncate(np.copysign(largest - np.abs(g.value(a)), g.value(a)))
        near = draw.below(2, n) == 1
        a, b = np.where(near, big, a), np.where(near, small, g.nudge(b, steps))
        return a, b ^ (g.sign if op == "subtract" else 0), zero
    if op == "divide":
        b = g.at(draw, n, g.emin, -1)
        a = g.truncate(largest * np.abs(g.value(b))) | g.signs(draw, n)
        return g.nudge(a, steps), b, zero
    a = g.at(draw, n, 0, emax)
    b = g.nudge(g.truncate(largest / np.abs(g.value(a))), steps) | g.signs(draw, n)
    product = g.value(a) * g.value(b)
    c = np.where(
        draw.below(2, n),
        g.at(draw, n, emax - g.p - 2, emax - g.p + 1),
        g.truncate(np.copysign(largest, product) - product),
    )
    return a, b, c


def _far(op: str, g: Grid, draw: Draw, n: int) -> Operands:
    """Terms so far apart that only a sticky bit, or the direction of a mode, sees the smaller."""
    a = g.at(draw, n, 0, g.spec.emax)
    a &= ~np.where(draw.below(2, n), g.normal - 1, 0)  # often a power of two, where the ulp below is halved
    small = g.finite(draw, n, 1, 2 * g.normal)
    if op == "fma":
        return g.at(draw, n, g.emin, -1), g.at(draw, n, g.emin // 2, 1), a
    return a, small, small


_ALL: dict[str, Callable[[str, Grid, Draw, int], Operands]] = {
    "random": _random,
    "special": _special,
    "subnormal": _subnormal,
    "tiny": _tiny,
    "tie": _tie,
    "cancellation": _cancellation,
    "overflow": _overflow,
    "far": _far,
}


def strata(op: str) -> tuple[str, ...]:
    """Name the strata of an operation of two or three operands."""
    without = {"multiply": ("cancellation", "far"), "divide": ("cancellation", "far")}
    return tuple(name for name in _ALL if name not in without.get(op, ()))


def stratum(name: str, op: str, fmt: str, count: int, seed: int) -> Operands:
    """Give three columns of encodings (the third unused but by fma), all of one stratum."""
    g = Grid(FORMATS[fmt])
    columns = _ALL[name](op, g, Draw(seed, list(_ALL).index(name)), count)
    return tuple(column.astype(FORMATS[fmt].dtype) for column in columns)


def operands(op: str, fmt: str, count: int, seed: int) -> Operands:
    """Give about ``count`` operands, the strata in equal parts."""
    names = strata(op)
    parts = [stratum(name, op, fmt, -(-count // len(names)), seed) for name in names]
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


def random_bits(count: int, seed: int) -> Any:
    """32 random bits for each result, with the ends 0 and 2^32 - 1 among them."""
    bits = Draw(seed, 99).bits32(count)
    bits[::97] = 0
    bits[1::97] = 0xFFFFFFFF
    return bits


def sources(fmt: str, source: str, count: int, seed: int) -> Any:
    """Give encodings of ``source`` (binary32 or binary64) whose conversion to ``fmt`` meets every edge.

    A third are values and midpoints of the format, as they are and with a little added or taken away (down to
    the last bit of the source); a third lie in and around the range of the format; a third are random bits.
    """
    g, draw = Grid(FORMATS[fmt]), Draw(seed, 100)
    wide = FORMATS_OF_OPERANDS[source]
    width = wide.exponent_bits + wide.precision
    n = -(-count // 3)
    word = np.uint64((1 << width) - 1)
    random = draw.words(n) & word
    e = draw.between(g.emin - g.p - 3, g.spec.emax + 3, n) + (2 ** (wide.exponent_bits - 1) - 1)
    e = np.clip(e, 0, 2**wide.exponent_bits - 2).astype(np.uint64)
    trailing = draw.words(n) & np.uint64((1 << (wide.precision - 1)) - 1)
    inside = (
        (draw.below(2, n).astype(np.uint64) << np.uint64(width - 1))
        | e << np.uint64(wide.precision - 1)
        | trailing
    )
    code = np.where(draw.below(4, n), draw.between(0, g.max, n), draw.between(g.max - 2, g.max, n))
    low, high = g.value(code), g.value(np.minimum(code + 1, g.max))
    value = np.where(draw.below(2, n), low, low + (high - low) / 2)
    value = np.where(code == g.max, low + np.ldexp(1.0, g.spec.emax - g.p) * draw.below(5, n), value)
    value = np.minimum(value, float(np.finfo(np.float32).max))
    exact = value.astype(np.float32).view(np.uint32) if source == "binary32" else value.view(np.uint64)
    exact = exact.astype(np.int64) + np.array([-2, -1, 0, 0, 0, 1, 2])[draw.below(7, n)]
    edge = np.maximum(exact, 0).astype(np.uint64) | draw.below(2, n).astype(np.uint64) << np.uint64(width - 1)
    return np.concatenate([random, inside, edge]).astype(np.uint32 if source == "binary32" else np.uint64)
