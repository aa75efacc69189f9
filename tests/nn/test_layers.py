"""Layers: parameters and their names, initial weights, and the roundings of a forward pass."""

import math

import numpy as np
import pytest

from fp16sim import nn
from fp16sim.autograd.policy import autocast
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn.random import normals
from fp16sim.training.models import mlp


def test_he_initialisation():
    layer = nn.Linear(64, 32, seed=7, layer=2)
    expected = (normals(7, 2048, 2) * math.sqrt(2 / 64)).reshape(32, 64).astype(np.float32)
    assert layer.weight.data.tobytes() == expected.tobytes()
    assert abs(layer.weight.data.std() - math.sqrt(2 / 64)) < 0.01
    assert not layer.bias.data.any()


def test_names_and_order_of_parameters():
    model = mlp()
    names = [name for name, _ in model.named_parameters()]
    assert names == [f"{i}.{part}" for i in range(0, 13, 2) for part in ("weight", "bias")]
    assert [p.shape for p in model.parameters()][-2:] == [(10, 64), (10,)]
    assert len({p.data.tobytes() for p in model.parameters() if p.data.any()}) == 7  # layers differ


def test_nested_modules_have_dotted_names():
    class Pair(nn.Module):
        def __init__(self):
            self.left, self.right = nn.Linear(2, 2), nn.Sequential(nn.ReLU(), nn.Linear(2, 1))

        def forward(self, x):
            return self.right(self.left(x))

    assert [name for name, _ in Pair().named_parameters()] == [
        "left.weight",
        "left.bias",
        "right.1.weight",
        "right.1.bias",
    ]
    with nn.capture_outputs() as outputs:
        Pair()(Tensor([[1.0, 2.0]]))
    assert [type(module).__name__ for module, _ in outputs] == [
        "Linear",
        "ReLU",
        "Linear",
        "Sequential",
        "Pair",
    ]


def test_linear_rounds_product_and_sum_under_mixed_float16():
    layer = nn.Linear(16, 3, seed=1)
    layer.bias.data = np.float32([0.1, -0.2, 0.3])
    x = np.random.default_rng(0).normal(size=(5, 16)).astype(np.float32)
    with autocast("mixed_float16"):
        y = layer(Tensor(x))
    x16, w16, b16 = (a.astype(np.float16) for a in (x, layer.weight.data, layer.bias.data))
    for i in range(5):
        for j in range(3):
            total = np.float32(0)
            for k in range(16):
                total = np.float32(total + np.float32(x16[i, k]) * np.float32(w16[j, k]))
            assert y.data[i, j] == np.float16(np.float16(total) + b16[j])
    assert y.dtype == np.float16
    assert layer.weight.dtype == np.float32


def test_gradients_of_master_weights_are_float16_values():
    layer = nn.Linear(4, 2)
    with autocast("mixed_float16"):
        loss = nn.CrossEntropyLoss()(layer(Tensor(np.ones((3, 4), np.float32))), [0, 1, 1])
    assert loss.dtype == np.float32
    loss.backward()
    assert layer.weight.grad.dtype == np.float32
    assert (layer.weight.grad == layer.weight.grad.astype(np.float16)).all()


def test_to_rounds_once_and_back():
    layer = nn.Linear(8, 8)
    before = layer.weight.data
    layer.to("float16")
    assert layer.weight.data.tobytes() == before.astype(np.float16).tobytes()
    layer.to("float32")
    assert layer.weight.dtype == np.float32


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: nn.Linear(0, 3), ValueError, "inputs=0"),
        (lambda: nn.Linear(3, 2.5), ValueError, "outputs=2.5"),
        (lambda: nn.Linear(3, 2)(Tensor([[1.0]])), ValueError, "3 inputs"),
        (lambda: nn.Sequential(nn.ReLU(), "ReLU"), TypeError, "part 1 is a str"),
        (lambda: nn.Module()(1), NotImplementedError, "define forward"),
    ],
)
def test_refusals(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
