"""bfloat16 through binary32, which rounds twice: every pair of operands against integers that are rounded once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pytest
from fp16sim_encodings import STYLES, draw
from fp16sim_oracles import judge, strata

from fp16sim.emulator.backends import Backend, current
from fp16sim.emulator.formats import Format, bfloat16, binary16, binary32, binary64
from fp16sim.emulator.rounding import Rounding

Array = npt.NDArray[Any]
FOUR = ("add", "subtract", "multiply", "divide")
PLAIN = Rounding()
ALL = np.arange(65536, dtype=np.uint16)
BLOCK = 1 << 22
NAN = 0x7FC0


@numba.njit(nogil=True)
def rounded(negative: Any, whole: Any, exponent: Any, rest: Any) -> Any:
    """Round (whole + something below 1 if rest) * 2^exponent once; a rest comes with 20 bits of whole at least."""
    sign = 0x8000 if negative else 0
    if whole == 0:
        return sign
    length = (np.float64(whole).view(np.int64) >> 52) - 1022  # exact: whole has fewer than 53 bits
    shift = max(length - 8, -133 - exponent)  # to 8 bits, and to multiples of 2^-133
    if shift > 40:
        return sign
    if shift > 0:
        kept = whole >> shift
        lost, half = whole - (kept << shift), 1 << (shift - 1)
        kept += lost > half or (lost == half and (rest or kept & 1))
    else:
        kept = whole << -shift
    unit = exponent + shift + 133
    code = (
        kept if unit == 0 and kept < 256 else (unit << 7) + kept
    )  # 128 <= kept <= 256 adds one to the exponent
    return sign | min(code, 0x7F80)


@numba.njit(nogil=True)
def operate(operation: Any, a: Any, b: Any) -> Any:
    """Perform one of `FOUR`, by its place, in integers."""
    if operation == 1:
        b ^= 0x8000
    a_negative, b_negative = a >> 15, b >> 15
    a &= 0x7FFF
    b &= 0x7FFF
    negative = a_negative ^ b_negative
    if a > 0x7F80 or b > 0x7F80:
        return 0x7FC0
    # Significands, and the exponents of their last bits.
    m, e = (a & 127 | 128, (a >> 7) - 134) if a >> 7 else (a & 127, -133)
    n, f = (b & 127 | 128, (b >> 7) - 134) if b >> 7 else (b & 127, -133)
    if operation == 2:
        if a == 0x7F80 or b == 0x7F80:
            return 0x7FC0 if a == 0 or b == 0 else negative << 15 | 0x7F80
        return rounded(negative, m * n, e + f, False)
    if operation == 3:
        if a == 0x7F80 or b == 0:
            return 0x7FC0 if a == b or (a == 0 and b == 0) else negative << 15 | 0x7F80
        if b == 0x7F80:
            return negative << 15
        quotient = (m << 30) // n
        return rounded(negative, quotient, e - f - 30, quotient * n != m << 30)
    if a == 0x7F80 or b == 0x7F80:
        if a == b and negative:
            return 0x7FC0
        return (a_negative if a == 0x7F80 else b_negative) << 15 | 0x7F80
    if a < b:
        m, e, n, f, a_negative, b_negative = n, f, m, e, b_negative, a_negative
    # 2^34 units of the larger one; what is beyond 40 places smaller only says to which side of it the sum lies.
    distance = e - f
    m <<= 34
    rest = distance > 34 and n != 0
    n = 0 if distance > 34 else n << (34 - distance)
    if negative:
        total = m - n - rest
        return rounded(a_negative, total, e - 34, rest) if total else 0
    if m + n == 0:
        return a_negative << 15
    return rounded(a_negative, m + n, e - 34, rest)


@numba.njit(nogil=True)
def first_difference(operation: Any, a: Any, b: Any, got: Any) -> Any:
    for i in range(got.size):
        if operate(operation, np.int64(a[i]), np.int64(b[i])) != got[i]:
            return i
    return -1


def check(op: str, a: Array, b: Array) -> int:
    got = current().elementwise(op, [a, b], bfloat16, PLAIN).bits
    wrong = first_difference(FOUR.index(op), a, b, got)
    assert wrong < 0, f"{op}({int(a[wrong]):#x}, {int(b[wrong]):#x}) gives {int(got[wrong]):#x}"
    return len(got)


@pytest.mark.parametrize("op", FOUR)
def test_the_integers_of_this_test_are_those_of_the_exact_routine(op: str) -> None:
    rng = np.random.Generator(np.random.PCG64(FOUR.index(op)))
    columns = [strata.operands(op, "bfloat16", 60_000, 3)[:2]]
    columns += [
        (draw(rng, bfloat16, (2000,), x), draw(rng, bfloat16, (2000,), y)) for x in STYLES for y in STYLES
    ]
    for a, b in columns:
        right = judge.expected(op, "bfloat16", "nearest_even", (a, b))
        wrong = first_difference(FOUR.index(op), a, b, right)
        assert wrong < 0, (hex(a[wrong]), hex(b[wrong]), hex(right[wrong]))
    assert first_difference(FOUR.index(op), a, b, right ^ np.uint16(1)) == 0  # a planted fault


@pytest.mark.parametrize("op", FOUR)
def test_pairs_of_bfloat16(op: str) -> None:
    """Whole rows beside edges, tiny results of every kind, and pairs at random."""
    rng = np.random.Generator(np.random.PCG64(4))
    for first in (
        0,
        1,
        2,
        0x7F,
        0x80,
        0x81,
        0xFF,
        0x3F7F,
        0x3F80,
        0x3F81,
        0x7F7F,
        0x7F80,
        0x7F81,
        0x8001,
        0xC049,
    ):
        check(op, np.full(65536, first, np.uint16), ALL)
        check(op, ALL, np.full(65536, first, np.uint16))
    a, b = (rng.integers(0, 65536, 1 << 20, dtype=np.uint16) for _ in range(2))
    check(op, a, b)
    # Products and quotients around 2^-134, where a first rounding could reach the boundary.
    exponents = rng.integers(0, 140, 1 << 20)
    others = 121 - exponents if op == "multiply" else exponents + 127 + 6
    small = (exponents.clip(0, 254) << 7 | a & 127).astype(np.uint16)
    other = ((others + rng.integers(-8, 9, 1 << 20)).clip(0, 254) << 7 | b & 0x807F).astype(np.uint16)
    check(op, small, other)


@pytest.mark.slow
@pytest.mark.parametrize("op", FOUR)
def test_every_pair_of_bfloat16(op: str) -> None:
    def block(first: int) -> int:
        return check(op, np.repeat(ALL[first : first + BLOCK // 65536], 65536), np.tile(ALL, BLOCK // 65536))

    blocks: list[Callable[[], int]] = [partial(block, first) for first in range(0, 65536, BLOCK // 65536)]
    assert judge.sweep(f"\nbfloat16 {op}, all pairs, nearest_even", blocks) == 1 << 32


def test_square_roots_and_conversions_of_every_16_bit_float() -> None:
    """By the kernels that count, in integers, and by the definition every 31st."""
    some = ALL[::31]
    for fmt in (bfloat16, binary16):
        got = current().elementwise("sqrt", [ALL], fmt, PLAIN).bits
        assert np.array_equal(got, current().elementwise("sqrt", [ALL], fmt, PLAIN, None, "counts").bits)
        assert np.array_equal(got[::31], Backend().elementwise("sqrt", [some], fmt, PLAIN).bits)
    for source, target in (
        (bfloat16, binary32),
        (bfloat16, binary16),
        (binary16, bfloat16),
        (binary16, binary32),
    ):
        got = current().convert(ALL, source, target, PLAIN).bits
        assert np.array_equal(got, current().convert(ALL, source, target, PLAIN, None, "counts").bits)
        assert np.array_equal(got[::31], Backend().convert(some, source, target, PLAIN).bits)


def narrowed(words: Array) -> int:
    """Round binary32 to bfloat16 by comparing what is dropped with a half, and compare."""
    wide = words.astype(np.int64)
    kept, lost = wide >> 16, wide & 0xFFFF
    kept += (lost > 0x8000) | ((lost == 0x8000) & (kept & 1 == 1))
    kept[(wide & 0x7FFFFFFF) > 0x7F800000] = NAN
    assert np.array_equal(current().convert(words, binary32, bfloat16, PLAIN).bits, kept)
    return len(words)


def test_binary32_to_bfloat16() -> None:
    narrowed(np.arange(0, 2**32, 4099, dtype=np.uint64).astype(np.uint32))
    edges = (ALL.astype(np.uint32) << np.uint32(16))[:, np.newaxis] + np.uint32(
        [0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF]
    )
    narrowed(edges.reshape(-1))
    words = strata.sources("bfloat16", "binary32", 100_000, 8)
    judge.check("convert", "bfloat16", "nearest_even", (words,), source="binary32")


@pytest.mark.parametrize("fmt", [bfloat16, binary32], ids=lambda fmt: fmt.name)
def test_binary64_is_rounded_once(fmt: Format) -> None:
    words = strata.sources(fmt.name, "binary64", 100_000, 9)
    judge.check("convert", fmt.name, "nearest_even", (words,), source="binary64")
    # Just beside boundaries of the format, by less than binary32 sees; the same, at every exponent, and beyond all.
    rng = np.random.Generator(np.random.PCG64(9))
    values = fmt.decode(rng.integers(0, fmt.max_bits, 20_000).astype(fmt.uint))
    above = fmt.decode(np.arange(2, dtype=fmt.uint))[1] / 2
    middles = values + np.maximum(above, np.ldexp(1.0, np.frexp(values)[1] - 1 - fmt.precision))
    close = np.concatenate(
        [values, middles, middles * (1 + 2.0**-52), middles * (1 - 2.0**-52), values * (1 + 2.0**-50)]
    )
    ends = np.array(
        [0.0, -0.0, np.inf, np.nan, 1e300, 5e-324, 2.0**-134, 2.0**-150, np.nextafter(2.0**-134, 1)]
    )
    words = np.concatenate([close, -close, ends, -ends]).view(np.uint64)
    got = current().convert(words, binary64, fmt, PLAIN).bits
    assert np.array_equal(got, current().convert(words, binary64, fmt, PLAIN, None, "counts").bits)
    some = slice(None, None, 997)
    assert np.array_equal(got[some], Backend().convert(words[some], binary64, fmt, PLAIN).bits)


@pytest.mark.slow
def test_every_binary32_to_bfloat16() -> None:
    def block(first: int) -> int:
        return narrowed(np.arange(first, first + BLOCK, dtype=np.uint64).astype(np.uint32))

    blocks: list[Callable[[], int]] = [partial(block, first) for first in range(0, 1 << 32, BLOCK)]
    assert judge.sweep("\nbinary32 -> bfloat16, nearest_even", blocks) == 1 << 32


@pytest.mark.parametrize(
    "fmt", [bfloat16, Format("bfloat16", 5, 11)], ids=["bfloat16", "another of its name"]
)
@pytest.mark.parametrize("rule", [
    Rounding(tininess="before"), Rounding("toward_zero"), Rounding(subnormals="flush"), Rounding(inputs="zero"),
    Rounding(saturate=True), Rounding("stochastic"),
], ids=str)  # fmt: skip
def test_other_rules_and_formats_do_not_take_the_fast_loops(fmt: Format, rule: Rounding) -> None:
    rng = np.random.Generator(np.random.PCG64(9))
    a, b = (draw(rng, fmt, (200,), style) for style in ("special", "any"))
    draws = rng.integers(0, 2**32, 200, dtype=np.uint32) if rule.mode == "stochastic" else None
    for op in FOUR:
        expected = Backend().elementwise(op, [a, b], fmt, rule, draws)
        assert np.array_equal(current().elementwise(op, [a, b], fmt, rule, draws).bits, expected.bits)
    words = np.concatenate(
        [a.astype(np.uint32) << np.uint32(16), rng.integers(0, 2**32, 200, dtype=np.uint32)]
    )
    draws = None if draws is None else np.tile(draws, 2)
    expected = Backend().convert(words, binary32, fmt, rule, draws)
    assert np.array_equal(current().convert(words, binary32, fmt, rule, draws).bits, expected.bits)
