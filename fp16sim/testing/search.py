"""Looks for the smallest input on which a check finds a fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fp16sim.testing.walk import Fault

__all__ = ["quiet", "search"]

T = TypeVar("T")


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
    """
    from hypothesis import errors, given

    found: list[Fault] = []

    def remembered(drawn: T) -> None:
        try:
            examine(drawn)
        except Fault as fault:
            found.append(fault)
            raise

    try:
        decorated: Any = given(strategy)  # of Hypothesis, which does not say its type
        quiet(examples)(decorated(remembered))()
    except Fault as fault:
        raise Fault(fault.history, fault.what) from fault.__cause__
    except errors.Flaky:
        last = found[-1]
        raise Fault(
            last.history, f"the same history ends otherwise the second time (the first: {last.what})"
        ) from None


def quiet(examples: int, shrink: bool = True) -> Any:
    """Give settings of Hypothesis that draw the same inputs at every run, and write nothing anywhere."""
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
