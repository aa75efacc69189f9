"""A check of a backend: one method, by groups of calls, each searched for the smallest input with a fault."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from fp16sim.testing.backend import words
from fp16sim.testing.backend.smaller import Move, made_smaller
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
    walk : callable
        Gives inputs that are examined before those drawn, such as one of each size.
    fixed : tuple
        What is examined too, and is no input.
    moves : callable, optional
        Gives what may make an input with a fault smaller. None: Hypothesis does that, to what is drawn.
    """

    name: str
    strategy: Any
    examine: Callable[[Any], None]
    examples: float = 1.0
    walk: Callable[[], Iterable[Any]] = tuple
    fixed: tuple[Callable[[], None], ...] = ()
    moves: Callable[[Any], Iterable[Move]] | None = None


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
            found = _search(case, group, examples)
            if found is not None:
                first = first or _smallest(case, group, examples, found)
                broken.append(group.name)
        if first is not None:
            also = f"; also for {words.listed(broken[1:])}" if broken[1:] else ""
            raise Fault("", first.what + also) from first.__cause__
        if not groups:
            raise NotApplicable("nothing to test: the method takes none of these formats")
        if not case.done:
            raise NotApplicable("NotImplementedError")
        return f"not done by the backend: {words.listed(list(case.undone), '; ')}" if case.undone else ""


class _Found(NamedTuple):
    """An input and its fault; None for the input if it is none that could be made smaller."""

    drawn: Any
    fault: Fault


def _smallest(case: BackendCase, group: Group, examples: int, found: _Found) -> Fault:
    """Look for the smallest input: one with wrong results if there is one, or else with wrong flags or counts."""
    for quick in (True, False):
        with case.quickly(quick):
            again = _again(group, found) or _search(case, group, examples, shrink=group.moves is None)
            if again is not None and group.moves is not None and again.drawn is not None:
                return made_smaller(again.drawn, again.fault, group.moves, group.examine)
            if again is not None:
                return again.fault
    return Fault("", f"{found.fault.what}; but not every time")


def _again(group: Group, found: _Found) -> _Found | None:
    """Examine an input a second time, if it is one that can be made smaller."""
    if group.moves is None or found.drawn is None:
        return None
    try:
        group.examine(found.drawn)
    except Fault as fault:
        return _Found(found.drawn, fault)
    return None


def _search(case: BackendCase, group: Group, examples: int, shrink: bool = False) -> _Found | None:
    """Walk through inputs and draw others, the same ones at every run, up to the first that has a fault."""
    from hypothesis import errors, given

    found: list[_Found] = []

    def remembered(drawn: Any) -> None:
        try:
            group.examine(drawn)
        except Fault as fault:
            found.append(_Found(drawn, fault))
            raise

    try:
        with case.quickly():
            for walked in group.walk():
                remembered(walked)
        decorated: Any = given(group.strategy)
        quiet(examples, shrink)(decorated(remembered))()
        for examine in group.fixed:
            examine()
    except Fault as fault:
        drawn = found[-1].drawn if found else None
        return _Found(drawn, fault)
    except errors.Flaky:
        last = found[-1]
        return _Found(last.drawn, Fault("", f"{last.fault.what}; but not every time"))
    return None
