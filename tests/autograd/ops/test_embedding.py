"""Rows of a table: copies forward, sums in order backward."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fp16sim.autograd import ops
from fp16sim.autograd.gradcheck import gradcheck
from fp16sim.autograd.policy import Policy, autocast
from fp16sim.autograd.tensor import Tensor


def gradient_of(weight: Any, ids: Any, g: Any, policy: str, **options: Any) -> Any:
    tensor = Tensor(weight, requires_grad=True)
    with autocast(policy):
        rows = ops.embedding(ids, tensor, **options)
    assert np.array_equal(rows.data, tensor.data[ids].astype(rows.dtype))
    rows.backward(g)
    return tensor.grad


@pytest.mark.parametrize("policy", ["float16", "float32", "mixed_float16"])
def test_rows_and_their_gradients(policy: str) -> None:
    rng = np.random.default_rng(0)
    dtype = np.float16 if policy == "float16" else np.float32
    weight, ids = rng.normal(size=(7, 3)).astype(dtype), rng.integers(0, 6, size=(4, 5))
    g = rng.normal(size=(4, 5, 3)).astype(dtype)
    expected = np.zeros((7, 3), dtype)
    for place in np.ndindex(4, 5):
        # NumPy's scalar additions are correctly rounded.
        expected[ids[place]] = expected[ids[place]] + g[place]
    found = gradient_of(weight, ids, g, policy)
    assert found.tobytes() == expected.tobytes()
    padded = gradient_of(weight, ids, g, policy, padding_idx=-4)
    expected[3] = 0
    assert padded.tobytes() == expected.tobytes()


def test_kerass_lists_gather_in_the_compute_format_and_torchs_do_not() -> None:
    weight = Tensor(np.float32([[0.1], [0.2]]), requires_grad=True)
    with autocast(Policy("mixed_float16", flavour="keras")):
        assert ops.embedding([1], weight).dtype == np.float16
    with autocast("mixed_float16"):
        assert ops.embedding([1], weight).dtype == np.float32


def test_a_frequent_row_stalls_in_float16() -> None:
    """mxnet#17703: one gradient of 1 and 12,500 of .01 for one row; right is 126."""
    ids = np.zeros(12501, np.int64)
    for dtype, policy, right in ((np.float16, "float16", 32.0), (np.float32, "float32", 126.0)):
        g = np.full((12501, 1), 0.01, dtype)
        g[0] = 1
        found = gradient_of(np.zeros((1, 1), dtype), ids, g, policy)
        assert found.item() == pytest.approx(right, rel=1e-4)
    with autocast(Policy("float16", reduction="float32")):
        weight = Tensor(np.zeros((1, 1), np.float16), requires_grad=True)
        rows = ops.embedding(ids, weight)
    rows.backward(np.append(np.float16([[1]]), np.full((12500, 1), 0.01, np.float16), axis=0))
    assert weight.grad is not None
    assert weight.grad.item() == 126.0


def test_gradient_in_float64() -> None:
    weight = Tensor(np.random.default_rng(1).normal(size=(5, 2)), requires_grad=True)
    gradcheck(lambda w: ops.embedding(np.array([[1, 4], [1, 0]]), w), [weight])


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda w: ops.embedding([[0, 1], [5, 0]], w), ValueError, r"id 5 at position \(1, 0\): .* 0 to 4"),
        (lambda w: ops.embedding([-1], w), ValueError, r"id -1 at position \(0,\)"),
        (lambda w: ops.embedding([0.5], w), TypeError, "dtype float64: pass integers"),
        (lambda w: ops.embedding(Tensor([0.0]), w), TypeError, "ids of an embedding are a Tensor"),
        (lambda w: ops.embedding([0], w.reshape(-1)), ValueError, r"weight of shape \(10,\)"),
        (lambda w: ops.embedding([0], w, padding_idx=5), ValueError, "padding_idx=5: name one of the 5 rows"),
        (lambda w: ops.embedding([0], np.ones((2, 2))), TypeError, "pass fs.Tensor"),
    ],
)
def test_refusals(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call(Tensor(np.zeros((5, 2), np.float32)))


def test_an_empty_list_takes_no_rows() -> None:
    weight = Tensor(np.ones((3, 2), np.float32), requires_grad=True)
    taken = ops.embedding([], weight)
    assert taken.shape == (0, 2)
    taken.sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [[0, 0]] * 3
    with pytest.raises(TypeError, match="dtype float64"):
        ops.embedding(np.zeros(0), weight)
