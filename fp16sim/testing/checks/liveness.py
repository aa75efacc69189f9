"""A scaler finds a usable scale again, and says so if there is none: property 3, in three parts."""

from __future__ import annotations

from typing import Any

from fp16sim.testing.case import MOST_FINITE, Case, Profile
from fp16sim.testing.checks.check import Check
from fp16sim.testing.checks.closed import ClosedLoop, all_loops, closed_loops, overflows_down_to
from fp16sim.testing.histories import FINITE, NAN, OVERFLOW, every
from fp16sim.testing.search import search, shortest_run
from fp16sim.testing.shortening import shortest_found
from fp16sim.testing.values import ValueDriver
from fp16sim.testing.walk import Fault, Walk, usable, written

__all__ = ["CHECKS"]

_SLACK = 64
_MOST_UNREPORTED = 2500
_MOST_SINGLE, _LONGEST_GAP = 100, 50


def recovers_from_overflows(case: Case) -> None:
    """After any history a usable scale is reached and a step applied, and a scale that is too low grows again.

    After a drawn history the gradients have a constant peak; the largest usable scale lies between twice the floor and
    the top. With n overflows from the scale to a usable one, each backoff taking as many as the first did, or to the
    floor if that is more, and a growth window of W finite steps:

    - within 4 (n + W) + 64 steps one at a usable scale is applied. W is there for rules that go by the share of
      overflows among the steps since the last change, as fairseq's `tolerance` does: that many finite steps may count;
    - then, unless the scale is at its top, it grows within 4 W + 64 finite steps.

    A stop at a usable scale is an answer, and ends the history; one because the scale is 0 or infinite is not, nor one
    at the first overflow that lowers the scale, if lower ones follow. The history of a fault ends with the first step
    that changes nothing.
    """
    profile = case.profile
    if not profile.patience:
        raise _never_lowered(case)
    if profile.window is None:
        _need_growth(case)

    def examine(drawn: tuple[str, ClosedLoop], goes_up: bool = False) -> None:
        history, loop = drawn
        walk = case.walk()
        told = walk.tell_all(history)
        if told and told.stop:
            _need_usable(walk, told.stop)
        elif _comes_down(walk, loop, profile) and (goes_up or not case.has_long_window):
            _goes_up(walk, profile)

    loops = all_loops(profile)
    usual, lowest = loops[0], min(loops, key=lambda loop: loop.limit)
    for history in every(FINITE + OVERFLOW, 2):
        examine((history, usual))
    to_floor = profile.to_floor + 1
    shortest_run(lambda length: examine((OVERFLOW * length, usual), length == to_floor), to_floor)
    search(_with_loops(case), examine, case.examples_of(case.most_steps + (profile.window or 1)))
    examine((3 * (OVERFLOW * profile.patience + FINITE), lowest), True)
    if case.to_top and 2 * profile.floor <= profile.start <= profile.top:
        examine((FINITE * case.to_top, ClosedLoop(profile.start)))
    _need_a_second_try(case)


def _need_a_second_try(case: Case) -> None:
    """Refuse a stop where the scale was lowered for the first time, and there are lower ones."""
    walk = case.walk()
    told = walk.tell_all(FINITE + OVERFLOW * case.profile.patience)
    if told is None or not told.stop or len(walk.letters) <= case.profile.patience:
        return
    history, scale = walk.history, walk.scale()
    for _ in range(_SLACK):
        walk.tell(OVERFLOW)
        if walk.scale() < scale and usable(walk.scale()):
            what = f"it is {written(scale)}, then {written(walk.scale())}"
            raise Fault(
                history, f"training stops ({told.stop}), and going on lowers the scale further: {what}"
            )


def _with_loops(case: Case) -> Any:
    from hypothesis import strategies as st

    return st.tuples(case.histories(), closed_loops(case.profile))


