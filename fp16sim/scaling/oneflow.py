"""The dynamic rule of oneflow.amp.GradScaler, which a graph runs.

Source, read and not run: python/oneflow/amp/grad_scaler.py and
oneflow/user/kernels/dynamic_loss_scale_schedule_kernel.cpp and .cu, OneFlow 0.9.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fp16sim.scaling.framework import check_entries
from fp16sim.scaling.numbers import float32, need_float32, need_integer
from fp16sim.scaling.protocol import Decision, Observation, need_check
from fp16sim.scaling.state import SavedScaler, check_number

__all__ = ["OneflowScaler"]

_STATE = ("loss_scale", "good_step_counter")
_LARGEST = 2.0**128 - 2.0**104  # FLT_MAX


@dataclass(frozen=True)
class OneflowScaler(SavedScaler):
    """Divide by the growth factor on overflow and skip; multiply after `growth_interval` finite steps in a row.

    Parameters
    ----------
    init_scale : float
        Rounded to float32.
    growth_factor : float
        Rounded to float32 by the kernel.
    backoff_factor : float
        Has to be exactly ``1 / growth_factor``, as OneFlow demands.
    growth_interval : int
        The scale grows on that finite step; on every one if it is 1 or less.
    scale : float, optional
        State: the current scale, a float32 value. Default: `init_scale`.
    good_step_counter : int
        State: finite steps since the last overflow or growth.

    Notes
    -----
    Products and quotients are taken in binary64, clamped to [1, FLT_MAX] below and above, and rounded to float32. The
    elements that are not finite are counted in the scaled gradients. The kernel's variables are part of the graph's
    state. A skip leaves the optimizer as it was.

    Violates: 1 (made with 2^-128 or less, ``.``: the float32 reciprocal is infinite and is applied), 3 (at 1 overflows
    are skipped for ever), 7 (from .25, ``o`` gives 1), 8 (from 2^127 with a window of 1, ``.`` gives FLT_MAX, no power
    of two, and ``.o`` an odd scale).

    Examples
    --------
    >>> scaler, _ = OneflowScaler(init_scale=0.25).update(Observation(overflow=True))
    >>> scaler.scale
    1.0
    """

    name: ClassVar[str] = "oneflow"
    options: ClassVar[tuple[str, ...]] = ("init_scale", "growth_factor", "backoff_factor", "growth_interval")
    initial: ClassVar[str | None] = "init_scale"
    window: ClassVar[str | None] = "growth_interval"
    growth: ClassVar[str | None] = "growth_factor"
    backoff: ClassVar[str | None] = "backoff_factor"

    init_scale: float = 65536.0
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    scale: float = None  # type: ignore[assignment]  # a float after __post_init__
    good_step_counter: int = 0

    def __post_init__(self) -> None:
        need_float32("init_scale", self.init_scale)
        need_float32("growth_factor", self.growth_factor)
        check_number("backoff_factor", self.backoff_factor)
        if self.growth_factor == 0 or self.backoff_factor != 1.0 / self.growth_factor:
            inverse = 1.0 / self.growth_factor if self.growth_factor else "no number"
            raise ValueError(
                f"backoff_factor={self.backoff_factor!r}: it must be 1/growth_factor, which is {inverse}"
            )
        need_integer("growth_interval", self.growth_interval)
        object.__setattr__(self, "scale", float32(self.init_scale if self.scale is None else self.scale))

    def update(self, observation: Observation) -> tuple[OneflowScaler, Decision]:
        """Move the scale by one step."""
        need_check(observation)
        decision = Decision(apply=not observation.overflowed, divide_by=self.scale)
        multiplier = float32(self.growth_factor)
        if observation.overflowed:
            with np.errstate(all="ignore"):  # a factor that rounds to 0 gives an infinity, as in C++
                smaller = float(np.float64(self.scale) / multiplier)
            scale = float32(max(smaller, 1.0))
            return self.moved(scale=scale, good_step_counter=0), decision
        if self.good_step_counter + 1 < self.growth_interval:
            return self.moved(good_step_counter=self.good_step_counter + 1), decision
        scale = float32(min(self.scale * multiplier, _LARGEST))
        return self.moved(scale=scale, good_step_counter=0), decision

    def framework_state(self) -> dict[str, Any]:
        """Give the two variables of the graph."""
        return dict(zip(_STATE, (self.scale, self.good_step_counter), strict=True))

    def load_framework_state(self, state: Mapping[str, Any]) -> OneflowScaler:
        """Give this scaler with the two variables of the graph; the options stay its own."""
        check_entries(state, _STATE, "GradScaler", "the graph's variables")
        return replace(
            self, scale=float(state["loss_scale"]), good_step_counter=int(state["good_step_counter"])
        )
