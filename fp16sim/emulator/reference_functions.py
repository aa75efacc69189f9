"""The definition of the functions of one argument, for every format, in Python integers and Fractions.

A function's value is enclosed between two Fractions, with more and more bits, until both ends round to the same
encoding with the same flags: then so does the value, which lies between. That ends unless the value is one where
rounding changes (a value of the format, or the middle between two), so values that are rational are computed
exactly first; the others are irrational, by theorems, and never such a point.

`evaluate` is the definition that the tables are held to. It is slow and meant to be read.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from fp16sim.emulator import reference
from fp16sim.emulator.enclosures import (
    Enclosure,
    arctangent,
    cosine,
    exponential,
    logarithm,
    odd_factorial_sum,
    pi,
    sine,
    square_root,
)
from fp16sim.emulator.exact import NEAREST, Result, Value, decode, floor_log2, power_of_two, round_value
from fp16sim.emulator.flags import DIVIDE_BY_ZERO
from fp16sim.emulator.formats import Format, nearest_name
from fp16sim.emulator.rounding import Rounding

__all__ = ["NAMES", "evaluate"]

_TINY = power_of_two(-300)
"""Stands for any positive number below 2^-300. No format has a value below 2^-150 or more than 24 bits, and rounding
asks for at most 33 bits more: within this distance of a value of the format every number rounds the same way."""

_FAR = 210
"""exp(-210) is below 2^-300: beyond this argument exponentials are replaced by their limit and `_TINY`."""


# Each takes the argument x (a nonzero Fraction in the domain) and the bits to carry, and encloses the value.


def _exp(x: Fraction, bits: int) -> Enclosure:
    if abs(x) > _FAR:
        return Enclosure.of(_TINY if x < 0 else 1 / _TINY, bits)
    return exponential(x, bits)


def _exp2(x: Fraction, bits: int) -> Enclosure:
    if abs(x) > 300:
        return Enclosure.of(_TINY if x < 0 else 1 / _TINY, bits)
    exponent = logarithm(Fraction(2), bits + 16) * x
    return exponent.through(lambda end: exponential(end, bits))


def _expm1(x: Fraction, bits: int) -> Enclosure:
    return _exact_sum(_exp(x, bits), -1)


def _exact_sum(enclosure: Enclosure, number: Fraction | int) -> Enclosure:
    """Add without rounding the ends outward: a number far larger than the enclosed one would swallow it."""
    return Enclosure(enclosure.low + number, enclosure.high + number, enclosure.bits)


def _log2(x: Fraction, bits: int) -> Enclosure:
    return logarithm(x, bits) / logarithm(Fraction(2), bits)


def _log10(x: Fraction, bits: int) -> Enclosure:
    return logarithm(x, bits) / logarithm(Fraction(10), bits)


def _log1p(x: Fraction, bits: int) -> Enclosure:
    return logarithm(1 + x, bits)


def _tan(x: Fraction, bits: int) -> Enclosure:
    denominator = cosine(x, bits)
    if denominator.low <= 0 <= denominator.high:  # too few bits to tell its sign: any number is possible
        return Enclosure(-1 / _TINY, 1 / _TINY, bits)
    return sine(x, bits) / denominator


def _sinh(x: Fraction, bits: int) -> Enclosure:
    return (_exp(x, bits) - _exp(-x, bits)) / 2


def _cosh(x: Fraction, bits: int) -> Enclosure:
    return (_exp(x, bits) + _exp(-x, bits)) / 2


def _tanh(x: Fraction, bits: int) -> Enclosure:
    if abs(x) > _FAR:
        return Enclosure.of((1 - _TINY) * (1 if x > 0 else -1), bits)
    grown = exponential(2 * x, bits)
    return (grown - 1) / (grown + 1)


def _sigmoid(x: Fraction, bits: int) -> Enclosure:
    if abs(x) > _FAR:
        return Enclosure.of(_TINY if x < 0 else 1 - _TINY, bits)
    grown = exponential(x, bits)
    return grown / (grown + 1)


def _softplus(x: Fraction, bits: int) -> Enclosure:
    if abs(x) > _FAR:
        return Enclosure.of(max(x, Fraction(0)) + _TINY, bits)
    grown = exponential(x, bits)
    return _exact_sum(grown, 1).through(lambda end: logarithm(end, bits))


def _silu(x: Fraction, bits: int) -> Enclosure:
    return Enclosure.of(-_TINY, bits) if x < -_FAR else _sigmoid(x, bits) * x


def _erf(x: Fraction, bits: int) -> Enclosure:
    """2/sqrt(pi) exp(-x^2) (x + 2 x^3/3 + 4 x^5/(3 5) + ...)."""
    if x * x > _FAR:
        return Enclosure.of((1 - _TINY) * (1 if x > 0 else -1), bits)
    return (
        exponential(-x * x, bits) * odd_factorial_sum(2 * x * x, bits) * 2 * x / square_root(pi(bits), bits)
    )


def _gelu(x: Fraction, bits: int) -> Enclosure:
    """x Phi(x), Phi(x) = 1/2 + exp(-x^2/2)/sqrt(2 pi) (x + x^3/3 + x^5/(3 5) + ...)."""
    if x * x > 2 * _FAR + 20:
        return Enclosure.of(x * (1 - _TINY) if x > 0 else -_TINY, bits)
    odd_part = (
        exponential(-x * x / 2, bits) * odd_factorial_sum(x * x, bits) * x / square_root(pi(bits) * 2, bits)
    )
    return (odd_part + Fraction(1, 2)) * x


def _gelu_tanh(x: Fraction, bits: int) -> Enclosure:
    """x/2 (1 + tanh(z)) with z = sqrt(2/pi) (x + 0.044715 x^3), which is x sigmoid(2z)."""
    inner = x + Fraction(44715, 1000000) * x**3
    if abs(inner) > _FAR:
        return Enclosure.of(x * (1 - _TINY) if x > 0 else -_TINY, bits)
    twice_z = square_root(Enclosure.of(8, bits) / pi(bits), bits) * inner
    return twice_z.through(lambda end: _sigmoid(end, bits)) * x


def _cbrt(x: Fraction, bits: int) -> Enclosure:
    g = bits - floor_log2(abs(x)) // 3
    scaled = abs(x) * power_of_two(3 * g)
    root = _integer_cube_root(scaled.numerator // scaled.denominator)
    value = Enclosure(root * power_of_two(-g), (root + 1) * power_of_two(-g), bits)
    return value if x > 0 else -value


def _integer_cube_root(n: int) -> int:
    """The largest r with r^3 <= n, by Newton's iteration from above."""
    r = 1 << -(-n.bit_length() // 3)
    while True:
        better = (2 * r + n // (r * r)) // 3
        if better >= r:
            return r
        r = better


_ENCLOSE: dict[str, Callable[[Fraction, int], Enclosure]] = {
    "exp": _exp, "exp2": _exp2, "expm1": _expm1, "log": logarithm, "log2": _log2, "log10": _log10,
    "log1p": _log1p, "sin": sine, "cos": cosine, "tan": _tan, "atan": arctangent, "sinh": _sinh,
    "cosh": _cosh, "tanh": _tanh, "sigmoid": _sigmoid, "softplus": _softplus, "silu": _silu, "erf": _erf,
    "gelu": _gelu, "gelu_tanh": _gelu_tanh, "cbrt": _cbrt,
}  # fmt: skip

# What is exact.


def _exact_value(name: str, x: Fraction) -> Fraction | None:
    """The value where it is rational (x not 0), by the theorems of Lindemann and of Gelfond and Schneider."""
    if name == "log" and x == 1:
        return Fraction(0)
    if name == "exp2" and x.denominator == 1 and abs(x) <= 300:
        return power_of_two(int(x))
    if name == "log2" and x == power_of_two(floor_log2(x)):
        return Fraction(floor_log2(x))
    if name == "log10" and x in (powers := [Fraction(10) ** n for n in range(-50, 40)]):
        return Fraction(powers.index(x) - 50)
    if name == "cbrt":
        top, bottom = _integer_cube_root(abs(x.numerator)), _integer_cube_root(x.denominator)
        if (top**3, bottom**3) == (abs(x.numerator), x.denominator):
            return Fraction(top if x > 0 else -top, bottom)
    return None


# Zeros and infinities: values there, and None for "an operation without an answer".

_ODD = ("expm1", "log1p", "sin", "tan", "atan", "sinh", "tanh", "silu", "erf", "gelu", "gelu_tanh", "cbrt")
_AT_ZERO: dict[str, Fraction | int] = {"exp": 1, "exp2": 1, "cos": 1, "cosh": 1, "sigmoid": Fraction(1, 2)}
_AT_INFINITIES: dict[str, tuple[str, str]] = {
    "exp": ("inf", "0"), "exp2": ("inf", "0"), "expm1": ("inf", "-1"), "log": ("inf", "nan"),
    "log2": ("inf", "nan"), "log10": ("inf", "nan"), "log1p": ("inf", "nan"), "sin": ("nan", "nan"),
    "cos": ("nan", "nan"), "tan": ("nan", "nan"), "sinh": ("inf", "-inf"), "cosh": ("inf", "inf"),
    "tanh": ("1", "-1"), "sigmoid": ("1", "0"), "softplus": ("inf", "0"), "silu": ("inf", "-0"),
    "erf": ("1", "-1"), "gelu": ("inf", "-0"), "gelu_tanh": ("inf", "-0"), "cbrt": ("inf", "-inf"),
}  # fmt: skip
_LOWEST = {"log": 0, "log2": 0, "log10": 0, "log1p": -1}
"""Below it, no answer; at it, a pole: -infinity, and divide_by_zero."""

_INVALID = Value("nan", signalling=True)

NAMES = (*(name for name in reference.ARITY if reference.ARITY[name] == 1), *_ENCLOSE)
"""The functions of one argument that have a definition, here or (those that are rational) in `reference`."""


def _named(value: str) -> Value:
    negative = value.startswith("-")
    kind = value.removeprefix("-")
    if kind == "nan":
        return _INVALID
    return Value("infinity", negative) if kind == "inf" else Value("finite", negative, Fraction(kind))


def _special(name: str, x: Value) -> tuple[Value | None, int]:
    """The value where no series is needed, and its flags; None where one is."""
    if x.kind == "nan":
        return x, 0
    if x.kind == "infinity":
        return (_named(_AT_INFINITIES[name][x.negative]) if name in _AT_INFINITIES else None), 0
    if name in _LOWEST and x.number <= _LOWEST[name]:
        return (
            (Value("infinity", negative=True), DIVIDE_BY_ZERO) if x.number == _LOWEST[name] else (_INVALID, 0)
        )
    if x.is_zero:
        if name in _ODD:
            return x, 0
        return (Value.of(_AT_ZERO[name]) if name in _AT_ZERO else None), 0
    exact = _exact_value(name, x.number)
    return (None if exact is None else Value.of(exact)), 0


def evaluate(
    name: str, bits: int, fmt: Format, rounding: Rounding = NEAREST, random_bits: int | None = None
) -> Result:
    """Give a function of one argument, correctly rounded, with its flags.

    Parameters
    ----------
    name : str
        One of `NAMES`.
    bits : int
        Encoding of the argument in ``fmt``.
    fmt : Format
        The format of argument and result.
    rounding : Rounding
        The rule; with ``inputs="zero"`` a subnormal argument is read as a zero of its sign.
    random_bits : int, optional
        32 random bits, for the mode ``"stochastic"``.

    Returns
    -------
    Result
        Encoding and flags.

    Notes
    -----
    gelu, gelu_tanh and silu at -infinity are at their limit, -0. softplus of a zero is log 2.

    Examples
    --------
    >>> from fp16sim.emulator.formats import binary16
    >>> hex(evaluate("exp", 0x1F79, binary16).bits), hex(evaluate("sin", 0x5CB0, binary16).bits)
    ('0x3c07', '0xbbff')
    """
    if name not in NAMES:
        raise ValueError(f"unknown function {name!r}: {nearest_name(name, NAMES)}")
    if name not in _ENCLOSE:
        return reference.OPERATIONS[name](bits, fmt, rounding, random_bits)
    x = decode(bits, fmt, rounding.inputs)
    special, flags = _special(name, x)
    if special is not None:
        result = round_value(special, fmt, rounding, random_bits)
        return Result(result.bits, result.flags | flags)
    precision = 64
    while True:
        if x.kind == "infinity":  # atan
            value = pi(precision) / (-2 if x.negative else 2)
        else:
            value = _ENCLOSE[name](x.number, precision)
        low, high = (
            round_value(Value.of(end), fmt, rounding, random_bits) for end in (value.low, value.high)
        )
        if low == high:
            return low
        precision *= 2
