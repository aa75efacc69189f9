"""A fault that shows at one size alone is found, and whatever is found is cut to the least size that shows it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fp16sim.emulator.backends.base import Outcome
from fp16sim.emulator.backends.cpu import CpuBackend
from fp16sim.emulator.convolution_geometry import Geometry
from fp16sim.emulator.datapath import DATAPATHS, Datapath
from fp16sim.emulator.formats import binary16
from fp16sim.emulator.rounding import Rounding
from fp16sim.testing import BackendCheckError, Fault, check_backend
from fp16sim.testing.backend import datapaths, index_sums, inputs
from fp16sim.testing.backend.smaller import alike, cuts, integers, lists, made_smaller, numbers, sizes
from fp16sim.testing.backend.vectors import WALKED, lengths

Where = Callable[..., bool]


def wrong(method: str, where: Where) -> type[CpuBackend]:
    """Make a backend that has the last bit of a result wrong, where its arguments are as said."""

    def fault(*arguments: Any) -> Any:
        outcome = getattr(CpuBackend(), method)(*arguments)
        if where(*arguments):
            bits = outcome if method == "maximum_of" else outcome.bits
            bits[...] ^= 1
        return outcome

    return type("Wrong", (CpuBackend,), {method: staticmethod(fault)})


def shown(
    backend: Any, check: str, path: str | Datapath = "float16", examples: int = 1, formats: Any = "binary16"
) -> str:
    with pytest.raises(BackendCheckError) as caught:
        check_backend(backend, methods=[check], formats=formats, datapaths=[path], examples=examples)
    (verdict,) = caught.value.report.failures
    return verdict.what


def test_every_number_of_terms_up_to_two_blocks_and_one_is_walked_through() -> None:
    for block in (1, 4, 8, 12, 32):
        blocked = Datapath("mine", order="blocked", block=block)
        assert set(range(2 * block + 2)) <= set(lengths(blocked)), block
    assert set(range(18)) <= set(WALKED)
    assert {31, 32, 33} <= set(WALKED)
    assert set(range(2 * 32 + 2)) <= set(lengths(DATAPATHS["h100:fp8"]))


@pytest.mark.parametrize("path", ["float16", "a100", Datapath("mine", order="blocked", block=12)])
def test_a_product_wrong_at_one_number_of_terms_alone_is_found(path: str | Datapath) -> None:
    # Those between are in `lengths`, which the test before this one holds.
    for k in {"float16": range(18), "a100": (0, 5, 9, 17)}.get(str(path), (0, 7, 13, 24, 25)):
        message = shown(wrong("matmul", lambda a, *_, k=k: a.shape[2] == k), "matmul", path)
        terms = "no terms" if not k else f"[{k} times] gave" if k > 4 else "0x0000 (0) * 0x0000 (0) gave"
        assert terms in message
        assert " by (" not in message  # one row by one column


def test_terms_of_one_length_added_in_another_order_are_found() -> None:
    for k in (3, 4, 5, 7, 9, 13, 17):

        def fault(a: Any, b: Any, *rest: Any, k: int = k) -> Any:
            if a.shape[2] == k:
                a, b = np.ascontiguousarray(a[:, :, ::-1]), np.ascontiguousarray(b[:, ::-1])
            return CpuBackend().matmul(a, b, *rest)

        message = shown(type("Wrong", (CpuBackend,), {"matmul": staticmethod(fault)}), "matmul")
        assert " by (" not in message, message


def test_a_product_wrong_at_one_number_of_rows_or_columns_alone_is_found() -> None:
    for n in (*range(1, 18, 2), *WALKED[18:]):
        rows = shown(wrong("matmul", lambda a, *_, n=n: a.shape[1] == n), "matmul")
        assert n == 1 or f", (1, {n}, 0) by (1, 0, 1): " in rows
        columns = shown(wrong("matmul", lambda a, b, *_, n=n: b.shape[2] == n), "matmul")
        assert n == 1 or f", (1, 1, 0) by (1, 0, {n}): " in columns


@pytest.mark.parametrize("method", ["sum", "cumulative_sum", "sum_of_squares", "index_sum", "maximum_of"])
def test_a_sum_wrong_at_one_number_of_terms_alone_is_found(method: str) -> None:
    axis = 0 if method == "index_sum" else 1
    for n in (1, 5, 6, 7, 11, 13, 17):
        message = shown(wrong(method, lambda a, *_, n=n: a.shape[axis] == n), method)
        assert f"[{n} times]" in message or n == 1 or method in ("cumulative_sum", "index_sum"), message
        assert f"{n} in all" not in message


def test_a_fault_beyond_eight_terms_is_shown_by_one_by_nine_by_one_at_any_number_of_examples() -> None:
    zeros = (
        "matmul of binary16 by datapath 'float16' to binary16: 0x0000 (0) * 0x0000 (0) [9 times] gave 0x0001"
    )
    for examples in (1, 16):
        message = shown(wrong("matmul", lambda a, *_: a.shape[2] > 8), "matmul", examples=examples)
        assert message.startswith(zeros)


def test_blocks_of_columns_in_the_place_of_each_other_are_found() -> None:
    for width in (2, 4, 8, 16):

        def fault(a: Any, b: Any, *rest: Any, width: int = width) -> Any:
            outcome = CpuBackend().matmul(a, b, *rest)
            if b.shape[2] >= 2 * width and len(rest) < 6:
                left, right = outcome.bits[..., :width].copy(), outcome.bits[..., width : 2 * width].copy()
                outcome.bits[..., :width], outcome.bits[..., width : 2 * width] = right, left
            return outcome

        message = shown(type("Wrong", (CpuBackend,), {"matmul": staticmethod(fault)}), "matmul")
        assert f"(1, 1, 1) by (1, 1, {2 * width})" in message


def test_a_long_product_in_blocks_is_found() -> None:
    def fault(
        a: Any, b: Any, c: Any, fmt: Any, path: Any, out_format: Any, watch: str = "", *into: Any
    ) -> Any:
        if a.shape[2] <= 512 or watch:
            return CpuBackend().matmul(a, b, c, fmt, path, out_format, watch, *into)
        rest = CpuBackend().matmul(a[..., 512:], b[:, 512:], None, fmt, path, path.start_format).bits
        first = CpuBackend().matmul(a[..., :512], b[:, :512], c, fmt, path, path.start_format).bits
        total = CpuBackend().elementwise(
            "add", [first.reshape(-1), rest.reshape(-1)], path.start_format, Rounding()
        )
        bits = CpuBackend().convert(total.bits, path.start_format, out_format, Rounding()).bits
        return Outcome(bits.reshape(first.shape), None, None)

    message = shown(type("Wrong", (CpuBackend,), {"matmul": staticmethod(fault)}), "matmul", "float32")
    terms = re.search(r"\((\d+) in all\)", message)
    assert terms is not None, message
    assert 512 < int(terms[1]) < 540


def test_terms_that_are_left_out_are_shown_by_a_one_behind_zeros() -> None:
    def fault(a: Any, b: Any, *rest: Any) -> Any:
        return CpuBackend().matmul(a[:, :, :8], b[:, :8], *rest)

    message = shown(type("Wrong", (CpuBackend,), {"matmul": staticmethod(fault)}), "matmul")
    assert "0x0000 (0) * 0x0000 (0) [8 times] + 0x3c00 (1) * 0x3c00 (1) gave 0x0000" in message


def test_sums_are_cut_to_one_column_and_the_fewest_terms() -> None:
    total = "sum of binary16 by datapath 'float16' to binary16: 0x0000 (0) [9 times] gave 0x0001"
    assert shown(wrong("sum", lambda a, *_: a.shape[1] > 8), "sum").startswith(total)
    running = shown(wrong("cumulative_sum", lambda a, *_: a.shape[1] > 8), "cumulative_sum")
    assert "to binary16: element 0 of 9, 0x0000 (0) gave 0x0001" in running
    index = shown(wrong("index_sum", lambda a, index, *_: len(index) > 8), "index_sum")
    assert f"index {[0] * 9} of 1, 1 to a row: row 0: 0x0000 (0) [9 times] gave 0x0001" in index
    wide = shown(wrong("sum", lambda a, *_: a.shape[2] > 12), "sum")
    assert ", (1, 0, 13): element 0 of 13, no terms gave 0x0001" in wide


def test_convolutions_are_cut_in_every_way() -> None:
    def where(which: str, a: Any, b: Any, geometry: Geometry, *_: Any) -> bool:
        return which == "forward" and geometry.stride[-1] > 1 and len(a) > 1

    message = shown(wrong("convolve", where), "convolve.forward", examples=100)
    assert "(2, 1, 1) by (1, 1, 1), stride (2,): element 0 of 2, [0x0000 (0), 0x0000 (0)] by" in message


def test_a_drawn_datapath_is_made_plainer() -> None:
    core = replace(
        DATAPATHS["a100"], name="drawn", inputs=(binary16,), variants=(), keep_negative_zero=True, block=16
    )
    route = datapaths.Route(binary16, core, binary16)

    def examine(given: datapaths.Route) -> None:
        if given.path.block > 2:
            raise Fault("", given.text())

    fault = made_smaller(route, Fault("", ""), datapaths.route_moves, examine)
    text = "of binary16 by datapath Datapath(fused=True, block=3, fraction_bits=24, out_format=binary32) to binary32"
    assert fault.what == text


def test_numbers_are_made_simpler() -> None:
    def simplest(bits: int, bad: Callable[[int], bool]) -> int:
        def examine(given: int) -> None:
            if bad(given):
                raise Fault("", str(given))

        return int(made_smaller(bits, Fault("", str(bits)), lambda _: numbers(binary16), examine).what)

    assert simplest(0xABCD, lambda bits: True) == 0
    assert simplest(0xABCD, lambda bits: bits != 0) == 0x3C00
    assert simplest(0xABCD, lambda bits: bits & 0x8000 > 0 and bits != 0x8000) == 0xBC00
    assert simplest(0x7BFF, lambda bits: bits & 1 == 1) == 0x3C01
    assert simplest(0x0155, lambda bits: 0 < bits < 0x400).bit_count() == 1
    assert simplest(0x7E01, lambda bits: bits > 0x7C00).bit_count() == 6


def test_operands_that_are_alike_are_made_simpler_together() -> None:
    def examine(given: tuple[int, ...]) -> None:
        if given[0] == given[1] != 0x3C00:
            raise Fault("", str(given))

    start = (0x1234, 0x1234, 0x5678)
    found = made_smaller(start, Fault("", ""), lambda _: alike(0, numbers(binary16)), examine)
    assert found.what == "(0, 0, 22136)"


def test_integers_are_brought_nearer_to_zero() -> None:
    def least(start: int, bad: Callable[[int], bool]) -> int:
        def examine(given: int) -> None:
            if bad(given):
                raise Fault("", str(given))

        return int(made_smaller(start, Fault("", str(start)), lambda _: integers(), examine).what)

    assert least(2**64 - 1, lambda n: n > 2**53 and n % 2 == 1) == 2**54 - 1
    assert least(-(2**63), lambda n: n != 0) == 1
    assert least(-(2**63), lambda n: n < 0) == -1


def test_every_move_ends() -> None:
    """What always fails is cut to nothing, within the moves that are allowed, from any start."""

    def examine(given: Any) -> None:
        raise Fault("", str(given))

    for length in (0, 1, 7, 65):
        start = [inputs.far(binary16, i) for i in range(length)]
        fault = made_smaller(start, Fault("", str(start)), lambda given: lists(binary16, len(given)), examine)
        assert fault.what == str([0] * length)
    assert made_smaller(67, Fault("", ""), lambda _: sizes(1), examine).what == "1"
    assert list(cuts(3)) == [(0, 3), (2, 3), (1, 2), (0, 1)]


def test_the_moves_of_an_index_sum_keep_the_index_within_the_rows() -> None:
    route = datapaths.Route(binary16, DATAPATHS["float16"], binary16)

    def examine(given: index_sums.Rows) -> None:
        assert len(given.named) == len(given.column)
        assert all(0 <= place < given.size for place in given.named)
        if any(given.named) and given.inner > 1:
            raise Fault("", f"{given.column} {given.named} {given.size} {given.inner}")

    start = index_sums.Rows(route, [1, 2, 3], [0, 4, 1], 5, 17)
    fault = made_smaller(start, Fault("", ""), index_sums._moves, examine)
    assert fault.what == "[0] [1] 2 2"


def test_what_is_not_always_wrong_is_said_to_be_so() -> None:
    calls = iter(range(10**9))
    backend = wrong("matmul", lambda a, *_: next(calls) == 40)
    message = shown(backend, "matmul")
    assert message.endswith("but not every time"), message
