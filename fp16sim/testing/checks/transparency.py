"""Scaling by a power of two changes no bit of a gradient that stays normal: property 8."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
_HIGHEST_SCALED = 62
"""Exponent of the largest scaled gradients: some scalers need a finite sum of squares."""
_ALTERNATING = 0x555555  # digits, down to the last one
_LONGEST_BURST = 200


def power_of_two_transparency(case: Case) -> None:
    """Every scale is a power of two, and scaling and unscaling leave every binary digit of a gradient as it was.

    Float32 and float16 gradients with all their digits drawn, which are normal before they are scaled and after: then
    scaling, the reciprocal and unscaling are exact. That it is the same power of two that is divided out again is
    property 2.
    """
    from hypothesis import strategies as st

    fractions = st.one_of(st.integers(0, 1), st.integers(0, 2 ** _DIGITS["float32"] - 1))
    dtypes = _dtypes(case)
    gradients = st.tuples(st.sampled_from(dtypes), fractions, st.integers(0, _PLACES))
    bursts = (OVERFLOW * length + FINITE for length in range(min(case.profile.to_floor + 1, _LONGEST_BURST)))
    for history in (*every(FINITE + OVERFLOW, 4), *bursts):
        for dtype in dtypes:
            _unchanged(case, (history, (dtype, _ALTERNATING, _PLACES // 2)))
    search(st.tuples(case.histories(), gradients), partial(_unchanged, case), case.examples)
    _climbs_by_powers(case, dtypes)


def _unchanged(case: Case, drawn: tuple[str, tuple[str, int, int]]) -> None:
    history, (dtype, fraction, place) = drawn
    walk = case.walk()
    true: Callable[[float], Floats] = partial(_normal, dtype, fraction, place)
    _need_power(walk)
    for letter, whole in zip(history, edges(history), strict=True):
        if whole and letter == FINITE:
            stop = _take_one(walk, dtype, true)
        else:
            stop = walk.tell(letter).stop
        _need_power(walk)
        if stop:
            return


def _dtypes(case: Case) -> list[str]:
    """Give the dtypes of gradients that it takes: torch refuses to unscale float16 ones."""
    taken = []
    for dtype in _EXPONENTS:
        try:
            case.walk().take(FINITE, dtype=dtype)
        except Fault as fault:
            if isinstance(fault.__cause__, Refusal):
                continue
        taken.append(dtype)
    return taken or ["float32"]


def _take_one(walk: Walk, dtype: str, true: Callable[[float], Floats]) -> str | None:
    outcome = walk.take(FINITE, true, dtype)
    _need_unchanged(walk, outcome, true(outcome.factor))
    return outcome.stop


def _normal(dtype: str, fraction: int, place: int, factor: float) -> Floats:
    """Give a gradient of `dtype` that is normal there, also times the factor; if there is none, one of no interest.

    `place` says where it lies between the smallest and the largest of these.
    """
    smallest, largest = _EXPONENTS[dtype]
    shift = math.frexp(factor)[1] - 1 if usable(factor) else math.inf
    low, high = max(smallest, smallest - shift), min(largest, min(largest, _HIGHEST_SCALED) - shift)
    if low > high:  # one that becomes 1: the step stays finite
        return np.array([1.0 / factor if usable(factor) else PEAK])
    exponent = int(low) + (int(high) - int(low)) * place // _PLACES
    digits = _DIGITS[dtype]
    kept = fraction & (2**digits - 1)
    return np.array([math.ldexp(1.0 + math.ldexp(kept, -digits), exponent)])


def _need_unchanged(walk: Walk, outcome: Outcome, true: Floats) -> None:
    low, high = _EXPONENTS.get(outcome.given.dtype.name, (0, -1))
    smallest, beyond = math.ldexp(1.0, low), math.ldexp(1.0, high + 1)
    sizes = np.abs([true, outcome.given.astype(np.float64)])
    normal = (sizes >= smallest) & (sizes < beyond)
    if outcome.applied is None or not normal.all():
        return
    applied = outcome.applied.astype(np.float64)
    wrong_size = ((applied != 0) & (np.abs(applied) < smallest)).any()
    if wrong_size or (outcome.given.dtype == np.float32 and not np.isfinite(applied).all()):
        return  # properties 2 and 1
    if not (np.frexp(applied)[0] == np.frexp(true)[0]).all():  # another power of two is property 2
        raise walk.fault(
            f"a {outcome.given.dtype} gradient of {true[0]!s} came back as {applied[0]!s} "
            f"from the scale {written(outcome.factor)}"
        )


def _need_power(walk: Walk) -> None:
    scale = walk.scale()
    if usable(scale) and math.frexp(scale)[0] != 0.5:
        raise walk.fault(f"the scale is {_told_apart(scale)}, no power of two")


def _told_apart(scale: float) -> str:
    """Write a scale, with all its digits where ten would hide that it is no power of two."""
    text = f"{scale:.10g}"
    return repr(scale) if math.frexp(float(text))[0] == 0.5 else text


def _climbs_by_powers(case: Case, dtypes: Sequence[str]) -> None:
    """Take finite steps only, to the top if that is near, those after a growth with gradients."""
    walk, highest, unmoved = case.walk(), -math.inf, 0
    for _ in range(case.longest_run):
        if unmoved < len(dtypes):
            dtype = dtypes[unmoved]
            stop = _take_one(walk, dtype, partial(_normal, dtype, _ALTERNATING, _PLACES // 2))
        else:
            stop = walk.tell(FINITE).stop
        if stop or unmoved > 4 * (case.profile.window or MOST_FINITE):
            return
        scale = walk.scale()
        unmoved = 0 if scale > highest else unmoved + 1
        if scale > highest:
            highest = scale
            _need_power(walk)


CHECKS = (Check("power_of_two_transparency", 8, power_of_two_transparency, trait="power_of_two"),)
