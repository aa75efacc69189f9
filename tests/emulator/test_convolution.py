"""Convolutions and their gradients: the definition against plain sums, the kernels against the definition."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fp16sim_encodings import STYLES, draw
from hypothesis import assume, given, settings, strategies as st

import fp16sim as fs
from fp16sim.emulator.backends import unfolding
from fp16sim.emulator.convolution_geometry import Geometry
from fp16sim.emulator.datapath import DATAPATHS

Array = npt.NDArray[Any]
PATHS = ("float32", "float16", "float16_fma", "pairwise", "exact", "a100", "v100:float16")


@st.composite
def problems(drawn: st.DrawFn, largest: int = 6) -> dict[str, Any]:
    """Draw shapes and steps of a convolution in one to three dimensions."""
    d = drawn(st.integers(1, 3))
    if d == 3:
        largest = min(largest, 4)
    groups = drawn(st.integers(1, 3))
    spatial = st.lists(st.integers(1, largest), min_size=d, max_size=d)
    few = st.lists(st.integers(1, 3), min_size=d, max_size=d)
    found = {
        "x": (drawn(st.integers(0, 2)), groups * drawn(st.integers(1, 2)), *drawn(spatial)),
        "kernel": drawn(few),
        "outputs": groups * drawn(st.integers(1, 2)),
        "stride": tuple(drawn(few)),
        "dilation": tuple(drawn(few)),
        "padding": tuple(drawn(st.lists(st.integers(0, 4), min_size=d, max_size=d))),
        "groups": groups,
        "seed": drawn(st.integers(0, 2**32)),
    }
    reach = [n + 2 * p - t * (k - 1) for n, p, t, k in zip(
        found["x"][2:], found["padding"], found["dilation"], found["kernel"], strict=True)]  # fmt: skip
    assume(min(reach) >= 1)
    return found


def functions(dimensions: int) -> tuple[Any, Any, Any]:
    return tuple(getattr(fs, f"conv{dimensions}d{suffix}") for suffix in ("", "_input", "_weight"))  # type: ignore[return-value]


def results(problem: dict[str, Any], x: Array, w: Array, g: Array, **named: Any) -> list[Array]:
    """Give the convolution and its gradients."""
    steps = {name: problem[name] for name in ("stride", "padding", "dilation", "groups")}
    forward, input_gradient, weight_gradient = functions(x.ndim - 2)
    return [
        forward(x, w, **steps, **named),
        input_gradient(x.shape, w, g, **steps, **named),
        weight_gradient(x, w.shape, g, **steps, **named),
    ]


def operands(problem: dict[str, Any], style: str) -> tuple[Array, Array, Array]:
    """Draw input, weight and gradient of the output."""
    rng = np.random.Generator(np.random.PCG64(problem["seed"]))
    x_shape, groups = problem["x"], problem["groups"]
    w_shape = (problem["outputs"], x_shape[1] // groups, *problem["kernel"])
    padding = tuple((n, n) for n in problem["padding"])
    geometry = Geometry(x_shape[2:], w_shape[2:], problem["stride"], problem["dilation"], padding, groups)
    g_shape = (x_shape[0], w_shape[0], *geometry.output)
    if style == "integers":
        return tuple(rng.integers(-4, 5, shape).astype(np.float16) for shape in (x_shape, w_shape, g_shape))  # type: ignore[return-value]
    finite = bool(rng.integers(2))
    return tuple(
        draw(rng, fs.binary16, shape, style, finite).view(np.float16) for shape in (x_shape, w_shape, g_shape)
    )  # type: ignore[return-value]


def plain(problem: dict[str, Any], x: Array, w: Array, g: Array) -> list[Array]:
    """Scatter every product of a window's element with its weight, in float64: exact on small integers."""
    y, dx, dw = np.zeros(g.shape), np.zeros(x.shape), np.zeros(w.shape)
    each_in, each_out = w.shape[1], w.shape[0] // problem["groups"]
    for n, o, c in product(range(x.shape[0]), range(w.shape[0]), range(each_in)):
        channel = o // each_out * each_in + c
        for place in np.ndindex(g.shape[2:]):
            for tap in np.ndindex(w.shape[2:]):
                at = tuple(
                    p * s + t * d - z
                    for p, s, t, d, z in zip(
                        place, problem["stride"], tap, problem["dilation"], problem["padding"], strict=True
                    )
                )
                if all(0 <= i < size for i, size in zip(at, x.shape[2:], strict=True)):
                    value, weight, gradient = x[n, channel][at], w[o, c][tap], g[n, o][place]
                    y[n, o][place] += float(value) * float(weight)
                    dx[n, channel][at] += float(gradient) * float(weight)
                    dw[o, c][tap] += float(value) * float(gradient)
    return [y, dx, dw]


