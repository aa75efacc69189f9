"""The two dynamic rules of DeepSpeed: with hysteresis (ZeRO), and without (its other float16 optimizers).

Source: DeepSpeed 0.19.8: deepspeed/runtime/fp16/loss_scaler.py, runtime/zero/stage_1_and_2.py (`step`),
runtime/fp16/unfused_optimizer.py and fused_optimizer.py (`_update_scale`), runtime/precision_config.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fp16sim.autograd.arithmetic import Array
from fp16sim.autograd.tensor import Tensor
from fp16sim.scaling.framework import check_entries
from fp16sim.scaling.norms import float32_norm, observe_norm
from fp16sim.scaling.observing import in_float32
from fp16sim.scaling.protocol import Decision, Observation, need_check
from fp16sim.scaling.state import SavedScaler, check_number

__all__ = ["DeepSpeedScaler", "DeepSpeedUnfusedScaler"]

_AT_MINIMUM = "Current loss scale already at minimum - cannot decrease scale anymore. Exiting run."
_ZERO_STATE = (
    "cur_scale",
    "cur_iter",
    "last_overflow_iter",
    "scale_factor",
    "scale_window",
    "min_scale",
    "delayed_shift",
    "cur_hysteresis",
    "consecutive_hysteresis",
    "raise_error_at_min_scale",
    "dynamic",
)
_UNFUSED_STATE = (
    "dynamic_loss_scale",
    "cur_scale",
    "cur_iter",
    "last_overflow_iter",
    "scale_factor",
    "scale_window",
)


@dataclass(frozen=True)
class DeepSpeedScaler(SavedScaler):
    """Halve at an overflow once the hysteresis is used up; double after `loss_scale_window` finite steps.

    Parameters
    ----------
    initial_scale_power : int
        The scale starts at 2 to this power, an integer. From 64 on DeepSpeed takes it, and then fails at every step,
        because torch multiplies by no such integer; so it is below 64 here.
    loss_scale_window : int
        Above 0. Growth comes on finite steps W + 1, 2 W + 1, ... after an overflow, and after the start.
    hysteresis : int
        One overflow of so many halves the scale, and then every one until it is refilled by growth: all others only
        count down. 1 halves at once. 0 or less counts down for ever and never halves.
    consecutive_hysteresis : bool
        Whether every finite step refills the hysteresis. Then ``o.o.o.`` never halves where `hysteresis` is 2 or more.
    min_loss_scale : int
        Above 0. Above the scale, an overflow raises the scale to it.
    raise_error_at_min_scale : bool
        Whether an overflow that would halve the scale at its minimum stops the run. An argument of the class only.
    scale : float, optional
        State: the current scale, binary64. Default: 2 ** `initial_scale_power`.
    iteration, last_overflow : int
        State: steps so far, and the one that overflowed last (-1: none).
    hysteresis_left : int, optional
        State: default `hysteresis`.

    Notes
    -----
    The scale is updated before the gradients are unscaled, so the step on which it grows divides by twice what
    multiplied the loss (DeepSpeed#8588): its update is half of what it should be. Scaled gradients are tested element
    by element, and then by the sum of their squares, which float32 must hold. They are multiplied in float32 by the
    reciprocal. The scale is a Python number: nothing is rounded; it doubles past the largest float32, where every loss
    is infinite, up to infinity.

    A skip leaves optimizer and schedule alone. The stop at the minimum comes before anything is counted: iteration,
    last overflow and hysteresis stay. DeepSpeed pickles the whole object into its checkpoint, so nothing is lost.

    Violates: 1 (from 2^-128 or less, ``.``: the float32 reciprocal is infinite and is applied), 2 (with a window of 1,
    ``..``), 3 (with a hysteresis of 0, ``oooooooo`` moves nothing; with consecutive_hysteresis, ``o.o.o.`` neither; at
    infinity every step overflows for ever), 4 (no maximum: infinite in the end with a window of 1 and ``.`` only), 7
    (from .5 with a hysteresis of 1, ``o`` gives 1), 8 (with a minimum of 3), 9 (the first growth takes W + 1 finite
    steps), 12 (``o.o`` counts as two overflows in a row).

    Examples
    --------
    >>> scaler = DeepSpeedScaler(initial_scale_power=4, loss_scale_window=1, hysteresis=1)
    >>> for overflow in (True, False, False):
    ...     scale = scaler.scale
    ...     scaler, decision = scaler.update(Observation(overflow=overflow))
    ...     print(scale, decision.apply, decision.divide_by)
    16.0 False 8.0
    8.0 True 8.0
    8.0 True 16.0
    """

    name: ClassVar[str] = "deepspeed"
    options: ClassVar[tuple[str, ...]] = (
        "initial_scale_power",
        "loss_scale_window",
        "hysteresis",
        "consecutive_hysteresis",
        "min_loss_scale",
        "raise_error_at_min_scale",
    )
    initial: ClassVar[str | None] = "initial_scale_power"
    initial_is_exponent: ClassVar[bool] = True
    window: ClassVar[str | None] = "loss_scale_window"

    initial_scale_power: int = 16
    loss_scale_window: int = 1000
    hysteresis: int = 2
    consecutive_hysteresis: bool = False
    min_loss_scale: float = 1
    raise_error_at_min_scale: bool = True
    scale: float = None  # type: ignore[assignment]  # a float after __post_init__
    iteration: int = 0
    last_overflow: int = -1
    hysteresis_left: int = None  # type: ignore[assignment]  # an int after __post_init__

    def __post_init__(self) -> None:
        _check_rule(self)
        check_number("hysteresis", self.hysteresis, whole=True)
        for option in ("consecutive_hysteresis", "raise_error_at_min_scale"):
            value = getattr(self, option)
            if value not in (True, False):  # 1 and 0 too, which text may say
                raise ValueError(f"{option}={value!r}: it is True or False (1 or 0)")
            object.__setattr__(self, option, bool(value))
        if self.hysteresis_left is None:
            object.__setattr__(self, "hysteresis_left", self.hysteresis)

    def update(self, observation: Observation) -> tuple[DeepSpeedScaler, Decision]:
        """Move the scale by one step, and then divide by it."""
        need_check(observation)
        if not observation.overflowed:
            left = self.hysteresis if self.consecutive_hysteresis else self.hysteresis_left
            scale = self.scale
            if _grows(self):
                left, scale = self.hysteresis, scale * 2.0
            following = self.moved(scale=scale, hysteresis_left=left, iteration=self.iteration + 1)
            return following, Decision(apply=True, divide_by=scale)
        scale, left = self.scale, self.hysteresis_left
        if self.hysteresis == 1 or left == 1:
            if scale == self.min_loss_scale and self.raise_error_at_min_scale:
                return self, Decision(apply=False, divide_by=scale, stop=_AT_MINIMUM)
            scale = max(scale / 2.0, float(self.min_loss_scale))
        else:
            left -= 1
        following = self.moved(
            scale=scale,
            hysteresis_left=left,
            last_overflow=self.iteration,
            iteration=self.iteration + 1,
        )
        return following, Decision(apply=False, divide_by=scale)

    def observe(self, gradients: Sequence[Array | None]) -> Observation:
        """Test every element of the scaled gradients, and that float32 holds the sum of their squares."""
        return observe_norm(gradients, float(float32_norm(gradients)), self.scale)

    def framework_state(self) -> dict[str, Any]:
        """Give the attributes of DeepSpeed's scaler, which its checkpoint holds as an object."""
        values = (
            self.scale,
            self.iteration,
            self.last_overflow,
            2.0,
            self.loss_scale_window,
            self.min_loss_scale,
            self.hysteresis,
            self.hysteresis_left,
            self.consecutive_hysteresis,
            self.raise_error_at_min_scale,
            True,
        )
        return dict(zip(_ZERO_STATE, values, strict=True))

    def load_framework_state(self, state: Mapping[str, Any]) -> DeepSpeedScaler:
        """Give this scaler with the attributes of DeepSpeed's, options included: the object is replaced whole.

        >>> saved = DeepSpeedScaler(initial_scale_power=3).framework_state()
        >>> DeepSpeedScaler().load_framework_state(saved).scale
        8.0
        """
        check_entries(state, _ZERO_STATE, "DynamicLossScaler", "the scaler's attributes")
        _need_factor_two(state)
        return replace(
            self,
            scale=float(state["cur_scale"]),
            iteration=int(state["cur_iter"]),
            last_overflow=int(state["last_overflow_iter"]),
            loss_scale_window=state["scale_window"],
            min_loss_scale=state["min_scale"],
            hysteresis=int(state["delayed_shift"]),
            hysteresis_left=int(state["cur_hysteresis"]),
            consecutive_hysteresis=bool(state["consecutive_hysteresis"]),
            raise_error_at_min_scale=bool(state["raise_error_at_min_scale"]),
        )


@dataclass(frozen=True)
class DeepSpeedUnfusedScaler(SavedScaler):
    """Halve at every overflow; double after `loss_scale_window` finite steps.

    This is `FP16_Optimizer._update_scale` of DeepSpeed without ZeRO, the same in the fused and the unfused optimizer.

    Parameters
    ----------
    initial_scale_power : int
        The scale starts at 2 to this power, an integer. From 64 on DeepSpeed takes it, and then fails at every step,
        because torch multiplies by no such integer; so it is below 64 here.
    loss_scale_window : int
        Above 0. Growth comes on finite steps W + 1, 2 W + 1, ... after an overflow, and after the start.
    min_loss_scale : int, or .25
        Above 0. Above the scale, an overflow raises the scale to it.
    scale : float, optional
        State: the current scale, binary64. Default: 2 ** `initial_scale_power`.
    iteration, last_overflow : int
        State: steps so far, and the one that overflowed last (-1: none).

    Notes
    -----
    The defaults are those of the engine, which always passes its configuration. An optimizer made without arguments
    has another minimum or initial scale (DeepSpeed#4986): .25 unfused, initial_scale_power 32 fused. `hysteresis` of
    the configuration is ignored here.

    The scale is updated before the gradients are unscaled, so the step on which it grows divides by twice what
    multiplied the loss. The loss is scaled in float32; scaled gradients are tested element by element, and then by the
    sum of their squares, which float32 must hold, and multiplied in float32 by the reciprocal. At the minimum overflows
    are skipped for ever without a word (DeepSpeed#1599). The saved state lacks the minimum,
    which is an option of whoever loads it.

    Violates: 1 (from 2^-128 or less, ``.``: the float32 reciprocal is infinite and is applied), 2 (with a window of 1,
    ``..``), 3 (at the minimum overflows are skipped for ever; at infinity every step overflows), 4 (no maximum:
    infinite in the end with a window of 1 and ``.`` only), 7 (from .5, ``o`` gives 1), 8 (with a minimum of 3), 9 (the
    first growth takes W + 1 finite steps).

    Examples
    --------
    >>> scaler = DeepSpeedUnfusedScaler(initial_scale_power=1)
    >>> for _ in range(3):
    ...     scaler, decision = scaler.update(Observation(overflow=True))
    ...     print(scaler.scale)
    1.0
    1.0
    1.0
    """

    name: ClassVar[str] = "deepspeed_unfused"
    options: ClassVar[tuple[str, ...]] = ("initial_scale_power", "loss_scale_window", "min_loss_scale")
    initial: ClassVar[str | None] = "initial_scale_power"
    initial_is_exponent: ClassVar[bool] = True
    window: ClassVar[str | None] = "loss_scale_window"

    initial_scale_power: int = 16
    loss_scale_window: int = 1000
    min_loss_scale: float = 1
    scale: float = None  # type: ignore[assignment]  # a float after __post_init__
    iteration: int = 0
    last_overflow: int = -1

    def __post_init__(self) -> None:
        _check_rule(self)

    def update(self, observation: Observation) -> tuple[DeepSpeedUnfusedScaler, Decision]:
        """Move the scale by one step, and then divide by it."""
        need_check(observation)
        overflow = observation.overflowed
        if overflow:
            scale = max(self.scale / 2.0, float(self.min_loss_scale))
        else:
            scale = self.scale * 2.0 if _grows(self) else self.scale
        following = self.moved(
            scale=scale,
            last_overflow=self.iteration if overflow else self.last_overflow,
            iteration=self.iteration + 1,
        )
        return following, Decision(apply=not overflow, divide_by=scale)

    def scale_loss(self, loss: Tensor) -> Tensor:
        """Multiply in float32, as ``loss.float() * cur_scale``."""
        return in_float32(loss, self.scale)

    def observe(self, gradients: Sequence[Array | None]) -> Observation:
        """Test every element of the scaled gradients, and that float32 holds the sum of their squares."""
        return observe_norm(gradients, float(float32_norm(gradients)), self.scale)

    def framework_state(self) -> dict[str, Any]:
        """Give what ``FP16_Optimizer.state_dict()`` says of the scale."""
        values = (True, self.scale, self.iteration, self.last_overflow, 2.0, self.loss_scale_window)
        return dict(zip(_UNFUSED_STATE, values, strict=True))

    def load_framework_state(self, state: Mapping[str, Any]) -> DeepSpeedUnfusedScaler:
        """Give this scaler with what ``state_dict()`` saved; the minimum stays this scaler's own.

        >>> saved = DeepSpeedUnfusedScaler(min_loss_scale=0.25).framework_state()
        >>> DeepSpeedUnfusedScaler().load_framework_state(saved).min_loss_scale
        1
        """
        check_entries(state, _UNFUSED_STATE, "FP16_Optimizer", "state_dict() on the scale")
        _need_factor_two(state)
        if state["dynamic_loss_scale"] is not True:
            raise ValueError(
                f"dynamic_loss_scale={state['dynamic_loss_scale']!r} in an FP16_Optimizer state: "
                "that is a static scale; use fs.scaling.make('static')"
            )
        return replace(
            self,
            scale=float(state["cur_scale"]),
            iteration=int(state["cur_iter"]),
            last_overflow=int(state["last_overflow_iter"]),
            loss_scale_window=state["scale_window"],
        )


def _check_rule(scaler: DeepSpeedScaler | DeepSpeedUnfusedScaler) -> None:
    check_number("initial_scale_power", scaler.initial_scale_power, above=-1075, below=64, whole=True)
    check_number("loss_scale_window", scaler.loss_scale_window, above=0, whole=True)
    if isinstance(scaler, DeepSpeedScaler) or scaler.min_loss_scale != 0.25:
        check_number("min_loss_scale", scaler.min_loss_scale, above=0)
        if scaler.min_loss_scale != math.floor(scaler.min_loss_scale):
            raise ValueError(
                f"min_loss_scale={scaler.min_loss_scale!r}: DeepSpeed's configuration takes integers; "
                f"pass such as {math.ceil(scaler.min_loss_scale)}"
            )
    scale = math.ldexp(1.0, scaler.initial_scale_power) if scaler.scale is None else scaler.scale
    object.__setattr__(scaler, "scale", float(scale))


def _grows(scaler: DeepSpeedScaler | DeepSpeedUnfusedScaler) -> bool:
    stable = scaler.iteration - scaler.last_overflow - 1
    return stable > 0 and stable % scaler.loss_scale_window == 0


def _need_factor_two(state: Mapping[str, Any]) -> None:
    if state["scale_factor"] != 2:
        raise ValueError(
            f"scale_factor={state['scale_factor']!r} in a DeepSpeed state: its factor is always 2; "
            "pass a state that DeepSpeed saved"
        )
