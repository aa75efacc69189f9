"""The dynamic rule of torch.amp.GradScaler.

Source: torch/amp/grad_scaler.py and aten/src/ATen/native/cuda/AmpKernels.cu, torch 2.13.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fp16sim.autograd.tensor import Tensor
from fp16sim.scaling.framework import check_entries
from fp16sim.scaling.numbers import float32, need_float32, need_integer, need_number
from fp16sim.scaling.observing import in_float32
from fp16sim.scaling.protocol import Decision, Observation, need_check
from fp16sim.scaling.state import SavedScaler, check_number

__all__ = ["TorchScaler", "step_of_each"]

_STATE = ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker")


@dataclass(frozen=True)
class TorchScaler(SavedScaler):
    """Halve on overflow and skip the step; double after `growth_interval` finite steps in a row.

    Parameters
    ----------
    init_scale : float
        Rounded to float32. torch does not look at it: 0, an infinity and NaN pass.
    growth_factor : float
        Above 1.
    backoff_factor : float
        Below 1; 0 and less pass, as in torch.
    growth_interval : int
        The scale grows on exactly that finite step; never if it is 0 or less.
    scale : float, optional
        State: the current scale, a float32 value. Default: `init_scale`.
    growth_tracker : int
        State: finite steps since the last overflow or growth.

    Notes
    -----
    ``scale * factor`` is a binary64 product, rounded to float32 once. Growth to infinity is not taken, though
    the counter starts again; backoff has no floor: from 2^-149 the scale becomes 0, as in torch. The scaled gradients
    are tested, element by element; then they are multiplied by the float32 reciprocal, taken in binary64, of the scale
    that multiplied the loss. The loss is scaled in float32. Without dimensions it stays float32; one with dimensions is
    rounded back to its format, so a float16 loss of shape (1,) that holds 1 is infinite at 65536. A skip leaves the
    optimizer as it was. torch's ``unscale_`` refuses float16 gradients; here they are unscaled to float32. Each
    optimizer skips by the overflow of its own gradients, and any of them moves the scale: where `overflow` is a mapping
    of optimizer to bool, `apply` is one too.

    Violates: 1 (from 2^-149, ``o.``: a gradient over the scale 0 is applied as NaN; at 2^-128 or less, ``.``: the
    reciprocal is infinite), 3 (no way out of 0), 5 (from 2^-149, ``o``), 13 (one optimizer steps where another skips).
    With an initial scale or factors that are no powers of two also 8, and with an infinite one 4.

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
        need_float32("init_scale", self.init_scale)
        need_number("growth_factor", self.growth_factor)
        need_number("backoff_factor", self.backoff_factor)
        if self.growth_factor <= 1:
            check_number("growth_factor", self.growth_factor, above=1)
        if self.backoff_factor >= 1:
            check_number("backoff_factor", self.backoff_factor, below=1)
        need_integer("growth_interval", self.growth_interval)
        check_number("growth_tracker", self.growth_tracker, above=-1, whole=True)
        object.__setattr__(self, "scale", float32(self.init_scale if self.scale is None else self.scale))

    def scale_loss(self, loss: Tensor) -> Tensor:
        """Multiply a loss by the scale in float32; one with dimensions is rounded back to its format."""
        scaled = in_float32(loss, self.scale)
        return scaled.cast(loss.dtype) if loss.ndim else scaled

    def update(self, observation: Observation) -> tuple[TorchScaler, Decision]:
        """Move the scale by one step.

        Raises
        ------
        ValueError
            If nothing was checked, as torch asserts.
        """
        need_check(observation)
        decision = self._decide(observation)
        if observation.overflowed:
            return self.moved(scale=self._product(self.backoff_factor), growth_tracker=0), decision
        if self.growth_tracker + 1 != self.growth_interval:
            return self.moved(growth_tracker=self.growth_tracker + 1), decision
        return self.moved(scale=self._grown(), growth_tracker=0), decision

    def _decide(self, observation: Observation) -> Decision:
        return Decision(apply=step_of_each(observation), divide_by=self.scale)

    def _product(self, factor: float) -> float:
        return float32(self.scale * factor)

    def _grown(self) -> float:
        grown = self._product(self.growth_factor)
        return grown if math.isfinite(grown) else self.scale

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
        check_entries(state, _STATE, "GradScaler", "state_dict()")
        return replace(
            self,
            scale=float(state["scale"]),
            growth_factor=float(state["growth_factor"]),
            backoff_factor=float(state["backoff_factor"]),
            growth_interval=int(state["growth_interval"]),
            growth_tracker=int(state["_growth_tracker"]),
        )


def step_of_each(observation: Observation) -> bool | dict[str, bool]:
    """Whether the optimizer steps, or each of several."""
    overflow = observation.overflow
    if overflow and isinstance(overflow, Mapping):
        return {optimizer: not overflowed for optimizer, overflowed in overflow.items()}
    return not overflow
