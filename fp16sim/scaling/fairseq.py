"""The dynamic rules of fairseq and of metaseq, its descendant, whose window grows and shrinks with the scale.

Source: fairseq 0.12.2: fairseq/optim/dynamic_loss_scaler.py, fp16_optimizer.py, trainer.py; metaseq (main branch,
commit 0ba5657): metaseq/optim/dynamic_loss_scaler.py, fp16_optimizer.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from fp16sim.autograd.arithmetic import Array
from fp16sim.scaling.framework import check_entries
from fp16sim.scaling.norms import float32_norm, observe_norm
from fp16sim.scaling.numbers import multiply32, need_integer, need_number
from fp16sim.scaling.protocol import Decision, Observation, need_check
from fp16sim.scaling.state import SavedScaler, check_number

__all__ = ["FairseqScaler", "MetaseqScaler"]

_MODULO_BY_ZERO = "ZeroDivisionError: modulo by the scale window, which is 0"
_NO_STEPS_SINCE = (
    "ZeroDivisionError: the share of overflows since the last rescale, 0 steps ago: the error of the step before was "
    "caught, and left the iteration where it was"
)


Kind = TypeVar("Kind", bound="_InFP16Optimizer")


class _InFP16Optimizer(SavedScaler):
    """What both rules share: how fairseq's optimizer looks at gradients, and that it saves the scale alone."""

    scale: float

    def observe(self, gradients: Sequence[Array | None]) -> Observation:
        """Test the norm of the scaled gradients, multiplied by 1 / scale, in float32."""
        return _observe(self.scale, gradients)

    def framework_state(self) -> dict[str, Any]:
        """Give what the optimizer's ``state_dict()`` says of the scale."""
        return {"loss_scale": self.scale}

    def load_framework_state(self: Kind, state: Mapping[str, Any]) -> Kind:
        """Give this scaler with the saved scale; its counters and its window stay what they are.

        >>> MetaseqScaler().load_framework_state({"loss_scale": 8.0}).current_window
        256.0
        """
        check_entries(state, ("loss_scale",), "FP16Optimizer", "state_dict() on the scale")
        return replace(self, scale=float(state["loss_scale"]))  # type: ignore[type-var]


