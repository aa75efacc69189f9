"""Samples of test_exhaustive.py: the public arithmetic against the exact routines, in every mode and format."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fp16sim_oracles import exact, integer, judge, strata

from fp16sim.emulator.arithmetic import raised_flags
from fp16sim.emulator.flags import INEXACT, OVERFLOW, SUBNORMAL, UNDERFLOW
from fp16sim.emulator.kernels.loops import fill_random
from fp16sim.emulator.random_bits import key_of

ALL = np.arange(65536, dtype=np.uint16)
FOUR = ("add", "subtract", "multiply", "divide")
PAIRS = 100_000
Results = tuple[Any, Any]
"""Bits and flags."""


def check(op: str, fmt: str, columns: tuple[Any, ...], **source: str) -> None:
    draws = strata.random_bits(len(columns[0]), 31)
    for mode in integer.MODES:
        judge.check(op, fmt, mode, columns, draws=draws, **source)


@pytest.mark.parametrize("mode", integer.MODES)
def test_float32_to_binary16(mode: str) -> None:
    # Every 4,099th float32 (a prime: all endings), and every edge of binary16.
    spread = np.arange(0, 2**32, 4099, dtype=np.uint64).astype(np.uint32)
    words = np.concatenate([spread, strata.sources("binary16", "binary32", PAIRS, 31)])
    draws = strata.random_bits(len(words), 31)
    judge.check("convert", "binary16", mode, (words,), source="binary32", draws=draws)


def test_float64_to_binary16() -> None:
    check("convert", "binary16", (strata.sources("binary16", "binary64", PAIRS, 32),), source="binary64")


@pytest.mark.parametrize("op", [*FOUR, "fma"])
def test_binary16(op: str) -> None:
    check(op, "binary16", strata.operands(op, "binary16", PAIRS, 33)[: 3 if op == "fma" else 2])


@pytest.mark.parametrize("op", FOUR)
def test_binary16_whole_rows(op: str) -> None:
    """All 65,536 second operands beside a few first ones."""
    for a in (0x0001, 0x03FF, 0x0400, 0x3C00, 0x3C01, 0x5555, 0x7BFF, 0x8001, 0xC248):
        judge.check(op, "binary16", "nearest_even", (np.full(65536, a, np.uint16), ALL))


def test_sqrt_of_every_binary16() -> None:
    check("sqrt", "binary16", (ALL,))


@pytest.mark.parametrize("op", ["from_float32", "from_float64", "add", "fma"])
def test_bits_of_a_seed_are_used_as_given_bits_are(op: str) -> None:
    """Seeded loops have kernels of their own: their bits, read off the generator, go to the exact routine."""
    if op in ("add", "fma"):
        columns: tuple[Any, ...] = strata.operands(op, "binary16", PAIRS, 36)[: 3 if op == "fma" else 2]
        name, source = op, None
    else:
        source = {"from_float32": "binary32", "from_float64": "binary64"}[op]
        columns, name = (strata.sources("binary16", source, PAIRS, 36),), "convert"
    draws = np.empty(len(columns[0]), np.uint32)
    fill_random(np.uint64(key_of(5, 0)).astype(np.int64), 0, draws)
    ours = judge.package(name, "binary16", "stochastic", columns, source, seed=5)
    right = judge.expected(name, "binary16", "stochastic", columns, source, draws)
    judge.assert_same_bits(ours, right, columns, draws, f"{op} stochastic")


@pytest.mark.parametrize("fmt", [fmt for fmt in exact.FORMATS if fmt != "binary16"])
def test_other_formats(fmt: str) -> None:
    for op in (*FOUR, "fma"):
        check(op, fmt, strata.operands(op, fmt, 3000, 34)[: 3 if op == "fma" else 2])
    check("sqrt", fmt, strata.operands("divide", fmt, 3000, 34)[:1])


@pytest.mark.parametrize("fmt", list(exact.FORMATS))
def test_conversions(fmt: str) -> None:
    for source in ("binary32", "binary64"):
        check("convert", fmt, (strata.sources(fmt, source, 5000, 35),), source=source)
    for source in ("binary16", "bfloat16", "e4m3", "e5m2"):
        every = ALL[::7] if exact.FORMATS[source].dtype == np.uint16 else np.arange(256, dtype=np.uint8)
        check("convert", fmt, (every,), source=source)


def ruled(
    op: str, fmt: str, mode: str, columns: tuple[Any, ...], draws: Any, rule: dict[str, Any]
) -> Results:
    """Derive bits and flags under a rule from the exact routine's plain ones: what flush and saturate mean."""
    grid = strata.Grid(exact.FORMATS[fmt])
    if rule.get("inputs") == "zero":
        magnitudes = [column & (grid.sign - 1) for column in columns]
        columns = tuple(
            np.where(m < grid.normal, c & grid.sign, c).astype(c.dtype)
            for m, c in zip(magnitudes, columns, strict=True)
        )
    tininess = rule.get("tininess", "after")
    bits, flags = exact.compute(op, fmt, mode, *columns, random_bits=draws, tininess=tininess)
    sign = (bits & grid.sign).astype(bits.dtype)
    if rule.get("subnormals") == "flush":  # a nonzero tiny result is inexact, or else exact and subnormal
        tiny = (flags & UNDERFLOW != 0) | (flags & (SUBNORMAL | INEXACT) == SUBNORMAL)
        bits = np.where(tiny, sign, bits)
        flags = np.where(tiny, UNDERFLOW | INEXACT, flags)
    if rule.get("saturate"):
        infinite = (bits & (grid.sign - 1)) == grid.spec.inf_code
        bits = np.where(infinite, sign | bits.dtype.type(grid.max), bits)
        flags = np.where(infinite, flags | OVERFLOW | INEXACT, flags)
    return bits, flags.astype(np.uint8)


