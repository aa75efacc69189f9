"""One training step under a policy and a loss scaler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from fp16sim.autograd.arithmetic import DTYPES, Array
from fp16sim.autograd.backward import gradients
from fp16sim.autograd.policy import Policy, autocast
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn import Module
from fp16sim.optim import accumulate, clip_grad_norm, clip_grad_value
from fp16sim.scaling.protocol import Decision, Observation, checked_update
from fp16sim.scaling.registry import as_scaler
from fp16sim.training.data.source import check_finite
from fp16sim.training.evaluation import model_inputs
from fp16sim.training.measuring import UNMEASURED, Outputs, shares_of
from fp16sim.training.results import Step
from fp16sim.training.scales import check_scales, scales_of_step

__all__ = ["Observed", "Observer", "Optimizer", "Taken", "check_batch_values", "train_step"]


@dataclass(frozen=True)
class Observed:
    """What an observer is shown of a step.

    Attributes
    ----------
    step : Step
    gradients : mapping of name to array
        Gradients of the outputs of the modules that have parameters of their own, as the step had them: in the format
        of the output and carrying the scale. A module that is called again, or gives several tensors, goes by
        ``name#2``, ``name#3`` and so on; an output that no loss depends on is left out. Empty if nothing is measured.
    exact : mapping of name to array
        The same gradients as a float32 backward pass through the same forward pass gives them (float64 where the
        output is float64), without the scale.
    scales : mapping of name to float
        The scales that the first ones carry.
    """

    step: Step
    gradients: Mapping[str, Array]
    exact: Mapping[str, Array]
    scales: Mapping[str, float] = field(default_factory=dict)


class Optimizer(Protocol):
    """What a step needs of an optimizer; a schedule also assigns its `lr`."""

    parameters: list[Tensor]

    def step(self, gradients: Sequence[Array | None] | None = None) -> None:
        """Move every parameter by its gradient."""


Observer = Callable[[Observed], None]


class Taken(NamedTuple):
    """What :func:`train_step` gives: the record, the next scaler, and whether counters and schedules move."""

    step: Step
    scaler: Any
    advance: bool


def train_step(
    number: int,
    model: Module,
    loss_function: Callable[[Any, Any], Tensor],
    *batches: tuple[Any, Any],
    policy: Policy,
    scaler: Any,
    optimizer: Optimizer,
    loss_factor: float = 1.0,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    measure: bool = True,
    observers: Sequence[Observer] = (),
) -> Taken:
    """Take one step and give its record and the next scaler.

    In order: for each of the `batches`, which are n micro-batches of this one step, forward and loss under the policy,
    the loss divided by n (rounded to its format once; nothing for n = 1), times `loss_factor`, times the scale,
    backward; the gradients of the micro-batches added in order, each sum rounded to the format of the parameter, as
    `Tensor.backward` adds to `grad`; the scaler observes these scaled gradients and decides; if it says so, they are
    unscaled, clipped by value and then by norm, and the optimizer moves. A scaler that has a method `accepts` is shown
    the gradients right before that; if it refuses them the step counts as an overflow. Scales of layers are multiplied
    in and out as `layer_scales.py` says; the record has that of the loss. The loss of the record is the sum of the n
    losses in binary64, divided by n.

    Parameters
    ----------
    number : int
        Of the step, for its record.
    model : Module
        In training mode.
    loss_function : callable
        ``(output, targets) -> Tensor``, one number.
    *batches : (inputs, targets)
        What the model is called with is said at :func:`fp16sim.training.evaluation.model_inputs`.
    policy, scaler, optimizer, loss_factor, clip_norm, clip_value, measure, observers
        As in :func:`fp16sim.training.fit.fit`.

    Raises
    ------
    RuntimeError
        If the decision of the scaler holds a reason to stop.
    TypeError
        If `scaler` is none: an object with only `scale` and `update` is valid. If its `update` gives anything but
        the next scaler and a :class:`~fp16sim.scaling.protocol.Decision`.
    ValueError
        If a scale is no number, NaN or negative.
    """
    scaler = as_scaler(scaler)
    scales, parameters = scales_of_step(model, scaler), optimizer.parameters
    outputs = Outputs({}, {})
    moves: list[Array | None] | None = None
    losses = []
    for inputs, targets in batches:
        with autocast(policy):
            with scales.watching(measure) as captured:
                loss = loss_function(model(*model_inputs(inputs)), targets)
            losses.append(_value(loss))
            small = loss / len(batches) if len(batches) > 1 else loss
            small = small * loss_factor if loss_factor != 1.0 else small
            scaled = scales.prepare(small, captured)
        layers = outputs.named(model, captured) if measure else {}
        found = gradients(scaled, [*parameters, *layers.values()])
        scales.note(parameters)
        moves = accumulate(moves, found[: len(parameters)])
        if measure:  # before the optimizer changes what the tape needs
            outputs.add(layers, found[len(parameters) :], small, scales.carried(layers))

    if moves is None:
        raise ValueError("a step without a batch: pass one or more")
    observation = scales.observe(parameters, moves)
    following, decision = _decided(scaler, observation, number)
    steps: list[Array | None] | None = None
    if any(decision.apply.values()) if isinstance(decision.apply, Mapping) else decision.apply:
        steps = scales.unscaled(parameters, moves, decision)
        if clip_value is not None:
            steps = clip_grad_value(steps, clip_value)
        if clip_norm is not None:
            steps, _ = clip_grad_norm(steps, clip_norm, arithmetic=policy.backward)
        if hasattr(scaler, "accepts") and not scaler.accepts(steps):
            observation = replace(observation, overflow=True)
            following, decision = _decided(scaler, observation, number)
            steps = None
    applied = steps is not None
    if steps is not None:
        optimizer.step(steps)

    shares = shares_of(outputs) if measure else UNMEASURED
    step = Step(
        step=number,
        loss=_mean(losses),
        scale=scales.loss_scale,
        applied=applied,
        overflow=observation.overflowed,
        **vars(shares),
    )
    for observer in observers:
        observer(Observed(step, outputs.gradients, outputs.exact, outputs.scales))
    return Taken(step, following, applied if decision.advance is None else decision.advance)


def _decided(scaler: Any, observation: Observation, number: int) -> tuple[Any, Decision]:
    following, decision = checked_update(scaler, observation)
    check_scales(f"divide_by of the decision of {type(scaler).__name__}", decision.divide_by)
    if decision.stop:
        raise RuntimeError(f"the scaler stopped at step {number}: {decision.stop}")
    return following, decision


def check_batch_values(inputs: Any, number: int) -> None:
    """Refuse NaN and infinity in the inputs of a batch, naming the first place; integers are not looked at."""
    parts = inputs if isinstance(inputs, tuple) else (inputs,)
    for position, (part, given) in enumerate(zip(parts, model_inputs(inputs), strict=True)):
        if isinstance(given, Tensor):  # of big-endian arrays and lists too
            where = f"[{position}]" if isinstance(inputs, tuple) else ""
            own = isinstance(part, np.ndarray) and part.dtype in DTYPES.values()
            check_finite(f"inputs{where} of batch {number}", part if own else given.data)


def _value(loss: Any) -> float:
    if not isinstance(loss, Tensor) or loss.size != 1:
        what = f"a tensor of shape {loss.shape}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
        raise TypeError(
            f"the loss function gave {what}: it gives a tensor with one number; reduce it with .mean()"
        )
    return loss.item()


def _mean(losses: Sequence[float]) -> float:
    total = losses[0]
    for loss in losses[1:]:  # not sum(), which corrects its rounding from Python 3.12 on
        total += loss
    return total / len(losses)
