"""The dynamic rule of torch.amp.GradScaler.

Source: torch/amp/grad_scaler.py and aten/src/ATen/native/cuda/AmpKernels.cu, torch 2.13.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fp16sim.emulator.formats import nearest_name
from fp16sim.scaling.protocol import Decision, Observation, need_observation
from fp16sim.scaling.state import SavedScaler, check_number

__all__ = ["TorchScaler"]

_STATE = ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker")


@dataclass(frozen=True)
class TorchScaler(SavedScaler):
    """Halve on overflow and skip the step; double after `growth_interval` finite steps in a row.

    Parameters
    ----------
    init_scale : float
        Rounded to float32.
    growth_factor : float
        Above 1.
    backoff_factor : float
        Above 0 and below 1.
    growth_interval : int
        The scale grows on exactly that finite step; never if it is 0 or less.
    scale : float, optional
        State: the current scale, a float32 value. Default: `init_scale`.
    growth_tracker : int
        State: finite steps since the last overflow or growth.

    Notes
    -----
    ``scale * factor`` is a binary64 product, rounded to float32 once. Growth to infinity is not taken, though
    the counter starts again; backoff has no floor: from 2^-149 the scale becomes 0, as in torch. Gradients
    are multiplied by the float32 reciprocal of the scale that multiplied the loss.

    Examples
    --------
    >>> scaler = TorchScaler(init_scale=1024.0, growth_interval=2)
    >>> for overflow in (True, False, False):
    ...     scaler, decision = scaler.update(Observation(overflow=overflow))
    ...     print(scaler.scale, decision.apply, decision.divide_by)
    512.0 False 1024.0
    512.0 True 512.0
    1024.0 True 512.0
    """

    name: ClassVar[str] = "torch"
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
    growth_tracker: int = 0

    def __post_init__(self) -> None:
        check_number("init_scale", self.init_scale, above=0, below=2.0**128 - 2.0**103)  # finite in float32
        check_number("growth_factor", self.growth_factor, above=1)
        check_number("backoff_factor", self.backoff_factor, above=0, below=1)
        check_number("growth_interval", self.growth_interval, whole=True)
        check_number("growth_tracker", self.growth_tracker, above=-1, whole=True)
        object.__setattr__(self, "scale", _float32(self.init_scale if self.scale is None else self.scale))

    def update(self, observation: Observation) -> tuple[TorchScaler, Decision]:
        """Move the scale by one step.

        Raises
        ------
        ValueError
            If nothing was checked, as torch asserts.
        """
        need_observation(observation)
        if not observation.checked:
            raise ValueError("checked=False: the rule needs to know of overflow; observe the gradients first")
        decision = Decision(apply=not observation.overflowed, divide_by=self.scale)
        if observation.overflowed:
            return replace(self, scale=_float32(self.scale * self.backoff_factor), growth_tracker=0), decision
        if self.growth_tracker + 1 != self.growth_interval:
            return replace(self, growth_tracker=self.growth_tracker + 1), decision
        grown = _float32(self.scale * self.growth_factor)
        return replace(self, scale=grown if math.isfinite(grown) else self.scale, growth_tracker=0), decision

    def framework_state(self) -> dict[str, Any]:
        """Give what ``torch.amp.GradScaler.state_dict()`` gives."""
        values = (
            self.scale,
            self.growth_factor,
            self.backoff_factor,
            self.growth_interval,
            self.growth_tracker,
        )
        return dict(zip(_STATE, values, strict=True))

    def load_framework_state(self, state: Mapping[str, Any]) -> TorchScaler:
        """Give this scaler with what ``torch.amp.GradScaler.state_dict()`` saved.

        >>> saved = TorchScaler(init_scale=8.0).framework_state()
        >>> TorchScaler().load_framework_state(saved).scale
        8.0
        """
        for key in state:
            if key not in _STATE:
                raise ValueError(f"unknown entry {key!r} of a GradScaler state: {nearest_name(key, _STATE)}")
        for key in _STATE:
            if key not in state:
                raise ValueError(f"a GradScaler state without {key!r}: pass all of state_dict()")
        return replace(
            self,
            scale=float(state["scale"]),
            growth_factor=float(state["growth_factor"]),
            backoff_factor=float(state["backoff_factor"]),
            growth_interval=int(state["growth_interval"]),
            growth_tracker=int(state["_growth_tracker"]),
        )


def _float32(value: float) -> float:
    with np.errstate(over="ignore", under="ignore"):
        return float(np.float32(value))
