"""The definition of what a tensor core does with one block of products, in Python integers and Fractions.

The model is that of MMA-Sim (arXiv 2511.10909) and of Khattak and Mikaitis (arXiv 2512.07004); `Datapath` holds
what differs between cards. Its strangest property is that a product aligns by the sum of its factors' exponents,
so that 1.5 * 1.5 = 2.25 * 2^0, not 1.125 * 2^1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fp16sim.emulator.datapath import Datapath
from fp16sim.emulator.exact import Result, Value, decode, floor_log2, nan_of, power_of_two, round_value
from fp16sim.emulator.flags import INEXACT, OVERFLOW, SUBNORMAL, UNDERFLOW
from fp16sim.emulator.formats import Format
from fp16sim.emulator.rounding import Rounding

__all__ = ["Block", "Factor", "Term", "add_block", "exponent_of"]


@dataclass(frozen=True)
class Factor:
    """A product as a tensor core takes it.

    Parameters
    ----------
    value : Value
        The exact product.
    exponent : int
        The sum of the exponents of the two operands; that of a zero is not looked at.
    """

    value: Value
    exponent: int


@dataclass(frozen=True)
class Term:
    """One addend of a block.

    Parameters
    ----------
    value : Value
        The product, or the accumulator, exactly.
    exponent : int, optional
        The exponent by which it takes part in the alignment; None for a zero that takes no part.
    kept : int
        What is left of it, in units of ``2**Block.unit``: the rest was cut off, toward zero.
    lost : bool
        Whether anything was.
    """

    value: Value
    exponent: int | None
    kept: int
    lost: bool


@dataclass(frozen=True)
class Block:
    """What happened to a block.

    Parameters
    ----------
    terms : tuple of Term
        The products in order of k, then the accumulator. Empty where an infinity or a NaN decides.
    unit : int, optional
        The exponent of the last bit kept: the largest exponent less the fraction bits. None where nothing had to be
        aligned.
    exact : Value
        What was rounded: the sum of what is left of the terms.
    result : Result
        The new accumulator and the flags.
    swamped : bool
        Whether products that do not cancel left an accumulator other than zero as it was.
    """

    terms: tuple[Term, ...]
    unit: int | None
    exact: Value
    result: Result
    swamped: bool = False


def exponent_of(value: Value, fmt: Format) -> int:
    """Give the exponent of a finite number; that of subnormals and zero is the format's emin.

    >>> from fp16sim.emulator.formats import binary16
    >>> exponent_of(decode(0x3E00, binary16), binary16), exponent_of(decode(0x0001, binary16), binary16)
    (0, -14)
    """
    return fmt.emin if value.magnitude == 0 else max(floor_log2(value.magnitude), fmt.emin)


def add_block(c: int, factors: Sequence[Factor], path: Datapath) -> Block:
    """Add one block of products to an accumulator.

    Parameters
    ----------
    c : int
        An encoding of the accumulator's format.
    factors : sequence of Factor
        Up to ``path.block`` products; zeros (+0) stand for those that lack.
    path : Datapath
        A tensor core.

    Returns
    -------
    Block

    Examples
    --------
    1 + 2^-24 + 2^-24 on an A100: both small products are kept, and their sum is the next number after 1. Were they
    2^-25 each, they would be cut off.

    >>> from fractions import Fraction
    >>> from fp16sim.emulator.datapath import as_datapath
    >>> small = Factor(Value.of(Fraction(1, 2**24)), -24)
    >>> block = add_block(0x3F800000, [small, small], as_datapath("a100"))
    >>> hex(block.result.bits), block.unit, [term.kept for term in block.terms[:2]]
    ('0x3f800001', -24, [1, 1])
    """
    fmt, bits = path.accumulator, path.fraction_bits
    assert fmt is not None
    assert bits is not None
    lacking = path.block - len(factors)
    factors = [*factors, *[Factor(Value.of(0), 0)] * lacking]
    accumulator = decode(c, fmt)
    values = [*(factor.value for factor in factors), accumulator]

    if special := _special(values):
        return Block((), None, special, round_value(special, fmt))

    if all(factor.value.is_zero for factor in factors):
        exact = accumulator
        if accumulator.is_zero:
            exact = Value.of(0, negative_zero=all(value.negative for value in values))
        return Block((), None, exact, _round(exact, fmt, path, lost=False))

    exponents = [None if f.value.is_zero else f.exponent for f in factors]
    exponents.append(None if accumulator.is_zero else _accumulator_exponent(accumulator, path))
    exponents = [path.zero_exponent if exponent is None else exponent for exponent in exponents]
    unit = max(exponent for exponent in exponents if exponent is not None) - bits
    terms = tuple(_cut(value, exponent, unit) for value, exponent in zip(values, exponents, strict=True))

    exact = Value.of(sum(term.kept for term in terms) * power_of_two(unit))
    result = _round(exact, fmt, path, any(term.lost for term in terms))
    added = sum(term.kept for term in terms[:-1]) != 0 or any(term.lost for term in terms[:-1])
    return Block(terms, unit, exact, result, added and not accumulator.is_zero and result.bits == c)


def _special(values: Sequence[Value]) -> Value | None:
    """Give the infinity or NaN that decides a sum, or None."""
    if nan := nan_of(*values):
        return nan
    signs = {value.negative for value in values if value.kind == "infinity"}
    if len(signs) == 2:
        return Value("nan", signalling=True)
    return Value("infinity", signs.pop()) if signs else None


def _accumulator_exponent(accumulator: Value, path: Datapath) -> int:
    assert path.accumulator is not None
    if path.normalized_accumulator:
        return floor_log2(accumulator.magnitude)
    return exponent_of(accumulator, path.accumulator)


def _cut(value: Value, exponent: int | None, unit: int) -> Term:
    units = value.magnitude / power_of_two(unit)
    kept = units.numerator // units.denominator
    return Term(value, exponent, -kept if value.negative else kept, kept != units)


def _round(exact: Value, fmt: Format, path: Datapath, lost: bool) -> Result:
    """Deliver the sum of a block. Toward zero, an overflow is an infinity all the same; zeros are positive."""
    bits, flags = round_value(exact, fmt, Rounding(path.block_rounding))
    if flags & OVERFLOW:
        bits = round_value(Value("infinity", exact.negative), fmt).bits
    if bits == fmt.sign_bit and not path.keep_negative_zero:
        bits = 0
    if lost:
        # What was cut off makes the result inexact, however the rest was rounded.
        flags |= INEXACT | (UNDERFLOW if flags & SUBNORMAL else 0)
    return Result(bits, flags)
