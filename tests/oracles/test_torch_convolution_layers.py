"""Convolutional layers and their gradients, held to torch 2.13 on a CPU over many shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fp16sim import nn
from fp16sim.autograd.backward import gradients
from fp16sim.autograd.tensor import Tensor

pytestmark = pytest.mark.oracle

U = 2.0**-24
"""Half an ulp of float32, relative: what one rounding may change."""

MANY = settings(derandomize=True, deadline=None, max_examples=30, database=None)


@st.composite
def problems(draw: Any) -> tuple[int, tuple[int, ...], dict[str, Any]]:
    """Give a number of axes, the shape of an input, and the arguments of a layer that takes it."""
    d = draw(st.integers(1, 3))
    groups = draw(st.integers(1, 3))
    kernel = tuple(draw(st.integers(1, 3)) for _ in range(d))
    dilation = tuple(draw(st.integers(1, 2)) for _ in range(d))
    same = draw(st.booleans())
    arguments = {
        "in_channels": groups * draw(st.integers(1, 2)),
        "out_channels": groups * draw(st.integers(1, 3)),
        "kernel_size": kernel,
        "dilation": dilation,
        "groups": groups,
        "bias": draw(st.booleans()),
        "stride": 1 if same else tuple(draw(st.integers(1, 3)) for _ in range(d)),
        "padding": "same" if same else tuple(draw(st.integers(0, 2)) for _ in range(d)),
    }
    size = tuple(draw(st.integers(b * (k - 1) + 1, 6)) for k, b in zip(kernel, dilation, strict=True))
    batch = draw(st.sampled_from([(), (1,), (3,)]))
    return d, (*batch, arguments["in_channels"], *size), arguments


def both(torch: Any, problem: Any, dtype: str) -> tuple[list[Any], list[Any], list[Any]]:
    """Give results and gradients of ours in `dtype`, of torch in float64, and of torch with magnitudes only."""
    d, shape, arguments = problem
    ours = getattr(nn, f"Conv{d}d")(**arguments).to(dtype)
    rng = np.random.default_rng(0)
    if ours.bias is not None:
        ours.bias.data = rng.normal(size=ours.bias.shape).astype(dtype)
    x = Tensor(rng.normal(size=shape).astype(dtype), requires_grad=True)
    y = ours(x)
    g = rng.normal(size=y.shape).astype(dtype)
    mine = [y.data, *gradients(y, [x, *ours.parameters()], g)]

    def theirs(change: Any) -> list[Any]:
        layer = getattr(torch.nn, f"Conv{d}d")(**arguments, dtype=torch.float64)
        state = {
            name: torch.from_numpy(change(value.astype(np.float64)))
            for name, value in ours.state_dict().items()
        }
        layer.load_state_dict(state)
        inputs = torch.from_numpy(change(x.data.astype(np.float64))).requires_grad_()
        outputs = layer(inputs)
        outputs.backward(torch.from_numpy(change(g.astype(np.float64))))
        grads = [inputs.grad, *(parameter.grad for parameter in layer.parameters())]
        return [part.numpy() for part in (outputs.detach(), *grads)]

    return mine, theirs(np.asarray), theirs(np.abs)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")
@given(problem=problems())
@MANY
def test_float64(torch: Any, problem: Any) -> None:
    mine, theirs, _ = both(torch, problem, "float64")
    for a, b in zip(mine, theirs, strict=True):
        assert a.shape == b.shape
        # About 100 terms, half an ulp of 1.1e-16 each.
        assert np.abs(a - b).max() <= 1e-12 * np.abs(b).max()


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")
@given(problem=problems())
@MANY
def test_float32(torch: Any, problem: Any) -> None:
    mine, theirs, magnitudes = both(torch, problem, "float32")
    for a, b, total in zip(mine, theirs, magnitudes, strict=True):
        assert a.dtype == np.float32
        # k terms may be off by k u of the sum of their magnitudes, but errors are random: 8 u is 4 ulps.
        assert (np.abs(a - b) <= 8 * U * total).all()


def test_the_comparison_notices_a_wrong_tap(torch: Any) -> None:
    problem = 2, (2, 3, 5, 5), {"in_channels": 3, "out_channels": 2, "kernel_size": 3, "padding": 1}
    mine, theirs, magnitudes = both(torch, problem, "float32")
    wrong = np.roll(mine[0], 1, axis=-1)
    assert not (np.abs(wrong - theirs[0]) <= 8 * U * magnitudes[0]).all()


def test_the_state_has_the_names_of_torch(torch: Any) -> None:
    layer = torch.nn.Conv2d(4, 6, (3, 2), groups=2)
    ours = nn.Conv2d(4, 6, (3, 2), groups=2)
    expected = {name: tuple(value.shape) for name, value in layer.state_dict().items()}
    assert {name: value.shape for name, value in ours.state_dict().items()} == expected
