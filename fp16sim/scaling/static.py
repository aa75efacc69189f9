"""A constant loss scale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fp16sim.scaling.framework import check_entries
from fp16sim.scaling.protocol import Decision, Observation, need_observation
from fp16sim.scaling.state import SavedScaler, check_number

__all__ = ["StaticScaler"]


@dataclass(frozen=True)
class StaticScaler(SavedScaler):
    """Multiply every loss by the same number; skip a step whose gradients overflowed.

    Parameters
    ----------
    scale : float
        Positive and finite. Powers of two change no bit of a gradient that neither overflows nor underflows.

    Notes
    -----
    Violates: 1 (at 2^-128 or less, ``.``: the float32 reciprocal is infinite and is applied), 3 (no scale moves:
    gradients that overflow at it are skipped for ever), 8 (with a scale that is no power of two).

    Examples
    --------
    >>> scaler, decision = StaticScaler(scale=8.0).update(Observation())
    >>> scaler.scale, decision.apply, decision.divide_by
    (8.0, True, 8.0)
    """

    name: ClassVar[str] = "static"
    options: ClassVar[tuple[str, ...]] = ("scale",)
    initial: ClassVar[str | None] = "scale"

    scale: float = 1024.0

    def __post_init__(self) -> None:
        check_number("scale", self.scale, above=0)
        object.__setattr__(self, "scale", float(self.scale))

    def update(self, observation: Observation) -> tuple[StaticScaler, Decision]:
        """Apply the step unless it overflowed."""
        need_observation(observation)
        return self, Decision(apply=not observation.overflowed, divide_by=self.scale)

    def framework_state(self) -> dict[str, Any]:
        """Give the scale."""
        return {"scale": self.scale}

    def load_framework_state(self, state: Mapping[str, Any]) -> StaticScaler:
        """Give a scaler with the saved scale.

        >>> StaticScaler().load_framework_state({"scale": 8.0}).scale
        8.0
        """
        check_entries(state, ("scale",), "StaticScaler", "framework_state()")
        return StaticScaler(float(state["scale"]))
