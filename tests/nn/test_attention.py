"""Multi-head attention: its parts, its masks, and scores that leave float16."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fp16sim import nn
from fp16sim.autograd import ops
from fp16sim.autograd.gradcheck import gradcheck
from fp16sim.autograd.policy import Policy, autocast
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn.random import streams, uniforms


def draw(seed: int, *shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def made(*arguments: Any, **options: Any) -> nn.MultiheadAttention:
    """Make a layer whose biases are not zero."""
    with streams(4):
        layer = nn.MultiheadAttention(*arguments, **options)
    for seed, parameter in enumerate(layer.parameters()):
        if parameter.ndim == 1:
            parameter.data = draw(100 + seed, *parameter.shape)
    return layer


def test_names_and_initial_weights_are_torchs() -> None:
    with streams(4):
        layer = nn.MultiheadAttention(8, 2)
    assert list(layer.state_dict()) == ["in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"]
    bound = math.sqrt(6 / 32)
    expected = ((uniforms(4, 192, 0) * 2 - 1) * bound).astype(np.float32).reshape(24, 8)
    assert layer.in_proj_weight.data.tobytes() == expected.tobytes()
    assert np.abs(layer.out_proj.weight.data).max() < 1 / math.sqrt(8)
    assert not layer.out_proj.bias.data.any()  # type: ignore[union-attr]
    assert len(nn.MultiheadAttention(8, 2, bias=False).parameters()) == 2
    assert repr(nn.MultiheadAttention(8, 2, 0.1, bias=False)) == (
        "MultiheadAttention(8, num_heads=2, dropout=0.1, bias=False)"
    )


@pytest.mark.parametrize("policy", ["float32", "float16", "mixed_float16", "mixed_bfloat16"])
def test_it_is_these_operations(policy: str) -> None:
    layer, x = made(6, 3), Tensor(draw(1, 2, 5, 6), requires_grad=True)
    mask = np.random.default_rng(2).random((2, 1, 1, 5)) < 0.7
    mask[..., 0] = True
    with autocast(policy):
        found = layer(x, mask=mask, causal=True)
        projected = ops.linear(x, layer.in_proj_weight, layer.in_proj_bias)
        q, k, v = (ops.split_heads(projected, 3, part, 3) for part in range(3))
        scores = ops.matmul(ops.multiply(q, 1 / math.sqrt(2)), k.transpose(0, 1, 3, 2))
        weights = ops.softmax(ops.mask_scores(scores, mask & np.tri(5, dtype=bool)))
        merged = ops.merge_heads(ops.matmul(weights, v))
        expected = ops.linear(merged, layer.out_proj.weight, layer.out_proj.bias)
    assert found.dtype == expected.dtype
    assert found.data.tobytes() == expected.data.tobytes()


def test_key_and_value_may_be_others() -> None:
    layer = made(6, 2)
    x, other = Tensor(draw(1, 2, 5, 6)), Tensor(draw(2, 2, 3, 6))
    same = layer(x)
    assert layer(x, x, x).data.tobytes() == same.data.tobytes()
    assert layer(x, x).data.tobytes() == same.data.tobytes()
    assert layer(x, other).shape == (2, 5, 6)
    assert layer(x, other, mask=np.ones((5, 3), bool)).data.tobytes() == layer(x, other).data.tobytes()
    turned = made(6, 2, batch_first=False)
    back = turned(x.transpose(1, 0, 2), other.transpose(1, 0, 2)).transpose(1, 0, 2)
    assert np.array_equal(back.data, layer(x, other).data)


def test_gradients_in_float64() -> None:
    layer = made(4, 2).to("float64")
    x = Tensor(draw(1, 2, 3, 4, dtype=np.float64), requires_grad=True)
    y = Tensor(draw(2, 2, 2, 4, dtype=np.float64), requires_grad=True)
    with autocast("float64"):
        gradcheck(lambda x, *_: layer(x, causal=True), [x, *layer.parameters()])
        gradcheck(lambda x, y, *_: layer(x, y), [x, y, *layer.parameters()])


def test_softmax_computes_in_float32_under_torchs_lists() -> None:
    layer, x = made(4, 2), Tensor(draw(1, 1, 3, 4))
    results = []
    for policy in (Policy("mixed_float16"), Policy("mixed_float16", flavour="torch_cpu"), Policy("float16")):
        with autocast(policy):
            results.append(layer(x))
    assert {str(result.dtype) for result in results} == {"float16"}


def test_dropout_drops_attention_weights_while_training() -> None:
    layer, x = made(4, 2, dropout=0.5), Tensor(draw(1, 1, 8, 4))
    first, second = layer(x).data, layer(x).data
    assert not np.array_equal(first, second)
    assert layer.state_dict()["drop.calls"] == 2
    layer.eval()
    assert np.array_equal(layer(x).data, made(4, 2)(x).data)


def test_scores_overflow_where_they_are_scaled_after() -> None:
    """GLM-130B: one head, d = 64, q = k = 32: scores of 65536 are infinite, and inf - inf is NaN."""
    results = []
    for after in (False, True):
        layer = nn.MultiheadAttention(64, 1, scale_scores_after=after)
        layer.in_proj_weight.data = np.tile(32 * np.eye(64, dtype=np.float32), (3, 1))
        layer.out_proj.weight.data = np.eye(64, dtype=np.float32) / 32
        with autocast("mixed_float16"):
            results.append(layer(Tensor(np.ones((1, 2, 64), np.float32))).data)
    assert (results[0] == 1).all()
    assert np.isnan(results[1]).all()


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda x: nn.MultiheadAttention(8, 3), ValueError, "embed_dim=8 in num_heads=3"),
        (lambda x: nn.MultiheadAttention(8, 0), ValueError, "num_heads=0"),
        (lambda x: nn.MultiheadAttention(8, 2, dropout=2.0), ValueError, "p=2.0"),
        (lambda x: made(4, 2)(x), ValueError, r"a query of shape \(2, 3, 6\) for attention of width 4"),
        (lambda x: made(6, 2)(x, x[..., :4]), ValueError, r"a key of shape \(2, 3, 4\)"),
        (lambda x: made(6, 2)(x, None, x), TypeError, "a value without a key"),
        (lambda x: made(6, 2)(x, mask=np.ones((2, 3), bool)), ValueError, r"padding\[:, None, None, :\]"),
        (lambda x: made(6, 2)(x.data), TypeError, "pass fs.Tensor"),
        (lambda x: nn.Sequential(made(4, 2))(x), ValueError, "^layer '0': a query"),
    ],
)
def test_refusals(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call(Tensor(np.zeros((2, 3, 6), np.float32)))
