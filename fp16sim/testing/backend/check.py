"""A check of a backend: one method, by groups of calls, each searched for the smallest input with a fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fp16sim.testing.backend import words
from fp16sim.testing.backend.trial import BackendCase
from fp16sim.testing.search import quiet
from fp16sim.testing.walk import Fault, NotApplicable

__all__ = ["BackendCheck", "Group"]


@dataclass(frozen=True)
class Group:
    """Calls of one kind.

    Attributes
    ----------
    name : str
        Of the kind, among those of the check: a format, a datapath.
    strategy : hypothesis strategy
    examine : callable
        Takes what is drawn and raises Fault.
    examples : float
        How many are drawn, for each that the case asks for.
    fixed : tuple
        Inputs that are examined too, too large to draw.
    """

    name: str
    strategy: Any
    examine: Callable[[Any], None]
    examples: float = 1.0
    fixed: tuple[Callable[[], None], ...] = ()


@dataclass(frozen=True)
class BackendCheck:
    """Tests one method of a backend against the definition.

    Attributes
    ----------
    name : str
        The method, with the operation or kind behind a point: ``"elementwise.add"``.
    method : str
    groups : callable
        Gives the groups for a case.
    """

    name: str
    method: str
    groups: Callable[[BackendCase], Iterator[Group]]

    def __call__(self, case: BackendCase) -> str:
        """Examine a backend; give a note of what it does not do.

        Raises
        ------
        Fault
            With the smallest input found; in several formats or datapaths, the first is shown and the others named.
        NotApplicable
            If the backend lacks the method, or raises NotImplementedError in every call.
        """
        case.method(self.method)
        case.done, case.undone = 0, {}
        try:
            return self._examined(case)
        finally:
            case.close()

    def _examined(self, case: BackendCase) -> str:
        first: Fault | None = None
        broken: list[str] = []
        groups = list(self.groups(case))
        for group in groups:
            examples = max(1, round(case.examples * group.examples))
            try:
                _search(group, examples, shrink=False)
            except Fault as fault:
                first = first or _smallest(case, group, examples, fault)
                broken.append(group.name)
        if first is not None:
            also = f"; also for {words.listed(broken[1:])}" if broken[1:] else ""
            raise Fault("", first.what + also) from first.__cause__
        if not groups:
            raise NotApplicable("nothing to test: the method takes none of these formats")
        if not case.done:
            raise NotApplicable("NotImplementedError")
        return f"not done by the backend: {words.listed(list(case.undone), '; ')}" if case.undone else ""


def _smallest(case: BackendCase, group: Group, examples: int, found: Fault) -> Fault:
    """Look for the smallest input: one with wrong results if there is one, or else with wrong flags or counts."""
    for quick in (True, False):
        case.quick = quick
        try:
            _search(group, examples, shrink=True)
        except Fault as fault:
            return fault
        finally:
            case.quick = False
    return Fault("", f"{found.what}; but not every time")


def _search(group: Group, examples: int, shrink: bool) -> None:
    """Draw inputs, the same ones at every run, and raise the fault of the smallest that has one."""
    from hypothesis import errors, given

    found: list[Fault] = []

    def remembered(drawn: Any) -> None:
        try:
            group.examine(drawn)
        except Fault as fault:
            found.append(fault)
            raise

    try:
        decorated: Any = given(group.strategy)
        quiet(examples, shrink)(decorated(remembered))()
        for examine in group.fixed:
            examine()
    except Fault as fault:
        raise Fault("", fault.what) from fault.__cause__
    except errors.Flaky:
        raise Fault("", f"{found[-1].what}; but not every time") from None