def differences(ours: list[Array], others: list[Array]) -> int:
    return sum(
        int(np.sum(a.view(f"u{a.itemsize}") != b.view(f"u{b.itemsize}"))) if a.shape == b.shape else 1
        for a, b in zip(ours, others, strict=True)
    )


@settings(max_examples=40, derandomize=True, database=None, deadline=None)
@given(problem=problems(largest=5))
def test_the_definition_is_convolution_and_its_gradients(problem: dict[str, Any]) -> None:
    x, w, g = operands(problem, "integers")
    with fs.use_backend("reference"):
        found = results(problem, x, w, g)
    for ours, exact in zip(found, plain(problem, x, w, g), strict=True):
        assert np.array_equal(ours.astype(np.float64), exact)


@pytest.mark.parametrize("name", PATHS)
def test_kernels_equal_the_definition(name: str) -> None:
    @settings(max_examples=15, derandomize=True, database=None, deadline=None)
    @given(problem=problems(), style=st.sampled_from(STYLES))
    def check(problem: dict[str, Any], style: str) -> None:
        arrays = operands(problem, style)
        found = results(problem, *arrays, datapath=name)
        with fs.use_backend("reference"):
            assert differences(found, results(problem, *arrays, datapath=name)) == 0

    check()


@pytest.mark.slow
def test_kernels_equal_the_definition_over_many_problems() -> None:
    seen = {"problems": 0, "elements": 0}

    @settings(max_examples=600, derandomize=True, database=None, deadline=None)
    @given(problem=problems(), style=st.sampled_from(STYLES), name=st.sampled_from(sorted(DATAPATHS)))
    def check(problem: dict[str, Any], style: str, name: str) -> None:
        assume(fs.binary16 in DATAPATHS[name].inputs)
        arrays = operands(problem, style)
        found = results(problem, *arrays, datapath=name)
        with fs.use_backend("reference"):
            assert differences(found, results(problem, *arrays, datapath=name)) == 0
        seen["problems"] += 1
        seen["elements"] += sum(array.size for array in found)

    check()
    print(f"\nconvolutions and gradients equal to the definition: {seen}")
    assert seen["problems"] >= 400


def some(**changed: Any) -> dict[str, Any]:
    problem = {"x": (3, 4, 7, 6), "kernel": [3, 2], "outputs": 6, "stride": (2, 1), "dilation": (1, 2),
               "padding": (1, 2), "groups": 2, "seed": 5}  # fmt: skip
    return {**problem, **changed}


