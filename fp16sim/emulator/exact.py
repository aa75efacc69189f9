"""Exact values, and the one rounding that makes results of them. The ground `reference.py` stands on.

A :class:`Value` is what an encoding means: a rational number with a sign, an infinity, or a NaN. `decode`
reads one from an encoding without loss, `round_value` delivers one to a format. Slow, and meant to be read.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

from fp16sim.emulator.flags import INEXACT, INVALID, OVERFLOW, SUBNORMAL, UNDERFLOW
from fp16sim.emulator.formats import Format
from fp16sim.emulator.rounding import Rounding, round_fraction

__all__ = [
    "NEAREST",
    "Result",
    "Value",
    "convert",
    "convert_integer",
    "decode",
    "floor_log2",
    "nan_of",
    "operands",
    "power_of_two",
    "round_value",
    "to_integer",
]

NEAREST = Rounding()
"""The default rule: nearest even, gradual underflow, infinities, tininess after rounding."""


class Result(NamedTuple):
    """An encoding (or an integer, or a truth value) and the flags that came with it, as bits of `flags`."""

    bits: int
    flags: int


@dataclass(frozen=True)
class Value:
    """What an encoding means.

    Parameters
    ----------
    kind : {"finite", "infinity", "nan"}
    negative : bool
        The sign; zeros and infinities have one too, a NaN's means nothing.
    magnitude : Fraction
        Of a finite value: the exact magnitude, not negative.
    signalling : bool
        Of a NaN: whether an operation on it raises invalid.
    """

    kind: Literal["finite", "infinity", "nan"]
    negative: bool = False
    magnitude: Fraction = Fraction(0)
    signalling: bool = False

    @classmethod
    def of(cls, number: Fraction | int, negative_zero: bool = False) -> Value:
        """Make a finite value of a number; the sign of a zero has to be told.

        >>> Value.of(-3).negative, Value.of(0, negative_zero=True).negative
        (True, True)
        """
        return cls("finite", number < 0 or (number == 0 and negative_zero), abs(Fraction(number)))

    @property
    def number(self) -> Fraction:
        """The signed number that a finite value is."""
        return -self.magnitude if self.negative else self.magnitude

    @property
    def is_zero(self) -> bool:
        """Whether it is +0 or -0."""
        return self.kind == "finite" and self.magnitude == 0


def decode(bits: int, fmt: Format, inputs: str = "keep") -> Value:
    """Read an encoding exactly.

    An encoding beyond the largest finite value is infinity or a NaN; a NaN is signalling if the format has
    IEEE NaNs and the top bit of the trailing significand is clear. Subnormals are read as zeros of their sign
    where ``inputs`` is ``"zero"`` or the format has none.

    >>> from fp16sim.emulator.formats import binary16
    >>> decode(0x3555, binary16).magnitude, decode(0x8000, binary16).negative, decode(0x7E00, binary16).kind
    (Fraction(1365, 4096), True, 'nan')
    """
    bits = int(bits)  # a NumPy integer would wrap below
    if not 0 <= bits < 2**fmt.width:
        raise ValueError(f"bits={bits!r}: an encoding of {fmt.name} is an integer in [0, 2**{fmt.width})")
    negative = bits >= fmt.sign_bit
    code = bits % fmt.sign_bit
    if code == fmt.inf_bits:
        return Value("infinity", negative)
    field, trailing = divmod(code, 2**fmt.fraction_bits)
    if code > fmt.max_bits:
        quiet = fmt.nan == "all_ones" or trailing >> (fmt.fraction_bits - 1) == 1
        return Value("nan", negative, signalling=not quiet)
    if field == 0:
        significand = 0 if inputs == "zero" or not fmt.subnormals else trailing
    else:
        significand = trailing + 2**fmt.fraction_bits
    exponent = max(field, 1) - fmt.bias
    return Value("finite", negative, significand * power_of_two(exponent - fmt.fraction_bits))


def operands(bits: tuple[int, ...], fmt: Format, rounding: Rounding) -> list[Value]:
    """Read the operands of an operation, subnormal ones as zeros where the rule says so."""
    return [decode(b, fmt, rounding.inputs) for b in bits]


def nan_of(*values: Value) -> Value | None:
    """Give the NaN that an operation on these values returns, or None where none of them is one."""
    nans = [v for v in values if v.kind == "nan"]
    return Value("nan", signalling=any(v.signalling for v in nans)) if nans else None


def round_value(
    value: Value, fmt: Format, rounding: Rounding = NEAREST, random_bits: int | None = None
) -> Result:
    """Deliver an exact value to a format: one rounding, then what the rule says of its ends.

    Parameters
    ----------
    value : Value
        The exact result of an operation. Its magnitude may be any rational number.
    fmt : Format
        Where it goes.
    rounding : Rounding
        The mode; gradual underflow or flush; saturation; when a result is called tiny.
    random_bits : int, optional
        32 random bits for the mode ``"stochastic"``. An exact value, and one at or above ``2**(emax + 1)``,
        draws none.

    Returns
    -------
    Result
        Encoding and flags. Underflow: tiny and inexact. Subnormal: the encoding delivered is a subnormal.

    >>> from fp16sim.emulator.formats import binary16
    >>> round_value(Value.of(65519), binary16), round_value(Value.of(65520), binary16)
    (Result(bits=31743, flags=32), Result(bits=31744, flags=33))
    """
    sign = fmt.sign_bit if value.negative else 0
    if value.kind == "nan":
        return Result(fmt.nan_bits, INVALID if value.signalling else 0)
    if value.kind == "infinity":
        return _infinite(sign, fmt, rounding)
    if value.magnitude == 0:
        return Result(sign, 0)

    # First as if exponents had no end.
    exponent = floor_log2(value.magnitude)
    code, exact = _round_at(exponent, value, fmt, rounding, random_bits)
    if code > fmt.max_bits:
        return _overflowed(sign, fmt, rounding)
    if exponent >= fmt.emin:
        return Result(sign | code, 0 if exact else INEXACT)

    # `code` lies below 2^emin's, unless rounding carried it there: tininess after rounding. What is delivered
    # is rounded from the exact value again, with the same random bits, on the coarser grid of the subnormals.
    tiny = rounding.tininess == "before" or code < 2**fmt.fraction_bits
    if tiny and (rounding.subnormals == "flush" or not fmt.subnormals):
        return Result(sign, UNDERFLOW | INEXACT)
    code, exact = _round_at(fmt.emin, value, fmt, rounding, random_bits)
    flags = 0 if exact else INEXACT | (UNDERFLOW if tiny else 0)
    if 0 < code < 2**fmt.fraction_bits:
        flags |= SUBNORMAL
    return Result(sign | code, flags)


def _round_at(
    exponent: int, value: Value, fmt: Format, rounding: Rounding, random_bits: int | None
) -> tuple[int, bool]:
    """Round to `precision` bits at this exponent: (encoding of the magnitude, whether that was exact).

    The implicit bit of a significand adds the one that the exponent field lacks; a carry out of the
    significand goes on into the exponent. So encodings are ordered as values are, and overflow is an encoding
    above `max_bits`; an exponent below emin gives an encoding of no value, but the order still holds.
    """
    units = value.magnitude / power_of_two(exponent - fmt.fraction_bits)
    base = (exponent - fmt.emin) * 2**fmt.fraction_bits
    if rounding.mode == "stochastic" and base + units > fmt.max_bits:
        # Above the largest finite value the next grid point is 2^(emax+1), even where a NaN sits between.
        beyond = (fmt.max_bits // 2**fmt.fraction_bits + 1) * 2**fmt.fraction_bits
        steps = (base + units - fmt.max_bits) / (beyond - fmt.max_bits)
        up = steps >= 1 or round_fraction(steps, value.negative, "stochastic", random_bits) == 1
        return fmt.max_bits + up, False
    rounded = round_fraction(units, value.negative, rounding.mode, random_bits)
    return base + rounded, rounded == units


def _overflowed(sign: int, fmt: Format, rounding: Rounding) -> Result:
    """Deliver a finite value whose rounding lies beyond the largest finite value."""
    stays = {"toward_zero": True, "to_odd": True, "toward_positive": sign != 0, "toward_negative": sign == 0}
    if stays.get(rounding.mode, False):
        return Result(sign | fmt.max_bits, OVERFLOW | INEXACT)
    return Result(_infinite(sign, fmt, rounding).bits, OVERFLOW | INEXACT)


def _infinite(sign: int, fmt: Format, rounding: Rounding) -> Result:
    """Deliver an infinity: as it is, saturated, or as the NaN of a format that has none."""
    if rounding.saturate:
        return Result(sign | fmt.max_bits, OVERFLOW | INEXACT)
    if fmt.inf_bits is None:
        return Result(fmt.nan_bits, OVERFLOW | INEXACT)
    return Result(sign | fmt.inf_bits, 0)


def convert(
    bits: int, source: Format, target: Format, rounding: Rounding = NEAREST, random_bits: int | None = None
) -> Result:
    """Convert an encoding of one format to another, rounding once. ``inputs`` looks at the source.

    >>> from fp16sim.emulator.formats import binary16, binary32
    >>> hex(convert(0x33000001, binary32, binary16).bits)  # just above 2^-25, half the smallest subnormal
    '0x1'
    """
    return round_value(decode(bits, source, rounding.inputs), target, rounding, random_bits)


def convert_integer(
    n: int, target: Format, rounding: Rounding = NEAREST, random_bits: int | None = None
) -> Result:
    """Convert an integer of any size; 0 gives +0.

    >>> from fp16sim.emulator.formats import binary16
    >>> hex(convert_integer(2049, binary16).bits)
    '0x6800'
    """
    return round_value(Value.of(n), target, rounding, random_bits)


def to_integer(
    bits: int, fmt: Format, low: int, high: int, mode: str = "toward_zero", random_bits: int | None = None
) -> Result:
    """Convert to an integer in [low, high] (convertToIntegerExact).

    Returns
    -------
    Result
        ``bits`` is the integer itself. Invalid, and nothing else, is raised by a NaN, which gives 0 (or the
        integer of the range nearest to it), and by what rounds to an integer out of range, which gives the
        nearer end. Inexact where rounding changed the value.

    >>> from fp16sim.emulator.formats import binary16
    >>> to_integer(0xC500, binary16, -128, 127), to_integer(0x7BFF, binary16, -128, 127)
    (Result(bits=-5, flags=0), Result(bits=127, flags=8))
    """
    value = decode(bits, fmt)
    if value.kind == "nan":
        return Result(min(max(0, low), high), INVALID)
    if value.kind == "infinity":
        return Result(low if value.negative else high, INVALID)
    rounded = round_fraction(value.magnitude, value.negative, mode, random_bits)
    n = -rounded if value.negative else rounded
    if not low <= n <= high:
        return Result(low if n < low else high, INVALID)
    return Result(n, 0 if n == value.number else INEXACT)


def power_of_two(exponent: int) -> Fraction:
    """Return 2**exponent, exactly.

    >>> power_of_two(-24)
    Fraction(1, 16777216)
    """
    return Fraction(2**exponent) if exponent >= 0 else Fraction(1, 2**-exponent)


def floor_log2(magnitude: Fraction) -> int:
    """Return the exponent e of a positive number: 2^e <= magnitude < 2^(e+1).

    >>> floor_log2(Fraction(1, 3))
    -2
    """
    # The lengths of numerator and denominator tell it up to one.
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    return exponent if magnitude >= power_of_two(exponent) else exponent - 1
