"""The definitions that put values in order: comparisons, minimum and maximum, the next value.

They read as those of `reference.py` do, which hands them on: encodings of one format, then ``fmt``,
``rounding`` and ``random_bits``, to a `Result`.
"""

from __future__ import annotations

from fractions import Fraction

from fp16sim.emulator.exact import NEAREST, Result, Value, decode, nan_of, operands, round_value
from fp16sim.emulator.flags import INVALID
from fp16sim.emulator.formats import Format
from fp16sim.emulator.rounding import Rounding

__all__ = ["equal", "less", "less_equal", "maximum", "minimum", "nextafter"]


def _compare(x: Value, y: Value) -> int:
    """Return -1, 0 or 1 as x is below, equal to or above y, neither being a NaN; zeros are equal."""

    def key(v: Value) -> tuple[int, Fraction]:
        return ((-1 if v.negative else 1) if v.kind == "infinity" else 0), v.number

    return (key(x) > key(y)) - (key(x) < key(y))


def nextafter(
    a: int, b: int, fmt: Format, rounding: Rounding = NEAREST, random_bits: int | None = None
) -> Result:
    """Return the neighbour of a in the direction of b, and b itself where they are equal.

    The neighbour of an infinity is the largest finite value, and the other way round. The mode plays no part.
    Raises nothing but invalid, on a signalling NaN (and what saturation raises when it replaces an infinity).
    Where subnormals are flushed, read as zeros, or missing, they are zeros here and are stepped over.

    >>> from fp16sim.emulator.formats import binary16
    >>> binary16.decode(nextafter(0x7C00, 0x0000, binary16).bits), nextafter(0x0000, 0x8000, binary16)
    (65504.0, Result(bits=32768, flags=0))
    """
    gradual = rounding.subnormals == "gradual" and rounding.inputs == "keep" and fmt.subnormals
    x, y = (decode(bits, fmt, "keep" if gradual else "zero") for bits in (a, b))
    if nan := nan_of(x, y):
        return round_value(nan, fmt, rounding)
    order = _compare(x, y)
    # Encodings are counted outward from zero: 0 is zero, 1 the smallest value, `past_max` infinity.
    skipped = 0 if gradual else 2**fmt.fraction_bits - 1
    past_max = fmt.max_bits + 1 - skipped

    def place(v: Value, bits: int) -> int:
        code = bits % fmt.sign_bit - skipped
        size = past_max if v.kind == "infinity" else 0 if v.is_zero else code
        return -size if v.negative else size

    if order == 0:
        target, negative = place(y, b), y.negative
    else:
        target = place(x, a) + (1 if order < 0 else -1)
        negative = target < 0 or (target == 0 and x.negative)
    if abs(target) == past_max:
        return round_value(Value("infinity", negative), fmt, rounding)
    size = abs(target) + skipped if target else 0
    return Result((fmt.sign_bit if negative else 0) | size, 0)


def minimum(
    a: int, b: int, fmt: Format, rounding: Rounding = NEAREST, random_bits: int | None = None
) -> Result:
    """Return the smaller operand (IEEE 754-2019 minimum: a NaN propagates, -0 is below +0).

    It is delivered as every result is: subject to flushing and saturation.

    >>> from fp16sim.emulator.formats import binary16
    >>> minimum(0x0000, 0x8000, binary16), minimum(0x3C00, 0x7E00, binary16)
    (Result(bits=32768, flags=0), Result(bits=32256, flags=0))
    """
    x, y = operands((a, b), fmt, rounding)
    order = _compare(x, y) or y.negative - x.negative
    return round_value(nan_of(x, y) or (x if order <= 0 else y), fmt, rounding, random_bits)


def maximum(
    a: int, b: int, fmt: Format, rounding: Rounding = NEAREST, random_bits: int | None = None
) -> Result:
    """Return the larger operand (IEEE 754-2019 maximum: a NaN propagates, +0 is above -0).

    It is delivered as every result is: subject to flushing and saturation.

    >>> from fp16sim.emulator.formats import binary16
    >>> maximum(0x0000, 0x8000, binary16)
    Result(bits=0, flags=0)
    """
    x, y = operands((a, b), fmt, rounding)
    order = _compare(x, y) or y.negative - x.negative
    return round_value(nan_of(x, y) or (x if order >= 0 else y), fmt, rounding, random_bits)


def _truth(x: Value, y: Value, orders: tuple[int, ...], quiet: bool) -> Result:
    """Say whether x compares with y in one of these ways; a NaN compares in none."""
    if nan := nan_of(x, y):
        return Result(0, INVALID if nan.signalling or not quiet else 0)
    return Result(int(_compare(x, y) in orders), 0)


def equal(
    a: int, b: int, fmt: Format, rounding: Rounding = NEAREST, random_bits: int | None = None
) -> Result:
    """Return 1 if a = b, else 0. Invalid on signalling NaNs only (compareQuietEqual).

    >>> from fp16sim.emulator.formats import binary16
    >>> equal(0x0000, 0x8000, binary16), equal(0x7E00, 0x7E00, binary16)
    (Result(bits=1, flags=0), Result(bits=0, flags=0))
    """
    x, y = operands((a, b), fmt, rounding)
    return _truth(x, y, (0,), quiet=True)


def less(a: int, b: int, fmt: Format, rounding: Rounding = NEAREST, random_bits: int | None = None) -> Result:
    """Return 1 if a < b, else 0. Invalid on every NaN (compareSignalingLess).

    >>> from fp16sim.emulator.formats import binary16
    >>> less(0x8000, 0x0000, binary16), less(0xFC00, 0x7E00, binary16)
    (Result(bits=0, flags=0), Result(bits=0, flags=8))
    """
    x, y = operands((a, b), fmt, rounding)
    return _truth(x, y, (-1,), quiet=False)


def less_equal(
    a: int, b: int, fmt: Format, rounding: Rounding = NEAREST, random_bits: int | None = None
) -> Result:
    """Return 1 if a <= b, else 0. Invalid on every NaN (compareSignalingLessEqual).

    >>> from fp16sim.emulator.formats import binary16
    >>> less_equal(0x8000, 0x0000, binary16)
    Result(bits=1, flags=0)
    """
    x, y = operands((a, b), fmt, rounding)
    return _truth(x, y, (-1, 0), quiet=False)
