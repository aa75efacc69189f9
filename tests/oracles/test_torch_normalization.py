"""Normalisations, their gradients and running statistics, held to torch 2.13 on a CPU over many shapes."""

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
TOLERANCE = {"float64": 1e-12, "float32": 64 * 2.0**-24}
"""Relative to the largest element: some fifteen steps are rounded, and differences from the mean are smaller than the
numbers, whose roundings they keep. 32 ulps of float32 hold all of it."""


@st.composite
def batches(draw: Any) -> tuple[str, tuple[int, ...], dict[str, Any]]:
    d = draw(st.integers(1, 3))
    spatial = draw(st.integers(0 if d == 1 else d, d))
    channels = draw(st.integers(1, 4))
    shape = (draw(st.integers(4, 6)), channels, *(draw(st.integers(1, 4)) for _ in range(spatial)))
    arguments = {
        "num_features": channels,
        "eps": draw(st.sampled_from([1e-5, 1e-3, 0.1])),
        "momentum": draw(st.sampled_from([0.1, 0.01, None])),
        "affine": draw(st.booleans()),
        "track_running_stats": draw(st.booleans()),
    }
    return f"BatchNorm{d}d", shape, arguments


@st.composite
def examples(draw: Any) -> tuple[str, tuple[int, ...], dict[str, Any]]:
    name = draw(st.sampled_from(["LayerNorm", "RMSNorm", "GroupNorm"]))
    eps = draw(st.sampled_from([1e-5, 1e-3, 0.1]))
    if name == "GroupNorm":
        groups = draw(st.integers(1, 3))
        channels = groups * draw(st.integers(2, 3))
        shape = (draw(st.integers(1, 3)), channels, *draw(st.lists(st.integers(1, 4), max_size=3)))
        affine = draw(st.booleans())
        return name, shape, {"num_groups": groups, "num_channels": channels, "eps": eps, "affine": affine}
    last = tuple(draw(st.lists(st.integers(3, 6), min_size=1, max_size=2)))
    shape = (*draw(st.lists(st.integers(1, 3), max_size=2)), *last)
    arguments: dict[str, Any] = {"normalized_shape": last, "eps": eps}
    arguments["elementwise_affine"] = draw(st.booleans())
    if name == "LayerNorm":
        arguments["bias"] = draw(st.booleans())
    elif draw(st.booleans()):
        del arguments["eps"]
    return name, shape, arguments


def pair(torch: Any, problem: Any, dtype: str) -> tuple[Any, Any]:
    """Make the two layers, with the same parameters, which are neither ones nor zeros."""
    name, _, arguments = problem
    ours = getattr(nn, name)(**arguments).to(dtype)
    rng = np.random.default_rng(1)
    for parameter in ours.parameters():
        parameter.data = rng.normal(1, 1, parameter.shape).astype(dtype)
    theirs = getattr(torch.nn, name)(**arguments, dtype=getattr(torch, dtype))
    theirs.load_state_dict({key: torch.from_numpy(value) for key, value in ours.state_dict().items()})
    return ours, theirs


def compared(torch: Any, ours: Any, theirs: Any, shape: tuple[int, ...], dtype: str, seed: int = 0) -> None:
    """Compare results, gradients of input and parameters, and all state."""
    rng = np.random.default_rng(seed)
    x = Tensor(rng.normal(0.3, 2, shape).astype(dtype), requires_grad=True)
    y = ours(x)
    g = rng.normal(size=shape).astype(dtype)
    mine = [y.data, *gradients(y, [x, *ours.parameters()], g)]
    inputs = torch.from_numpy(x.data.copy()).requires_grad_()
    theirs.zero_grad()
    outputs = theirs(inputs)
    outputs.backward(torch.from_numpy(g))
    grads = [inputs.grad, *(parameter.grad for parameter in theirs.parameters())]
    others = [outputs.detach(), *grads, *theirs.state_dict().values()]
    mine += list(ours.state_dict().values())
    # In the gradient of the input, terms of the size of G w cancel: the fewer numbers, the more.
    weight = getattr(ours, "weight", None)
    terms = np.abs(g).max() * (1 if weight is None else np.abs(weight.data).max())
    for position, (a, b) in enumerate(zip(mine, others, strict=True)):
        b = b.numpy()
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        largest = np.abs(b).max(initial=terms if position == 1 else 0)
        assert np.abs(a - b).max(initial=0) <= TOLERANCE[dtype] * largest


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@given(problem=batches())
@MANY
def test_batches(torch: Any, problem: Any, dtype: str) -> None:
    ours, theirs = pair(torch, problem, dtype)
    for seed in range(2):
        compared(torch, ours, theirs, problem[1], dtype, seed)
    ours.eval()
    theirs.eval()
    compared(torch, ours, theirs, problem[1], dtype, 2)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@given(problem=examples())
@MANY
def test_examples(torch: Any, problem: Any, dtype: str) -> None:
    compared(torch, *pair(torch, problem, dtype), problem[1], dtype)


def test_the_comparison_notices_the_unbiased_variance(torch: Any) -> None:
    ours, theirs = pair(torch, ("LayerNorm", (3, 16), {"normalized_shape": 16, "eps": 1e-5}), "float32")
    theirs.weight.data *= (15 / 16) ** 0.5
    with pytest.raises(AssertionError):
        compared(torch, ours, theirs, (3, 16), "float32")


def test_what_torch_refuses_too(torch: Any) -> None:
    with pytest.raises(ValueError, match="Expected more than 1 value per channel"):
        torch.nn.BatchNorm1d(3)(torch.zeros(1, 3))
    with pytest.raises(ValueError, match="a single value of each channel has no variance"):
        nn.BatchNorm1d(3)(Tensor(np.zeros((1, 3), np.float32)))
