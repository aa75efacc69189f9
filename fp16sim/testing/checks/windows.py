"""What a scaler counts: finite steps until it grows, overflows until it is lowered, and neither at a clamp.

Properties 9, 12 and 14.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain

from fp16sim.testing.case import Case
from fp16sim.testing.checks.check import Check
from fp16sim.testing.histories import FINITE, LETTERS, OVERFLOW, every
from fp16sim.testing.search import search
from fp16sim.testing.walk import Fault, NotApplicable, Walk, usable, written

__all__ = ["CHECKS"]

_LONGEST_FUTURE, _LONGEST_CLIMB = 25_000, 8_000
_MOST_AT_THE_FLOOR, _LONG = 12, 2000


def exact_window(case: Case) -> None:
    """The scale grows on exactly the claimed number of finite steps in a row, unless it is at its top.

    They are counted from the start, from the last overflow, and from the last growth.
    """
    interval, profile = int(case.traits["interval"]), case.profile
    if not profile.patience and profile.window is None:
        raise NotApplicable("its scale never moves")

    def examine(history: str) -> None:
        walk, in_a_row = case.walk(), 0
        before = walk.scale()
        for letter in history:
            stop = walk.tell(letter).stop
            after = walk.scale()
            in_a_row = in_a_row + 1 if letter == FINITE else 0
            if in_a_row and after > before and in_a_row != interval:
                raise walk.fault(
                    f"the scale grew from {written(before)} to {written(after)} on finite step {in_a_row} in a row; "
                    f"the interval that is claimed is {interval}"
                )
            if in_a_row == interval:
                if not after > before and usable(before) and before < profile.top:
                    missed = walk.fault(
                        f"the scale did not grow from {written(before)} on finite step {in_a_row} in a row, the "
                        "interval that is claimed"
                    )
                    if stop or _grows_later(walk, 2 * max(interval, profile.window or 1) + 2):
                        raise missed
                    return  # that it never does is the business of another check
                in_a_row = 0
            if stop:
                return
            before = after

    window, lowered = FINITE * interval, OVERFLOW * max(profile.patience, 1)
    beginnings = ("", lowered, window, FINITE * (interval - 1) + lowered, OVERFLOW * (profile.to_floor + 1))
    directed = (
        *(beginning + window for beginning in beginnings),
        *(beginning + FINITE + OVERFLOW + window + FINITE for beginning in beginnings[-1:]),
        window * 2 + FINITE,
    )
    _in_order(examine, every(FINITE + OVERFLOW, 6), sorted(directed, key=len))
    search(case.histories(), examine, max(8, case.examples // 2))


def _grows_later(walk: Walk, steps: int) -> bool:
    before = walk.scale()
    for _ in range(steps):
        stop = walk.tell(FINITE).stop
        if walk.scale() > before or stop:
            return walk.scale() > before
    return False


def hysteresis_counts_consecutive_overflows(case: Case) -> None:
    """The scale is lowered by the claimed number of overflows in a row, and by no fewer; a finite step ends the row.

    After that number every overflow may lower it, or only each further time that as many have come.
    """
    hysteresis, profile = int(case.traits["hysteresis"]), case.profile
    if not profile.patience:
        raise NotApplicable("no overflows lower its scale")

    def examine(history: str) -> None:
        walk, in_a_row = case.walk(), 0
        before = walk.scale()
        for letter in history:
            stop = walk.tell(letter).stop
            after = walk.scale()
            in_a_row = 0 if letter == FINITE else in_a_row + 1
            if in_a_row and after < before and in_a_row < hysteresis:
                raise walk.fault(
                    f"the scale was lowered from {written(before)} to {written(after)} by overflow {in_a_row} in a "
                    f"row; the number that is claimed is {hysteresis}"
                )
            if in_a_row == hysteresis and after == before and usable(before) and before > profile.floor:
                raise walk.fault(
                    f"the scale stays at {written(before)} on overflow {in_a_row} in a row, the number that is claimed"
                )
            if stop:
                return
            before = after

    enough, too_few = OVERFLOW * hysteresis, OVERFLOW * (hysteresis - 1) + FINITE
    directed = (enough, too_few * 2 + OVERFLOW, too_few * 2 + enough, enough + FINITE + enough)
    _in_order(examine, every(FINITE + OVERFLOW, 6), every(LETTERS, 4), sorted(directed, key=len))
    search(case.histories(), examine, max(8, case.examples // 2))


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
        self.least, self.most = 2 * (case.profile.window or 3) + 2, _LONGEST_FUTURE
        if case.profile.window is None:
            self.most = self.least

    def future(self, history: str) -> list[float] | None:
        """Give the scales after a history and over the finite steps that follow; None if it stops.

        They are those of two windows, or more until the scale grows.
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
                raise walk.fault(
                    f"the scale is {written(walk.scale())}; without {without} it is {written(scale)}"
                )
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

    def examine(beginning: str, counts: Iterable[int]) -> None:
        history = reached(beginning)
        expected = None if history is None else compared.future(history)
        if history is None or expected is None:
            return
        for count in counts:
            last = f"{count} of the overflows" if count > 1 else "one of the overflows"
            without = f"{last} at the floor, {written(floor)},"
            compared.other(history + OVERFLOW * count, expected, without, clamped=True)

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


def _shortest(examine: Callable[[str, Iterable[int]], None], counts: Iterable[int]) -> None:
    """Raise the fault of the shortest history over all counts, if one of these has any: more may show it sooner."""
    try:
        examine("", counts)
    except Fault as fault:
        best = fault
    else:
        return
    for count in range(1, _MOST_AT_THE_FLOOR + 1) if len(best.history) < _LONG else ():
        try:
            examine("", (count,))
        except Fault as fault:
            best = min(best, fault, key=lambda found: len(found.history))
    raise best


def _at_the_top(case: Case, compared: _Compared) -> None:
    window = case.profile.window or 1
    walk, last_growth, highest = case.walk(), 0, case.profile.start
    for step in range(1, _LONGEST_CLIMB + 1):
        if walk.tell(FINITE).stop:
            return
        if walk.scale() > highest:
            highest, last_growth = walk.scale(), step
        if step - last_growth > 2 * window + 2:
            break
    else:
        return
    lowered = OVERFLOW * max(case.profile.patience, 1)
    expected = compared.future(FINITE * last_growth + lowered)
    if expected is None or not usable(highest):
        return
    for count in (window, 2 * window):  # whole windows, after which a counter is where it was
        steps = f"{count} of the finite steps" if count > 1 else "one of the finite steps"
        history = FINITE * (last_growth + count) + lowered
        compared.other(history, expected, f"{steps} at the top, {written(highest)},")


def _in_order(examine: Callable[[str], None], *histories: Iterable[str]) -> None:
    for history in chain(*histories):
        examine(history)


CHECKS = (
    Check("exact_window", 9, exact_window, trait="interval"),
    Check(
        "hysteresis_counts_consecutive_overflows",
        12,
        hysteresis_counts_consecutive_overflows,
        trait="hysteresis",
    ),
    Check("clamp_leaves_other_state_alone", 14, clamp_leaves_other_state_alone),
)
