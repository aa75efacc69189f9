"""At its floor or its top the scale stays, and all else is as if it had moved: property 14."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fp16sim.testing.case import Case
from fp16sim.testing.checks.check import Check
from fp16sim.testing.histories import FINITE, OVERFLOW
from fp16sim.testing.search import search
from fp16sim.testing.walk import Fault, NotApplicable, Walk, told_apart, usable, written

__all__ = ["CHECKS"]

_LONGEST_FUTURE = 25_000
_MOST_AT_THE_FLOOR, _LONG = 12, 2000


def clamp_leaves_other_state_alone(case: Case) -> None:
    """More overflows at the floor, or more finite steps at the top, do not change when the scale moves later.

    At the floor: the scales over the finite steps that follow are the same however many overflows came after the
    first one there. At the top: those after an overflow are the same however many finite steps came before it.
    """
    compared = _Compared(case)
    if usable(case.profile.floor):
        _at_the_floor(case, compared)
    _at_the_top(case, compared)
    if not compared.any:
        raise NotApplicable("it shows no floor that it stays at, nor a top within reach")


class _Compared:
    """Compares the scales after two histories, over the finite steps that follow."""

    def __init__(self, case: Case) -> None:
        self.case, self.any = case, False
        windows = 1 if case.has_long_window else 2
        self.least, self.most = windows * (case.profile.window or 3) + 2, _LONGEST_FUTURE
        if case.profile.window is None:
            self.most = self.least

    def future(self, history: str) -> list[float] | None:
        """Give the scales after a history and over the finite steps that follow; None if it stops.

        They are those of two windows, or of one that is long for a dear scaler, or more until the scale grows.
        """
        walk = self._at(history)
        if walk is None:
            return None
        scales = [walk.scale()]
        while len(scales) <= self.least or (len(scales) <= self.most and not scales[-1] > scales[0]):
            stop = walk.tell(FINITE).stop
            scales.append(walk.scale())
            if stop:
                break
        if not max(scales) > scales[0]:
            self.most = self.least  # it will not grow the next time either
        return scales[: self.most + 1]

    def other(self, history: str, expected: list[float], without: str, clamped: bool = False) -> None:
        """Walk another history, and expect the same future; `without` is what tells them apart.

        If it is `clamped` only where the scale after the history is the same.
        """
        walk = self._at(history)
        if walk is None or (clamped and walk.scale() != expected[0]):
            return
        self.any = True
        for step, scale in enumerate(expected):
            stop = walk.tell(FINITE).stop if step else None
            if walk.scale() != scale and scale == scale:  # not NaN, which is the business of another check
                now, other = told_apart(walk.scale(), scale)
                raise walk.fault(f"the scale is {now}; without {without} it is {other}")
            if stop:
                return

    def _at(self, history: str) -> Walk | None:
        walk = self.case.walk()
        told = walk.tell_all(history)
        return None if told is not None and told.stop else walk


def _at_the_floor(case: Case, compared: _Compared) -> None:
    floor = case.profile.floor

    def reached(beginning: str) -> str | None:
        """Give the beginning with the overflows that take the scale to its floor, at least one."""
        walk = case.walk()
        told = walk.tell_all(beginning)
        if told is not None and told.stop:
            return None
        for _ in range(case.profile.to_floor + len(beginning) + 2):
            if walk.tell(OVERFLOW).stop:
                return None
            if walk.scale() <= floor:
                return walk.history
        return None

    def examine(beginning: str, counts: Iterable[int], first: bool = True) -> None:
        history = reached(beginning)
        expected = None if history is None else compared.future(history)
        if history is None or expected is None:
            return
        faults = []
        for count in counts:
            last = f"{count} of the overflows" if count > 1 else "one of the overflows"
            without = f"{last} at the floor, {written(floor)},"
            try:
                compared.other(history + OVERFLOW * count, expected, without, clamped=True)
            except Fault as fault:
                if first:
                    raise
                faults.append(fault)
        if faults:
            raise min(faults, key=lambda fault: len(fault.history))

    if case.has_long_window:
        examine("", (1, _MOST_AT_THE_FLOOR))
        return
    counts: Iterable[int] = range(1, _MOST_AT_THE_FLOOR + 1)
    if compared.least > 200:  # so many steps to look at each time
        counts = (1, 2, _MOST_AT_THE_FLOOR)
    _shortest(examine, counts)

    from hypothesis import strategies as st

    def examine_pair(pair: tuple[str, int]) -> None:
        examine(pair[0], (pair[1],))

    beginnings = case.histories(FINITE + OVERFLOW, most_runs=3)
    search(
        st.tuples(beginnings, st.integers(1, _MOST_AT_THE_FLOOR)), examine_pair, max(3, case.examples // 5)
    )


def _shortest(examine: Callable[..., None], counts: Iterable[int]) -> None:
    """Raise the fault of the shortest history over all counts, if one of these has any: more may show it sooner."""
    try:
        examine("", counts)
    except Fault as fault:
        if len(fault.history) < _LONG:
            examine("", range(1, _MOST_AT_THE_FLOOR + 1), False)
        raise


def _at_the_top(case: Case, compared: _Compared) -> None:
    window, climb = case.profile.window or 1, case.to_top
    if climb is None:
        return
    walk = case.walk()
    walk.tell_all(FINITE * climb)
    highest = walk.scale()
    if not _stays(
        walk, 2 * window
    ):  # a scale that falls on finite steps, as one that follows the gradients may
        return
    lowered = OVERFLOW * max(case.profile.patience, 1)
    expected = compared.future(FINITE * climb + lowered)
    if expected is None or not usable(highest):
        return
    for count in (window, 2 * window):  # whole windows, after which a counter is where it was
        steps = f"{count} of the finite steps" if count > 1 else "one of the finite steps"
        history = FINITE * (climb + count) + lowered
        compared.other(history, expected, f"{steps} at the top, {written(highest)},")


def _stays(walk: Walk, steps: int) -> bool:
    """Whether finite steps leave the scale as it is, which is what makes it a top."""
    scale = walk.scale()
    for _ in range(steps):
        stop = walk.tell(FINITE).stop
        if walk.scale() != scale:
            return False
        if stop:
            break
    return True


CHECKS = (Check("clamp_leaves_other_state_alone", 14, clamp_leaves_other_state_alone),)
