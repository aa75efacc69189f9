"""Runs one check of a scaler, where a check that says nothing about it is a failure of the test, and no skip."""

import pytest

from fp16sim.testing import Fault, NotApplicable, scaler_checks

CHECKS = dict(scaler_checks())


def fault(name, make, traits=()):
    """Give the fault that a check finds; it has to find one."""
    try:
        CHECKS[name](make, traits)
    except Fault as found:
        return found
    except NotApplicable as reason:
        pytest.fail(f"{name} is not applicable: {reason}")
    return pytest.fail(f"{name} found nothing")


def passes(name, make, traits=()):
    """Expect that a check applies and finds nothing."""
    try:
        CHECKS[name](make, traits)
    except NotApplicable as reason:
        pytest.fail(f"{name} is not applicable: {reason}")


def says_nothing(name, make, match, traits=()):
    """Expect that a check does not apply."""
    with pytest.raises(NotApplicable, match=match):
        CHECKS[name](make, traits)
