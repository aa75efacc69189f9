"""Recipes: a model with all that it takes to train it, by name.

A recipe is data that a model's module defines as `RECIPE`; it is imported when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from fp16sim.autograd.policy import Policy
from fp16sim.autograd.tensor import Tensor
from fp16sim.emulator.formats import nearest_name
from fp16sim.nn import Module
from fp16sim.optim import SGD
from fp16sim.training.data import Batches, BatchSource, digits
from fp16sim.training.evaluation import accuracy_on
from fp16sim.training.models import mlp

__all__ = ["RECIPES", "Recipe"]

_MODULES = {
    # One line a model: the module whose RECIPE it is.
    "mlp": "fp16sim.training.recipes",
    "vgg": "fp16sim.training.models.vgg",
    "resnet": "fp16sim.training.models.resnet",
    "gpt": "fp16sim.training.models.gpt",
    "bert": "fp16sim.training.models.bert",
    "gru": "fp16sim.training.models.gru",
}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How one model is trained.

    Attributes
    ----------
    name : str
        What `fp16sim train --model` and `RECIPES` call it.
    summary : str
        The network and the task, in one line.
    build : callable
        ``(seed) -> Module``, with the weights that the seed fixes.
    data : callable
        ``(seed) -> BatchSource``, in the order that the seed fixes.
    optimizer : callable
        ``(model) -> Optimizer``, with the learning rate of the recipe.
    steps : int
        Taken unless another number is asked for.
    evaluate : callable
        ``(model, policy) -> float``: the `metric` on data that is not trained on.
    metric : {"accuracy", "loss"}
        What `evaluate` gives.
    loss_function : callable, optional
        ``(output, targets) -> Tensor``. None: cross-entropy.
    schedule : callable, optional
        ``(applied_steps) -> rate``. None: the rate of the optimizer all along.
    clip_norm : float, optional
        To which the gradients are clipped once the scale is divided out.
    """

    name: str
    summary: str
    build: Callable[[int], Module]
    data: Callable[[int], BatchSource]
    optimizer: Callable[[Module], Any]
    steps: int
    evaluate: Callable[[Module, Policy], float]
    metric: str = "accuracy"
    loss_function: Callable[[Any, Any], Tensor] | None = None
    schedule: Callable[[int], float] | None = None
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        valid = ("accuracy", "loss")
        if self.metric not in valid:
            raise ValueError(f"unknown metric {self.metric!r}: {nearest_name(self.metric, valid)}")


class _Recipes(Mapping[str, Recipe]):
    """The recipes by name, each made when it is first asked for."""

    def __getitem__(self, name: str) -> Recipe:
        if name not in _MODULES:
            raise KeyError(f"unknown model {name!r}: {nearest_name(name, list(_MODULES))}")
        recipe: Recipe = import_module(_MODULES[name]).RECIPE
        return recipe

    def __contains__(self, name: object) -> bool:
        return name in _MODULES

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)

    def __repr__(self) -> str:
        return f"RECIPES({', '.join(_MODULES)})"


RECIPES: Mapping[str, Recipe] = _Recipes()
"""Every model that `fp16sim train --model` takes.

>>> RECIPES["mlp"].steps
264
"""


def _evaluate(model: Module, policy: Policy) -> float:
    test = digits()[1]
    return accuracy_on(model, [(test.images, test.labels)], policy)


RECIPE = Recipe(
    name="mlp",
    summary="64 - 6 x 64 - 10 with ReLU, handwritten digits",
    build=lambda seed: mlp(seed=seed),
    data=lambda seed: Batches(digits()[0], 64, seed),
    optimizer=lambda model: SGD(model.parameters(), lr=0.05, momentum=0.9),
    steps=264,  # 12 epochs
    evaluate=_evaluate,
)
