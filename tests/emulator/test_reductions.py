"""Sums and what is built on them, against the definition written out element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fp16sim_encodings import STYLES, draw
from hypothesis import given, settings, strategies as st

import fp16sim as fs
from fp16sim.emulator import float32_functions, reference, reference_dot, reference_functions
from fp16sim.emulator.arrays import decoded, encoded
from fp16sim.emulator.backends import products
from fp16sim.emulator.datapath import DATAPATHS, Datapath
from fp16sim.emulator.formats import Format, binary16, binary32, binary64
from fp16sim.emulator.reference_order import maximum

Array = npt.NDArray[Any]
CASES = [(path, fmt) for path in DATAPATHS.values() for fmt in path.inputs]
SEVERAL = [(DATAPATHS[name], fmt) for name, fmt in (
    ("float32", binary16), ("float32", binary32), ("float16", binary16), ("float16_fma", binary16),
    ("pairwise", binary16), ("exact", binary16), ("float16_kahan", binary16), ("a100", binary16),
    ("h100:float16", binary16),
)]  # fmt: skip
SAMPLED = settings(max_examples=6, derandomize=True, database=None, deadline=None)


def array_of(bits: Array, fmt: Format) -> Array:
    return decoded(bits, fmt) if fmt.is_carried else bits.view(fmt.dtype)


def named(fmt: Format) -> dict[str, Any]:
    return {"format": fmt} if fmt.is_carried else {}


def sums(bits: Array, fmt: Format, path: Datapath, out: Format) -> list[int]:
    """Sum rows by the definition."""
    return [reference_dot.accumulate(row.tolist(), fmt, path, out).bits for row in bits]


@pytest.mark.parametrize("path, fmt", CASES, ids=lambda x: x.name)
def test_sum_and_cumsum_equal_the_definition(path: Datapath, fmt: Format) -> None:
    @SAMPLED
    @given(seed=st.integers(0, 2**32), style=st.sampled_from(STYLES), n=st.integers(0, 40))
    def check(seed: int, style: str, n: int) -> None:
        bits = draw(np.random.Generator(np.random.PCG64(seed)), fmt, (3, n), style)
        out = path.result_format(fmt)
        got = fs.sum(array_of(bits, fmt), 1, path, **named(fmt))
        assert encoded(got, out).tolist() == sums(bits, fmt, path, out)
        got = fs.cumsum(array_of(bits[0], fmt), 0, path, **named(fmt))
        assert encoded(got, out).tolist() == sums([bits[0, : i + 1] for i in range(n)], fmt, path, out)  # type: ignore[arg-type]

    check()


@pytest.mark.parametrize("path, fmt", SEVERAL, ids=lambda x: x.name)
def test_mean_and_norm_are_the_roundings_that_they_say(path: Datapath, fmt: Format) -> None:
    inner = path.accumulator or binary32

    @SAMPLED
    @given(seed=st.integers(0, 2**32), style=st.sampled_from(STYLES), n=st.integers(0, 40))
    def check(seed: int, style: str, n: int) -> None:
        bits = draw(np.random.Generator(np.random.PCG64(seed)), fmt, (2, n), style)
        out = path.result_format(fmt)
        totals = sums(bits, fmt, path, inner)
        count = inner.encode(float(n))
        quotients = [reference.divide(total, int(count), inner).bits for total in totals]
        expected = [reference.convert(q, inner, out).bits for q in quotients]
        x = array_of(bits, fmt)
        assert [same(b, out) for b in encoded(fs.mean(x, 1, path), out).tolist()] == [
            same(b, out) for b in expected
        ]
        squares = [reference_dot.dot(r.tolist(), r.tolist(), 0, fmt, path, inner).bits for r in bits]
        roots = [reference.sqrt(square, inner).bits for square in squares]
        expected = [reference.convert(root, inner, out).bits for root in roots]
        assert [same(b, out) for b in encoded(fs.norm(x, 1, path), out).tolist()] == [
            same(b, out) for b in expected
        ]

    check()


def same(bits: int, fmt: Format) -> int:
    """Let every NaN be one: a card's own is lost in the division."""
    return fmt.nan_bits if fmt.max_bits < bits % fmt.sign_bit != fmt.inf_bits else bits


