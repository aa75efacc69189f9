"""The dynamic rule of paddle.amp.GradScaler.

Source: python/paddle/amp/grad_scaler.py and paddle/phi/kernels/gpu/amp_kernel.cu, paddlepaddle 3.3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fp16sim.autograd.arithmetic import Array
from fp16sim.scaling.framework import check_entries
from fp16sim.scaling.numbers import float32, multiply32, need_float32, need_integer, need_number
from fp16sim.scaling.observing import observe_unscaled
from fp16sim.scaling.protocol import Decision, Observation, need_check
from fp16sim.scaling.state import SavedScaler, check_number

__all__ = ["PaddleScaler"]

_STATE = (
    "scale",
    "incr_ratio",
    "decr_ratio",
    "incr_every_n_steps",
    "decr_every_n_nan_or_inf",
    "incr_count",
    "decr_count",
    "use_dynamic_loss_scaling",
)
_DTYPE = "float32_then_tensor"


@dataclass(frozen=True)
class PaddleScaler(SavedScaler):
    """Shrink after `decr_every_n_nan_or_inf` overflows in a row, skip each; grow after `incr_every_n_steps` finite.

    Parameters
    ----------
    init_loss_scaling : float
        Rounded to float32. AmpScaler, the class below GradScaler, begins with 2^15.
    incr_ratio : float
        Above 1.
    decr_ratio : float
        Below 1; 0 and less pass, as in Paddle.
    incr_every_n_steps : int
        The scale grows on exactly that finite step; never if it is 0 or less. AmpScaler: 1000.
    decr_every_n_nan_or_inf : int
        The scale shrinks on exactly that overflow; never if it is 0 or less.
    scale : float, optional
        State: the current scale, a float32 value. Default: `init_loss_scaling`.
    incr_count, decr_count : int
        State: finite steps, and overflows, in a row.

    Notes
    -----
    The ratio is rounded to float32 and the product is a float32 one; nothing bounds it. On a GPU, where GradScaler
    works, a gradient is multiplied by the float32 reciprocal of the scale in float32 and rounded back to its own
    format, and the result is tested, so what is tested is what is applied; Paddle's CPU kernel tests the scaled
    gradient. A skip leaves the optimizer as it was.

    Violates: 3 (with ``decr_every_n_nan_or_inf=2``, ``o.o.o.`` never shrinks; at infinity and at 0 every step
    overflows for ever), 4 (from 2^127 with a window of 1, ``.``), 5 (from 2^-149, ``o``).

    Examples
    --------
    >>> scaler = PaddleScaler(decr_every_n_nan_or_inf=2)
    >>> for overflow in (True, False, True, True):
    ...     scaler, _ = scaler.update(Observation(overflow=overflow))
    >>> scaler.scale
    32768.0
    """

    name: ClassVar[str] = "paddle"
    options: ClassVar[tuple[str, ...]] = (
        "init_loss_scaling",
        "incr_ratio",
        "decr_ratio",
        "incr_every_n_steps",
        "decr_every_n_nan_or_inf",
    )
    initial: ClassVar[str | None] = "init_loss_scaling"
    window: ClassVar[str | None] = "incr_every_n_steps"
    growth: ClassVar[str | None] = "incr_ratio"
    backoff: ClassVar[str | None] = "decr_ratio"

    init_loss_scaling: float = 65536.0
    incr_ratio: float = 2.0
    decr_ratio: float = 0.5
    incr_every_n_steps: int = 2000
    decr_every_n_nan_or_inf: int = 1
    scale: float = None  # type: ignore[assignment]  # a float after __post_init__
    incr_count: int = 0
    decr_count: int = 0

    def __post_init__(self) -> None:
        need_float32("init_loss_scaling", self.init_loss_scaling)
        need_number("incr_ratio", self.incr_ratio)
        need_number("decr_ratio", self.decr_ratio)
        if not self.incr_ratio > 1:
            check_number("incr_ratio", self.incr_ratio, above=1)
        if not self.decr_ratio < 1:
            check_number("decr_ratio", self.decr_ratio, below=1)
        need_integer("incr_every_n_steps", self.incr_every_n_steps)
        need_integer("decr_every_n_nan_or_inf", self.decr_every_n_nan_or_inf)
        start = self.init_loss_scaling if self.scale is None else self.scale
        object.__setattr__(self, "scale", float32(start))

    def observe(self, gradients: Sequence[Array | None]) -> Observation:
        """Test every element of the unscaled gradients."""
        return observe_unscaled(gradients, Decision(True, self.scale, dtype=_DTYPE))

    def update(self, observation: Observation) -> tuple[PaddleScaler, Decision]:
        """Move the scale by one step."""
        need_check(observation)
        decision = Decision(apply=not observation.overflowed, divide_by=self.scale, dtype=_DTYPE)
        if observation.overflowed:
            following = self.moved(incr_count=0, decr_count=self.decr_count + 1)
            if following.decr_count == self.decr_every_n_nan_or_inf:
                following = following.moved(scale=multiply32(self.scale, self.decr_ratio), decr_count=0)
            return following, decision
        following = self.moved(decr_count=0, incr_count=self.incr_count + 1)
        if following.incr_count == self.incr_every_n_steps:
            following = following.moved(scale=multiply32(self.scale, self.incr_ratio), incr_count=0)
        return following, decision

    def framework_state(self) -> dict[str, Any]:
        """Give what ``GradScaler.state_dict()`` gives; the scale as a number, not as an array of one."""
        values = (
            self.scale,
            self.incr_ratio,
            self.decr_ratio,
            self.incr_every_n_steps,
            self.decr_every_n_nan_or_inf,
            self.incr_count,
            self.decr_count,
            True,
        )
        return dict(zip(_STATE, values, strict=True))

    def load_framework_state(self, state: Mapping[str, Any]) -> PaddleScaler:
        """Give this scaler with what ``GradScaler.state_dict()`` saved; the scale may be an array of one."""
        check_entries(state, _STATE, "GradScaler", "state_dict()")
        if not state["use_dynamic_loss_scaling"]:
            raise ValueError("use_dynamic_loss_scaling=False: its scale never moves; use a static scaler")
        return replace(
            self,
            scale=float(np.asarray(state["scale"]).reshape(-1)[0]),
            incr_ratio=float(state["incr_ratio"]),
            decr_ratio=float(state["decr_ratio"]),
            incr_every_n_steps=int(state["incr_every_n_steps"]),
            decr_every_n_nan_or_inf=int(state["decr_every_n_nan_or_inf"]),
            incr_count=int(state["incr_count"]),
            decr_count=int(state["decr_count"]),
        )
