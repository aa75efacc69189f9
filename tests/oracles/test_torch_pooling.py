"""Pooling and its gradients, held to torch 2.13 on a CPU over many shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fp16sim import nn
from fp16sim.autograd.backward import gradients
from fp16sim.autograd.tensor import Tensor

pytestmark = pytest.mark.oracle

MANY = settings(derandomize=True, deadline=None, max_examples=30, database=None)


@st.composite
def problems(draw: Any, kind: str) -> tuple[str, tuple[int, ...], dict[str, Any]]:
    d = draw(st.integers(1, 3))
    kernel = tuple(draw(st.integers(1, 4)) for _ in range(d))
    arguments = {
        "kernel_size": kernel,
        "stride": draw(st.sampled_from([None, tuple(draw(st.integers(1, 3)) for _ in range(d))])),
        "padding": tuple(draw(st.integers(0, k // 2)) for k in kernel),
    }
    reach = kernel
    if kind == "MaxPool":
        arguments["dilation"] = tuple(draw(st.integers(1, 2)) for _ in range(d))
        reach = tuple(b * (k - 1) + 1 for k, b in zip(kernel, arguments["dilation"], strict=True))
    size = tuple(draw(st.integers(n, 8)) for n in reach)
    return f"{kind}{d}d", (*draw(st.sampled_from([(), (1,), (2,)])), 2, *size), arguments


def both(torch: Any, problem: Any, x: Any) -> tuple[list[Any], list[Any]]:
    """Give result and gradient of ours and of torch, in the dtype of x."""
    name, _, arguments = problem
    tensor = Tensor(x, requires_grad=True)
    y = getattr(nn, name)(**arguments)(tensor)
    g = np.random.default_rng(1).integers(-8, 9, y.shape).astype(x.dtype)
    inputs = torch.from_numpy(x).requires_grad_()
    outputs = getattr(torch.nn, name)(**arguments)(inputs)
    outputs.backward(torch.from_numpy(g))
    return [y.data, gradients(y, [tensor], g)[0]], [outputs.detach().numpy(), inputs.grad.numpy()]


@given(problem=problems("MaxPool"))
@MANY
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_max_pool_is_exact(torch: Any, problem: Any, dtype: str) -> None:
    # Small integers: many ties, and gradients whose sums are exact in any order. All bits agree.
    x = np.random.default_rng(0).integers(-3, 4, problem[1]).astype(dtype)
    x[x == -3] = -np.inf
    mine, theirs = both(torch, problem, x)
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_array_equal(a, b, strict=True)
        np.testing.assert_array_equal(np.signbit(a), np.signbit(b))


@given(problem=problems("AvgPool"))
@MANY
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_avg_pool(torch: Any, problem: Any, dtype: str) -> None:
    x = np.random.default_rng(0).normal(size=problem[1]).astype(dtype)
    mine, theirs = both(torch, problem, x)
    for a, b in zip(mine, theirs, strict=True):
        assert a.shape == b.shape
        # At most 64 terms, summed in the order of torch: what differs is a rounding of the quotient, once a window.
        tolerance = 1e-12 if dtype == "float64" else 8 * 2.0**-24
        assert np.abs(a - b).max() <= tolerance * max(np.abs(b).max(), 1e-300)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_adaptive_avg_pool(torch: Any, d: int) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, *range(4, 4 + d)))
    name = f"AdaptiveAvgPool{d}d"
    (y, gradient), (other, theirs) = both(torch, (name, x.shape, {"output_size": 1}), x)
    assert y.shape == other.shape
    assert np.abs(y - other).max() <= 1e-12 * np.abs(other).max()
    assert np.abs(gradient - theirs).max() <= 1e-12 * np.abs(theirs).max()


def test_nan_wins_in_both(torch: Any) -> None:
    x = np.float32([[[1, np.nan, 2, 3, np.inf, 0]]])
    mine, theirs = both(torch, ("MaxPool1d", x.shape, {"kernel_size": 2}), x)
    np.testing.assert_array_equal(mine[0], theirs[0])
    np.testing.assert_array_equal(mine[1], theirs[1])
