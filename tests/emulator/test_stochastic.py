"""Stochastic rounding: exact thresholds, one result for any split of the work, and the right frequencies."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest

import fp16sim as fs
from fp16sim.emulator.backends.specs import signed
from fp16sim.emulator.kernels import half
from fp16sim.emulator.kernels.loops import fill_random
from fp16sim.emulator.random_bits import key_of, random_bits

ULP = 2.0**-10  # of numbers in [1, 2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "fraction", [Fraction(1, 2), Fraction(3, 8), Fraction(1, 2**13), Fraction(2**13 - 1, 2**13)]
)
@pytest.mark.parametrize("sign", [1, -1])
def test_rounds_away_exactly_below_the_threshold(dtype: type, fraction: Fraction, sign: int) -> None:
    threshold = int(fraction * 2**32)
    x = np.full(2, sign * (1 + float(fraction) * ULP), dtype)
    result = fs.round_to(x, rounding="stochastic", random_bits=[threshold - 1, threshold])
    assert result.tolist() == [sign * (1 + ULP), sign * 1.0]


def test_the_threshold_of_a_float64_comes_from_all_its_bits() -> None:
    x = 1 + ULP * (2.0**-33)  # under 2^-32: floor gives 0, nothing rounds away
    assert fs.round_to(x, rounding="stochastic", random_bits=0) == 1
    x = 1 + ULP * (2.0**-32 + 2.0**-40)
    assert fs.round_to(np.full(2, x), rounding="stochastic", random_bits=[0, 1]).tolist() == [1 + ULP, 1]


def test_subnormals_and_the_way_to_infinity_are_drawn_too() -> None:
    bits = [2**31 - 1, 2**31]
    assert fs.round_to(np.full(2, 2.0**-25), rounding="stochastic", random_bits=bits).tolist() == [
        2.0**-24,
        0,
    ]
    assert fs.round_to(np.full(2, 65520.0), rounding="stochastic", random_bits=bits).tolist() == [
        np.inf,
        65504,
    ]
    assert (
        fs.round_to(np.full(2, -65536.0), rounding="stochastic", random_bits=[0, 2**32 - 1]).tolist()
        == [-np.inf] * 2
    )


def test_exact_values_draw_nothing() -> None:
    values = np.arange(65536, dtype=np.uint16).view(np.float16)
    for dtype in (np.float32, np.float64):
        rounded = fs.round_to(values.astype(dtype), rounding="stochastic", random_bits=0)
        expected = fs.round_to(values.astype(dtype))
        assert np.array_equal(rounded.view(np.uint16), expected.view(np.uint16))


def test_the_kernel_hash_is_the_definition() -> None:
    for seed, call, first in ((0, 0, 0), (2**64 - 1, 5, 2**32 - 4), (123456789, 2**40, 2**40 + 7)):
        key = key_of(seed, call)
        out = np.empty(8, np.uint32)
        fill_random(signed(key), first, out)
        assert out.tolist() == [random_bits(key, first + i) for i in range(8)]


@pytest.mark.parametrize("pieces", [1, 2, 4])
def test_one_result_for_any_number_of_threads(pieces: int) -> None:
    x = np.linspace(-3, 3, 100_003, dtype=np.float32)
    key = signed(key_of(11, 2))
    whole, parts = np.empty(x.size, np.uint16), np.empty(x.size, np.uint16)
    start = 2**32 - 50_000  # the index runs over a block of 2^32
    half.narrow_single_stochastic(x.view(np.uint32), start, key, whole)
    cuts = np.linspace(0, x.size, pieces + 1).astype(int)
    with ThreadPoolExecutor(pieces) as pool:
        tasks = [
            pool.submit(half.narrow_single_stochastic, x[a:b].view(np.uint32), start + a, key, parts[a:b])
            for a, b in zip(cuts[:-1], cuts[1:], strict=True)
        ]
        for task in tasks:
            task.result()
    assert np.array_equal(whole, parts)


def test_seed_and_call_choose_the_bits() -> None:
    x = np.full(1000, 1 + ULP / 2, np.float32)
    first = fs.round_to(x, rounding="stochastic", seed=1)
    assert np.array_equal(first, fs.round_to(x, rounding="stochastic", seed=1))
    for other in ({"seed": 2}, {"seed": 1, "call": 1}):
        assert not np.array_equal(first, fs.round_to(x, rounding="stochastic", **other))


@pytest.mark.parametrize("fraction", [0.5, 0.25, 0.001, 0.999])
def test_frequencies_over_a_million_draws(fraction: float) -> None:
    draws = 1_000_000
    x = np.full(draws, 1 + fraction * ULP)
    ups = np.count_nonzero(fs.round_to(x, rounding="stochastic", seed=42) > 1)
    deviation = (draws * fraction * (1 - fraction)) ** 0.5
    assert abs(ups - draws * fraction) < 4 * deviation  # the seed is fixed: this cannot flicker


def test_neighbouring_draws_are_independent() -> None:
    """Chi-squared over pairs of draws, in index and in call, cut to 4 bits each: 255 degrees of freedom."""
    bits = [np.empty(1_000_000, np.uint32) for _ in range(2)]
    for call in range(2):
        fill_random(signed(key_of(9, call)), 0, bits[call])
    for a, b in ((bits[0][:-1], bits[0][1:]), (bits[0], bits[1]), (bits[0], bits[0] << np.uint32(16))):
        cells = np.bincount((a >> 28) * 16 + (b >> 28), minlength=256)
        expected = a.size / 256
        assert float(((cells - expected) ** 2).sum()) / expected < 255 + 5 * (2 * 255) ** 0.5


def test_arithmetic_draws_from_the_exact_result() -> None:
    # 2048 + 2^-20 is no float32; its fraction of the spacing 2 is 2^-21, the threshold 2^11.
    operands = np.full(2, 2048, np.float16), np.full(2, 2.0**-20, np.float16)
    assert fs.add(*operands, rounding="stochastic", random_bits=[2**11 - 1, 2**11]).tolist() == [2050, 2048]
    # 1/3 lies 1/3 of a spacing over its lower neighbour 0x3555.
    thirds = fs.divide(
        np.ones(2, np.float16), 3.0, rounding="stochastic", random_bits=[2**32 // 3 - 1, 2**32 // 3]
    )
    assert thirds.view(np.uint16).tolist() == [0x3556, 0x3555]


def test_a_seed_is_needed() -> None:
    with pytest.raises(ValueError, match="seed=None: stochastic rounding draws random bits; pass seed=0"):
        fs.round_to(1.0, rounding="stochastic")
