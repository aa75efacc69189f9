"""The dynamic rules of NVIDIA apex: amp's LossScaler, and the older DynamicLossScaler of fp16_utils.

Source: apex/amp/scaler.py, apex/amp/handle.py, apex/fp16_utils/loss_scaler.py and fp16_optimizer.py, apex 0.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fp16sim.autograd.arithmetic import Array
from fp16sim.autograd.tensor import Tensor
from fp16sim.scaling.framework import check_entries
from fp16sim.scaling.numbers import need_integer, need_number
from fp16sim.scaling.observing import in_float32, observe_sums
from fp16sim.scaling.protocol import Decision, Observation, need_check
from fp16sim.scaling.state import SavedScaler

__all__ = ["ApexFp16UtilsScaler", "ApexScaler"]

_AMP_STATE = ("loss_scale", "unskipped")
_UTILS_STATE = ("cur_scale", "cur_iter", "last_overflow_iter", "scale_factor", "scale_window")


@dataclass(frozen=True)
class ApexScaler(SavedScaler):
    """Halve on overflow and skip the step; double after `scale_window` finite steps in a row, up to a maximum.

    Parameters
    ----------
    init_scale : float
    scale_factor : float
        Taken and never read: the factors are 2 and 1/2.
    scale_window : int
        With 0, an overflow halves and doubles, and finite steps never grow.
    min_loss_scale : float or None
        The floor of backoff; None and 0 are none.
    max_loss_scale : float
        The cap of `init_scale` (the first versions capped growth alone) and of growth. A larger scale, which only a
        saved state can hold, falls to it at its next growth.
    scale : float, optional
        State: the current scale. Default: `init_scale`, or `max_loss_scale` if that is smaller.
    unskipped : int
        State: finite steps since the last overflow or growth.

    Notes
    -----
    The scale is a Python float: powers of two stay exact down to 2^-1074, then it is 0, and apex divides by it:
    a ZeroDivisionError, here a reason to stop. The Python path tests the float32 sum of each scaled gradient,
    ``float(grad.float().sum())``, so the finite [3e38, 3e38] is taken for an overflow; the fused kernel looks at each
    element. Gradients are multiplied by 1/scale, rounded to float32; the loss is scaled in float32. A skip leaves the
    optimizer as it was. ``amp.state_dict()`` holds the scale and the counter.

    Violates: 1 (at 2^-128 or less, ``.``: the float32 reciprocal is infinite and is applied), 3 (no way out of 0), 5
    (from 2^-1074, ``o``), 7 (only with `min_loss_scale` above the scale: from 1 with a minimum of 4, ``o`` gives 4).

    Examples
    --------
    >>> scaler, decision = ApexScaler(scale_window=1).update(Observation())
    >>> scaler.scale, decision.divide_by
    (131072.0, 65536.0)
    """

    name: ClassVar[str] = "apex"
    options: ClassVar[tuple[str, ...]] = (
        "init_scale",
        "scale_factor",
        "scale_window",
        "min_loss_scale",
        "max_loss_scale",
    )
    initial: ClassVar[str | None] = "init_scale"
    window: ClassVar[str | None] = "scale_window"

    init_scale: float = 2.0**16
    scale_factor: float = 2.0
    scale_window: int = 2000
    min_loss_scale: float | None = None
    max_loss_scale: float = 2.0**24
    scale: float = None  # type: ignore[assignment]  # a float after __post_init__
    unskipped: int = 0

    def __post_init__(self) -> None:
        for option in ("init_scale", "scale_factor", "max_loss_scale"):
            need_number(option, getattr(self, option))
        if self.min_loss_scale is not None:
            need_number("min_loss_scale", self.min_loss_scale)
        need_integer("scale_window", self.scale_window)
        start = min(self.max_loss_scale, self.init_scale)  # of a NaN init_scale it is the maximum, as in apex
        object.__setattr__(self, "scale", float(start if self.scale is None else self.scale))

    def scale_loss(self, loss: Tensor) -> Tensor:
        """Multiply a loss by the scale in float32."""
        return in_float32(loss, self.scale)

    def observe(self, gradients: Sequence[Array | None]) -> Observation:
        """Test the float32 sum of each scaled gradient."""
        return observe_sums(gradients, self.scale)

    def update(self, observation: Observation) -> tuple[ApexScaler, Decision]:
        """Move the scale by one step."""
        need_check(observation)
        if self.scale == 0:
            return self, _stopped("apex divides by the loss scale, which is 0: ZeroDivisionError")
        decision = Decision(apply=not observation.overflowed, divide_by=self.scale)
        scale, unskipped = self.scale, self.unskipped + 1
        if observation.overflowed:
            scale, unskipped = scale / 2.0, 0
            if self.min_loss_scale:
                scale = float(max(self.min_loss_scale, scale))
        if unskipped == self.scale_window:
            scale, unskipped = float(min(self.max_loss_scale, scale * 2.0)), 0
        return self.moved(scale=scale, unskipped=unskipped), decision

    def framework_state(self) -> dict[str, Any]:
        """Give what ``amp.state_dict()`` holds of a loss scaler."""
        return dict(zip(_AMP_STATE, (self.scale, self.unskipped), strict=True))

    def load_framework_state(self, state: Mapping[str, Any]) -> ApexScaler:
        """Give this scaler with what ``amp.state_dict()`` saved; the options stay its own."""
        check_entries(state, _AMP_STATE, "apex LossScaler", "what amp.state_dict() holds of one")
        return replace(self, scale=float(state["loss_scale"]), unskipped=int(state["unskipped"]))


@dataclass(frozen=True)
class ApexFp16UtilsScaler(SavedScaler):
    """Divide by the factor on overflow and skip; multiply when the steps since the last overflow fill a window.

    Parameters
    ----------
    init_scale, scale_factor : float
    scale_window : int
        The scale grows on the finite steps whose distance from the last overflow is a multiple of it. With 0 the first
        finite step is a modulo by zero, here a reason to stop.
    scale : float, optional
        State: the current scale. Default: `init_scale`.
    cur_iter, last_overflow_iter : int
        State: steps taken, and the step of the last overflow.

    Notes
    -----
    The scale is a Python float, never below 1 after an overflow and without a maximum. The test is that of the float32
    sum of each scaled gradient, so the finite [3e38, 3e38] is taken for an overflow. The float32 masters are multiplied
    by 1/scale, rounded to float32; the loss is scaled in float32. A skip leaves the optimizer as it was; the
    checkpoint holds the whole object.

    Violates: 1 (made with 2^-128 or less, ``.``: the float32 reciprocal is infinite and is applied), 3 (at 1 overflows
    are skipped for ever; no way out of infinity), 4 (from 2^1023 with a window of 1, ``.``), 7 (from .25, ``o`` gives
    1). With an initial scale or a factor that is no power of two also 8.

    Examples
    --------
    >>> scaler, _ = ApexFp16UtilsScaler().update(Observation(overflow=True))
    >>> scaler.scale == 2.0**31
    True
    """

    name: ClassVar[str] = "apex_fp16utils"
    options: ClassVar[tuple[str, ...]] = ("init_scale", "scale_factor", "scale_window")
    initial: ClassVar[str | None] = "init_scale"
    window: ClassVar[str | None] = "scale_window"
    growth: ClassVar[str | None] = "scale_factor"

    init_scale: float = 2.0**32
    scale_factor: float = 2.0
    scale_window: int = 1000
    scale: float = None  # type: ignore[assignment]  # a float after __post_init__
    cur_iter: int = 0
    last_overflow_iter: int = -1

    def __post_init__(self) -> None:
        need_number("init_scale", self.init_scale)
        need_number("scale_factor", self.scale_factor)
        need_integer("scale_window", self.scale_window)
        object.__setattr__(self, "scale", float(self.init_scale if self.scale is None else self.scale))

    def scale_loss(self, loss: Tensor) -> Tensor:
        """Multiply a loss by the scale in float32."""
        return in_float32(loss, self.scale)

    def observe(self, gradients: Sequence[Array | None]) -> Observation:
        """Test the float32 sum of each scaled gradient."""
        return observe_sums(gradients, self.scale)

    def update(self, observation: Observation) -> tuple[ApexFp16UtilsScaler, Decision]:
        """Move the scale by one step."""
        need_check(observation)
        decision = Decision(apply=not observation.overflowed, divide_by=self.scale)
        following = self.moved(cur_iter=self.cur_iter + 1)
        if observation.overflowed:
            if self.scale_factor == 0:
                return self, _stopped("apex divides by scale_factor=0: ZeroDivisionError")
            scale = float(max(self.scale / self.scale_factor, 1))
            return following.moved(scale=scale, last_overflow_iter=self.cur_iter), decision
        if self.scale_window == 0:
            return self, _stopped("apex takes a remainder by scale_window=0: ZeroDivisionError")
        if (self.cur_iter - self.last_overflow_iter) % self.scale_window == 0:
            following = following.moved(scale=float(self.scale * self.scale_factor))
        return following, decision

    def framework_state(self) -> dict[str, Any]:
        """Give the attributes of the object, which FP16_Optimizer saves whole."""
        values = (self.scale, self.cur_iter, self.last_overflow_iter, self.scale_factor, self.scale_window)
        return dict(zip(_UTILS_STATE, values, strict=True))

    def load_framework_state(self, state: Mapping[str, Any]) -> ApexFp16UtilsScaler:
        """Give this scaler with the attributes that FP16_Optimizer saved."""
        check_entries(state, _UTILS_STATE, "apex DynamicLossScaler", "its attributes")
        return replace(
            self,
            scale=float(state["cur_scale"]),
            cur_iter=int(state["cur_iter"]),
            last_overflow_iter=int(state["last_overflow_iter"]),
            scale_factor=float(state["scale_factor"]),
            scale_window=int(state["scale_window"]),
        )


def _stopped(reason: str) -> Decision:
    return Decision(apply=False, divide_by=1.0, stop=reason)
