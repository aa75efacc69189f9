"""What a scaler does on one history: its scale step by step, to where it stops, raises or hangs."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fp16sim.scaling.one_scale import shown_scale
from fp16sim.scaling.outcomes import KINDS
from fp16sim.scaling.stepwise import History
from fp16sim.testing.case import Case
from fp16sim.testing.histories import FINITE, NAN, OVERFLOW
from fp16sim.testing.raised import described
from fp16sim.testing.walk import ERRORS, Fault, Hang, written
from fp16sim.testing.watchdog import watched

__all__ = ["Traced", "Unusable", "form_of", "traced"]

_KIND_OF = {letter: kind for kind, letter in enumerate((FINITE, OVERFLOW, NAN))}


@dataclass(frozen=True)
class Unusable:
    """A scale under which a finite gradient comes back infinite or NaN.

    Attributes
    ----------
    after : int
        The step after which the scaler shows it, counted from 1; 0 for the scale that it starts with.
    scale : float
    why : str
        Empty where the scale itself is zero, infinite or NaN.
    applied : list of int
        The finite steps, counted from 1, that are applied under a scale of this kind.
    """

    after: int
    scale: float
    why: str
    applied: list[int]


@dataclass(frozen=True)
class Traced:
    """The steps that a scaler took.

    Attributes
    ----------
    start : float or None
        The scale before the first step; None if there is none to read.
    scale, divide_by : sequence of float
        Of each step.
    applied : sequence of bool
    final : float or None
        The scale after the last step.
    unusable : tuple of Unusable
        The first of each kind.
    stop : str or None
        Why the last step stopped.
    error : str or None
        What the step after the last one, or the making of the scaler, raised, or that it does not return.
    """

    start: float | None
    scale: array[float]
    divide_by: array[float]
    applied: array[int]
    final: float | None
    unusable: tuple[Unusable, ...]
    stop: str | None
    error: str | None

    def after(self) -> list[float]:
        """Give the scale after each step."""
        return [] if self.final is None or not self.scale else [*self.scale[1:], self.final]


def form_of(make: Callable[[], Any], scaler: Any) -> Literal["one scale", "scales", "another"]:
    """Tell a scaler that can be traced from one that has several scales, and from objects of another form.

    Parameters
    ----------
    make : callable
        What made it.
    scaler : object
        One whose scale cannot be read counts as one that can be traced: the trace says what is wrong.

    Examples
    --------
    >>> from fp16sim.scaling import make
    >>> form_of(lambda: None, make("torch")), form_of(lambda: None, make("adaptive")), form_of(lambda: None, [])
    ('one scale', 'scales', 'another')
    """
    try:
        with watched(make):
            if hasattr(scaler, "scale_for") or isinstance(scaler.scale, Mapping):
                return "scales"
            if callable(scaler.scale) or not hasattr(scaler, "update"):
                return "another"
    except AttributeError:
        return "another"
    except (*ERRORS, Hang):
        pass
    return "one scale"


def traced(make: Callable[[], Any], history: str) -> Traced:
    """Make a scaler and take it through a history, as :func:`fp16sim.scaling.simulate` does with ``method="objects"``.

    Parameters
    ----------
    make : callable
        Makes a scaler that has one scale for all gradients.
    history : str
        A letter for each step, and no restart.

    Examples
    --------
    >>> from fp16sim.scaling import make
    >>> found = traced(lambda: make("torch", init_scale=2.0**-148), "ooo.")
    >>> found.start, found.after(), found.applied.tolist()
    (2.802596928649634e-45, [1.401298464324817e-45, 0.0, 0.0, 0.0], [0, 0, 0, 1])
    >>> found.unusable[1]
    Unusable(after=2, scale=0.0, why='', applied=[4])
    """
    found = _Trace()
    error = None
    with watched(make) as watch:
        try:
            found.begin(Case(make).made())
            for letter in history:
                found.take(letter)
                if found.history.stop >= 0:
                    break
        except Hang:
            error = watch.fault.what
        except Fault as fault:
            error = described(fault.__cause__ or fault)
        except ERRORS as raised:
            error = described(raised)
    return Traced(
        found.start,
        found.scale,
        found.divide_by,
        found.applied,
        found.now,
        found.unusable(),
        None if found.start is None else found.history.reason,
        error,
    )


class _Trace:
    """A trace on its way."""

    def __init__(self) -> None:
        self.start: float | None = None
        self.now: float | None = None
        self.scale, self.divide_by, self.applied = array("d"), array("d"), array("b")
        self._kinds: dict[str, Unusable] = {}
        self._why: str | None = None
        self._last: tuple[float, float, str] | None = None

    def begin(self, scaler: Any) -> None:
        self.history = History(scaler)
        self.start = self.now = shown_scale(scaler)

    def take(self, letter: str) -> None:
        assert self.now is not None  # begun
        kind = _KIND_OF[letter]
        scale, divide_by, applied, *_ = self.history.step(kind, self.now, KINDS[kind])
        now = shown_scale(self.history.scaler)
        why = self._harm(scale, divide_by)
        self.scale.append(scale)
        self.divide_by.append(divide_by)
        self.applied.append(applied)
        if why is not None and applied and letter == FINITE:
            self._kinds[why].applied.append(len(self.scale))
        self.now = now

    def _harm(self, scale: float, divide_by: float) -> str | None:
        """Say why a finite gradient would not come back finite, if so; the first scale of each kind is kept."""
        assert self.history.decision is not None  # a step was taken
        seen = (scale, divide_by, self.history.decision.method)
        if seen != self._last:
            self._last, self._why = seen, _harm(*seen)
            if self._why is not None and self._why not in self._kinds:
                self._kinds[self._why] = Unusable(len(self.scale), scale, self._why, [])
        return self._why

    def unusable(self) -> tuple[Unusable, ...]:
        if self.now is not None and self.history.decision is not None:
            self._harm(self.now, self.now)  # the next step, as far as it is known
        return tuple(self._kinds.values())


def _harm(scale: float, divide_by: float, method: str) -> str | None:
    """Say why a finite gradient would not come back finite; None if it does.

    A float32 gradient of 1 is multiplied and unscaled as :func:`fp16sim.scaling.unscale` does it, in NumPy's float32
    scalars: they need no kernel, which would take a second to load.
    """
    with np.errstate(all="ignore"):
        scaled, divisor = np.float32(scale), np.float64(divide_by)
        given = scaled / np.float32(divisor) if method == "divide" else scaled * np.float32(1.0 / divisor)
    if np.isfinite(given):
        return None
    if scale == 0 or not np.isfinite(scale):
        return ""
    if scaled == 0 or np.isinf(scaled):
        return f"{'infinite' if scaled else 'zero'} in float32"
    return "its reciprocal infinite in float32" if divide_by == scale else f"divided by {written(divide_by)}"
