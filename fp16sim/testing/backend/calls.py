"""A call of a method of a backend, what it has to give, and what a call gave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fp16sim.emulator.backends.base import Outcome
from fp16sim.emulator.formats import Format
from fp16sim.testing.walk import Fault

__all__ = ["Array", "Call", "Counts", "Seen", "as_integers", "seen_of"]

Array = npt.NDArray[Any]
Counts = tuple[tuple[str, Array], ...]
"""By the name of an operation, which is empty where there is one alone."""


class Seen(NamedTuple):
    """What a call gave: results, and flags and counts if they were asked for."""

    results: tuple[Array, ...]
    flags: Array | None = None
    counts: Counts | None = None


def seen_of(given: Any) -> Seen:
    """Read what a method returned, of whichever kind.

    Raises
    ------
    TypeError
        If it is none of them.
    """
    if isinstance(given, np.ndarray):
        return Seen((given,))
    if isinstance(given, Outcome):
        counts = None if given.counts is None else (("", np.asarray(given.counts)),)
        return Seen((np.asarray(given.bits),), given.flags, counts)
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], list):
        results, counted = given
        return Seen(tuple(results), None, tuple((name, np.asarray(counts)) for name, counts in counted))
    raise TypeError(f"it gave a {type(given).__name__}, not what its docstring in Backend says")


@dataclass(frozen=True)
class Call:
    """A call, what it has to give, and how messages write it.

    Attributes
    ----------
    method : str
    where : str
        Such as ``"add in binary16, nearest_even"``.
    arguments : tuple
        Those before `watch`.
    expected : Seen
        With flags and counts, if the method has them.
    written : callable
        Writes the operands of an element by the number of its result and its flat index in it.
    format : Format
        Of the results.
    watches : tuple of str
        What may be asked beside results; empty if the method does not take it.
    into : bool
        Whether the method may be given an array for its results.
    parts : tuple of (arguments, result)
        The same work in several calls, each with what it has to give.
    """

    method: str
    where: str
    arguments: tuple[Any, ...]
    expected: Seen
    written: Callable[[int, int], str]
    format: Format
    watches: tuple[str, ...] = ("", "counts")
    into: bool = False
    parts: tuple[tuple[tuple[Any, ...], Array], ...] = ()

    def fault(self, context: str, rest: str) -> Fault:
        """Make a fault of this call."""
        return Fault("", f"{self.where}{context}: {rest}")

    def named(self, result: int, index: int, size: int) -> str:
        """Write the operands of an element, and which it is if there are several."""
        place = f"element {index} of {size}, " if size > 1 else ""
        return place + self.written(result, index)

    def first(self) -> str:
        """Write the operands of the first element, if there is one."""
        sizes = [part.size for part in self.expected.results]
        return self.named(0, 0, sizes[0]) if sizes and sizes[0] else "no elements"


def as_integers(array: Array) -> Array:
    """Look at numbers as flat integers: a NaN equals itself, and -0 is not +0."""
    flat = array.reshape(-1)
    return flat.view(f"u{array.itemsize}") if array.dtype.kind == "f" else flat