def softmax(bits: Array, path: Datapath, fmt: Format) -> list[int]:
    """Softmax of a vector by the definition."""
    largest = int(bits[0])
    for x in bits.tolist()[1:]:
        largest = maximum(largest, x, fmt).bits
    shifted = [reference.subtract(x, largest, fmt).bits for x in bits.tolist()]
    if fmt == binary16:
        powers = [reference_functions.evaluate("exp", x, fmt).bits for x in shifted]
    else:
        powers = float32_functions.exp(np.array(shifted, np.uint32).view(np.float32)).view(np.uint32).tolist()
    total = reference_dot.accumulate(powers, fmt, path, fmt).bits
    return [reference.divide(p, total, fmt).bits for p in powers]


@pytest.mark.parametrize("name, fmt", [("float32", binary16), ("float16", binary16), ("pairwise", binary16),
                                       ("float32", binary32), ("exact", binary32)], ids=str)  # fmt: skip
def test_softmax_rounds_each_step(name: str, fmt: Format) -> None:
    @SAMPLED
    @given(seed=st.integers(0, 2**32), style=st.sampled_from(STYLES), n=st.integers(1, 20))
    def check(seed: int, style: str, n: int) -> None:
        rng = np.random.Generator(np.random.PCG64(seed))
        bits = draw(rng, fmt, (2, n), style)
        bits[1] = fmt.encode(np.round(rng.standard_normal(n) * 64) / 16)
        got = encoded(fs.softmax(array_of(bits, fmt), datapath=name), fmt)
        assert got.tolist() == [softmax(row, DATAPATHS[name], fmt) for row in bits]

    check()


def test_softmax_of_infinities_and_of_nothing() -> None:
    inf = np.inf
    x = np.float16([[inf, 0, 1], [-inf, -inf, -inf], [np.nan, 0, 0], [-inf, 0, 0]])
    got = fs.softmax(x)
    assert np.isnan(got[:3]).all()
    assert got[3].tolist() == [0.0, 0.5, 0.5]
    assert fs.softmax(x[:, :0]).shape == (4, 0)
    assert fs.softmax(x.T, 0).T.tobytes() == got.tobytes()
    assert fs.softmax([1.0, 1.0]).tolist() == [0.5, 0.5]
    y = x.copy()
    assert fs.softmax(y, out=y) is y
    assert y.tobytes() == got.tobytes()


AXES = [None, 0, 1, 2, -1, (0, 1), (1, 2), (0, 2), (2, 0), (0, 1, 2), ()]


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 0, 4), (0, 3, 4)])
def test_axes_are_those_of_numpy(axis: Any, shape: tuple[int, ...]) -> None:
    rng = np.random.Generator(np.random.PCG64(3))
    x = rng.integers(-9, 9, shape).astype(np.float16)  # every sum is exact
    wide = x.astype(np.float64)
    for keepdims in (False, True):
        expected = wide.sum(axis, keepdims=keepdims)
        got = fs.sum(x, axis, keepdims=keepdims)
        assert np.shape(got) == expected.shape
        assert np.array_equal(np.asarray(got, np.float64), expected)
        squares = (wide * wide).sum(axis, keepdims=keepdims)
        assert np.array_equal(
            np.asarray(fs.norm(x, axis, keepdims=keepdims)),
            np.sqrt(squares).astype(np.float32).astype(np.float16),
        )
        count = wide.size // max(1, expected.size) if expected.size else 1
        if count:
            quotient = (expected / count).astype(np.float32).astype(np.float16)
            assert np.array_equal(np.asarray(fs.mean(x, axis, keepdims=keepdims)), quotient)
    if axis is None or isinstance(axis, int):
        got = fs.cumsum(x, axis)
        assert np.array_equal(got.astype(np.float64), wide.cumsum(axis))


