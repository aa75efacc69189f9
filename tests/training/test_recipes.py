"""Every recipe builds, trains a little, repeats itself, and is measured."""

import math
from dataclasses import replace

import pytest

from fp16sim.autograd.policy import Policy
from fp16sim.nn import Module
from fp16sim.training import recipes
from fp16sim.training.fit import fit
from fp16sim.training.recipes import RECIPES, Recipe


def trained(recipe, steps, seed=0, policy="mixed_float16", scaler="torch"):
    model = recipe.build(seed)
    return fit(
        model,
        recipe.data(seed),
        policy=policy,
        scaler=scaler,
        optimizer=recipe.optimizer(model),
        steps=steps,
        loss_function=recipe.loss_function,
        schedule=recipe.schedule,
        clip_norm=recipe.clip_norm,
        measure=False,
    )


def test_names_and_recipes_agree():
    assert next(iter(RECIPES)) == "mlp"
    for name, recipe in RECIPES.items():
        assert recipe.name == name
        assert recipe.summary
        assert "\n" not in recipe.summary
    assert len(RECIPES) == len(list(RECIPES))
    assert "mlp" in repr(RECIPES)


@pytest.mark.parametrize("name", list(RECIPES))
def test_a_recipe_builds_what_its_seed_fixes(name):
    recipe = RECIPES[name]
    model = recipe.build(3)
    assert isinstance(model, Module)
    first, same, other = ([p.data.tobytes() for p in recipe.build(seed).parameters()] for seed in (3, 3, 4))
    assert first == same != other
    optimizer = recipe.optimizer(model)
    assert {id(p) for p in optimizer.parameters} == {id(p) for p in model.parameters()}
    assert optimizer.lr > 0
    if recipe.schedule is not None:
        assert all(0 <= recipe.schedule(step) < 10 for step in (0, 1, recipe.steps))
    assert recipe.steps >= 1


@pytest.mark.parametrize("name", list(RECIPES))
def test_data_is_numbered_and_fixed_by_the_seed(name):
    from fp16sim.training.saving import fingerprint

    found = [
        fingerprint(RECIPES[name].data(seed).at(number)) for seed, number in ((0, 1), (0, 1), (0, 2), (1, 1))
    ]
    assert found[0] == found[1]
    assert len(set(found)) == 3


def test_the_mlp_learns_and_repeats_itself():
    recipe = RECIPES["mlp"]
    run = trained(recipe, 60)
    assert recipe.evaluate(run.model, Policy("mixed_float16")) > 0.8
    assert trained(recipe, 60).digest == run.digest
    assert trained(recipe, 60, seed=1).digest != run.digest


@pytest.mark.slow
@pytest.mark.parametrize("name", list(RECIPES))
def test_two_steps_of_every_recipe(name):
    recipe = RECIPES[name]
    run = trained(recipe, 2)
    assert all(math.isfinite(step.loss) for step in run.history)
    value = recipe.evaluate(run.model, Policy("mixed_float16"))
    assert 0 <= value <= 1 if recipe.metric == "accuracy" else math.isfinite(value)


def test_only_what_is_asked_for_is_imported(monkeypatch):
    asked = []
    monkeypatch.setitem(recipes._MODULES, "missing", "fp16sim.training.models_of_others")
    monkeypatch.setattr(recipes, "import_module", lambda name: asked.append(name))
    assert "missing" in RECIPES
    assert list(RECIPES)[-1] == "missing"
    assert asked == []


def test_an_unknown_name():
    with pytest.raises(KeyError, match="did you mean 'mlp'"):
        RECIPES["mpl"]
    assert "mpl" not in RECIPES


def test_a_metric_that_there_is_not():
    with pytest.raises(ValueError, match="unknown metric 'acuracy': did you mean 'accuracy'"):
        replace(RECIPES["mlp"], metric="acuracy")
    assert isinstance(RECIPES["mlp"], Recipe)
