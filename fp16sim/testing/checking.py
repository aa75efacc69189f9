"""Runs the checks on a scaler and reports what each found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from fp16sim.emulator.formats import nearest_name
from fp16sim.testing.case import Case, Make, case_of
from fp16sim.testing.checks import CHECKS, Check
from fp16sim.testing.report import Report, Verdict, judged
from fp16sim.testing.watchdog import watched

__all__ = ["Report", "ScalerCheckError", "Verdict", "check_scaler", "examined", "scaler_checks"]


class ScalerCheckError(AssertionError):
    """A scaler failed; the message has every failure.

    Attributes
    ----------
    report : Report
    """

    def __init__(self, report: Report) -> None:
        lines = [f"{verdict.check}: {verdict.what}" for verdict in report.failures]
        super().__init__("\n".join([f"{len(lines)} of {len(report.verdicts)} checks failed", *lines]))
        self.report = report


def scaler_checks() -> Iterator[tuple[str, Check]]:
    """Give all checks, as (name, check); ``check(make, traits=())`` examines one scaler.

    A check whose trait is not claimed raises ``unittest.SkipTest``, which pytest reports as a skip.

    >>> dict(scaler_checks())["scale_stays_above_zero"].number
    5
    """
    for check in CHECKS:
        yield check.name, check


def check_scaler(
    make: Make,
    *,
    traits: Iterable[Any] | Mapping[str, Any] = (),
    expected_failures: Mapping[str, str] | None = None,
) -> Report:
    """Test a loss scaler against the properties of a good one.

    Parameters
    ----------
    make : callable
        Makes a new scaler at each call: an object with `scale` and `update`, or one that looks like a scaler of
        another framework, see :func:`fp16sim.testing.adapt`.
    traits : iterable of names and mappings
        What is claimed beyond the properties that every scaler should have: ``"power_of_two"``,
        ``{"interval": 2000}``, ``{"hysteresis": 2}``, ``"groups"``, ``"rechecks"``, ``"checked"``, ``"any_order"``.
    expected_failures : mapping of check to reason
        Checks that are known to fail. One that passes is an error.

    Returns
    -------
    Report

    Raises
    ------
    ScalerCheckError
        With all failures, each with the shortest history found.
    ValueError
        On an unknown trait, or an unknown check in `expected_failures`.

    Examples
    --------
    >>> import fp16sim as fs
    >>> report = check_scaler(lambda: fs.scaling.make("robust", growth_interval=20), traits=["power_of_two"])
    >>> len(report.failures)
    0
    >>> try:
    ...     check_scaler(lambda: fs.scaling.make("keras2", initial_scale=0.25))
    ... except ScalerCheckError as error:
    ...     [verdict.what for verdict in error.report.failures if verdict.number == 7]
    ['"o": the scale rose from 0.25 to 1 on an overflow']
    """
    expected = dict(expected_failures or {})
    for name in expected:
        if name not in dict(scaler_checks()):
            raise ValueError(f"unknown check {name!r}: {nearest_name(name, [n for n, _ in scaler_checks()])}")
    case = case_of(make, traits)
    claimed = [check for check in CHECKS if check.trait is None or check.trait in case.traits]
    with watched():
        report = Report(tuple(examined(check, case, expected.get(check.name)) for check in claimed))
    if report.failures:
        raise ScalerCheckError(report)
    return report


def examined(check: Callable[[Case], None] | Check, case: Case, expected: str | None = None) -> Verdict:
    """Run one check and say what it found; `expected` is the reason for a failure that is expected."""
    assert isinstance(check, Check)
    return judged(check.name, check.number, lambda: check(case), expected)
