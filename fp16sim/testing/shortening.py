"""Makes the history of a fault shorter, for as long as the same examination still finds one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby

from fp16sim.testing.histories import LETTERS, NAN, RESTART
from fp16sim.testing.walk import Fault, Walk

__all__ = ["MOST_SPENT", "shortened", "shortest_crash", "shortest_found"]

MOST_SPENT = 60_000
"""Steps within which a fault is made smaller, and its history then shorter."""
Examine = Callable[[str], object]


@contextmanager
def shortest_found(examine: Examine) -> Iterator[None]:
    """Make shorter what is found inside.

    Parameters
    ----------
    examine : callable
        What is done inside, to any one history: it raises :class:`fp16sim.testing.walk.Fault` where there is one.

    Raises
    ------
    Fault

    Examples
    --------
    >>> def examine(history):
    ...     if history.count("o") > 2 and history.endswith("."):
    ...         raise Fault(history, "three overflows")
    >>> try:
    ...     with shortest_found(examine):
    ...         examine("..oo.ooon.")
    ... except Fault as fault:
    ...     print(fault)
    "ooo.": three overflows
    """
    try:
        yield
    except Fault as fault:
        found = shortened(fault, examine)
        raise found from found.__cause__


def shortened(fault: Fault, examine: Examine) -> Fault:
    """Leave out steps, or put simpler ones in their place, for as long as a fault is found; it may become another one.

    Within 60,000 steps more, and the same at every run.
    """
    end, tried = Walk.spent() + MOST_SPENT, {fault.history}

    def better(history: str) -> bool:
        nonlocal fault
        if history in tried or Walk.spent() > end:
            return False
        tried.add(history)
        found = _fault_of(examine, history)
        if found is None or _rank(found) >= _rank(fault):
            return False
        fault = found
        return True

    while any(map(better, _simpler(fault.history))) or _shorten_a_run(fault.history, better):
        pass
    return fault


def shortest_crash(fault: Fault, walk: Callable[[], Walk], known: dict[str, Fault]) -> Fault:
    """Give the fault with the shortest history after which the scaler raises the same exception.

    The steps are told by their kind alone; if those do not raise it, the history stays as it is.

    Parameters
    ----------
    fault : Fault
    walk : callable
        Begins a history with a new scaler.
    known : dict of text to Fault
        Those that were found before, by the exception: the work is done once for all checks that one ends.
    """
    raised = fault.raised
    best = known.get(raised)
    if best is not None and _rank(best) < _rank(fault):
        return best

    def examine(history: str) -> None:
        try:
            walk().tell_all(history)
        except Fault as found:
            if found.raised == raised:
                raise

    if RESTART in fault.history or _fault_of(examine, fault.history) is None:
        return fault
    known[raised] = shortened(fault, examine)
    return known[raised]


def _rank(fault: Fault) -> tuple[int, int, int]:
    """Order by length; of two as long the one with fewer runs is simpler, then the one with fewer NaN."""
    history = fault.history
    return len(history), len(_runs(history)), history.count(NAN)


def _fault_of(examine: Examine, history: str) -> Fault | None:
    try:
        examine(history)
    except Fault as fault:
        return fault
    except Exception:  # it was not made for this history
        return None
    return None


def _runs(history: str) -> list[str]:
    return ["".join(run) for _, run in groupby(history)]


def _simpler(history: str) -> Iterator[str]:
    """Give histories with one kind of step left out, or another in its place; and with runs left out, many first."""
    kinds = [letter for letter in LETTERS if letter in history]
    for letter in kinds:
        yield history.replace(letter, "")
    for letter in kinds:
        for other in LETTERS.replace(NAN, ""):
            yield history.replace(letter, other)
    runs = _runs(history)
    size = len(runs) // 2
    while size:
        for start in range(0, len(runs), size):
            yield "".join([*runs[:start], *runs[start + size :]])
        size //= 2


def _shorten_a_run(history: str, better: Callable[[str], bool]) -> bool:
    """Find a run that may be shorter, and by bisection how short: one that may not by a step is left as it is."""
    runs = _runs(history)
    for place, run in enumerate(runs):
        before, after = "".join(runs[:place]), "".join(runs[place + 1 :])
        if len(run) == 1 or not better(before + run[1:] + after):
            continue
        good, bad = 0, len(run) - 1  # without the run there was no fault
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (good, middle) if better(before + run[:middle] + after) else (middle, bad)
        return True
    return False
