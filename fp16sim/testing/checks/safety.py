"""What the optimizer is given: finite numbers, from which the scale that was multiplied in is divided out again.

Properties 1 and 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import partial

import numpy as np
import numpy.typing as npt

from fp16sim.scaling.protocol import Observation, checked_update, observe
from fp16sim.testing.case import Case
from fp16sim.testing.checks.applied import moderate
from fp16sim.testing.checks.check import Check
from fp16sim.testing.checks.edges import edges
from fp16sim.testing.driver import GRADIENTS, ONE_GROUP, PEAK, Array, Refusal
from fp16sim.testing.histories import FINITE, LETTERS, NAN, OVERFLOW, every
from fp16sim.testing.search import search
from fp16sim.testing.shortening import shortest_found
from fp16sim.testing.values import ValueDriver
from fp16sim.testing.walk import Fault, NotApplicable, Outcome, Walk, usable, written

__all__ = ["CHECKS"]

Floats = npt.NDArray[np.float64]

_SCALED = (1.0, 2.0**128 - 2.0**104, 2.0**60, -(2.0**-149), 2.0**-126)
"""Scaled gradients, all finite in float32: a usual one, the largest, one whose square is still finite, the smallest,
the smallest normal. Of the largest a scale below 1 makes what float32 does not hold (pytorch#99640)."""
_LONGEST_BURST = 200
_BAD = tuple(
    (letter, dtype, np.array(gradient))
    for dtype in ("float32", "float16")
    for letter, gradients in {
        OVERFLOW: ([math.inf], [-math.inf], [PEAK, math.inf], [-math.inf, PEAK], [math.inf, -math.inf]),
        NAN: ([math.nan], [PEAK, math.nan], [math.nan, PEAK]),
    }.items()
    for gradient in gradients
)
"""Gradients that are not finite: of either sign, in any place, cancelling in their sum."""
_MOST_TAKEN = 300
_LONG = (FINITE + OVERFLOW) * 1100

_TOLERANCE = 2.0**-20
"""The scaled gradient, the reciprocal of the scale and their product are rounded to float32, each by 2^-24 relative at
most; where the scale itself is a longer number, that is one more. Four of these are 2^-22."""


def applies_only_finite_updates(case: Case) -> None:
    """No infinity and no NaN reaches the optimizer, whatever the gradients were.

    Steps that overflow, in any element of a float32 or a float16 gradient, and finite scaled gradients from the
    smallest to the largest: at a scale below 1, at 0, or where the reciprocal of the scale is infinite, these are
    finite before they are unscaled, and not after.
    """
    from hypothesis import strategies as st

    for history in every(LETTERS, 3):
        for value in (None, _SCALED[0]):
            _finite(case, (history, [value]))
    _finite_wherever_it_is_bad(case)
    _finite_among_several(case)
    _finite_after_bursts(case)
    _finite_for_long(case)
    values = st.lists(st.sampled_from(_SCALED), min_size=1, max_size=3)
    search(st.tuples(case.histories(), values), partial(_finite, case), case.examples)
    _skipped_where_it_is_told(case)
    _finite_in_every_group(case)


def _finite_in_every_group(case: Case) -> None:
    """Give one of two groups the largest scaled gradient, at the lowest scale, and the other one a usual one."""
    driver, groups = case.walk().driver, ("a", "b")
    if "groups" not in driver.can or driver.groups != ONE_GROUP:
        return
    for large in groups:
        walk = case.walk(groups)
        told = walk.tell_all(OVERFLOW * case.profile.to_floor)
        if told is not None and told.stop:
            return
        with walk.calling(FINITE) as driver:
            driver.zero_grad()
            factors = {group: driver.factor(group) for group in groups}
            true = {group: _gradient(FINITE, _SCALED[group == large], factors[group]) for group in groups}
            driver.backward(true)
            given = {group: driver.gradient(group) for group in groups}
            applied = {group: driver.step(group) for group in groups}
            driver.update()
        for group, scaled in given.items():
            if scaled is not None:
                _need_finite(walk, Outcome(factors[group], scaled, applied[group], None), true[group])


def _skipped_where_it_is_told(case: Case) -> None:
    """Tell a scaler of an overflow that no `amax` shows, as after a look at unscaled gradients that `accepts` refused.

    Whoever goes by `amax` instead may refuse to be told of none.
    """
    for amax, shown in ((None, "without amax"), (PEAK, f"with amax={PEAK:g}")):
        walk = case.walk()
        driver = walk.driver
        if not isinstance(driver, ValueDriver) or isinstance(driver.scaler.scale, Mapping):
            return
        applies = False
        with walk.calling(OVERFLOW), suppress(TypeError, ValueError, AttributeError):
            _, decision = checked_update(driver.scaler, Observation(overflow=True, amax=amax))
            applies = bool(decision.apply) and not decision.stop
        if applies:
            raise walk.fault(f"told of an overflow {shown}, the scaler says to apply the step")


def _finite_after_bursts(case: Case) -> None:
    """Go down scale by scale, the shortest burst first, and look at all the gradients there."""
    for length in range(min(case.profile.to_floor + 1, _LONGEST_BURST) + 1):
        burst = OVERFLOW * length
        try:
            _finite(case, (burst + FINITE * len(_SCALED), list(_SCALED)), length)
        except Fault:
            for value in _SCALED:  # one of them will do
                _finite(case, (burst + FINITE, [value]), length)
            raise


def _finite_wherever_it_is_bad(case: Case) -> None:
    for letter, dtype, gradient in _BAD:
        walk = case.walk()
        try:
            outcome = walk.take(letter, gradient, dtype)
        except Fault as fault:
            if isinstance(fault.__cause__, Refusal):  # torch refuses to unscale float16 gradients
                continue
            raise
        _need_finite(walk, outcome, gradient)


def _finite_among_several(case: Case) -> None:
    """Let a scaler that observes the gradients itself look at several, as those of a model's parameters."""
    usual = GRADIENTS[FINITE].astype(np.float32)
    for letter in (OVERFLOW, NAN):
        bad = GRADIENTS[letter].astype(np.float32)
        for several in ([usual, bad], [bad, usual], [None, usual, bad]):
            walk = case.walk()
            if not isinstance(walk.driver, ValueDriver) or not hasattr(walk.driver.scaler, "observe"):
                return
            scaler, gradients = walk.driver.scaler, deepcopy(several)
            if isinstance(scaler.scale, Mapping):  # each group is observed alone
                return
            with walk.calling(letter):
                _, decision = checked_update(scaler, observe(scaler, gradients))
                applied = decision.apply and not decision.stop
                applied = applied and getattr(scaler, "accepts", lambda given: True)(gradients)
            if applied and not all(each is None or np.isfinite(each).all() for each in gradients):
                raise walk.fault(
                    f"the scaled gradients were {_listed(gradients)}, and the step was not skipped"
                )


def _finite_for_long(case: Case) -> None:
    """Tell of many steps, and take the first overflow that is applied, if there is one, with its gradient.

    What counts steps alone shows the same after finite ones, which is a history that is shorter to read.
    """
    walk = case.walk()
    for letter in _LONG[: len(_LONG) // case.cost]:
        told = walk.tell(letter)
        if letter == OVERFLOW and told.applied:
            with shortest_found(last := partial(_finite_at_the_end, case)):
                for history in (FINITE * (len(walk.letters) - 1) + OVERFLOW, walk.history):
                    last(history)
            return
        if told.stop:
            return


def _finite_at_the_end(case: Case, history: str) -> None:
    _finite(case, (history, [_SCALED[0]]), len(history) - 1)


def _finite(case: Case, drawn: tuple[str, Sequence[float | None]], told: int = 0) -> None:
    """Look at what is applied, at the edges of runs after the first steps, of which the scaler is told only.

    The values are those of scaled gradients; None is the true gradient 1, which float32 holds whatever the scale is.
    """
    history, values = drawn
    walk = case.walk()
    for place, (letter, whole) in enumerate(zip(history, edges(history), strict=True)):
        if place < told or not (whole or told):
            if walk.tell(letter).stop:
                return
            continue
        true: Callable[[float], Floats] = partial(_gradient, letter, values[(place - told) % len(values)])
        outcome = walk.take(letter, true)
        _need_finite(walk, outcome, true(outcome.factor))
        if outcome.stop:
            return


def _gradient(letter: str, scaled: float | None, factor: float) -> Floats:
    """Give the true gradient that is `scaled` after it was multiplied by the factor."""
    if letter != FINITE:
        return GRADIENTS[letter]
    if scaled is None:
        return np.array([1.0])
    return np.array([scaled / factor if usable(factor) else scaled])


def _need_finite(walk: Walk, outcome: Outcome, true: Floats) -> None:
    if outcome.applied is None or np.isfinite(outcome.applied).all():
        return
    place = int(np.argmin(np.isfinite(outcome.applied)))
    applied, given = float(outcome.applied[place]), float(outcome.given[place])
    if math.isfinite(given):
        how = (
            f"a gradient of {true[place]:g} times the scale {written(outcome.factor)} is {given:g}, "
            f"and unscaling made {applied} of that{_remedy(walk, outcome.factor)}"
        )
    else:
        kind, shown = outcome.given.dtype, given if outcome.given.size == 1 else outcome.given.tolist()
        dtype = "" if kind == np.float32 else f"{kind} "
        how = f"the scaled {dtype}gradient was {shown}, and the step was not skipped"
    raise walk.fault(f"the optimizer was given {applied}: {how}")


def _remedy(walk: Walk, factor: float) -> str:
    looks = (
        ["define accepts"]
        if isinstance(walk.driver, ValueDriver) and "rechecks" not in walk.driver.can
        else []
    )
    both = looks + ["keep the scale at 1 or more"] * (factor < 1)
    return "; " + ", or ".join(both) if both else ""


def rechecks_after_unscaling(case: Case) -> None:
    """What becomes infinite or NaN after unscaling, by a hook or by clipping, does not reach the optimizer."""
    from hypothesis import strategies as st

    driver = case.walk().driver
    if "rechecks" not in driver.can and "rechecks" not in case.traits:
        remedy = "; define accepts to look" if isinstance(driver, ValueDriver) else ""
        raise NotApplicable(
            f"it does not look at unscaled gradients, and the trait 'rechecks' is not claimed{remedy}"
        )

    def examine(drawn: tuple[str, float, int]) -> None:
        history, value, place = drawn
        walk = case.walk()
        told = walk.tell_all(history)
        if told is not None and told.stop:
            return
        outcome = walk.take(FINITE, np.array([PEAK, PEAK]), spoil={place: value})
        if outcome.applied is not None and not np.isfinite(outcome.applied).all():
            raise walk.fault(
                f"{value} was written into the unscaled gradient, and the optimizer was given it"
            )

    values = st.sampled_from((math.nan, math.inf, -math.inf))
    search(st.tuples(case.histories(most_runs=3), values, st.integers(0, 1)), examine, case.examples)
    _rechecks_several(case)


def _rechecks_several(case: Case) -> None:
    """Let `accepts` look at several unscaled gradients, as those of a model's parameters, one of them bad."""
    driver = case.walk().driver
    if not isinstance(driver, ValueDriver) or not hasattr(driver.scaler, "accepts"):
        return
    usual = GRADIENTS[FINITE].astype(np.float32)
    for value in (math.nan, math.inf):
        bad = np.array([value], np.float32)
        for several in ([usual, bad], [bad, usual], [None, bad, usual]):
            walk = case.walk()
            with walk.calling(FINITE) as each:
                assert isinstance(each, ValueDriver)
                accepted = each.scaler.accepts(several)
            if accepted:
                raise walk.fault(f"the unscaled gradients were {_listed(several)}, and accepts let them pass")


def _listed(several: Sequence[Array | None]) -> str:
    return ", ".join("none" if each is None else str(each.tolist()) for each in several)


def unscales_by_the_scale_that_scaled(case: Case) -> None:
    """The update is the true gradient: what multiplied the loss is what the gradient is divided by.

    Looked at where gradients and updates are far from overflow and underflow; up to 2^-20 of the gradient is rounding.
    """

    def examine(history: str) -> None:
        walk = case.walk()
        for letter, whole in zip(history, edges(history), strict=True):
            if _true_one(walk) if whole and letter == FINITE else walk.tell(letter).stop:
                return

    for history in every(FINITE + OVERFLOW, 5):
        examine(history)
    search(case.histories(), examine, case.examples)
    _true_on_the_way_up(case)


def _true_on_the_way_up(case: Case) -> None:
    """Take finite steps through several windows, to the top if it is near, the steps around a growth with gradients."""
    window = case.profile.window or 1
    walk, since, taken = case.walk(), 0, 0
    scale = walk.scale()
    steps = min(case.to_top or 4 * window, case.longest_run) + window + 2
    for _ in range(steps):
        whole = (since < 2 or since == window - 1) and taken < _MOST_TAKEN
        taken += whole
        if _true_one(walk) if whole else walk.tell(FINITE).stop:
            return
        before, scale = scale, walk.scale()
        since = 0 if scale != before else since + 1


def _true_one(walk: Walk) -> str | None:
    """Take a finite step, and give the reason to stop if there is one."""
    scale = walk.scale()
    outcome = walk.take(FINITE, moderate)
    works = usable(scale) and usable(1.0 / scale)
    if works and not usable(outcome.factor):  # then no gradient is left that could be judged
        raise walk.fault(f"the scale is {written(scale)}, and a loss of 1 becomes {written(outcome.factor)}")
    _need_the_true_one(walk, outcome)
    return outcome.stop


def _need_the_true_one(walk: Walk, outcome: Outcome) -> None:
    if outcome.applied is None or not _is_judged(outcome.given) or not _is_judged(outcome.applied):
        return
    true = moderate(outcome.factor)
    share = outcome.applied.astype(np.float64) / true
    worst = float(share[int(np.argmax(np.abs(share - 1.0)))])
    if abs(worst - 1.0) > _TOLERANCE:
        divisor = _short(outcome.factor / worst)
        raise walk.fault(
            f"the gradient was multiplied by {written(outcome.factor)}, divided by {written(divisor)}: "
            f"the update is {_short(worst):g} times the true gradient"
        )


def _is_judged(gradient: Array) -> bool:
    return bool((np.isfinite(gradient) & (gradient != 0)).all())


def _short(number: float) -> float:
    """Leave out what is rounding: keep 20 bits."""
    fraction, exponent = math.frexp(number)
    return math.ldexp(round(math.ldexp(fraction, 20)), exponent - 20)


CHECKS = (
    Check("applies_only_finite_updates", 1, applies_only_finite_updates),
    Check("rechecks_after_unscaling", 1, rechecks_after_unscaling),
    Check("unscales_by_the_scale_that_scaled", 2, unscales_by_the_scale_that_scaled),
)
