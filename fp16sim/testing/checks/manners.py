"""What a loop may count on besides: steps without gradients are right, and nothing is changed in secret."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from fp16sim.scaling.protocol import Decision, Observation, checked_update, observe
from fp16sim.testing.case import Case
from fp16sim.testing.checks.check import Check
from fp16sim.testing.checks.edges import edges
from fp16sim.testing.checks.snapshots import Snapshot, snapshot
from fp16sim.testing.driver import GRADIENTS, PEAK, Array, Driver, Refusal, scaled
from fp16sim.testing.histories import FINITE, LETTERS, NAN, every
from fp16sim.testing.search import search
from fp16sim.testing.values import ValueDriver
from fp16sim.testing.walk import Fault, NotApplicable, Walk, usable, written

__all__ = ["CHECKS"]

_FEW_RUNS, _FEW_STEPS = 3, 2
_CRASHES = (ZeroDivisionError, AttributeError, LookupError, NameError, RecursionError)
_SEVERAL = np.array([1.0, -(2.0**-30), 0.0, -0.0])


def no_gradients_are_no_event(case: Case) -> None:
    """A step without any gradient is no crash and no overflow.

    The scale does not fall, or no further than at a finite step, and nothing that is not finite is applied
    (Lightning#7975).
    """

    def examine(history: str) -> None:
        walk, twin = case.walk(), case.walk()
        if not _both_at(walk, twin, history):
            return
        before, usual = walk.scale(), twin.take(FINITE)
        try:
            with walk.calling(FINITE) as driver:
                driver.zero_grad()
                applied = [driver.step(group) for group in driver.groups]
                stop = driver.update()
        except Fault as fault:
            if isinstance(fault.__cause__, Refusal):
                return
            raise walk.fault(f"without any gradient {fault.what}") from fault.__cause__
        for update in applied:
            if update is not None and not np.isfinite(update).all():
                raise walk.fault(f"without any gradient {update[~np.isfinite(update)][0]} was applied")
        if stop and not usual.stop:
            raise walk.fault(f"without any gradient the scaler stopped training: {stop}")
        _need_no_fall(walk, "without any gradient", before, twin)

    _all(case, examine)


def zero_gradients_are_finite(case: Case) -> None:
    """A step whose gradients are all zero counts as a finite step, and zeros are applied.

    A scale that is so small that every gradient vanishes could not grow otherwise. Looked at where the scale and its
    reciprocal are finite in float32.
    """

    def examine(history: str) -> None:
        walk, twin = case.walk(), case.walk()
        if not _both_at(walk, twin, history):
            return
        before, usual = walk.scale(), twin.take(FINITE)
        if not usable(before) or not usable(1.0 / before):
            return
        outcome = walk.take(FINITE, np.zeros(2))
        if not usable(outcome.factor):
            return
        if outcome.applied is None and usual.applied is not None:
            raise walk.fault("all gradients are zero, and the step was skipped")
        if outcome.applied is not None and np.any(outcome.applied != 0):
            raise walk.fault(f"all gradients are zero, and the optimizer was given {outcome.applied[0]}")
        if outcome.stop and not usual.stop:
            raise walk.fault(f"all gradients are zero, and the scaler stopped training: {outcome.stop}")
        _need_no_fall(walk, "where all gradients are zero", math.inf, twin)

    _all(case, examine)


def _all(case: Case, examine: Callable[[str], None], most: int = 100) -> None:
    """Go through all histories of up to two steps, and then through drawn ones."""
    for history in every(LETTERS, _FEW_STEPS):
        examine(history)
    search(case.histories(most_runs=_FEW_RUNS), examine, min(case.examples, most))


def _both_at(walk: Walk, twin: Walk, history: str) -> bool:
    """Bring two scalers to the end of a history; False if it ends at a stop before."""
    told = walk.tell_all(history), twin.tell_all(history)
    return not any(each is not None and each.stop for each in told)


def _need_no_fall(walk: Walk, where: str, before: float, twin: Walk) -> None:
    """Refuse a scale below both the one before and that of a twin that had a finite step."""
    after, usual = walk.scale(), twin.scale()
    if usual == usual and not after >= min(before, usual):
        raise walk.fault(
            f"{where} the scale became {written(after)}; after a usual finite step it is {written(usual)}"
        )


def unchecked_update_is_refused(case: Case) -> None:
    """An update of a step whose gradients nobody looked at is an error, and moves nothing."""
    if "unchecked" not in case.walk().driver.can:
        raise NotApplicable("it cannot be asked to update without a check")

    def examine(history: str) -> None:
        walk = case.walk()
        told = walk.tell_all(history)
        if told is not None and told.stop:
            return
        before = walk.scale()
        try:
            with walk.calling(FINITE) as driver:
                driver.zero_grad()
                stop = driver.update()
        except Fault as fault:
            if isinstance(fault.__cause__, _CRASHES):
                raise walk.fault(f"an update without a check is no clear error: {fault.what}") from fault
        else:
            if not stop:
                remedy = "; raise if not observation.checked" if isinstance(walk.driver, ValueDriver) else ""
                raise walk.fault(
                    f"an update without a check was taken: nobody had looked at the gradients{remedy}"
                )
        if (after := walk.scale()) != before and before == before:
            raise walk.fault(
                f"an update without a check was refused, and the scale went from {written(before)} "
                f"to {written(after)} all the same"
            )

    _all(case, examine)


def makes_a_new_scaler_each_time(case: Case) -> None:
    """The factory gives a new scaler at each call, which knows nothing of the others.

    The same frozen dataclass twice is as good as two. The kit needs this of a factory; so does every run after a first.
    """
    first, second = case.made(), case.made()
    frozen = getattr(getattr(type(first), "__dataclass_params__", None), "frozen", False)
    if first is second and not frozen:
        raise Fault(
            "", f"the factory gave the same {type(first).__name__} twice: make a new one at each call"
        )

    def examine(history: str) -> None:
        first, second = case.walk(), case.walk()
        expected = _scales(first, history)
        for which, walk in (("made before it took a step", second), ("made after that", case.walk())):
            for letter, scale in zip(history, expected, strict=False):
                walk.tell(letter)
                found = walk.scale()
                if found != scale and not (found != found and scale != scale):
                    raise walk.fault(
                        f"the scale of one scaler is {written(scale)} here, that of another, {which}, "
                        f"is {written(found)}"
                    )

    _all(case, examine, 12)


def _scales(walk: Walk, history: str) -> list[float]:
    """Give the scale after each step, up to a stop."""
    found = []
    for letter in history:
        stop = walk.tell(letter).stop
        found.append(walk.scale())
        if stop:
            break
    return found


def changes_nothing_it_is_given(case: Case) -> None:
    """A call leaves the scaler, the observation and the gradients as they were, and twice the same gives the same.

    Of the scalers whose `update` gives the next one.
    """
    if not isinstance(case.walk().driver, ValueDriver):
        raise NotApplicable("its update changes it, as those of other frameworks do")

    def examine(history: str) -> None:
        walk = case.walk()
        for letter, whole in zip(history, edges(history), strict=True):
            if not whole:
                if walk.tell(letter).stop:
                    return
                continue
            stop = None
            with walk.calling(letter) as driver:
                assert isinstance(driver, ValueDriver)
                found = next(_changes(driver, letter), None)
                if not found:
                    stop = driver.tell(letter).stop
            if found:
                raise walk.fault(found)
            if stop:
                return

    _all(case, examine)


def _changes(driver: ValueDriver, letter: str) -> Iterator[str]:
    """Say what the calls of a step change that they should not."""
    scaler = driver.scaler
    by_group = isinstance(scaler.scale, Mapping)
    gradients = _some_gradients(driver, letter)
    kept, before = [gradient.copy() for gradient in gradients], snapshot(scaler)
    observations = [_grouped(driver, letter, by_group)]
    if not by_group or hasattr(scaler, "observe"):
        observations.insert(0, observe(scaler, [*gradients, None]))
        yield from _differences("observe changed the scaler", before, scaler)
        yield from _written_into("observe", kept, gradients)
    for observation in observations:
        told, optional = snapshot(observation), observation is observations[-1] and not by_group
        first = _updated(scaler, observation, optional)
        if first is None:
            continue
        remedy = "; give the next one as a new object"
        yield from _differences("update changed the scaler that it was called on", before, scaler, remedy)
        yield from _differences("update changed the observation that it was given", told, observation)
        yield from _written_into("update", kept, gradients)
        second = checked_update(scaler, observation)
        for what, one, other in zip(("scalers", "decisions"), first, second, strict=True):
            yield from _differences(f"the same update twice gave two {what}", snapshot(one), other)
    if hasattr(scaler, "accepts"):
        scaler.accepts([*gradients, None])
        yield from _differences("accepts changed the scaler", before, scaler)
        yield from _written_into("accepts", kept, gradients)


def _updated(scaler: Any, observation: Observation, optional: bool) -> tuple[Any, Decision] | None:
    """Update, or give None if that is an error: a scaler that has one scale need not understand groups."""
    try:
        return checked_update(scaler, observation)
    except Exception:
        if optional:
            return None
        raise


def _some_gradients(driver: Driver, letter: str) -> list[Array]:
    """Give scaled gradients of several kinds that are what the letter says: a finite one, and the others."""
    factor = driver.factor(driver.groups[0])
    true = [_SEVERAL * PEAK, GRADIENTS[letter]]
    return [scaled(gradient, factor, dtype) for gradient in true for dtype in ("float32", "float16")]


def _grouped(driver: Driver, letter: str, by_group: bool) -> Observation:
    groups = driver.groups if by_group else ("a", "b")
    amax = PEAK if letter == FINITE else math.inf
    return Observation(
        overflow=dict.fromkeys(groups, letter != FINITE),
        nan=letter == NAN,
        amax=dict.fromkeys(groups, amax) if by_group else amax,
    )


def _differences(what: str, before: Snapshot, now: Any, remedy: str = "") -> Iterator[str]:
    for difference in before.differences(snapshot(now)):
        yield f"{what}: {difference}{remedy}"


def _written_into(call: str, kept: list[Array], gradients: list[Array]) -> Iterator[str]:
    for was, gradient in zip(kept, gradients, strict=True):
        if was.tobytes() != gradient.tobytes():
            yield f"{call} wrote into a gradient: {was.tolist()} became {gradient.tolist()}"


CHECKS = (
    Check("no_gradients_are_no_event", None, no_gradients_are_no_event),
    Check("zero_gradients_are_finite", None, zero_gradients_are_finite),
    Check("unchecked_update_is_refused", None, unchecked_update_is_refused, trait="checked"),
    Check("makes_a_new_scaler_each_time", None, makes_a_new_scaler_each_time),
    Check("changes_nothing_it_is_given", None, changes_nothing_it_is_given),
)
