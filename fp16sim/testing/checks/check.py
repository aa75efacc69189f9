"""A check of a scaler: one property, by its name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fp16sim.testing.case import Case, Make, case_of
from fp16sim.testing.raised import forget_the_way
from fp16sim.testing.search import need_hypothesis
from fp16sim.testing.shortening import shortest_crash
from fp16sim.testing.walk import Fault, Hang, NotApplicable
from fp16sim.testing.watchdog import shortest_hang, watched

__all__ = ["Check"]


@dataclass(frozen=True, repr=False)
class Check:
    """A property of loss scalers as a test of one; ``help`` of one says what the property is.

    Attributes
    ----------
    name : str
    number : int or None
        Of the property in docs/scaler_checks.md.
    examine : callable
        Takes a :class:`fp16sim.testing.case.Case` and raises :class:`fp16sim.testing.walk.Fault`.
    trait : str or None
        The claim that it tests; None if it applies to all.
    """

    name: str
    number: int | None
    examine: Callable[[Case], None]
    trait: str | None = None

    def __post_init__(self) -> None:
        trait = f"\n\nOf scalers with the trait {self.trait!r}." if self.trait else ""
        object.__setattr__(self, "__doc__", inspect.cleandoc(self.examine.__doc__ or "") + trait)

    def __repr__(self) -> str:
        return self.name

    @property
    def says(self) -> str:
        """What the property is, in a line."""
        return (self.examine.__doc__ or "").partition("\n")[0]

    def __call__(self, make: Make | str | Case, traits: Iterable[Any] | Mapping[str, Any] = ()) -> None:
        """Examine a scaler.

        Parameters
        ----------
        make : callable
            Makes a new scaler at each call; or text, as for ``fp16sim scalers --check``.
        traits : iterable or mapping
            What is claimed of it, see :data:`fp16sim.testing.case.TRAITS`.

        Raises
        ------
        Fault
            With the shortest history found, and the rule that it breaks as a note.
        NotApplicable
            If the property is not claimed, or the scaler lacks a method that it needs.
        """
        __tracebackhide__ = True  # pytest shows the test that called, and the message
        need_hypothesis(f"the check {self.name}")
        case = case_of(make, traits)
        if self.trait is not None and self.trait not in case.traits:
            raise NotApplicable(f"the trait {self.trait!r} is not claimed")
        found: Fault
        cause: BaseException | None
        try:
            with watched(case.make) as watch:
                self._examine(case)
            return
        except Fault as fault:
            found, cause = fault.with_traceback(None), fault.__cause__  # the way there is the kit's
        except Hang:
            found, cause = shortest_hang(case.walk, watch), None
            found.hangs = True
        except SystemExit as error:  # from a call that no walk made
            found, cause = Fault("", f"the scaler raised SystemExit: {error}"), error
        forget_the_way(cause)
        if cause is None and not found.hangs:  # an exception or a hang tells of no rule
            found.add_note(f"rule: {self.says}")
        raise found from cause

    def _examine(self, case: Case) -> None:
        try:
            self.examine(case)
        except Fault as fault:
            if (
                type(fault) is not Fault or not fault.raised
            ):  # its history says all, or the check made it short
                raise
            shortest = shortest_crash(fault, case.walk, case.crashes)
            raise Fault(shortest.history, shortest.what) from shortest.__cause__
