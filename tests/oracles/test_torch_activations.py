"""Activations, softmax, embedding and their gradients held to torch 2.13 on a CPU, over many shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fp16sim.autograd import ops
from fp16sim.autograd.tensor import Tensor

pytestmark = pytest.mark.oracle

MANY = settings(derandomize=True, deadline=None, max_examples=30, database=None)
TOLERANCE = {"float64": 1e-12, "float32": 8 * 2.0**-23}
"""Relative to the largest element: a few roundings, and torch's vector functions err by up to 4 ulps of float32."""

ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Any, Any], Any]]] = {
    "relu": (ops.relu, lambda f, x: f.relu(x)),
    "leaky_relu": (lambda x: ops.leaky_relu(x, 0.2), lambda f, x: f.leaky_relu(x, 0.2)),
    "negative slope": (lambda x: ops.leaky_relu(x, -0.2), lambda f, x: f.leaky_relu(x, -0.2)),
    "gelu": (ops.gelu, lambda f, x: f.gelu(x)),
    "gelu_tanh": (lambda x: ops.gelu(x, "tanh"), lambda f, x: f.gelu(x, approximate="tanh")),
    "silu": (ops.silu, lambda f, x: f.silu(x)),
    "tanh": (ops.tanh, lambda f, x: f.tanh(x)),
    "sigmoid": (ops.sigmoid, lambda f, x: f.sigmoid(x)),
    # torch gives x itself above its threshold, by default 20.
    "softplus": (ops.softplus, lambda f, x: f.softplus(x, threshold=1000)),
    "softmax": (lambda x: ops.softmax(x, 0), lambda f, x: f.softmax(x, dim=0)),
    "softmax of the last": (ops.softmax, lambda f, x: f.softmax(x, dim=-1)),
    "log_softmax": (lambda x: ops.log_softmax(x, 0), lambda f, x: f.log_softmax(x, dim=0)),
    "log_softmax of the last": (ops.log_softmax, lambda f, x: f.log_softmax(x, dim=-1)),
}


def worst(ours: Any, theirs: Any, size: float = 1.0) -> float:
    """Give the largest difference, relative to the largest element; NaN where only one is NaN."""
    a, b = np.asarray(ours, np.float64), theirs.detach().numpy().astype(np.float64)
    assert a.shape == b.shape
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    difference = np.where(same, 0.0, np.abs(np.where(same, 0.0, a) - np.where(same, 0.0, b)))
    return float(
        np.max(difference, initial=0.0) / max(np.max(np.abs(np.where(same, 0.0, b)), initial=size), 1e-300)
    )


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_values_and_gradients(torch: Any, name: str, dtype: str) -> None:
    ours, theirs = ACTIVATIONS[name]

    @MANY
    @given(
        st.lists(st.integers(1, 6), min_size=1, max_size=4),
        st.integers(0, 2**32 - 1),
        st.sampled_from([0.1, 1.0, 5.0]),
    )
    def check(shape: list[int], seed: int, spread: float) -> None:
        rng = np.random.default_rng(seed)
        x = (rng.normal(size=shape) * spread).astype(dtype)
        g = rng.normal(size=shape).astype(dtype)
        mine = Tensor(x, requires_grad=True)
        y = ours(mine)
        y.backward(g)
        other = torch.from_numpy(x.copy()).requires_grad_()
        z = theirs(torch.nn.functional, other)
        z.backward(torch.from_numpy(g))
        # Sums of gradients along a row cancel: they are measured by their terms.
        terms = float(np.abs(g).max())
        assert worst(y.data, z) < TOLERANCE[dtype]
        assert worst(mine.grad, other.grad, terms) < TOLERANCE[dtype]

    check()


def test_special_values(torch: Any) -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 88.0, -104.0], np.float32)
    for name in ("relu", "leaky_relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", "softplus"):
        ours, theirs = ACTIVATIONS[name]
        y, z = ours(Tensor(x)).data, theirs(torch.nn.functional, torch.from_numpy(x)).numpy()
        finite = np.isfinite(x)
        assert np.allclose(y[finite], z[finite], rtol=1e-6, atol=1e-37), name
        assert np.isnan(y[4]), name
        if name in (
            "gelu",
            "gelu_tanh",
            "silu",
        ):  # torch multiplies infinity by 0 or NaN there; ours is the limit
            assert y[2:4].tolist() == [np.inf, 0.0], name
        else:
            assert y[2:4].tolist() == z[2:4].tolist(), name


@pytest.mark.parametrize("function", ["softmax", "log_softmax"])
def test_rows_that_are_masked_wholly_or_in_part(torch: Any, function: str) -> None:
    x = np.float64([[-np.inf, -np.inf], [-np.inf, 1.0], [np.inf, 0.0], [np.nan, 0.0]])
    ours = getattr(ops, function)(Tensor(x)).data
    theirs = getattr(torch, function)(torch.from_numpy(x), dim=-1).numpy()
    assert np.array_equal(ours, theirs, equal_nan=True)


@MANY
@given(
    st.integers(1, 9), st.integers(1, 5), st.lists(st.integers(1, 5), max_size=3), st.integers(0, 2**32 - 1)
)
def check_embedding(torch: Any, rows: int, width: int, shape: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    weight = rng.normal(size=(rows, width)).astype(np.float32)
    ids, padding = rng.integers(0, rows, shape), int(rng.integers(0, rows))
    g = rng.integers(-8, 8, size=(*shape, width)).astype(np.float32)
    mine = Tensor(weight, requires_grad=True)
    y = ops.embedding(ids, mine, padding)
    y.backward(g)
    other = torch.from_numpy(weight.copy()).requires_grad_()
    z = torch.nn.functional.embedding(torch.from_numpy(np.asarray(ids)), other, padding_idx=padding)
    z.backward(torch.from_numpy(g))
    assert np.array_equal(y.data, z.detach().numpy())
    assert np.array_equal(mine.grad, other.grad.numpy())  # sums of small integers: exact in any order


def test_embedding(torch: Any) -> None:
    check_embedding(torch)


def test_a_planted_fault_is_noticed(torch: Any) -> None:
    """The approximation by tanh is no GELU: 4.7e-4 apart."""
    x = np.linspace(-4, 4, 101)
    y = ops.gelu(Tensor(x), "tanh").data
    assert worst(y, torch.nn.functional.gelu(torch.from_numpy(x))) > 1e-5
