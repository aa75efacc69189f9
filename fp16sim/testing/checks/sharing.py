"""A saved state is one of its own: it shares nothing with the scaler that was saved, nor with one that loaded it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace
from typing import Any

from fp16sim.testing.case import Case
from fp16sim.testing.checks.snapshots import Snapshot, snapshot
from fp16sim.testing.histories import FINITE, OVERFLOW, every, shown
from fp16sim.testing.walk import Fault, Walk, told_apart

__all__ = ["Step", "difference", "need_states_of_their_own", "same"]

Step = tuple[float, bool, str | None]
"""The scale after a step, whether it was applied, and a reason to stop."""

_FEW, _MEANWHILE, _LATER = 1, 2, 3
_LONGEST_ROW = 64
"""Overflows at the floor after which one that counts them stops."""


def need_states_of_their_own(case: Case, ways: Iterable[str]) -> None:
    """Load states late, and twice, and compare the steps after that with those of a state that was loaded at once.

    Meanwhile the scaler that was saved goes on, and is saved again; or one that the state was loaded into goes on. All
    histories are tried of up to one step before, two meanwhile, and three of a kind after. Then, of states whose value
    did change, others through a window, and at the floor.

    Raises
    ------
    Fault
        With the shortest history found.
    """
    for way in ways:
        if isinstance(case.walk().saved(way), (str, bytes)):  # nobody can change those
            continue
        fault = _first_fault(case, way, _short((FINITE * _LATER, OVERFLOW * _LATER)))
        if fault is not None:
            raise _first_fault(case, way, _short(every(FINITE + OVERFLOW, _LATER))) or fault
        fault = _first_fault(case, way, _long(case), only_if_changed=True)
        if fault is not None:
            raise fault


@dataclass(frozen=True)
class _Story:
    """The steps before a state is saved, those that a scaler takes meanwhile, and those after the state is loaded."""

    before: str
    meanwhile: str
    after: str

    @property
    def length(self) -> tuple[int, int]:
        """How long the history is that is shown, and the rest."""
        return len(self.before) + len(self.after), len(self.meanwhile)


def _short(after: Iterable[str]) -> list[_Story]:
    before, meanwhile = (tuple(every(FINITE + OVERFLOW, most)) for most in (_FEW, _MEANWHILE))
    return sorted(
        (_Story(*parts) for parts in product(before, meanwhile, after)), key=lambda story: story.length
    )


def _long(case: Case) -> Iterator[_Story]:
    window, patience = min(case.profile.window or 1, case.longest_run), max(case.profile.patience, 1)
    floor = OVERFLOW * (case.profile.to_floor + 1)
    for meanwhile in (max(window - 1, 1), window):
        yield _Story("", FINITE * meanwhile, FINITE)
    yield _Story("", FINITE, FINITE * window)
    yield _Story("", OVERFLOW, OVERFLOW * patience + FINITE * window)
    yield _Story(floor, OVERFLOW, OVERFLOW * _LONGEST_ROW)
    yield _Story(floor, FINITE, OVERFLOW * _LONGEST_ROW)


@dataclass(frozen=True)
class _Change:
    """What may change a state before it is loaded, in words and as calls."""

    when: str
    remedy: str
    happens: Callable[[Case, Walk, str, Any, str], None]


def _goes_on(case: Case, walk: Walk, way: str, state: Any, meanwhile: str) -> None:
    walk.tell_all(meanwhile)
    walk.saved(way)


def _is_taken_up(case: Case, walk: Walk, way: str, state: Any, meanwhile: str) -> None:
    walk.load(way, state, case.made())
    walk.tell_all(meanwhile)


_CHANGES = (
    _Change("loaded after the scaler went on{} and was saved again", "save a copy", _goes_on),
    _Change("loaded a second time, after the first went on{}", "load a copy", _is_taken_up),
)  # fmt: skip


def _first_fault(
    case: Case, way: str, stories: Iterable[_Story], only_if_changed: bool = False
) -> Fault | None:
    known: dict[tuple[str, str], list[Step]] = {}
    for story in stories:
        key = story.before, story.after
        if key not in known:
            known[key] = _loaded_at_once(case, way, *key)
        for change in _CHANGES:
            fault = _fault(case, way, story, change, known[key], only_if_changed)
            if fault is not None:
                return fault
    return None


def _loaded_at_once(case: Case, way: str, before: str, after: str) -> list[Step]:
    """Give the steps of a scaler whose state nothing can have changed; none where that is another check's business."""
    walk = case.walk()
    told = walk.tell_all(before)
    if told is not None and told.stop:
        return []
    with suppress(Fault):
        walk.restart(way, case.made())
        return list(_steps(walk, after))
    return []


def _fault(
    case: Case, way: str, story: _Story, change: _Change, expected: list[Step], only_if_changed: bool
) -> Fault | None:
    if not expected:
        return None
    walk = case.walk()
    walk.tell_all(story.before)
    state = walk.saved(way)
    as_it_was = _taken_down(state)
    with suppress(Fault):
        change.happens(case, walk, way, state, story.meanwhile)
    if only_if_changed and as_it_was is not None and as_it_was == _taken_down(state):
        return None
    walk.letters[:] = story.before
    when = change.when.format(f" ({shown(story.meanwhile)!r})" if story.meanwhile else "")
    try:
        walk.load(way, state, case.made())
        for own, other in zip(_steps(walk, story.after), expected, strict=False):
            differs = difference(own, other)
            if differs:
                raise walk.fault(differs)
    except Fault as found:
        fault = walk.fault(f"a state of {way}, {when}: {found.what}; {change.remedy}")
        fault.__cause__ = found.__cause__
        return fault
    return None


def _steps(walk: Walk, history: str) -> Iterator[Step]:
    """Give the scale now, and then each step up to a stop."""
    yield walk.scale(), True, None
    for letter in history:
        told = walk.tell(letter)
        yield walk.scale(), told.applied, told.stop
        if told.stop:
            return


def _taken_down(state: Any) -> Snapshot | None:
    """Give the value of a state; None where what it holds cannot be read, as on another device."""
    try:
        return snapshot(SimpleNamespace(state=state))
    except Exception:
        return None


def difference(own: Step, other: Step) -> str | None:
    """Say what differs between a step and one without saving and loading.

    >>> difference((4.0, True, None), (8.0, True, None)), difference((4.0, True, None), (4.0, True, None))
    ('the scale is 4; without that it is 8', None)
    """
    (scale, applied, stop), (other_scale, other_applied, other_stop) = own, other
    if not same(scale, other_scale):
        now, then = told_apart(scale, other_scale)
        return f"the scale is {now}; without that it is {then}"
    if applied != other_applied:
        words = ("skipped", "applied")
        return f"the step is {words[applied]}; without that it is {words[other_applied]}"
    if bool(stop) != bool(other_stop):
        if stop:
            return f"training stops ({stop}); without that it goes on"
        return f"training goes on; without that it stops ({other_stop})"
    return None


def same(one: float, other: float) -> bool:
    """Whether two scales are the same, as NaN and NaN are.

    >>> same(float("nan"), float("nan")), same(1.0, 2.0)
    (True, False)
    """
    return one == other or (one != one and other != other)
