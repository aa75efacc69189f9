"""Training at a constant peak: the scale decides which steps overflow, and each overflow moves the scale."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from fp16sim.testing.case import Profile
from fp16sim.testing.histories import FINITE, OVERFLOW
from fp16sim.testing.walk import Walk, written

__all__ = ["ClosedLoop", "all_loops", "closed_loops", "overflows_down_to"]

_INFINITE_FROM = 65520.0
"""The least float64 that float16 rounds to infinity: 65504 and half a unit in its last place."""
_LOWEST, _HIGHEST = 2.0**-100, 2.0**127
_MOST_BACKOFFS = 10_000


@dataclass(frozen=True)
class ClosedLoop:
    """Steps whose largest true gradient is the same: a scale is usable if it is below the limit.

    Attributes
    ----------
    limit : float
        The least scale at which float16 gradients overflow.

    Examples
    --------
    >>> loop = ClosedLoop(65520.0)
    >>> loop.peak, loop.letter(32768.0), loop.letter(65536.0)
    (1.0, '.', 'o')
    """

    limit: float

    @property
    def peak(self) -> float:
        """The largest true gradient."""
        return _INFINITE_FROM / self.limit

    def letter(self, scale: float) -> str:
        """Say what a step at a scale shows; any gradient times NaN is no finite one."""
        return FINITE if scale < self.limit else OVERFLOW

    def step(self, walk: Walk, scale: float) -> tuple[str, Any]:
        """Take a step at a scale, and give its letter with what the scaler made of it."""
        letter = self.letter(scale)
        return letter, walk.tell(letter, self.peak)

    def __str__(self) -> str:
        return f"gradients that overflow at every scale of {written(self.limit)} or more"


def closed_loops(profile: Profile) -> Any:
    """Draw closed loops with a limit from twice the floor to the top, where some scale is usable and can be reached.

    They shrink towards a limit at the first scale.
    """
    from hypothesis import strategies as st

    return st.sampled_from(all_loops(profile))


def all_loops(profile: Profile) -> list[ClosedLoop]:
    """Give those that are drawn, the one with a limit at the first scale, or nearest to it, first."""
    low = max(2 * profile.floor, _LOWEST)
    high = min(profile.top, _HIGHEST)
    near = math.frexp(profile.start)[1] if math.isfinite(profile.start) else 0
    limits = [
        limit
        for exponent in range(-100, 128)
        for limit in (math.ldexp(1.0, exponent), math.ldexp(0.75, exponent))
        if low <= limit <= high
    ] or [high if high > 0 else 1.0]  # a range of less than an octave, or none known
    limits.sort(key=lambda limit: (abs(math.frexp(limit)[1] - near), limit != profile.start, limit))
    return [ClosedLoop(limit) for limit in limits]


def overflows_down_to(limit: float, scale: float, profile: Profile) -> int:
    """Count the overflows that bring a scale below a limit, if each of its backoffs takes as many as the first did.

    >>> overflows_down_to(4096.0, 65536.0, Profile(patience=2, backoff=0.5))
    10
    """
    backoffs = 0
    while scale >= limit and backoffs < _MOST_BACKOFFS and math.isfinite(scale) and profile.backoff < 1:
        scale *= profile.backoff
        backoffs += 1
    return profile.patience * backoffs
