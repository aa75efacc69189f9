"""Dot products and sums of the definition, operation by operation: against SoftFloat and MPFR."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import gmpy2
import pytest
from fp16sim_oracles import edges, mpfr, softfloat

from fp16sim.emulator.datapath import Datapath, as_datapath
from fp16sim.emulator.flags import INEXACT, INVALID
from fp16sim.emulator.formats import (
    Format,
    as_format,
    bfloat16,
    binary16,
    binary32,
    binary64,
    e4m3,
    tf32,
)
from fp16sim.emulator.reference_dot import Accumulation, accumulate, dot, trace_dot

Vector = list[int]
ONE = 0x3C00


class Naive:
    """The orders of summation written out with SoftFloat's operations on one format."""

    def __init__(self, fmt: str) -> None:
        self.fmt = fmt
        self.sign = 1 << (15 if fmt == "binary16" else 63 if fmt == "binary64" else 31)
        self.flags: list[int] = []

    def do(self, operation: str, *operands: int) -> int:
        bits, flags = softfloat.compute(operation, self.fmt, *operands)
        self.flags.append(flags)
        return bits

    def products(self, a: Vector, b: Vector) -> Vector:
        return [self.do("multiply", x, y) for x, y in zip(a, b, strict=True)]

    def in_order(self, terms: Vector, total: int) -> int:
        for term in terms:
            total = self.do("add", total, term)
        return total

    def sequential(self, a: Vector, b: Vector, c: int) -> int:
        return self.in_order(self.products(a, b), c)

    def fused(self, a: Vector, b: Vector, c: int) -> int:
        for x, y in zip(a, b, strict=True):
            c = self.do("fma", x, y, c)
        return c

    def pairwise(self, a: Vector, b: Vector, c: int) -> int:
        # Not the recursion: sums of 1, 2, 4, ... products are merged as a binary counter carries.
        stack: list[tuple[int, int]] = []
        for term in self.products(a, b):
            size = 1
            while stack and stack[-1][1] == size:
                term, size = self.do("add", stack.pop()[0], term), 2 * size
            stack.append((term, size))
        while len(stack) > 1:
            right = stack.pop()[0]
            stack.append((self.do("add", stack.pop()[0], right), 0))
        return self.do("add", c, stack[0][0]) if stack else c

    def in_pieces(self, length: int) -> Callable[[Vector, Vector, int], int]:
        def total(a: Vector, b: Vector, c: int) -> int:
            terms = self.products(a, b)
            for first in range(0, len(terms), length):
                c = self.do("add", c, self.in_order(terms[first : first + length], 0))
            return c

        return total

    def kahan(self, a: Vector, b: Vector, c: int) -> int:
        lost = 0
        for term in self.products(a, b):
            y = self.do("subtract", term, lost)
            t = self.do("add", c, y)
            lost = self.do("subtract", self.do("subtract", t, c), y)
            c = t
        return c


def canonical(bits: int, fmt: Format) -> int:
    code = bits & (fmt.sign_bit - 1)
    return fmt.nan_bits if code > fmt.max_bits and code != fmt.inf_bits else bits


def assert_same(ours: Accumulation, naive: Naive, bits: int, fmt: Format) -> None:
    assert ours.bits == canonical(bits, fmt)
    assert sorted(flags & softfloat.FLAGS for flags in ours.flags) == sorted(naive.flags)


def draw(rng: random.Random, fmt: str, length: int) -> tuple[Vector, Vector, int]:
    """Operands near each other and near the edges; every third time moderate ones, or NaN would win everywhere."""
    pairs = [edges.operands(rng, fmt, 2) for _ in range(length)]
    c = edges.encoding(rng, fmt)
    a, b = [x for x, _ in pairs], [y for _, y in pairs]
    if rng.randrange(3):
        exponent_bits, precision = edges.FORMATS[fmt]
        low, high = (((1 << exponent_bits - 1) + shift) << precision - 1 for shift in (-5, 3))
        a, b = (
            [rng.randint(low, high) | rng.getrandbits(1) << exponent_bits + precision - 1 for _ in x]
            for x in (a, b)
        )
        c = rng.randint(low, high)
    return a, b, c


