"""The dynamic rule of Chainer.

Source: Chainer 7.8.1: chainer/optimizer.py (`Optimizer.loss_scaling`, `check_nan_in_grads`, `update_loss_scale`,
`GradientMethod.update`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fp16sim.scaling.framework import check_entries
from fp16sim.scaling.numbers import need_number
from fp16sim.scaling.powers import exp2
from fp16sim.scaling.protocol import Decision, Observation, need_check
from fp16sim.scaling.state import SavedScaler

__all__ = ["ChainerScaler"]

_LARGEST = 65504.0


@dataclass(frozen=True)
class ChainerScaler(SavedScaler):
    """Double at every step until the first overflow, from then on grow by 2^(1/interval); halve at an overflow.

    Parameters
    ----------
    interval : float
        1 or more: finite steps in which the scale doubles once it has overflowed.
    scale : float
        State: the current scale, 1 at the start, between 1 and 65504.
    overflowed : bool
        State: whether any step overflowed so far.

    Notes
    -----
    The scale is a Python float: every product is rounded to binary64. 2^(1/interval) is correctly
    rounded, as the GNU C library's ``pow`` gives it for every interval from 1 to 20,000. The scale is no power of two,
    nor do `interval` steps exactly double it: with 2 it is 2.0000000000000004.

    Gradients are tested scaled, element by element, and divided, not multiplied by a reciprocal, in their own format by
    the scale that multiplied the loss. A skip leaves the parameters alone, but the optimizer's count of steps `t`
    advances. Nothing of this is saved with the optimizer.

    Violates: 3 (at 1 overflows are skipped for ever), 8 (``o.``: the scale is no power of two; neither is the top,
    65504), 9 (it has no window: ``.`` grows), 10 (nothing is saved), 15 (a skip advances `t`).

    Examples
    --------
    >>> scaler = ChainerScaler(interval=2)
    >>> for letter in "o..o":
    ...     scaler, _ = scaler.update(Observation(overflow=letter == "o"))
    ...     print(scaler.scale)
    1.0
    1.4142135623730951
    2.0000000000000004
    1.0000000000000002
    """

    name: ClassVar[str] = "chainer"
    options: ClassVar[tuple[str, ...]] = ("interval",)
    window: ClassVar[str | None] = "interval"

    interval: float = 1000
    scale: float = 1.0
    overflowed: bool = False

    def __post_init__(self) -> None:
        need_number("interval", self.interval)
        if self.interval < 1:
            raise ValueError(f"interval={self.interval!r}: it must be 1 or more")

    def update(self, observation: Observation) -> tuple[ChainerScaler, Decision]:
        """Move the scale by one step."""
        need_check(observation)
        overflow = observation.overflowed
        ever = self.overflowed or overflow
        multiplier = 0.5 if overflow else exp2(1.0 / self.interval) if ever else 2.0
        scale = max(1.0, min(_LARGEST, self.scale * multiplier))
        decision = Decision(
            apply=not overflow,
            divide_by=self.scale,
            method="divide",
            dtype="tensor",
            advance=True,
        )
        return self.moved(scale=scale, overflowed=ever), decision

    def framework_state(self) -> dict[str, Any]:
        """Give an empty state: the optimizer saves `t` and `epoch`, nothing of its loss scale."""
        return {}

    def load_framework_state(self, state: Mapping[str, Any]) -> ChainerScaler:
        """Give this scaler, as nothing was saved.

        >>> ChainerScaler().load_framework_state({}).scale
        1.0
        """
        check_entries(state, (), "Optimizer", "nothing")
        return self
