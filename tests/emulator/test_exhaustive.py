"""Every input, or as many as there is time for: the package against the exact routines of the tests, by bits.

`make test-all` runs these and prints what each covered. Samples of them are in test_arithmetic_oracle.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from fp16sim_oracles import exact, integer, judge, strata

from fp16sim.emulator.kernels.loops import fill_random
from fp16sim.emulator.random_bits import key_of

pytestmark = pytest.mark.slow

BLOCK = 1 << 22
EVERY_FLOAT32 = 1 << 32
ALL = np.arange(65536, dtype=np.uint16)
FOUR = ("add", "subtract", "multiply", "divide")
STRATIFIED = 100_000_000  # binary16 pairs and triples in each mode
WIDE = 10_000_000  # pairs and triples of tf32, binary32, bfloat16 in each mode


def hashed(words: Any) -> Any:
    """32 bits that depend on all bits of a word: a multiplication and a shift, twice."""
    words = words.astype(np.uint32)
    words = (words ^ (words >> np.uint32(15))) * np.uint32(0x2C1B3C6D)
    return (words ^ (words >> np.uint32(12))) * np.uint32(0x297A2D39)


# --- float32 to binary16, all of it ---


def float32_block(first: int, step: int, mode: str) -> int:
    words = np.arange(first, first + BLOCK * step, step, dtype=np.uint64).astype(np.uint32)
    draws = hashed(words) if mode == "stochastic" else None
    return judge.check("convert", "binary16", mode, (words,), source="binary32", draws=draws)


@pytest.mark.parametrize("mode", integer.MODES[:6])
def test_every_float32_to_binary16(mode: str) -> None:
    blocks = (partial(float32_block, first, 1, mode) for first in range(0, EVERY_FLOAT32, BLOCK))
    assert judge.sweep(f"\nfloat32 -> binary16, {mode}", blocks) == EVERY_FLOAT32


def test_float32_to_binary16_with_given_random_bits() -> None:
    """Given bits take the slower kernel of all formats: every 15th float32 (odd: all endings) will do."""
    step = 15
    blocks = (
        partial(float32_block, first, step, "stochastic")
        for first in range(0, EVERY_FLOAT32 - step * BLOCK, step * BLOCK)
    )
    judge.sweep(f"\nfloat32 -> binary16, stochastic, given bits, one input of {step}", blocks)


def drawn_block(first: int, seed: int) -> int:
    """The kernel that draws its own bits: they are read off the generator and given to the exact routine."""
    words = np.arange(first, first + BLOCK, dtype=np.uint32)
    draws = np.empty(BLOCK, np.uint32)
    key = key_of(seed, 0)
    fill_random(key - 2**64 if key >> 63 else key, 0, draws)
    ours = judge.package("convert", "binary16", "stochastic", (words,), "binary32", seed=seed)
    right = judge.expected("convert", "binary16", "stochastic", (words,), "binary32", draws)
    judge.assert_same_bits(ours, right, (words,), draws, f"convert stochastic, seed {seed}")
    return BLOCK


def test_every_float32_to_binary16_with_bits_of_a_seed() -> None:
    blocks = (partial(drawn_block, first, first // BLOCK) for first in range(0, EVERY_FLOAT32, BLOCK))
    assert judge.sweep("\nfloat32 -> binary16, stochastic by seed", blocks) == EVERY_FLOAT32


# --- binary16, all pairs to nearest even ---


def pairs_block(op: str, first: int) -> int:
    a = np.repeat(ALL[first : first + BLOCK // 65536], 65536)
    return judge.check(op, "binary16", "nearest_even", (a, np.tile(ALL, BLOCK // 65536)))


@pytest.mark.parametrize("op", FOUR)
def test_every_pair_to_nearest_even(op: str) -> None:
    blocks = (partial(pairs_block, op, first) for first in range(0, 65536, BLOCK // 65536))
    assert judge.sweep(f"\nbinary16 {op}, all pairs, nearest_even", blocks) == 1 << 32


# --- binary16, stratified operands in the other modes ---


def stratified_block(op: str, fmt: str, modes: tuple[str, ...], size: int, seed: int) -> int:
    columns = strata.operands(op, fmt, size, seed)[: 3 if op == "fma" else 2]
    draws = strata.random_bits(len(columns[0]), seed)
    return sum(judge.check(op, fmt, mode, columns, draws=draws) for mode in modes)


def stratified(
    op: str, fmt: str, modes: tuple[str, ...], count: int, size: int
) -> Iterator[Callable[[], int]]:
    return (partial(stratified_block, op, fmt, modes, size, seed) for seed in range(-(-count // size)))


@pytest.mark.parametrize("op", [*FOUR, "fma"])
def test_stratified_operands_in_every_mode(op: str) -> None:
    modes = integer.MODES if op == "fma" else integer.MODES[1:]
    what = f"\nbinary16 {op}, {STRATIFIED:,} stratified in each of {', '.join(modes)}"
    done = judge.sweep(what, stratified(op, "binary16", modes, STRATIFIED, BLOCK // 4))
    assert done >= STRATIFIED * len(modes)


@pytest.mark.parametrize("op", [*FOUR, "fma"])
def test_results_and_flags_of_the_counting_kernel(op: str) -> None:
    """Counting goes through another kernel than plain nearest even: the same bits, and the right counts."""

    def block(seed: int) -> int:
        columns = strata.operands(op, "binary16", BLOCK // 4, seed)[: 3 if op == "fma" else 2]
        bits, flags = integer.compute(op, "nearest_even", *columns)
        judge.assert_counted(op, columns, bits, flags)
        return len(bits)

    judge.sweep(f"\nbinary16 {op}, counted, nearest_even", (partial(block, seed) for seed in range(24)))


def test_sqrt_of_every_binary16() -> None:
    draws = hashed(ALL)
    done = sum(judge.check("sqrt", "binary16", mode, (ALL,), draws=draws) for mode in integer.MODES)
    print(f"\nbinary16 sqrt, all inputs in {len(integer.MODES)} modes: {done:,} results, 0 differences")


def float64_block(fmt: str, modes: tuple[str, ...], source: str, size: int, seed: int) -> int:
    words = strata.sources(fmt, source, size, seed)
    draws = strata.random_bits(len(words), seed)
    return sum(judge.check("convert", fmt, mode, (words,), source=source, draws=draws) for mode in modes)


@pytest.mark.parametrize("fmt", list(exact.FORMATS))
def test_stratified_conversions_in_every_mode(fmt: str) -> None:
    size, count = BLOCK // 4, STRATIFIED if fmt == "binary16" else WIDE
    for source in ("binary64",) if fmt in ("binary16", "binary32") else ("binary32", "binary64"):
        blocks = (
            partial(float64_block, fmt, integer.MODES, source, size, seed)
            for seed in range(-(-count // size))
        )
        what = f"\n{source} -> {fmt}, {count:,} stratified in each mode"
        assert judge.sweep(what, blocks) >= count * len(integer.MODES)


# --- the other formats ---


@pytest.mark.parametrize("fmt", ["e4m3", "e5m2"])
def test_every_pair_of_eight_bit_floats(fmt: str) -> None:
    every = np.arange(256, dtype=np.uint8)
    columns = (np.repeat(every, 256), np.tile(every, 256))
    draws = hashed(np.arange(65536))
    done = 0
    for mode in integer.MODES:
        done += sum(judge.check(op, fmt, mode, columns, draws=draws) for op in FOUR)
        done += judge.check("sqrt", fmt, mode, (every,), draws=draws[:256])
    print(f"\n{fmt}, all pairs of {', '.join(FOUR)} and all sqrt in 7 modes: {done:,} results, 0 differences")


@pytest.mark.parametrize("fmt", ["e4m3", "e5m2"])
def test_stratified_triples_of_eight_bit_floats(fmt: str) -> None:
    blocks = stratified("fma", fmt, integer.MODES, 1 << 20, 1 << 18)
    judge.sweep(f"\n{fmt} fma, stratified, 7 modes", blocks)


@pytest.mark.parametrize("source", ["binary16", "bfloat16", "tf32", "e4m3", "e5m2"])
def test_every_value_to_every_format(source: str) -> None:
    spec = exact.FORMATS[source]
    every = np.arange(1 << (spec.exponent_bits + spec.precision), dtype=spec.dtype)
    done = 0
    for fmt in exact.FORMATS:
        if "tf32" in (source, fmt) and source == fmt:
            continue
        for mode in integer.MODES:
            if source == "tf32":  # carried as float32, and converted as such
                wide = every << judge.TF32_PADDING
                done += judge.check("convert", fmt, mode, (wide,), source="binary32", draws=hashed(every))
            else:
                done += judge.check("convert", fmt, mode, (every,), source=source, draws=hashed(every))
    print(f"\n{source}, all values to every format in 7 modes: {done:,} results, 0 differences")


def test_sqrt_of_every_bfloat16_and_tf32() -> None:
    done = 0
    for fmt, width in (("bfloat16", 16), ("tf32", 19)):
        every = np.arange(1 << width, dtype=exact.FORMATS[fmt].dtype)
        for mode in integer.MODES:
            done += judge.check("sqrt", fmt, mode, (every,), draws=hashed(every))
    print(f"\nbfloat16 and tf32 sqrt, all inputs in 7 modes: {done:,} results, 0 differences")


@pytest.mark.parametrize("op", [*FOUR, "fma"])
@pytest.mark.parametrize("fmt", ["bfloat16", "tf32", "binary32"])
def test_stratified_operands_of_wide_formats(fmt: str, op: str) -> None:
    what = f"\n{fmt} {op}, {WIDE:,} stratified in each of 7 modes"
    done = judge.sweep(what, stratified(op, fmt, integer.MODES, WIDE, BLOCK // 8))
    assert done >= WIDE * len(integer.MODES)


def test_sqrt_of_stratified_binary32() -> None:
    def block(seed: int) -> int:
        words = strata.operands("divide", "binary32", BLOCK // 8, seed)[0]
        draws = strata.random_bits(len(words), seed)
        return sum(judge.check("sqrt", "binary32", mode, (words,), draws=draws) for mode in integer.MODES)

    judge.sweep("\nbinary32 sqrt, stratified, 7 modes", (partial(block, seed) for seed in range(20)))
