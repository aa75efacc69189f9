"""Attention and transformer blocks, values and gradients, held to torch 2.13 on a CPU with the same parameters."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fp16sim import nn
from fp16sim.autograd.policy import autocast
from fp16sim.autograd.tensor import Tensor

pytestmark = pytest.mark.oracle

MANY = settings(derandomize=True, deadline=None, max_examples=25, database=None)
TOLERANCE = {"float64": 1e-12, "float32": 64 * 2.0**-24}
"""Relative to the largest element: some ten products, sums and normalisations follow one another, each with an error of
a few u = 2^-24 of its largest terms."""


@st.composite
def problems(draw: Any) -> dict[str, Any]:
    heads = draw(st.integers(1, 3))
    return {
        "heads": heads,
        "width": heads * draw(st.integers(1, 4)),
        "batch": draw(st.integers(1, 3)),
        "queries": draw(st.integers(1, 5)),
        "keys": draw(st.integers(1, 5)),
        "bias": draw(st.booleans()),
        "mask": draw(st.sampled_from(["none", "bool", "padding", "float", "causal"])),
        "cross": draw(st.booleans()),
        "norm_first": draw(st.booleans()),
        "activation": draw(st.sampled_from(["relu", "gelu"])),
        "seed": draw(st.integers(0, 2**32 - 1)),
    }


def twin(torch: Any, ours: Any, theirs: Any, dtype: str, rng: Any) -> None:
    """Give both the same parameters, random ones."""
    ours.to(dtype)
    for parameter in ours.parameters():
        parameter.data = rng.normal(0.2, 0.6, parameter.shape).astype(dtype)
    theirs.to(getattr(torch, dtype))
    theirs.load_state_dict({name: torch.from_numpy(value) for name, value in ours.state_dict().items()})


def masks(torch: Any, problem: dict[str, Any], keys: int, rng: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Give the same mask to both; torch's boolean ones say what is hidden."""
    batch, queries = problem["batch"], problem["queries"]
    seen = rng.random((queries, keys)) < 0.6
    seen[:, 0] = True
    if problem["mask"] == "bool":
        return {"mask": seen}, {"attn_mask": torch.from_numpy(~seen)}
    if problem["mask"] == "padding":
        seen = rng.random((batch, keys)) < 0.6
        seen[:, 0] = True
        return {"mask": seen[:, None, None, :]}, {"key_padding_mask": torch.from_numpy(~seen)}
    if problem["mask"] == "float":
        added = rng.normal(size=(queries, keys))
        return {"mask": added}, {"attn_mask": added}
    if problem["mask"] == "causal":
        hidden = ~np.tri(queries, keys, dtype=bool)
        return {"causal": True}, {"attn_mask": torch.from_numpy(hidden)}
    return {}, {}


def worst(ours: Any, theirs: Any, size: float = 0.0) -> float:
    a, b = np.asarray(ours, np.float64), theirs.detach().numpy().astype(np.float64)
    assert a.shape == b.shape
    return float(np.abs(a - b).max() / max(np.abs(b).max(), size, 1e-300))


