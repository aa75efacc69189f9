"""Vectors to accumulate, few of them: a large result repeats them, so what it has to be costs no more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fp16sim.emulator.datapath import Datapath
from fp16sim.emulator.formats import Format
from fp16sim.testing.backend import inputs, smaller, words

__all__ = [
    "LENGTHS",
    "SIDES",
    "WALKED",
    "Vectors",
    "element_moves",
    "laid",
    "lengths",
    "limited",
    "regular",
    "side_moves",
    "sum_text",
    "vectors",
    "without",
]

Array = npt.NDArray[Any]
LENGTHS = (2, 1, 3, 4, 0, 5, 8, 9, 7, 16, 17, 33, 40, 1, 0, 6, 10, 11, 12, 13, 14, 15, 31, 32)
"""Numbers of terms: at and beside the sizes of blocks."""
SIDES = (1, 2, 3, 5, 8, 9, 17, 0, 4, 6, 7, 16)
"""Rows or columns of a result."""
WALKED = (*range(18), 31, 32, 33, 65)
"""Rows and columns that are walked through, each once: around the numbers that a vector of the hardware holds."""
MOST_TERMS = 500
"""Of all columns of a drawn sum: a backend may be as slow as the definition."""


class Vectors(NamedTuple):
    """Vectors of one length, and over how many places of a result they are dealt out, in turn."""

    rows: list[list[int]]
    places: int

    @property
    def terms(self) -> int:
        """How many there are in all places."""
        return self.places * len(self.rows[0])

    def array(self, fmt: Format) -> Array:
        """Give (vectors, terms)."""
        return np.array(self.rows, fmt.uint).reshape(len(self.rows), -1)

    def turns(self) -> npt.NDArray[np.int64]:
        """Say which vector each place of the result has."""
        return np.arange(self.places) % len(self.rows)


@cache
def lengths(path: Datapath) -> tuple[int, ...]:
    """List the numbers of terms to walk through: all up to two blocks and a term; around the widths of vectors."""
    some = [*range(2 * max(path.block, path.splits, 8) + 2), *WALKED]
    return tuple(sorted(dict.fromkeys(some)))


def regular(fmt: Format, length: int, number: int, places: int, start: int = 0) -> Vectors:
    """Give vectors that depend on nothing but these numbers: in turn of far exponents, and of few bits near one."""
    kinds = (inputs.far, inputs.simple)
    rows = [
        [kinds[(start + turn) % 2](fmt, (start + turn) * 100 + i) for i in range(length)]
        for turn in range(number)
    ]
    return Vectors(rows, places)


def side_moves(given: Vectors) -> Iterator[smaller.Move]:
    """Give moves to one vector, and to fewer places."""
    for row in range(len(given.rows) if len(given.rows) > 1 else 0):
        yield partial(_only, row)
    yield from smaller.in_field("places", smaller.sizes(1))


def _only(row: int, given: Vectors) -> Vectors | None:
    return given._replace(rows=[given.rows[row]]) if row < len(given.rows) > 1 else None


def without(piece: tuple[int, int], given: Vectors) -> Vectors | None:
    """Take terms out of all vectors; None if there are none in that piece."""
    rows = [left for row in given.rows if (left := smaller.without(piece, row)) is not None]
    return given._replace(rows=rows) if rows else None


def element_moves(given: Vectors, fmt: Format) -> Iterator[smaller.Move]:
    """Give moves of the numbers."""
    for row, terms in enumerate(given.rows):
        yield from smaller.in_field("rows", smaller.at(row, smaller.lists(fmt, len(terms))))


def limited(size: int, each: int, most: int = MOST_TERMS) -> int:
    """Cut a drawn number of columns, each with so many terms, to those that have `most` in all, or to one."""
    return min(size, max(1, most // max(each, 1)))


def vectors(draw: inputs.Draw, fmt: Format, length: int, styles: tuple[str, ...] = inputs.STYLES) -> Vectors:
    """Draw some vectors of one style."""
    table = inputs.styled(fmt, draw(styles))
    rows = [[draw(table) for _ in range(length)] for _ in range(draw((1, 3)))]
    return Vectors(rows, draw(SIDES))


LAYOUTS = ("contiguous", "transposed", "strided", "reversed", "repeated")


def laid(matrices: Array, layout: str) -> Array:
    """Give the same (batch, rows, columns) with other strides; "repeated" ones have stride 0 where that can be."""
    if layout == "transposed":
        return np.swapaxes(np.ascontiguousarray(np.swapaxes(matrices, 1, 2)), 1, 2)
    if layout == "strided":
        batch, rows, columns = matrices.shape
        room = np.zeros((batch, 2 * rows, 3 * columns), matrices.dtype)
        room[:, ::2, ::3] = matrices
        return room[:, ::2, ::3]
    if layout == "reversed":
        return np.ascontiguousarray(matrices[:, ::-1, ::-1])[:, ::-1, ::-1]
    if layout == "repeated" and matrices.size:
        shape = matrices.shape
        for axis in range(3):
            first = matrices[(slice(None),) * axis + (slice(0, 1),)]
            if matrices.shape[axis] > 1 and (matrices == first).all():
                matrices = first
        return np.broadcast_to(matrices, shape)
    return np.ascontiguousarray(matrices)


def sum_text(terms: Sequence[int], fmt: Format) -> str:
    """Write what is summed."""
    return words.listed([words.number(x, fmt) for x in terms], " + ") or "no terms"
