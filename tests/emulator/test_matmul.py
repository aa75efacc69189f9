"""Products of matrices through the public door: shapes, every datapath against the definition, out=, threads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fp16sim_encodings import STYLES, draw
from hypothesis import given, settings, strategies as st

import fp16sim as fs
from fp16sim.emulator import reference_dot
from fp16sim.emulator.arrays import decoded, encoded
from fp16sim.emulator.backends import products, threads as threading_of
from fp16sim.emulator.datapath import DATAPATHS, Datapath
from fp16sim.emulator.formats import Format, binary16, binary32, binary64, tf32

Array = npt.NDArray[Any]
CASES = [(path, fmt) for path in DATAPATHS.values() for fmt in path.inputs]
FAST = (
    "float32",
    "float16",
    "float16_fma",
    "v100",
    "a100",
    "h100",
    "v100:float16",
    "a100:float16",
    "h100:float16",
)


def given_arrays(
    seed: int, fmt: Format, path: Datapath, style: str, m: int, k: int, n: int
) -> tuple[Array, Array, Array]:
    """Draw a, b and c; the operands in one style, or in another each."""
    rng = np.random.Generator(np.random.PCG64(seed))
    other = style if rng.random() < 0.5 else STYLES[rng.integers(len(STYLES))]
    c = draw(rng, path.start_format, (m, n), other)
    if rng.random() < 0.5:
        c = np.zeros_like(c)
    return tuple(
        x.view(f.dtype) if not f.is_carried else decoded(x, f)
        for x, f in (
            (draw(rng, fmt, (m, k), style), fmt),
            (draw(rng, fmt, (k, n), other), fmt),
            (c, path.start_format),
        )
    )  # type: ignore[return-value]


def defined(
    a: Array, b: Array, c: Array, places: list[tuple[int, int]], fmt: Format, path: Datapath, out: Format
) -> list[int]:
    """Give the encodings of some elements by the definition."""
    left, right, start = encoded(a, fmt), encoded(b, fmt), encoded(c, path.start_format)
    return [
        reference_dot.dot(left[i].tolist(), right[:, j].tolist(), int(start[i, j]), fmt, path, out).bits
        for i, j in places
    ]


def wrong_elements(path: Datapath, fmt: Format, seed: int, style: str, m: int, k: int, n: int) -> int:
    """Count how many of a few elements of a product differ from the definition, over results of each format."""
    a, b, c = given_arrays(seed, fmt, path, style, m, k, n)
    rng = np.random.Generator(np.random.PCG64(seed))
    places = [(int(i), int(j)) for i, j in zip(rng.integers(0, m, 3), rng.integers(0, n, 3), strict=True)]
    wrong = 0
    for out in {path.result_format(fmt), binary16, binary32}:
        chosen = None if out == binary64 else out
        got = encoded(
            fs.matmul(a, b, path, c=c, out_format=chosen, format=fmt if fmt.is_carried else None), out
        )
        wrong += sum(
            int(got[place]) != bits
            for place, bits in zip(places, defined(a, b, c, places, fmt, path, out), strict=True)
        )
    return wrong


@pytest.mark.parametrize("path, fmt", CASES, ids=lambda x: x.name)
def test_every_datapath_equals_the_definition(path: Datapath, fmt: Format) -> None:
    @settings(max_examples=6, derandomize=True, database=None, deadline=None)
    @given(
        seed=st.integers(0, 2**32),
        style=st.sampled_from(STYLES),
        m=st.integers(1, 40),
        k=st.integers(0, 40),
        n=st.integers(1, 40),
    )
    def check(seed: int, style: str, m: int, k: int, n: int) -> None:
        assert wrong_elements(path, fmt, seed, style, m, k, n) == 0

    check()


@pytest.mark.slow
@pytest.mark.parametrize("name", FAST)
def test_random_dot_products_against_the_counting_loop(name: str) -> None:
    """10^6 dot products of each fast kernel against the integer loop, which `test_dot.py` holds to the definition."""
    start, done, path = time.monotonic(), 0, DATAPATHS[name]
    for seed in range(20_000):
        rng = np.random.Generator(np.random.PCG64([seed, FAST.index(name)]))
        m, n, k = (int(x) for x in rng.integers(1, 24, 3))
        if seed % 10 == 0:
            k = int(rng.integers(250, 600))  # more than one block of k
        a, b, c = given_arrays(seed, binary16, path, STYLES[seed % len(STYLES)], m, k, n)
        with fs.count_events():
            expected = fs.matmul(a, b, path, c=c)
        assert fs.matmul(a, b, path, c=c).tobytes() == expected.tobytes(), seed
        done += m * n
        if done >= 10**6:
            break
    print(f"\n{name}: {done} dot products, 0 mismatches, {time.monotonic() - start:.0f} s")
    assert done >= 10**6


def test_a_wrong_bit_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    true_tiles = products.matmul_tiles

    def wrong(a: Array, b: Array, c: Array | None, out: Array, *rest: Any, **named: Any) -> Any:
        counts = true_tiles(a, b, c, out, *rest, **named)
        out ^= out.dtype.type(1)
        return counts

    monkeypatch.setattr(products, "matmul_tiles", wrong)
    assert wrong_elements(DATAPATHS["float16"], binary16, 3, "near_one", 5, 7, 5) > 0


SHAPES = [
    ((3,), (3,)), ((3,), (3, 2)), ((2, 3), (3,)), ((2, 3), (3, 4)), ((1, 3), (3, 1)), ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)), ((5, 2, 3), (5, 3, 4)), ((6, 1, 2, 3), (5, 3, 4)), ((1, 2, 3), (5, 3, 4)), ((3,), (5, 3, 4)),
    ((5, 2, 3), (3,)), ((2, 0), (0, 4)), ((0, 3), (3, 4)), ((2, 3), (3, 0)), ((0, 2, 3), (3, 4)),
    ((0, 2, 3), (0, 3, 4)), ((2, 1, 2, 3), (2, 3, 3, 1)), ((0,), (0,)), ((5, 2, 0), (5, 0, 4)), ((1, 1, 2, 3), (3, 2)),
]  # fmt: skip


@pytest.mark.parametrize("left, right", SHAPES)
@pytest.mark.parametrize("name", ["float32", "float16", "a100"])
def test_shapes_are_those_of_numpy(left: tuple[int, ...], right: tuple[int, ...], name: str) -> None:
    rng = np.random.Generator(np.random.PCG64(7))
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in (left, right))  # every sum is exact
    expected = np.asarray(np.matmul(a.astype(np.float64), b.astype(np.float64)))
    got = fs.matmul(a, b, name)
    assert np.shape(got) == expected.shape
    assert np.array_equal(np.asarray(got, np.float64), expected)
    c = rng.integers(-3, 4, expected.shape).astype(DATAPATHS[name].start_format.dtype)
    got = fs.matmul(a, b, name, c=c)
    assert np.array_equal(np.asarray(got, np.float64), expected + c)


@pytest.mark.parametrize("name", ["float32", "float16", "pairwise", "h100:float16"])
def test_strides_do_not_show(name: str) -> None:
    rng = np.random.Generator(np.random.PCG64(8))
    big = rng.standard_normal((40, 60)).astype(np.float16)
    views = [
        (big.T[:30, :20], big.T[10:30, ::2]),
        (big[::-1, ::3], big.T[20:40, 5:9]),
        (big[3::2, :7], big[5:19:2, ::-5]),
        (np.broadcast_to(big[:1], (5, 60)), np.broadcast_to(big[0, :, None], (60, 3))),
    ]
    for a, b in views:
        plain = fs.matmul(np.ascontiguousarray(a), np.ascontiguousarray(b), name)
        assert np.array_equal(fs.matmul(a, b, name).view(np.uint16), plain.view(np.uint16))
        assert np.array_equal(fs.matmul(b.T, a.T, name).view(np.uint16), plain.T.copy().view(np.uint16))


@pytest.mark.parametrize("path, fmt", [(DATAPATHS[name], DATAPATHS[name].inputs[0]) for name in DATAPATHS],
                         ids=lambda x: x.name)  # fmt: skip
def test_a_row_does_not_depend_on_its_batch(path: Datapath, fmt: Format) -> None:
    a, b, c = given_arrays(5, fmt, path, "near_one", 23, 37, 19)
    named = {"format": fmt} if fmt.is_carried else {}
    whole = fs.matmul(a, b, path, c=c, **named)
    raw = np.uint64 if fmt == binary64 else np.uint8
    for i in (0, 7, 22):
        assert np.array_equal(fs.matmul(a[i], b, path, c=c[i], **named).view(raw), whole[i].view(raw))
    for cut in range(1, 23, 4):  # every split of the batch
        parts = [fs.matmul(a[rows], b, path, c=c[rows], **named) for rows in (slice(cut), slice(cut, None))]
        assert np.array_equal(np.concatenate(parts).view(raw), whole.view(raw))


@contextmanager
def on_threads(n: int) -> Iterator[None]:
    before = fs.set_threads(n)
    try:
        yield
    finally:
        fs.set_threads(before)


@pytest.mark.parametrize("name", ["float32", "float16", "float16_fma", "float64", "pairwise", "v100"])
@pytest.mark.parametrize("m, k, n", [(37, 19, 50), (300, 5, 7), (3, 5, 400), (1, 30, 1)])
def test_any_number_of_threads(name: str, m: int, k: int, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = DATAPATHS[name]
    a, b, c = given_arrays(6, path.inputs[0], path, "near_one", m, k, n)
    batch = np.stack([a, a[::-1], a, a, a])
    with on_threads(1):
        one, five = fs.matmul(a, b, path, c=c), fs.matmul(batch, np.stack([b] * 5), path)
    monkeypatch.setattr(products, "_WORTH_A_THREAD", dict.fromkeys(products._WORTH_A_THREAD, 1))
    monkeypatch.setattr(products, "_WORTH_A_PACKED_THREAD", 1)
    tasks: list[int] = []
    true_run = threading_of.run
    monkeypatch.setattr(threading_of, "run", lambda work: (tasks.append(len(work)), true_run(work))[1])
    for threads in (2, 4):
        with on_threads(threads):
            assert len(products._shares((1, m, n), k, 1)) >= min(2, max(m, n))
            assert np.array_equal(fs.matmul(a, b, path, c=c).view(np.uint8), one.view(np.uint8))
            assert np.array_equal(
                fs.matmul(batch, np.stack([b] * 5), path).view(np.uint8), five.view(np.uint8)
            )
            with fs.count_events() as events:
                fs.matmul(a, b, path, c=c)
        with on_threads(1), fs.count_events() as alone:
            fs.matmul(a, b, path, c=c)
        assert events.as_dict() == alone.as_dict()
        assert max(tasks) > 1  # the work was divided
        tasks.clear()


def test_shares_cover_a_result_once() -> None:
    for shape in [(1, 37, 50), (1, 1, 400), (3, 64, 2), (5, 9, 9), (1, 2, 2), (7, 1, 1)]:
        for n in (1, 2, 4, 7):
            with on_threads(n):
                seen = np.zeros(shape, int)
                for share in products._shares(shape, 10, 1):
                    seen[share] += 1
                assert (seen == 1).all()


def test_out_is_filled_whatever_its_strides_and_whatever_it_shares() -> None:
    rng = np.random.Generator(np.random.PCG64(9))
    a, b = (rng.standard_normal((20, 20)).astype(np.float16) for _ in range(2))
    expected = fs.matmul(a, b)
    outs = [np.empty((20, 20), np.float16), np.empty((20, 40), np.float16)[:, ::2], np.empty((20, 20), np.float16).T,
            np.empty((20, 20), np.float16)[::-1], np.empty((20, 20), ">f2")]  # fmt: skip
    for out in outs:
        assert fs.matmul(a, b, out=out) is out
        assert np.array_equal(out, expected)
    for alias in ("a", "b"):
        x, y = a.copy(), b.copy()
        out = {"a": x, "b": y}[alias]
        assert fs.matmul(x, y, out=out) is out
        assert np.array_equal(out, expected)
    square = a.copy()
    fs.matmul(square, square, out=square.T)
    assert np.array_equal(square.T, fs.matmul(a, a))
    start = rng.standard_normal((20, 20)).astype(np.float32)
    total = start.copy()
    fs.matmul(a, b, c=total, out=total, out_format="binary32")
    assert np.array_equal(total, fs.matmul(a, b, c=start, out_format="binary32"))
    empty = np.empty((0, 20), np.float16)
    assert fs.matmul(a[:0], b, out=empty) is empty
    number = np.empty((), np.float16)
    assert fs.matmul(a[0], b[0], out=number) is number
    assert number == fs.matmul(a[0], b[0])
    carried = np.empty((20, 20), np.float32)
    fs.matmul(a, b, out=carried, out_format="tf32")
    assert np.array_equal(carried, fs.round_to(fs.matmul(a, b, out_format="binary32"), tf32))


def read_only(shape: tuple[int, ...]) -> Array:
    array = np.empty(shape, np.float16)
    array.flags.writeable = False
    return array


ONES = np.ones((2, 3), np.float16)
BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"b": ONES}, ValueError, r"shapes \(2, 3\) and \(2, 3\): the last axis of a \(3\).*transpose or reshape"),
    ({"a": np.float16(1)}, ValueError, "matmul takes vectors and matrices; use fp16sim.multiply"),
    ({"a": np.ones((4, 2, 3), np.float16), "b": np.ones((5, 3, 2), np.float16)}, ValueError, "do not broadcast"),
    ({"a": ONES.astype(np.float64)}, TypeError, "float64 array: .* round them first"),
    ({"a": ONES.astype(np.float64), "datapath": "float64"}, TypeError, "float64 and float16: .* one format"),
    ({"a": ONES.astype(np.float32)}, TypeError, "binary32 and binary16"),
    ({"a": ONES.astype(np.float32), "b": ONES.T.astype(np.float32), "datapath": "float16"}, TypeError,
     "binary32 operands with datapath 'float16': it takes binary16; convert with"),
    ({"a": fs.round_to(ONES, "bfloat16"), "b": fs.round_to(ONES.T, "bfloat16"), "datapath": "v100"}, TypeError,
     "bfloat16 operands with datapath 'v100'"),
    ({"datapath": "float64"}, TypeError, r"binary16 operands .* it takes binary64; convert with x\.astype\(float\)"),
    ({"a": ONES.astype(np.float32), "b": ONES.T.astype(np.float32), "format": fs.Format("e3m2", 3, 3)}, TypeError,
     r"e3m2 operands .* use Datapath\('mine', inputs=\(<the Format 'e3m2'>,\)\), or convert"),
    ({"a": ONES.astype(complex)}, TypeError, "complex"),
    ({"datapath": "flaot16"}, ValueError, "unknown datapath 'flaot16': did you mean 'float16'"),
    ({"out_format": "binary61"}, ValueError, "unknown format 'binary61'"),
    ({"c": np.ones((3, 3), np.float32)}, ValueError, r"c has shape \(3, 3\): .* broadcasts to \(2, 2\)"),
    ({"c": np.ones((2, 2), np.float16)}, TypeError, "float16 array in an operation of binary32"),
    ({"out": np.empty((2, 3), np.float16)}, ValueError, "out has float16 and shape"),
    ({"out": np.empty((2, 2), np.float32)}, ValueError, "out has float32"),
    ({"out": read_only((2, 2))}, ValueError, "out is read-only; pass a writable array"),
    ({"out": [[0.0, 0.0], [0.0, 0.0]]}, TypeError, "out=list"),
]  # fmt: skip


@pytest.mark.parametrize("changed, error, message", BAD)
def test_bad_input_is_refused_in_one_line_before_any_work(
    changed: dict[str, Any], error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_work(*args: Any, **named: Any) -> None:
        raise AssertionError("work was done")

    monkeypatch.setattr(products, "matmul_tiles", no_work)
    arguments = {"a": ONES, "b": ONES.T, **changed}
    with pytest.raises(error, match=message) as caught:
        fs.matmul(arguments.pop("a"), arguments.pop("b"), **arguments)
    assert "\n" not in str(caught.value)


def test_dot_takes_two_vectors_of_one_length() -> None:
    x = np.float16([1, 2, 3])
    assert float(fs.dot(x, x)) == 14.0
    assert float(fs.dot(x, x, c=1.0)) == 15.0
    assert float(fs.dot(x[:0], x[:0])) == 0.0
    for a, b in [(x, x[:2]), (x[None], x[None]), (x, 1.0)]:
        with pytest.raises(ValueError, match="dot takes two vectors of one length"):
            fs.dot(a, b)


def test_lists_are_rounded_and_a_bias_is_an_accumulator_input() -> None:
    assert fs.matmul([[1, 2]], [[3], [4]]).tolist() == [[11.0]]
    bias = np.float32([0.5, -0.5])
    assert fs.matmul(ONES, ONES.T, c=bias).tolist() == [[3.5, 2.5], [3.5, 2.5]]


def test_negative_zero_as_accumulator_input_keeps_its_sign() -> None:
    zero = np.float16([[-0.0]])
    for name in ("float32", "float16", "float16_fma", "exact", "pairwise"):
        start = np.full((1, 1), -0.0, DATAPATHS[name].start_format.dtype)
        for k in (0, 1, 3):
            x = np.zeros((1, k), np.float16)
            assert np.signbit(fs.matmul(x, np.repeat(zero, k, 0), name, c=start)).all(), (name, k)
            assert np.signbit(fs.matmul(x, -np.repeat(zero, k, 0), name, c=start)).any() == (k == 0), (
                name,
                k,
            )


def test_swamped_additions_are_counted() -> None:
    ones = np.ones(4096, np.float16)
    with fs.count_events() as events:
        assert fs.dot(ones, ones, "float16") == 2048
    assert (events.swamped, events.inexact) == (2048, 2048)
    with fs.count_events() as events:
        fs.dot(ones, ones)
        fs.add(2048.0, 1.0)
    assert events.swamped == 0
    assert "swamped" in events.table().splitlines()[0]


@pytest.mark.parametrize("path, fmt", CASES, ids=lambda x: x.name)
def test_counting_changes_no_bit_and_equals_the_definition(path: Datapath, fmt: Format) -> None:
    a, b, c = given_arrays(11, fmt, path, "special", 5, 9, 4)
    named = {"format": fmt} if fmt.is_carried else {}
    plain = fs.matmul(a, b, path, c=c, **named)
    with fs.count_events() as events:
        counted = fs.matmul(a, b, path, c=c, **named)
    with fs.use_backend("reference"), fs.count_events() as expected:
        fs.matmul(a, b, path, c=c, **named)
    assert np.array_equal(plain.view(np.uint8), counted.view(np.uint8))
    assert events.as_dict() == expected.as_dict()


def test_lists_are_binary64_where_the_datapath_takes_nothing_else() -> None:
    product = fs.matmul([[1 / 3, 2]], [[3], [0.1]], "float64")
    assert product.dtype == np.float64
    assert product.tolist() == [[1 / 3 * 3 + 2 * 0.1]]


def test_the_help_names_every_family_of_datapaths() -> None:
    families = {name.split(":")[0] for name in DATAPATHS}
    assert [name for name in families if f'"{name}' not in (fs.matmul.__doc__ or "")] == []
