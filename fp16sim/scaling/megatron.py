"""The dynamic rule of Megatron.

Source: megatron-core 0.16.1: megatron/core/optimizer/grad_scaler.py (`DynamicGradScaler`), optimizer.py
(`prepare_grads`), optimizer_config.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fp16sim.autograd.tensor import Tensor
from fp16sim.scaling.framework import check_entries
from fp16sim.scaling.numbers import float32, multiply32, need_float32
from fp16sim.scaling.observing import in_float32
from fp16sim.scaling.protocol import Decision, Observation, need_check
from fp16sim.scaling.state import SavedScaler, check_number

__all__ = ["MegatronScaler"]

_STATE = ("scale", "growth_tracker", "hysteresis_tracker")


@dataclass(frozen=True)
class MegatronScaler(SavedScaler):
    """Back off once `hysteresis` overflows were seen; grow after `growth_interval` finite steps in a row.

    Parameters
    ----------
    initial_scale : float
        Above 0, and not below `min_scale`; rounded to float32. ``--initial-loss-scale``.
    min_scale : float
        Above 0, rounded to float32. ``--min-loss-scale``.
    growth_factor, backoff_factor : float
        Above 1; between 0 and 1. Rounded to float32. Arguments of the class only.
    growth_interval : int
        Above 0. The scale grows on exactly that finite step. ``--loss-scale-window``.
    hysteresis : int
        Above 0. One overflow of so many backs off, and then every one until the scale grows. ``--hysteresis``.
    scale : float, optional
        State: the current scale, a float32 value. Default: `initial_scale`.
    growth_tracker : int
        State: finite steps since the last overflow or growth.
    hysteresis_tracker : int, optional
        State: overflows left until the scale backs off. Default: `hysteresis`.

    Notes
    -----
    ``scale * factor`` is one float32 product. The loss is scaled in float32 whatever its format. Gradients are copied
    to float32, tested scaled, element by element, and multiplied by the float32 reciprocal of the scale that
    multiplied the loss. Ranks take the maximum of what they found. A chain of optimizers updates each member's scaler
    by the member's own overflow, skips all together, and reports the first one's scale, so the scales drift apart.

    The class says that hysteresis counts overflows in a row; only growth refills it. A skip leaves optimizer and
    schedule alone.

    Violates: 1 (with a minimum of 2^-128 or less, ``.`` there: the float32 reciprocal is infinite and is applied), 3
    and 4 (from 2^127 with an interval of 1, ``.``: the scale is infinite, and half of infinity is infinity; 3 also at
    the minimum, where overflows are skipped for ever), 8 (other factors or bounds than powers of two), 12 (with an
    interval of 1000, ``o.o`` backs off at the second ``o``), 13 (a chain of optimizers).

    Examples
    --------
    >>> scaler = MegatronScaler(initial_scale=8.0)
    >>> for overflow in (True, False, True):
    ...     scaler, decision = scaler.update(Observation(overflow=overflow))
    ...     print(scaler.scale, decision.apply, decision.divide_by)
    8.0 False 8.0
    8.0 True 8.0
    4.0 False 8.0
    """

    name: ClassVar[str] = "megatron"
    options: ClassVar[tuple[str, ...]] = (
        "initial_scale",
        "min_scale",
        "growth_factor",
        "backoff_factor",
        "growth_interval",
        "hysteresis",
    )
    initial: ClassVar[str | None] = "initial_scale"
    window: ClassVar[str | None] = "growth_interval"
    growth: ClassVar[str | None] = "growth_factor"
    backoff: ClassVar[str | None] = "backoff_factor"

    initial_scale: float = 2.0**32
    min_scale: float = 1.0
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 1000
    hysteresis: int = 2
    scale: float = None  # type: ignore[assignment]  # a float after __post_init__
    growth_tracker: int = 0
    hysteresis_tracker: int = None  # type: ignore[assignment]  # an int after __post_init__

    def __post_init__(self) -> None:
        for option in ("initial_scale", "min_scale", "growth_factor"):
            need_float32(option, getattr(self, option))
        if not 0 < self.min_scale <= self.initial_scale:
            raise ValueError(
                f"min_scale={self.min_scale!r} with initial_scale={self.initial_scale!r}: "
                "0 < min_scale <= initial_scale"
            )
        if not self.growth_factor > 1:
            raise ValueError(f"growth_factor={self.growth_factor!r}: it must be above 1")
        check_number("backoff_factor", self.backoff_factor, above=0, below=1)
        check_number("growth_interval", self.growth_interval, above=0, whole=True)
        check_number("hysteresis", self.hysteresis, above=0, whole=True)
        scale = self.initial_scale if self.scale is None else self.scale
        object.__setattr__(self, "scale", float32(scale))
        if self.hysteresis_tracker is None:
            object.__setattr__(self, "hysteresis_tracker", self.hysteresis)

    def update(self, observation: Observation) -> tuple[MegatronScaler, Decision]:
        """Move the scale by one step."""
        need_check(observation)
        overflow = observation.overflowed
        decision = Decision(apply=not overflow, divide_by=self.scale)
        if overflow:
            left = self.hysteresis_tracker - 1
            scale = self.scale
            if left <= 0:
                scale = max(multiply32(scale, self.backoff_factor), float32(self.min_scale))
            return self.moved(scale=scale, growth_tracker=0, hysteresis_tracker=left), decision
        if self.growth_tracker + 1 != self.growth_interval:
            return self.moved(growth_tracker=self.growth_tracker + 1), decision
        grown = multiply32(self.scale, self.growth_factor)
        return self.moved(scale=grown, growth_tracker=0, hysteresis_tracker=self.hysteresis), decision

    def scale_loss(self, loss: Tensor) -> Tensor:
        """Multiply in float32, which the framework's scale of shape (1,) makes of every loss."""
        return in_float32(loss, self.scale)

    def framework_state(self) -> dict[str, Any]:
        """Give what ``DynamicGradScaler.state_dict()`` gives."""
        return dict(zip(_STATE, (self.scale, self.growth_tracker, self.hysteresis_tracker), strict=True))

    def load_framework_state(self, state: Mapping[str, Any]) -> MegatronScaler:
        """Give this scaler with what ``DynamicGradScaler.state_dict()`` saved; options stay this scaler's own.

        >>> saved = MegatronScaler(initial_scale=8.0).framework_state()
        >>> MegatronScaler().load_framework_state(saved).scale
        8.0
        """
        check_entries(state, _STATE, "DynamicGradScaler", "state_dict()")
        return replace(
            self,
            scale=float(state["scale"]),
            growth_tracker=int(state["growth_tracker"]),
            hysteresis_tracker=int(state["hysteresis_tracker"]),
        )
