"""A check of a backend: one method, by groups of calls, each searched for an input with a fault, which is cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple
from zlib import crc32

from fp16sim.testing.backend import words
from fp16sim.testing.backend.case import BackendCase
from fp16sim.testing.backend.inputs import Draw
from fp16sim.testing.backend.smaller import Move, made_smaller
from fp16sim.testing.walk import Fault, NotApplicable

__all__ = ["BackendCheck", "Group"]


@dataclass(frozen=True)
class Group:
    """Calls of one kind.

    Attributes
    ----------
    name : str
        Of the kind, among those of the check: a format, a datapath.
    draw : callable
        Draws an input.
    examine : callable
        Takes an input and raises Fault.
    moves : callable
        Gives what may make an input with a fault smaller.
    examples : float
        How many are drawn, for each that the case asks for.
    walk : callable
        Gives inputs that are examined before those drawn, such as one of each size.
    """

    name: str
    draw: Callable[[Draw], Any]
    examine: Callable[[Any], None]
    moves: Callable[[Any], Iterable[Move]]
    examples: float = 1.0
    walk: Callable[[], Iterable[Any]] = tuple

    def drawn(self, examples: int) -> Iterator[Any]:
        """Draw inputs, the same ones at every run: as many as a case that asks for `examples` has."""
        for number in range(max(1, round(examples * self.examples))):
            yield self.draw(Draw(crc32(self.name.encode()) << 32 | number))


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
            found = _search(case, group)
            if found is not None:
                first = first or _smallest(case, group, found)
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
    """An input and its fault."""

    drawn: Any
    fault: Fault


def _search(case: BackendCase, group: Group) -> _Found | None:
    """Walk through inputs and draw others, up to the first that has a fault."""
    with case.quickly():
        for walked in group.walk():
            if found := _examined(group, walked):
                return found
    for drawn in group.drawn(case.examples):
        if found := _examined(group, drawn):
            return found
    return None


def _examined(group: Group, drawn: Any) -> _Found | None:
    try:
        group.examine(drawn)
    except Fault as fault:
        return _Found(drawn, fault)
    return None


def _smallest(case: BackendCase, group: Group, found: _Found) -> Fault:
    """Look for the smallest input: one with wrong results if there is one, or else with wrong flags or counts."""
    for quick in (True, False):
        with case.quickly(quick):
            again = _examined(group, found.drawn) or _search(case, group)
            if again is not None:
                return made_smaller(again.drawn, again.fault, group.moves, group.examine)
    return Fault("", f"{found.fault.what}; but not every time")