@dataclass(frozen=True)
class FairseqScaler(_InFP16Optimizer):
    """Divide by the factor once the share of overflows reaches `tolerance`; multiply after `scale_window` steps.

    Parameters
    ----------
    init_scale : float
        Not 0. ``--fp16-init-scale``, whose default is 128.
    scale_factor : float
        Above 0. 1 leaves the scale alone; below 1 an overflow raises it.
    scale_window : int
        The scale grows on exactly that finite step; a negative one works as its magnitude. 0, which the command line
        gives to more than 16384 workers, stops at the first finite step (modulo by zero). ``--fp16-scale-window``,
        whose default is 2^14 / workers / update frequency, rounded down.
    tolerance : float
        An overflow lowers the scale if overflows / steps, both since the last change, reach it.
        ``--fp16-scale-tolerance``.
    threshold : float or None
        The scale is not lowered below it; overflows there are skipped for ever. ``--threshold-loss-scale``.
    min_loss_scale : float
        An overflow after which the scale is this or less stops training. ``--min-loss-scale``.
    scale : float, optional
        State: the current scale, binary64. Default: `init_scale`.
    iteration, last_overflow, last_rescale : int
        State: steps so far, and those of the last overflow and of the last change.
    overflows : int
        State: overflows since the last change.

    Notes
    -----
    The norm of all scaled gradients is computed in float32, multiplied by 1 / scale, and tested: finite gradients
    whose squares sum to more than float32 holds overflow as well (fairseq#4555). Gradients are multiplied in float32
    by the reciprocal of the scale that multiplied the loss.

    The stop at the minimum restores the scale and leaves the iteration where it is; the rest of the state has moved.
    So whoever catches fairseq's error gets a ZeroDivisionError at the next overflow. The norm of a step that was
    skipped is logged as 0, and its update is not counted. Only the scale is saved: a restart begins a new window.

    Violates: 3 (at `threshold`, ``oo`` moves nothing; at infinity every step overflows for ever), 4 (no maximum:
    infinite in the end with a window of 1 and ``.`` only), 7 (from 1 with a threshold of 2, ``o`` gives 2), 8 (other
    factors or bounds than powers of two), 10 (all counters are lost: with a window of 2, ``.``, a restart, ``.`` does
    not grow), 11 (``oo`` at the minimum, the first error caught). With a negative `min_loss_scale` also 5.

    Examples
    --------
    >>> scaler = FairseqScaler(init_scale=2.0, min_loss_scale=0.5)
    >>> for _ in range(2):
    ...     scaler, decision = scaler.update(Observation(overflow=True))
    ...     print(scaler.scale, decision.stop)
    1.0 None
    1.0 FloatingPointError: minimum loss scale reached (0.5)
    """

    name: ClassVar[str] = "fairseq"
    options: ClassVar[tuple[str, ...]] = (
        "init_scale",
        "scale_factor",
        "scale_window",
        "tolerance",
        "threshold",
        "min_loss_scale",
    )
    initial: ClassVar[str | None] = "init_scale"
    window: ClassVar[str | None] = "scale_window"
    growth: ClassVar[str | None] = "scale_factor"

    init_scale: float = 2.0**15
    scale_factor: float = 2.0
    scale_window: int = 2000
    tolerance: float = 0.0
    threshold: float | None = None
    min_loss_scale: float = 1e-4
    scale: float = None  # type: ignore[assignment]  # a float after __post_init__
    iteration: int = 0
    last_overflow: int = -1
    last_rescale: int = -1
    overflows: int = 0

    def __post_init__(self) -> None:
        _check_options(self)
        need_integer("scale_window", self.scale_window)

    def update(self, observation: Observation) -> tuple[FairseqScaler, Decision]:
        """Move the scale by one step."""
        need_check(observation)
        if not observation.overflowed:
            if not self.scale_window:
                return self, Decision(apply=True, divide_by=self.scale, stop=_MODULO_BY_ZERO)
            following = self.moved(iteration=self.iteration + 1)
            if (self.iteration - self.last_overflow) % self.scale_window == 0:
                grown = float(self.scale * self.scale_factor)
                following = following.moved(scale=grown, last_rescale=self.iteration)
            return following, Decision(apply=True, divide_by=self.scale)
        following, stop = _overflowed(self)
        if stop is None and following.scale <= self.min_loss_scale:
            following = following.moved(scale=self.scale)
            stop = f"FloatingPointError: minimum loss scale reached ({self.min_loss_scale})"
        if stop is None:
            following = following.moved(iteration=self.iteration + 1)
        return following, Decision(apply=False, divide_by=self.scale, stop=stop)


