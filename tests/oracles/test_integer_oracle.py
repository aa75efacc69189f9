"""The exact routines of the tests, held to SoftFloat and MPFR.

`integer` (binary16) and `exact` (any format) judge the package on billions of inputs, so they are judged
first: by programs that other people wrote, on stratified operands, by bits and flags; and where those have no
mode (to odd, stochastic), by what that mode means.
"""

from __future__ import annotations

import time
from fractions import Fraction
from typing import Any

import gmpy2
import numpy as np
import pytest
from fp16sim_oracles import bulk, exact, integer, mpfr, strata
from fp16sim_oracles.integer import INEXACT, OVERFLOW

FIVE, FOUR = integer.MODES[:5], list(mpfr.MODES)
ARITHMETIC = ("add", "subtract", "multiply", "divide", "fma", "sqrt")
CONVERSIONS = {"from_float32": "binary32", "from_float64": "binary64"}
SAMPLE, WHOLE = 2000, 1_000_000
Results = tuple[Any, Any]
"""Bits and flags."""


def operands(op: str, fmt: str, count: int) -> tuple[Any, ...]:
    """Give ``count`` stratified operands; for sqrt of a short format every encoding or a spread of them."""
    if op in CONVERSIONS:
        return (strata.sources(fmt, CONVERSIONS[op], count, 11),)
    if op == "sqrt":
        if exact.FORMATS[fmt].dtype.itemsize <= 2:
            size = 2 ** (8 * exact.FORMATS[fmt].dtype.itemsize)
            return (np.arange(0, size, max(1, size // count) | 1, dtype=exact.FORMATS[fmt].dtype),)
        return strata.operands("divide", fmt, count, 11)[:1]
    return strata.operands(op, fmt, count, 11)[: 3 if op == "fma" else 2]


def differences(
    ours: tuple[Any, Any], theirs: tuple[Any, Any], mask: int, columns: tuple[Any, ...]
) -> list[str]:
    """Describe the results whose bits differ, or whose flags differ under the mask."""
    wrong = (ours[0] != theirs[0]) | ((ours[1] ^ theirs[1]) & mask != 0)
    return [
        f"({', '.join(hex(c[i]) for c in columns)}): {ours[0][i]:#x} flags {ours[1][i] & mask:#x}, "
        f"not {theirs[0][i]:#x} flags {theirs[1][i] & mask:#x}"
        for i in np.flatnonzero(wrong)[:5]
    ]


def against_softfloat(op: str, count: int) -> int:
    columns = operands(op, "binary16", count)
    done = 0
    for mode in FIVE:
        truncated: Any = None
        for tininess in ("after", "before"):
            ours = integer.compute(op, mode, *columns, tininess=tininess)
            name, source = ("convert", CONVERSIONS[op]) if op in CONVERSIONS else (op, None)
            theirs = bulk.by_softfloat(name, "binary16", mode, *columns, source=source, tininess=tininess)
            wrong = differences(ours, theirs, bulk.SOFTFLOAT_FLAGS, columns)
            assert not wrong, f"{op} {mode} {tininess}: {wrong}"
            truncated = theirs
            done += len(columns[0])
        if mode == "toward_zero":  # to odd is toward zero, its last bit set when inexact
            bits, flags = truncated
            odd, _ = integer.compute(op, "to_odd", *columns)
            assert (odd == np.where(flags & INEXACT != 0, bits | 1, bits)).all()
            done += len(columns[0])
    return done


def against_mpfr(op: str, count: int) -> int:
    columns = operands(op, "binary16", count)
    if op in CONVERSIONS:
        values = [columns[0].view(np.float32 if op == "from_float32" else np.float64).astype(np.float64)]
    else:
        values = [c.view(np.float16).astype(np.float64) for c in columns]
    known = ~np.any([np.isnan(v) for v in values], axis=0)
    columns, values = tuple(c[known] for c in columns), [v[known] for v in values]
    for mode in FOUR:
        ours = integer.compute(op, mode, *columns)
        theirs, flags = bulk.by_mpfr("convert" if op in CONVERSIONS else op, mode, mpfr.context(), *values)
        bits = theirs.astype(np.float16)
        assert np.array_equal(bits.astype(np.float64), theirs, equal_nan=True)
        canonical = np.where(np.isnan(bits), np.uint16(0x7E00), bits.view(np.uint16))
        wrong = differences(ours, (canonical, flags), bulk.MPFR_FLAGS, columns)
        assert not wrong, f"{op} {mode}: {wrong}"
    return len(FOUR) * len(columns[0])


# --- binary16 ---


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")  # a signalling NaN, widened
@pytest.mark.parametrize("op", [*ARITHMETIC, *CONVERSIONS])
def test_binary16_against_softfloat_and_mpfr(op: str) -> None:
    against_softfloat(op, SAMPLE)
    against_mpfr(op, SAMPLE)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
@pytest.mark.parametrize("op", [*ARITHMETIC, *CONVERSIONS])
def test_binary16_against_softfloat_and_mpfr_on_a_million(op: str) -> None:
    start = time.perf_counter()
    soft = against_softfloat(op, 65536 if op == "sqrt" else WHOLE)
    middle = time.perf_counter()
    multiple = against_mpfr(op, 65536 if op == "sqrt" else WHOLE)
    print(
        f"\nthe integer routine, {op}: {soft:,} results and flags by SoftFloat (5 modes, both tininess rules, "
        f"to odd) in {middle - start:.0f} s, {multiple:,} by MPFR (4 modes) in {time.perf_counter() - middle:.0f} s"
    )


# --- the other formats ---


def exact_against_softfloat(op: str, count: int) -> int:
    columns = operands(op, "binary32", count)
    for mode in FIVE:
        for tininess in ("after", "before"):
            ours = exact.compute(op, "binary32", mode, *columns, tininess=tininess)
            theirs = bulk.by_softfloat(op, "binary32", mode, *columns, tininess=tininess)
            wrong = differences(ours, theirs, bulk.SOFTFLOAT_FLAGS, columns)
            assert not wrong, f"{op} {mode} {tininess}: {wrong}"
    return 10 * len(columns[0])


def mpfr_context(spec: exact.Spec) -> gmpy2.context:
    """Make a context of the format's precision and smallest value, without an upper end."""
    emin = 2 - 2 ** (spec.exponent_bits - 1)
    # MPFR's significands lie in [1/2, 1): its least exponent is that of the smallest subnormal, plus one.
    return gmpy2.context(
        precision=spec.precision, emax=2000, emin=emin - spec.precision + 2, subnormalize=True
    )


def exact_against_mpfr(op: str, fmt: str, count: int, source: str | None = None) -> int:
    """Hold `exact` to MPFR, the overflow rule of the format applied to MPFR's unbounded result."""
    spec = exact.FORMATS[fmt]
    if source:
        columns: tuple[Any, ...] = (strata.sources(fmt, source, count, 12),)
    else:
        columns = operands(op, fmt, count)
    of = exact.FORMATS_OF_OPERANDS[source or fmt]
    magnitude = (1 << (of.exponent_bits + of.precision - 1)) - 1
    wide = [c.astype(np.int64) & magnitude for c in columns]
    known = ~np.any([(w > of.max_code) & ~((w == of.inf_code) & of.infinities) for w in wide], axis=0)
    columns = tuple(c[known] for c in columns)
    grid = strata.Grid(of)
    if source == "binary64":
        values = [columns[0].view(np.float64)]
    else:
        wide = [c.astype(np.int64) for c in columns]
        infinite = [(w & magnitude == of.inf_code) & of.infinities for w in wide]
        values = [
            np.where(
                i, np.copysign(np.inf, np.where(w > magnitude, -1.0, 1.0)), grid.value(np.where(i, 0, w))
            )
            for i, w in zip(infinite, wide, strict=True)
        ]
    target = strata.Grid(spec)
    largest = float(target.value(np.int64(spec.max_code)))
    for mode in FOUR:
        ours = exact.compute(op, fmt, mode, *columns, source=source)
        result, flags = bulk.by_mpfr(op, mode, mpfr_context(spec), *values)
        over = np.abs(result) > largest
        made = np.isinf(result) & (flags & INEXACT == 0)  # infinite by right, not by overflow
        away = (mode == "nearest_even") | made
        made &= spec.infinities
        away |= (mode == "toward_positive") & (result > 0) | (mode == "toward_negative") & (result < 0)
        bits = target.truncate(np.where(np.isnan(result), 0.0, result))
        infinity = np.where(np.signbit(result), target.sign, 0) | spec.inf_code
        bits = np.where(over & away, infinity if spec.infinities else spec.nan, bits)
        bits = np.where(np.isnan(result), spec.nan, bits)
        flags = flags | np.where(over & ~made, OVERFLOW | INEXACT, 0).astype(np.uint8)
        wrong = differences(ours, (bits, flags), bulk.MPFR_FLAGS, columns)
        assert not wrong, f"{op} {fmt} {mode}: {wrong}"
    return len(FOUR) * len(columns[0])


@pytest.mark.parametrize("op", ARITHMETIC)
def test_binary32_against_softfloat(op: str) -> None:
    exact_against_softfloat(op, SAMPLE)


@pytest.mark.parametrize("fmt", list(exact.FORMATS))
def test_every_format_against_mpfr(fmt: str) -> None:
    for op in ARITHMETIC:
        exact_against_mpfr(op, fmt, SAMPLE // 2)
    for source in ("binary32", "binary64"):
        exact_against_mpfr("convert", fmt, SAMPLE // 2, source)


@pytest.mark.slow
@pytest.mark.parametrize("op", ARITHMETIC)
def test_binary32_against_softfloat_on_a_million(op: str) -> None:
    start = time.perf_counter()
    done = exact_against_softfloat(op, WHOLE)
    print(f"\nthe exact routine, binary32 {op}: {done:,} by SoftFloat in {time.perf_counter() - start:.0f} s")


@pytest.mark.slow
@pytest.mark.parametrize("fmt", [f for f in exact.FORMATS if f != "binary16"])
def test_every_format_against_mpfr_at_length(fmt: str) -> None:
    start = time.perf_counter()
    done = sum(exact_against_mpfr(op, fmt, WHOLE // 4) for op in ARITHMETIC)
    done += sum(exact_against_mpfr("convert", fmt, WHOLE // 4, source) for source in ("binary32", "binary64"))
    print(f"\nthe exact routine, {fmt}: {done:,} by MPFR in {time.perf_counter() - start:.0f} s")


# --- stochastic, by its definition ---


def magnitude_of(op: str, values: tuple[Fraction, ...]) -> Fraction:
    x = [*values, Fraction(0), Fraction(0)]
    if op == "divide":
        return abs(x[0] / x[1])
    return abs(
        {"add": x[0] + x[1], "subtract": x[0] - x[1], "multiply": x[0] * x[1]}.get(op, x[0] * x[1] + x[2])
    )


@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "divide", "fma", *CONVERSIONS])
def test_stochastic_threshold_is_the_floor_of_the_fraction(op: str) -> None:
    """Bits one below floor(fraction * 2^32) round away from zero, that many do not."""
    columns = operands(op, "binary16", 1000)
    dtype = {"from_float32": np.float32, "from_float64": np.float64}.get(op, np.float16)
    with np.errstate(invalid="ignore"):
        values = [c.view(dtype).astype(np.float64) for c in columns]
    zero, flags = integer.compute(op, "toward_zero", *columns)
    checked = 0
    for i in np.flatnonzero((flags & INEXACT != 0) & (flags & OVERFLOW == 0)):
        fractions = tuple(Fraction(float(v[i])) for v in values)
        value = fractions[0] if op in CONVERSIONS else magnitude_of(op, fractions)
        code = int(zero[i]) & 0x7FFF
        low = Fraction(float(np.uint16(code).view(np.float16)))
        gap = Fraction(1, 2**24) * 2 ** max((code >> 10) - 1, 0)
        threshold = (abs(value) - low) / gap * 2**32 // 1
        for draw in {max(threshold - 1, 0), min(threshold, 2**32 - 1)}:
            row = [c[i : i + 1] for c in columns]
            bits, _ = integer.compute(op, "stochastic", *row, random_bits=np.array([draw], np.uint32))
            assert int(bits[0]) & 0x7FFF == code + (draw < threshold), (
                f"{op} {[hex(r[0]) for r in row]} {draw}"
            )
            checked += 1
    assert checked > 500


@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "divide", "fma", "sqrt", "convert"])
def test_the_two_exact_routines_agree_in_every_mode(op: str) -> None:
    if op == "convert":
        columns: tuple[Any, ...] = (strata.sources("binary16", "binary64", SAMPLE, 13),)
    else:
        columns = operands(op, "binary16", SAMPLE)
    draws = strata.random_bits(len(columns[0]), 13)
    for mode in integer.MODES:
        for tininess in ("after", "before"):
            name, source = ("from_float64", "binary64") if op == "convert" else (op, None)
            ours = integer.compute(name, mode, *columns, random_bits=draws, tininess=tininess)
            theirs = exact.compute(
                op, "binary16", mode, *columns, source=source, random_bits=draws, tininess=tininess
            )
            assert not differences(ours, theirs, 63, columns)


# --- the comparison itself ---


def test_a_wrong_bit_and_a_wrong_flag_are_noticed() -> None:
    columns = operands("add", "binary16", 100)
    right = integer.compute("add", "nearest_even", *columns)
    assert not differences(right, right, 63, columns)
    for part, bit in ((0, 1), (1, INEXACT)):
        wrong = (right[0].copy(), right[1].copy())
        wrong[part][17] ^= bit
        assert len(differences(wrong, right, 63, columns)) == 1
