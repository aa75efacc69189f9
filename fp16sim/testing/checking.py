"""Runs the checks on a scaler and reports what each found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fp16sim.emulator.formats import nearest_name
from fp16sim.testing import watchdog
from fp16sim.testing.case import Case, Make, case_of
from fp16sim.testing.checks import CHECKS, Check
from fp16sim.testing.factories import need_scaler
from fp16sim.testing.report import Report, Verdict, judged
from fp16sim.testing.search import need_hypothesis
from fp16sim.testing.traits import WITH_A_NUMBER, as_traits

__all__ = [
    "Report",
    "ScalerCheckError",
    "Verdict",
    "check_scaler",
    "chosen_checks",
    "claimed_checks",
    "examined",
    "expected_reasons",
    "need_reasons",
    "scaler_checks",
    "unclaimed_traits",
    "verdicts",
]


class ScalerCheckError(AssertionError):
    """A scaler failed; the message has every failure.

    Attributes
    ----------
    report : Report
    """

    def __init__(self, report: Report) -> None:
        super().__init__("\n".join([report.summary(), *report.reasons()]))
        self.report = report

    def __reduce__(self) -> Any:  # so that it comes back from another process
        return type(self), (self.report,)


def scaler_checks() -> Iterator[tuple[str, Check]]:
    """Give all checks, as (name, check); ``check(make, traits=())`` examines one scaler.

    A check whose trait is not claimed raises ``unittest.SkipTest``, which pytest reports as a skip.

    >>> dict(scaler_checks())["scale_stays_above_zero"].number
    5
    """
    for check in CHECKS:
        yield check.name, check


def check_scaler(
    make: Make | str,
    *,
    traits: Iterable[Any] | Mapping[str, Any] = (),
    expected_failures: Mapping[str, str] | None = None,
    only: Iterable[str] | str | None = None,
) -> Report:
    """Test a loss scaler against the properties of a good one.

    Parameters
    ----------
    make : callable
        Makes a new scaler at each call: an object with `scale` and `update`, or one that looks like a scaler of
        another framework, see :func:`fp16sim.testing.adapt`. Or text, as for ``fp16sim scalers --check``.
    traits : iterable of names and mappings, or text
        What is claimed beyond the properties that every scaler should have: ``"power_of_two"``,
        ``{"interval": 2000}``, ``{"hysteresis": 2}``, ``"groups"``, ``"rechecks"``, ``"checked"``, ``"any_order"``.
        ``{"cost": 200}`` is no claim to be checked: a step takes as long as 200 of 5 us, and fewer are taken.
        Or text, as for ``--traits``: ``"power_of_two,interval=2000"``.
    expected_failures : mapping of check to reason
        Checks that are known to fail. One that passes is an error.
    only : iterable of str, or str, optional
        The names of the checks that run; in a text, with commas between them. Default: all that apply.

    Returns
    -------
    Report

    Raises
    ------
    ScalerCheckError
        With all failures, each with the shortest history found.
    ValueError
        On an unknown trait, an unknown check in `expected_failures` or `only`, or text that names no factory.
    TypeError
        On what is no factory, cannot be called without arguments, or gives no scaler, such as a class; and on what is
        no list of traits, of checks, or mapping of expected failures.
    ImportError
        Without Hypothesis.

    Notes
    -----
    A call that does not return is interrupted after 2 seconds, and is a failure like any other; see
    :mod:`fp16sim.testing.watchdog`.

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
    ['"o": the scale rose from 0.25 to 1 on an overflow; clamp with min(old, new)']
    """
    __tracebackhide__ = True
    report = Report(tuple(verdicts(make, traits, expected_failures, only)))
    if report.failures:
        raise ScalerCheckError(report)
    return report


def verdicts(
    make: Make | str,
    traits: Iterable[Any] | Mapping[str, Any] = (),
    expected_failures: Mapping[str, str] | None = None,
    only: Iterable[str] | str | None = None,
    expected_in: str = "expected_failures",
) -> Iterator[Verdict]:
    """Give what each check that is claimed finds, one after the other as they end; see :func:`check_scaler`.

    `expected_in` is where the user wrote the expected failures, as messages name it.
    """
    need_hypothesis("check_scaler")
    case = case_of(make, traits)
    checks = claimed_checks(case.traits)
    expected = expected_reasons(expected_failures or {}, checks)
    chosen = chosen_checks(only, checks)
    case.forget()
    watchdog.forget(case.make)
    need_scaler(case.make, getattr(case.make, "__name__", type(case.make).__name__))
    return (examined(check, case, expected.get(check.name), expected_in) for check in chosen)


def claimed_checks(traits: Iterable[Any] | Mapping[str, Any] = ()) -> tuple[Check, ...]:
    """Give the checks for every scaler, and those for the traits.

    >>> [check.name for check in claimed_checks() if check.number == 7]
    ['overflow_never_raises_the_scale']
    """
    claimed = as_traits(traits)
    return tuple(check for check in CHECKS if check.trait is None or check.trait in claimed)


def unclaimed_traits(traits: Iterable[Any] | Mapping[str, Any] = ()) -> list[str]:
    """Give the traits that are not claimed and have checks of their own, as they are typed.

    >>> unclaimed_traits(["power_of_two", {"interval": 500}])
    ['hysteresis=N', 'groups', 'any_order', 'checked']
    """
    claimed = as_traits(traits)
    names = dict.fromkeys(check.trait for check in CHECKS if check.trait not in (None, *claimed))
    return [f"{name}=N" if name in WITH_A_NUMBER else str(name) for name in names]


def chosen_checks(only: Iterable[str] | str | None, checks: Sequence[Check]) -> tuple[Check, ...]:
    """Give those of the checks whose names are asked for, in their order; all if `only` is None.

    Raises
    ------
    ValueError
        On an unknown check, one whose trait is not claimed, or no name at all.
    TypeError
        On what are no names.
    """
    if only is None:
        return tuple(checks)
    if isinstance(only, bytes) or not isinstance(only, Iterable):
        raise TypeError(f"only={only!r}: pass the names of checks, such as ['scale_stays_finite']")
    names = [part.strip() for part in only.split(",")] if isinstance(only, str) else list(only)
    if not any(names):
        raise ValueError("no check is asked for: name one, or leave it out to run all")
    for name in names:
        check = _known(name)
        if check not in checks:
            raise ValueError(f"{name} does not run: claim the trait {check.trait!r}")
    return tuple(check for check in checks if check.name in names)


def _known(name: object) -> Check:
    valid = {check.name: check for check in CHECKS}
    if name not in valid:
        raise ValueError(f"unknown check {name!r}: {nearest_name(str(name), list(valid))}")
    return valid[str(name)]


def expected_reasons(given: Mapping[str, str], checks: Sequence[Check]) -> dict[str, str]:
    """Read expected failures: the names of checks that run, each with a reason.

    Raises
    ------
    ValueError
        On an unknown check, one whose trait is not claimed, or one without a reason.
    TypeError
        On what is no mapping.
    """
    need_reasons(given)
    for name, reason in given.items():
        check = _known(name)
        if check not in checks:
            raise ValueError(
                f"{name} is expected to fail and does not run: claim the trait {check.trait!r}, or take it out"
            )
        if not isinstance(reason, str) or not reason.strip():
            raise ValueError(f"{name} is expected to fail for the reason {reason!r}: say why in words")
    return dict(given)


def need_reasons(given: object, name: str = "expected_failures") -> None:
    """Refuse what is no mapping of check to reason.

    >>> need_reasons("issue 12")
    Traceback (most recent call last):
        ...
    TypeError: expected_failures is a str: pass a mapping of check to reason, such as {'scale_stays_above_zero': ...
    """
    if not isinstance(given, Mapping):
        raise TypeError(
            f"{name} is a {type(given).__name__}: pass a mapping of check to reason, such as "
            "{'scale_stays_above_zero': 'issue 12'}"
        )


def examined(
    check: Check, case: Case, expected: str | None = None, expected_in: str = "expected_failures"
) -> Verdict:
    """Run one check and say what it found; `expected` is the reason for a failure that is expected."""
    verdict = judged(check.name, check.number, lambda: check(case), expected, expected_in)
    return replace(verdict, says=check.says)
