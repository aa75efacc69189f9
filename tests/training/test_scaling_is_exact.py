"""Scaling is exact: half the loss under twice the scale has the same scaled gradients, and SGD goes the same way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from fp16sim import nn
from fp16sim.autograd import ops
from fp16sim.autograd.policy import Policy
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn.random import streams
from fp16sim.optim import SGD, Adam
from fp16sim.scaling.protocol import Decision, Observation
from fp16sim.training.step import train_step

POLICIES = ["float16", "mixed_float16", "mixed_bfloat16"]
CLASSES = 3


# ------------------------------------------------------------------------------------------- small networks


class Convolutional(nn.Module):
    def __init__(self) -> None:
        self.first = nn.Conv2d(1, 2, 3, padding=1)
        self.norm = nn.BatchNorm2d(2)
        self.last = nn.Linear(2, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        y = ops.max_pool(ops.relu(self.norm(self.first(x))), 2)
        return self.last(ops.mean(y, axis=(2, 3)))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        self.gru = nn.GRU(3, 3, batch_first=True)
        self.last = nn.Linear(3, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        output, _ = self.gru(x)
        return self.last(output[:, -1])


class Attentive(nn.Module):
    def __init__(self) -> None:
        self.attention = nn.MultiheadAttention(4, 2)
        self.norm = nn.LayerNorm(4)
        self.last = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        y = self.attention(x)
        return self.last(ops.mean(ops.gelu(self.norm(x + y)), axis=1))


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, CLASSES))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "MLP": (perceptron, (5,)),
    "convolution": (Convolutional, (1, 4, 4)),
    "GRU": (Recurrent, (3, 3)),
    "attention": (Attentive, (3, 4)),
}


# ------------------------------------------------------------------------------------------- runs


@dataclass
class Watched:
    """A constant scale that keeps the scaled gradients it is shown."""

    scale: float
    seen: list[bytes] = field(default_factory=list)

    def observe(self, gradients: Any) -> Observation:
        self.seen.append(b"".join(gradient.tobytes() for gradient in gradients))
        assert all(np.isfinite(gradient.astype(np.float32)).all() for gradient in gradients)
        return Observation()

    def update(self, observation: Observation) -> tuple[Watched, Decision]:
        return self, Decision(apply=True, divide_by=self.scale)


@dataclass(frozen=True)
class Setting:
    """A run: the loss times `factor`, the scale, and how the optimizer moves."""

    factor: float
    scale: float
    lr: float = 0.05
    kind: str = "SGD"
    options: tuple[tuple[str, float], ...] = ()
    clip_norm: float | None = None

    def halved(self, by: float = 2.0, faster: float | None = None) -> Setting:
        """Divide the loss and multiply the scale, and the rate along with it unless `faster` says otherwise."""
        lr = self.lr * (by if faster is None else faster)
        return Setting(self.factor / by, self.scale * by, lr, self.kind, self.options, self.clip_norm)


def run(
    network: str, policy: str, setting: Setting, steps: int, seed: int = 0
) -> tuple[list[bytes], list[bytes]]:
    """Give the scaled gradients and the parameters of each step."""
    make, shape = NETWORKS[network]
    rng = np.random.default_rng(seed)
    batches = [
        (rng.normal(size=(4, *shape)).astype(np.float32), rng.integers(0, CLASSES, 4)) for _ in range(4)
    ]
    with streams(seed):
        model = make().to(Policy(policy).parameters)
    optimizer: Any = (SGD if setting.kind == "SGD" else Adam)(
        model.parameters(), lr=setting.lr, **dict(setting.options)
    )
    scaler, parameters = Watched(setting.scale), []
    for number in range(steps):
        train_step(
            number,
            model,
            nn.CrossEntropyLoss(),
            batches[number % 4],
            policy=Policy(policy),
            scaler=scaler,
            optimizer=optimizer,
            loss_factor=setting.factor,
            clip_norm=setting.clip_norm,
            measure=False,
        )
        parameters.append(b"".join(parameter.data.tobytes() for parameter in model.parameters()))
    return scaler.seen, parameters


def hypothesis(examples: int) -> Any:
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


SMALL_POWERS = st.integers(-10, 0)
SCALES = st.integers(0, 12)  # 2^13 at most: twice the scale is a number of float16


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("policy", POLICIES)
def test_scaled_gradients_of_half_the_loss_under_twice_the_scale(policy: str, network: str) -> None:
    @hypothesis(6)
    @given(SMALL_POWERS, SCALES, st.integers(0, 1000))
    def check(power: int, scale: int, seed: int) -> None:
        setting = Setting(2.0**power, 2.0**scale)
        gradients, _ = run(network, policy, setting, 1, seed)
        assert run(network, policy, setting.halved(), 1, seed)[0] == gradients

    check()


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_trajectories_of_sgd(policy: str, network: str) -> None:
    @hypothesis(3)
    @given(SMALL_POWERS, SCALES, st.integers(0, 1000), st.sampled_from([0.0, 0.9]))
    def check(power: int, scale: int, seed: int, momentum: float) -> None:
        setting = Setting(2.0**power, 2.0**scale, options=(("momentum", momentum),))
        gradients, parameters = run(network, policy, setting, 10, seed)
        assert len(set(parameters)) > 1
        assert run(network, policy, setting.halved(), 10, seed) == (gradients, parameters)

    check()


MOVING = Setting(2.0**-3, 2.0**10, options=(("momentum", 0.9),))


def same_run(setting: Setting, policy: str = "mixed_float16", **change: Any) -> bool:
    return run("MLP", policy, setting, 10)[1] == run("MLP", policy, setting.halved(**change), 10)[1]


def test_float16_weights_go_the_same_way_while_no_gradient_is_subnormal() -> None:
    # With the loss times 2^8 the gradients, their velocities and half of them are normal numbers of float16 here.
    assert same_run(Setting(2.0**8, 1.0, lr=2.0**-10, options=(("momentum", 0.9),)), "float16")


def test_float16_weights_go_another_way_where_half_a_gradient_is_rounded() -> None:
    assert not same_run(Setting(2.0**-12, 2.0**10, lr=64.0, options=(("momentum", 0.9),)), "float16")


def test_adam_goes_the_same_way_at_the_same_rate_where_eps_is_lost_in_every_sum() -> None:
    assert same_run(Setting(2.0**-3, 2.0**10, lr=0.01, kind="Adam", options=(("eps", 1e-30),)), faster=1.0)


# ------------------------------------------------------------------------------------------- what breaks it


def test_the_check_passes_as_it_should() -> None:
    assert same_run(MOVING)


@pytest.mark.parametrize(
    ("setting", "change"),
    [
        (Setting(2.0**-3, 2.0**10, options=(("weight_decay", 0.01),)), {}),
        (Setting(2.0**-3, 2.0**10, lr=0.01, kind="Adam"), {"faster": 1.0}),
        (Setting(2.0**-3, 2.0**10, clip_norm=0.01), {}),
        (MOVING, {"by": 3.0}),
        (MOVING, {"faster": 1.0}),
    ],
    ids=["weight decay", "Adam's eps", "clipping", "three times the scale", "the same rate"],
)
def test_what_breaks_it_is_seen(setting: Setting, change: dict[str, float]) -> None:
    assert not same_run(setting, **change)


def test_a_scale_that_is_no_power_of_two_changes_scaled_gradients() -> None:
    # An eleventh of the loss under eleven times the scale: in float16 their product is an ulp below 8.
    setting = Setting(2.0**-3, 2.0**6)
    gradients, _ = run("MLP", "float16", setting, 1)
    assert run("MLP", "float16", setting.halved(), 1)[0] == gradients
    assert run("MLP", "float16", setting.halved(by=11.0), 1)[0] != gradients
