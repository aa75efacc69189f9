"""The part of a training loop that is the same around all scalers that decide about all gradients at once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from fp16sim.testing.adapters.looks import is_refusal, stop_of, worded
from fp16sim.testing.driver import ONE_GROUP, Array, Floats, Refusal, need_group, scaled
from fp16sim.testing.held import HeldGradients

__all__ = ["LoopDriver"]

Following = TypeVar("Following", bound="LoopDriver")


class LoopDriver(HeldGradients):
    """Holds gradients as arrays, and lets one decision, at the first `unscale` or `step`, be about all groups.

    Parameters
    ----------
    scaler : object
    groups : tuple of str
    """

    can = frozenset({"groups", "counts"})

    def __init__(self, scaler: Any, groups: tuple[str, ...] = ONE_GROUP) -> None:
        self.scaler, self.groups = scaler, groups
        self.counted = 0
        self.begin()

    @abstractmethod
    def judge(self, gradients: dict[str, Array]) -> dict[str, Array] | None:
        """Show the scaled gradients to the scaler, update it, and give the unscaled ones; None for a skip."""

    def overflows(self, gradients: dict[str, Array]) -> bool:
        """Whether a step with these scaled gradients is one with an overflow."""
        return not all(np.isfinite(gradient).all() for gradient in gradients.values())

    def commit(self) -> None:
        """End the step: by default the scaler was updated by `judge`."""

    def begin(self) -> None:
        """Begin a step."""
        super().begin()
        self._judged = False
        self._results: dict[str, Array] | None = None
        self._stop: str | None = None

    def followed_by(self, driver: Following) -> Following:
        """Give the driver of the restored scaler, which goes on counting."""
        driver.counted = self.counted
        return driver

    def backward(self, gradients: Mapping[str, Floats | None], dtype: str = "float32") -> None:
        for group, gradient in gradients.items():
            need_group(group, self.groups)
            if gradient is None:
                continue
            if self._judged:
                raise Refusal(
                    "the gradients of this step were looked at already: call update before the next"
                )
            new, old = scaled(gradient, self.factor(group), dtype), self.gradients.get(group)
            with np.errstate(all="ignore"):
                self.gradients[group] = new if old is None else old + new

    def moves(self, group: str) -> bool:
        return self._results is not None

    def update(self) -> str | None:
        if not self._judged:
            raise Refusal("nothing was unscaled or stepped: there is nothing to update by")
        stop, applied = self._stop, self._results is not None and bool(self.stepped)
        if stop is None:
            self.commit()
        self.begin()
        self.counted += applied
        return stop

    def unscale_once(self, group: str) -> None:
        """Replace the gradient of a group by its unscaled one, if it is not yet."""
        if not self._judged:
            self._judged = True
            try:
                self._results = self.judge(self.gradients)
            except Exception as error:
                if not self.gradients and is_refusal(error):
                    self._judged = False
                    raise Refusal(worded(error)) from error
                self._stop = stop_of(error, self.overflows(self.gradients))
        results = self._results or {}
        if group not in self.unscaled and group in results and group in self.gradients:
            self.gradients[group] = results[group]
        self.unscaled.add(group)
