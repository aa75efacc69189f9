"""What a stop and a skip leave behind: properties 11 and 15."""

from __future__ import annotations

import builtins

import numpy as np

from fp16sim.testing.adapters.looks import CRASHES
from fp16sim.testing.case import Case
from fp16sim.testing.checks.check import Check
from fp16sim.testing.histories import FINITE, LETTERS, NAN, OVERFLOW, every
from fp16sim.testing.search import search
from fp16sim.testing.shortening import shortest_found
from fp16sim.testing.walk import Fault, NotApplicable, Walk, usable, written

__all__ = ["CHECKS"]

_LONGEST_BURST, _UNKNOWN_WINDOW = 2500, 64
_CRASHES = tuple(
    name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, CRASHES)
)
"""Errors that no scaler raises to say that training stops; FloatingPointError is one that some do."""


def goes_on_after_a_stop(case: Case) -> None:
    """Whoever ignores a stop, or catches it, can go on: no crash, finite steps are applied, a usable scale.

    A stop is a reason in the decision, or an error of the scaler. One whose text begins with the name of a crash, such
    as ZeroDivisionError, is a crash. In one row of overflows a stop may be said once, though the scalers that are known
    say it at each (fairseq, DeepSpeed, MindSpore's manager). After finite steps, one more than let the scale grow,
    overflows for ever end in a stop again: whoever went on, with other data, say, is not to skip them in silence.
    """
    seen = False

    def examine(history: str) -> None:
        nonlocal seen
        walk, reason, first = case.walk(), None, 0
        for letter in history:
            before = walk.scale()
            told = walk.tell(letter)
            stop = told.stop
            if reason is None and stop and not _works(before):
                return  # that it came so far is the business of another check
            seen = seen or stop is not None
            after = "" if reason is None else ", after a stop"
            if stop and str(stop).startswith(_CRASHES):
                raise walk.fault(f"the scaler crashed{after}: {stop}")
            if stop and reason is not None and letter == FINITE:
                raise walk.fault(f"training stops on a finite step{after}: {stop}")
            skipped = reason is not None and letter == FINITE and not told.applied and _works(before)
            if skipped and _applied_without(case, walk.history, first):
                raise walk.fault("a finite step is skipped, after a stop")
            if stop and reason is None:
                reason, first = stop, len(walk.letters)
            if reason is not None and not usable(walk.scale()):
                raise walk.fault(f"the scale is {written(walk.scale())}, after a stop")

    for history in every(LETTERS, 4):
        examine(history)
    for letter in (OVERFLOW, NAN):
        walk = case.walk()
        for _ in range(_LONGEST_BURST):
            before = walk.scale()
            if walk.tell(letter).stop:
                with shortest_found(examine):
                    for after in every(FINITE + OVERFLOW, 3):
                        examine(walk.history + after)
                if _works(before):
                    _need_a_second_stop(case, walk.history, letter)
                break
    search(case.histories(), examine, max(8, case.examples // 2))
    if not seen:
        raise NotApplicable("it never stops at a usable scale")


def _applied_without(case: Case, history: str, stopped: int) -> bool:
    """Whether the last of the finite steps at the end is applied where they come right before the step that stopped."""
    told = case.walk().tell_all(history[: stopped - 1] + history[len(history.rstrip(FINITE)) :])
    return told is not None and told.applied


def _need_a_second_stop(case: Case, stopped: str, letter: str) -> None:
    """Refuse silence about a second endless row; with one finite step before it, if that shows it as well."""
    fault = _silence(case, stopped + FINITE * ((case.profile.window or _UNKNOWN_WINDOW) + 1), letter)
    if fault is not None:
        raise _silence(case, stopped + FINITE, letter) or fault


def _silence(case: Case, history: str, letter: str) -> Fault | None:
    walk = case.walk()
    for each in history:
        if walk.tell(each).stop and each == FINITE:
            return None  # as it may, where the scale outgrew what is usable
    scale, moved, bound = walk.scale(), len(history), _LONGEST_BURST + case.profile.to_floor
    for _ in range(bound):
        if walk.tell(letter).stop:
            return None
        before, scale = scale, walk.scale()
        if scale != before:
            moved = len(walk.letters)
    steps = "overflows" if letter == OVERFLOW else "steps with NaN"
    what = f"after a stop, and finite steps, the scale stays {written(scale)}, and {bound} {steps} in a row bring no "
    return Fault(walk.history[: moved + 1], f"{what}second reason to stop; forget the first on a finite step")


def _works(scale: float) -> bool:
    """Whether a scale and its reciprocal are numbers in float32."""
    return usable(scale) and usable(1.0 / scale)


def skip_changes_nothing(case: Case) -> None:
    """A skipped step hands nothing to the optimizer, and moves none of its counters and schedules."""
    if "counts" not in case.walk().driver.can:
        raise NotApplicable("it does not show whether the optimizer's counters move")

    def examine(history: str) -> None:
        _skip_last(case.walk(), history)

    for history in every(LETTERS, 3):
        examine(history)
    window, floor = min(case.profile.window or 1, case.longest_run), case.profile.to_floor
    with shortest_found(examine):
        for beginning in sorted((FINITE * (window - 1), FINITE * window, OVERFLOW * (floor + 1)), key=len):
            for letter in (OVERFLOW, NAN):
                examine(beginning + letter)
    search(case.histories(), examine, max(8, case.examples // 2))


def _skip_last(walk: Walk, history: str) -> None:
    """Walk to the last step of a history that is no finite one, and look at that one."""
    history = history.rstrip(FINITE)
    if not history:
        return
    told = walk.tell_all(history[:-1])
    if told is not None and told.stop:
        return
    counted = walk.driver.counted
    applied = walk.take(history[-1]).applied
    if applied is not None:
        if np.isfinite(applied).all():  # what is not is the business of another check
            raise walk.fault(f"the optimizer was given {applied.ravel()[0]:g} in place of what is not finite")
        return
    moved = walk.driver.counted - counted
    if moved:
        raise walk.fault(f"the step was skipped, and the optimizer's counters moved by {moved}")


CHECKS = (
    Check("goes_on_after_a_stop", 11, goes_on_after_a_stop),
    Check("skip_changes_nothing", 15, skip_changes_nothing),
)
