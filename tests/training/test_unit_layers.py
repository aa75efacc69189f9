"""Unit scaling in the engine: every activation and gradient near unit variance at initialisation."""

import math

import numpy as np
import pytest

from fp16sim import scaling
from fp16sim.autograd.backward import gradients
from fp16sim.autograd.checkpoint import checkpoint
from fp16sim.autograd.gradcheck import gradcheck
from fp16sim.autograd.policy import autocast
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn import GELU, CrossEntropyLoss, LayerNorm, Linear, ReLU, Sequential, Tanh
from fp16sim.nn.random import streams
from fp16sim.optim import SGD
from fp16sim.scaling.unit import cross_entropy_scale
from fp16sim.training.fit import fit
from fp16sim.training.unit_layers import UnitLayers, scaled

BATCH, CLASSES = 64, 10
RANDOM = np.random.default_rng(5)
X = RANDOM.standard_normal((BATCH, 64)).astype(np.float32)
LABELS = RANDOM.integers(0, CLASSES, BATCH)
SCALER = scaling.make("unit", loss_scale=cross_entropy_scale(BATCH, CLASSES))


def network(activation=ReLU, norm=False, widths=(64, 128, 64)):
    """Linear layers with weights of unit variance."""
    with streams(11):
        widths = [*widths, CLASSES]
        modules = []
        for wide, narrow in zip(widths, widths[1:], strict=False):
            modules += [Linear(wide, narrow), activation()]
        model = Sequential(*([LayerNorm(64)] if norm else []), *modules[:-1])
    for module in model.modules:
        if isinstance(module, Linear):
            module.weight.data = module.weight.data * np.float32(math.sqrt(module.weight.shape[1] / 2))
    return model


def deviations(model, policy, unit=True):
    """Give the standard deviations of every output, of its gradient, and of every parameter's gradient."""
    layers = UnitLayers(model, SCALER)
    if not unit:
        layers._factors = lambda module: None
        layers._hold = lambda module, output: None
    with autocast(policy):
        with layers.watching() as captured:
            loss = CrossEntropyLoss()(model(Tensor(X)), LABELS)
        total = loss * SCALER.scale
    names = {id(part): name for name, part in model.named_modules()}
    outputs = {names[id(part)]: output for part, output in captured if names.get(id(part))}
    parameters = dict(model.named_parameters())
    found = gradients(total, [*outputs.values(), *parameters.values()])
    layers.release()
    arrays = {f"output {name}": output.data for name, output in outputs.items()}
    labels = [
        *(f"gradient of output {name}" for name in outputs),
        *(f"gradient of {name}" for name in parameters),
    ]
    arrays.update(zip(labels, found, strict=True))
    return {name: float(np.std(array.astype(np.float64))) for name, array in arrays.items()}


@pytest.mark.parametrize("policy", ["float32", "float16", "mixed_float16"])
@pytest.mark.parametrize(
    ("activation", "norm", "widths"),
    [
        (ReLU, False, (64, 128, 64)),
        (GELU, False, (64, 128, 64)),
        (ReLU, True, (64, 128, 64)),
        (Tanh, False, (64, 128, 96, 128, 64)),
    ],
)
def test_every_activation_and_gradient_has_about_unit_deviation(activation, norm, widths, policy):
    model = network(activation, norm, widths)
    found = deviations(model, policy)
    assert len(found) == (2 * len(widths) - 1) * 2 + 2 * len(widths) + norm * 4
    outside = {name: value for name, value in found.items() if not 0.5 <= value <= 2}
    assert outside == {}
    assert all(parameter._hooks == [] for parameter in model.parameters())


def test_without_the_factors_they_are_far_from_it():
    found = deviations(network(), "float32", unit=False)
    assert max(found.values()) > 100
    assert sum(not 0.5 <= value <= 2 for value in found.values()) > len(found) / 2


def test_the_factors_are_those_of_the_formula():
    model = Sequential(Linear(64, 16, bias=False), Linear(16, 4, bias=False))
    plain = [parameter.data.astype(np.float64) for parameter in model.parameters()]
    layers, x = UnitLayers(model, scaling.make("unit")), X.astype(np.float64)
    model.to("float64")
    with layers.watching() as captured:
        total = model(Tensor(x)).sum()
    first, last = gradients(total, model.parameters())
    hidden = x @ plain[0].T / 8
    assert np.allclose(captured[0][1].data, hidden, rtol=1e-12)  # sums in another order
    assert np.allclose(captured[1][1].data, hidden @ plain[1].T / 4, rtol=1e-12)
    ones = np.ones((BATCH, 4))
    assert np.allclose(last, ones.T @ hidden / 8, rtol=1e-12)  # 1/sqrt(batch), and no factor of the output
    assert np.allclose(
        first, (ones @ plain[1] / 2).T @ x / 8, rtol=1e-12
    )  # 1/sqrt(fan_out) of the last layer


def test_a_factor_each_way():
    x = Tensor(np.float64([1.5, -2.0]), requires_grad=True)
    gradcheck(lambda x: scaled(x, 3.0, 3.0), [x])
    with pytest.raises(AssertionError):
        gradcheck(lambda x: scaled(x, 3.0, 2.0), [x])
    assert scaled(x).data.tobytes() == x.data.tobytes()


def test_a_layer_that_is_called_twice_has_its_parameters_scaled_once():
    layer = Linear(8, 8)
    model = Sequential(layer, layer)
    layers = UnitLayers(model, scaling.make("unit"))
    with layers.watching():
        model(Tensor(X[:, :8]))
    assert [len(parameter._hooks) for parameter in layer.__dict__.values()] == [1, 1]
    layers.release()
    assert [len(parameter._hooks) for parameter in layer.__dict__.values()] == [0, 0]


def test_it_trains():
    model = network()
    optimizer = SGD(model.parameters(), lr=0.02)
    run = fit(model, [(X, LABELS)], policy="mixed_float16", scaler=SCALER, optimizer=optimizer, steps=15)
    assert all(step.applied for step in run.history)
    assert run.history[-1].loss < 0.5 * run.history[0].loss


def test_a_checkpointed_block_is_refused():
    layer = Linear(8, 8)
    layers = UnitLayers(layer, scaling.make("unit"))
    with layers.watching(), pytest.raises(ValueError, match="a Linear in a checkpointed block"):
        checkpoint(layer, Tensor(X[:, :8]))
    layers.release()