def _comes_down(walk: Walk, loop: ClosedLoop, profile: Profile) -> bool:
    """Take steps until one at a usable scale is applied; False if the scaler stops first."""
    scale = walk.scale()
    ideal = max(overflows_down_to(loop.limit, scale, profile), profile.to_floor)
    bound = _SLACK + 4 * (ideal + (profile.window or 0))
    moved, skipped = len(walk.letters), 0
    for _ in range(bound):
        letter, told = loop.step(walk, scale)
        if told.stop:
            _need_usable(walk, told.stop)
            return False
        if letter == FINITE and usable(scale):
            if told.applied:
                return True
            skipped = skipped or len(walk.letters)
        before, scale = scale, walk.scale()
        if scale != before and (scale == scale or before == before):  # NaN after NaN is no move
            moved = len(walk.letters)
    if skipped:
        raise Fault(
            walk.history[:skipped], f"with {loop}, a finite step is skipped, as are all in {bound} steps"
        )
    if usable(scale):
        kept = f"with {loop}, the scale is {written(scale)} after {bound} steps more"
        raise Fault(walk.history[: moved + 1], kept)
    raise Fault(
        walk.history[:moved], f"the scale is {written(scale)}, and {bound} steps more give no usable one"
    )


def _need_usable(walk: Walk, stop: str) -> None:
    scale = walk.scale()
    if not usable(scale):
        raise walk.fault(f"the scale is {written(scale)} where training stops ({stop})")


def _goes_up(walk: Walk, profile: Profile) -> None:
    low = walk.scale()
    if not low < profile.top:
        return
    bound = _SLACK + 4 * profile.window if profile.window else MOST_FINITE
    begun = len(walk.letters)
    for _ in range(bound):
        if walk.tell(FINITE).stop:
            return
        scale = walk.scale()
        if scale > low:
            return
        low = min(low, scale)
    what = f"the scale is {written(low)}, below its top, and does not grow in {bound} finite steps"
    raise Fault(walk.history[:begun], what)


def _need_growth(case: Case) -> None:
    walk = case.walk()
    walk.tell_all(OVERFLOW * case.profile.patience)
    _goes_up(walk, case.profile)


def _never_lowered(case: Case) -> Fault:
    """Give the fault of a scaler whose scale no overflow lowers; raise what it does instead."""
    walk = case.walk()
    scale = walk.scale()
    for _ in range(_SLACK):
        stop = walk.tell(OVERFLOW).stop
        if stop:
            return walk.fault(f"training stops ({stop}) with the scale still {written(scale)}, never lowered")
    return Fault(OVERFLOW, f"the scale is {written(scale)}, and no overflow ever lowers it")


def repeated_overflows_lower_the_scale(case: Case) -> None:
    """Overflows that come again and again, with fewer finite steps between than let the scale grow, lower it.

    A pattern of a few steps is repeated: from the start if half of them are overflows, after a short drawn history if
    more are, so that rules which go by the share of overflows since the last change (fairseq's `tolerance`, up to 1/2)
    see enough of them. Within 64 + 4 (p + h) repetitions, with p the overflows that the first backoff took and h the
    length of the history, the scale is lower at the end of one, unless it is at its floor, or grows in between: then
    the finite steps are as many as a window. Where a hysteresis of N overflows in a row is claimed, fewer in a row are
    none that it need answer.
    """
    profile = case.profile
    if not profile.patience:
        raise _never_lowered(case)

    def examine(drawn: tuple[str, str]) -> None:
        history, pattern = drawn
        walk = case.walk()
        told = walk.tell_all(history)
        first = scale = walk.scale()
        if (told and told.stop) or not usable(first) or not first > profile.floor:
            return
        repeats = _SLACK + 4 * (profile.patience + len(history))
        for _ in range(repeats):
            for letter in pattern:
                told, before, scale = walk.tell(letter), scale, walk.scale()
                if told.stop or not usable(scale) or (letter == FINITE and scale > before):
                    return
            if scale < first:
                return
        shown = history + 3 * pattern
        what = f"{repeats} times {pattern!r} leave the scale at {written(scale)}; it was {written(first)}"
        raise Fault(shown, what)

    search(_with_patterns(case), examine, 100)


