"""The dynamic rule of Colossal-AI.

Source: colossalai: colossalai/amp/naive_amp/grad_scaler/dynamic_grad_scaler.py, mixed_precision_mixin/fp16.py,
mixed_precision_optimizer.py (main branch, commit 35722c5).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fp16sim.scaling.framework import check_entries
from fp16sim.scaling.numbers import float32, multiply32, need_float32, need_integer
from fp16sim.scaling.protocol import Decision, Observation, need_check
from fp16sim.scaling.state import SavedScaler, check_number

__all__ = ["ColossalAIScaler"]

_STATE = ("scale", "growth_factor", "backoff_factor", "hysteresis")


@dataclass(frozen=True)
class ColossalAIScaler(SavedScaler):
    """Back off from the `hysteresis`-th overflow on; grow after `growth_interval` finite steps in a row.

    Parameters
    ----------
    initial_scale : float
        Above 0, between the bounds; rounded to float32.
    growth_factor, backoff_factor : float
        Above 1; between 0 and 1. Rounded to float32.
    growth_interval : int
        The scale grows on exactly that finite step; never if it is 0 or less.
    min_scale, max_scale : float or None
        Bounds, rounded to float32. The framework asks ``if min_scale:``, so 0 is no bound, as None is none.
    hysteresis : int
        0 or more. The scale backs off at that overflow, and then at every one until it grows; 0 is as 1.
    scale : float, optional
        State: the current scale, a float32 value. Default: `initial_scale`.
    growth_step, hysteresis_step : int
        State: finite steps in a row; overflows since the last growth.

    Notes
    -----
    The defaults are those of the mixed-precision optimizer; the class itself has no bounds by default. ``scale *
    factor`` is one float32 product. The scale is updated before the gradients are unscaled, so the step on which it
    grows divides by the new scale. Gradients are tested scaled, element by element, over all ranks, and multiplied in
    float32 by the reciprocal.

    ``state_dict`` holds the scale, the factors and the hysteresis: `growth_step` and `hysteresis_step` of the scaler
    that loads it stay what they are, which is 0 in a new one, and the bounds and the interval are its own.

    Violates: 2 (with an interval of 1, ``.``), 3 (at the minimum overflows are skipped for ever), 8 (other factors or
    bounds than powers of two), 10 (both counters are lost: ``o``, a restart, ``o`` keeps the scale), 12 (``o.o`` counts
    as two overflows in a row). Without a minimum also 1 (at 2^-128 or less, ``.``: the float32 reciprocal is infinite
    and is applied) and 5 (from 2^-149 with a hysteresis of 1, ``o``); without a maximum 4 (from 2^127 with an interval
    of 1, ``.``).

    Examples
    --------
    >>> scaler = ColossalAIScaler(initial_scale=8.0, growth_interval=1)
    >>> scaler, decision = scaler.update(Observation())
    >>> scaler.scale, decision.divide_by
    (16.0, 16.0)
    """

    name: ClassVar[str] = "colossalai"
    options: ClassVar[tuple[str, ...]] = (
        "initial_scale",
        "growth_factor",
        "backoff_factor",
        "growth_interval",
        "min_scale",
        "max_scale",
        "hysteresis",
    )
    initial: ClassVar[str | None] = "initial_scale"
    window: ClassVar[str | None] = "growth_interval"
    growth: ClassVar[str | None] = "growth_factor"
    backoff: ClassVar[str | None] = "backoff_factor"

    initial_scale: float = 2.0**16
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 1000
    min_scale: float | None = 1.0
    max_scale: float | None = 2.0**32
    hysteresis: int = 2
    scale: float = None  # type: ignore[assignment]  # a float after __post_init__
    growth_step: int = 0
    hysteresis_step: int = 0

    def __post_init__(self) -> None:
        need_float32("initial_scale", self.initial_scale)
        if not self.initial_scale > 0:
            raise ValueError(f"initial_scale={self.initial_scale!r}: it must be above 0")
        need_float32("growth_factor", self.growth_factor)
        if not self.growth_factor > 1:
            raise ValueError(f"growth_factor={self.growth_factor!r}: it must be above 1")
        check_number("backoff_factor", self.backoff_factor, above=0, below=1)
        need_integer("growth_interval", self.growth_interval)
        check_number("hysteresis", self.hysteresis, above=-1, whole=True)
        initial = float32(self.initial_scale)
        for option, below in (("min_scale", True), ("max_scale", False)):
            bound = getattr(self, option)
            if not bound:
                continue
            need_float32(option, bound)
            rounded = float32(bound)
            if not (0 < rounded <= initial if below else rounded >= initial):
                rule = "above 0 and not above" if below else "not below"
                raise ValueError(
                    f"{option}={bound!r}: it must be {rule} initial_scale={self.initial_scale!r}, or None"
                )
        object.__setattr__(self, "scale", initial if self.scale is None else float32(self.scale))

    def update(self, observation: Observation) -> tuple[ColossalAIScaler, Decision]:
        """Move the scale by one step, and then divide by it."""
        need_check(observation)
        overflow = observation.overflowed
        scale, growth, hysteresis = self.scale, self.growth_step, self.hysteresis_step
        if overflow:
            growth, hysteresis = 0, hysteresis + 1
            if hysteresis >= self.hysteresis:
                scale = multiply32(scale, self.backoff_factor)
                scale = max(scale, float32(self.min_scale)) if self.min_scale else scale
        else:
            growth += 1
            if growth == self.growth_interval:
                growth = hysteresis = 0
                scale = multiply32(scale, self.growth_factor)
                scale = min(scale, float32(self.max_scale)) if self.max_scale else scale
        following = self.moved(scale=scale, growth_step=growth, hysteresis_step=hysteresis)
        return following, Decision(apply=not overflow, divide_by=scale)

    def framework_state(self) -> dict[str, Any]:
        """Give what ``DynamicGradScaler.state_dict()`` gives, which lacks both counters."""
        values = (self.scale, self.growth_factor, self.backoff_factor, self.hysteresis)
        return dict(zip(_STATE, values, strict=True))

    def load_framework_state(self, state: Mapping[str, Any]) -> ColossalAIScaler:
        """Give this scaler with what ``state_dict()`` saved; counters, interval and bounds stay this scaler's own.

        >>> scaler, _ = ColossalAIScaler().update(Observation(overflow=True))
        >>> scaler.hysteresis_step, ColossalAIScaler().load_framework_state(scaler.framework_state()).hysteresis_step
        (1, 0)
        """
        check_entries(state, _STATE, "DynamicGradScaler", "state_dict()")
        scale = float(state["scale"])
        if math.isnan(scale) or scale < 0:
            raise ValueError(f"scale={scale!r} in a DynamicGradScaler state: pass one that was saved")
        return replace(
            self,
            scale=scale,
            growth_factor=float(state["growth_factor"]),
            backoff_factor=float(state["backoff_factor"]),
            hysteresis=int(state["hysteresis"]),
        )
