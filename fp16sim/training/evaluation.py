"""How good a model is: its accuracy, and its mean loss, on batches that it was not trained on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from fp16sim.autograd.policy import Policy, autocast
from fp16sim.autograd.tensor import Tensor, no_grad
from fp16sim.nn import CrossEntropyLoss, Module

__all__ = ["accuracy_on", "evaluating", "loss_on", "model_inputs"]


@contextmanager
def evaluating(model: Module, policy: Policy | str) -> Iterator[None]:
    """Compute under a policy, without a tape and in evaluation mode; then every part has its mode back."""
    modes = [(module, module.training) for _, module in model.named_modules()]
    model.eval()
    try:
        with no_grad(), autocast(policy):
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def accuracy_on(model: Module, batches: Iterable[tuple[Any, Any]], policy: Policy | str) -> float:
    """Give the share of labels for which a model's score is the largest; NaN is never correct.

    Parameters
    ----------
    model : Module
        Gives scores (..., classes).
    batches : iterable of (inputs, labels)
        A finite one. Inputs are handed over as :func:`model_inputs` says; labels have shape (...).
    policy : Policy or str

    Examples
    --------
    >>> from fp16sim.nn import ReLU
    >>> accuracy_on(ReLU(), [(np.float32([[1, 2], [2, 1]]), np.array([1, 1]))], "float32")
    0.5
    """
    right = total = 0
    with evaluating(model, policy):
        for inputs, labels in batches:
            scores = model(*model_inputs(inputs)).data
            found = (scores.argmax(axis=-1) == labels) & ~np.isnan(scores).any(axis=-1)
            right, total = right + int(found.sum()), total + found.size
    return right / _some(total)


def loss_on(
    model: Module,
    batches: Iterable[tuple[Any, Any]],
    policy: Policy | str,
    loss_function: Callable[[Any, Any], Tensor] | None = None,
) -> float:
    """Give the mean loss over batches, each weighted by its number of targets.

    The mean of a batch is rounded as training rounds it; those means are added exactly and rounded to binary64 once.
    Parameters as in :func:`accuracy_on`; without a `loss_function` the loss is the cross-entropy.
    """
    loss_function = loss_function or CrossEntropyLoss()
    parts, total = [], 0
    with evaluating(model, policy):
        for inputs, targets in batches:
            count = np.size(targets)
            parts.append(loss_function(model(*model_inputs(inputs)), targets).item() * count)
            total += count
    return math.fsum(parts) / _some(total) if all(map(math.isfinite, parts)) else math.nan


def model_inputs(inputs: Any) -> tuple[Any, ...]:
    """Give the arguments that a model is called with.

    A tuple, such as (sequences, lengths), is one argument for each element. An integer or boolean array (tokens,
    lengths, a mask) and None are handed over as they are; anything else becomes a tensor.

    >>> model_inputs((np.ones((2, 3), np.float16), np.array([3, 1])))[1]
    array([3, 1])
    >>> model_inputs([1.0, 2.0])
    (Tensor(array([1., 2.], dtype=float32)),)
    """
    parts = inputs if isinstance(inputs, tuple) else (inputs,)
    return tuple(part if _goes_as_it_is(part) else Tensor(part) for part in parts)


def _goes_as_it_is(part: Any) -> bool:
    whole = isinstance(part, np.ndarray) and part.dtype.kind in "iub"
    return whole or part is None or isinstance(part, Tensor)


def _some(total: int) -> int:
    if not total:
        raise ValueError("no batch to evaluate on: pass one or more, such as [(test.images, test.labels)]")
    return total