ORDERS: dict[str, tuple[dict[str, object], Callable[[Naive, int], Callable[[Vector, Vector, int], int]]]] = {
    "sequential": ({}, lambda naive, n: naive.sequential),
    "fused": ({"fused": True}, lambda naive, n: naive.fused),
    "pairwise": ({"order": "pairwise"}, lambda naive, n: naive.pairwise),
    "blocks of 4": ({"order": "blocked", "block": 4}, lambda naive, n: naive.in_pieces(4)),
    "3 pieces": ({"order": "split_k", "splits": 3}, lambda naive, n: naive.in_pieces(max(1, -(-n // 3)))),
    "compensated": ({"compensated": True}, lambda naive, n: naive.kahan),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("fmt", [binary16, binary32, binary64], ids=lambda fmt: fmt.name)
def test_every_order_equals_softfloat_in_every_format(fmt: Format, order: str) -> None:
    fields, naively = ORDERS[order]
    path = Datapath(order, fmt, inputs=(fmt,), **fields)  # type: ignore[arg-type]
    rng = random.Random(f"{fmt.name} {order}")
    for _ in range(150):
        a, b, c = draw(rng, fmt.name, rng.choice((0, 1, 2, 3, 5, 8, 13)))
        naive = Naive(fmt.name)
        bits = naively(naive, len(a))(a, b, c)
        assert_same(dot(a, b, c, fmt, path, fmt), naive, bits, fmt)


@pytest.mark.parametrize("order", ORDERS)
def test_a_sum_is_a_dot_product_whose_products_are_given(order: str) -> None:
    fields, naively = ORDERS[order]
    path = Datapath(order, binary16, **fields)  # type: ignore[arg-type]
    rng = random.Random(f"sum {order}")
    for _ in range(150):
        values, _, _ = draw(rng, "binary16", rng.choice((0, 1, 2, 3, 5, 8, 13)))
        naive = Naive("binary16")
        naive.products = lambda a, b: a  # type: ignore[method-assign]
        naive.fused = lambda a, b, c: naive.in_order(a, c)  # type: ignore[method-assign]  # noqa: B023
        bits = naively(naive, len(values))(values, values, 0)
        assert_same(accumulate(values, binary16, path, binary16), naive, bits, binary16)


def test_a_planted_fault_shows() -> None:
    rng = random.Random("planted")
    wrong = 0
    for _ in range(100):
        a, b, c = draw(rng, "binary16", 13)
        naive = Naive("binary16")
        bits = canonical(naive.sequential(a[::-1], b[::-1], c), binary16)
        wrong += dot(a, b, c, binary16, as_datapath("float16"), binary16).bits != bits
    assert wrong > 20


def test_float32_accumulation_of_binary16() -> None:
    rng = random.Random("binary16 in binary32")
    for _ in range(200):
        a, b, _ = draw(rng, "binary16", rng.choice((1, 4, 9)))
        signalling = any(x & 0x7C00 == 0x7C00 and x & 0x3FF and not x & 0x200 for x in a + b)
        if signalling:  # converted, it would be quiet, and its product raise nothing
            continue
        c = edges.encoding(rng, "binary32")
        wide = [[softfloat.convert(x, "binary16", "binary32")[0] for x in v] for v in (a, b)]
        naive = Naive("binary32")
        bits = naive.sequential(*wide, c)
        ours = dot(a, b, c, binary16, as_datapath("float32"), binary32)
        assert_same(ours, naive, bits, binary32)
        # The product is exact, so fused or not gives the same bits, and as many flags but for the products'.
        fused = Datapath("fused", fused=True)
        assert dot(a, b, c, binary16, fused, binary32).bits == ours.bits
        narrow, flags = softfloat.convert(bits, "binary32", "binary16")
        result = dot(a, b, c, binary16, as_datapath("float32"), binary16)
        assert result.bits == canonical(narrow, binary16)
        assert result.flags[-1] & softfloat.FLAGS == flags & ~INVALID
        assert result.flags[:-1] == ours.flags


def test_bfloat16_and_tf32_are_fused_under_float32() -> None:
    # 2^64 * 2^64 = 2^128 would overflow on its own; added to -2^127 exactly, it does not.
    path = as_datapath("float32").for_operands(bfloat16)
    for fmt in (bfloat16, tf32):
        huge = int(fmt.encode(2.0**64))
        start = int(binary32.encode(-(2.0**127)))
        assert dot([huge], [huge], start, fmt, path, binary32) == (int(binary32.encode(2.0**127)), [0], 0)
        unfused = Datapath("unfused", inputs=(fmt,))
        assert dot([huge], [huge], start, fmt, unfused, binary32).bits == binary32.inf_bits


def test_bfloat16_rounds_products_and_sums_to_bfloat16() -> None:
    path = as_datapath("bfloat16")
    rng = random.Random("bfloat16")
    for _ in range(200):
        a, b, c = draw(rng, "bfloat16", 6)
        values = [bfloat16.decode(x) for x in (*a, *b, c)]
        if any(v != v or abs(v) > 2.0**60 for v in values):
            continue
        total = c
        for x, y in zip(a, b, strict=True):
            product, _ = mpfr.compute("multiply", x, y, fmt="bfloat16")
            total, _ = mpfr.compute("add", total, product, fmt="bfloat16")
        assert dot(a, b, c, bfloat16, path, bfloat16).bits == total


# The exact sum.


@pytest.mark.parametrize("fmt", ["binary16", "binary32", "bfloat16", "tf32"])
@pytest.mark.parametrize("target", [binary16, binary32, bfloat16], ids=lambda fmt: fmt.name)
def test_the_exact_sum_is_rounded_once(fmt: str, target: Format) -> None:
    operands = as_format(fmt)
    rng = random.Random(f"exact {fmt} {target.name}")
    many = gmpy2.context(precision=1200, emin=-2000, emax=2000)
    finite = 0
    for _ in range(150):
        a, b, _ = draw(rng, fmt, rng.choice((0, 1, 2, 7)))
        c = edges.encoding(rng, "binary32")
        values = [operands.decode(x) for x in a + b] + [binary32.decode(c)]
        if any(v - v != 0 for v in values):
            continue
        finite += 1
        total = gmpy2.mpfr(binary32.decode(c), 53)
        for x, y in zip(a, b, strict=True):
            total = many.add(total, many.mul(operands.decode(x), operands.decode(y)))
        once = mpfr.context(target.name)
        bits, flags = mpfr._finish(once.plus(total), once, target.name)
        ours = dot(a, b, c, operands, as_datapath("exact"), target)
        if total == 0:  # the sign of a zero sum is the next test's
            bits, flags = ours.bits & target.sign_bit, 0
        assert ours.bits == bits
        assert len(ours.flags) == 1
        assert ours.swamped == 0
        assert ours.flags[0] & INEXACT == flags & INEXACT
    assert finite > 50


def test_the_exact_sum_of_zeros_infinities_and_nan() -> None:
    path, inf, minus = as_datapath("exact"), 0x7C00, 0x8000
    minus32 = 0x80000000
    cases = [
        ([], [], 0, 0, 0),
        ([], [], minus32, minus, 0),
        ([minus], [ONE], minus32, minus, 0),
        ([minus], [ONE], 0, 0, 0),
        ([minus, 0], [ONE, ONE], minus32, 0, 0),
        ([ONE, ONE], [ONE, ONE | minus], minus32, 0, 0),
        ([inf, ONE], [ONE, ONE], 0, inf, 0),
        ([inf, inf], [ONE, ONE | minus], 0, 0x7E00, INVALID),
        ([inf], [0], 0, 0x7E00, INVALID),
        ([0x7E00, inf], [ONE, ONE], 0, 0x7E00, 0),
        ([0x7C01], [ONE], 0, 0x7E00, INVALID),
        ([ONE], [ONE], 0xFF800000, 0xFC00, 0),
    ]
    for a, b, c, bits, flags in cases:
        assert dot(a, b, c, binary16, path, binary16) == (bits, [flags], 0), (a, b, hex(c))


def test_the_exact_sum_finds_what_every_other_order_loses() -> None:
    a = [int(binary16.encode(v)) for v in (60000.0, 2.0**-24, -60000.0)]
    b = [ONE, 1, ONE]
    exact = dot(a, b, 0, binary16, as_datapath("exact"), binary32)
    assert exact.bits == int(binary32.encode(2.0**-48))
    for name in ("float32", "float16", "pairwise", "a100", "h100"):
        assert dot(a, b, 0, binary16, as_datapath(name), binary32).bits == 0


# What is counted, and the ends.


def test_4096_ones_in_float16_swamp_2048_additions() -> None:
    ones = [ONE] * 4096
    total = dot(ones, ones, 0, binary16, as_datapath("float16"), binary16)
    assert (binary16.decode(total.bits), total.swamped) == (2048.0, 2048)
    total = accumulate(ones, binary16, as_datapath("float16"), binary16)
    assert (binary16.decode(total.bits), total.swamped, sum(map(bool, total.flags))) == (2048.0, 2048, 2048)
    total = accumulate(ones[:2500], binary16, as_datapath("float16_kahan"), binary16)
    assert binary16.decode(total.bits) == 2500.0
    total = accumulate(ones, binary16, Datapath("tree", binary16, order="pairwise"), binary16)
    assert (binary16.decode(total.bits), total.swamped) == (4096.0, 0)
    total = accumulate(ones, binary16, as_datapath("float32"), binary16)
    assert (binary16.decode(total.bits), total.swamped) == (4096.0, 0)


@pytest.mark.parametrize("c, product, swamped", [
    (2048.0, 1.0, 1), (2048.0, 1.5, 0), (-2048.0, 1.0, 0), (-2048.0, -1.0, 1), (2048.0, 0.0, 0), (0.0, 0.0, 0),
    (0.0, 2.0**-24, 0), (1.0, 2048.0, 0), (float("inf"), 1.0, 0), (float("nan"), 1.0, 0),
    (1.0, float("inf"), 0), (65504.0, 15.0, 1),
])  # fmt: skip
def test_an_addition_is_swamped_where_it_changes_nothing(c: float, product: float, swamped: int) -> None:
    start, term = (int(binary16.encode(v)) for v in (c, product))
    assert dot([term], [ONE], start, binary16, as_datapath("float16"), binary16).swamped == swamped
    assert dot([term], [ONE], start, binary16, as_datapath("float16_fma"), binary16).swamped == swamped


def test_without_products_the_accumulator_is_the_result() -> None:
    for path in (
        *map(as_datapath, ("float32", "pairwise", "a100")),
        Datapath("x", order="split_k", splits=3),
    ):
        assert dot([], [], 0x80000000, binary16, path, binary32) == (0x80000000, [], 0)
        assert dot([], [], 0x00000001, binary16, path, binary32) == (1, [], 0)
        assert dot([], [], 0x3F800001, binary16, path, binary16) == (ONE, [INEXACT], 0)
        assert accumulate([], binary16, path, binary16) == (0, [0], 0)


def test_a_negative_zero_accumulator_keeps_its_sign_as_ieee_sums_do() -> None:
    minus = 0x8000
    for name in ("float16", "float16_fma", "float16_kahan"):
        path = as_datapath(name)
        assert dot([minus], [ONE], minus, binary16, path, binary16).bits == minus, name
        assert dot([0], [ONE], minus, binary16, path, binary16).bits == 0
        assert dot([minus], [ONE], 0, binary16, path, binary16).bits == 0
    # A piece is summed from +0, so its sum is never -0.
    blocked = Datapath("blocked", binary16, order="blocked", block=2)
    assert dot([minus], [ONE], minus, binary16, blocked, binary16).bits == 0
    tree = Datapath("tree", binary16, order="pairwise")
    assert dot([minus] * 3, [ONE] * 3, minus, binary16, tree, binary16).bits == minus


def test_pieces_that_have_no_products_take_no_part() -> None:
    # 5 products in 4 pieces: 2, 2, 1 and none.
    path = Datapath("pieces", binary16, order="split_k", splits=4)
    trace = trace_dot([ONE] * 5, [ONE] * 5, 0, binary16, path, binary16)
    assert [(s.first, s.last) for s in trace.steps if s.what == "total"] == [(0, 2), (0, 4), (0, 5)]
    one = replace(path, splits=1)
    rng = random.Random("pieces")
    for _ in range(50):
        a, b, _ = draw(rng, "binary16", 7)
        assert (
            dot(a, b, 0, binary16, one, binary16).bits
            == dot(a, b, 0, binary16, as_datapath("float16"), binary16).bits
        )


def test_the_trace_lists_every_rounding_in_order() -> None:
    a = [int(binary16.encode(v)) for v in (2048.0, 1.0, 3.0)]
    trace = trace_dot(a, [ONE] * 3, 0, binary16, as_datapath("float16"), binary32)
    assert [(step.what, step.first, step.last) for step in trace.steps] == [
        ("product", 0, 1), ("sum", 0, 1), ("product", 1, 2), ("sum", 0, 2), ("product", 2, 3), ("sum", 0, 3),
        ("result", 0, 3),
    ]  # fmt: skip
    assert [step.swamped for step in trace.steps] == [False, False, False, True, False, False, False]
    assert trace.steps[3].exact.number == 2049
    assert trace.accumulation() == dot(a, [ONE] * 3, 0, binary16, as_datapath("float16"), binary32)
    tree = trace_dot(a, [ONE] * 3, 0, binary16, Datapath("tree", binary16, order="pairwise"), binary16)
    sums = [(step.what, step.first, step.last) for step in tree.steps if step.what != "product"]
    assert sums == [("sum", 0, 2), ("sum", 0, 3), ("total", 0, 3)]


def test_a_result_format_without_infinities() -> None:
    huge = int(binary16.encode(600.0))
    assert dot([huge], [ONE], 0, binary16, as_datapath("float32"), e4m3).bits == e4m3.nan_bits


def test_vectors_of_two_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        dot([ONE, ONE], [ONE], 0, binary16, as_datapath("float16"), binary16)
