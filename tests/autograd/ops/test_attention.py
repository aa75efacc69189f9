"""Attention: heads, masks, and scores that leave float16."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from fp16sim_steps import same_bits

from fp16sim.autograd import ops
from fp16sim.autograd.gradcheck import gradcheck
from fp16sim.autograd.policy import autocast
from fp16sim.autograd.tensor import Tensor

LOWEST = float(np.finfo(np.float16).min)


def draw(seed: int, *shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def test_heads_are_moved_and_nothing_else() -> None:
    x = Tensor(draw(1, 2, 5, 24, dtype=np.float16), requires_grad=True)
    part = ops.split_heads(x, heads=2, part=1, parts=3)
    same_bits(part.data, np.ascontiguousarray(x.data[:, :, 8:16].reshape(2, 5, 2, 4).transpose(0, 2, 1, 3)))
    merged = ops.merge_heads(part)
    same_bits(merged.data, np.ascontiguousarray(x.data[:, :, 8:16]))
    g = draw(2, 2, 5, 8, dtype=np.float16)
    merged.backward(g)
    expected = np.zeros((2, 5, 24), np.float16)
    expected[:, :, 8:16] = g
    assert x.grad is not None
    same_bits(x.grad, expected)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_masked_scores_are_minus_infinity_exactly(dtype: Any) -> None:
    scores = np.array([[1.0, -2.0, np.nan], [np.inf, -0.0, 65504.0]], dtype)
    mask = np.array([[True, False, True], [False, True, False]])
    x = Tensor(scores, requires_grad=True)
    y = ops.mask_scores(x, mask)
    y.backward(np.ones((2, 3), dtype))
    assert np.array_equal(y.data, np.where(mask, scores, dtype(-np.inf)), equal_nan=True)
    assert np.signbit(y.data[1, 1])
    assert x.grad is not None
    same_bits(x.grad, mask.astype(dtype))


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("policy", ["float16", "mixed_float16", "float32"])
def test_attention_is_these_operations(policy: str, after: bool) -> None:
    dtype = np.float32 if policy == "float32" else np.float16
    q, k, v = (Tensor(draw(seed, 2, 3, 4, 5, dtype=dtype), requires_grad=True) for seed in (3, 4, 5))
    mask = np.random.default_rng(6).random((2, 1, 4, 4)) < 0.6
    mask[..., 0] = True
    g = draw(7, 2, 3, 4, 5, dtype=dtype)
    scale = 1 / math.sqrt(5)
    with autocast(policy):
        y = ops.attention(q, k, v, mask=mask, causal=True, scale_scores_after=after)
    y.backward(g)
    found = [y.data, q.grad, k.grad, v.grad]
    q, k, v = (Tensor(x.data, requires_grad=True) for x in (q, k, v))
    with autocast(policy):
        if after:
            scores = (q @ k.transpose(0, 1, 3, 2)) * scale
        else:
            scores = (q * scale) @ k.transpose(0, 1, 3, 2)
        weights = ops.softmax(ops.mask_scores(scores, mask & np.tri(4, dtype=bool)), -1)
        expected = weights @ v
    expected.backward(g)
    for a, b in zip(found, [expected.data, q.grad, k.grad, v.grad], strict=True):
        same_bits(a, b)
    assert y.dtype == dtype
    assert not np.isnan(y.data.astype(np.float32)).any()


def test_a_causal_query_sees_nothing_later() -> None:
    x = draw(8, 1, 1, 6, 4)
    before = ops.attention(Tensor(x), Tensor(x), Tensor(x), causal=True).data
    changed = x.copy()
    changed[0, 0, 4:] = 9
    after = ops.attention(Tensor(x), Tensor(changed), Tensor(changed), causal=True).data
    same_bits(before[:, :, :4].copy(), after[:, :, :4].copy())
    assert not np.array_equal(before[:, :, 4:], after[:, :, 4:])


def test_gradients_in_float64() -> None:
    q, k, v = (
        Tensor(draw(seed, 1, 2, n, 3, dtype=np.float64), requires_grad=True)
        for seed, n in ((9, 2), (10, 4), (11, 4))
    )
    with autocast("float64"):
        gradcheck(lambda q, k, v: ops.attention(q, k, v, mask=np.tri(2, 4, 2, dtype=bool)), [q, k, v])
        gradcheck(lambda x: ops.split_heads(x, 3, 1, 2), [Tensor(np.ones((1, 2, 6)), requires_grad=True)])


# ---------------------------------------------------------------------------------------------------- failures


def test_scores_overflow_unless_the_query_is_scaled_first() -> None:
    """GLM-130B: d = 64 and q = k = 32 give 65536; q/8 first gives 8192."""
    x = Tensor(np.full((1, 1, 1, 64), 32, np.float16))
    ones = Tensor(np.ones((1, 1, 1, 64), np.float16))
    turned = x.transpose(0, 1, 3, 2)
    with autocast("mixed_float16"):
        assert (x @ turned).item() == np.inf
        assert ((x * 0.125) @ turned).item() == 8192.0
        assert np.isnan(ops.attention(x, x, ones, scale_scores_after=True).data).all()
        assert ops.attention(x, x, ones).data.tolist() == ones.data.tolist()
    with autocast("float32"):
        assert ops.attention(x, x, ones, scale_scores_after=True).data.tolist() == ones.data.tolist()


def scores_with(mask: Any, score: float) -> Any:
    """Add a mask to equal scores as attention does."""
    with autocast("float16"):
        return ops.add(
            Tensor(np.float16([score])), Tensor(np.asarray(mask, np.float32)).cast("float16")
        ).item()


def test_additive_masks_in_float16() -> None:
    assert scores_with([-1e9], 1.0) == -np.inf  # float32: -1e9
    assert scores_with([LOWEST], -16.0) == -np.inf  # transformers#17306
    assert scores_with([LOWEST], -15.9) == LOWEST
    q = Tensor(np.full((1, 1, 1, 1), -4, np.float16))
    k, v = Tensor(np.full((1, 1, 2, 1), 4, np.float16)), Tensor(np.ones((1, 1, 2, 1), np.float16))
    with autocast("float16"):
        # A row that is masked wholly: -inf - -inf = NaN. Right for the large number: the mean of the values, 1.
        assert np.isnan(ops.attention(q, k, v, mask=np.full((1, 2), -1e9)).item())
        assert np.isnan(ops.attention(q, k, v, mask=np.full((1, 2), LOWEST)).item())
        assert np.isnan(ops.attention(q, k, v, mask=np.zeros((1, 2), bool)).item())
        assert ops.attention(q, k, v, mask=np.array([[0.0, -1e9]])).item() == 1.0
        assert ops.attention(q, k, v, mask=np.array([[True, False]])).item() == 1.0
    with autocast("float32"):
        assert ops.attention(q, k, v, mask=np.full((1, 2), -1e9)).item() == 1.0


# ---------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda x: ops.attention(x, x, x, mask=np.ones((2, 3), bool)), ValueError, r"mask of shape \(2, 3\)"),
        (lambda x: ops.attention(x, x, x, mask=np.ones((3, 3), int)), TypeError, r"mask.astype\(bool\)"),
        (lambda x: ops.attention(x, x, x, mask=np.full((3, 3), np.nan)), ValueError, "a mask with NaN"),
        (lambda x: ops.attention(x.reshape(6, 4), x, x), ValueError, r"query \(6, 4\)"),
        (lambda x: ops.attention(x, x, x[:, :, :2]), ValueError, "keys and values of one length"),
        (lambda x: ops.attention(x, x[..., :2], x), ValueError, "d of query and key must be the same"),
        (lambda x: ops.attention(x, x.cast("float16"), x), TypeError, "float32 and float16"),
        (lambda x: ops.mask_scores(x, np.ones(4)), TypeError, "a mask of float64"),
        (lambda x: ops.split_heads(x, 2), ValueError, r"shape \(1, 2, 3, 4\) in 2 heads"),
        (lambda x: ops.merge_heads(x.reshape(6, 4)), ValueError, r"heads of shape \(6, 4\)"),
    ],
)
def test_refusals(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call(Tensor(np.zeros((1, 2, 3, 4), np.float32)))


@pytest.mark.parametrize("mask", ["causal", [[1j]], None.__class__, np.ones((2, 2), np.int64)])
def test_a_mask_is_bool_or_real(mask):
    x = Tensor(np.zeros((1, 1, 2, 2), np.float32))
    with pytest.raises(TypeError, match=r"a mask of .*: pass mask\.astype\(bool\)"):
        ops.attention(x, x, x, mask=mask)
