"""The definition of every operation, in Python integers and Fractions.

An operation reads encodings of one format, computes an exact value (a number, an infinity or a NaN), and has
it rounded once by `round_value`. Fast kernels equal these functions bit for bit and flag for flag. Nothing
here is fast; everything here is meant to be read. `exact.py` holds the values and their rounding,
`reference_order.py` what compares them; this module gathers all of it.

All operations share their last three arguments: ``fmt``, the format of operands and result; ``rounding``, the
rule (with ``inputs="zero"`` subnormal operands are read as zeros first); ``random_bits``, 32 bits for
stochastic rounding. All return a `Result`: encoding and flags. Unless a docstring says otherwise, a NaN
operand gives the canonical NaN of the format and raises invalid where it is signalling (IEEE 754-2019 clause
6.2).
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
    nan_of,
    operands,
    power_of_two,
    round_value,
    to_integer,
)
from fp16sim.emulator.flags import DIVIDE_BY_ZERO, INEXACT
from fp16sim.emulator.formats import Format
from fp16sim.emulator.reference_order import equal, less, less_equal, maximum, minimum, nextafter
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
    "exact_product",
    "exact_sum",
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


# Sums, products and quotients.


def exact_sum(x: Value, y: Value, mode: str = "nearest_even") -> Value:
    """Add two values exactly; the mode decides the sign of a zero. A sum without answer is a signalling NaN."""
    if nan := nan_of(x, y):
        return nan
    if x.kind == "infinity" or y.kind == "infinity":
        if x.kind == y.kind and x.negative != y.negative:
            return _INVALID
        return x if x.kind == "infinity" else y
    # Zeros of one sign add to a zero of it. Every other zero sum is +0, or -0 where the mode is
    # toward_negative.
    if x.is_zero and y.is_zero and x.negative == y.negative:
        return x
    return Value.of(x.number + y.number, negative_zero=mode == "toward_negative")


def exact_product(x: Value, y: Value) -> Value:
    """Multiply two values exactly. A product without answer is a signalling NaN."""
    if nan := nan_of(x, y):
        return nan
    negative = x.negative != y.negative
    if x.kind == "infinity" or y.kind == "infinity":
        return _INVALID if x.is_zero or y.is_zero else Value("infinity", negative)
    return Value("finite", negative, x.magnitude * y.magnitude)


def _over(x: Value, y: Value) -> tuple[Value, int]:
    if nan := nan_of(x, y):
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
    x, y = operands((a, b), fmt, rounding)
    return round_value(exact_sum(x, y, rounding.mode), fmt, rounding, random_bits)


def subtract(
    a: int, b: int, fmt: Format, rounding: Rounding = NEAREST, random_bits: int | None = None
) -> Result:
    """Return a - b, which is a + (-b).

    >>> from fp16sim.emulator.formats import binary16
    >>> hex(subtract(0x3C00, 0x3C00, binary16, Rounding("toward_negative")).bits)  # +0 in the other modes
    '0x8000'
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
    x, y = operands((a, b), fmt, rounding)
    return round_value(exact_product(x, y), fmt, rounding, random_bits)


def divide(
    a: int, b: int, fmt: Format, rounding: Rounding = NEAREST, random_bits: int | None = None
) -> Result:
    """Return a / b. A number over zero is an infinity with divide_by_zero; 0/0 and inf/inf are invalid.

    >>> from fp16sim.emulator.formats import binary16
    >>> divide(0x3C00, 0x4200, binary16), divide(0x3C00, 0x8000, binary16)
    (Result(bits=13653, flags=32), Result(bits=64512, flags=16))
    """
    x, y = operands((a, b), fmt, rounding)
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
    x, y, z = operands((a, b, c), fmt, rounding)
    return round_value(exact_sum(exact_product(x, y), z, rounding.mode), fmt, rounding, random_bits)


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
    (x,) = operands((a,), fmt, rounding)
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
    x, y = operands((a, b), fmt, rounding)
    if nan := nan_of(x, y):
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
    Otherwise the root lies strictly between two multiples of 2^-g, and so does their middle, which is given.
    All that a rounding asks (floor, comparison with a half, exactness, floor(fraction * 2^32)) changes only
    at multiples of 2^-32 ulp. The root has at least precision + 40 bits down to 2^-g, so these are multiples
    of 2^-g, and root and middle lie on the same side of each of them.
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
    (x,) = operands((a,), fmt, rounding)
    if nan := nan_of(x):
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
    (x,) = operands((a,), fmt, rounding)
    flags = 0
    if nan := nan_of(x):
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
    (x,) = operands((a,), fmt, rounding)
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
    (x,) = operands((a,), fmt, rounding)
    if x.kind == "finite":
        # The values of a format span fewer than 2**exponent_bits + precision powers of two. Scaled by more, they
        # all overflow; by 34 powers more, they all become a fraction below 2^-32 ulp. Nothing changes beyond.
        limit = 2**fmt.exponent_bits + fmt.precision + 34
        x = Value("finite", x.negative, x.magnitude * power_of_two(max(-limit, min(int(n), limit))))
    return round_value(x, fmt, rounding, random_bits)


def logb(a: int, fmt: Format, rounding: Rounding = NEAREST, random_bits: int | None = None) -> Result:
    """Return the exponent of a, that of a subnormal as if it were normal, rounded to the format.

    Zero gives -infinity with divide_by_zero, an infinity gives +infinity.

    >>> from fp16sim.emulator.formats import binary16
    >>> binary16.decode(logb(0x0001, binary16).bits)
    -24.0
    """
    (x,) = operands((a,), fmt, rounding)
    flags = 0
    if nan := nan_of(x):
        exact = nan
    elif x.kind == "infinity":
        exact = Value("infinity")
    elif x.is_zero:
        exact, flags = Value("infinity", negative=True), DIVIDE_BY_ZERO
    else:
        exact = Value.of(floor_log2(x.magnitude))
    result = round_value(exact, fmt, rounding, random_bits)
    return Result(result.bits, result.flags | flags)


OPERATIONS: dict[str, Callable[..., Result]] = {
    f.__name__: f
    for f in (
        add, subtract, multiply, divide, fma, square, reciprocal, ieee_remainder, sqrt, rsqrt, rint, ldexp,
        logb, nextafter, minimum, maximum, equal, less, less_equal,
    )
}  # fmt: skip
"""Every operation by its name."""

_UNARY = ("square", "reciprocal", "sqrt", "rsqrt", "rint", "logb")
ARITY = {name: 1 if name in _UNARY else 3 if name == "fma" else 2 for name in OPERATIONS}
"""How many operands each takes; the second of ldexp is an integer."""
