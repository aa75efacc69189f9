"""What every network has to have: shapes, sizes, weights by the seed, a state that comes back, errors with a path."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest

from fp16sim.autograd.policy import Policy, autocast
from fp16sim.autograd.tensor import Tensor, no_grad
from fp16sim.nn import Module
from fp16sim.training.evaluation import model_inputs
from fp16sim.training.fit import fit
from fp16sim.training.recipes import RECIPES

NAMES = ("vgg", "resnet", "gpt", "bert", "gru")
SIZES = {
    # weights and biases: four convolutions, then 256 inputs to 10 classes
    "vgg": (32 * 9 + 32) + (32 * 32 * 9 + 32) + (64 * 32 * 9 + 64) + (64 * 64 * 9 + 64) + 2570,
    # convolutions have no biases; each normalisation has two numbers a channel
    "resnet": (144 + 32) + 2 * (2304 + 32) + (4608 + 64 + 9216 + 64 + 512 + 64) + 2 * (9216 + 64) + 330,
    # 94 characters, 64 places; a block is 12 w^2 + 13 w; the last normalisation; the scores
    "gpt": 94 * 96 + 64 * 96 + 2 * (12 * 96 * 96 + 13 * 96) + 192 + 97 * 94,
    "bert": 95 * 96 + 32 * 96 + 2 * (12 * 96 * 96 + 13 * 96) + 192 + 97 * 95,
    # two directions with three gates, then 96 inputs to 9 classes
    "gru": 2 * (3 * 48 * (12 + 48) + 2 * 3 * 48) + 97 * 9,
}
OUTPUTS = {"vgg": (64, 10), "resnet": (64, 10), "gpt": (16, 64, 94), "bert": (32, 32, 95), "gru": (30, 9)}
DIGESTS = {
    "vgg": "d682837f0a71e7da",
    "resnet": "f0f95d9d1e6f8d7f",
    "gpt": "b5f220ed6de296ff",
    "bert": "5618df6b911134b7",
    "gru": "a276e2bc5b8f3db2",
}
"""The first 16 digits of the SHA-256 of names and float32 bits of the initial parameters of seed 0."""


def scores(model: Module, inputs: Any, policy: str = "float32") -> Any:
    with no_grad(), autocast(policy):
        return model(*model_inputs(inputs)).data


def digest(model: Module) -> str:
    found = hashlib.sha256()
    for name, parameter in model.named_parameters():
        found.update(f"{name} {parameter.shape}\n".encode())
        found.update(parameter.data.astype("<f4").tobytes())
    return found.hexdigest()[:16]


@pytest.mark.parametrize("name", NAMES)
def test_shapes_and_sizes(name: str) -> None:
    recipe = RECIPES[name]
    model = recipe.build(0)
    inputs, targets = recipe.data(0).at(0)
    assert sum(parameter.size for parameter in model.parameters()) == SIZES[name]
    for policy, dtype in (("float32", np.float32), ("mixed_float16", np.float16)):
        output = scores(model, inputs, policy)
        assert output.shape == OUTPUTS[name]
        assert output.shape[:-1] == targets.shape
        assert output.dtype == dtype
        assert np.isfinite(output).all()


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_fixes_the_initial_weights(name: str) -> None:
    build = RECIPES[name].build
    assert digest(build(0)) == digest(build(0)) == DIGESTS[name]
    assert digest(build(1)) != DIGESTS[name]
    for parameter in build(0).parameters():
        assert parameter.dtype == np.float32
        assert parameter.requires_grad


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_a_step_changes_every_parameter(name: str, policy: str) -> None:
    recipe = RECIPES[name]
    model = recipe.build(0)
    before = model.state_dict()
    fit(
        model,
        recipe.data(0),
        policy=policy,
        scaler="static,scale=1024" if policy == "mixed_float16" else "none",
        optimizer=recipe.optimizer(model),
        steps=1,
        loss_function=recipe.loss_function,
        clip_norm=recipe.clip_norm,
        measure=False,
    )
    after = model.state_dict()
    assert [key for key in before if np.array_equal(before[key], after[key])] == []
    assert all(np.isfinite(value).all() for value in after.values())


@pytest.mark.parametrize("name", NAMES)
def test_the_state_comes_back(name: str) -> None:
    recipe = RECIPES[name]
    inputs, _ = recipe.data(0).at(0)
    model, other = recipe.build(0), recipe.build(1)
    scores(model, inputs)  # in training mode: normalisation keeps what it saw
    other.load_state_dict(model.state_dict())
    assert scores(model.eval(), inputs).tobytes() == scores(other.eval(), inputs).tobytes()
    assert scores(model, inputs).tobytes() != scores(recipe.build(1).eval(), inputs).tobytes()
    with pytest.raises(ValueError, match="the state of another model: it lacks"):
        other.load_state_dict(dict(list(model.state_dict().items())[1:]))


def test_errors_name_the_layer_by_its_path() -> None:
    images = Tensor(np.zeros((2, 3, 8, 8), np.float32))
    with pytest.raises(
        ValueError, match=r"layer '0': an input of shape \(2, 3, 8, 8\) for a Conv2d of 1 channel"
    ):
        RECIPES["vgg"].build(0)(images)
    with pytest.raises(ValueError, match="layer 'conv1': an input of shape"):
        RECIPES["resnet"].build(0)(images)
    resnet = RECIPES["resnet"].build(0)
    resnet.blocks.modules[1].downsample = None  # the shortcut has the shape of the input
    with pytest.raises(ValueError, match=r"^layer 'blocks\.1'"):
        resnet(Tensor(np.zeros((2, 1, 8, 8), np.float32)))
    with pytest.raises(ValueError, match=r"^layer 'gru': a sequence of length 9"):
        RECIPES["gru"].build(0)(Tensor(np.zeros((1, 5, 12), np.float32)), [9])
    with pytest.raises(ValueError, match=r"^layer 'tokens': .*94"):
        RECIPES["gpt"].build(0)(np.array([[3, 94]]))
    gpt = RECIPES["gpt"].build(0)
    gpt.blocks.modules[1].self_attn.embed_dim = 48
    with pytest.raises(ValueError, match=r"^layer 'blocks\.1\.self_attn': a query of shape \(1, 2, 96\)"):
        gpt(np.array([[3, 4]]))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NAMES, "mlp"])
def test_training_reaches_what_the_recipe_is_for(name: str) -> None:
    """Half of the steps, in float16: experiments/03_models.py takes them all."""
    recipe = RECIPES[name]
    model = recipe.build(0)
    untrained = recipe.evaluate(model, Policy("float32"))
    fit(
        model,
        recipe.data(0),
        policy="mixed_float16",
        scaler="torch",
        optimizer=recipe.optimizer(model),
        steps=recipe.steps // 2,
        loss_function=recipe.loss_function,
        schedule=recipe.schedule,
        clip_norm=recipe.clip_norm,
        measure=False,
    )
    trained = recipe.evaluate(model, Policy("mixed_float16"))
    if recipe.metric == "accuracy":
        assert untrained < 0.3
        assert trained > 0.9
    else:
        assert untrained > 4.5  # log(94) = 4.54
        assert trained < 3.0
