"""One scaler on its way through a history, and the fault that ends it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import SkipTest

import numpy as np

from fp16sim.testing.driver import GRADIENTS, Array, Driver, Floats, Told
from fp16sim.testing.histories import FINITE, RESTART, shown
from fp16sim.testing.raised import described, kind_and_place

__all__ = [
    "ERRORS",
    "NO_RETURN",
    "Fault",
    "Hang",
    "Joint",
    "NotApplicable",
    "Outcome",
    "Walk",
    "described",
    "told_apart",
    "usable",
    "written",
]


NO_RETURN = "does not return"
"""What is said of a call that hangs, after its name."""


class Fault(AssertionError):
    """What a check found: the history that shows it, and what happened at its end.

    Attributes
    ----------
    history : str
    what : str
    hangs : bool
        Whether it is a call that does not return.
    """

    hangs: bool = False

    def __init__(self, history: str, what: str) -> None:
        super().__init__(f'"{shown(history)}": {what}' if history else what)
        self.history, self.what = history, what

    def __reduce__(self) -> Any:  # so that it comes back from another process
        return type(self), (self.history, self.what), self.__dict__

    @property
    def raised(self) -> str:
        """What ended it: an exception by its kind and place, or the call that does not return; empty if neither did."""
        if self.hangs:
            return self.what.partition(NO_RETURN)[0] + NO_RETURN
        cause = self.__cause__
        while isinstance(cause, Fault):
            cause = cause.__cause__
        return "" if cause is None else kind_and_place(cause)


class NotApplicable(SkipTest):
    """A check that says nothing about this scaler, and why. pytest shows it as a skip."""


class Hang(BaseException):
    """A call of the scaler that does not return. No Exception, so that nothing on the way takes it for one."""


ERRORS = (Exception, SystemExit, GeneratorExit)
"""What a scaler may raise that is a fault of it: to end the process is none of its business."""


@dataclass(frozen=True)
class Outcome:
    """What one whole step did.

    Attributes
    ----------
    factor : float
        What multiplied the loss.
    given : array
        The scaled gradient that the scaler saw.
    applied : array or None
        What the optimizer was given; None if the step was skipped.
    stop : str or None
        A reason to stop training.
    """

    factor: float
    given: Array
    applied: Array | None
    stop: str | None


@dataclass(frozen=True)
class Joint:
    """What one whole step of several groups did.

    Attributes
    ----------
    scales, factors : mapping of group to float
        The scales that the scaler showed before the step, and what multiplied the loss.
    given, applied : mapping of group to array, or None
        The scaled gradients, and what each optimizer was given; None if its step was skipped.
    stop : str or None
        A reason to stop training.
    """

    scales: Mapping[str, float]
    factors: Mapping[str, float]
    given: Mapping[str, Array | None]
    applied: Mapping[str, Array | None]
    stop: str | None


class Walk:
    """A driver, and the letters of the steps that it has taken.

    Every error of the scaler becomes a :class:`Fault` with the history up to there.

    Attributes
    ----------
    driver : Driver
    letters : list of str
    """

    current: Walk | None = None
    """The walk that called a scaler last: whoever interrupts a call that hangs asks it for its history."""
    _spent = 0

    def __init__(self, driver: Driver) -> None:
        Walk._spent = Walk.spent()
        self.driver = driver
        self.letters: list[str] = []
        Walk.current = self

    @staticmethod
    def spent() -> int:
        """Count the steps that walks took so far, each by what it costs; of two at once those of the later one."""
        last = Walk.current
        return Walk._spent + (0 if last is None else len(last.letters) * last.driver.cost)

    @property
    def history(self) -> str:
        """The steps so far."""
        return "".join(self.letters)

    def fault(self, what: str) -> Fault:
        """Give the fault that ends this walk here."""
        return Fault(self.history, what)

    def scale(self, group: str | None = None) -> float:
        """Give the scale that the scaler shows, of the first group by default: a number that may be any."""
        try:
            return self.driver.scale(self.driver.groups[0] if group is None else group)
        except ERRORS as error:
            raise self.fault(f"the scale cannot be read: {described(error)}") from error

    @contextmanager
    def calling(self, letter: str) -> Iterator[Driver]:
        """Take a step by calls of one's own, on the driver that this gives: an error of the scaler is a fault."""
        self.letters.append(letter)
        try:
            yield self.driver
        except ERRORS as error:
            raise self.fault(f"the scaler raised {described(error)}") from error

    def tell(self, letter: str, peak: float | None = None) -> Told:
        """Take a step of which only the kind matters, and perhaps the largest true gradient."""
        self.letters.append(letter)
        try:
            return self.driver.tell(letter) if peak is None else self.driver.tell_peak(letter, peak)
        except ERRORS as error:
            raise self.fault(f"the scaler raised {described(error)}") from error

    def tell_all(self, history: str) -> Told | None:
        """Take the steps of a history up to the first stop, and give what the last one was told; None if none."""
        told = None
        for letter in history:
            told = self.tell(letter)
            if told.stop:
                break
        return told

    def take(
        self,
        letter: str,
        gradient: Floats | Callable[[float], Floats] | None = None,
        dtype: str = "float32",
        spoil: Mapping[int, float] | None = None,
    ) -> Outcome:
        """Take a whole step with gradients.

        Parameters
        ----------
        letter : str
            What the history says of it.
        gradient : float64 array, or function of the factor, optional
            True gradients. Default: those of the letter, see :data:`fp16sim.testing.driver.GRADIENTS`.
        dtype : str
            Of the gradients that the backward pass gives.
        spoil : mapping of place to value, optional
            Written into the unscaled gradient before the optimizer moves.
        """
        with self.calling(letter) as driver:
            group = driver.groups[0]
            driver.zero_grad()
            factor = driver.factor(group)
            true = gradient(factor) if callable(gradient) else gradient
            driver.backward({group: GRADIENTS[letter] if true is None else true}, dtype)
            given = driver.gradient(group)
            assert given is not None  # it was given above
            if spoil is not None:
                driver.unscale(group)
                spoiled = driver.gradient(group)
                assert spoiled is not None
                for place, value in spoil.items():
                    spoiled[place] = value
                driver.put(group, spoiled)
            applied = driver.step(group)
            return Outcome(factor, given, applied, driver.update())

    def take_each(self, letters: Mapping[str, str]) -> Joint:
        """Take a whole step in which each group has the gradient of a letter of its own.

        The history gets the first letter that is not finite, if there is one.
        """
        with self.calling(
            next((letter for letter in letters.values() if letter != FINITE), FINITE)
        ) as driver:
            driver.zero_grad()
            scales = {group: driver.scale(group) for group in letters}
            factors = {group: driver.factor(group) for group in letters}
            driver.backward({group: GRADIENTS[letter] for group, letter in letters.items()})
            given = {group: driver.gradient(group) for group in letters}
            applied = {group: driver.step(group) for group in letters}
            return Joint(scales, factors, given, applied, driver.update())

    def restart(self, way: str, fresh: Any) -> None:
        """Save the scaler by one of its ways, and go on with a fresh one that the state was loaded into."""
        self._go_on_with(way, lambda: self.driver.saved()[way], fresh)

    def saved(self, way: str) -> Any:
        """Give the state of the scaler by one of its ways."""
        try:
            return self.driver.saved()[way]
        except ERRORS as error:
            raise self.fault(f"saving by {way} raised {described(error)}") from error

    def load(self, way: str, state: Any, fresh: Any) -> None:
        """Go on with a fresh scaler that a state was loaded into, which was saved before."""
        self._go_on_with(way, lambda: state, fresh)

    def _go_on_with(self, way: str, saved: Callable[[], Any], fresh: Any) -> None:
        self.letters.append(RESTART)
        try:
            self.driver = self.driver.restored(way, saved(), fresh)
        except ERRORS as error:
            raise self.fault(f"saving and loading by {way} raised {described(error)}") from error


def written(scale: float) -> str:
    """Write a scale: powers of two of more than six digits as such.

    >>> written(32768.0), written(2.0**20), written(3.0), written(float("inf"))
    ('32768', '2^20', '3', 'inf')
    """
    fraction, exponent = math.frexp(scale)
    if math.isfinite(scale) and fraction == 0.5 and not -8 < exponent < 21:
        return f"2^{exponent - 1}"
    return f"{scale:g}"


def told_apart(one: float, other: float) -> tuple[str, str]:
    """Write two scales that differ, with all digits if they look the same without.

    >>> told_apart(4.0, 8.0), told_apart(0.1, 0.1 + 2.0**-52)
    (('4', '8'), ('0.1', '0.10000000000000023'))
    """
    short = written(one), written(other)
    return short if short[0] != short[1] else (repr(one), repr(other))


def usable(scale: float) -> bool:
    """Whether a loss can be multiplied by it in float32.

    >>> usable(8.0), usable(0.0), usable(2.0**128), usable(float("nan"))
    (True, False, False, False)
    """
    with np.errstate(all="ignore"):
        return scale > 0.0 and math.isfinite(np.float32(scale))
