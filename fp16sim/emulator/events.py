"""What happened: overflow, underflow, subnormal results, invalid, division by zero, inexact and swamped, counted.

Nothing is counted, and nothing is spent on it, unless a :func:`count_events` block is open in the current context.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.emulator.flags import FLAG_NAMES
from fp16sim.emulator.formats import nearest_name

__all__ = ["EVENT_NAMES", "Events", "count_events", "counting", "record", "scope"]

Counts = npt.NDArray[np.int64]

EVENT_NAMES = (*FLAG_NAMES, "swamped")
"""What is counted: the six flags, and the additions of a sum that change nothing."""


class Events:
    """Counts of events for each operation and each named scope.

    Each rounding counts once an event that it raises; the counts of an operation on arrays are those of its
    elements.

    Attributes
    ----------
    overflow, underflow, invalid, divide_by_zero, inexact : int
        The five exceptions of IEEE 754-2019 clause 7. Underflow: tiny and inexact.
    subnormal : int
        Results that are subnormal and not zero.
    swamped : int
        Additions inside sums and products of matrices that leave a nonzero partial sum as it was, though what they
        add is not zero: it was too small to be seen.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], Counts] = {}

    def add(self, scope: str, operation: str, counts: npt.ArrayLike) -> None:
        """Add a vector of counts in the order of ``EVENT_NAMES``; operations that add nothing up give the first six."""
        key = (scope, operation)
        total = self._counts.setdefault(key, np.zeros(len(EVENT_NAMES), np.int64))
        given = np.asarray(counts)
        total[: given.size] += given

    def total(self, name: str, *, operation: str | None = None, scope: str | None = None) -> int:
        """Count one kind of event, of one operation or scope (scopes inside it included) if named."""
        if name not in EVENT_NAMES:
            raise ValueError(f"unknown event {name!r}: {nearest_name(name, EVENT_NAMES)}")
        place = EVENT_NAMES.index(name)
        return sum(
            int(counts[place])
            for (where, what), counts in self._counts.items()
            if operation in (None, what)
            and (scope is None or where == scope or where.startswith(scope + "/"))
        )

    def __getattr__(self, name: str) -> int:
        if name in EVENT_NAMES:
            return self.total(name)
        raise AttributeError(f"{name!r}: events have {', '.join(EVENT_NAMES)}")

    def as_dict(self) -> dict[str, dict[str, dict[str, int]]]:
        """Give the counts as ``{scope: {operation: {event: count}}}``; the outermost scope is ``""``."""
        nested: dict[str, dict[str, dict[str, int]]] = {}
        for (where, what), counts in self._counts.items():
            nested.setdefault(where, {})[what] = dict(zip(EVENT_NAMES, map(int, counts), strict=True))
        return nested

    def table(self) -> str:
        """Give the counts as a plain-text table, one row for each scope and operation."""
        rows: list[tuple[str, ...]] = [("scope", "operation", *EVENT_NAMES)]
        rows += [(w or "-", what, *(str(int(n)) for n in c)) for (w, what), c in self._counts.items()]
        rows.append(("total", "", *(str(self.total(name)) for name in EVENT_NAMES)))
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join(
                c.ljust(n) if i < 2 else c.rjust(n) for i, (c, n) in enumerate(zip(r, widths, strict=True))
            )
            for r in rows
        ]
        return "\n".join(line.rstrip() for line in lines)

    def __repr__(self) -> str:
        return f"Events({', '.join(f'{name}={self.total(name)}' for name in EVENT_NAMES)})"


_open: ContextVar[tuple[Events, ...]] = ContextVar("fp16sim_events", default=())
_scope: ContextVar[str] = ContextVar("fp16sim_scope", default="")


@contextmanager
def count_events() -> Iterator[Events]:
    """Count the events of the operations inside the block.

    Blocks nest: an event is counted by each open block. Results are the same with counting and without. Rounding
    Python numbers to the format of an operation is not counted, nor is what a thread does that was started inside
    (it has a context of its own; run it in ``contextvars.copy_context()``). Of float64 means and norms the sums are
    counted, the division and the root are not; of a float32 softmax all but the exponentials are.

    >>> import numpy as np, fp16sim as fs
    >>> with fs.count_events() as events:
    ...     _ = fs.multiply(np.float16(300), np.float16(300))
    >>> events.overflow, events.inexact, events.invalid
    (1, 1, 0)
    """
    events = Events()
    token = _open.set((*_open.get(), events))
    try:
        yield events
    finally:
        _open.reset(token)


@contextmanager
def scope(name: str) -> Iterator[None]:
    """Name the place in which events are counted; names nest with a slash.

    >>> import fp16sim as fs
    >>> with fs.count_events() as events, fs.scope("layer1"):
    ...     _ = fs.add(60000.0, 60000.0)
    >>> events.total("overflow", scope="layer1")
    1
    """
    outer = _scope.get()
    token = _scope.set(f"{outer}/{name}" if outer else name)
    try:
        yield
    finally:
        _scope.reset(token)


def counting() -> bool:
    """Whether any block is open, so that an operation must run the kernel that counts."""
    return bool(_open.get())


def record(operation: str, counts: Any) -> None:
    """Add the counts of an operation to every open block."""
    for events in _open.get():
        events.add(_scope.get(), operation, counts)
