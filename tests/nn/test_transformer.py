"""The transformer block: the order of its parts, and its names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fp16sim as fs
from fp16sim import nn
from fp16sim.autograd import ops
from fp16sim.autograd.gradcheck import gradcheck
from fp16sim.autograd.policy import autocast
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn.random import streams


def draw(seed: int, *shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def made(*arguments: Any, **options: Any) -> nn.TransformerBlock:
    with streams(2):
        return nn.TransformerBlock(*arguments, **options)


def test_names_are_torchs() -> None:
    assert list(made(8, 2).state_dict()) == [
        "self_attn.in_proj_weight",
        "self_attn.in_proj_bias",
        "self_attn.out_proj.weight",
        "self_attn.out_proj.bias",
        "linear1.weight",
        "linear1.bias",
        "linear2.weight",
        "linear2.bias",
        "norm1.weight",
        "norm1.bias",
        "norm2.weight",
        "norm2.bias",
    ]
    assert made(8, 2, mlp_ratio=3).linear1.weight.shape == (24, 8)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("policy", ["float32", "float16", "mixed_float16"])
def test_it_is_these_parts(policy: str, norm_first: bool) -> None:
    block = made(8, 2, causal=True, norm_first=norm_first, activation="relu")
    x = Tensor(draw(1, 2, 5, 8))
    mask = np.array([True, True, False, True, True])
    with autocast(policy):
        found = block(x, mask)
        if norm_first:
            y = x + block.self_attn(block.norm1(x), mask=mask, causal=True)
            expected = y + block.linear2(ops.relu(block.linear1(block.norm2(y))))
        else:
            y = block.norm1(x + block.self_attn(x, mask=mask, causal=True))
            expected = block.norm2(y + block.linear2(ops.relu(block.linear1(y))))
    assert found.dtype == expected.dtype
    assert found.data.tobytes() == expected.data.tobytes()


@pytest.mark.parametrize("norm_first", [True, False])
def test_gradients_in_float64(norm_first: bool) -> None:
    block = made(4, 2, mlp_ratio=2, norm_first=norm_first, activation="gelu_tanh").to("float64")
    x = Tensor(draw(1, 2, 3, 4, dtype=np.float64), requires_grad=True)
    with autocast("float64"):
        gradcheck(lambda x, *_: block(x), [x, *block.parameters()], atol=1e-7)


@pytest.mark.parametrize("policy", ["float16", "mixed_float16", "mixed_bfloat16", "float32"])
def test_the_definition_gives_the_same_bits(policy: str) -> None:
    def trained() -> list[bytes]:
        with streams(1):
            parts = [
                nn.Embedding(5, 4),
                made(4, 2, mlp_ratio=2, dropout=0.2, causal=True),
                nn.Linear(4, 5),
            ]
        with autocast(policy):
            logits = nn.Sequential(*parts)(np.array([[0, 1, 2], [3, 4, 0]])).reshape(6, 5)
            loss = nn.CrossEntropyLoss(label_smoothing=0.1)(logits, [1, 2, 3, 4, 0, 1])
        loss.backward()
        gradients = [parameter.grad for part in parts for parameter in part.parameters()]
        return [loss.data.tobytes(), *(g.tobytes() for g in gradients if g is not None)]

    fast = trained()
    with fs.use_backend("reference"):
        assert trained() == fast
    assert len(fast) == 16


def test_dropout_in_three_places_and_in_attention() -> None:
    block, x = made(8, 2, dropout=0.5), Tensor(draw(1, 2, 5, 8))
    assert not np.array_equal(block(x).data, block(x).data)
    counters = {name: int(value) for name, value in block.state_dict().items() if name.endswith("calls")}
    assert counters == {
        "self_attn.drop.calls": 2,
        "dropouts.0.calls": 2,
        "dropouts.1.calls": 2,
        "dropouts.2.calls": 2,
    }
    block.eval()
    assert np.array_equal(block(x).data, block(x).data)


def test_activations_held_for_backward_take_half_the_bytes_in_float16() -> None:
    from fp16sim.autograd.backward import saved_bytes

    block = made(16, 2, causal=True)
    sizes = {}
    for policy in ("float32", "float16"):
        with autocast(policy):
            y = block(Tensor(draw(1, 4, 8, 16), dtype=policy, requires_grad=True))
        sizes[policy] = saved_bytes(y)
    # Weights that were rounded to float16 are held beside; masks of one byte are the same in both.
    weights = sum(parameter.size for parameter in block.parameters()) * 2
    assert sizes["float16"] - weights <= 0.51 * sizes["float32"]


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda x: made(8, 3), ValueError, "embed_dim=8 in num_heads=3"),
        (lambda x: made(8, 2, mlp_ratio=0), ValueError, "mlp_ratio=0"),
        (lambda x: made(8, 2, activation="gleu"), ValueError, "activation='gleu': did you mean 'gelu'"),
        (lambda x: made(8, 2, dropout=-1.0), ValueError, "p=-1.0"),
        (lambda x: made(6, 2)(x), ValueError, "layer 'norm1'"),
        (lambda x: made(6, 2, norm_first=False)(x), ValueError, "layer 'self_attn': a query of shape"),
        (lambda x: made(8, 2)(x.data), TypeError, "pass fs.Tensor"),
    ],
)
def test_refusals(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call(Tensor(np.zeros((2, 3, 8), np.float32)))


def test_repr() -> None:
    assert repr(made(8, 2)) == (
        "TransformerBlock(MultiheadAttention(8, num_heads=2), Linear(8, 32), GELU(), norm_first)"
    )
