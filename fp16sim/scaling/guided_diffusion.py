"""The dynamic rule of OpenAI's guided-diffusion, whose state is the binary logarithm of the scale.

Source: openai/guided-diffusion (commit 22e0df8): guided_diffusion/fp16_util.py (`MixedPrecisionTrainer`),
train_util.py (`TrainLoop`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fp16sim.autograd.arithmetic import Array
from fp16sim.scaling.framework import check_entries
from fp16sim.scaling.norms import float32_norm, observe_norm
from fp16sim.scaling.numbers import need_number
from fp16sim.scaling.powers import exp2
from fp16sim.scaling.protocol import Decision, Observation, need_check
from fp16sim.scaling.state import SavedScaler

__all__ = ["GuidedDiffusionScaler"]


@dataclass(frozen=True)
class GuidedDiffusionScaler(SavedScaler):
    """Halve at an overflow; multiply by 2^fp16_scale_growth at every finite step.

    Parameters
    ----------
    initial_lg_loss_scale : float
        Binary logarithm of the first scale.
    fp16_scale_growth : float
        Added to the logarithm at every finite step; 0 or less never grows.
    lg_loss_scale : float, optional
        State: binary logarithm of the scale, binary64. Default: `initial_lg_loss_scale`.

    Notes
    -----
    The logarithm is rounded at every step; the scale is 2 to it, correctly rounded. The GNU C library, which Python
    calls, is one unit in the last place off in 71 of the first 100,000 steps from the default. Nothing bounds the
    logarithm: at 1024 Python raises an OverflowError, here the scale is infinite and the decision stops.

    The Euclidean norm of the scaled gradients is computed in float32 for two groups, biases and other vectors, and
    matrices and beyond; a norm of either that is infinite or NaN is an overflow, as finite gradients above 1.8e19 are.
    Gradients are multiplied in float32 by the reciprocal of the scale that multiplied the loss. A skip leaves the
    optimizer alone, but the training loop counts the step and anneals the learning rate by it. The logarithm is in no
    checkpoint: a restart begins at the initial one.

    Violates: 1 (at 2^-128 or less, ``.``: the float32 reciprocal is infinite and is applied), 3 (at 0 every step
    overflows for ever), 4 (no maximum), 5 (no minimum: ``o`` 1,095 times), 8 (``.``: the scale is no power of two), 9
    (it has no window), 10 (nothing is saved: ``o``, a restart, and the scale is the initial one), 15
    (the loop counts a skipped step).

    Examples
    --------
    >>> scaler = GuidedDiffusionScaler()
    >>> for letter in "o..":
    ...     scaler, _ = scaler.update(Observation(overflow=letter == "o"))
    ...     print(scaler.lg_loss_scale, round(scaler.scale, 1))
    19.0 524288.0
    19.001 524651.5
    19.002000000000002 525015.3
    """

    name: ClassVar[str] = "guided_diffusion"
    options: ClassVar[tuple[str, ...]] = ("initial_lg_loss_scale", "fp16_scale_growth")
    initial: ClassVar[str | None] = "initial_lg_loss_scale"
    initial_is_exponent: ClassVar[bool] = True

    initial_lg_loss_scale: float = 20.0
    fp16_scale_growth: float = 1e-3
    lg_loss_scale: float = None  # type: ignore[assignment]  # a float after __post_init__

    def __post_init__(self) -> None:
        need_number("initial_lg_loss_scale", self.initial_lg_loss_scale)
        need_number("fp16_scale_growth", self.fp16_scale_growth)
        lg = self.initial_lg_loss_scale if self.lg_loss_scale is None else self.lg_loss_scale
        object.__setattr__(self, "lg_loss_scale", float(lg))

    @property
    def scale(self) -> float:
        """2 to the power of the logarithm."""
        return exp2(self.lg_loss_scale)

    def update(self, observation: Observation) -> tuple[GuidedDiffusionScaler, Decision]:
        """Move the logarithm by one step."""
        need_check(observation)
        scale = self.scale
        if math.isinf(scale):
            stop = f"OverflowError: 2 ** {self.lg_loss_scale!r} is beyond float64"
            return self, Decision(apply=False, divide_by=scale, stop=stop)
        step = -1.0 if observation.overflowed else self.fp16_scale_growth
        following = self.moved(lg_loss_scale=float(self.lg_loss_scale + step))
        return following, Decision(apply=not observation.overflowed, divide_by=scale, advance=True)

    def observe(self, gradients: Sequence[Array | None]) -> Observation:
        """Test the float32 norms of the scaled gradients of vectors and of matrices."""
        scale, squares = self.scale, 0.0
        for vectors in (True, False):
            group = [g for g in gradients if g is not None and (g.ndim <= 1) == vectors]
            norm = float(float32_norm(group))
            squares += norm * norm
        norm = math.sqrt(squares) / scale if scale else math.inf
        return observe_norm(gradients, norm, scale)

    def framework_state(self) -> dict[str, Any]:
        """Give an empty state: the logarithm is in no checkpoint."""
        return {}

    def load_framework_state(self, state: Mapping[str, Any]) -> GuidedDiffusionScaler:
        """Give this scaler, as nothing was saved.

        >>> GuidedDiffusionScaler().load_framework_state({}).lg_loss_scale
        20.0
        """
        check_entries(state, (), "MixedPrecisionTrainer", "nothing")
        return self
