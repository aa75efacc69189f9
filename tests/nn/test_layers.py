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


def test_layers_of_a_chain_start_apart():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    for place in (0, 2):
        expected = nn.Linear(8, 8, layer=place).weight.data
        assert model.modules[place].weight.data.tobytes() == expected.tobytes()
    assert nn.Linear(8, 8, layer=0).weight.data.tobytes() != nn.Linear(8, 8, layer=2).weight.data.tobytes()


def test_chains_in_a_chain_start_apart_too():
    def block():
        return nn.Sequential(nn.Linear(8, 8), nn.ReLU())

    model = nn.Sequential(block(), block(), nn.Linear(8, 8))
    weights = [p.data.tobytes() for name, p in model.named_parameters() if name.endswith("weight")]
    assert weights == [nn.Linear(8, 8, layer=place).weight.data.tobytes() for place in (0, 2, 4)]


def test_a_layer_that_is_shared_has_its_first_place():
    shared = nn.Linear(8, 8)
    nn.Sequential(nn.ReLU(), shared, shared)
    assert shared.weight.data.tobytes() == nn.Linear(8, 8, layer=1).weight.data.tobytes()


def test_a_layer_number_that_was_given_and_weights_that_were_changed_stay():
    given, trained = nn.Linear(8, 8, layer=0), nn.Linear(8, 8)
    trained.weight.data = trained.weight.data + np.float32(1)
    before = trained.weight.data.tobytes()
    nn.Sequential(nn.ReLU(), given, trained)
    assert given.weight.data.tobytes() == nn.Linear(8, 8).weight.data.tobytes()
    assert trained.weight.data.tobytes() == before


def test_an_optimizer_made_before_the_chain_holds_its_parameters():
    layer = nn.Linear(4, 4)
    model = nn.Sequential(nn.ReLU(), layer)
    assert all(a is b for a, b in zip(model.parameters(), layer.parameters(), strict=True))


def test_zero_grad_forgets_gradients():
    model = nn.Sequential(nn.Linear(4, 2))
    nn.CrossEntropyLoss()(model(Tensor(np.ones((3, 4), np.float32))), [0, 1, 1]).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    model.zero_grad()
    assert all(parameter.grad is None for parameter in model.parameters())


def test_modules_say_what_they_are():
    assert repr(nn.Sequential(nn.Linear(4, 3), nn.ReLU())) == "Sequential(Linear(4, 3), ReLU())"


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: nn.Linear(0, 3), ValueError, "inputs=0"),
        (lambda: nn.Linear(3, 2.5), ValueError, "outputs=2.5"),
        (lambda: nn.Linear(3, 2)(Tensor([[1.0]])), ValueError, "3 inputs"),
        (lambda: nn.Sequential(nn.ReLU(), "ReLU"), TypeError, "part 1 is a str"),
        (lambda: nn.Linear(3, 2)(np.ones((1, 3))), TypeError, r"is a ndarray: .* pass fs.Tensor\(x\)"),
        (lambda: nn.Sequential(nn.ReLU())(np.ones((1, 3))), TypeError, r"pass fs.Tensor\(x\)"),
        (lambda: nn.CrossEntropyLoss()(np.ones((1, 3)), [0]), TypeError, r"pass fs.Tensor\(x\)"),
        (lambda: nn.Module()(1), NotImplementedError, "define forward"),
    ],
)
def test_refusals(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
