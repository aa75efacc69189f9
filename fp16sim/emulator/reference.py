"""The definition of every operation, in Python integers and Fractions.

An operation reads encodings of one format, computes an exact value (a number, an infinity or a NaN), and has it
rounded once by `round_value`. Fast kernels equal these functions bit for bit and flag for flag. Nothing here is
fast; everything here is meant to be read.

All operations share their last three arguments: ``fmt``, the format of operands and result; ``rounding``, the
rule (with ``inputs="zero"`` subnormal operands are read as zeros first); ``random_bits``, 32 bits for stochastic
rounding. All return a `Result`: encoding and flags. Unless a docstring says otherwise, a NaN operand gives the
canonical NaN of the format and raises invalid where it is signalling (IEEE 754-2019 clause 6.2).
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import isqrt

from fp16sim.emulator.exact import (
    NEAREST,
    Result,
    Value,
    convert,
    convert_integer,
    decode,
    floor_log2,
    power_of_two,
    round_value,
    to_integer,
)
from fp16sim.emulator.flags import DIVIDE_BY_ZERO, INEXACT, INVALID
from fp16sim.emulator.formats import Format
from fp16sim.emulator.rounding import Rounding, round_fraction

__all__ = [
    "ARITY",
    "NEAREST",
    "OPERATIONS",
    "Result",
    "Value",
    "add",
    "convert",
    "convert_integer",
    "decode",
    "divide",
    "equal",
    "fma",
    "ieee_remainder",
    "ldexp",
    "less",
    "less_equal",
    "logb",
    "maximum",
    "minimum",
    "multiply",
    "nextafter",
    "reciprocal",
    "rint",
    "round_value",
    "rsqrt",
    "sqrt",
    "square",
    "subtract",
    "to_integer",
]

_INVALID = Value("nan", signalling=True)
"""What an operation without an answer gives: a NaN, delivered with the invalid flag."""


def _operands(bits: tuple[int, ...], fmt: Format, rounding: Rounding) -> list[Value]:
    return [decode(b, fmt, rounding.inputs) for b in bits]


def _nan_of(*values: Value) -> Value | None:
    """Give the NaN that an operation on these values returns, or None where none of them is one."""
    nans = [v for v in values if v.kind == "nan"]
    return Value("nan", signalling=any(v.signalling for v in nans)) if nans else None


# Sums, products and quotients.


def _plus(x: Value, y: Value, mode: str) -> Value:
    if nan := _nan_of(x, y):
        return nan
    if x.kind == "infinity" or y.kind == "infinity":
        if x.kind == y.kind and x.negative != y.negative:
            return _INVALID
        return x if x.kind == "infinity" else y
    # Zeros of one sign add to a zero of it. Every other zero sum is +0, and -0 where the mode is toward_negative.
    if x.is_zero and y.is_zero and x.negative == y.negative:
        return x
    return Value.of(x.number + y.number, negative_zero=mode == "toward_negative")


def _times(x: Value, y: Value) -> Value:
    if nan := _nan_of(x, y):
        return nan
    negative = x.negative != y.negative
    if x.kind == "infinity" or y.kind == "infinity":
        return _INVALID if x.is_zero or y.is_zero else Value("infinity", negative)
    return Value("finite", negative, x.magnitude * y.magnitude)


def _over(x: Value, y: Value) -> tuple[Value, int]:
    if nan := _nan_of(x, y):
        return nan, 0
    negative = x.negative != y.negative
    if x.kind == "infinity":
        return (_INVALID if y.kind == "infinity" else Value("infinity", negative)), 0
    if y.kind == "infinity":
        return Value("finite", negative), 0
    if y.is_zero:
        return (_INVALID, 0) if x.is_zero else (Value("infinity", negative), DIVIDE_BY_ZERO)
    return Value("finite", negative, x.magnitude / y.magnitude), 0


def add(a: int, b: int, fmt: Format, rounding: Rounding = NEAREST, random_bits: int | None = None) -> Result:
    """Return a + b. A sum of infinities of opposite signs is invalid.

    >>> from fp16sim.emulator.formats import binary16
    >>> add(0x3C00, 0x0001, binary16)  # 1 + 2^-24 is 1, inexact
    Result(bits=15360, flags=32)
    """
    x, y = _operands((a, b), fmt, rounding)
    return round_value(_plus(x, y, rounding.mode), fmt, rounding, random_bits)


def subtract(
    a: int, b: int, fmt: Format, rounding: Rounding = NEAREST, random_bits: int | None = None
) -> Result:
    """Return a - b, which is a + (-b).

    >>> from fp16sim.emulator.formats import binary16
    >>> [hex(subtract(0x3C00, 0x3C00, binary16, Rounding(mode)).bits) for mode in ("to_odd", "toward_negative")]
    ['0x0', '0x8000']
    """
    return add(a, b ^ fmt.sign_bit, fmt, rounding, random_bits)


def multiply(
    a: int, b: int, fmt: Format, rounding: Rounding = NEAREST, random_bits: int | None = None
) -> Result:
    """Return a * b. Zero times infinity is invalid.

    >>> from fp16sim.emulator.formats import binary16
    >>> multiply(0x7BFF, 0x4000, binary16)  # 65504 * 2 is infinity: overflow and inexact
    Result(bits=31744, flags=33)
    """
    x, y = _operands((a, b), fmt, rounding)
    return round_value(_times(x, y), fmt, rounding, random_bits)


def divide(
    a: int, b: int, fmt: Format, rounding: Rounding = NEAREST, random_bits: int | None = None
) -> Result:
    """Return a / b. A finite number over zero is an infinity with divide_by_zero; 0/0 and inf/inf are invalid.

    >>> from fp16sim.emulator.formats import binary16
    >>> divide(0x3C00, 0x4200, binary16), divide(0x3C00, 0x8000, binary16)
    (Result(bits=13653, flags=32), Result(bits=64512, flags=16))
    """
    x, y = _operands((a, b), fmt, rounding)
    exact, flags = _over(x, y)
    result = round_value(exact, fmt, rounding, random_bits)
    return Result(result.bits, result.flags | flags)


def fma(
    a: int, b: int, c: int, fmt: Format, rounding: Rounding = NEAREST, random_bits: int | None = None
) -> Result:
    """Return a * b + c, rounded once. Zero times infinity is invalid even where c is a quiet NaN.

    >>> from fp16sim.emulator.formats import binary16
    >>> hex(fma(0x520B, 0x00E9, 0x2FF6, binary16).bits)  # through float32, twice rounded, it would be 0x3000
    '0x3001'
    """
    x, y, z = _operands((a, b, c), fmt, rounding)
    return round_value(_plus(_times(x, y), z, rounding.mode), fmt, rounding, random_bits)


def square(a: int, fmt: Format, rounding: Rounding = NEAREST, random_bits: int | None = None) -> Result:
    """Return a * a.

    >>> from fp16sim.emulator.formats import binary16
    >>> hex(square(0xC200, binary16).bits)
    '0x4880'
    """
    return multiply(a, a, fmt, rounding, random_bits)


def reciprocal(a: int, fmt: Format, rounding: Rounding = NEAREST, random_bits: int | None = None) -> Result:
    """Return 1 / a; the 1 is exact even in a format that does not hold it.

    >>> from fp16sim.emulator.formats import binary16
    >>> reciprocal(0x0001, binary16)  # of 2^-24: overflow
    Result(bits=31744, flags=33)
    """
    (x,) = _operands((a,), fmt, rounding)
    exact, flags = _over(Value.of(1), x)
    result = round_value(exact, fmt, rounding, random_bits)
    return Result(result.bits, result.flags | flags)


def ieee_remainder(
    a: int, b: int, fmt: Format, rounding: Rounding = NEAREST, random_bits: int | None = None
) -> Result:
    """Return a - b * n, n the integer nearest to a / b, ties to even (IEEE 754-2019 clause 5.3.1).

    Exact in every mode; a zero has the sign of a. An infinite a and a zero b are invalid.

    >>> from fp16sim.emulator.formats import binary16
    >>> binary16.decode(ieee_remainder(0x4500, 0x4200, binary16).bits)  # 5 - 3 * 2
    -1.0
    """
    x, y = _operands((a, b), fmt, rounding)
    if nan := _nan_of(x, y):
        exact = nan
    elif x.kind == "infinity" or y.is_zero:
        exact = _INVALID
    elif y.kind == "infinity":
        exact = x
    else:
        # Python's round() takes a Fraction to the nearest integer, ties to even.
        exact = Value.of(x.number - y.number * round(x.number / y.number), negative_zero=x.negative)
    return round_value(exact, fmt, rounding, random_bits)


# Roots.


def _root(square: Fraction, precision: int) -> Fraction:
    """Give a number that every rounding to `precision` bits treats as it treats the square root.

    With s = isqrt(square * 4^g) the root lies in [s, s + 1) * 2^-g. If s * 2^-g is the root, it is given.
    Otherwise the root lies strictly between two multiples of 2^-g, and so does their middle, which is given. All
    that a rounding asks (floor, comparison with a half, exactness, floor(fraction * 2^32)) changes only at
    multiples of 2^-32 ulp; s has at least precision + 40 bits, so these are multiples of 2^-g, and both numbers
    lie on the same side of each of them.
    """
    g = precision + 40 - floor_log2(square) // 2
    scaled = square * power_of_two(2 * g)
    s = isqrt(scaled.numerator // scaled.denominator)
    return (s if s * s == scaled else s + Fraction(1, 2)) * power_of_two(-g)


def sqrt(a: int, fmt: Format, rounding: Rounding = NEAREST, random_bits: int | None = None) -> Result:
    """Return the square root. That of -0 is -0; that of another negative number is invalid.

    >>> from fp16sim.emulator.formats import binary16
    >>> sqrt(0x4000, binary16), sqrt(0x4400, binary16)  # of 2 and of 4
    (Result(bits=15784, flags=32), Result(bits=16384, flags=0))
    """
    (x,) = _operands((a,), fmt, rounding)
    if nan := _nan_of(x):
        exact = nan
    elif x.is_zero:
        exact = x
    elif x.negative:
        exact = _INVALID
    else:
        exact = x if x.kind == "infinity" else Value.of(_root(x.magnitude, fmt.precision))
    return round_value(exact, fmt, rounding, random_bits)


def rsqrt(a: int, fmt: Format, rounding: Rounding = NEAREST, random_bits: int | None = None) -> Result:
    """Return 1 / sqrt(a), rounded once.

    A zero gives an infinity of its sign with divide_by_zero (IEEE 754-2019 clause 9.2.1), infinity gives +0,
    a negative number is invalid.

    >>> from fp16sim.emulator.formats import binary16
    >>> rsqrt(0x4400, binary16), rsqrt(0x8000, binary16)
    (Result(bits=14336, flags=0), Result(bits=64512, flags=16))
    """
    (x,) = _operands((a,), fmt, rounding)
    flags = 0
    if nan := _nan_of(x):
        exact = nan
    elif x.is_zero:
        exact, flags = Value("infinity", x.negative), DIVIDE_BY_ZERO
    elif x.negative:
        exact = _INVALID
    else:
        exact = Value.of(0 if x.kind == "infinity" else _root(1 / x.magnitude, fmt.precision))
    result = round_value(exact, fmt, rounding, random_bits)
    return Result(result.bits, result.flags | flags)


# Integers and exponents.


def rint(a: int, fmt: Format, rounding: Rounding = NEAREST, random_bits: int | None = None) -> Result:
    """Round to an integral value in the rule's mode, raising inexact (roundToIntegralExact). Keeps the sign.

    >>> from fp16sim.emulator.formats import binary16
    >>> rint(0x4100, binary16), rint(0xB000, binary16)  # 2.5 to 2, -0.125 to -0
    (Result(bits=16384, flags=32), Result(bits=32768, flags=32))
    """
    (x,) = _operands((a,), fmt, rounding)
    if x.kind != "finite":
        return round_value(x, fmt, rounding)
    n = round_fraction(x.magnitude, x.negative, rounding.mode, random_bits)
    # A format whose largest value is below 1 can overflow here, so the integer is delivered as a result is.
    result = round_value(Value("finite", x.negative, Fraction(n)), fmt, rounding, random_bits)
    return Result(result.bits, result.flags | (0 if n == x.magnitude else INEXACT))


def ldexp(
    a: int, n: int, fmt: Format, rounding: Rounding = NEAREST, random_bits: int | None = None
) -> Result:
    """Return a * 2^n, rounded once; n is an integer, not an encoding (scaleB).

    >>> from fp16sim.emulator.formats import binary16
    >>> ldexp(0x3C00, -24, binary16)  # subnormal, exact
    Result(bits=1, flags=4)
    """
    (x,) = _operands((a,), fmt, rounding)
    if x.kind == "finite":
        # Beyond this range every result overflows, or is tiny with a fraction below 2^-32: nothing changes.
        limit = 8 * 2**fmt.exponent_bits + 2 * fmt.precision + 32
        x = Value("finite", x.negative, x.magnitude * power_of_two(max(-limit, min(int(n), limit))))
    return round_value(x, fmt, rounding, random_bits)


def logb(a: int, fmt: Format, rounding: Rounding = NEAREST, random_bits: int | None = None) -> Result:
    """Return the exponent of a, that of a subnormal as if it were normal, rounded to the format.

    Zero gives -infinity with divide_by_zero, an infinity gives +infinity.

    >>> from fp16sim.emulator.formats import binary16
    >>> binary16.decode(logb(0x0001, binary16).bits)
    -24.0
    """
    (x,) = _operands((a,), fmt, rounding)
    flags = 0
    if nan := _nan_of(x):
        exact = nan
    elif x.kind == "infinity":
        exact = Value("infinity")
    elif x.is_zero:
        exact, flags = Value("infinity", negative=True), DIVIDE_BY_ZERO
    else:
        exact = Value.of(floor_log2(x.magnitude))
    result = round_value(exact, fmt, rounding, random_bits)
    return Result(result.bits, result.flags | flags)


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
    if nan := _nan_of(x, y):
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


# Order.


def _compare(x: Value, y: Value) -> int:
    """Return -1, 0 or 1 as x is below, equal to or above y, neither being a NaN; zeros are equal."""

    def key(v: Value) -> tuple[int, Fraction]:
        return ((-1 if v.negative else 1) if v.kind == "infinity" else 0), v.number

    return (key(x) > key(y)) - (key(x) < key(y))


def minimum(
    a: int, b: int, fmt: Format, rounding: Rounding = NEAREST, random_bits: int | None = None
) -> Result:
    """Return the smaller operand (IEEE 754-2019 minimum: a NaN propagates, -0 is below +0).

    It is delivered as every result is: subject to flushing and saturation.

    >>> from fp16sim.emulator.formats import binary16
    >>> minimum(0x0000, 0x8000, binary16), minimum(0x3C00, 0x7E00, binary16)
    (Result(bits=32768, flags=0), Result(bits=32256, flags=0))
    """
    x, y = _operands((a, b), fmt, rounding)
    order = _compare(x, y) or y.negative - x.negative
    return round_value(_nan_of(x, y) or (x if order <= 0 else y), fmt, rounding, random_bits)


def maximum(
    a: int, b: int, fmt: Format, rounding: Rounding = NEAREST, random_bits: int | None = None
) -> Result:
    """Return the larger operand (IEEE 754-2019 maximum: a NaN propagates, +0 is above -0).

    It is delivered as every result is: subject to flushing and saturation.

    >>> from fp16sim.emulator.formats import binary16
    >>> maximum(0x0000, 0x8000, binary16)
    Result(bits=0, flags=0)
    """
    x, y = _operands((a, b), fmt, rounding)
    order = _compare(x, y) or y.negative - x.negative
    return round_value(_nan_of(x, y) or (x if order >= 0 else y), fmt, rounding, random_bits)


def _truth(x: Value, y: Value, orders: tuple[int, ...], quiet: bool) -> Result:
    """Say whether x compares with y in one of these ways; a NaN compares in none."""
    if nan := _nan_of(x, y):
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
    x, y = _operands((a, b), fmt, rounding)
    return _truth(x, y, (0,), quiet=True)


def less(a: int, b: int, fmt: Format, rounding: Rounding = NEAREST, random_bits: int | None = None) -> Result:
    """Return 1 if a < b, else 0. Invalid on every NaN (compareSignalingLess).

    >>> from fp16sim.emulator.formats import binary16
    >>> less(0x8000, 0x0000, binary16), less(0xFC00, 0x7E00, binary16)
    (Result(bits=0, flags=0), Result(bits=0, flags=8))
    """
    x, y = _operands((a, b), fmt, rounding)
    return _truth(x, y, (-1,), quiet=False)


def less_equal(
    a: int, b: int, fmt: Format, rounding: Rounding = NEAREST, random_bits: int | None = None
) -> Result:
    """Return 1 if a <= b, else 0. Invalid on every NaN (compareSignalingLessEqual).

    >>> from fp16sim.emulator.formats import binary16
    >>> less_equal(0x8000, 0x0000, binary16)
    Result(bits=1, flags=0)
    """
    x, y = _operands((a, b), fmt, rounding)
    return _truth(x, y, (-1, 0), quiet=False)


OPERATIONS: dict[str, Callable[..., Result]] = {
    f.__name__: f
    for f in (
        add, subtract, multiply, divide, fma, square, reciprocal, ieee_remainder, sqrt, rsqrt, rint, ldexp, logb,
        nextafter, minimum, maximum, equal, less, less_equal,
    )
}  # fmt: skip
"""Every operation by its name."""

_UNARY = ("square", "reciprocal", "sqrt", "rsqrt", "rint", "logb")
ARITY = {name: 1 if name in _UNARY else 3 if name == "fma" else 2 for name in OPERATIONS}
"""How many operands each takes; the second of ldexp is an integer."""
