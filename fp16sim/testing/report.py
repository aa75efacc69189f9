"""What checks found: a verdict for each, and a report of all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from fp16sim.testing.walk import Fault, Hang, NotApplicable

__all__ = ["EXPECTED", "FAILED", "NOT_APPLICABLE", "PASSED", "UNEXPECTED", "Report", "Verdict", "judged"]

PASSED, FAILED, NOT_APPLICABLE = "passed", "failed", "not applicable"
EXPECTED, UNEXPECTED = "failed as expected", "passed unexpectedly"


@dataclass(frozen=True)
class Verdict:
    """What one check found.

    Attributes
    ----------
    check : str
        Its name.
    number : int or None
        Of the property.
    status : str
        "passed", "failed", "not applicable", "failed as expected" or "passed unexpectedly".
    what : str
        What happened; why the check is not applicable; what it left out, if it passed.
    history : str or None
        The shortest history found, as :func:`fp16sim.testing.histories.expanded` gives it.
    reason : str
        Why a failure is expected.
    """

    check: str
    number: int | None
    status: str
    what: str = ""
    history: str | None = None
    reason: str = ""

    @property
    def bad(self) -> bool:
        """Whether it fails the scaler."""
        return self.status in (FAILED, UNEXPECTED)


@dataclass(frozen=True)
class Report:
    """What all checks found.

    Attributes
    ----------
    verdicts : tuple of Verdict
    """

    verdicts: tuple[Verdict, ...]

    @property
    def failures(self) -> tuple[Verdict, ...]:
        """Those that fail the scaler: unexpected ones."""
        return tuple(verdict for verdict in self.verdicts if verdict.bad)

    def to_dict(self) -> dict[str, Any]:
        """Give plain data."""
        return {"ok": not self.failures, "checks": [asdict(verdict) for verdict in self.verdicts]}

    def table(self) -> str:
        """Give a line for each check."""
        width = max(len(verdict.status) for verdict in self.verdicts)
        name = max(len(verdict.check) for verdict in self.verdicts)
        lines = []
        for verdict in self.verdicts:
            number = "" if verdict.number is None else str(verdict.number)
            what = verdict.what + (f" (expected: {verdict.reason})" if verdict.status == EXPECTED else "")
            lines.append(f"{number:>2}  {verdict.check:<{name}}  {verdict.status:<{width}}  {what}".rstrip())
        return "\n".join(lines)


def judged(name: str, number: int | None, examine: Callable[[], Any], expected: str | None = None) -> Verdict:
    """Run one check and say what it found; `expected` is the reason for a failure that is expected.

    What `examine` gives, if anything, is a note for a verdict that passed.
    """
    try:
        note = examine()
    except NotApplicable as reason:
        return Verdict(name, number, NOT_APPLICABLE, str(reason))
    except (Fault, Hang) as fault:
        status = FAILED if expected is None else EXPECTED
        history = fault.history if isinstance(fault, Fault) else None
        return Verdict(name, number, status, str(fault), history, expected or "")
    if expected is not None:
        what = f"it was expected to fail ({expected}): take it out of expected_failures"
        return Verdict(name, number, UNEXPECTED, what, reason=expected)
    return Verdict(name, number, PASSED, note or "")
