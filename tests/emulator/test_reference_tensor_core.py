"""The tensor-core model: results read off cards, the cases that sources disagree on, and planted faults."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import fp16sim as fs
from fp16sim.emulator.datapath import Datapath, as_datapath
from fp16sim.emulator.flags import INEXACT, INVALID, OVERFLOW, SUBNORMAL, UNDERFLOW
from fp16sim.emulator.formats import bfloat16, binary16, binary32, e5m2
from fp16sim.emulator.reference_dot import Accumulation, accumulate, dot

VECTORS = Path(__file__).parents[1] / "data" / "tensor_core_vectors.npz"
CARDS = ("V100", "A100", "H100")
HALF_NAN, SINGLE_NAN = 0x7FFF, 0x7FFFFFFF


def half(*values: float) -> list[int]:
    return [int(bits) for bits in binary16.encode(np.array(values))]


def single(value: float) -> int:
    return int(binary32.encode(value))


def run(name: str | Datapath, a: Sequence[int], b: Sequence[int], c: int = 0) -> Accumulation:
    path = as_datapath(name)
    return dot(a, b, c, binary16, path, path.result_format(binary16))


# Results read off cards.


@cache
def vectors(card: str) -> dict[str, npt.NDArray[np.generic]]:
    with np.load(VECTORS) as data:
        return {name: data[f"{card}_{name}"] for name in ("a", "b", "c", "d32", "d16")}


def mismatches(card: str, count: int, path: Datapath) -> int:
    """How many of the first results of a card a datapath does not give, bit for bit."""
    data = vectors(card)
    kind = "d16" if path.accumulator == binary16 else "d32"
    c, d = (x[:count].astype(data[kind].dtype) for x in (data["c"], data[kind]))
    words = f"u{d.dtype.itemsize}"
    rows = (
        data["a"][:count].view(np.uint16),
        data["b"][:count].view(np.uint16),
        c.view(words),
        d.view(words),
    )
    return sum(
        run(path, a, b, start).bits != end
        for a, b, start, end in zip(*map(np.ndarray.tolist, rows), strict=True)
    )


@pytest.mark.parametrize("name", [card.lower() + suffix for card in CARDS for suffix in ("", ":float16")])
def test_results_of_cards_a_sample(name: str) -> None:
    assert mismatches(name.removesuffix(":float16").upper(), 200, as_datapath(name)) == 0


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("kind, suffix", [("d32", ""), ("d16", ":float16")])
def test_matmul_gives_all_results_of_cards(card: str, kind: str, suffix: str) -> None:
    data = vectors(card)
    start = data["c"].astype(data[kind].dtype).reshape(-1, 1, 1)
    result = fs.matmul(
        data["a"][:, np.newaxis, :], data["b"][:, :, np.newaxis], card.lower() + suffix, c=start
    )
    words = f"u{result.dtype.itemsize}"
    wrong = np.count_nonzero(result.view(words)[:, 0, 0] != data[kind].view(words))
    assert (result.dtype, len(result), wrong) == (data[kind].dtype, 2000, 0)


@pytest.mark.slow
def test_results_of_cards_all() -> None:
    started = time.perf_counter()
    paths = [(card, as_datapath(card.lower() + suffix)) for card in CARDS for suffix in ("", ":float16")]
    wrong = {path.name: mismatches(card, 2000, path) for card, path in paths}
    print(f"\n12,000 results of V100, A100, H100: {wrong}, {time.perf_counter() - started:.1f} s")
    assert sum(wrong.values()) == 0


@pytest.mark.parametrize("name", [card.lower() for card in CARDS])
def test_a_planted_fault_shows_in_the_results_of_cards(name: str) -> None:
    path = as_datapath(name)
    faults = [
        replace(path, fraction_bits=path.fraction_bits - 1),  # type: ignore[operator]
        replace(path, fraction_bits=path.fraction_bits + 1),  # type: ignore[operator]
        replace(path, block_rounding="nearest_even"),
        replace(path, block=path.block // 2),
    ]
    for fault in faults:
        assert mismatches(name.upper(), 200, fault) > 3, fault


# How terms are aligned.


def test_a_product_is_aligned_by_the_sum_of_its_factors_exponents() -> None:
    # 1.5 * 1.5 = 2.25 aligns as 2^0, so a term of 2^-24 stays whole; 1.125 * 2 = 2.25 aligns as 2^1 and cuts it.
    small = half(2.0**-12)
    kept = run("a100", half(1.5) + small * 2, half(1.5) + small * 2)
    cut = run("a100", half(1.125) + small * 2, half(2.0) + small * 2)
    assert kept.bits == cut.bits == single(2.25)  # rounded toward zero: 2^-23 is half an ulp of 2.25
    low = run("a100", half(1.5) + small * 4, half(1.5) + small * 4)
    assert (low.bits, run("a100", half(1.125) + small * 4, half(2.0) + small * 4).bits) == (
        single(2.25 + 2.0**-22),
        single(2.25),
    )


def test_terms_are_cut_toward_zero_without_a_sticky_bit() -> None:
    for sign in (1.0, -1.0):
        # Each of two products of 2^-25 is below the last bit kept, though their sum is not.
        lost = run("a100", half(1, 2.0**-12, 2.0**-12), half(sign, sign * 2.0**-13, sign * 2.0**-13))
        assert lost.bits == single(sign)
        assert lost.flags == [INEXACT]
    # A tie would not be broken by what was cut off: float16 results round 1 + 2^-11 to even.
    tie = run("a100:float16", half(1, 2.0**-11, 2.0**-13), half(1, 1, 2.0**-13))
    assert tie.bits == half(1)[0]


def test_the_accumulator_takes_part_in_the_alignment() -> None:
    big = 2.0**30
    assert run("h100", half(1, 1), half(1, 1), single(big)).bits == single(big)
    # Products that cancel the accumulator exactly leave what survived the cut, no more.
    left = run("h100", half(2.0**15, 32, 8), half(-(2.0**15), 1, 1), single(big))
    assert left.bits == single(32.0)


def test_subnormal_operands_are_not_flushed_and_align_at_the_smallest_exponent() -> None:
    tiny = half(2.0**-24)
    assert run("v100", tiny, tiny).bits == single(2.0**-48)
    assert run("v100", tiny, half(1)).bits == single(2.0**-24)
    # 2^-24 has exponent -14: aligned at 2^-14, F = 23 bits reach 2^-37.
    assert run("v100", half(2.0**-24, 2.0**-19), half(1, 2.0**-19)).bits == single(2.0**-24)
    assert run("v100", half(2.0**-24, 2.0**-18), half(1, 2.0**-19)).bits == single(2.0**-24 + 2.0**-37)


@pytest.mark.parametrize("name", ["v100", "turing", "a100", "ada", "h100", "blackwell"])
@pytest.mark.parametrize("exponent", [-149, -140, -127, -126, -110, -60])
def test_tiny_accumulators_survive_products_that_are_zero(name: str, exponent: int) -> None:
    for c in (2.0**exponent, -(2.0**exponent)):
        for k in (1, 5, 33):
            for zero in (0.0, -0.0):
                assert run(name, half(zero) * k, half(3) * k, single(c)).bits == single(c)
    # Products that cancel are not zero: they align the block, and cut off what is so far below.
    products = half(1, 1), half(1, -1)
    assert run(name, *products, single(2.0**exponent)).bits == single(0.0)
    # The smallest product that there is, 2^-48, aligns at 2^-28.
    least = run(name, half(2.0**-24, 2.0**-24), half(2.0**-24, -(2.0**-24)), single(2.0**exponent))
    assert least.bits == single(0.0)


def test_a_subnormal_result_of_bfloat16_is_produced() -> None:
    a100 = as_datapath("a100")
    a, b = ([int(bfloat16.encode(x))] for x in (2.0**-70, 2.0**-70))
    result = dot(a, b, 0, bfloat16, a100, binary32)
    assert result == (single(2.0**-140), [SUBNORMAL], 0)
    # 2^-150 is below the smallest subnormal; toward zero leaves a zero.
    b = [int(bfloat16.encode(-(2.0**-80)))]
    assert dot(a, b, 0, bfloat16, a100, binary32) == (0, [UNDERFLOW | INEXACT], 0)
    signed = replace(a100, keep_negative_zero=True)
    assert dot(a, b, 0, bfloat16, signed, binary32) == (0x80000000, [UNDERFLOW | INEXACT], 0)


# What leaves the range.


def test_a_float32_result_overflows_to_infinity_although_it_rounds_toward_zero() -> None:
    huge, two = (int(bfloat16.encode(x)) for x in (2.0**127, 2.0))
    for name in ("v100", "turing", "a100", "ada", "h100", "blackwell"):
        # An ulp of the largest number is 2^104: below, nothing happens.
        assert run(name, half(2.0**15) * 2, half(2.0**15) * 2, binary32.max_bits).bits == binary32.max_bits
        path = as_datapath(name)
        if bfloat16 in path.inputs:
            overflow = dot([huge], [two], 0, bfloat16, path, binary32)
            assert overflow == (binary32.inf_bits, [OVERFLOW | INEXACT], 0)
            assert dot([huge | 0x8000], [two], 0, bfloat16, path, binary32).bits == 0xFF800000


def test_a_float16_result_overflows_from_65520_after_every_block() -> None:
    for name, block in (("v100:float16", 4), ("a100:float16", 8), ("h100:float16", 16)):
        assert run(name, half(65504, 15.5), half(1, 1)).bits == half(65504)[0]
        assert run(name, half(65504, 16), half(1, 1)).bits == binary16.inf_bits
        # Inside a block the sum may pass 65504; between two it may not.
        one = run(name, half(65504, 65504, -65504), half(1, 1, 1))
        assert (one.bits, one.flags) == (half(65504)[0], [0])
        padding = half(0) * (block - 2)
        two = run(name, half(65504, 65504) + padding + half(-65504), half(1, 1) + padding + half(1))
        assert (two.bits, two.flags) == (binary16.inf_bits, [OVERFLOW | INEXACT, 0])


@pytest.mark.parametrize(
    "name, nan, infinity", [("a100", SINGLE_NAN, 0x7F800000), ("a100:float16", HALF_NAN, 0x7C00)]
)
def test_infinities_and_nan(name: str, nan: int, infinity: int) -> None:
    inf = float("inf")
    sign = infinity ^ (0xFF800000 if infinity > 0xFFFF else 0xFC00)
    quiet, signalling = 0x7E00, 0x7C01
    cases = [
        (half(inf), half(2), 0, infinity, 0),
        (half(inf), half(-2), 0, infinity | sign, 0),
        (half(inf), half(0), 0, nan, INVALID),
        (half(inf, inf), half(1, 1), 0, infinity, 0),
        (half(inf, inf), half(1, -1), 0, nan, INVALID),
        (half(inf), half(1), infinity | sign, nan, INVALID),
        (half(1), half(1), infinity, infinity, 0),
        (half(0), half(1), infinity, infinity, 0),
        ([quiet], half(1), 0, nan, 0),
        ([signalling], half(1), 0, nan, INVALID),
        ([0xFE55], half(1), 0, nan, 0),
        (half(1), half(1), infinity | 1, nan, INVALID),
        ([], [], infinity | 1, nan, 0),  # nothing is rounded: no flag
    ]
    for a, b, c, bits, flags in cases:
        result = run(name, a, b, c)
        assert (result.bits, sum(result.flags)) == (bits, flags), (a, b, hex(c))
    # In another format the NaN is that format's.
    assert dot([quiet], half(1), 0, binary16, as_datapath("a100"), binary16).bits == 0x7E00
    assert dot([quiet], half(1), 0, binary16, as_datapath("a100:float16"), binary32).bits == 0x7FC00000


def test_the_nan_of_a_narrow_accumulator_is_that_of_its_float32_result() -> None:
    one, nan = int(e5m2.encode(1.0)), e5m2.nan_bits
    path = as_datapath("h100:fp8")
    assert dot([nan], [one], 0, e5m2, path, binary32).bits == SINGLE_NAN
    assert dot([one], [one], 0, e5m2, path, binary32).bits == single(1.0)


# Blocks and their order.


def test_a_long_sum_is_a_chain_of_blocks_filled_up_with_zeros() -> None:
    rng = np.random.Generator(np.random.PCG64(3))
    for name in ("v100", "a100", "h100", "v100:float16", "a100:float16", "h100:float16"):
        path = as_datapath(name)
        for length in (1, 3, path.block, path.block + 1, 3 * path.block - 1, 40):
            a, b = (x.astype(np.float16).view(np.uint16).tolist() for x in rng.normal(size=(2, length)))
            chained = 0
            for first in range(0, length, path.block):
                chained = run(
                    path, a[first : first + path.block], b[first : first + path.block], chained
                ).bits
            assert run(path, a, b).bits == chained
            padding = half(0) * (-length % path.block)
            assert run(path, a + padding, b + padding).bits == chained
            assert len(run(path, a, b).flags) == -(-length // path.block)


def test_within_a_block_order_does_not_matter() -> None:
    a, b = half(1, 2.0**-12, 2.0**-12, -3.0), half(1, 2.0**-12, 2.0**-12, 0.25)
    results = {
        run("a100", [a[i] for i in order], [b[i] for i in order]).bits
        for order in itertools.permutations(range(4))
    }
    assert len(results) == 1


def test_the_float16_accumulator_is_rounded_after_every_block() -> None:
    ones = half(1) * 64
    # Blocks of 4 on top of 8180 (ulp 4) reach 8192 (ulp 8): there the tie goes to even, 13 times.
    total = run("v100:float16", ones, ones, half(8180)[0])
    assert (total.bits, total.swamped, len(total.flags)) == (half(8192)[0], 13, 16)
    assert run("a100:float16", ones, ones, half(8192)[0]).bits == half(8256)[0]
    assert run("v100", ones, ones, single(8180.0)) == (single(8244.0), [0] * 16, 0)


def test_swamped_blocks() -> None:
    big = single(2.0**30)
    assert run("a100", half(1, 1), half(1, 1), big).swamped == 1
    assert run("a100", half(1, -1), half(1, 1), big).swamped == 1  # cut off before they could cancel
    assert run("a100", half(64, -64), half(1, 1), big).swamped == 0  # they cancel: nothing was to be added
    assert run("a100", half(0, 0), half(1, 1), big).swamped == 0
    assert run("a100", half(1), half(1)).swamped == 0
    assert run("a100", half(1), half(1), binary32.inf_bits or 0).swamped == 0


def test_a_sum_takes_its_values_as_products_with_one() -> None:
    rng = np.random.Generator(np.random.PCG64(4))
    values = rng.integers(0, 0x7C00, 50) | rng.integers(0, 2, 50) << 15
    for name in ("a100", "h100:float16"):
        path = as_datapath(name)
        one = half(1) * 50
        assert accumulate(values.tolist(), binary16, path, binary32) == dot(
            values.tolist(), one, 0, binary16, path, binary32
        )


# Where sources disagree. Each row: the products, the accumulator, and what the readings give times 2^24.

KHATTAK = {
    name: replace(as_datapath(name), zero_exponent=floor, normalized_accumulator=True)
    for name, floor in (("v100:float16", -19), ("a100:float16", -20), ("h100:float16", -21))
}
MMA_SIM_2_1 = replace(as_datapath("h100:float16"), zero_exponent=-21)
MMA_SIM_2026_01 = replace(as_datapath("h100:float16"), zero_exponent=None)


def power(exponent: int) -> tuple[int, int]:
    """Two factors whose product is 2^exponent."""
    first = max(-24, exponent // 2)
    return half(2.0**first)[0], half(2.0 ** (exponent - first))[0]


@pytest.mark.parametrize("c, exponents, khattak, newest, mma, wgmma, older", [
    (0.0, (-25, -46), 1, 1, 1, 1, 1),
    (0.0, (-25, -47), 0, 0, 1, 1, 1),
    (0.0, (-25, -48), 0, 0, 0, 1, 1),
    *((2.0**-23, (-25, -k), 3, 2, 2, 2, 2) for k in range(40, 47)),
])  # fmt: skip
def test_tiny_products_in_float16_accumulators(
    c: float, exponents: tuple[int, int], khattak: int, newest: int, mma: int, wgmma: int, older: int
) -> None:
    a, b = map(list, zip(*map(power, exponents), strict=True))
    readings = [
        (KHATTAK["h100:float16"], khattak),
        (MMA_SIM_2_1, newest),
        (as_datapath("h100:float16"), mma),
        (as_datapath("blackwell:float16"), mma),
        (as_datapath("h100_wgmma:float16"), wgmma),
        (as_datapath("blackwell_tcgen05:float16"), wgmma),
        (MMA_SIM_2026_01, older),
    ]
    for path, expected in readings:
        assert run(path, a, b, half(c)[0]).bits == expected, path


@pytest.mark.parametrize("name, zero", [("v100:float16", -20), ("turing:float16", -21), ("a100:float16", -21),
                                        ("ada:float16", -21), ("h100:float16", -22)])  # fmt: skip
def test_a_zero_accumulator_aligns_by_an_exponent_of_its_own(name: str, zero: int) -> None:
    path = as_datapath(name)
    assert path.zero_exponent == zero
    assert path.fraction_bits is not None
    last = zero - path.fraction_bits  # the last bit kept
    tie = power(-25)
    for exponent, expected in ((last, 1), (last - 1, 0)):
        other = power(exponent)
        if exponent < -48:
            continue
        assert run(path, [tie[0], other[0]], [tie[1], other[1]]).bits == expected, exponent
    # With any accumulator but zero, its own exponent, -14 at least, is what counts.
    other = power(last)
    assert run(path, [tie[0], other[0]], [tie[1], other[1]], 0x0001).bits == 0x0002  # 1.5: a tie, to even
    # With float32 results nothing of this shows: every product is above what any of these exponents cuts.
    wide = replace(as_datapath(name.removesuffix(":float16")), zero_exponent=None)
    given = as_datapath(name.removesuffix(":float16"))
    for exponent in range(-48, -24):
        other = power(exponent)
        pair = [tie[0], other[0]], [tie[1], other[1]]
        assert run(given, *pair) == run(wide, *pair)


def test_a_zero_accumulator_cuts_tiny_bfloat16_products() -> None:
    a100 = as_datapath("a100")
    small = [int(bfloat16.encode(x)) for x in (2.0**-75, 2.0**-74)]
    one = dot(small[:1], small[:1], 0, bfloat16, a100, binary32)
    two = dot(small[:1], small[1:], 0, bfloat16, a100, binary32)
    assert (one.bits, two.bits) == (0, 1)
    # Aligned at -132, bits down to 2^-156 are kept: 2^-157 is gone before it could add up.
    values = [int(bfloat16.encode(x)) for x in (2.0**-78, 2.0**-79)]
    lost = dot([values[0]] * 8, [values[1]] * 8, 0, bfloat16, a100, binary32)
    free = dot([values[0]] * 8, [values[1]] * 8, 0, bfloat16, replace(a100, zero_exponent=None), binary32)
    assert lost.flags[0] & INEXACT
    assert (lost.bits, free.bits) == (0, 0)  # 2^-154 is no float32 either way


def test_what_a_block_of_zeros_does_with_a_negative_zero() -> None:
    minus = 0x80000000
    kept = replace(as_datapath("v100"), keep_negative_zero=True)
    negative, positive = half(-0.0) * 4, half(0.0) * 4
    one = half(1) * 4
    assert run("v100", negative, one, minus).bits == 0
    assert run(kept, negative, one, minus).bits == minus
    assert run(kept, positive, one, minus).bits == 0
    assert run(kept, negative, one, 0).bits == 0
    assert run(kept, negative[:3], one[:3], minus).bits == 0  # the fourth product is +0
    assert run(kept, half(1, -1, 0, 0), one, 0).bits == 0
    assert run("v100", [], [], minus).bits == minus  # no block at all


def test_a_negative_sum_that_is_rounded_to_zero() -> None:
    half_of_least = half(2.0**-12), half(-(2.0**-13))  # -2^-25: a tie with zero
    path = as_datapath("h100:float16")
    assert run(path, *half_of_least) == (0, [UNDERFLOW | INEXACT], 0)
    assert run(replace(path, keep_negative_zero=True), *half_of_least).bits == 0x8000
    # Cut to nothing before it is added, it has no sign to keep.
    lost = run(replace(path, keep_negative_zero=True), half(1, -1, -(2.0**-13)), half(1, 1, 2.0**-13))
    assert lost == (0, [INEXACT], 0)


def test_an_accumulator_is_handed_on_whole_where_the_block_keeps_fewer_bits_than_it_has() -> None:
    coarse = Datapath("coarse", block=4, fraction_bits=8, block_rounding="toward_zero", out_format=binary32)
    c = single(1 + 2.0**-23)
    assert run(coarse, half(0), half(1), c) == (c, [0], 0)
    assert run(coarse, half(1), half(1), c).bits == single(2.0)


def test_flags_of_what_is_cut_off() -> None:
    # The sum of what was kept is exact in the accumulator; the block is inexact all the same.
    assert run("a100", half(1, 2.0**-13), half(1, 2.0**-13)) == (single(1.0), [INEXACT], 0)
    subnormal = run("a100:float16", half(2.0**-24, 2.0**-24), half(1, 2.0**-24), 0)
    assert subnormal == (1, [UNDERFLOW | INEXACT | SUBNORMAL], 0)
    assert run("a100:float16", half(2.0**-24), half(1)) == (1, [SUBNORMAL], 0)
