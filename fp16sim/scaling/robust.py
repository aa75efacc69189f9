"""Our own rule: the smallest one that keeps every property that the frameworks' rules give up somewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np

from fp16sim.autograd.arithmetic import Array
from fp16sim.scaling.framework import check_entries
from fp16sim.scaling.protocol import Decision, Observation, need_check
from fp16sim.scaling.state import SavedScaler, check_number

__all__ = ["RobustScaler"]

_LARGEST = 2.0**128 - 2.0**103
"""From here on a number is infinite in float32: half an ulp above its largest one."""


@dataclass(frozen=True)
class RobustScaler(SavedScaler):
    """Halve on overflow and skip the step; double after `growth_interval` clean steps in a row; stay within bounds.

    Parameters
    ----------
    init_scale, min_scale, max_scale : float
        Powers of two between 2^-126 and 2^126, where the scale and its reciprocal are normal in float32; the first
        lies between the others.
    growth_interval : int
        The scale doubles on exactly that clean step; 1 or more.
    floor_patience : int
        Overflows in a row at `min_scale` after which the decision holds a reason to stop; 1 or more.
    scale : float, optional
        State: the current scale. Default: `init_scale`.
    clean_steps : int
        State: clean steps since the last overflow or growth.
    overflows_at_floor : int
        State: overflows in a row at `min_scale`.

    Notes
    -----
    A step is clean if no scaled gradient was infinite or NaN and, where `amax` is known, every unscaled one is finite
    in float32: at a scale below 1 a finite gradient may not stay so. Gradients that are all zero, or none at all, are
    clean: a scale that is too small must be able to grow. At `max_scale` the counter starts again and the scale stays;
    at `min_scale` the scale stays and every other number moves as it does elsewhere.

    Every product is of powers of two within the range of float32, hence exact, as is unscaling a gradient that does
    not become subnormal: gradients are multiplied by the reciprocal of the scale that multiplied the loss.

    An overflow in any group, rank or optimizer skips the step for all. After a skip the optimizer, its counters and
    the schedule are as before. `accepts` looks once more at what is about to be applied, after unscaling and clipping:
    a step that it refuses is observed again as an overflow.

    From `max_scale` it takes log2(max_scale / min_scale) overflows to the floor and `floor_patience` more to the stop;
    an update after that goes on from a state like any other.

    Violates: none.

    Examples
    --------
    >>> scaler = RobustScaler(init_scale=4.0, growth_interval=2, min_scale=2.0, floor_patience=1)
    >>> for overflow in (False, False, True, True, True):
    ...     scaler, decision = scaler.update(Observation(overflow=overflow))
    ...     print(scaler.scale, decision.apply, decision.divide_by, decision.stop is not None)
    4.0 True 4.0 False
    8.0 True 4.0 False
    4.0 False 8.0 False
    2.0 False 4.0 False
    2.0 False 2.0 True
    """

    name: ClassVar[str] = "robust"
    options: ClassVar[tuple[str, ...]] = (
        "init_scale",
        "growth_interval",
        "min_scale",
        "max_scale",
        "floor_patience",
    )
    initial: ClassVar[str | None] = "init_scale"
    window: ClassVar[str | None] = "growth_interval"

    init_scale: float = 2.0**16
    growth_interval: int = 2000
    min_scale: float = 2.0**-16
    max_scale: float = 2.0**64
    floor_patience: int = 25
    scale: float = None  # type: ignore[assignment]  # a float after __post_init__
    clean_steps: int = 0
    overflows_at_floor: int = 0

    def __post_init__(self) -> None:
        if self.scale is None:
            object.__setattr__(self, "scale", self.init_scale)
        for name in ("init_scale", "min_scale", "max_scale", "scale"):
            object.__setattr__(self, name, _power_of_two(name, getattr(self, name)))
        if self.min_scale > self.max_scale:
            raise ValueError(
                f"min_scale={self.min_scale:g}, max_scale={self.max_scale:g}: the minimum is not above the maximum"
            )
        for name in ("init_scale", "scale"):
            if not self.min_scale <= getattr(self, name) <= self.max_scale:
                raise ValueError(
                    f"{name}={getattr(self, name):g}: it lies between min_scale={self.min_scale:g} and "
                    f"max_scale={self.max_scale:g}; change it, or one of them"
                )
        for name in ("growth_interval", "floor_patience"):
            check_number(name, getattr(self, name), above=0, whole=True)
        check_number("clean_steps", self.clean_steps, above=-1, below=self.growth_interval, whole=True)
        check_number("overflows_at_floor", self.overflows_at_floor, above=-1, whole=True)

    def update(self, observation: Observation) -> tuple[RobustScaler, Decision]:
        """Move the scale by one step.

        Raises
        ------
        ValueError
            If nothing was checked.
        """
        need_check(observation)
        if not _is_clean(observation):
            following = self._after_overflow()
            stop = following._reason(observation.nan)
            return following, Decision(apply=False, divide_by=self.scale, stop=stop)
        return self._after_clean_step(), Decision(apply=True, divide_by=self.scale)

    def accepts(self, gradients: Sequence[Array | None]) -> bool:
        """Whether every unscaled gradient is finite: asked before the optimizer moves.

        >>> RobustScaler().accepts([np.float32([1.0]), None]), RobustScaler().accepts([np.float32([np.inf])])
        (True, False)
        """
        return all(gradient is None or bool(np.isfinite(gradient).all()) for gradient in gradients)

    def _after_clean_step(self) -> RobustScaler:
        if self.clean_steps + 1 < self.growth_interval:
            return self.moved(clean_steps=self.clean_steps + 1, overflows_at_floor=0)
        return self.moved(scale=min(self.scale * 2.0, self.max_scale), clean_steps=0, overflows_at_floor=0)

    def _after_overflow(self) -> RobustScaler:
        at_floor = self.overflows_at_floor + 1 if self.scale == self.min_scale else 0
        return self.moved(
            scale=max(self.scale / 2.0, self.min_scale), clean_steps=0, overflows_at_floor=at_floor
        )

    def _reason(self, nan: bool) -> str | None:
        if self.overflows_at_floor < self.floor_patience:
            return None
        what = "a gradient is NaN" if nan else "gradients overflow"
        return (
            f"{what} at the smallest loss scale, {self.min_scale:g}, {self.overflows_at_floor} steps in a row: no "
            "scale within the bounds cures this; lower the learning rate, or min_scale, or look for what is not finite"
        )

    def framework_state(self) -> dict[str, Any]:
        """Give the whole state, options included."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def load_framework_state(self, state: Mapping[str, Any]) -> RobustScaler:
        """Give the scaler whose :meth:`framework_state` was saved.

        >>> RobustScaler().load_framework_state(RobustScaler(init_scale=8.0).framework_state()).scale
        8.0
        """
        names = tuple(field.name for field in fields(self))
        check_entries(state, names, "RobustScaler", "framework_state()")
        return replace(self, **state)


def _is_clean(observation: Observation) -> bool:
    amax = observation.amax
    peaks = amax.values() if isinstance(amax, Mapping) else () if amax is None else (amax,)
    finite = all(peak < _LARGEST for peak in peaks)  # False for NaN
    return finite and not observation.nan and not observation.overflowed


def _power_of_two(name: str, value: Any) -> float:
    check_number(name, value, above=0)
    number = float(value)
    fraction, exponent = math.frexp(number)
    if fraction != 0.5:
        near = 2.0 ** min(max(exponent - (fraction < 0.75), -126), 126)
        raise ValueError(f"{name}={value!r}: it is a power of two, so that scaling is exact; pass {near:g}")
    if not 2.0**-126 <= number <= 2.0**126:
        raise ValueError(f"{name}={value!r}: it lies between 2^-126 and 2^126; pass a scale within these")
    return number
