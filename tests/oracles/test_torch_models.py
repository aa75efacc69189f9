"""Float32 training of every model follows torch 2.13's: the same weights, batches, optimizer, schedule and clipping.

The losses of two float32 runs part: each rounds sums in its own order (here one after the other, so gradients err by
about 2^-18 of the largest, five times as much as torch's, whose sums are blocked), a difference that moves a number
across the kink of a ReLU moves many pixels at once, since the background of the digits is one number, and what one step
leaves the next multiplies. Torch parts from itself in the same way: with weights changed by 2^-23, the losses of the
VGG at the rate of its recipe differ by 3e-4 after 5 steps, and those of the perceptron by 1.6% after 42. So the runs
are compared at low rates, where 50 steps multiply little: measured there, losses differ by 1e-5 at most (of the ResNet,
whose batch normalisation divides by small deviations; the others by 3e-6). The tolerance is ten times that.
Transformers and the GRU are smooth, and follow at the rates of their recipes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from fp16sim_oracles import torch_models

from fp16sim.optim import SGD, AdamW
from fp16sim.training.fit import fit_steps
from fp16sim.training.recipes import RECIPES, Recipe

pytestmark = pytest.mark.oracle

TOLERANCE = 1e-4
"""Relative, of the loss of each of 50 steps."""

RATES = {"mlp": 0.005, "vgg": 0.001, "resnet": 0.0005}
"""For momentum SGD; others have that of the recipe."""

NAMES = ("mlp", "vgg", "resnet", "gpt", "bert", "gru")


def recipe_of(name: str, more: float = 1.0) -> Recipe:
    """Give the recipe at the rate of this test, times `more`."""
    recipe = RECIPES[name]
    if name in RATES:
        rate = RATES[name] * more
        return replace(
            recipe, schedule=None, optimizer=lambda model: SGD(model.parameters(), lr=rate, momentum=0.9)
        )
    schedule = recipe.schedule
    assert schedule is not None
    return replace(recipe, schedule=lambda step: schedule(step) * more)


def trained(recipe: Recipe, seed: int, steps: int) -> tuple[Any, list[float]]:
    model = recipe.build(seed)
    loop = fit_steps(
        model,
        recipe.data(seed),
        optimizer=recipe.optimizer(model),
        steps=steps,
        loss_function=recipe.loss_function,
        schedule=recipe.schedule,
        clip_norm=recipe.clip_norm,
        measure=False,
    )
    return model, [step.loss for step in loop]


def trained_by_torch(
    torch: Any, recipe: Recipe, seed: int, steps: int, change: Callable[[Any], None] | None = None
) -> tuple[Any, list[float]]:
    taken = list(torch_models.train(torch, recipe, seed, steps, change))
    return taken[-1][1], [loss for loss, _ in taken]


def apart(ours: list[float], theirs: list[float]) -> float:
    return max(abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True))


# --- planted: what is noticed ---


def other_pooling(torch: Any, network: Any) -> None:
    for position, part in enumerate(network):
        if isinstance(part, torch.nn.MaxPool2d):
            network[position] = torch.nn.AvgPool2d(2)


def other_eps(torch: Any, network: Any) -> None:
    for part in network.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.eps = 1e-3


def other_gelu(torch: Any, network: Any) -> None:
    for block in network.blocks:
        block.activation = lambda x: torch.nn.functional.gelu(x, approximate="tanh")
        block.activation_relu_or_gelu = 0


def biases_before_the_gate(torch: Any, network: Any) -> None:
    """Those of the state move to the input, where the reset gate does not multiply them."""
    with torch.no_grad():
        for suffix in ("_l0", "_l0_reverse"):
            inner, outer = (getattr(network.gru, f"bias_{side}{suffix}") for side in ("hh", "ih"))
            outer += inner
            inner.zero_()


def other_activation(torch: Any, network: Any) -> None:
    for position, part in enumerate(network):
        if isinstance(part, torch.nn.ReLU):
            network[position] = torch.nn.LeakyReLU(0.01)


FAULTS = {
    "mlp": other_activation,
    "vgg": other_pooling,
    "resnet": other_eps,
    "gpt": other_gelu,
    "bert": other_gelu,
    "gru": biases_before_the_gate,
}


# --- the comparison ---


@pytest.mark.parametrize("name", NAMES)
def test_the_first_steps(torch: Any, name: str) -> None:
    torch.set_num_threads(1)
    recipe, steps = recipe_of(name), 5
    _, ours = trained(recipe, 1, steps)
    _, theirs = trained_by_torch(torch, recipe, 1, steps)
    # 2e-6 is 32 roundings of the loss; 16 at most were seen.
    assert apart(ours, theirs) <= 2e-6
    assert len({round(loss, 4) for loss in ours}) == steps
    _, faster = trained_by_torch(torch, recipe_of(name, 1.02), 1, steps)
    assert apart(ours, faster) > 1e-5
    # GELU by tanh differs from GELU by 5e-4 at most.
    _, faulty = trained_by_torch(torch, recipe, 1, steps, lambda network: FAULTS[name](torch, network))
    assert apart(ours, faulty) > 4e-6


def settled(key: str, value: Any) -> Any:
    """Give a parameter in a row, without the biases of keys: they change no softmax, so their gradient is noise, and
    Adam makes steps of the whole learning rate of it."""
    row = value.numpy().ravel()
    third = len(row) // 3
    return np.delete(row, slice(third, 2 * third)) if key.endswith("in_proj_bias") else row


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_fifty_steps(torch: Any, name: str) -> None:
    torch.set_num_threads(1)
    recipe, steps = recipe_of(name), 50
    model, ours = trained(recipe, 0, steps)
    network, theirs = trained_by_torch(torch, recipe, 0, steps)
    assert apart(ours, theirs) <= TOLERANCE
    assert min(ours) < 0.85 * ours[0]  # it learns
    _, faster = trained_by_torch(torch, recipe_of(name, 1.02), 0, steps)
    assert apart(ours, faster) > 5 * TOLERANCE
    # What the networks have become.
    mine, other = torch_models.twin(torch, model).state_dict(), network.state_dict()
    for kind in ("weight", "bias", "running_mean", "running_var"):
        keys = [key for key in mine if key.endswith(kind)]
        if keys:
            a, b = (np.concatenate([settled(key, state[key]) for key in keys]) for state in (mine, other))
            assert np.linalg.norm(a - b) <= 1e-3 * np.linalg.norm(b), kind
    assert all(int(value) == steps for key, value in mine.items() if key.endswith("num_batches_tracked"))


@pytest.mark.parametrize("policy", ["SGD", "AdamW"])
def test_the_schedule_reaches_torch(torch: Any, policy: str) -> None:
    """A twin whose rate stood still would follow a run without a schedule."""
    kinds = {"SGD": lambda m: SGD(m.parameters(), lr=1.0), "AdamW": lambda m: AdamW(m.parameters(), lr=1.0)}
    recipe = replace(RECIPES["mlp"], optimizer=kinds[policy], schedule=lambda step: 0.0 if step else 0.001)
    states = [
        {key: value.clone() for key, value in network.state_dict().items()}
        for _, network in torch_models.train(torch, recipe, 0, 3)
    ]
    same = [all(torch.equal(a[key], b[key]) for key in a) for a, b in pairwise(states)]
    assert same == [True, True]
    assert not torch.equal(
        states[0]["0.weight"], torch_models.twin(torch, recipe.build(0)).state_dict()["0.weight"]
    )
