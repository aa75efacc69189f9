"""The properties of a good loss scaler, each a check of one, some of them to a module."""

from fp16sim.testing.checks import (
    any_order,
    applied,
    bounds,
    clamps,
    groups,
    liveness,
    manners,
    overshoot,
    safety,
    saving,
    stops,
    transparency,
    windows,
)
from fp16sim.testing.checks.check import Check

__all__ = ["CHECKS", "Check"]

_MODULES = (
    any_order,
    bounds,
    clamps,
    groups,
    liveness,
    manners,
    overshoot,
    safety,
    saving,
    stops,
    transparency,
    windows,
    applied,  # last of those without a number
)

CHECKS: tuple[Check, ...] = tuple(
    sorted(
        (check for module in _MODULES for check in module.CHECKS),
        key=lambda check: (check.number is None, check.number or 0),
    )
)
