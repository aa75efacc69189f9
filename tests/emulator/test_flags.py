"""The flags of every element against SoftFloat, in its five modes and both tininess rules."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from fp16sim_oracles import bulk, exact, integer, judge, strata
from fp16sim_oracles.integer import DIVIDE_BY_ZERO, INEXACT, INVALID, OVERFLOW, SUBNORMAL, UNDERFLOW

import fp16sim as fs
from fp16sim.emulator import backends, flags
from fp16sim.emulator.arithmetic import raised_flags
from fp16sim.emulator.formats import binary16, binary32, binary64
from fp16sim.emulator.rounding import Rounding

MODES = integer.MODES[:5]
ARITHMETIC = ("add", "subtract", "multiply", "divide", "fma", "sqrt", "ieee_remainder", "rint")
CONVERSIONS = {"from_float32": "binary32", "from_float64": "binary64"}
SAMPLE, WHOLE = 2000, 100_000


def operands(op: str, count: int) -> tuple[Any, ...]:
    if op in CONVERSIONS:
        return (strata.sources("binary16", CONVERSIONS[op], count, 21),)
    if op in ("sqrt", "rint"):
        every = np.arange(65536, dtype=np.uint16)
        return (every if count > 65536 else every[:: 65536 // count],)
    of = {"ieee_remainder": "divide"}.get(op, op)
    return strata.operands(of, "binary16", count, 21)[: 3 if op == "fma" else 2]


def raised(op: str, columns: tuple[Any, ...], mode: str, tininess: str) -> Any:
    """Give the flags of each element, from the package."""
    if op in CONVERSIONS:
        source = {"binary32": binary32, "binary64": binary64}[CONVERSIONS[op]]
        rule = Rounding(mode=mode, tininess=tininess)
        return backends.current().convert(columns[0], source, binary16, rule, None, "flags").flags
    arrays = [column.view(np.float16) for column in columns]
    return raised_flags(op, *arrays, rounding=mode, tininess=tininess)


def assert_same_flags(ours: Any, theirs: Any, mask: int, columns: tuple[Any, ...], what: str) -> None:
    """Fail with the first operands whose flags differ under the mask."""
    wrong = np.flatnonzero((ours ^ theirs) & mask)
    if wrong.size:
        i = int(wrong[0])
        names = [flags.flag_names(int(word[i]) & mask) for word in (ours, theirs)]
        raise AssertionError(
            f"{what}({', '.join(hex(int(c[i])) for c in columns)}) raises {names[0]}, not {names[1]}; "
            f"{wrong.size:,} of {len(ours):,} differ"
        )


def compare(op: str, count: int) -> int:
    columns = operands(op, count)
    done = 0
    for mode in MODES:
        for tininess in ("after", "before"):
            what = f"{op} {mode} tininess {tininess}"
            name, source = ("convert", CONVERSIONS[op]) if op in CONVERSIONS else (op, None)
            bits, right = bulk.by_softfloat(
                name, "binary16", mode, *columns, source=source, tininess=tininess
            )
            ours = raised(op, columns, mode, tininess)
            assert_same_flags(ours, right, bulk.SOFTFLOAT_FLAGS, columns, what)
            subnormal = (bits & 0x7FFF > 0) & (bits & 0x7FFF < 0x400)
            assert ((ours & SUBNORMAL != 0) == subnormal).all(), what
            result = judge.package(name, "binary16", mode, columns, source, tininess=tininess)
            judge.assert_same_bits(result, bits, columns, None, what)
            done += len(bits)
    return done


@pytest.mark.parametrize("op", [*ARITHMETIC, *CONVERSIONS])
def test_flags_and_results_are_those_of_softfloat(op: str) -> None:
    assert compare(op, SAMPLE) >= 10 * SAMPLE


@pytest.mark.slow
@pytest.mark.parametrize("op", [*ARITHMETIC, *CONVERSIONS])
def test_flags_and_results_are_those_of_softfloat_at_length(op: str) -> None:
    start = time.perf_counter()
    done = compare(op, WHOLE)
    print(
        f"\nflags of {op}: {done:,} results by SoftFloat in 5 modes and both tininess rules, 0 differences, "
        f"{time.perf_counter() - start:.0f} s"
    )


@pytest.mark.parametrize("mode", integer.MODES)
@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "divide", "fma", "sqrt"])
def test_all_six_flags_in_all_seven_modes(op: str, mode: str) -> None:
    """To odd and stochastic are beyond SoftFloat: the integer routine, which is held to it, judges them."""
    columns = operands(op, SAMPLE)
    draws = strata.random_bits(len(columns[0]), 22)
    given = {"random_bits": draws} if mode == "stochastic" else {}
    for tininess in ("after", "before"):
        _, right = integer.compute(op, mode, *columns, random_bits=draws, tininess=tininess)
        arrays = [column.view(np.float16) for column in columns]
        ours = raised_flags(op, *arrays, rounding=mode, tininess=tininess, **given)
        assert_same_flags(ours, right, 63, columns, f"{op} {mode} tininess {tininess}")


@pytest.mark.parametrize("fmt", [fmt for fmt in exact.FORMATS if fmt != "binary16"])
def test_all_six_flags_in_the_other_formats(fmt: str) -> None:
    for op in ("add", "subtract", "multiply", "divide", "fma", "sqrt"):
        columns = strata.operands("divide" if op == "sqrt" else op, fmt, SAMPLE, 23)
        columns = columns[: {"sqrt": 1, "fma": 3}.get(op, 2)]
        draws = strata.random_bits(len(columns[0]), 23)
        arrays = [judge.as_array(column, fmt) for column in columns]
        for mode in integer.MODES:
            given = {"random_bits": draws} if mode == "stochastic" else {}
            for tininess in ("after", "before"):
                _, right = exact.compute(op, fmt, mode, *columns, random_bits=draws, tininess=tininess)
                ours = raised_flags(op, *arrays, format=fmt, rounding=mode, tininess=tininess, **given)
                assert_same_flags(ours, right, 63, columns, f"{op} {fmt} {mode} tininess {tininess}")


@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "divide", "fma", "sqrt"])
def test_counts_are_the_sums_of_the_flags(op: str) -> None:
    columns = operands(op, SAMPLE)
    bits, right = integer.compute(op, "nearest_even", *columns)
    judge.assert_counted(op, columns, bits, right)


def test_flag_bits_have_one_order() -> None:
    ours = (
        flags.OVERFLOW,
        flags.UNDERFLOW,
        flags.SUBNORMAL,
        flags.INVALID,
        flags.DIVIDE_BY_ZERO,
        flags.INEXACT,
    )
    assert ours == (OVERFLOW, UNDERFLOW, SUBNORMAL, INVALID, DIVIDE_BY_ZERO, INEXACT)


# --- planted faults ---


def test_a_wrong_flag_is_noticed() -> None:
    columns = operands("add", 100)
    right = raised("add", columns, "nearest_even", "after")
    assert_same_flags(right, right, 63, columns, "add")
    for flag in (OVERFLOW, UNDERFLOW, SUBNORMAL, INVALID, DIVIDE_BY_ZERO, INEXACT):
        wrong = right.copy()
        wrong[31] ^= flag
        with pytest.raises(AssertionError, match=f"{flags.flag_names(flag)[0]}.* 1 of 104 differ"):
            assert_same_flags(wrong, right, 63, columns, "add")


def test_a_wrong_bit_is_noticed() -> None:
    columns = operands("add", 100)
    bits, _ = integer.compute("add", "nearest_even", *columns)
    wrong = bits.copy()
    wrong[31] ^= 1
    with pytest.raises(AssertionError, match="1 of 104 differ"):
        judge.assert_same_bits(wrong, bits, columns, None, "add")


def test_a_wrong_count_is_noticed() -> None:
    columns = operands("add", 100)
    bits, right = integer.compute("add", "nearest_even", *columns)
    right = right.copy()
    right[31] ^= INEXACT
    with pytest.raises(AssertionError, match="inexact counted"):
        judge.assert_counted("add", columns, bits, right)


def test_counting_changes_no_result() -> None:
    columns = operands("fma", SAMPLE)
    arrays = [column.view(np.float16) for column in columns]
    plain = fs.fma(*arrays)
    with fs.count_events():
        counted = fs.fma(*arrays)
    assert (plain.view(np.uint16) == counted.view(np.uint16)).all()
