"""Activation layers are the operations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fp16sim import nn
from fp16sim.autograd import ops
from fp16sim.autograd.tensor import Tensor

LAYERS = [
    (nn.ReLU(), ops.relu, "ReLU()"),
    (nn.LeakyReLU(), ops.leaky_relu, "LeakyReLU(0.01)"),
    (nn.LeakyReLU(0.5), lambda x: ops.leaky_relu(x, 0.5), "LeakyReLU(0.5)"),
    (nn.GELU(), ops.gelu, "GELU()"),
    (nn.GELU(approximate="tanh"), lambda x: ops.gelu(x, "tanh"), "GELU(approximate='tanh')"),
    (nn.SiLU(), ops.silu, "SiLU()"),
    (nn.Tanh(), ops.tanh, "Tanh()"),
    (nn.Sigmoid(), ops.sigmoid, "Sigmoid()"),
    (nn.Softplus(), ops.softplus, "Softplus()"),
    (nn.Softmax(), ops.softmax, "Softmax(dim=-1)"),
    (nn.Softmax(dim=0), lambda x: ops.softmax(x, 0), "Softmax(dim=0)"),
    (nn.LogSoftmax(1), lambda x: ops.log_softmax(x, 1), "LogSoftmax(dim=1)"),
]


@pytest.mark.parametrize(("layer", "function", "name"), LAYERS, ids=[row[2] for row in LAYERS])
def test_layers_are_the_operations(layer: nn.Module, function: Any, name: str) -> None:
    x = Tensor(np.random.default_rng(0).normal(size=(4, 5)).astype(np.float16) * np.float16(3))
    assert layer(x).data.tobytes() == function(x).data.tobytes()
    assert repr(layer) == name
    assert layer.parameters() == []
    with pytest.raises(TypeError, match=r"pass fs.Tensor\(x\)"):
        layer(np.ones((2, 2)))


def test_gelu_has_a_value_and_a_gradient_where_x_cubed_overflows() -> None:
    for layer in (nn.GELU(), nn.GELU("tanh")):
        x = Tensor(np.float16([41.0, 300.0, -300.0]), requires_grad=True)
        y = layer(x)
        y.backward(np.ones(3, np.float16))
        assert y.data.tolist() == [41.0, 300.0, 0.0]
        assert x.grad is not None
        assert x.grad.tolist() == [1.0, 1.0, 0.0]


def test_refusals() -> None:
    with pytest.raises(ValueError, match="approximate='tan': did you mean 'tanh'"):
        nn.GELU("tan")
    with pytest.raises(ValueError, match="softmax over axis 3"):
        nn.Softmax(3)(Tensor([[1.0]]))
