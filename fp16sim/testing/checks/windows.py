"""What a scaler counts in a row: finite steps until it grows, overflows until it is lowered: properties 9 and 12."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain

from fp16sim.testing.case import Case
from fp16sim.testing.checks.check import Check
from fp16sim.testing.histories import FINITE, LETTERS, NAN, OVERFLOW, every
from fp16sim.testing.search import search
from fp16sim.testing.shortening import shortest_found
from fp16sim.testing.walk import NotApplicable, Walk, usable, written

__all__ = ["CHECKS"]


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
    floor = OVERFLOW * profile.to_floor
    beginnings = ("", lowered, window, FINITE * (interval - 1) + lowered, floor, floor + OVERFLOW)
    directed = (
        *(beginning + window for beginning in beginnings),
        *(beginning + FINITE + OVERFLOW + window + FINITE for beginning in beginnings[-1:]),
        FINITE * (interval - 1) + NAN * max(profile.patience, 1) + window,
        window * 4,
        *([FINITE * case.to_top + lowered + window] if case.to_top else []),
    )
    if interval > case.longest_run:  # so long are few
        directed = (lowered + window, FINITE * (interval - 1) + lowered + window, window * 2)
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
    window = min(
        profile.window or 1, case.longest_run
    )  # what counts from the last overflow may take two so far apart for none
    apart = tuple(enough + FINITE * steps + enough for steps in (1, max(window - 1, 1), window))
    directed = (enough, too_few * 2 + OVERFLOW, too_few * 2 + enough, *apart)
    _in_order(examine, every(FINITE + OVERFLOW, 6), every(LETTERS, 4), sorted(directed, key=len))
    search(case.histories(), examine, max(8, case.examples // 2))


def _in_order(examine: Callable[[str], None], *histories: Iterable[str]) -> None:
    with shortest_found(examine):
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
)
