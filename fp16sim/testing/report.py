"""What checks found: a verdict for each, and a report of all."""

from __future__ import annotations

import json
import math
import shutil
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any
from unittest import SkipTest

from fp16sim.testing.histories import shown
from fp16sim.testing.raised import described, kind_and_place
from fp16sim.testing.walk import NO_RETURN, Fault, Hang, NotApplicable

__all__ = [
    "EXPECTED",
    "FAILED",
    "NOT_APPLICABLE",
    "PASSED",
    "UNEXPECTED",
    "Report",
    "Verdict",
    "judged",
    "rows",
]

PASSED, FAILED, NOT_APPLICABLE = "passed", "failed", "not applicable"
EXPECTED, UNEXPECTED = "failed as expected", "passed unexpectedly"
_STATUS = len(UNEXPECTED)
_INDENT = _STATUS + len("  12  ")


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
    raised : str
        The exception that ended it, if one did: its kind, and the file and the line that it comes from. Or the call
        that does not return.
    says : str
        The property, in a sentence.
    """

    check: str
    number: int | None
    status: str
    what: str = ""
    history: str | None = None
    reason: str = ""
    raised: str = ""
    says: str = ""

    @property
    def bad(self) -> bool:
        """Whether it fails the scaler."""
        return self.status in (FAILED, UNEXPECTED)

    def lines(self, name: int = 0, width: int | None = None) -> str:
        """Give what a terminal shows: the status, the number, the name, what happened, and the rule that it breaks.

        Parameters
        ----------
        name : int
            Columns for the name.
        width : int, optional
            Columns in all; what does not fit behind the name stands below it. Default: those of the terminal.

        Examples
        --------
        >>> print(Verdict("above_zero", 5, FAILED, '"o{166}": the scale went from 2^-149 to 0').lines(0, 60))
        FAILED                5  above_zero
                                 "o{166}": the scale went from
                                 2^-149 to 0
        """
        width = _columns() if width is None else width
        status = self.status.upper() if self.bad else self.status
        number = "" if self.number is None else str(self.number)
        what = self.what + (f" (expected: {self.reason})" if self.status == EXPECTED else "")
        head = f"{status:<{_STATUS}}  {number:>2}  {self.check:<{name}}"
        broken = (
            self.status == FAILED and self.says and not self.raised
        )  # an exception or a hang tells of no rule
        rule = _below(f"rule: {self.says}", width) if broken else []
        if len(head) + 2 + len(what) <= width:
            return "\n".join([f"{head}  {what}".rstrip(), *rule])
        return "\n".join([head.rstrip(), *_below(what, width), *rule])


def _below(text: str, width: int) -> list[str]:
    columns = max(width - _INDENT, 24)
    if text.startswith('"'):  # a history, which may be longer than a line
        history, space, rest = text.partition(" ")
        parts = [history[start : start + columns] for start in range(0, len(history), columns)]
        text = " ".join(parts) + space + rest
    lines = textwrap.wrap(text, columns, break_long_words=False, break_on_hyphens=False)
    return [" " * _INDENT + line for line in lines]


def rows(verdicts: Iterable[Verdict], name: int, width: int | None = None) -> Iterator[str]:
    """Give what a terminal shows of verdicts as they come; what an exception or a hang ended again stands at the end.

    There the check with the shortest history comes first, if that was not the first one that it ended.

    Parameters
    ----------
    verdicts : iterable of Verdict
    name : int
        Columns for the names.
    width : int, optional
        Columns in all. Default: those of the terminal.
    """
    width = _columns() if width is None else width
    ended: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        same = ended.setdefault(verdict.raised, []) if verdict.bad and verdict.raised else []
        same.append(verdict)
        if len(same) == 1:
            yield verdict.lines(name, width)
    for raised, same in ended.items():
        shortest = min(same, key=_length)
        if shortest is not same[0]:
            yield shortest.lines(name, width)
        others = [verdict for verdict in same[1:] if verdict is not shortest]
        if others:
            error = raised.partition(": ")[0]  # its text stands above
            how = f"where {raised}" if raised.endswith(NO_RETURN) else f"by the same {error}"
            names = ", ".join(verdict.check for verdict in others)
            lines = _below(f"{len(others)} more as {shortest.check}, {how}: {names}", width)
            yield "\n".join([FAILED.upper() + lines[0][len(FAILED) :], *lines[1:]])


def _length(verdict: Verdict) -> float:
    """The steps of its history; without one it leads no others."""
    return math.inf if verdict.history is None else len(verdict.history)


def _columns() -> int:
    return shutil.get_terminal_size((100, 24)).columns


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
        """Give plain data; histories as :func:`fp16sim.testing.histories.shown` writes them."""
        checks = [asdict(verdict) for verdict in self.verdicts]
        for check in checks:
            check["history"] = None if check["history"] is None else shown(check["history"])
        return {"ok": not self.failures, "checks": checks}

    def to_json(self) -> str:
        """Give :meth:`to_dict` as strict JSON."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def summary(self) -> str:
        """Count the verdicts in a line.

        >>> Report((Verdict("a", 1, PASSED), Verdict("b", 2, FAILED, "no"))).summary()
        '1 of 2 checks failed: 1 passed'
        """
        counts = Counter(verdict.status for verdict in self.verdicts)
        bad, all_of_them = len(self.failures), len(self.verdicts)
        others = [
            f"{counts[status]} {status}" for status in (PASSED, EXPECTED, NOT_APPLICABLE) if counts[status]
        ]
        if counts[UNEXPECTED]:
            others.insert(0, f"{counts[UNEXPECTED]} of them by passing unexpectedly")
        checks = f"{all_of_them} check{'s' * (all_of_them != 1)}"
        head = f"{bad} of {checks} failed" if bad else f"no failure in {checks}"
        return f"{head}: {', '.join(others)}" if others else head

    def table(self, width: int | None = None) -> str:
        """Give a line for each check, more where what happened is longer than the line; what one exception ended, once.

        Parameters
        ----------
        width : int, optional
            Columns. Default: those of the terminal.
        """
        name = max((len(verdict.check) for verdict in self.verdicts), default=0)
        return "\n".join(rows(self.verdicts, name, width))

    def reasons(self) -> list[str]:
        """Give a line for each failure, with the names of the checks that it ended, and the shortest history."""
        names: dict[str, list[Verdict]] = {}
        for verdict in self.failures:  # one that hangs or raises at once does so in every check
            names.setdefault(verdict.raised or verdict.what, []).append(verdict)
        return [
            f"{', '.join(each.check for each in same)}: {min(same, key=_length).what}"
            for same in names.values()
        ]


