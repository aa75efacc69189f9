"""The scale stays a usable number, and an overflow does not raise it: properties 4, 5 and 7."""

from __future__ import annotations

import math

from fp16sim.testing.case import Case
from fp16sim.testing.checks.check import Check
from fp16sim.testing.histories import FINITE
from fp16sim.testing.search import search
from fp16sim.testing.walk import Walk, usable, written

__all__ = ["CHECKS"]

_MOST_FINITE = 250_000


def scale_stays_finite(case: Case) -> None:
    """The scale never becomes infinite, in float32, or NaN.

    Drawn histories, and then finite steps only, up to 250,000 of them or to where the scale grows no more.
    """

    def finite(walk: Walk) -> None:
        scale = walk.scale()
        if math.isnan(scale) or (scale > 0 and not usable(scale)):
            raise walk.fault(
                f"the scale is {written(scale)}" + ("" if math.isinf(scale) else ", infinite in float32")
            )

    def examine(history: str) -> None:
        walk = case.walk()
        finite(walk)
        for letter in history:
            stop = walk.tell(letter).stop
            finite(walk)
            if stop:
                return

    search(case.histories(), examine, case.examples)
    walk, highest, unmoved = case.walk(), -math.inf, 0
    for _ in range(_MOST_FINITE):
        if walk.tell(FINITE).stop or unmoved > 4 * (case.profile.window or _MOST_FINITE):
            return
        finite(walk)
        unmoved = 0 if walk.scale() > highest else unmoved + 1
        highest = max(highest, walk.scale())


def scale_stays_above_zero(case: Case) -> None:
    """The scale never becomes zero or negative."""

    def examine(history: str) -> None:
        walk = case.walk()
        for letter in " " + history:
            before = math.nan if letter == " " else walk.scale()
            stop = None if letter == " " else walk.tell(letter).stop
            if walk.scale() <= 0:
                raise walk.fault(f"the scale went from {written(before)} to {written(walk.scale())}")
            if stop:
                return

    search(case.histories(), examine, case.examples)


def overflow_never_raises_the_scale(case: Case) -> None:
    """The scale after an overflow is not above the scale before."""

    def examine(history: str) -> None:
        walk = case.walk()
        for letter in history:
            before = walk.scale()
            stop = walk.tell(letter).stop
            if letter != FINITE and walk.scale() > before:
                raise walk.fault(
                    f"the scale rose from {written(before)} to {written(walk.scale())} on an overflow"
                )
            if stop:
                return

    search(case.histories(), examine, case.examples)


CHECKS = (
    Check("scale_stays_finite", 4, scale_stays_finite),
    Check("scale_stays_above_zero", 5, scale_stays_above_zero),
    Check("overflow_never_raises_the_scale", 7, overflow_never_raises_the_scale),
)
