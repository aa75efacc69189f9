"""No loss scaling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fp16sim.scaling.protocol import Decision, Observation, need_observation
from fp16sim.scaling.state import SavedScaler

__all__ = ["NoScaler"]


@dataclass(frozen=True)
class NoScaler(SavedScaler):
    """Leave the loss alone and apply every step, even an infinite one, as a loop without a scaler does.

    >>> NoScaler().update(Observation(overflow=True))[1].apply
    True
    """

    name: ClassVar[str] = "none"
    options: ClassVar[tuple[str, ...]] = ()

    @property
    def scale(self) -> float:
        """Always 1."""
        return 1.0

    def update(self, observation: Observation) -> tuple[NoScaler, Decision]:
        """Apply the step."""
        need_observation(observation)
        return self, Decision(apply=True, divide_by=1.0)