def judged(
    name: str,
    number: int | None,
    examine: Callable[[], Any],
    expected: str | None = None,
    expected_in: str = "expected_failures",
) -> Verdict:
    """Run one check and say what it found.

    Parameters
    ----------
    name : str
    number : int or None
    examine : callable
        What it gives, if anything, is a note for a verdict that passed.
    expected : str, optional
        The reason for a failure that is expected.
    expected_in : str
        Where the user wrote that.
    """
    remedy = f"it was expected to fail ({expected}): take it out of {expected_in}"
    try:
        note = examine()
    except NotApplicable as reason:
        what = str(reason) if expected is None else f"{reason}; {remedy}"
        return Verdict(name, number, NOT_APPLICABLE, what, reason=expected or "")
    except (Fault, Hang) as fault:
        status = FAILED if expected is None else EXPECTED
        history = fault.history if isinstance(fault, Fault) else None
        raised = fault.raised if isinstance(fault, Fault) else ""
        return Verdict(name, number, status, str(fault), history, expected or "", raised)
    except SkipTest:  # of a factory whose framework is not installed
        raise
    except Exception as error:
        # a fault of a check is not one of what it checks, and the others go on all the same
        what, raised = f"the check itself raised {described(error)}", kind_and_place(error)
        return Verdict(name, number, FAILED, what, raised=raised)
    if expected is not None:
        return Verdict(name, number, UNEXPECTED, remedy, reason=expected)
    return Verdict(name, number, PASSED, note or "")