def _short_histories() -> Any:
    from fp16sim.testing.strategies.histories import overflow_histories

    return overflow_histories(most_runs=3, longest_run=6)


def _with_patterns(case: Case) -> Any:
    from hypothesis import strategies as st

    least = int(case.traits.get("hysteresis", 1))
    window = case.profile.window or MOST_FINITE
    half: list[str] = []
    more: list[str] = []
    for overflows in range(least, least + 3):
        for finite in range(min(overflows + 1, 4, window)):
            (half if finite == overflows else more).append(OVERFLOW * overflows + FINITE * finite)
    drawn = st.tuples(_short_histories(), st.sampled_from(more))
    return st.one_of(st.tuples(st.just(""), st.sampled_from(half)), drawn) if half else drawn


def endless_overflows_are_reported(case: Case) -> None:
    """Overflows for ever end in a stop: a reason in the decision, or an error of the framework's.

    After a short drawn history, 2,500 overflows in a row and as many again as it takes to the floor: MindSpore's
    manager, the most patient scaler known, raises after 1,000. The same with NaN, and where finite steps came between
    the overflows on the way to the floor. The history of a fault ends with the first overflow that changes nothing.

    Where it takes several overflows in a row at the floor, as many are no reason with finite steps between them: one
    less than let the scale grow, or 50.
    """
    bound = _MOST_UNREPORTED + case.profile.to_floor

    def examine(history: str, letter: str = OVERFLOW) -> None:
        walk = case.walk()
        told = walk.tell_all(history)
        if told and told.stop:
            return
        scale, moved = walk.scale(), len(walk.letters)
        for _ in range(bound):
            if walk.tell(letter).stop:
                return
            before, scale = scale, walk.scale()
            if scale != before and (scale == scale or before == before):
                moved = len(walk.letters)
        steps = "overflows" if letter == OVERFLOW else "steps with NaN"
        what = f"the scale stays {written(scale)}, and {bound} {steps} in a row bring no reason to stop"
        if isinstance(walk.driver, ValueDriver):
            what += '; give Decision(stop="why")'
        raise Fault(walk.history[: moved + 1], what)

    search(_short_histories(), examine, 12)
    examine("", NAN)
    with shortest_found(examine):
        examine(_down_by_single_steps(case))
    _single_ones_are_no_reason(case)


def _down_by_single_steps(case: Case) -> str:
    """Give the history that lowers the scale as far as it goes, with a finite step after each time."""
    walk, reached = case.walk(), ""
    lowest = walk.scale()
    while len(walk.letters) < _MOST_UNREPORTED:
        told = walk.tell_all(OVERFLOW * max(case.profile.patience, 1) + FINITE)
        if (told and told.stop) or not walk.scale() < lowest:
            break
        lowest, reached = walk.scale(), walk.history
    return reached


def _single_ones_are_no_reason(case: Case) -> None:
    """Refuse a stop at the floor that counts overflows which finite steps had made good."""
    floor = OVERFLOW * case.profile.to_floor
    walk = case.walk()
    told = walk.tell_all(floor + OVERFLOW * _MOST_SINGLE)
    in_a_row = len(walk.letters) - len(floor)
    if told is None or not told.stop or in_a_row < 2:
        return
    finite = min(max((case.profile.window or 1) - 1, 1), _LONGEST_GAP)
    walk = case.walk()
    walk.tell_all(floor)
    for _ in range(in_a_row):
        told = walk.tell(OVERFLOW)
        if told.stop:
            raise walk.fault(
                f"training stops ({told.stop}), with {finite} finite steps before each of the overflows at the "
                f"floor, {written(walk.scale())}, of which it takes {in_a_row} in a row"
            )
        told = walk.tell_all(FINITE * finite)
        if told is not None and told.stop:
            return


CHECKS = (
    Check("recovers_from_overflows", 3, recovers_from_overflows),
    Check("repeated_overflows_lower_the_scale", 3, repeated_overflows_lower_the_scale),
    Check("endless_overflows_are_reported", 3, endless_overflows_are_reported),
)
