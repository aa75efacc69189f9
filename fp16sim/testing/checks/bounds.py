"""The scale stays a usable number, and an overflow does not raise it: properties 4, 5 and 7."""

from __future__ import annotations

import math
from collections.abc import Iterator

from fp16sim.testing.case import Case
from fp16sim.testing.checks.check import Check
from fp16sim.testing.histories import FINITE, OVERFLOW
from fp16sim.testing.search import search, shortest_run
from fp16sim.testing.walk import Fault, NotApplicable, Walk, usable, written

__all__ = ["CHECKS"]

_LONGEST_CLIMB = 250_000


def _moves(walk: Walk, history: str) -> Iterator[tuple[str, float, float]]:
    """Take the steps of a history up to a stop; give letter, scale before and scale after where the scale moved.

    The first scale is given as if it came after nothing.
    """
    scale = walk.scale()
    yield "", math.nan, scale
    for letter in history:
        stop = walk.tell(letter).stop
        before, scale = scale, walk.scale()
        if scale != before:
            yield letter, before, scale
        if stop:
            return


def scale_stays_finite(case: Case) -> None:
    """The scale never becomes infinite, in float32, or NaN.

    Drawn histories, and then finite steps only, up to 250,000 of them or to where the scale grows no more for two
    windows, or for 40,000 steps where no window is known. If it still grows at the end, nobody knows whether it becomes
    infinite, and the check is not applicable.
    """

    def examine(history: str) -> None:
        walk = case.walk()
        for _, _, scale in _moves(walk, history):
            _need_finite(walk, scale)

    search(case.histories(), examine, case.examples)
    walk, highest, unmoved = case.walk(), -math.inf, 0
    most_unmoved = 2 * (case.profile.window or case.longest_run) + 64
    steps = _LONGEST_CLIMB // case.cost
    for _ in range(steps):
        if walk.tell(FINITE).stop or unmoved > most_unmoved:
            return
        scale = walk.scale()
        unmoved += 1
        if not scale <= highest:  # NaN is not
            _need_finite(walk, scale)
            highest, unmoved = scale, 0
    if highest > case.profile.start or case.profile.window:
        how = "still grows" if highest > case.profile.start else "will grow"
        raise NotApplicable(
            f"the scale is {written(highest)} after {steps:,} finite steps, and {how}: make it with a shorter "
            "window, or a higher first scale, to see where that ends"
        )


def _need_finite(walk: Walk, scale: float) -> None:
    if math.isnan(scale) or (scale > 0 and not usable(scale)):
        beyond = "" if math.isinf(scale) or math.isnan(scale) else ", infinite in float32"
        cap = "; cap it" if walk.letters and scale == scale else ""
        raise walk.fault(f"the scale is {written(scale)}{beyond}{cap}")


def scale_stays_above_zero(case: Case) -> None:
    """The scale never becomes zero or negative."""

    def examine(history: str) -> None:
        walk = case.walk()
        for letter, before, scale in _moves(walk, history):
            if scale <= 0:
                begins = f"the scale is {written(scale)} at the start"
                raise walk.fault(
                    f"the scale went from {written(before)} to {written(scale)}; give it a floor"
                    if letter
                    else begins
                )

    def down() -> None:
        shortest_run(lambda length: examine(OVERFLOW * length), case.profile.to_floor + 1)

    def drawn() -> None:
        search(case.histories(), examine, case.examples)

    # Of a dear scaler few histories are drawn, perhaps none that goes down to the floor, and little is made shorter.
    faults: list[Fault] = []
    for look in (down, drawn):
        try:
            look()
        except Fault as fault:
            faults.append(fault)
    if faults:
        raise min(faults, key=lambda fault: len(fault.history))


def overflow_never_raises_the_scale(case: Case) -> None:
    """The scale after an overflow is not above the scale before.

    From 0 every way is up: a scale that is 0, or no number, is a fault of another check.
    """

    def examine(history: str) -> None:
        walk = case.walk()
        for letter, before, scale in _moves(walk, history):
            if letter not in ("", FINITE) and scale > before > 0:
                raise walk.fault(
                    f"the scale rose from {written(before)} to {written(scale)} on an overflow; "
                    "clamp with min(old, new)"
                )

    search(case.histories(), examine, case.examples)


CHECKS = (
    Check("scale_stays_finite", 4, scale_stays_finite),
    Check("scale_stays_above_zero", 5, scale_stays_above_zero),
    Check("overflow_never_raises_the_scale", 7, overflow_never_raises_the_scale),
)