def test_the_order_is_that_of_increasing_index() -> None:
    x = np.float16([2048, 1, 1, -2048])
    assert float(fs.sum(x, datapath="float16")) == 0.0
    assert float(fs.sum(x[::-1], datapath="float16")) == 2.0
    cube = np.stack([x, x[::-1]]).reshape(2, 2, 2)
    for axis in ((1, 2), (2, 1)):  # C order, however the axes are named
        assert fs.sum(cube, axis, "float16").tolist() == [0.0, 2.0]
    crossed = np.moveaxis(cube, 0, 1)  # axes 0 and 2 are no neighbours
    assert fs.sum(crossed, (0, 2), "float16").tolist() == [0.0, 2.0]
    assert fs.cumsum(x, datapath="float16").tolist() == [2048.0, 2048.0, 2048.0, 0.0]


def test_no_terms() -> None:
    nothing = np.empty((0,), np.float16)
    assert (float(fs.sum(nothing)), float(fs.norm(nothing))) == (0.0, 0.0)
    assert np.isnan(fs.mean(nothing))
    assert fs.cumsum(nothing).shape == (0,)
    assert not np.signbit(fs.sum(np.float16([-0.0])))  # from +0


def test_float64_and_lists() -> None:
    x = np.array([2.0**53, 1.0, -(2.0**53)])
    assert float(fs.sum(x, datapath="float64")) == 0.0
    assert float(fs.mean(np.float64([1, 2]), datapath="float64")) == 1.5
    assert float(fs.norm(np.float64([3, 4]), datapath="float64")) == 5.0
    assert fs.cumsum(x, datapath="float64").dtype == np.float64
    assert float(fs.sum([1, 2, 3])) == 6.0
    with fs.count_events() as events:
        fs.sum(x, datapath="float64")
    assert (events.inexact, events.swamped) == (1, 1)


@pytest.mark.parametrize("name", ["sum", "mean", "norm", "cumsum"])
def test_out_works_or_is_refused(name: str) -> None:
    function = getattr(fs, name)
    x = np.random.Generator(np.random.PCG64(4)).standard_normal((6, 6)).astype(np.float16)
    expected = function(x, 0)
    y = x.copy()
    out = y if name == "cumsum" else y[1]
    assert function(y, 0, out=out) is out
    assert np.array_equal(out, expected)
    strided = np.empty((12, 12), np.float16)[::2, ::2] if name == "cumsum" else np.empty(12, np.float16)[::2]
    assert np.array_equal(function(x, 0, out=strided), expected)
    wrong = np.empty((6, 5), np.float16)
    frozen = expected.copy()
    frozen.flags.writeable = False
    for bad, message in ((wrong, "out has float16 and shape"), (frozen, "out is read-only")):
        with pytest.raises(ValueError, match=message):
            function(x, 0, out=bad)


