"""Closed loops: which step overflows, limits that a scaler can reach, and what they shrink to."""

import math

import pytest
from hypothesis import given, settings

from fp16sim.testing.case import Profile
from fp16sim.testing.checks.closed import ClosedLoop, closed_loops, overflows_down_to
from fp16sim.testing.search import search
from fp16sim.testing.walk import Fault

TORCH = Profile(2.0**16, 0.0, 2.0**20, 1, 0.5, 166, 2000)
ROBUST = Profile(2.0**16, 2.0**-16, 2.0**64, 1, 0.5, 32, 2000)


def drawn(profile):
    limits = []

    @settings(max_examples=300, derandomize=True, database=None, deadline=None)
    @given(closed_loops(profile))
    def draw(loop):
        limits.append(loop.limit)

    draw()
    return limits


def smallest(profile):
    with pytest.raises(Fault) as caught:
        search(closed_loops(profile), lambda loop: (_ for _ in ()).throw(Fault("", repr(loop.limit))))
    return float(caught.value.what)


def test_a_step_overflows_from_the_limit_on():
    loop = ClosedLoop(1024.0)
    below = math.nextafter(1024.0, 0.0)
    assert [loop.letter(scale) for scale in (0.0, below, 1024.0, math.inf, math.nan)] == list("..ooo")
    assert loop.peak * 1024.0 == 65520.0
    assert loop.peak * below < 65520.0


@pytest.mark.parametrize("profile", [TORCH, ROBUST, Profile(1.0, 1.0, 32.0, 1, 0.5, 5, 1)])
def test_limits_lie_between_twice_the_floor_and_the_top(profile):
    limits = drawn(profile)
    assert all(max(2 * profile.floor, 2.0**-100) <= limit <= profile.top for limit in limits)
    assert len(set(limits)) > 5
    assert any(math.frexp(limit)[0] != 0.5 for limit in limits)


def test_they_shrink_to_the_first_scale():
    assert smallest(TORCH) == smallest(ROBUST) == 2.0**16
    assert smallest(Profile(1.0, 1.0, 32.0, 1, 0.5, 5, 1)) == 2.0
    assert smallest(Profile(3.0, 0.5, 8.0, 1, 0.5, 5, 1)) == 3.0


def test_a_range_of_less_than_an_octave_leaves_its_top():
    assert set(drawn(Profile(1024.0, 1024.0, 1536.0))) == {1536.0}
    assert set(drawn(Profile(math.inf, math.inf, math.inf))) == {2.0**127}


def test_what_is_unknown_leaves_any_limit():
    assert all(0 < limit < math.inf for limit in drawn(Profile()))


def test_overflows_down_to_a_limit():
    assert overflows_down_to(2.0**16, 2.0**16, TORCH) == 1
    assert overflows_down_to(2.0**16, 2.0**15, TORCH) == 0
    assert overflows_down_to(1.0, 100.0, Profile(patience=3, backoff=0.1)) == 9
    assert overflows_down_to(1.0, 2.0, Profile(patience=0, backoff=1.0)) == 0
    assert overflows_down_to(1.0, math.inf, TORCH) == overflows_down_to(1.0, math.nan, TORCH) == 0
