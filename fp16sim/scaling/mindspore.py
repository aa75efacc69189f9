"""The three dynamic rules of MindSpore: the manager, `amp.DynamicLossScaler`, and the update cell.

Source: MindSpore 2.10.0: mindspore/train/loss_scale_manager.py, mindspore/amp.py, mindspore/nn/wrap/loss_scale.py.

All three unscale in the format of the gradient, by the reciprocal rounded to it: a float16 gradient is lost from a
scale of 2^25 on, where the reciprocal is 0. MindSpore looks for infinity and NaN after unscaling.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fp16sim.autograd.arithmetic import Array
from fp16sim.scaling.framework import check_entries
from fp16sim.scaling.numbers import divide32, float32, multiply32, need_float32, need_integer, need_number
from fp16sim.scaling.observing import observe_unscaled
from fp16sim.scaling.protocol import Decision, Observation, need_check
from fp16sim.scaling.state import SavedScaler, check_number

__all__ = ["MindSporeAmpScaler", "MindSporeCellScaler", "MindSporeManagerScaler"]

_LONGEST_BURST = 1000
_AMP_STATE = ("scale_value", "counter")
_CELL_STATE = ("scale_sense", "current_iterator_step", "last_overflow_iterator_step")


@dataclass(frozen=True)
class MindSporeManagerScaler(SavedScaler):
    """`DynamicLossScaleManager.update_loss_scale`: divide at every overflow; multiply after `scale_window` steps.

    Parameters
    ----------
    init_loss_scale : float
        1 or more.
    scale_factor : float
        Above 0. The framework takes .5 as well: an overflow then doubles the scale, and growth halves it.
    scale_window : int
        Above 0. The scale grows on exactly that finite step.
    scale : float, optional
        State: the current scale, binary64. Default: `init_loss_scale`.
    iteration, last_overflow : int
        State: the step, counted from 1, and the one that overflowed last (0: none).
    bad_steps : int
        State: overflows in a row.

    Notes
    -----
    At an overflow the scale is multiplied by 1 / scale_factor, rounded to binary64, and is at least 1. The 1001st
    overflow in a row stops training, with the scale lowered and the step not counted. Nothing of the manager is saved.
    The training cell takes the scale as a float32 number, and unscales gradients by it in their own format.

    Violates: 4 (no maximum: infinite in the end with a window of 1 and ``.`` only), 7 (with a factor of .5, ``o``
    doubles the scale), 8 (other factors than powers of two; float16 gradients from 2^25 on), 10 (nothing is saved:
    ``o``, a restart, and the scale is the initial one).

    Examples
    --------
    >>> scaler = MindSporeManagerScaler(init_loss_scale=4.0, scale_window=2)
    >>> for letter in "o..":
    ...     scaler, decision = scaler.update(Observation(overflow=letter == "o"))
    ...     print(scaler.scale, decision.divide_by)
    2.0 4.0
    2.0 2.0
    4.0 2.0
    """

    name: ClassVar[str] = "mindspore_manager"
    options: ClassVar[tuple[str, ...]] = ("init_loss_scale", "scale_factor", "scale_window")
    initial: ClassVar[str | None] = "init_loss_scale"
    window: ClassVar[str | None] = "scale_window"
    growth: ClassVar[str | None] = "scale_factor"

    init_loss_scale: float = 2.0**24
    scale_factor: float = 2.0
    scale_window: int = 2000
    scale: float = None  # type: ignore[assignment]  # a float after __post_init__
    iteration: int = 1
    last_overflow: int = 0
    bad_steps: int = 0

    def __post_init__(self) -> None:
        need_number("init_loss_scale", self.init_loss_scale)
        _need_one("init_loss_scale", self.init_loss_scale)
        need_number("scale_factor", self.scale_factor)
        if self.scale_factor <= 0:
            raise ValueError(f"scale_factor={self.scale_factor!r}: it must be above 0")
        check_number("scale_window", self.scale_window, above=0, whole=True)
        object.__setattr__(self, "scale", float(self.init_loss_scale if self.scale is None else self.scale))

    def update(self, observation: Observation) -> tuple[MindSporeManagerScaler, Decision]:
        """Move the scale by one step."""
        need_check(observation)
        overflow = observation.overflowed
        scale, stop = self.scale, None
        if overflow:
            scale = float(max(scale * (1 / self.scale_factor), 1.0))
        elif (self.iteration - self.last_overflow) % self.scale_window == 0:
            scale = float(scale * self.scale_factor)
        bad = self.bad_steps + 1 if overflow else 0
        if bad > _LONGEST_BURST:
            stop = f"dynamic loss scale: {bad} overflows in a row, more than the maximum of {_LONGEST_BURST}"
        following = self.moved(
            scale=scale,
            last_overflow=self.iteration if overflow else self.last_overflow,
            bad_steps=bad,
            iteration=self.iteration + (stop is None),
        )
        decision = Decision(apply=not overflow, divide_by=float32(self.scale), dtype="tensor", stop=stop)
        return following, decision

    def observe(self, gradients: Sequence[Array | None]) -> Observation:
        """Test every element after unscaling."""
        return observe_unscaled(
            gradients, Decision(apply=True, divide_by=float32(self.scale), dtype="tensor")
        )

    def framework_state(self) -> dict[str, Any]:
        """Give an empty state: the manager is a Python object that no checkpoint holds."""
        return {}

    def load_framework_state(self, state: Mapping[str, Any]) -> MindSporeManagerScaler:
        """Give this scaler, as nothing was saved.

        >>> MindSporeManagerScaler(init_loss_scale=8).load_framework_state({}).scale
        8.0
        """
        check_entries(state, (), "DynamicLossScaleManager", "nothing")
        return self


@dataclass(frozen=True)
class MindSporeAmpScaler(SavedScaler):
    """`amp.DynamicLossScaler.adjust`: divide at every overflow; multiply after `scale_window` finite steps in a row.

    Parameters
    ----------
    scale_value : float
        1 or more; rounded to float32. The framework has no default; this is that of the manager.
    scale_factor : int
        1 or more; 1 leaves the scale alone. Default as above.
    scale_window : int
        Above 0. The scale grows on exactly that finite step. Default as above.
    scale : float, optional
        State: the current scale, a float32 value. Default: `scale_value`.
    counter : int
        State: finite steps since the last overflow or growth.

    Notes
    -----
    Quotients and products are float32. A scale never falls below 1; growth to infinity is not taken, though the
    counter starts again. Gradients are unscaled in their own format.

    Violates: 3 (at 1 overflows are skipped for ever), 8 (other factors than powers of two; float16 gradients from 2^25
    on).

    Examples
    --------
    >>> scaler = MindSporeAmpScaler(scale_value=2.0**127, scale_window=1)
    >>> scaler.update(Observation())[0].scale == 2.0**127
    True
    """

    name: ClassVar[str] = "mindspore_amp"
    options: ClassVar[tuple[str, ...]] = ("scale_value", "scale_factor", "scale_window")
    initial: ClassVar[str | None] = "scale_value"
    window: ClassVar[str | None] = "scale_window"
    growth: ClassVar[str | None] = "scale_factor"

    scale_value: float = 2.0**24
    scale_factor: int = 2
    scale_window: int = 2000
    scale: float = None  # type: ignore[assignment]  # a float after __post_init__
    counter: int = 0

    def __post_init__(self) -> None:
        need_float32("scale_value", self.scale_value)
        _need_one("scale_value", self.scale_value)
        check_number("scale_factor", self.scale_factor, above=0, whole=True)
        need_float32("scale_factor", self.scale_factor)
        check_number("scale_window", self.scale_window, above=0, whole=True)
        object.__setattr__(self, "scale", float32(self.scale_value if self.scale is None else self.scale))

    def update(self, observation: Observation) -> tuple[MindSporeAmpScaler, Decision]:
        """Move the scale by one step."""
        need_check(observation)
        decision = Decision(apply=not observation.overflowed, divide_by=self.scale, dtype="tensor")
        if observation.overflowed:
            return self.moved(scale=max(1.0, divide32(self.scale, self.scale_factor)), counter=0), decision
        scale = self.scale
        if self.counter == self.scale_window - 1:
            grown = multiply32(scale, self.scale_factor)
            scale = grown if math.isfinite(grown) else scale
        return self.moved(scale=scale, counter=(self.counter + 1) % self.scale_window), decision

    def observe(self, gradients: Sequence[Array | None]) -> Observation:
        """Test every element after unscaling."""
        return observe_unscaled(gradients, Decision(apply=True, divide_by=self.scale, dtype="tensor"))

    def framework_state(self) -> dict[str, Any]:
        """Give the parameters of ``amp.DynamicLossScaler``."""
        return dict(zip(_AMP_STATE, (self.scale, self.counter), strict=True))

    def load_framework_state(self, state: Mapping[str, Any]) -> MindSporeAmpScaler:
        """Give this scaler with the saved parameters.

        >>> MindSporeAmpScaler().load_framework_state({"scale_value": 8.0, "counter": 3}).scale
        8.0
        """
        check_entries(state, _AMP_STATE, "DynamicLossScaler", "its parameters")
        return replace(self, scale=float(state["scale_value"]), counter=int(state["counter"]))


@dataclass(frozen=True)
class MindSporeCellScaler(SavedScaler):
    """`nn.DynamicLossScaleUpdateCell`: divide at every overflow; multiply after `scale_window` finite steps.

    Parameters
    ----------
    loss_scale_value : float
        Rounded to float32. At 0 every step overflows, which raises the scale to 1. The framework has no default; this
        is that of the manager, which makes the cell.
    scale_factor : float
        Rounded to float32. With 0, growth gives the scale 0 and an overflow infinity. Default as above.
    scale_window : int
        The scale grows on exactly that finite step; 0 or less is as 1. Default as above.
    scale : float, optional
        State: the current scale, a float32 value. Default: `loss_scale_value`.
    iteration, last_change : int
        State: the step, counted from 1, and the one of the last overflow or growth.

    Notes
    -----
    At an overflow the scale is multiplied by the float32 reciprocal of the factor and is at least 1; products are
    float32. Nothing keeps growth from reaching infinity, and from infinity no overflow leads back. Gradients are
    unscaled in their own format by the scale that multiplied the loss.

    Violates: 3 and 4 (from 2^127 with a window of 1, ``.``: the scale is infinite, and half of infinity is infinity; 3
    also at 1, where overflows are skipped for ever), 5 (0 at the start, or by a factor of 0), 7 (from .25, ``o`` gives
    1), 8 (other factors than powers of two; float16 gradients from 2^25 on).

    Examples
    --------
    >>> scaler = MindSporeCellScaler(loss_scale_value=2.0**127, scale_window=1)
    >>> scaler.update(Observation())[0].scale
    inf
    """

    name: ClassVar[str] = "mindspore_cell"
    options: ClassVar[tuple[str, ...]] = ("loss_scale_value", "scale_factor", "scale_window")
    initial: ClassVar[str | None] = "loss_scale_value"
    window: ClassVar[str | None] = "scale_window"
    growth: ClassVar[str | None] = "scale_factor"

    loss_scale_value: float = 2.0**24
    scale_factor: float = 2.0
    scale_window: int = 2000
    scale: float = None  # type: ignore[assignment]  # a float after __post_init__
    iteration: int = 1
    last_change: int = 0

    def __post_init__(self) -> None:
        for option in ("loss_scale_value", "scale_factor"):
            need_float32(option, getattr(self, option))
        need_integer("scale_window", self.scale_window)
        scale = self.loss_scale_value if self.scale is None else self.scale
        object.__setattr__(self, "scale", float32(scale))

    def update(self, observation: Observation) -> tuple[MindSporeCellScaler, Decision]:
        """Move the scale by one step."""
        need_check(observation)
        overflow = observation.overflowed
        grows = not overflow and self.iteration - self.last_change >= self.scale_window
        scale = self.scale
        if overflow:
            scale = max(
                1.0, multiply32(scale, divide32(1.0, self.scale_factor))
            )  # 1 from NaN, as the framework
        elif grows:
            scale = multiply32(scale, self.scale_factor)
        following = self.moved(
            scale=scale,
            last_change=self.iteration if overflow or grows else self.last_change,
            iteration=self.iteration + 1,
        )
        return following, Decision(apply=not overflow, divide_by=self.scale, dtype="tensor")

    def observe(self, gradients: Sequence[Array | None]) -> Observation:
        """Test every element after unscaling."""
        return observe_unscaled(gradients, Decision(apply=True, divide_by=self.scale, dtype="tensor"))

    def framework_state(self) -> dict[str, Any]:
        """Give the parameters of the cell and of the training cell around it."""
        return dict(zip(_CELL_STATE, (self.scale, self.iteration, self.last_change), strict=True))

    def load_framework_state(self, state: Mapping[str, Any]) -> MindSporeCellScaler:
        """Give this scaler with the saved parameters.

        >>> saved = MindSporeCellScaler(loss_scale_value=8).framework_state()
        >>> MindSporeCellScaler().load_framework_state(saved).scale
        8.0
        """
        check_entries(state, _CELL_STATE, "DynamicLossScaleUpdateCell", "the parameters of both cells")
        return replace(
            self,
            scale=float(state["scale_sense"]),
            iteration=int(state["current_iterator_step"]),
            last_change=int(state["last_overflow_iterator_step"]),
        )


def _need_one(name: str, value: float) -> None:
    if value < 1:
        raise ValueError(f"{name}={value!r}: it must be 1 or more")
