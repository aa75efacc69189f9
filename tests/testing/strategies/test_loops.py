"""closed_loops(): coverage, shrinking, and what simulate makes of them."""

from __future__ import annotations

import math
from itertools import groupby

import numpy as np
import pytest
from fp16sim_draws import draws, rare, shares, smallest

import fp16sim as fs
from fp16sim.scaling.outcomes import ClosedLoop
from fp16sim.testing.strategies import closed_loops


def jumps(peaks):
    return np.diff(peaks[~np.isnan(peaks)])


def longest(flags) -> int:
    return max((len(list(run)) for flag, run in groupby(flags) if flag), default=0)


def limits(units: str) -> list[float]:
    """Peaks at which some power of two as scale gives 65520, and the next below."""
    if units == "linear":
        at = [math.ldexp(65520.0, -k) for k in range(-10, 60)]
    else:
        at = [ClosedLoop.log2(65520.0) - k for k in range(-10, 60)]
    return at + [math.nextafter(peak, -math.inf) for peak in at]


CLASSES = {
    "constant": lambda p: p.size > 1 and not jumps(p).any(),
    "one step": lambda p: p.size == 1,
    "more than 30 steps": lambda p: p.size > 30,
    "burst": lambda p: (jumps(p) >= 4).any() and (jumps(p) <= -4).any(),
    "tail": lambda p: longest(jumps(p) == -1) >= 2,
    "walk": lambda p: longest(np.isin(jumps(p), (0.25, -0.25, 0.5, -0.5))) >= 3,
    "edge": lambda p: np.isin(p, limits("log2")).any(),
    "NaN": lambda p: np.isnan(p).any(),
    "no NaN": lambda p: not np.isnan(p).any(),
    "new level": lambda p: (abs(jumps(p)) > 1).any(),
}


def test_each_class_is_drawn_in_one_of_twenty() -> None:
    drawn = draws(closed_loops(), 1000)
    assert all(p.dtype == np.float64 and p.ndim == 1 and 1 <= p.size <= 200 for p in drawn)
    assert all(((p >= -40) & (p <= 24) | np.isnan(p)).all() for p in drawn)
    assert rare(shares(drawn, CLASSES)) == {}


def test_loops_overflow_and_recover_under_a_scaler() -> None:
    runs = [fs.scaling.simulate("torch,growth_interval=5", p) for p in draws(closed_loops(), 300)]
    classes = {
        "a step overflows": lambda run: run.overflows[0] > 0,
        "the scale rises above its start": lambda run: run.highest[0] > 2.0**16,
        "the scale falls by 16 at least": lambda run: run.lowest[0] <= 2.0**12,
        "applied and skipped": lambda run: run.applied[0] > 0 and run.skipped[0] > 0,
    }
    assert rare(shares(runs, classes)) == {}


def test_linear_peaks_are_of_the_same_kinds() -> None:
    drawn = draws(closed_loops(units="linear"), 500)
    assert all(((p >= 2.0**-40) & (p <= 2.0**24) | np.isnan(p)).all() for p in drawn)
    at_the_limit = {"edge": lambda p: np.isin(p, limits("linear")).any()}
    assert rare(shares(drawn, at_the_limit)) == {}
    assert np.array_equal(fs.scaling.simulate("torch", drawn[0], units="linear").steps, [drawn[0].size])


def test_a_peak_at_the_limit_overflows_and_the_next_below_does_not() -> None:
    for units in ("log2", "linear"):
        loop = ClosedLoop(units)
        half = len(limits(units)) // 2
        for k, (at, below) in enumerate(zip(limits(units)[:half], limits(units)[half:], strict=True), -10):
            assert (loop.kind(at, 2.0**k), loop.kind(below, 2.0**k)) == (1, 0)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (lambda p: True, [0.0]),
        (lambda p: p.size >= 3, [0.0] * 3),
        (lambda p: np.isnan(p).any(), [math.nan]),
        (lambda p: (p > 5).any(), [5.25]),
        (lambda p: (p < 0).any(), [-0.25]),
        (lambda p: fs.scaling.simulate("torch", p).overflows[0] >= 1, [0.0]),
        (lambda p: fs.scaling.simulate("torch,growth_interval=2", p).highest[0] > 2.0**16, None),
    ],
)
def test_a_failing_loop_is_short_and_constant(condition, expected) -> None:
    found = smallest(closed_loops(), condition)
    if expected is None:
        assert found.size == 3 if condition(np.full(3, -1.0)) else 2
        assert np.unique(found).size == 1
    else:
        assert np.array_equal(found, expected, equal_nan=True)


def test_linear_loops_shrink_to_one() -> None:
    assert smallest(closed_loops(units="linear"), lambda p: True).tolist() == [1.0]
    assert smallest(closed_loops(lowest=3, highest=9), lambda p: True).tolist() == [3.0]


def test_options() -> None:
    assert not any(np.isnan(p).any() for p in draws(closed_loops(allow_nan=False), 200))
    assert all(p.size <= 5 for p in draws(closed_loops(most_steps=5), 200))
    assert all((p == 2).all() for p in draws(closed_loops(lowest=2, highest=2, allow_nan=False), 100))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"units": "log"}, ValueError, "unknown units 'log': did you mean 'log2'"),
        ({"lowest": 0.5}, TypeError, "lowest=0.5: it is the exponent"),
        ({"lowest": 3, "highest": 2}, ValueError, "lowest=3 and highest=2"),
        ({"most_steps": 0}, ValueError, "most_steps=0"),
        ({"most_parts": "3"}, TypeError, "most_parts='3'"),
        ({"allow_nan": 0}, TypeError, "allow_nan=0"),
    ],
)
def test_impossible_options_are_refused_before_a_draw(options, error, message) -> None:
    with pytest.raises(error, match=message):
        closed_loops(**options)
