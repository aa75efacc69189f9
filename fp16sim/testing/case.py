"""A scaler under test: how to make one, what its maker claims of it, and what it shows of its range and its window."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from unittest import SkipTest

from fp16sim.emulator.formats import nearest_name
from fp16sim.testing.adapters import adapt
from fp16sim.testing.driver import ONE_GROUP
from fp16sim.testing.histories import FINITE, LETTERS, OVERFLOW
from fp16sim.testing.walk import ERRORS, Fault, Hang, Walk, described, usable

__all__ = ["MOST_FINITE", "TRAITS", "WITH_A_NUMBER", "Case", "Profile", "as_traits", "case_of"]

TRAITS: dict[str, str] = {
    "power_of_two": "scales are powers of two, and scaling changes no bit",
    "interval": "the number of finite steps in a row after which the scale grows",
    "hysteresis": "the number of overflows in a row after which the scale is lowered",
    "groups": "several optimizers, ranks or layers skip together",
    "rechecks": "what became infinite or NaN after unscaling is not applied",
    "checked": "an update without a check is refused",
    "any_order": "calls in any order are right, or refused",
}
WITH_A_NUMBER = ("interval", "hysteresis")
MOST_FINITE = 20_000
"""Finite steps after which a scale that has not grown is taken not to grow at all."""
_MOST_OVERFLOWS, _UNMOVED = 2500, 200
_LONGEST_CLIMB = 8_000
_MOST_STEPS = 100_000
Make = Callable[[], Any]


@dataclass(frozen=True)
class Profile:
    """What a scaler declares or shows of itself.

    Attributes
    ----------
    start : float
        Its first scale; NaN if it has none to show.
    floor, top : float
        The scale that a long burst of overflows ends at, and the highest seen; or `min_scale` and `max_scale`, if it
        has them.
    patience : int
        Overflows in a row until the scale is first lowered: at the start, or, if it starts at its floor, once it has
        grown. 0 if that is never.
    backoff : float
        By what that multiplied the scale; 1 if it never is.
    to_floor : int
        Overflows in a row until the floor, in the burst that gave `patience`.
    window : int or None
        Finite steps until the scale grows, after the first lowering or, if it starts at its floor, from the start; None
        if it does not within 20,000.
    """

    start: float = math.nan
    floor: float = math.nan
    top: float = math.nan
    patience: int = 0
    backoff: float = 1.0
    to_floor: int = 0
    window: int | None = None

    @property
    def lengths(self) -> dict[str, tuple[int, ...]]:
        """Lengths of runs at whose end something may happen."""
        window, patience, to_floor = (
            max(number or 1, 1) for number in (self.window, self.patience, self.to_floor)
        )
        return {
            FINITE: tuple(sorted({max(window - 1, 1), window, window + 1})),
            OVERFLOW: tuple(sorted({patience, patience + 1, to_floor, to_floor + 1})),
        }


@dataclass(frozen=True)
class Case:
    """What a check is given.

    Attributes
    ----------
    make : callable
        Makes a new scaler.
    traits : mapping
        Claims, by the names of :data:`TRAITS`.
    """

    make: Make
    traits: Mapping[str, Any] = field(default_factory=dict)

    def made(self) -> Any:
        """Make a scaler."""
        try:
            return self.make()
        except SkipTest:  # a factory whose framework is not installed may say so
            raise
        except ERRORS as error:
            raise Fault("", f"making a scaler raised {described(error)}") from error

    def walk(self, groups: tuple[str, ...] = ONE_GROUP) -> Walk:
        """Begin a history with a new scaler."""
        made = self.made()
        try:
            return Walk(adapt(made, groups))
        except ERRORS as error:
            raise Fault("", described(error)) from error

    @cached_property
    def profile(self) -> Profile:
        """What the scaler declares or shows; a fault on the way leaves the rest unknown."""
        known = _PROFILES.get(self.make) if _can_be_kept(self.make) else None
        if known is None:
            known = Profile()
            with suppress(Fault, Hang):  # the checks find it themselves
                known = _profile(self)
            if _can_be_kept(self.make):
                _PROFILES[self.make] = known
        return known

    @cached_property
    def to_top(self) -> int | None:
        """Finite steps from the start until the scale is at its top; None beyond 8,000, or a stop, or infinity."""
        unmoved = 2 * (self.profile.window or 1) + 2
        grown = 0
        walk = self.walk()
        highest = walk.scale()
        for step in range(1, _LONGEST_CLIMB // self.cost + 1):
            if walk.tell(FINITE).stop:
                break
            if walk.scale() > highest:
                highest, grown = walk.scale(), step
            if step - grown > unmoved:
                return grown if usable(highest) else None
        return None

    def histories(self, letters: str = LETTERS, most_runs: int = 6) -> Any:
        """Draw histories with runs at whose end something may happen to this scaler."""
        from fp16sim.testing.strategies.histories import overflow_histories

        return overflow_histories(
            letters=letters, most_runs=most_runs, lengths=self.profile.lengths, most_steps=self.most_steps
        )

    @property
    def most_steps(self) -> int:
        """Steps of the longest histories: to the floor and through three windows."""
        return 64 + 3 * (self.profile.window or 1) + 2 * self.profile.to_floor

    @property
    def examples(self) -> int:
        """How many of these histories are tried: at most 100, at least 12, or 6 of a dear scaler, by their length."""
        return max(12 if self.cost == 1 else 6, self.examples_of(self.most_steps))

    def examples_of(self, steps: int) -> int:
        """How many examples of so many steps are tried: at most 100, at least 4, by what a step costs."""
        return max(4, min(100, _MOST_STEPS // (steps * self.cost)))

    @cached_property
    def cost(self) -> int:
        """How many steps of a plain scaler one of this takes, see :class:`fp16sim.testing.driver.Driver`."""
        with suppress(Fault, Hang):
            return max(int(self.walk().driver.cost), 1)
        return 1


_PROFILES: weakref.WeakKeyDictionary[Make, Profile] = weakref.WeakKeyDictionary()


def case_of(make: Make, traits: Iterable[Any] | Mapping[str, Any] = ()) -> Case:
    """Give the case of a factory, or of a :class:`Case` itself."""
    if isinstance(make, Case):
        return make
    if not callable(make):
        raise TypeError(
            f"a {type(make).__name__} is no factory: pass a function that makes a new scaler each time, such as "
            "lambda: fs.scaling.make('torch')"
        )
    return Case(make, as_traits(traits))


def as_traits(traits: Any) -> dict[str, Any]:
    """Read traits: names, and mappings of a name to its number.

    >>> as_traits(("power_of_two", {"interval": 2000}))
    {'power_of_two': True, 'interval': 2000}
    """
    found: dict[str, Any] = {}
    several = (traits,) if isinstance(traits, (str, Mapping)) else traits
    if not isinstance(several, Iterable):
        raise TypeError(
            f"traits={traits!r}: pass names and mappings, such as ['groups', {{'interval': 2000}}]"
        )
    for given in several:
        if not isinstance(given, (str, Mapping)):
            raise TypeError(f"trait {given!r}: pass a name, or a mapping such as {{'interval': 2000}}")
        for name, value in given.items() if isinstance(given, Mapping) else ((given, True),):
            if name not in TRAITS:
                raise ValueError(f"unknown trait {name!r}: {nearest_name(str(name), list(TRAITS))}")
            number = isinstance(value, int) and not isinstance(value, bool) and value > 0
            if name in WITH_A_NUMBER and not number:
                raise ValueError(
                    f"trait {name!r}={value!r}: {TRAITS[name]}; pass {{{name!r}: 2}}, for example"
                )
            if name not in WITH_A_NUMBER and value is not True:
                raise ValueError(f"trait {name!r}={value!r}: it is claimed or not; pass {name!r}")
            found[name] = value
    return found


def _can_be_kept(make: Make) -> bool:
    try:
        weakref.ref(make)
        hash(make)
    except TypeError:
        return False
    return True


@dataclass
class _Burst:
    """What overflows in a row do to a scaler, as far as it goes without a fault or a stop."""

    floor: float
    patience: int = 0
    backoff: float = 1.0
    to_floor: int = 0


def _profile(case: Case) -> Profile:
    start = case.walk().scale()
    burst, walk = _burst(case.walk()), case.walk()
    with suppress(Fault):
        walk.tell_all(OVERFLOW * burst.patience)
    window, highest = _climb(walk)
    if window and not burst.patience:  # it started at its floor, and is above it now
        later = _burst(walk)
        burst = later if later.patience else burst
    declared = _declared(walk)
    return Profile(
        start=start,
        floor=declared.get("min_scale", burst.floor),
        top=declared.get("max_scale", max(start, highest)),
        patience=burst.patience,
        backoff=burst.backoff,
        to_floor=burst.to_floor,
        window=window,
    )


def _burst(walk: Walk) -> _Burst:
    last = walk.scale()
    found, moved = _Burst(floor=last), 0
    with suppress(Fault):
        for step in range(1, _MOST_OVERFLOWS + 1):
            stop = walk.tell(OVERFLOW).stop
            scale = walk.scale()
            if scale < last and not found.patience:
                found.patience, found.backoff = step, scale / last
            if scale != last:
                moved = step
            if scale < found.floor or scale > last:  # a floor above the start raises the scale to it
                found.floor, found.to_floor = scale, step
            last = scale
            if stop or step - moved == _UNMOVED:
                break
    return found


def _climb(walk: Walk) -> tuple[int | None, float]:
    """Give the finite steps until the scale grows (None: it does not), and the highest scale within five times as many.

    A scaler may answer an overflow a step late: growth is from the lowest scale on the way.
    """
    low = top = walk.scale()
    window: int | None = None
    with suppress(Fault):
        for step in range(1, MOST_FINITE + 1):
            if walk.tell(FINITE).stop:
                return None, top
            scale = walk.scale()
            if scale > low:
                window, top = step, max(top, scale)
                break
            low = min(low, scale)
        for _ in range(4 * (window or 0)):
            if walk.tell(FINITE).stop:
                break
            top = max(top, walk.scale())
    return window, top


def _declared(walk: Walk) -> dict[str, float]:
    scaler = getattr(walk.driver, "scaler", None)
    found = {name: getattr(scaler, name, None) for name in ("min_scale", "max_scale")}
    return {
        name: float(value)
        for name, value in found.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and usable(value)
    }