@dataclass(frozen=True)
class MetaseqScaler(_InFP16Optimizer):
    """As fairseq's rule, but the window is divided and multiplied along with the scale, and nothing stops.

    Parameters
    ----------
    init_scale : float
        Not 0. ``--fp16-init-scale``.
    scale_factor : float
        Above 0. It also multiplies the window at growth and divides it at an overflow.
    scale_window : int
        The window at the start. 0 stops at a finite step before the first overflow (modulo by zero).
        ``--fp16-scale-window``.
    tolerance : float
        An overflow lowers the scale if overflows / steps, both since the last change, reach it.
    threshold : float or None
        The scale is not lowered below it.
    min_loss_scale : float
        If the scale would fall below, it stays; the window has shrunk all the same. ``--min-loss-scale``.
    scale : float, optional
        State: the current scale, binary64. Default: `init_scale`.
    current_window : float, optional
        State: the window, from growth times the factor, or divided by it, rounded down and at least 1.
    iteration, last_overflow, last_rescale : int
        State: steps so far, and those of the last overflow and of the last change.
    overflows : int
        State: overflows since the last change.

    Notes
    -----
    Detection and unscaling are fairseq's (`FairseqScaler`). Overflows at the minimum take the window to 1, after which
    every finite step grows: from scale 1/32 to 1/4 in two steps (1, then 2). Only the scale is saved (metaseq#3), so a
    restart begins with the first window; the scale climbs all the more slowly the higher it is (metaseq#4).

    Violates: 3 (at the minimum ``oo`` moves no scale; at infinity every step overflows for ever), 4 (no maximum), 7
    (from 1 with a threshold of 2, ``o`` gives 2), 8 (other factors or bounds than powers of two), 9 (the window is
    another after each change), 10 (all counters and the window are lost), 14 (ten ``o`` at the minimum, then
    ``....``: the scale grows eightfold). Without a minimum also 5.

    Examples
    --------
    >>> scaler = MetaseqScaler(scale_window=2)
    >>> for letter in "oo...o.":
    ...     scaler, _ = scaler.update(Observation(overflow=letter == "o"))
    ...     print(scaler.scale, scaler.current_window)
    2.0 1.0
    1.0 1.0
    2.0 2.0
    4.0 4.0
    4.0 4.0
    2.0 2.0
    2.0 2.0
    """

    name: ClassVar[str] = "metaseq"
    options: ClassVar[tuple[str, ...]] = FairseqScaler.options
    initial: ClassVar[str | None] = "init_scale"
    window: ClassVar[str | None] = "scale_window"
    growth: ClassVar[str | None] = "scale_factor"

    init_scale: float = 4.0
    scale_factor: float = 2.0
    scale_window: int = 256
    tolerance: float = 0.0
    threshold: float | None = None
    min_loss_scale: float = 2.0**-5
    scale: float = None  # type: ignore[assignment]  # a float after __post_init__
    current_window: float = None  # type: ignore[assignment]  # a float after __post_init__
    iteration: int = 0
    last_overflow: int = -1
    last_rescale: int = -1
    overflows: int = 0

    def __post_init__(self) -> None:
        _check_options(self)
        need_integer("scale_window", self.scale_window)
        check_number("scale_window", self.scale_window)
        window = self.scale_window if self.current_window is None else self.current_window
        object.__setattr__(self, "current_window", float(window))

    def update(self, observation: Observation) -> tuple[MetaseqScaler, Decision]:
        """Move the scale and the window by one step."""
        need_check(observation)
        if not observation.overflowed:
            if not self.current_window:
                return self, Decision(apply=True, divide_by=self.scale, stop=_MODULO_BY_ZERO)
            following = self.moved(iteration=self.iteration + 1)
            if (self.iteration - self.last_overflow) % self.current_window == 0:
                following = following.moved(
                    scale=float(self.scale * self.scale_factor),
                    current_window=float(self.current_window * self.scale_factor),
                    last_rescale=self.iteration,
                )
            return following, Decision(apply=True, divide_by=self.scale)
        following, stop = _overflowed(self)
        if following.overflows == 0 and stop is None:  # the scale was lowered
            divided = self.current_window / self.scale_factor
            shrunk = max(math.floor(divided), 1) if math.isfinite(divided) else divided
            following = following.moved(current_window=float(shrunk))
        if following.scale < self.min_loss_scale:
            following = following.moved(scale=self.scale)
        if stop is None:
            following = following.moved(iteration=self.iteration + 1)
        return following, Decision(apply=False, divide_by=self.scale, stop=stop)


def _check_options(scaler: FairseqScaler | MetaseqScaler) -> None:
    need_number("init_scale", scaler.init_scale)
    if scaler.init_scale == 0:
        raise ValueError(
            f"init_scale={scaler.init_scale!r}: gradients are divided by it; pass another number than 0"
        )
    check_number("scale_factor", scaler.scale_factor, above=0)
    for option in ("tolerance", "min_loss_scale"):
        need_number(option, getattr(scaler, option))
    if scaler.threshold is not None:
        need_number("threshold", scaler.threshold)
    scale = scaler.init_scale if scaler.scale is None else scaler.scale
    object.__setattr__(scaler, "scale", float(scale))


def _overflowed(scaler: Any) -> tuple[Any, str | None]:
    """Give the state after an overflow, short of the minimum and of the iteration, and the reason to stop."""
    following = scaler.moved(last_overflow=scaler.iteration, overflows=scaler.overflows + 1)
    steps = scaler.iteration - scaler.last_rescale
    if steps == 0:
        return following, _NO_STEPS_SINCE
    if following.overflows / steps >= scaler.tolerance:
        lowered = scaler.scale / scaler.scale_factor
        if scaler.threshold is not None:
            lowered = max(lowered, scaler.threshold)
        following = following.moved(scale=float(lowered), last_rescale=scaler.iteration, overflows=0)
    return following, None


def _observe(scale: float, gradients: Sequence[Array | None]) -> Observation:
    with np.errstate(all="ignore"):
        reciprocal = float(np.float64(1.0) / np.float64(scale))
    return observe_norm(gradients, multiply32(reciprocal, float(float32_norm(gradients))), scale)
