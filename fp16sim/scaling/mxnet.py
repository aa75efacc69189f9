"""The dynamic rule of MXNet's amp.

Source: mxnet/contrib/amp/loss_scaler.py and amp.py, mxnet 1.9.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fp16sim.scaling.framework import check_entries
from fp16sim.scaling.numbers import need_integer, need_number
from fp16sim.scaling.protocol import Decision, Observation, need_check
from fp16sim.scaling.state import SavedScaler

__all__ = ["MxnetScaler"]

_LARGEST, _TINY = 2.0**128 - 2.0**104, 2.0**-126  # float32's largest and smallest normal values


@dataclass(frozen=True)
class MxnetScaler(SavedScaler):
    """Halve on overflow and skip; double after `scale_seq_len` finite steps; both take effect a step late.

    Parameters
    ----------
    loss_scale : float
        The initial scale. LossScaler takes no arguments; users set its attributes, named as here with an underscore
        before them.
    max_loss_scale : float
        The cap of growth. A larger scale falls to it at its next growth.
    scale_seq_len : int
        With 0, an overflow doubles and finite steps never grow, as the count is compared on every step.
    scale : float, optional
        State: the current scale. Default: `loss_scale`.
    next_loss_scale : float, optional
        State: the scale after the next step. Default: `scale`.
    unskipped : int
        State: finite steps since the last overflow or growth.

    Notes
    -----
    The scale is a Python float. A step takes up the scale that the step before it chose, then chooses the next: one
    overflow in a closed loop is followed by another at the same scale. Every element of the scaled gradients is tested;
    the optimizer multiplies by 1/scale, rounded to float32, and refuses one that overflows or underflows there: at
    2^-128 and less, and above 2^126, a finite step moves the scaler and is then an MXNetError, here a reason to stop.
    From 2^-1074 the scale becomes 0, and MXNet divides by it: a ZeroDivisionError, also a reason to stop. A skip leaves
    the optimizer as it was. Trainer saves nothing of the scaler: a restarted run begins with the initial scale.

    Violates: 1 (at a scale of 1/2, ``.``: a gradient that float32 holds only scaled is applied as infinite), 3 (no way
    out of 0), 5 (from 2^-1074, ``oo``), 6 (``oo`` at one scale is two halvings), 7 (with a window of 1, ``.o``: at the
    overflow the scale doubles), 9 (the scale doubles a step after the window), 10 (nothing is saved: ``o`` before a
    restart is forgotten), 11 (from 2^127, ``..``: after the first error every finite step is one).

    Examples
    --------
    >>> scaler = MxnetScaler()
    >>> for overflow in (True, True, False):
    ...     scaler, _ = scaler.update(Observation(overflow=overflow))
    ...     print(scaler.scale)
    65536.0
    32768.0
    16384.0
    """

    name: ClassVar[str] = "mxnet"
    options: ClassVar[tuple[str, ...]] = ("loss_scale", "max_loss_scale", "scale_seq_len")
    initial: ClassVar[str | None] = "loss_scale"
    window: ClassVar[str | None] = "scale_seq_len"

    loss_scale: float = 2.0**16
    max_loss_scale: float = 2.0**24
    scale_seq_len: int = 2000
    scale: float = None  # type: ignore[assignment]  # floats after __post_init__
    next_loss_scale: float = None  # type: ignore[assignment]
    unskipped: int = 0

    def __post_init__(self) -> None:
        need_number("loss_scale", self.loss_scale)
        need_number("max_loss_scale", self.max_loss_scale)
        need_integer("scale_seq_len", self.scale_seq_len)
        scale = float(self.loss_scale if self.scale is None else self.scale)
        object.__setattr__(self, "scale", scale)
        following = scale if self.next_loss_scale is None else float(self.next_loss_scale)
        object.__setattr__(self, "next_loss_scale", following)

    def update(self, observation: Observation) -> tuple[MxnetScaler, Decision]:
        """Move the scale by one step."""
        need_check(observation)
        if self.scale == 0:
            reason = "mxnet divides by the loss scale, which is 0: ZeroDivisionError"
            return self, Decision(apply=False, divide_by=1.0, stop=reason)
        decision = Decision(apply=not observation.overflowed, divide_by=self.scale)
        reciprocal = abs(1.0 / self.scale)
        if decision.apply and (reciprocal > _LARGEST or 0 < reciprocal < _TINY):
            reason = f"mxnet's optimizer refuses 1/{self.scale}, which is no normal float32 value: MXNetError"
            decision = Decision(apply=False, divide_by=self.scale, stop=reason)
        scale = following = self.next_loss_scale
        unskipped = self.unskipped + 1
        if observation.overflowed:
            following, unskipped = scale / 2.0, 0
        if unskipped == self.scale_seq_len:
            following, unskipped = float(min(self.max_loss_scale, scale * 2.0)), 0
        return self.moved(scale=scale, next_loss_scale=following, unskipped=unskipped), decision

    def framework_state(self) -> dict[str, Any]:
        """Give nothing: MXNet saves nothing of it."""
        return {}

    def load_framework_state(self, state: Mapping[str, Any]) -> MxnetScaler:
        """Give a new scaler with these options, as a restarted run has it."""
        check_entries(state, (), "LossScaler", "nothing")
        start = float(self.loss_scale)
        return replace(self, scale=start, next_loss_scale=start, unskipped=0)