@pytest.mark.parametrize(
    "rule",
    [
        {"subnormals": "flush"},
        {"subnormals": "flush", "tininess": "before"},
        {"saturate": True},
        {"inputs": "zero"},
        {"inputs": "zero", "subnormals": "flush", "saturate": True, "tininess": "before"},
    ],
    ids=lambda rule: "-".join(map(str, rule.values())),
)
@pytest.mark.parametrize("fmt", [fmt for fmt, spec in exact.FORMATS.items() if spec.infinities])
def test_flush_saturate_and_zeroed_inputs(fmt: str, rule: dict[str, Any]) -> None:
    for op in (*FOUR, "fma", "sqrt"):
        columns = strata.operands("divide" if op == "sqrt" else op, fmt, 3000, 37)
        columns = columns[: {"sqrt": 1, "fma": 3}.get(op, 2)]
        draws = strata.random_bits(len(columns[0]), 37)
        arrays = [judge.as_array(column, fmt) for column in columns]
        for mode in integer.MODES:
            options = {**rule, "random_bits": draws} if mode == "stochastic" else rule
            bits, flags = ruled(op, fmt, mode, columns, draws, rule)
            ours = judge.package(op, fmt, mode, columns, **options)
            what = f"{op} {fmt} {mode} {rule}"
            judge.assert_same_bits(ours, bits, columns, draws, what)
            raised = raised_flags(op, *arrays, format=fmt, rounding=mode, **options)
            judge.assert_same_bits(raised, flags, columns, draws, f"flags of {what}")


@pytest.mark.parametrize("op", FOUR)
def test_every_pair_of_e4m3(op: str) -> None:
    every = np.arange(256, dtype=np.uint8)
    columns = (np.repeat(every, 256), np.tile(every, 256))
    judge.check(op, "e4m3", "nearest_even", columns)


def test_a_block_that_fails_stops_the_sweep() -> None:
    def wrong() -> int:
        raise AssertionError("planted")

    with pytest.raises(AssertionError, match="planted"):
        judge.sweep("planted", [lambda: 1, wrong, lambda: 1])


def test_a_difference_names_the_operands_and_both_results() -> None:
    columns = (np.array([1, 2], np.uint16), np.array([3, 0x3C00], np.uint16))
    with pytest.raises(AssertionError, match=r"add\(0x2, 0x3c00\): 0x3c00, not 0x3c01; 1 of 2 differ"):
        judge.assert_same_bits(
            np.array([4, 0x3C00], np.uint16), np.array([4, 0x3C01], np.uint16), columns, None, "add"
        )
