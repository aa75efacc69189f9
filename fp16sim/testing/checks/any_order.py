"""Calls in any order are right, or refused."""

from __future__ import annotations

from fp16sim.testing.case import Case
from fp16sim.testing.checks.check import Check
from fp16sim.testing.driver import ONE_GROUP

__all__ = ["CHECKS"]

_TWO_GROUPS = ("a", "b")
_MOST, _FEWEST, _OF_COST = 100, 20, 2000
"""Examples: at most, at least, and by what a step costs."""


def any_order_of_calls(case: Case) -> None:
    """Scale, backward, unscale, clip, step, update, zero_grad, and save and load are right in any order, or refused.

    With one optimizer, and with two where the scaler can have them, see :class:`fp16sim.testing.machine.ScalerMachine`.
    """
    from fp16sim.testing.machine import ScalerMachine, shortest_fault

    driver = case.walk().driver
    groups = [driver.groups]
    if driver.groups == ONE_GROUP and "groups" in driver.can:
        groups.append(_TWO_GROUPS)
    for each in groups:
        machine = ScalerMachine.of(
            case, groups=each, examples=max(_FEWEST, min(_MOST, _OF_COST // case.cost))
        )
        fault = shortest_fault(machine)
        if fault is not None:
            raise fault from fault.__cause__


CHECKS = (Check("any_order_of_calls", None, any_order_of_calls, trait="any_order"),)
