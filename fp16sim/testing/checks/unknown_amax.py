"""Steps whose largest gradient nobody knows: `Observation.amax` may be None."""

from __future__ import annotations

from itertools import product

from fp16sim.testing.calls import is_clear
from fp16sim.testing.case import Case
from fp16sim.testing.histories import FINITE, LETTERS, OVERFLOW, every
from fp16sim.testing.values import ValueDriver
from fp16sim.testing.walk import Fault, Walk

__all__ = ["need_no_crash_without_amax"]

_EACH = 3
_FIELD = "amax"


def need_no_crash_without_amax(case: Case) -> None:
    """Tell a scaler of this package's protocol of steps without `amax`, as a simulation does.

    In histories of up to three steps each is told with it or without; then all without through a window, and past the
    floor. One that cannot do without says so: an error that names `amax`.

    Raises
    ------
    Fault
        On any other error.
    """
    if not isinstance(case.walk().driver, ValueDriver):
        return
    for history in every(LETTERS, _EACH):
        for known in product((True, False), repeat=len(history)):
            if not all(known):
                _tell(case, history, known)
    window, floor = case.profile.window or 1, case.profile.to_floor
    for history in (FINITE * (window + 1), OVERFLOW * (floor + 2), OVERFLOW + FINITE * (window + 1)):
        _tell(case, history, (False,) * len(history))


def _tell(case: Case, history: str, known: tuple[bool, ...]) -> None:
    walk = case.walk()
    for letter, is_known in zip(history, known, strict=True):
        try:
            if _stops(walk, letter, is_known):
                return
        except Fault as fault:
            error = fault.__cause__
            if error is not None and _FIELD in str(error) and (is_clear(error) or type(error) is TypeError):
                return
            where = "after a step with amax=None" if is_known else "where amax is None"
            remedy = "None is unknown; do without it, or raise ValueError('amax=None: ...')"
            raise walk.fault(f"{where} {fault.what}; {remedy}") from error


def _stops(walk: Walk, letter: str, known: bool) -> bool:
    if known:
        return walk.tell(letter).stop is not None
    with walk.calling(letter) as driver:
        assert isinstance(driver, ValueDriver)
        return driver.tell_without_amax(letter).stop is not None
