"""What the optimizer is given: finite numbers, from which the scale that was multiplied in is divided out again.

Properties 1 and 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from fp16sim.testing.case import Case
from fp16sim.testing.checks.check import Check
from fp16sim.testing.checks.edges import edges
from fp16sim.testing.driver import GRADIENTS, PEAK, Array
from fp16sim.testing.histories import FINITE, LETTERS, OVERFLOW, every
from fp16sim.testing.search import search
from fp16sim.testing.walk import Fault, NotApplicable, Outcome, Walk, usable, written

__all__ = ["CHECKS"]

Floats = npt.NDArray[np.float64]

_SCALED = (1.0, 2.0**128 - 2.0**104, 2.0**60, -(2.0**-149), 2.0**-126)
"""Scaled gradients, all finite in float32: a usual one, the largest, one whose square is still finite, the smallest,
the smallest normal. Of the largest a scale below 1 makes what float32 does not hold (pytorch#99640)."""
_LONGEST_BURST = 200

_TOLERANCE = 2.0**-20
"""The scaled gradient, the reciprocal of the scale and their product are rounded to float32, each by 2^-24 relative at
most; where the scale itself is a longer number, that is one more. Four of these are 2^-22."""
_SHAPES = np.array([1.0, -1.6180339887498949])


def applies_only_finite_updates(case: Case) -> None:
    """No infinity and no NaN reaches the optimizer, whatever the gradients were.

    Steps that overflow, and finite scaled gradients from the smallest to the largest: at a scale below 1, at 0, or
    where the reciprocal of the scale is infinite, these are finite before they are unscaled, and not after.
    """
    from hypothesis import strategies as st

    for history in every(LETTERS, 3):
        _finite(case, (history, [_SCALED[0]]))
    _finite_after_bursts(case)
    values = st.lists(st.sampled_from(_SCALED), min_size=1, max_size=3)
    search(st.tuples(case.histories(), values), partial(_finite, case), case.examples)


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


def _finite(case: Case, drawn: tuple[str, list[float]], told: int = 0) -> None:
    """Look at what is applied, at the edges of runs after the first steps, of which the scaler is told only."""
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


def _gradient(letter: str, scaled: float, factor: float) -> Floats:
    """Give the true gradient that is `scaled` after it was multiplied by the factor."""
    if letter != FINITE:
        return GRADIENTS[letter]
    return np.array([scaled / factor if usable(factor) else scaled])


def _need_finite(walk: Walk, outcome: Outcome, true: Floats) -> None:
    if outcome.applied is None or np.isfinite(outcome.applied).all():
        return
    place = int(np.argmin(np.isfinite(outcome.applied)))
    applied, given = float(outcome.applied[place]), float(outcome.given[place])
    if math.isfinite(given):
        how = (
            f"a gradient of {true[place]:g} times the scale {written(outcome.factor)} is {given:g}, "
            f"and unscaling made {applied} of that"
        )
    else:
        how = f"the scaled gradient was {given}, and the step was not skipped"
    raise walk.fault(f"the optimizer was given {applied}: {how}")


def rechecks_after_unscaling(case: Case) -> None:
    """What becomes infinite or NaN after unscaling, by a hook or by clipping, does not reach the optimizer."""
    from hypothesis import strategies as st

    if "rechecks" not in case.walk().driver.can and "rechecks" not in case.traits:
        raise NotApplicable("it does not look at unscaled gradients, and the trait 'rechecks' is not claimed")

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


def unscales_by_the_scale_that_scaled(case: Case) -> None:
    """The update is the true gradient: what multiplied the loss is what the gradient is divided by.

    Looked at where gradients and updates are far from overflow and underflow; up to 2^-20 of the gradient is rounding.
    """

    def examine(history: str) -> None:
        walk = case.walk()
        for letter, whole in zip(history, edges(history), strict=True):
            if whole and letter == FINITE:
                outcome = walk.take(letter, _moderate)
                _need_the_true_one(walk, outcome)
                stop = outcome.stop
            else:
                stop = walk.tell(letter).stop
            if stop:
                return

    for history in every(FINITE + OVERFLOW, 5):
        examine(history)
    search(case.histories(), examine, case.examples)


def _moderate(factor: float) -> Floats:
    """Give gradients on the other side of 1 from what they are after scaling: both fit float32, as do their squares."""
    exponent = math.frexp(factor)[1] if usable(factor) else 0
    return _SHAPES * math.ldexp(1.0, -(exponent // 2))


def _need_the_true_one(walk: Walk, outcome: Outcome) -> None:
    if outcome.applied is None or not (_is_judged(outcome.given) and _is_judged(outcome.applied)):
        return
    true = _moderate(outcome.factor)
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
