"""The properties of a good loss scaler, each a check of one, some of them to a module."""

from fp16sim.testing.checks import bounds
from fp16sim.testing.checks.check import Check

__all__ = ["CHECKS", "Check"]

CHECKS: tuple[Check, ...] = tuple(
    sorted(bounds.CHECKS, key=lambda check: (check.number is None, check.number or 0))
)
