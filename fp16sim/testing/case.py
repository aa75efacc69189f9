"""A scaler under test: how to make one, what its maker claims of it, and what it shows of its range and its window."""

from __future__ import annotations

import inspect
import math
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from unittest import SkipTest

from fp16sim.scaling.wording import a_kind
from fp16sim.testing.adapters import adapt
from fp16sim.testing.driver import ONE_GROUP, as_groups
from fp16sim.testing.histories import FINITE, LETTERS, OVERFLOW
from fp16sim.testing.traits import TRAITS, as_traits
from fp16sim.testing.walk import ERRORS, Fault, Hang, Walk, described, usable

__all__ = ["MOST_FINITE", "TRAITS", "Case", "Profile", "as_traits", "case_of", "need_factory"]

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

    def walk(self, groups: Iterable[str] = ONE_GROUP) -> Walk:
        """Begin a history with a new scaler; names that are no groups are the caller's error, and no fault of it."""
        groups = as_groups(groups)
        made = self.made()
        try:
            driver = adapt(made, groups)
        except ERRORS as error:
            raise Fault("", described(error)) from error
        driver.cost = int(self.traits.get("cost", driver.cost))
        return Walk(driver)

    @cached_property
    def profile(self) -> Profile:
        """What the scaler declares or shows; a fault on the way leaves the rest unknown."""
        profiles = _PROFILES.setdefault(self.make, {}) if _can_be_kept(self.make) else {}
        known = profiles.get(self.traits.get("cost"))
        if known is None:
            known = Profile()
            with suppress(Fault, Hang):  # the checks find it themselves
                known = _profile(self)
            profiles[self.traits.get("cost")] = known
        return known

    @cached_property
    def crashes(self) -> dict[str, Fault]:
        """The faults with the shortest histories known, by the exceptions of the scaler that ended them."""
        return {}

    def forget(self) -> None:
        """Look anew at what the scaler shows, which may have changed since the last run, in a notebook for example."""
        self.crashes.clear()
        if _can_be_kept(self.make):
            _PROFILES.pop(self.make, None)

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

        lengths = {
            letter: tuple(steps for steps in own if steps <= self.longest_run)
            for letter, own in self.profile.lengths.items()
        }
        return overflow_histories(
            letters=letters, most_runs=most_runs, lengths=lengths, most_steps=self.most_steps
        )

    @property
    def longest_run(self) -> int:
        """Steps of the longest run that is tried more than a few times: 20,000, or fewer by what a step costs."""
        return max(MOST_FINITE // self.cost, 1)

    @property
    def has_long_window(self) -> bool:
        """Whether its window is a longer run than that."""
        return (self.profile.window or 1) > self.longest_run

    @property
    def most_steps(self) -> int:
        """Steps of the longest histories: to the floor and through three windows, if that is no longer run."""
        window, to_floor = (
            min(steps, self.longest_run) for steps in (self.profile.window or 1, self.profile.to_floor)
        )
        return 64 + 3 * window + 2 * to_floor

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
        if "cost" in self.traits:
            return int(self.traits["cost"])
        with suppress(Fault, Hang):
            return max(int(self.walk().driver.cost), 1)
        return 1


_PROFILES: weakref.WeakKeyDictionary[Make, dict[int | None, Profile]] = weakref.WeakKeyDictionary()
"""By what a step is claimed to cost."""


def case_of(make: Make | str | Case, traits: Iterable[Any] | Mapping[str, Any] = ()) -> Case:
    """Give the case of a factory, of text as for ``fp16sim scalers --check``, or of a :class:`Case` itself.

    Raises
    ------
    TypeError
        If it is no factory, or one that cannot be called without arguments.
    ValueError
        On an unknown trait, or text that names no factory.
    """
    if isinstance(make, Case):
        return make
    claimed = as_traits(traits)
    if isinstance(make, str):
        from fp16sim.testing.factories import factory_of

        make = factory_of(make)
    need_factory(make)
    return Case(make, claimed)


def need_factory(make: object) -> None:
    """Refuse what is no function, or class, that can be called without arguments.

    >>> need_factory(lambda scale: None)
    Traceback (most recent call last):
        ...
    TypeError: <lambda> is called without arguments for each new scaler: missing a required argument: 'scale'; pass ...
    """
    if not callable(make):
        raise TypeError(
            f"{a_kind(make)} is no factory: pass a function that makes a new scaler each time, such as "
            "lambda: fs.scaling.make('torch')"
        )
    try:
        signature = inspect.signature(make)
    except (ValueError, TypeError):  # of a builtin: the call tells
        return
    try:
        signature.bind()
    except TypeError as error:
        name = getattr(make, "__name__", type(make).__name__)
        raise TypeError(
            f"{name} is called without arguments for each new scaler: {error}; pass a function that gives them, such "
            f"as lambda: {'make' if name == '<lambda>' else name}(...)"
        ) from None


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
    window, highest = _climb(walk, case.longest_run)
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


def _climb(walk: Walk, longest: int) -> tuple[int | None, float]:
    """Give the finite steps until the scale grows (None: it does not), and the highest scale within five times as many.

    A window is taken to be of `longest` steps at most in that.

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
        for _ in range(4 * min(window or 0, longest)):
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
