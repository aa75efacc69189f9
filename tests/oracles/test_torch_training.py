"""A network, its loss and gradients, and momentum SGD, held to torch 2.13 on a CPU.

Tolerances say why they are what they are, and something planted shows that they notice a fault.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import fp16sim as fs
from fp16sim.autograd import ops
from fp16sim.autograd.backward import gradients
from fp16sim.autograd.policy import autocast
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn import CrossEntropyLoss, Module
from fp16sim.nn.random import normals, uniform_integers
from fp16sim.optim import SGD
from fp16sim.training.data import digits
from fp16sim.training.models import mlp

pytestmark = pytest.mark.oracle

U = 2.0**-24
"""Half an ulp of float32, relative: what one rounding may change."""


def drawn(seed: int, *shape: int) -> Any:
    return normals(seed, math.prod(shape)).reshape(shape)


# --- a network ---


def twin(torch: Any, model: Module) -> Any:
    """Make torch's float64 network with the same weights."""
    layers = []
    parameters = model.parameters()
    for weight, bias in zip(parameters[::2], parameters[1::2], strict=True):
        layer = torch.nn.Linear(*weight.shape[::-1], dtype=torch.float64)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(weight.numpy()))
            layer.bias.copy_(torch.from_numpy(bias.numpy()))
        layers += [layer, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def network(seed: int, batch: int) -> tuple[Module, Any, Any]:
    """Give the digit classifier, with biases that are not zero, and a batch of real digits."""
    model = mlp(seed=seed)
    for layer, parameter in enumerate(model.parameters()):
        if parameter.data.ndim == 1:
            parameter.data = (normals(seed, parameter.data.size, 1000 + layer) / 8).astype(np.float32)
    train, _ = digits()
    return model, train.images[:batch], train.labels[:batch]


def found_by(policy: str, model: Module, x: Any, y: Any) -> tuple[float, list[Any]]:
    with autocast(policy):
        loss = CrossEntropyLoss()(model(Tensor(x)), y)
    return loss.item(), gradients(loss, model.parameters())


def worst(ours: list[Any], theirs: list[Any]) -> float:
    """Give the largest difference of a gradient, in u of its largest element."""
    return max(float(np.abs(a - b).max() / np.abs(b).max() / U) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize(("seed", "batch"), [(0, 16), (1, 64), (2, 128)])
def test_loss_and_gradients_of_a_network(torch: Any, seed: int, batch: int) -> None:
    """Within an ulp of float32 (2 u) for each of the 14 matrix products between a gradient and the input.

    A product's rounding errors are random and partly cancel: of the worst case, k u a product, little is
    seen. They are measured against the largest element, since small ones are differences of large terms.
    """
    model, x, y = network(seed, batch)
    reference = twin(torch, model)
    loss = torch.nn.functional.cross_entropy(
        reference(torch.from_numpy(x).double()), torch.from_numpy(y.astype(np.int64))
    )
    loss.backward()
    theirs = [parameter.grad.numpy() for parameter in reference.parameters()]
    value, ours = found_by("float32", model, x, y)
    products = len(theirs)  # 7 layers, forward and backward
    assert abs(value - loss.item()) <= 2 * products * U * loss.item()
    assert worst(ours, theirs) <= 2 * products
    # Storage in half, and a gradient that another label would give, are far outside.
    assert worst(found_by("mixed_float16", model, x, y)[1], theirs) > 100 * products
    other = y.copy()
    other[0] = (other[0] + 1) % 10
    assert worst(found_by("float32", model, x, other)[1], theirs) > 100 * products


@pytest.mark.parametrize("spread", [0.01, 1.0, 20.0])
def test_cross_entropy(torch: Any, spread: float) -> None:
    """The roundings of the documented steps, counted, with z the shifted logits and C classes.

    p = exp(z) / sum is off by (|z| + C + 2) u relative, where p |z| < 1/2; then a difference, a quotient and a
    product: (C + 6) u / batch. A row's log(sum) - z[label] is off by (2 C + 4 + 2 |z|) u, the mean of
    B rows by (B + 2) u relative.
    """
    batch, classes = 50, 10
    logits = (drawn(5, batch, classes) * spread).astype(np.float32)
    labels = uniform_integers(6, batch).astype(np.int64) % classes
    double = torch.from_numpy(logits).double().requires_grad_()
    loss = torch.nn.functional.cross_entropy(double, torch.from_numpy(labels))
    loss.backward()
    parameter = Tensor(logits, requires_grad=True)
    ours = ops.cross_entropy(parameter, labels)
    (gradient,) = gradients(ours, [parameter])
    assert gradient is not None
    largest = float(np.max(logits.max(axis=1, keepdims=True) - logits))
    bound = (2 * classes + 4 + 2 * largest + (batch + 2) * loss.item()) * U
    assert abs(ours.item() - loss.item()) <= bound
    theirs = double.grad.numpy()
    assert np.abs(gradient - theirs).max() <= (classes + 6) * U / batch
    # A relative error of 2^-16, 256 u, is too much for either.
    assert ours.item() * 2.0**-16 > 2 * bound
    assert np.abs(gradient).max() * 2.0**-16 > 2 * (classes + 6) * U / batch


# --- momentum SGD ---


def descend(
    torch: Any, lr: float, momentum: float, their_momentum: float | None = None
) -> Iterator[tuple[Any, ...]]:
    """Take ten steps by both optimizers with the same gradients.

    Gives, of each step, torch's weights before, our weights, theirs, our velocities, theirs.
    """
    if their_momentum is None:
        their_momentum = momentum
    size = 1003  # not a multiple of a vector register
    start = drawn(7, size).astype(np.float32)
    ours = Tensor(start.copy(), requires_grad=True)
    theirs = torch.nn.Parameter(torch.from_numpy(start.copy()))
    our_rule = SGD([ours], lr=lr, momentum=momentum)
    their_rule = torch.optim.SGD([theirs], lr=lr, momentum=their_momentum, foreach=False)
    for step in range(10):
        gradient = (drawn(8 + step, size) * 2.0 ** (-3 * step)).astype(np.float32)
        before = theirs.detach().numpy().copy()
        our_rule.step([gradient])
        theirs.grad = torch.from_numpy(gradient.copy())
        their_rule.step()
        velocity = their_rule.state[theirs].get("momentum_buffer") if momentum else theirs.grad
        our_velocity = our_rule.velocity[0] if momentum else gradient
        yield before, ours.data, theirs.detach().numpy(), our_velocity, velocity.numpy()


def same(a: Any, b: Any) -> bool:
    return bool(np.array_equal(a.view(np.uint32), b.view(np.uint32)))


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_sgd_with_a_power_of_two_is_bit_equal(torch: Any, momentum: float) -> None:
    """lr v is exact then, and whether torch fuses it into the subtraction does not matter."""
    for _, ours, theirs, our_velocity, their_velocity in descend(torch, 2.0**-4, momentum):
        assert same(our_velocity, their_velocity)
        assert same(ours, theirs)


def test_sgd_with_any_rate(torch: Any) -> None:
    """Velocities are bit-equal. torch's w - lr v is rounded once where its kernel fuses, twice elsewhere.

    So each of its weights is one of the two roundings of its own previous weight, and after n steps ours is
    within n ulps of the weight and n halves of that of lr v.
    """
    rate = np.float32(0.05)
    allowed = np.zeros(1, np.float64)
    for before, ours, theirs, our_velocity, velocity in descend(torch, 0.05, 0.9):
        assert same(our_velocity, velocity)
        twice = before - rate * velocity
        once = fs.fma(velocity, np.full_like(velocity, -rate), before)
        assert ((theirs == twice) | (theirs == once)).all()
        assert not (theirs == before - np.nextafter(rate, np.float32(1)) * velocity).all()
        allowed = allowed + np.spacing(np.abs(theirs)) + np.spacing(np.abs(rate * velocity)) / 2
        assert (np.abs(ours.astype(np.float64) - theirs) <= allowed).all()


def test_another_momentum_by_an_ulp_is_noticed(torch: Any) -> None:
    other = float(np.nextafter(np.float32(0.9), np.float32(1)))
    *_, (_, ours, theirs, our_velocity, velocity) = descend(torch, 2.0**-4, 0.9, other)
    assert not same(our_velocity, velocity)
    assert not same(ours, theirs)
