"""The embedding layer: its initial table, padding, and shared use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fp16sim import nn
from fp16sim.autograd import ops
from fp16sim.autograd.policy import autocast
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn.random import normals, streams


def test_initial_rows_are_standard_normal() -> None:
    with streams(3):
        nn.Linear(1, 1)
        layer = nn.Embedding(50, 8, padding_idx=-1)
    expected = normals(3, 400, 1).astype(np.float32).reshape(50, 8)
    expected[49] = 0
    assert layer.weight.data.tobytes() == expected.tobytes()
    assert [name for name, _ in layer.named_parameters()] == ["weight"]
    assert repr(layer) == "Embedding(50, 8, padding_idx=49)"
    assert list(layer.state_dict()) == ["weight"]


def test_the_padding_row_has_no_gradient() -> None:
    layer = nn.Embedding(4, 2, padding_idx=0)
    layer([[0, 1], [1, 0]]).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.tolist() == [[0, 0], [2, 2], [0, 0], [0, 0]]


def test_a_table_shared_with_the_last_layer_gets_both_gradients() -> None:
    layer = nn.Embedding(4, 2)
    with autocast("mixed_float16"):
        loss = ops.cross_entropy(ops.linear(layer([1, 2]), layer.weight), [2, 3])
    loss.backward()
    gradient = layer.weight.grad
    assert gradient is not None
    assert gradient.dtype == np.float32
    assert gradient.any(axis=1).all()


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: nn.Embedding(0, 2), ValueError, "num_embeddings=0"),
        (lambda: nn.Embedding(2, 2.0), ValueError, "embedding_dim=2.0"),
        (lambda: nn.Embedding(2, 2, padding_idx=2), ValueError, "padding_idx=2: name one of the 2 rows"),
        (lambda: nn.Embedding(2, 2)([0, 2]), ValueError, r"id 2 at position \(1,\)"),
        (lambda: nn.Sequential(nn.Embedding(2, 2))(np.array([5])), ValueError, r"^layer '0': id 5"),
        (lambda: nn.Embedding(2, 2)(Tensor([0.0])), TypeError, "pass an integer array"),
    ],
)
def test_refusals(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()
