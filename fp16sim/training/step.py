"""One training step under a policy and a loss scaler."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fp16sim.autograd.arithmetic import Array
from fp16sim.autograd.backward import gradients
from fp16sim.autograd.policy import Policy, autocast
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn import Linear, Module, capture_outputs
from fp16sim.recording.histogram import measure
from fp16sim.scaling.protocol import observe, scale_loss, single_scale, unscale
from fp16sim.training.results import Step

__all__ = ["Observed", "Observer", "Optimizer", "train_step"]


@dataclass(frozen=True)
class Observed:
    """What an observer is shown of a step.

    Attributes
    ----------
    step : Step
    gradients : mapping of layer name to array
        Gradients of the layers' outputs as the step had them: in the format of the policy and carrying the
        scale.
    exact : mapping of layer name to float32 array
        The same gradients as a float32 backward pass through the same forward pass gives them, without the
        scale.
    """

    step: Step
    gradients: Mapping[str, Array]
    exact: Mapping[str, Array]


class Optimizer(Protocol):
    """What a step needs of an optimizer."""

    parameters: list[Tensor]

    def step(self, gradients: Sequence[Array | None] | None = None) -> None:
        """Move every parameter by its gradient."""


Observer = Callable[[Observed], None]


def train_step(
    number: int,
    model: Module,
    loss_function: Callable[[Tensor, Any], Tensor],
    batch: tuple[Any, Any],
    *,
    policy: Policy,
    scaler: Any,
    optimizer: Optimizer,
    loss_factor: float = 1.0,
    observers: Sequence[Observer] = (),
) -> tuple[Step, Any]:
    """Take one step and give its record and the next scaler.

    In order: forward and loss under the policy; the loss times `loss_factor`, times the scale; backward; the
    scaler observes the scaled gradients of the parameters and decides; if it says so, the gradients are
    unscaled and the optimizer moves.

    Raises
    ------
    RuntimeError
        If the decision of the scaler holds a reason to stop.
    """
    inputs, labels = batch
    with autocast(policy):
        with capture_outputs() as outputs:
            loss = loss_function(model(Tensor(inputs)), labels)
        small = loss * loss_factor if loss_factor != 1.0 else loss
        scaled = scale_loss(scaler, small)
    names = {id(module): name for name, module in model.named_modules() if isinstance(module, Linear)}
    layers = {names[id(module)]: output for module, output in outputs if id(module) in names}
    targets = [*optimizer.parameters, *layers.values()]
    found = gradients(scaled, targets)
    moves = found[: len(optimizer.parameters)]
    seen = _present(layers, found[len(optimizer.parameters) :])

    scale = single_scale(scaler)
    observation = observe(scaler, moves)
    following, decision = scaler.update(observation)
    if decision.stop:
        raise RuntimeError(f"the scaler stopped at step {number}: {decision.stop}")
    if isinstance(decision.apply, Mapping):
        raise TypeError("a decision for each group: use it with a step that has groups")
    exact = _exact(layers, seen, small, scale)  # before the optimizer changes what the tape needs
    if decision.apply:
        optimizer.step([None if move is None else unscale(move, decision) for move in moves])

    step = Step(
        step=number,
        loss=loss.item(),
        scale=scale,
        applied=decision.apply,
        overflow=observation.overflowed,
        **_shares(seen, exact, scale),
    )
    for observer in observers:
        observer(Observed(step, seen, exact))
    return step, following


def _present(layers: Mapping[str, Tensor], arrays: Sequence[Array | None]) -> dict[str, Array]:
    return {name: array for name, array in zip(layers, arrays, strict=True) if array is not None}


def _exact(
    layers: Mapping[str, Tensor], seen: dict[str, Array], small: Tensor, scale: float
) -> dict[str, Array]:
    """Give the gradients of the layers' outputs that float32 storage would have kept."""
    if scale == 1.0 and all(array.dtype == np.float32 for array in seen.values()):
        return seen
    return _present(layers, gradients(small, list(layers.values()), wide=True))


def _shares(seen: Mapping[str, Array], exact: Mapping[str, Array], scale: float) -> dict[str, float]:
    """Count what became of each activation gradient: zero before float16, flushed by it, or alive."""
    zero = flushed = survive = 0
    for name, array in seen.items():
        if array.dtype == np.float16:
            gone = array == 0
            nothing = int((gone & (exact[name] == 0)).sum())
            counts = (nothing, int(gone.sum()) - nothing, int((~gone).sum()))
        else:
            counts = measure(exact[name], scale)
        zero, flushed, survive = zero + counts[0], flushed + counts[1], survive + counts[2]
    total = zero + flushed + survive
    if not total:
        return {"zero": math.nan, "flushed": math.nan, "survive": math.nan}
    return {"zero": zero / total, "flushed": flushed / total, "survive": survive / total}
