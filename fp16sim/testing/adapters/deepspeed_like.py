"""Drives objects that look like DeepSpeed's DynamicLossScaler."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np

from fp16sim.scaling.norms import float32_norm
from fp16sim.scaling.protocol import Decision, unscale
from fp16sim.testing.adapters.looks import has_methods, stop_of
from fp16sim.testing.adapters.loop import LoopDriver
from fp16sim.testing.driver import Array, Told, need_letter
from fp16sim.testing.histories import FINITE

__all__ = ["DeepSpeedDriver"]


class DeepSpeedDriver(LoopDriver):
    """The loop of DeepSpeed's ZeRO optimizer around a scaler, without DeepSpeed.

    Needed are ``update_scale(overflow)``, which is given a bool, and the number `cur_scale` or `loss_scale`; the object
    sees no gradients. The loss is multiplied in float32.
    As in ``DeepSpeedZeroOptimizer.step`` (DeepSpeed 0.19.8), a step overflows if an element is infinite or NaN or
    float32 cannot hold the norm of all gradients; then the scale is updated; then the gradients are multiplied by the
    float32 reciprocal of the scale as it now is. A checkpoint holds the object itself. Groups are ranks, which share
    the maximum of their overflows.
    """

    @staticmethod
    def drives(scaler: Any) -> bool:
        """Whether an object looks like that."""
        return has_methods(scaler, "update_scale") and any(
            hasattr(scaler, name) and not callable(getattr(scaler, name))
            for name in ("cur_scale", "loss_scale")
        )

    def scale(self, group: str) -> float:
        scaler = self.scaler
        return float(scaler.cur_scale if hasattr(scaler, "cur_scale") else scaler.loss_scale)

    def factor(self, group: str) -> float:
        with np.errstate(all="ignore"):
            return float(np.float32(self.scale(group)))

    def overflows(self, gradients: dict[str, Array]) -> bool:
        return not np.isfinite(float32_norm(list(gradients.values())))

    def judge(self, gradients: dict[str, Array]) -> dict[str, Array] | None:
        overflow = self.overflows(gradients)
        self.scaler.update_scale(overflow)
        if overflow:
            return None
        decision = Decision(apply=True, divide_by=self.scale(self.groups[0]))
        with np.errstate(all="ignore"):
            return {group: unscale(gradient, decision) for group, gradient in gradients.items()}

    def saved(self) -> dict[str, Any]:
        return {"pickle": deepcopy(self.scaler)}

    def restored(self, way: str, state: Any, fresh: Any) -> DeepSpeedDriver:
        return self.followed_by(DeepSpeedDriver(deepcopy(state), self.groups))

    def tell(self, letter: str) -> Told:
        need_letter(letter)
        self.begin()
        overflow, stop = letter != FINITE, None
        try:
            self.scaler.update_scale(overflow)
        except Exception as error:
            stop = stop_of(error, overflow)
        self.counted += not overflow
        return Told(not overflow, stop)