def compared(mine: list[Any], others: list[Any], dtype: str, size: float) -> None:
    """Compare parameters' gradients by the largest of all: some, such as that of the key's bias, are all rounding."""
    for position, (a, b) in enumerate(zip(mine, others, strict=True)):
        assert worst(a, b, size) < TOLERANCE[dtype], position


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_multihead_attention(torch: Any, dtype: str) -> None:
    @MANY
    @given(problems())
    def check(problem: dict[str, Any]) -> None:
        rng = np.random.default_rng(problem["seed"])
        width, heads, bias = problem["width"], problem["heads"], problem["bias"]
        ours = nn.MultiheadAttention(width, heads, bias=bias)
        theirs = torch.nn.MultiheadAttention(width, heads, bias=bias, batch_first=True)
        twin(torch, ours, theirs, dtype, rng)
        keys = problem["keys"] if problem["cross"] else problem["queries"]
        lengths = [problem["queries"], keys, keys] if problem["cross"] else [problem["queries"]]
        arrays = [rng.normal(size=(problem["batch"], n, width)).astype(dtype) for n in lengths]
        own_mask, torch_mask = masks(torch, problem, keys, rng)
        if problem["mask"] == "float":
            torch_mask = {"attn_mask": torch.from_numpy(torch_mask["attn_mask"].astype(dtype))}
        inputs = [Tensor(x, requires_grad=True) for x in arrays]
        theirs_inputs = [torch.from_numpy(x.copy()).requires_grad_() for x in arrays]
        y = ours(*inputs, **own_mask)
        g = rng.normal(size=y.shape).astype(dtype)
        y.backward(g)
        three = theirs_inputs if problem["cross"] else theirs_inputs * 3
        z, _ = theirs(*three, **torch_mask)
        z.backward(torch.from_numpy(g))
        grads = [p.grad for p in theirs.parameters()]
        size = max(float(x.grad.abs().max()) for x in (*theirs.parameters(), *theirs_inputs))
        compared([y.data], [z], dtype, 0.0)
        compared(
            [x.grad for x in (*inputs, *ours.parameters())],
            [x.grad for x in theirs_inputs] + grads,
            dtype,
            size,
        )

    check()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_transformer_block(torch: Any, dtype: str) -> None:
    @MANY
    @given(problems())
    def check(problem: dict[str, Any]) -> None:
        rng = np.random.default_rng(problem["seed"])
        heads, width = problem["heads"], problem["heads"] * 4
        causal = problem["mask"] == "causal"
        ours = nn.TransformerBlock(
            width,
            heads,
            mlp_ratio=2,
            causal=causal,
            norm_first=problem["norm_first"],
            activation=problem["activation"],
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on nested tensors, which are not used
            theirs = torch.nn.TransformerEncoderLayer(
                width,
                heads,
                2 * width,
                dropout=0.0,
                activation=problem["activation"],
                batch_first=True,
                norm_first=problem["norm_first"],
            )
        twin(torch, ours, theirs, dtype, rng)
        x = rng.normal(size=(problem["batch"], problem["queries"], width)).astype(dtype)
        mine, other = Tensor(x, requires_grad=True), torch.from_numpy(x.copy()).requires_grad_()
        y = ours(mine)
        g = rng.normal(size=y.shape).astype(dtype)
        y.backward(g)
        hidden = torch.from_numpy(~np.tri(problem["queries"], dtype=bool)) if causal else None
        z = theirs(other, src_mask=hidden)
        z.backward(torch.from_numpy(g))
        size = max(float(p.grad.abs().max()) for p in (*theirs.parameters(), other))
        compared([y.data], [z], dtype, 0.0)
        own, names = dict(ours.named_parameters()), dict(theirs.named_parameters())
        assert list(own) == list(names) or set(own) == set(names)
        compared(
            [mine.grad, *(own[n].grad for n in names)],
            [other.grad, *(p.grad for p in names.values())],
            dtype,
            size,
        )

    check()


def test_a_query_that_sees_nothing_is_nan_in_both(torch: Any) -> None:
    q = np.random.default_rng(0).normal(size=(1, 1, 2, 4))
    mask = np.array([[True, False], [False, False]])
    from fp16sim.autograd import ops

    with autocast("float64"):
        y = ops.softmax(ops.mask_scores(Tensor(q @ q.swapaxes(2, 3)), mask)).data
    z = torch.softmax(
        torch.from_numpy(q @ q.swapaxes(2, 3)).masked_fill(torch.from_numpy(~mask), -torch.inf), -1
    )
    assert np.array_equal(np.isnan(y), np.isnan(z.numpy()))
    assert np.isnan(y[0, 0, 1]).all()


def test_a_planted_fault_is_noticed(torch: Any) -> None:
    """A head of another width scales scores otherwise."""
    rng = np.random.default_rng(2)
    ours, theirs = nn.MultiheadAttention(4, 2), torch.nn.MultiheadAttention(4, 1, batch_first=True)
    twin(torch, ours, theirs, "float64", rng)
    x = rng.normal(size=(1, 3, 4))
    y, (z, _) = ours(Tensor(x)), theirs(*[torch.from_numpy(x)] * 3)
    assert worst(y.data, z) > 1e-3
