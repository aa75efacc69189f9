"""A scaler that was saved and loaded goes on as one that was not: property 10."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from fp16sim.testing.case import Case
from fp16sim.testing.checks.applied import moderate
from fp16sim.testing.checks.check import Check
from fp16sim.testing.checks.sharing import Step, difference, need_states_of_their_own, same
from fp16sim.testing.histories import FINITE, LETTERS, NAN, OVERFLOW, RESTART, every
from fp16sim.testing.search import search
from fp16sim.testing.shortening import shortest_found
from fp16sim.testing.walk import ERRORS, NotApplicable, described, told_apart, written

__all__ = ["CHECKS"]

_UNMOVED = 64
_SPELLED = 400  # steps of the longest run, below which fewer histories are spelled out, with all their places


def checkpoint_round_trip(case: Case) -> None:
    """A new scaler that a state was loaded into goes on as the one that was saved, at any place of a history.

    Every way of saving that the scaler has is tried. Compared are the scale right after loading, and then at each step
    the scale, whether it was applied, and whether training stops; and what the gradient of a finite step right after
    loading is divided by. A state is one of its own: it stays as it was while the scaler that it was saved of goes on
    and is saved again, and while one that it was loaded into goes on, so that it can be loaded twice.
    """
    ways = _ways(case)
    if not ways:
        raise NotApplicable(
            "it has no way to save its state: define state_dict and load_state_dict, or to_json and from_state"
        )

    def examine(history: str) -> None:
        before, restart, after = history.partition(RESTART)
        if restart and RESTART not in after:
            _examine(case, ways, before + after, (len(before),))
            for way in ways:
                _divide(case, before, way)

    with shortest_found(examine):
        for history in every(FINITE + OVERFLOW, 5 if case.longest_run >= _SPELLED else 3):
            _examine(case, ways, history, range(len(history) + 1))
        for history, places in sorted(_directed(case), key=lambda each: len(each[0])):
            _examine(case, ways, history, places)
    need_states_of_their_own(case, ways)
    window = FINITE * min(case.profile.window or 1, case.longest_run)
    lowered = OVERFLOW * max(case.profile.patience, 1)
    with shortest_found(examine):
        for history in (*every(FINITE + OVERFLOW, 3), lowered + window):
            for way in ways:
                _divide(case, history, way)

    from hypothesis import strategies as st

    half = case.histories(LETTERS, most_runs=3)
    search(st.tuples(half, half).map(RESTART.join), examine, max(4, case.examples // 4))


def _ways(case: Case) -> tuple[str, ...]:
    walk = case.walk()
    try:
        return tuple(walk.driver.saved())
    except ERRORS as error:
        raise walk.fault(f"saving raised {described(error)}") from error


def _directed(case: Case) -> Iterator[tuple[str, Iterable[int]]]:
    """Give histories at whose end counters show, and where to save in them."""
    window, patience, floor = case.profile.window or 1, case.profile.patience, case.profile.to_floor
    lowered = OVERFLOW * max(patience, 1) + FINITE * window
    if case.has_long_window:
        yield lowered, (1, len(lowered) - 1)
    else:
        yield FINITE * window, (1,)
        yield lowered, sorted({1, len(lowered) - window + 1, len(lowered) - 1, len(lowered)})
        yield FINITE * (2 * window), sorted({2, max(window - 1, 1), window, window + 1, 2 * window - 1})
    for letter in (OVERFLOW, NAN):
        walk = case.walk()
        for _ in range(floor + _UNMOVED):  # to the floor, and to a stop there if there is one
            if walk.tell(letter).stop:
                break
        length = len(walk.letters)
        yield letter * (floor + 2), sorted({0, 1, floor, floor + 1})
        yield letter * (floor + 2) + FINITE * 3, (floor + 2,)
        yield letter * length, sorted({min(floor + 1, length), max(length - 2, 0), max(length - 1, 0)})


@dataclass
class _Track:
    """The steps of a walk that was never saved."""

    first: float
    steps: list[Step]


def _tracked(case: Case, history: str) -> _Track:
    walk = case.walk()
    track = _Track(walk.scale(), [])
    for letter in history:
        told = walk.tell(letter)
        track.steps.append((walk.scale(), told.applied, told.stop))
        if told.stop:
            break
    return track


def _examine(case: Case, ways: tuple[str, ...], history: str, places: Iterable[int]) -> None:
    track = _tracked(case, history)
    for place in places:
        if place < len(track.steps) or place == len(history) == len(track.steps):
            for way in ways:
                _restart(case, track, history[: len(track.steps)], place, way)


def _restart(case: Case, track: _Track, history: str, place: int, way: str) -> None:
    walk = case.walk()
    told = walk.tell_all(history[:place])
    if told is not None and told.stop:
        return
    before = track.steps[place - 1][0] if place else track.first
    walk.restart(way, case.made())
    if not same(walk.scale(), before):
        now, then = told_apart(walk.scale(), before)
        raise walk.fault(f"after saving and loading by {way} the scale is {now}; it was {then}")
    end = (
        place + 2 * _UNMOVED + (case.profile.window or 1) + case.profile.to_floor
    )  # after which all was seen
    for letter, (scale, applied, stop) in zip(history[place:end], track.steps[place:end], strict=True):
        given = walk.tell(letter)
        differs = difference((walk.scale(), given.applied, given.stop), (scale, applied, stop))
        if differs:
            raise walk.fault(f"after saving and loading by {way} {differs}")


def _divide(case: Case, history: str, way: str) -> None:
    """Take a step with gradients right after loading, and one of a scaler that was never saved."""
    one, other = case.walk(), case.walk()
    if any((told := walk.tell_all(history)) is not None and told.stop for walk in (one, other)):
        return
    one.restart(way, case.made())
    loaded, kept = one.take(FINITE, moderate), other.take(FINITE, moderate)
    if loaded.factor != kept.factor or loaded.applied is None or kept.applied is None:
        return  # a scale that differs, or a skip, shows without gradients
    if loaded.applied.tobytes() != kept.applied.tobytes():
        with np.errstate(all="ignore"):
            now, then = (
                float(each.given[0] / each.applied[0]) for each in (loaded, kept) if each.applied is not None
            )
        raise one.fault(
            f"after saving and loading by {way} a gradient multiplied by {written(loaded.factor)} is divided by "
            f"{told_apart(now, then)[0]}; without that by {told_apart(now, then)[1]}"
        )


CHECKS = (Check("checkpoint_round_trip", 10, checkpoint_round_trip),)
