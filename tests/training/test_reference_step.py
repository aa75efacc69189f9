"""A training step equals the scalar definition, array by array; the plain backend trains to the same bits."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from fp16sim import nn, scaling
from fp16sim.autograd import ops
from fp16sim.autograd.backward import gradients
from fp16sim.autograd.policy import Policy, autocast
from fp16sim.autograd.tensor import Tensor
from fp16sim.emulator import reference, reference_layers, reference_layers_updates
from fp16sim.emulator.backends import current, use_backend
from fp16sim.emulator.backends.base import Backend
from fp16sim.emulator.datapath import as_datapath
from fp16sim.emulator.formats import Format, bfloat16, binary16, binary32
from fp16sim.emulator.rounding import Rounding
from fp16sim.nn.random import streams
from fp16sim.optim import SGD
from fp16sim.scaling.protocol import observe, scale_loss, unscale
from fp16sim.training.fit import fit
from fp16sim.training.models import mlp
from fp16sim.training.step import train_step

SCALE, RATE, MOMENTUM, STEPS = 8.0, 0.1, 0.9, 3
LABELS = [2, 0, 1, 2, 1]
NAMES = ["0.weight", "0.bias", "2.weight", "2.bias"]
FORMATS = {"float16": binary16, "bfloat16": bfloat16, "float32": binary32}


def examples() -> Any:
    """Five examples of five features, a subnormal of float16 and zeros of both signs among them."""
    x = np.random.default_rng(5).normal(size=(5, 5)).astype(np.float32)
    x[0, :3] = [2.0**-24, -0.0, 0.0]
    return x


def network() -> Any:
    with streams(3):
        return nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)).to("float32")


# ------------------------------------------------------------------------------------------- the definition


class Formats(NamedTuple):
    """Where each part of a step is computed: what a policy says, written out."""

    compute: Format
    loss: Format
    weights: Format
    sums: str


POLICIES = {
    "float16": Formats(binary16, binary16, binary16, "float16"),
    "mixed_float16": Formats(binary16, binary32, binary32, "float32"),
    "mixed_bfloat16": Formats(bfloat16, binary32, binary32, "float32"),
    "float32": Formats(binary32, binary32, binary32, "float32"),
}


def real_function(name: str, bits: int) -> int:
    value = np.array([bits], np.uint32).view(np.float32)
    return int(Backend().real_function(name, value).view(np.uint32)[0])


def roundings(fmt: Format, sums: str) -> reference_layers.Roundings:
    path = as_datapath(sums).for_operands(fmt)
    return reference_layers.Roundings(fmt, path, path, real_function)


def convert(bits: Any, source: Format, target: Format) -> Any:
    if isinstance(bits, int):
        return reference.convert(bits, source, target).bits
    return [convert(each, source, target) for each in bits]


def flat(bits: Any) -> list[int]:
    return [bits] if isinstance(bits, int) else [each for part in bits for each in flat(part)]


class Rules:
    """The formulas that a step is made of; a test plants a wrong one."""

    linear = staticmethod(reference_layers.linear)
    linear_gradient = staticmethod(reference_layers.linear_gradient)
    cross_entropy = staticmethod(reference_layers.cross_entropy)
    cross_entropy_gradient = staticmethod(reference_layers.cross_entropy_gradient)
    unscale = staticmethod(reference_layers_updates.unscale)
    sgd = staticmethod(reference_layers_updates.sgd)


def scalar_step(
    formats: Formats, weights: dict[str, Any], velocity: dict[str, Any], rules: Any = Rules
) -> dict[str, tuple[Format, list[int]]]:
    """Take a step on encodings; `weights` and `velocity` move. Every array that it makes, with its format."""
    compute, wide, own, sums = formats
    r, r_loss, r_own = roundings(compute, sums), roundings(wide, sums), roundings(own, sums)
    x = convert(examples().view(np.uint32).tolist(), binary32, compute)
    w1, b1, w2, b2 = (convert(weights[name], own, compute) for name in NAMES)

    hidden = rules.linear(r, x, w1, b1)
    active = [reference_layers.relu(r, row) for row in hidden]
    logits = rules.linear(r, active, w2, b2)
    wide_logits = convert(logits, compute, wide)
    loss = rules.cross_entropy(r_loss, wide_logits, LABELS)
    factor = r_loss.number(SCALE)
    scaled = r_loss.multiply(loss, factor)

    of_loss = r_loss.multiply(r_loss.number(1.0), factor)
    of_logits = convert(rules.cross_entropy_gradient(r_loss, wide_logits, LABELS, of_loss), wide, compute)
    of_active, of_w2, of_b2 = rules.linear_gradient(r, active, w2, of_logits)
    of_hidden = [reference_layers.relu_gradient(r, row, g) for row, g in zip(hidden, of_active, strict=True)]
    _, of_w1, of_b1 = rules.linear_gradient(r, x, w1, of_hidden)

    made = {
        "hidden": (compute, flat(hidden)),
        "active": (compute, flat(active)),
        "logits": (compute, flat(logits)),
        "loss": (wide, [loss]),
        "scaled": (wide, [scaled]),
        "of hidden": (compute, flat(of_hidden)),
        "of active": (compute, flat(of_active)),
        "of logits": (compute, flat(of_logits)),
    }
    single = roundings(binary32, "float32")
    for name, part in zip(NAMES, (of_w1, of_b1, of_w2, of_b2), strict=True):
        gradient = flat(convert(part, compute, own))
        made[f"of {name}"] = own, gradient
        step = rules.unscale(single, gradient, own, SCALE)
        made[f"unscaled {name}"] = binary32, step
        width = len(weights[name][0]) if isinstance(weights[name][0], list) else 0
        moved, velocity[name] = rules.sgd(
            r_own, flat(weights[name]), convert(step, binary32, own), velocity[name], RATE, MOMENTUM
        )
        weights[name] = [moved[n : n + width] for n in range(0, len(moved), width)] if width else moved
        made[f"velocity {name}"] = own, velocity[name]
        made[f"new {name}"] = own, moved
    return made


# ------------------------------------------------------------------------------------------- the engine


def engine_step(policy: Policy, model: Any, optimizer: SGD) -> dict[str, Any]:
    """Take the same step with tensors, and give every array that it makes."""
    scaler = scaling.StaticScaler(SCALE)
    with autocast(policy):
        hidden = model.modules[0](Tensor(examples()))
        active = model.modules[1](hidden)
        logits = model.modules[2](active)
        loss = nn.CrossEntropyLoss()(logits, LABELS)
        scaled = scale_loss(scaler, loss)
    parameters = model.parameters()
    found = gradients(scaled, [*parameters, hidden, active, logits])
    _, decision = scaler.update(observe(scaler, found[:4]))
    steps = [unscale(gradient, decision) for gradient in found[:4]]
    optimizer.step(steps)
    made = {
        "hidden": hidden.data,
        "active": active.data,
        "logits": logits.data,
        "loss": loss.data,
        "scaled": scaled.data,
        "of hidden": found[4],
        "of active": found[5],
        "of logits": found[6],
    }
    for n, name in enumerate(NAMES):
        made[f"of {name}"], made[f"unscaled {name}"] = found[n], steps[n]
        made[f"velocity {name}"] = optimizer.velocity[n].copy()
        made[f"new {name}"] = parameters[n].data.copy()
    return made


def bits_of(array: Any, fmt: Format) -> list[int]:
    assert FORMATS[array.dtype.name] == fmt
    return np.ascontiguousarray(array).view(fmt.uint).reshape(-1).tolist()


def compared(name: str, rules: Any = Rules) -> list[str]:
    """Run both for a few steps, and name the arrays that differ."""
    formats, policy = POLICIES[name], Policy(name)
    model = network().to(policy.parameters)
    optimizer = SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    weights = {
        key: parameter.data.view(formats.weights.uint).tolist() for key, parameter in model.named_parameters()
    }
    velocity: dict[str, Any] = dict.fromkeys(NAMES)
    wrong = []
    for step in range(STEPS):
        found, expected = (
            engine_step(policy, model, optimizer),
            scalar_step(formats, weights, velocity, rules),
        )
        assert found.keys() == expected.keys()
        wrong += [
            f"{step} {key}" for key, (fmt, bits) in expected.items() if bits_of(found[key], fmt) != bits
        ]
    return wrong


@pytest.mark.parametrize("name", POLICIES)
def test_every_array_of_a_step_is_that_of_the_definition(name: str) -> None:
    assert compared(name) == []


@pytest.mark.parametrize("name", POLICIES)
def test_the_step_of_the_training_loop_is_that_step(name: str) -> None:
    policy, moved = Policy(name), []
    for train in (True, False):
        model = network().to(policy.parameters)
        optimizer, scaler = SGD(model.parameters(), lr=RATE, momentum=MOMENTUM), scaling.StaticScaler(SCALE)
        for number in range(STEPS):
            if train:
                batch = (examples(), np.array(LABELS))
                loss = nn.CrossEntropyLoss()
                train_step(number, model, loss, batch, policy=policy, scaler=scaler, optimizer=optimizer)
            else:
                engine_step(policy, model, optimizer)
        moved.append([parameter.data.tobytes() for parameter in model.parameters()])
    assert moved[0] == moved[1]


class BiasFirst(Rules):
    @staticmethod
    def linear(r: Any, x: Any, weight: Any, bias: Any) -> Any:
        """The accumulator begins with the bias: one rounding less."""
        one = r.number(1.0)
        return [[r.dot([one, *row], [b, *each]) for each, b in zip(weight, bias, strict=True)] for row in x]


class LastExampleFirst(Rules):
    @staticmethod
    def linear_gradient(r: Any, x: Any, weight: Any, g: Any) -> Any:
        of_x, _, _ = reference_layers.linear_gradient(r, x, weight, g)
        return of_x, *reference_layers.linear_gradient(r, x[::-1], weight, g[::-1])[1:]


class DividedLast(Rules):
    @staticmethod
    def cross_entropy_gradient(r: Any, logits: Any, labels: Any, g: int) -> Any:
        whole = [
            reference_layers.cross_entropy_gradient(r, [row], [n], g)
            for row, n in zip(logits, labels, strict=True)
        ]
        return [[r.divide(a, r.number(len(labels))) for a in row] for (row,) in whole]


class NarrowLoss(Rules):
    """The loss in float16, where the policy says float32."""

    @staticmethod
    def cross_entropy_gradient(r: Any, logits: Any, labels: Any, g: int) -> Any:
        half = [convert(part, r.fmt, binary16) for part in (logits, g)]
        found = reference_layers.cross_entropy_gradient(
            roundings(binary16, "float32"), half[0], labels, half[1]
        )
        return convert(found, binary16, r.fmt)


class Fused(Rules):
    @staticmethod
    def sgd(r: Any, weight: Any, gradient: Any, velocity: Any, lr: float, momentum: float) -> Any:
        _, v = reference_layers_updates.sgd(r, weight, gradient, velocity, lr, momentum)
        return [reference.fma(r.number(-lr), a, w, r.fmt).bits for a, w in zip(v, weight, strict=True)], v


# In float32 some orders differ by less than the float16 that follows can tell; in float16 all of them show.
@pytest.mark.parametrize(
    ("name", "rules"),
    [
        *(("float16", rules) for rules in (BiasFirst, LastExampleFirst, DividedLast, Fused)),
        *(("mixed_float16", rules) for rules in (BiasFirst, NarrowLoss, Fused)),
    ],
)
def test_a_step_with_another_order_of_roundings_is_seen(name: str, rules: Any) -> None:
    assert compared(name, rules) != []


# ------------------------------------------------------------------------------------------- the plain backend


class Small(nn.Module):
    """A convolution, both normalisations, pooling and a recurrent layer, each as small as it gets."""

    def __init__(self) -> None:
        self.convolution = nn.Conv1d(2, 4, 3, padding=1)
        self.over_batch = nn.BatchNorm1d(4)
        self.recurrent = nn.GRU(4, 2, batch_first=True)
        self.over_example = nn.LayerNorm(2)
        self.last = nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = ops.relu(self.over_batch(self.convolution(x)))
        y = ops.avg_pool(y, 2)
        y, _ = self.recurrent(ops.swapaxes(y, 1, 2))
        return self.last(ops.gelu(self.over_example(y[:, -1])))


def trained(model: Any, inputs: Any, policy: str, steps: int) -> str:
    data = [(inputs[first : first + 4], np.array(LABELS[:4])) for first in (0, 4)]
    optimizer = SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    return fit(model, data, policy=policy, scaler="static,scale=8", optimizer=optimizer, steps=steps).digest


def small_mlp(policy: str) -> str:
    inputs = np.random.default_rng(7).normal(size=(8, 5)).astype(np.float32)
    return trained(mlp(inputs=5, hidden=6, layers=2, outputs=3, seed=1), inputs, policy, 3)


def small_network(policy: str) -> str:
    inputs = np.random.default_rng(7).normal(size=(8, 2, 4)).astype(np.float32)
    with streams(1):
        model = Small()
    return trained(model, inputs, policy, 2)


@pytest.mark.parametrize("run", [small_mlp, small_network])
@pytest.mark.parametrize("policy", ["float32", "float16", "mixed_float16", "mixed_bfloat16", "float64"])
def test_the_plain_backend_trains_to_the_same_digest(policy: str, run: Any) -> None:
    fast = run(policy)
    with use_backend("reference"):
        assert type(current()) is Backend
        assert run(policy) == fast


def test_a_backend_that_rounds_otherwise_has_another_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = small_mlp("mixed_float16")
    add = reference.OPERATIONS["add"]
    up = Rounding("nearest_away")
    monkeypatch.setitem(
        reference.OPERATIONS, "add", lambda a, b, fmt, rounding, draw: add(a, b, fmt, up, draw)
    )
    with use_backend("reference"):
        assert small_mlp("mixed_float16") != fast
