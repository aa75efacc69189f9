"""Training goes on where nothing is wrong: a finite step is applied."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import numpy.typing as npt

from fp16sim.testing.case import Case
from fp16sim.testing.checks.check import Check
from fp16sim.testing.checks.edges import edges
from fp16sim.testing.checks.unknown_amax import need_no_crash_without_amax
from fp16sim.testing.histories import FINITE, LETTERS, OVERFLOW, RESTART, every
from fp16sim.testing.search import search
from fp16sim.testing.shortening import shortest_found
from fp16sim.testing.walk import ERRORS, Fault, Walk, usable, written

__all__ = ["CHECKS", "moderate"]

_LOWEST, _HIGHEST = 2.0**-100, 2.0**100
"""Scales at which nothing is near the ends of float32, nor is the reciprocal of the scale."""
_SHAPES = np.array([1.0, -1.6180339887498949])
_MOST_TAKEN = 100


def moderate(factor: float) -> npt.NDArray[np.float64]:
    """Give gradients on the other side of 1 from what they are after scaling: both fit float32, as do their squares.

    >>> moderate(65536.0).tolist()
    [0.00390625, -0.006320445268554277]
    """
    exponent = math.frexp(factor)[1] if usable(factor) else 0
    return _SHAPES * math.ldexp(1.0, -(exponent // 2))


def finite_steps_are_applied(case: Case) -> None:
    """A finite step at a usable scale, finite after unscaling too, is applied and does not stop training.

    From the start, after overflows and growths, at the floor and at the top, right after saving and loading, over some
    windows. What a second look at the unscaled gradients refuses counts as skipped. Scales below 2^-100 or above
    2^100 are not judged. A step whose `amax` is None, so unknown, may be refused with an error that names it, and is no
    crash.
    """
    examine = partial(_examine, case)
    with shortest_found(examine):
        for history in (*every(LETTERS, 4), *sorted(_directed(case), key=len)):
            examine(history)
    _after_restarts(case)
    need_no_crash_without_amax(case)
    search(case.histories(), examine, max(4, case.examples // 4))


def _directed(case: Case) -> tuple[str, ...]:
    """Give long histories: through windows, and past the floor and the top."""
    window, patience = case.profile.window or 1, max(case.profile.patience, 1)
    floor = OVERFLOW * case.profile.to_floor
    several = FINITE * min(3 * window + 2, case.longest_run)
    past_top = [FINITE * (case.to_top + window + 2) + OVERFLOW * patience + several] if case.to_top else []
    return several, OVERFLOW * patience + several, floor + FINITE, floor + OVERFLOW + several, *past_top


def _examine(case: Case, history: str) -> None:
    """Judge every finite step; take those with gradients that are at the edges of runs and windows."""
    walk, window = case.walk(), case.profile.window or 1
    scale, since, taken = walk.scale(), 0, 0
    for letter, edge in zip(history, edges(history), strict=True):
        counted = walk.driver.counted
        whole = edge or (since in (0, 1, window - 1) and taken < _MOST_TAKEN)
        if letter == FINITE and whole:
            taken += 1
            stop = _take(case, walk)
        else:
            told = walk.tell(letter)
            stop = told.stop
            if letter == FINITE and _judged(scale):
                _need_applied(walk, told.applied, stop, "", scale)
                _need_counted(walk, counted, scale)
        if stop:
            return
        before, scale = scale, walk.scale()
        since = since + 1 if letter == FINITE and scale == before else 0


def _take(case: Case, walk: Walk) -> str | None:
    """Take a finite step with gradients, and give the reason to stop if there is one."""
    counted = walk.driver.counted
    outcome = walk.take(FINITE, moderate)
    if _judged(outcome.factor) and np.isfinite(outcome.given).all():
        applied = outcome.applied is not None
        refused = not applied and "rechecks" in walk.driver.can and _told_applied(case, walk.history)
        _need_applied(
            walk, applied, outcome.stop, " by its check of unscaled gradients" * refused, outcome.factor
        )
        _need_counted(walk, counted, outcome.factor)
    return outcome.stop


def _need_applied(walk: Walk, applied: bool, stop: str | None, how: str, scale: float) -> None:
    if stop:
        raise walk.fault(f"training stops on a finite step at the scale {written(scale)}: {stop}")
    if not applied:
        raise walk.fault(f"a finite step at the scale {written(scale)} was skipped{how}")


def _need_counted(walk: Walk, before: int, scale: float) -> None:
    """Refuse an applied step after which learning rates that are warmed up, say, would be as before."""
    moved = walk.driver.counted - before
    if "counts" in walk.driver.can and moved < 1:
        how = f"went back by {-moved}" if moved else "did not move"
        raise walk.fault(
            f"a finite step at the scale {written(scale)} was applied, and the optimizer's counters {how}"
        )


def _told_applied(case: Case, history: str) -> bool:
    told = None if RESTART in history else case.walk().tell_all(history)
    return told is not None and told.applied


def _after_restarts(case: Case) -> None:
    """Take steps right after saving and loading; where that fails is the business of another check."""
    try:
        ways = tuple(case.walk().driver.saved())
    except ERRORS:
        return
    for way in ways:
        for history in every(FINITE + OVERFLOW, 2):
            walk = case.walk()
            told = walk.tell_all(history)
            if told is not None and told.stop:
                continue
            try:
                walk.restart(way, case.made())
            except Fault:
                continue
            for _ in range(3):
                if _take(case, walk):
                    break


def _judged(scale: float) -> bool:
    return _LOWEST <= scale <= _HIGHEST


CHECKS = (Check("finite_steps_are_applied", None, finite_steps_are_applied),)
