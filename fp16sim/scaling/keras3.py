"""The dynamic rule of Keras 3's LossScaleOptimizer.

Source: keras/src/optimizers/loss_scale_optimizer.py, keras 3.15.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fp16sim.autograd.tensor import Tensor
from fp16sim.scaling.framework import check_entries
from fp16sim.scaling.numbers import float32, multiply32, need_float32, need_integer
from fp16sim.scaling.observing import in_float32
from fp16sim.scaling.protocol import Decision, Observation, need_check
from fp16sim.scaling.state import SavedScaler

__all__ = ["Keras3Scaler"]

_STATE = ("step_counter", "dynamic_scale")


@dataclass(frozen=True)
class Keras3Scaler(SavedScaler):
    """Halve on overflow and skip the step; double after `dynamic_growth_steps` finite steps in a row; no bounds.

    Parameters
    ----------
    initial_scale : float
        Rounded to float32.
    dynamic_growth_steps : int
        The scale grows on exactly that finite step; never if it is 0 or less.
    scale : float, optional
        State: the current scale, a float32 value. Default: `initial_scale`.
    step_counter : int
        State: finite steps since the last overflow or growth.

    Notes
    -----
    The scaled gradients are tested, element by element, and divided by the scale in float32, float16 ones too: one
    rounding. The loss is scaled in float32 by an optimizer that is built, as `fit` builds it; before that Keras
    multiplies a float16 loss in float16. A skip leaves the inner optimizer and its `iterations` as they were. What is
    saved are the two variables.

    Violates: 1 (from 2^-149, ``o.``: 0/0 is applied as NaN), 3 (at infinity every step overflows for ever; no way out
    of 0), 4 (from 2^127 with a window of 1, ``.``), 5 (from 2^-149, ``o``).

    Examples
    --------
    >>> scaler, decision = Keras3Scaler().update(Observation(overflow=True))
    >>> scaler.scale, decision.apply, decision.method
    (16384.0, False, 'divide')
    """

    name: ClassVar[str] = "keras3"
    options: ClassVar[tuple[str, ...]] = ("initial_scale", "dynamic_growth_steps")
    initial: ClassVar[str | None] = "initial_scale"
    window: ClassVar[str | None] = "dynamic_growth_steps"

    initial_scale: float = 2.0**15
    dynamic_growth_steps: int = 2000
    scale: float = None  # type: ignore[assignment]  # a float after __post_init__
    step_counter: int = 0

    def __post_init__(self) -> None:
        need_float32("initial_scale", self.initial_scale)
        need_integer("dynamic_growth_steps", self.dynamic_growth_steps)
        object.__setattr__(self, "scale", float32(self.initial_scale if self.scale is None else self.scale))

    def scale_loss(self, loss: Tensor) -> Tensor:
        """Multiply a loss by the scale in float32."""
        return in_float32(loss, self.scale)

    def update(self, observation: Observation) -> tuple[Keras3Scaler, Decision]:
        """Move the scale by one step."""
        need_check(observation)
        decision = Decision(apply=not observation.overflowed, divide_by=self.scale, method="divide")
        if observation.overflowed:
            return self.moved(scale=multiply32(self.scale, 0.5), step_counter=0), decision
        if self.step_counter != self.dynamic_growth_steps - 1:
            return self.moved(step_counter=self.step_counter + 1), decision
        return self.moved(scale=multiply32(self.scale, 2.0), step_counter=0), decision

    def framework_state(self) -> dict[str, Any]:
        """Give the two variables of the optimizer."""
        return dict(zip(_STATE, (self.step_counter, self.scale), strict=True))

    def load_framework_state(self, state: Mapping[str, Any]) -> Keras3Scaler:
        """Give this scaler with the two variables of the optimizer; the options stay its own."""
        check_entries(state, _STATE, "LossScaleOptimizer", "its variables")
        return replace(self, scale=float(state["dynamic_scale"]), step_counter=int(state["step_counter"]))
