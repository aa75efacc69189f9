"""What strategies draw, and what they shrink to, the same at every run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import HealthCheck, find, given, settings

FLOOR = 0.05
_QUIET = {"derandomize": True, "database": None, "deadline": None, "suppress_health_check": list(HealthCheck)}


def draws(strategy: Any, count: int = 2000) -> list[Any]:
    """Draw many."""
    found: list[Any] = []

    @settings(max_examples=count, **_QUIET)
    @given(strategy)
    def draw(value: Any) -> None:
        found.append(value)

    draw()
    return found


def smallest(strategy: Any, condition: Callable[[Any], Any], examples: int = 3000) -> Any:
    """Give what a failing test would show."""
    return find(strategy, condition, settings=settings(max_examples=examples, **_QUIET))


def shares(drawn: Iterable[Any], classes: dict[str, Callable[[Any], Any]]) -> dict[str, float]:
    """Give the share of the draws in each class, and print it (``pytest -s``)."""
    drawn = list(drawn)
    found = {
        name: sum(bool(belongs(value)) for value in drawn) / len(drawn) for name, belongs in classes.items()
    }
    for name, share in found.items():
        print(f"  {name:<40} {share:6.1%}")
    return found


def rare(found: dict[str, float]) -> dict[str, float]:
    """Give the classes in fewer than one of twenty draws."""
    return {name: share for name, share in found.items() if share < FLOOR}
