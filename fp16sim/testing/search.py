"""Looks for the smallest input on which a check finds a fault."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from fp16sim.extras import not_installed
from fp16sim.testing.shortening import MOST_SPENT as _MOST_SPENT, shortened
from fp16sim.testing.walk import Fault, Walk

__all__ = ["need_hypothesis", "nothing_written", "quiet", "search", "shortest_run"]

T = TypeVar("T")
_UNKNOWN = object()


def need_hypothesis(what: str) -> None:
    """Refuse to begin what would need Hypothesis on its way, if it is not installed.

    Parameters
    ----------
    what : str
        What the user called.

    Raises
    ------
    ImportError
        Naming the extra that brings it.
    """
    try:
        import hypothesis  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "hypothesis":
            raise
        raise ImportError(not_installed(f"{what} needs Hypothesis", "testing"), name="hypothesis") from None


def search(strategy: Any, examine: Callable[[T], None], examples: int = 100) -> None:
    """Draw inputs and raise the fault of the smallest that has one.

    They are the same at every call in one program. Hypothesis also draws constants that it reads in the modules of the
    user's project that are loaded, so another program may draw others.

    Parameters
    ----------
    strategy : hypothesis strategy
        Of what `examine` takes.
    examine : callable
        Raises :class:`Fault` where there is one.
    examples : int
        Inputs that are drawn.

    Raises
    ------
    Fault
        Of the smallest that is found within 60,000 steps after the first one. If what is drawn is a history, or begins
        with one, as many steps more are spent to make that shorter.
    """
    from hypothesis import errors, given

    found: list[Fault] = []
    faulty: set[str] = set()
    end = math.inf
    examine, smallest = _kept(examine)

    # Hypothesis seeds its draws with the text of this function: to change it is to draw other inputs.
    def remembered(drawn: T) -> None:
        nonlocal end
        if Walk.spent() > end and repr(drawn) not in faulty:  # those that are left count as no smaller ones
            return
        try:
            examine(drawn)
        except Fault as fault:
            end = min(end, Walk.spent() + _MOST_SPENT)
            faulty.add(repr(drawn))
            found.append(fault)
            raise

    try:
        decorated: Any = given(strategy)  # of Hypothesis, which does not say its type
        with nothing_written():
            quiet(examples)(decorated(remembered))()
    except Fault as fault:
        least = _with_shorter_history(fault, smallest[0], examine)
        raise Fault(least.history, least.what) from least.__cause__
    except errors.Flaky:
        if not found:
            raise
        last = found[-1]
        raise Fault(
            last.history, f"the same history ends otherwise the second time (the first: {last.what})"
        ) from None


def _kept(examine: Callable[[T], None]) -> tuple[Callable[[T], None], list[T]]:
    """Let an examination keep the last input that had a fault: the one that Hypothesis ends with is the smallest."""
    last: list[T] = []

    def keeps(drawn: T) -> None:
        try:
            examine(drawn)
        except Fault:
            last[:] = [drawn]
            raise

    return keeps, last


def _with_shorter_history(fault: Fault, drawn: Any, examine: Callable[[Any], None]) -> Fault:
    if isinstance(drawn, str):
        return shortened(fault, examine)
    if isinstance(drawn, tuple) and drawn and isinstance(drawn[0], str):
        return shortened(fault, lambda history: examine((history, *drawn[1:])))
    return fault


@contextmanager
def nothing_written() -> Iterator[None]:
    """Let Hypothesis leave no folder `.hypothesis` behind, unless the user said where its files belong.

    Without a database it still keeps the constants that it reads in modules. It goes without where they cannot be
    written, as below a file that is no folder.
    """
    from hypothesis import configuration

    home = getattr(configuration, "__hypothesis_home_directory", _UNKNOWN)
    if home is not None or "HYPOTHESIS_STORAGE_DIRECTORY" in os.environ:
        yield
        return
    configuration.set_hypothesis_home_dir(Path(os.devnull, "hypothesis"))
    try:
        yield
    finally:
        configuration.set_hypothesis_home_dir(None)


def shortest_run(examine: Callable[[int], None], longest: int) -> None:
    """Examine a run, and of its fault find the shortest, by bisection: a run of no steps is taken to have none.

    Parameters
    ----------
    examine : callable
        Takes a length, and raises :class:`Fault` where there is one.
    longest : int

    Raises
    ------
    Fault
    """
    good, fault = 0, _fault_of(examine, longest)
    while fault is not None and longest - good > 1:
        middle = (good + longest) // 2
        found = _fault_of(examine, middle)
        good, longest, fault = (middle, longest, fault) if found is None else (good, middle, found)
    if fault is not None:
        raise fault


def _fault_of(examine: Callable[[int], None], length: int) -> Fault | None:
    try:
        examine(length)
    except Fault as fault:
        return fault
    return None


def quiet(examples: int, shrink: bool = True) -> Any:
    """Give settings of Hypothesis that draw the same inputs at every run, and keep no examples."""
    from hypothesis import HealthCheck, Phase, settings

    return settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        phases=(Phase.explicit, Phase.generate, *([Phase.shrink] if shrink else [])),
    )