def test_a_wrong_order_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taps from the last to the first give other bits in float16: the comparison sees it."""
    arrays = operands(some(), "near_one")
    with fs.use_backend("reference"):
        expected = results(some(), *arrays, datapath="float16")
    true_windows = unfolding._windows

    def backwards(x: Array, places: Any, kernel: Any, stride: Any, dilation: Any, after: int = 0) -> Array:
        lead = (slice(None),) * (x.ndim - after - len(places))
        windows = true_windows(x, places, kernel, stride, dilation, after)
        return windows[(*lead, *[slice(None, None, -1)] * len(kernel))]

    monkeypatch.setattr(unfolding, "_windows", backwards)
    assert differences(results(some(), *arrays, datapath="float16"), expected) > 0


def test_the_order_of_k_is_the_documented_one() -> None:
    """Each element is fs.dot of vectors gathered in the order of the docstring."""
    problem = some(stride=(1, 1), dilation=(1, 1), padding=(0, 0), groups=1, outputs=3)
    x, w, g = operands(problem, "near_one")
    y, dx, dw = results(problem, x, w, g, datapath="float16")
    height, width = w.shape[2:]
    window = x[1, :, 2 : 2 + height, 3 : 3 + width]
    assert y[1, 2, 2, 3].view(np.uint16) == fs.dot(w[2].reshape(-1), window.reshape(-1), "float16").view(
        np.uint16
    )
    around = np.pad(g[1], ((0, 0), (height - 1, height - 1), (width - 1, width - 1)))
    entries = around[:, 2 : 2 + height, 3 : 3 + width][:, ::-1, ::-1]  # tap t of place p: entry p - t
    expected = fs.dot(w[:, 3].reshape(-1), entries.reshape(-1), "float16")
    assert dx[1, 3, 2, 3].view(np.uint16) == expected.view(np.uint16)
    seen = x[:, 1, 2 : 2 + g.shape[2], 1 : 1 + g.shape[3]]
    expected = fs.dot(g[:, 2].reshape(-1), seen.reshape(-1), "float16")
    assert dw[2, 1, 2, 1].view(np.uint16) == expected.view(np.uint16)


def test_padding_takes_part_as_zeros() -> None:
    x, w = np.ones((1, 1, 3), np.float16), np.float16([[[np.inf, 1, 1]]])
    y = fs.conv1d(x, w, padding=1)
    assert np.isnan(y[0, 0, 0])
    assert np.isposinf(y[0, 0, 1:]).all()
    # A stride's zeros too: every other place of the input meets inf only through an inserted zero.
    dx = fs.conv1d_input((1, 1, 5), np.float16([[[np.inf]]]), np.ones((1, 1, 3), np.float16), stride=2)
    assert np.isnan(dx[0, 0]).tolist() == [False, True, False, True, False]
    negative = fs.conv1d(np.float16([[[-0.0]]]), np.float16([[[1, 1, 1]]]), padding=1)
    assert not np.signbit(negative).any()


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_threads_and_splits_of_the_batch_change_nothing(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfolding, "_WORTH_THREADS", 0)
    problem = some(x=(5, 4, 4, 3))
    x, w, g = operands(problem, "near_one")
    with fs.use_backend("reference"):
        expected = results(problem, x, w, g, datapath="float16")
    before = fs.set_threads(threads)
    try:
        assert differences(results(problem, x, w, g, datapath="float16"), expected) == 0
        with fs.count_events() as events:
            results(problem, x, w, g, datapath="float16")
        for cut in range(1, 5):
            parts = [results(problem, x[rows], w, g[rows], datapath="float16") for rows in
                     (slice(cut), slice(cut, None))]  # fmt: skip
            for which in (0, 1):
                assert np.array_equal(
                    np.concatenate([p[which] for p in parts]), expected[which], equal_nan=True
                )
    finally:
        fs.set_threads(before)
    with fs.use_backend("reference"), fs.count_events() as defined:
        results(problem, x, w, g, datapath="float16")
    assert events.as_dict() == defined.as_dict()
    assert set(events.as_dict()[""]) == {
        "convolution",
        "convolution_input_gradient",
        "convolution_weight_gradient",
    }


@pytest.mark.parametrize("limit", ["_COLUMNS", "_TOGETHER"])
@pytest.mark.parametrize("size", [1, 1000])
def test_columns_made_in_parts_change_nothing(limit: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = operands(some(), "near_one")
    whole = results(some(), *arrays, datapath="float16")
    monkeypatch.setattr(unfolding, limit, size)
    assert differences(results(some(), *arrays, datapath="float16"), whole) == 0


@pytest.mark.parametrize(
    "path, dtype", [("float32", np.float32), ("float64", np.float64), ("exact", np.float32)]
)
def test_wider_operands(path: str, dtype: type) -> None:
    problem = some()
    rng = np.random.Generator(np.random.PCG64(2))
    arrays = [rng.standard_normal(a.shape).astype(dtype) for a in operands(problem, "near_one")]
    found = results(problem, *arrays, datapath=path)
    assert {a.dtype for a in found} == {np.dtype(dtype)}
    with fs.use_backend("reference"):
        assert differences(found, results(problem, *arrays, datapath=path)) == 0


def test_result_formats_and_bias() -> None:
    x, w, _ = operands(some(), "integers")
    steps = {name: some()[name] for name in ("stride", "padding", "dilation", "groups")}
    assert fs.conv2d(x, w, **steps).dtype == np.float16
    assert fs.conv2d(x, w, **steps, datapath="a100").dtype == np.float32
    assert fs.conv2d(x, w, **steps, out_format="bfloat16").dtype == fs.bfloat16.dtype
    bias = np.arange(6, dtype=np.float16) / 8
    expected = fs.add(fs.conv2d(x, w, **steps), bias.reshape(-1, 1, 1))
    assert np.array_equal(fs.conv2d(x, w, bias, **steps), expected)


def test_unbatched_input_integers_and_names_of_padding() -> None:
    x = np.float16([[1, 2, 3, 4]])
    w = np.float16([[[1, 10]]])
    assert fs.conv1d(x, w).tolist() == [[21.0, 32.0, 43.0]]
    assert fs.conv1d(x, w, padding="same").tolist() == [[21.0, 32.0, 43.0, 4.0]]
    assert fs.conv1d(x, w, padding="valid").tolist() == fs.conv1d(x, w).tolist()
    assert fs.conv1d(x, w, stride=2, padding=(1,)).tolist() == [[10.0, 32.0, 4.0]]
    assert fs.conv1d_input((1, 4), w, np.float16([[1, 1, 1]])).tolist() == [[1.0, 11.0, 11.0, 10.0]]
    assert fs.conv1d_weight(x, (1, 1, 2), np.float16([[1, 1, 1]])).tolist() == [[[6.0, 9.0]]]


def test_out_is_filled_whatever_its_strides_and_whatever_it_shares() -> None:
    x = np.random.Generator(np.random.PCG64(1)).standard_normal((2, 3, 5, 5)).astype(np.float16)
    w = x[0, :, None, :3, :3].repeat(3, 1)
    expected = fs.conv2d(x, w, padding=1)
    for out in (
        np.empty_like(x),
        np.empty((2, 3, 5, 10), np.float16)[..., ::2],
        np.empty(x.shape[::-1], np.float16).T,
    ):
        assert fs.conv2d(x, w, padding=1, out=out) is out
        assert np.array_equal(out, expected)
    y = x.copy()
    assert fs.conv2d(y, w, padding=1, out=y) is y
    assert np.array_equal(y, expected)
    frozen = np.empty_like(x)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only"):
        fs.conv2d(x, w, padding=1, out=frozen)
    with pytest.raises(ValueError, match="out has float16 and shape"):
        fs.conv2d(x, w, out=np.empty_like(x))


X, W, G = (np.ones(shape, np.float16) for shape in ((2, 4, 5, 5), (6, 4, 3, 3), (2, 6, 3, 3)))
BAD: list[tuple[str, tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
    ("conv2d", (X[0, 0], W), {}, ValueError, r"input has shape \(5, 5\)"),
    ("conv2d", (X, W[0]), {}, ValueError, r"weight has shape \(4, 3, 3\)"),
    ("conv2d", (X, W[:, :3]), {}, ValueError, "input with 4 channels"),
    ("conv2d", (X, W[:, :2]), {"groups": 4}, ValueError, "groups=4"),
    ("conv2d", (X, W), {"groups": 0}, ValueError, "groups=0"),
    ("conv2d", (X, W), {"stride": 0}, ValueError, r"stride=\(0, 0\)"),
    ("conv2d", (X, W), {"stride": (1, 2, 3)}, ValueError, "pass an integer, or one for each of 2"),
    ("conv2d", (X, W), {"dilation": 1.5}, ValueError, "dilation=1.5: pass an integer"),
    ("conv2d", (X, W), {"dilation": 4}, ValueError, "smaller than the kernel"),
    ("conv2d", (X, W), {"padding": -1}, ValueError, "cannot be negative"),
    ("conv2d", (X, W), {"padding": "smae"}, ValueError, "did you mean 'same'"),
    ("conv2d", (X, W), {"padding": "same", "stride": 2}, ValueError, "padding='same' with stride"),
    ("conv2d", (X, W, np.ones(5, np.float16)), {}, ValueError, r"bias has shape \(5,\)"),
    ("conv2d", (X, W.astype(np.float32)), {}, TypeError, "binary16 and binary32"),
    ("conv2d", (X, W), {"datapath": "float61"}, ValueError, "unknown datapath"),
    ("conv2d", (X[0, 0], W), {}, ValueError, r"\(batch, channels\), or \(channels\) of one image, and then 2 spatial"),
    ("conv2d_input", (G, W, X.shape), {}, TypeError,
     r"input_size is an array of shape \(2, 6, 3, 3\): .* conv2d_input\(input_size, weight, grad_output\)"),
    ("conv2d_weight", (X, G, W.shape), {}, TypeError, r"conv2d_weight\(input, weight_size, grad_output\); pass"),
    ("conv2d_input", (5, W, G), {}, TypeError, "input_size is 5: it is a tuple of integers"),
    ("conv2d_input", ((2, 4, 5.0, 5), W, G), {}, TypeError, r"input_size is \(2, 4, 5.0, 5\): it is a tuple of"),
    ("conv2d_input", (X.shape[1:3], W, G), {}, ValueError, "input_size="),
    ("conv2d_input", (X.shape, W, G[:, :, :2]), {}, ValueError, r"grad_output has shape \(2, 6, 2, 3\)"),
    ("conv2d_weight", (X, W.shape[1:], G), {}, ValueError, "weight_size="),
    ("conv2d_weight", (X, W.shape, G), {"padding": 1}, ValueError, "the result of this convolution has"),
]  # fmt: skip


@pytest.mark.parametrize("name, args, named, error, message", BAD)
def test_bad_input_is_refused_in_one_line_before_any_work(
    name: str,
    args: tuple[Any, ...],
    named: dict[str, Any],
    error: Any,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_work(*args: Any, **named: Any) -> None:
        raise AssertionError("work was done")

    for which in ("forward", "input_gradient", "weight_gradient"):
        monkeypatch.setattr(unfolding, which, no_work)
    with pytest.raises(error, match=message) as caught:
        getattr(fs, name)(*args, **named)
    assert "\n" not in str(caught.value)
