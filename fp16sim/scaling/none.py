"""No loss scaling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fp16sim.scaling.framework import check_entries
from fp16sim.scaling.protocol import Decision, Observation, need_observation
from fp16sim.scaling.state import SavedScaler

__all__ = ["NoScaler"]


@dataclass(frozen=True)
class NoScaler(SavedScaler):
    """Leave the loss alone and apply every step, even an infinite one, as a loop without a scaler does.

    Violates: 1 (``o``: the step is applied), 3 (no scale moves).

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

    def framework_state(self) -> dict[str, Any]:
        """Give an empty state."""
        return {}

    def load_framework_state(self, state: Mapping[str, Any]) -> NoScaler:
        """Give this scaler: there is no state to load."""
        check_entries(state, (), "NoScaler", "framework_state()")
        return self
