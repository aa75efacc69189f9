"""Scaling by a power of two changes no bit of a gradient that stays normal: property 8."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from fp16sim.testing.case import MOST_FINITE, Case
from fp16sim.testing.checks.check import Check
from fp16sim.testing.checks.edges import edges
from fp16sim.testing.driver import PEAK, Refusal
from fp16sim.testing.histories import FINITE, OVERFLOW, every
from fp16sim.testing.search import search
from fp16sim.testing.walk import Fault, Outcome, Walk, usable, written

__all__ = ["CHECKS"]

Floats = npt.NDArray[np.float64]

_EXPONENTS = {"float16": (-14, 15), "float32": (-126, 127)}
"""Of the smallest and the largest normal numbers."""
_DIGITS = {"float16": 10, "float32": 23}
"""Binary digits after the first."""
_PLACES = 4


def power_of_two_transparency(case: Case) -> None:
    """Every scale is a power of two, and scaling and unscaling leave every binary digit of a gradient as it was.

    Float32 and float16 gradients with all their digits drawn, which are normal before they are scaled and after: then
    scaling, the reciprocal and unscaling are exact. That it is the same power of two that is divided out again is
    property 2.
    """
    from hypothesis import strategies as st

    fractions = st.one_of(st.integers(0, 1), st.integers(0, 2 ** _DIGITS["float32"] - 1))
    gradients = st.tuples(st.sampled_from(sorted(_EXPONENTS)), fractions, st.integers(0, _PLACES))
    bursts = st.integers(0, case.profile.to_floor + 1).map(lambda length: OVERFLOW * length + FINITE)
    for history in every(FINITE + OVERFLOW, 4):
        for dtype in _EXPONENTS:
            _unchanged(case, (history, (dtype, 1, _PLACES // 2)))
    search(st.tuples(bursts, gradients), partial(_unchanged, case), case.examples)
    search(st.tuples(case.histories(), gradients), partial(_unchanged, case), case.examples)
    _climbs_by_powers(case)


def _unchanged(case: Case, drawn: tuple[str, tuple[str, int, int]]) -> None:
    history, (dtype, fraction, place) = drawn
    walk = case.walk()
    true: Callable[[float], Floats] = partial(_normal, dtype, fraction, place)
    _need_power(walk)
    for letter, whole in zip(history, edges(history), strict=True):
        if whole and letter == FINITE:
            try:
                outcome = walk.take(letter, true, dtype)
            except Fault as fault:
                if isinstance(fault.__cause__, Refusal):  # of float16 gradients, as torch refuses them
                    return
                raise
            _need_unchanged(walk, outcome, true(outcome.factor))
            stop = outcome.stop
        else:
            stop = walk.tell(letter).stop
        _need_power(walk)
        if stop:
            return


def _normal(dtype: str, fraction: int, place: int, factor: float) -> Floats:
    """Give a gradient of `dtype` that is normal there, also times the factor; if there is none, one of no interest.

    `place` says where it lies between the smallest and the largest of these.
    """
    smallest, largest = _EXPONENTS[dtype]
    shift = math.frexp(factor)[1] - 1 if usable(factor) else math.inf
    low, high = max(smallest, smallest - shift), min(largest, largest - shift)
    if low > high:
        return np.array([PEAK])
    exponent = int(low) + (int(high) - int(low)) * place // _PLACES
    digits = _DIGITS[dtype]
    kept = fraction & (2**digits - 1)
    return np.array([math.ldexp(1.0 + math.ldexp(kept, -digits), exponent)])


def _need_unchanged(walk: Walk, outcome: Outcome, true: Floats) -> None:
    smallest = math.ldexp(1.0, _EXPONENTS[outcome.given.dtype.name][0])
    given = np.abs(outcome.given.astype(np.float64))
    normal = np.isfinite(given) & (given >= smallest) & (np.abs(true) >= smallest)
    if outcome.applied is None or not normal.all():
        return
    applied = outcome.applied.astype(np.float64)
    if outcome.given.dtype == np.float32 and not np.isfinite(applied).all():
        return  # property 1
    digits = (
        np.frexp(applied)[0] == np.frexp(true)[0]
    )  # times another power of two is a wrong scale: property 2
    if not digits.all():
        raise walk.fault(
            f"a {outcome.given.dtype} gradient of {true[0]!s} came back as {applied[0]!s} "
            f"from the scale {written(outcome.factor)}"
        )


def _need_power(walk: Walk) -> None:
    scale = walk.scale()
    if usable(scale) and math.frexp(scale)[0] != 0.5:
        raise walk.fault(f"the scale is {_told_apart(scale)}, no power of two")


def _told_apart(scale: float) -> str:
    """Write a scale, with all its digits where six would hide that it is no power of two."""
    text = written(scale)
    return repr(scale) if math.frexp(float(text))[0] == 0.5 else text


def _climbs_by_powers(case: Case) -> None:
    """Take finite steps only, to the top if that is near."""
    walk, highest, unmoved = case.walk(), -math.inf, 0
    for _ in range(MOST_FINITE):
        if walk.tell(FINITE).stop or unmoved > 4 * (case.profile.window or MOST_FINITE):
            return
        scale = walk.scale()
        unmoved = 0 if scale > highest else unmoved + 1
        if scale > highest:
            highest = scale
            _need_power(walk)


CHECKS = (Check("power_of_two_transparency", 8, power_of_two_transparency, trait="power_of_two"),)