@pytest.mark.parametrize("name", ["sum", "mean", "norm", "cumsum"])
def test_bad_input_is_refused_before_any_work(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_work(*args: Any, **named: Any) -> None:
        raise AssertionError("work was done")

    for kernel in ("sums", "cumulative_sums", "sums_of_squares", "matmul_tiles"):
        monkeypatch.setattr(products, kernel, no_work)
    function, x = getattr(fs, name), np.ones((2, 3), np.float16)
    cases: list[tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
        ((x, 2), {}, ValueError, r"axis=2: an array of shape \(2, 3\) has 2 axes"),
        ((x, "float16"), {}, TypeError, "axis='float16': an axis is an integer; name a datapath by keyword"),
        ((x.astype(np.float64), 0), {}, TypeError, "float64 array"),
        ((x.astype(np.float32), 0, "float16"), {}, TypeError, "binary32 operands with datapath 'float16'"),
        ((x, 0, "flaot32"), {}, ValueError, "did you mean 'float32'"),
        ((x, 0), {"out_format": "binary15"}, ValueError, "unknown format"),
        ((x.astype(complex), 0), {}, TypeError, "complex"),
    ]
    if name != "cumsum":
        cases.append(((x, (0, -2)), {}, ValueError, "an axis is named twice"))
        cases.append(
            ((x, 0), {"keepdims": "no"}, ValueError, "keepdims='no': axes stay or not; pass True or")
        )
    for args, options, error, message in cases:
        with pytest.raises(error, match=message) as caught:
            function(*args, **options)
        assert "\n" not in str(caught.value)


def test_softmax_refuses_what_it_cannot_compute() -> None:
    with pytest.raises(TypeError, match="bfloat16 argument: softmax computes in binary16 or binary32"):
        fs.softmax(fs.round_to([1.0], "bfloat16"), datapath="exact")
    with pytest.raises(ValueError, match="takes an array with at least one axis"):
        fs.softmax(np.float16(1))
    with pytest.raises(ValueError, match="axis=1"):
        fs.softmax(np.float16([1]), 1)


@pytest.mark.parametrize("path, fmt", CASES, ids=lambda x: x.name)
def test_counting_changes_no_bit_and_equals_the_definition(path: Datapath, fmt: Format) -> None:
    x = array_of(draw(np.random.Generator(np.random.PCG64(12)), fmt, (9, 3), "special"), fmt)
    for function in (fs.sum, fs.cumsum):
        plain = function(x, 0, path, **named(fmt))
        with fs.count_events() as events:
            counted = function(x, 0, path, **named(fmt))
        with fs.use_backend("reference"), fs.count_events() as expected:
            function(x, 0, path, **named(fmt))
        raw = np.uint64 if fmt == binary64 else np.uint8
        assert np.array_equal(plain.view(raw), counted.view(raw))
        assert events.as_dict() == expected.as_dict()


def test_a_sum_of_ones_stalls_and_is_counted() -> None:
    with fs.count_events() as events:
        assert fs.sum(np.ones(4096, np.float16), datapath="float16") == 2048
    assert (events.swamped, events.inexact) == (2048, 2048)
    with fs.count_events() as events:
        fs.cumsum(np.ones(4096, np.float16), datapath="float16")
    assert events.swamped == 2048


def test_a_wrong_sum_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    bits = draw(np.random.Generator(np.random.PCG64(1)), binary16, (3, 20), "near_one")
    path = DATAPATHS["float16"]
    assert encoded(fs.sum(bits.view(np.float16), 1, path), binary16).tolist() == sums(
        bits, binary16, path, binary16
    )
    backwards = encoded(fs.sum(bits[:, ::-1].view(np.float16), 1, path), binary16).tolist()
    assert backwards != sums(bits, binary16, path, binary16)


def test_lists_are_binary64_where_the_datapath_takes_nothing_else() -> None:
    thirds = [1 / 3, 2 / 3]
    assert fs.sum(thirds, datapath="float64") == 1 / 3 + 2 / 3
    assert fs.sum(thirds, datapath="float64").dtype == np.float64
    assert fs.sum(thirds).dtype == np.float16


@pytest.mark.parametrize("path", ["a100", "h100:float16"])
def test_means_and_norms_that_are_nan_are_the_canonical_nan(path: str) -> None:
    x = np.float16([np.nan, 1])
    unsigned = {2: np.uint16, 4: np.uint32}
    for function in (fs.mean, fs.norm):
        result = function(x, datapath=path)
        nan = {2: 0x7E00, 4: 0x7FC00000}[result.dtype.itemsize]
        assert result.view(unsigned[result.dtype.itemsize]) == nan


def test_events_of_float64_means_and_norms_are_those_of_their_sums() -> None:
    x = np.array([1.0, 1.0, 1.0])  # neither 3 / 3 nor the sum rounds; the root of 3 does, and is not counted
    with fs.count_events() as events:
        fs.norm(x, datapath="float64")
        fs.mean(x, datapath="float64")
    assert events.inexact == 0
