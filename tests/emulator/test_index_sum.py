"""Sums by an index, against the definition of each sum; sums of many rows and of long strips, which kernels divide."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fp16sim_encodings import STYLES, draw
from hypothesis import given, settings, strategies as st

import fp16sim as fs
from fp16sim.emulator import reference_dot
from fp16sim.emulator.arrays import decoded, encoded
from fp16sim.emulator.backends import Backend, current
from fp16sim.emulator.datapath import DATAPATHS, Datapath
from fp16sim.emulator.formats import Format, bfloat16, binary16, binary32, binary64
from fp16sim.emulator.reductions import index_sum

Array = npt.NDArray[Any]
CASES = [(path, fmt) for path in DATAPATHS.values() for fmt in path.inputs]
FAST = [(DATAPATHS[name], fmt) for name, fmt in (
    ("float32", binary16), ("float32:fused", bfloat16), ("float32", binary32), ("float16", binary16),
    ("float64", binary64),
)]  # fmt: skip
SAMPLED = settings(max_examples=4, derandomize=True, database=None, deadline=None)


def by_definition(bits: Array, index: Array, size: int, fmt: Format, path: Datapath, out: Format) -> Array:
    """Sum the rows of each index, one column after another."""
    sums = [
        [reference_dot.accumulate(column.tolist(), fmt, path, out).bits for column in bits[index == r].T]
        for r in range(size)
    ]
    return np.array(sums, out.uint).reshape(size, bits.shape[1])


@pytest.mark.parametrize("path, fmt", CASES, ids=lambda x: x.name)
def test_sums_by_index_equal_the_definition(path: Datapath, fmt: Format) -> None:
    @SAMPLED
    @given(
        seed=st.integers(0, 2**32),
        style=st.sampled_from(STYLES),
        n=st.integers(0, 24),
        inner=st.sampled_from((0, 1, 3)),
        size=st.integers(1, 5),
    )
    def check(seed: int, style: str, n: int, inner: int, size: int) -> None:
        rng = np.random.Generator(np.random.PCG64(seed))
        bits = draw(rng, fmt, (n, inner), style)
        index = rng.integers(0, size, n)
        for out in {path.result_format(fmt), path.start_format}:
            expected = by_definition(bits, index, size, fmt, path, out)
            got = current().index_sum(bits, index, size, fmt, path, out)
            counted = current().index_sum(bits, index, size, fmt, path, out, "counts")
            defined = Backend().index_sum(bits, index, size, fmt, path, out, "counts")
            for outcome in (got, counted, defined):
                assert outcome.bits.dtype == out.uint
                assert np.array_equal(outcome.bits, expected)
            assert got.counts is None
            assert np.array_equal(counted.counts, defined.counts)

    check()


@pytest.mark.parametrize("path, fmt", FAST, ids=lambda x: x.name)
def test_special_values_and_rows_that_no_index_names(path: Datapath, fmt: Format) -> None:
    minus_zero, smallest, nan = fmt.sign_bit, 1, fmt.nan_bits
    infinity = fmt.inf_bits or 0
    signalling_minus = fmt.sign_bit | infinity | 1
    rows = [
        minus_zero,
        minus_zero,
        smallest,
        smallest,
        infinity,
        infinity | minus_zero,
        infinity,
        signalling_minus,
    ]
    index = np.array([0, 0, 1, 1, 2, 2, 3, 5])
    got = current().index_sum(np.array(rows, fmt.uint)[:, np.newaxis], index, 6, fmt, path, fmt).bits[:, 0]
    # From +0, so -0 is lost; subnormals add exactly; inf - inf and every NaN are the canonical NaN.
    assert got.tolist() == [0, 2, nan, infinity, 0, nan]


@pytest.mark.parametrize("path, fmt", FAST, ids=lambda x: x.name)
@pytest.mark.parametrize(
    "shape", [(1, 7, 1), (3, 5, 1), (4, 9, 1), (11, 6, 1), (2, 3, 1025), (1, 2, 2100), (0, 3, 1)]
)
def test_sums_of_many_rows_and_of_long_strips(shape: tuple[int, ...], path: Datapath, fmt: Format) -> None:
    for style in ("near_one", "special"):
        bits = draw(np.random.Generator(np.random.PCG64(shape[0])), fmt, shape, style)
        expected = [
            [reference_dot.accumulate(bits[o, :, i].tolist(), fmt, path, fmt).bits for i in range(shape[2])]
            for o in range(shape[0])
        ]
        got = current().sum(bits, fmt, path, fmt).bits
        assert got.tolist() == expected
        transposed = np.ascontiguousarray(bits.transpose(2, 1, 0)).transpose(
            2, 1, 0
        )  # the same, in other strides
        assert np.array_equal(current().sum(transposed, fmt, path, fmt).bits, got)
        beginnings = current().cumulative_sum(bits, fmt, path, fmt).bits
        assert beginnings[:, -1].tolist() == expected


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_any_trailing_shape(dtype: str) -> None:
    rng = np.random.Generator(np.random.PCG64(1))
    whole = rng.integers(-9, 9, (50, 2, 3)).astype(np.float64)  # every sum is exact
    x = whole if dtype == "float64" else fs.round_to(whole, dtype)
    index = rng.integers(0, 7, 50)
    expected = np.zeros((7, 2, 3))
    np.add.at(expected, index, whole)
    path = "float64" if dtype == "float64" else "float32"
    got = index_sum(x, index, 7, path)
    assert got.dtype == x.dtype
    assert np.array_equal(got.astype(np.float64), expected)
    assert np.array_equal(index_sum(x.transpose(0, 2, 1), index, 7, path), got.transpose(0, 2, 1))
    assert np.array_equal(index_sum(x[:, 0, 0], index, 7, path), got[:, 0, 0])
    assert index_sum(x[:0], [], 4, path).shape == (4, 2, 3)
    assert index_sum(x[:0], [], 0, path).shape == (0, 2, 3)
    assert index_sum(x[:, :0], index, 7, path).shape == (7, 0, 3)


def test_the_order_is_that_of_the_rows() -> None:
    x = np.float16([2048, 1, 1, -2048])
    for order, total in ((x, 0.0), (x[::-1], 2.0)):
        mixed = np.repeat(order, 2)  # two sums take turns
        assert index_sum(mixed, [0, 1] * 4, 2, "float16").tolist() == [total, total]
    with fs.count_events() as events:
        index_sum(x, [0, 0, 0, 0], 1, "float16")
    assert (events.swamped, events.inexact) == (2, 2)


def test_a_carrier_of_tf32() -> None:
    x = fs.round_to([1.0, 2.0**-10, 3.0], "tf32")
    assert index_sum(x, [1, 1, 0], 2, format="tf32").tolist() == [3.0, 1 + 2.0**-10]


def test_a_wrong_order_would_be_seen() -> None:
    path = DATAPATHS["float16"]
    bits = draw(np.random.Generator(np.random.PCG64(5)), binary16, (40, 3), "near_one")
    index = np.zeros(40, np.int64)
    expected = by_definition(bits, index, 1, binary16, path, binary16)
    assert np.array_equal(current().index_sum(bits, index, 1, binary16, path, binary16).bits, expected)
    assert not np.array_equal(
        current().index_sum(bits[::-1], index, 1, binary16, path, binary16).bits, expected
    )


def test_bad_input_is_refused() -> None:
    x = np.ones((3, 2), np.float16)
    cases: list[tuple[tuple[Any, ...], type[Exception], str]] = [
        (
            (x, [0, 1, 5], 5),
            ValueError,
            r"index 5 of 5 rows: an index lies in \[0, 5\); raise size or drop its row",
        ),
        ((x, [0, -1, 5], 5), ValueError, "index -1 of 5 rows"),
        ((x, [0, 1], 5), ValueError, r"index of shape \(2,\): there is one for each of 3 elements"),
        ((x, [[0], [1], [2]], 5), ValueError, r"index of shape \(3, 1\)"),
        ((x, [0.0, 1.0, 2.0], 5), TypeError, "index of float64: it holds integers"),
        ((x, [True, False, True], 5), TypeError, "index of bool"),
        ((x, [0, 0, 0], -1), ValueError, "size=-1: it is the length of the result"),
        ((x, [0, 0, 0], 1.0), ValueError, "size=1.0"),
        ((x, [0, 0, 0], 0), ValueError, "index 0 of 0 rows"),
        ((np.float16(1), [0], 1), ValueError, "a single number"),
        (
            (x.astype(np.float32), [0, 0, 0], 1, "float16"),
            TypeError,
            "binary32 operands with datapath 'float16'",
        ),
    ]
    for args, error, message in cases:
        with pytest.raises(error, match=message) as caught:
            index_sum(*args)
        assert "\n" not in str(caught.value)
    bits = x.view(np.uint16)
    for backend in (Backend(), current()):  # a kernel would write anywhere
        for wrong in (
            np.array([0, 1, 2]),
            np.array([0, -1, 0]),
            np.array([0, 1]),
            np.array([0, 1, 0], np.int32),
        ):
            with pytest.raises(ValueError, match="index"):
                backend.index_sum(bits, wrong, 2, binary16, DATAPATHS["float32"], binary16)


def test_encodings_of_results_are_those_of_their_format() -> None:
    x = np.float16([1, 2, 3])
    for out in (binary16, bfloat16, binary32):
        got = index_sum(x, [0, 0, 0], 1, out_format=out)
        assert encoded(got, out).tolist() == [out.encode(6.0)]
        assert np.array_equal(decoded(encoded(got, out), out), got)
