"""The dynamic rules of TensorFlow: its own DynamicLossScale (v1), and Keras 2's LossScaleOptimizer.

Source: tensorflow/python/training/experimental/loss_scale.py and loss_scale_optimizer.py, TensorFlow 2.21;
tf_keras/mixed_precision/loss_scale_optimizer.py, tf-keras 2.21.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fp16sim.autograd.arithmetic import Array
from fp16sim.scaling.framework import check_entries
from fp16sim.scaling.numbers import divide32, float32, multiply32, need_float32, need_integer
from fp16sim.scaling.observing import observe_unscaled
from fp16sim.scaling.protocol import Decision, Observation, need_check
from fp16sim.scaling.state import SavedScaler

__all__ = ["Keras2Scaler", "TfV1Scaler"]

_STATE = ("current_loss_scale", "good_steps")


@dataclass(frozen=True)
class TfV1Scaler(SavedScaler):
    """Divide by the multiplier on overflow and skip; multiply after `increment_period` finite steps in a row.

    Parameters
    ----------
    initial_loss_scale : float
        Rounded to float32.
    increment_period : int
        The scale grows on that finite step; on every one if it is 1 or less.
    multiplier : float
        Rounded to float32. TensorFlow does not look at it.
    scale : float, optional
        State: the current scale, a float32 value. Default: `initial_loss_scale`.
    good_steps : int
        State: finite steps since the last overflow or growth.

    Notes
    -----
    Products and quotients are float32 ones. An overflow gives the larger of scale/multiplier and 1. Growth to infinity
    is not taken, though the counter starts again. The gradients are multiplied by the float32 reciprocal of the scale
    and tested after that, so what is tested is what is applied; TensorFlow multiplies float32 gradients only. The scale
    is cast to the format of the loss: in float16, 2^16 is infinite. A skip leaves the optimizer and the global step as
    they were. A checkpoint holds the scale and the counter.

    Violates: 3 (at 1 overflows are skipped for ever), 7 (from .25, ``o`` gives 1). With an initial scale or a
    multiplier that is no power of two also 8, and with an infinite one 4.

    Examples
    --------
    >>> scaler, decision = TfV1Scaler(initial_loss_scale=0.25).update(Observation(overflow=True))
    >>> scaler.scale, decision.apply
    (1.0, False)
    """

    name: ClassVar[str] = "tf_v1"
    options: ClassVar[tuple[str, ...]] = ("initial_loss_scale", "increment_period", "multiplier")
    initial: ClassVar[str | None] = "initial_loss_scale"
    window: ClassVar[str | None] = "increment_period"
    growth: ClassVar[str | None] = "multiplier"

    initial_loss_scale: float = 2.0**15
    increment_period: int = 2000
    multiplier: float = 2.0
    scale: float = None  # type: ignore[assignment]  # a float after __post_init__
    good_steps: int = 0

    def __post_init__(self) -> None:
        need_float32("initial_loss_scale", self.initial_loss_scale)
        need_integer("increment_period", self.increment_period)
        need_float32("multiplier", self.multiplier)
        start = self.initial_loss_scale if self.scale is None else self.scale
        object.__setattr__(self, "scale", float32(start))

    def observe(self, gradients: Sequence[Array | None]) -> Observation:
        """Test every element of the unscaled gradients."""
        return observe_unscaled(gradients, Decision(True, self.scale))

    def update(self, observation: Observation) -> tuple[TfV1Scaler, Decision]:
        """Move the scale by one step."""
        need_check(observation)
        overflow = observation.overflowed
        scale, good_steps = _moved(
            self.scale, self.good_steps, self.increment_period, self.multiplier, overflow
        )
        following = self.moved(scale=scale, good_steps=good_steps)
        return following, Decision(apply=not overflow, divide_by=self.scale)

    def framework_state(self) -> dict[str, Any]:
        """Give the two variables that a checkpoint holds."""
        return dict(zip(_STATE, (self.scale, self.good_steps), strict=True))

    def load_framework_state(self, state: Mapping[str, Any]) -> TfV1Scaler:
        """Give this scaler with the two variables of a checkpoint; the options stay its own."""
        check_entries(state, _STATE, "DynamicLossScale", "its checkpoint")
        return replace(self, scale=float(state["current_loss_scale"]), good_steps=int(state["good_steps"]))


@dataclass(frozen=True)
class Keras2Scaler(SavedScaler):
    """Halve on overflow and skip the step; double after `dynamic_growth_steps` finite steps in a row.

    Parameters
    ----------
    initial_scale : float
        Rounded to float32.
    dynamic_growth_steps : int
        The scale grows on that finite step; on every one if it is 1 or less.
    scale : float, optional
        State: the current scale, a float32 value. Default: `initial_scale`.
    good_steps : int
        State: finite steps since the last overflow or growth.

    Notes
    -----
    The rule is that of `tf_v1` with a multiplier of 2. Scale and reciprocal are cast to the format of the tensor that
    they multiply: a float16 loss at 2^16 is infinite, and a float16 gradient at 2^25 becomes 0, as 2^-25 is 0 in
    float16. Keras rounds the reciprocal to float32 and then to float16; here it is rounded to float16 at once, which
    differs for some scales that are no powers of two. The unscaled gradients are tested, so what is tested is what is
    applied. A skip advances the optimizer's `iterations` all the same, and with them the schedules. A checkpoint holds
    the scale and the counter.

    Violates: 3 (at 1 overflows are skipped for ever), 7 (from .25, ``o`` gives 1), 8 (float16 gradients from 2^25 on),
    15 (``o`` advances `iterations`). With an infinite initial scale also 4.

    Examples
    --------
    >>> scaler, decision = Keras2Scaler().update(Observation(overflow=True))
    >>> scaler.scale, decision.apply, decision.advance
    (16384.0, False, True)
    """

    name: ClassVar[str] = "keras2"
    options: ClassVar[tuple[str, ...]] = ("initial_scale", "dynamic_growth_steps")
    initial: ClassVar[str | None] = "initial_scale"
    window: ClassVar[str | None] = "dynamic_growth_steps"

    initial_scale: float = 2.0**15
    dynamic_growth_steps: int = 2000
    scale: float = None  # type: ignore[assignment]  # a float after __post_init__
    good_steps: int = 0

    def __post_init__(self) -> None:
        need_float32("initial_scale", self.initial_scale)
        need_integer("dynamic_growth_steps", self.dynamic_growth_steps)
        object.__setattr__(self, "scale", float32(self.initial_scale if self.scale is None else self.scale))

    def observe(self, gradients: Sequence[Array | None]) -> Observation:
        """Test every element of the unscaled gradients."""
        return observe_unscaled(gradients, Decision(True, self.scale, dtype="tensor"))

    def update(self, observation: Observation) -> tuple[Keras2Scaler, Decision]:
        """Move the scale by one step."""
        need_check(observation)
        overflow = observation.overflowed
        scale, good_steps = _moved(self.scale, self.good_steps, self.dynamic_growth_steps, 2.0, overflow)
        decision = Decision(apply=not overflow, divide_by=self.scale, dtype="tensor", advance=True)
        return self.moved(scale=scale, good_steps=good_steps), decision

    def framework_state(self) -> dict[str, Any]:
        """Give the two variables that a checkpoint holds."""
        return dict(zip(_STATE, (self.scale, self.good_steps), strict=True))

    def load_framework_state(self, state: Mapping[str, Any]) -> Keras2Scaler:
        """Give this scaler with the two variables of a checkpoint; the options stay its own."""
        check_entries(state, _STATE, "LossScaleOptimizer", "its checkpoint")
        return replace(self, scale=float(state["current_loss_scale"]), good_steps=int(state["good_steps"]))


def _moved(
    scale: float, good_steps: int, window: int, multiplier: float, overflow: bool
) -> tuple[float, int]:
    if overflow:
        smaller = divide32(scale, multiplier)
        return (1.0 if smaller < 1 else smaller), 0  # a NaN stays, as in tf.maximum
    if good_steps + 1 < window:
        return scale, good_steps + 1
    grown = multiply32(scale, multiplier)
    return (grown if math.isfinite(grown) else scale), 0
