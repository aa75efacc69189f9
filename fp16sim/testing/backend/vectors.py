"""Vectors to accumulate, few of them: a large result repeats them, so what it has to be costs no more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fp16sim.emulator.formats import Format
from fp16sim.testing.backend import inputs, words

__all__ = ["LENGTHS", "Vectors", "laid", "sum_text", "vectors"]

Array = npt.NDArray[Any]
LENGTHS = (2, 1, 3, 4, 0, 5, 8, 9, 7, 16, 17, 33, 40, 1, 0)
"""Numbers of terms: at and beside the sizes of blocks."""
SIDES = (1, 2, 3, 5, 8, 9, 17, 0)
"""Rows or columns of a result."""


class Vectors(NamedTuple):
    """Vectors of one length, and over how many places of a result they are dealt out, in turn."""

    rows: list[list[int]]
    places: int

    def array(self, fmt: Format) -> Array:
        """Give (vectors, terms)."""
        return np.array(self.rows, fmt.uint).reshape(len(self.rows), -1)

    def turns(self) -> npt.NDArray[np.int64]:
        """Say which vector each place of the result has."""
        return np.arange(self.places) % len(self.rows)


def vectors(draw: inputs.Draw, fmt: Format, length: int, styles: tuple[str, ...] = inputs.STYLES) -> Vectors:
    """Draw some vectors of one style."""
    style, number, count = (draw(inputs.chosen(some)) for some in (styles, (1, 2, 3), SIDES))
    one = inputs.styled(fmt, style)
    return Vectors([[draw(one) for _ in range(length)] for _ in range(number)], count)


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
