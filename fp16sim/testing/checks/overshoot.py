"""One overflow is answered by one backoff: property 6."""

from __future__ import annotations

from fp16sim.testing.case import Case
from fp16sim.testing.checks.check import Check
from fp16sim.testing.checks.closed import ClosedLoop, all_loops, closed_loops, overflows_down_to
from fp16sim.testing.histories import FINITE
from fp16sim.testing.search import search
from fp16sim.testing.walk import Walk, usable, written

__all__ = ["CHECKS"]

_LARGEST_DROP = _LARGEST_LEAP = 16.0
_SLACK = 64
_NEARLY = 1 - 2.0**-20  # a backoff of a scale that is no power of two is rounded, in float32 at worst


def one_overflow_one_backoff(case: Case) -> None:
    """At a constant peak the scale ends one backoff below the largest usable one, and no overflow costs a factor of 16.

    After a drawn history, and in it: a single overflow divides the scale by 16 at most. Then gradients have a constant
    peak. Once one of them has overflowed, the scale does not fall below one backoff under the least scale that
    overflows, by the factor of the first that the scaler showed: a lower one answers the same overflow twice. The loop
    goes on for two growth windows. Nor does it then grow to more than 16 times that least scale, each time at the cost
    of an overflow for every backoff.
    """
    from hypothesis import strategies as st

    profile = case.profile
    window = min(profile.window or 1, case.longest_run)

    def examine(drawn: tuple[str, ClosedLoop]) -> None:
        history, loop = drawn
        walk = case.walk()
        scale = walk.scale()
        for letter in history:
            told, before, scale = walk.tell(letter), scale, walk.scale()
            if letter != FINITE:
                _need_small_drop(walk, before, scale)
            if told.stop:
                return
        backoff, overflowed = profile.backoff, False
        steps = _SLACK + overflows_down_to(loop.limit, scale, profile) + 2 * window
        for _ in range(steps):
            letter, told = loop.step(walk, scale)
            before, scale = scale, walk.scale()
            if letter != FINITE:
                overflowed = True
                _need_small_drop(walk, before, scale)
                if profile.to_floor == profile.patience:  # the first was cut short by the floor
                    backoff = min(backoff, scale / before)
            if told.stop or not usable(scale):
                return
            if overflowed and scale < loop.limit * backoff * _NEARLY:
                fell = "falls" if letter != FINITE else "fell on a finite step"
                what = (
                    f"with {loop}, the scale {fell} to {written(scale)}, "
                    f"where one backoff gives {written(loop.limit * backoff)} or more"
                )
                raise walk.fault(what)

    longest = case.most_steps + _SLACK + 2 * window
    search(st.tuples(case.histories(), closed_loops(profile)), examine, case.examples_of(longest))
    _need_small_leaps(case, min(all_loops(profile), key=lambda loop: loop.limit))


def _need_small_leaps(case: Case, loop: ClosedLoop) -> None:
    """Refuse a growth far beyond a scale that has just overflowed."""
    walk, overflowed = case.walk(), False
    scale = walk.scale()
    window = min(case.profile.window or 1, case.longest_run)
    for _ in range(_SLACK + overflows_down_to(loop.limit, scale, case.profile) + window):
        letter, told = loop.step(walk, scale)
        before, scale = scale, walk.scale()
        if told.stop or not usable(scale):
            return
        overflowed = overflowed or letter != FINITE
        if letter == FINITE and overflowed and scale > max(_LARGEST_LEAP * loop.limit, before):
            raise walk.fault(f"with {loop}, the scale grew from {written(before)} to {written(scale)}")


def _need_small_drop(walk: Walk, before: float, after: float) -> None:
    if usable(before) and usable(after) and before > _LARGEST_DROP * after:
        raise walk.fault(f"one overflow lowers the scale from {written(before)} to {written(after)}")


CHECKS = (Check("one_overflow_one_backoff", 6, one_overflow_one_backoff),)
