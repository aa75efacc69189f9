"""Checks of what chooses and rounds nothing: the largest along an axis, and rectifiers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from fp16sim.emulator.formats import Format
from fp16sim.testing.backend import inputs, smaller, words
from fp16sim.testing.backend.calls import Call, Seen
from fp16sim.testing.backend.case import DEFINITION, BackendCase
from fp16sim.testing.backend.check import BackendCheck, Group
from fp16sim.testing.backend.trial import tried
from fp16sim.testing.backend.vectors import (
    LENGTHS,
    SIDES,
    WALKED,
    Vectors,
    element_moves,
    limited,
    regular,
    side_moves,
    vectors,
    without,
)
from fp16sim.testing.walk import Fault

__all__ = ["CHECKS"]

_FEW = 5
"""Columns beside each other, in the walk."""
_SHAPES = ((1,), (2,), (7,), (3, 3), (2, 1, 9), (65,), (), (0,), (2, 0))
Numbers = tuple[list[int], tuple[int, ...]]
"""A few numbers, and the shape that they are repeated to."""


class Candidates(NamedTuple):
    """Columns to find the largest in; as those of Cube."""

    columns: Vectors
    inner: int


def _maximum_groups(case: BackendCase) -> Iterator[Group]:
    for fmt in case.formats:
        yield Group(
            fmt.name,
            partial(_candidates, fmt),
            partial(_largest, case, fmt),
            partial(_maximum_moves, fmt),
            3,
            partial(_maximum_walk, fmt),
        )


def _candidates(fmt: Format, draw: inputs.Draw) -> Candidates:
    columns = vectors(draw, fmt, draw([n for n in LENGTHS if n]))
    return Candidates(columns, limited(draw(SIDES), columns.terms))


def _maximum_walk(fmt: Format) -> Iterator[Candidates]:
    for n in WALKED:
        yield Candidates(regular(fmt, n, 1, 1), 1)
        yield Candidates(regular(fmt, n, 1, 1), _FEW)
    for size in WALKED:
        yield Candidates(regular(fmt, 2, 2, size), 1)
        yield Candidates(regular(fmt, 2, 2, 1), size)


def _maximum_moves(fmt: Format, drawn: Candidates) -> Iterator[smaller.Move]:
    yield from smaller.in_field("columns", side_moves(drawn.columns))
    yield from smaller.in_field("inner", smaller.sizes(1))
    for piece in smaller.cuts(len(drawn.columns.rows[0])):
        yield from smaller.in_field("columns", [partial(_some_left, piece)])
    yield from smaller.in_field("columns", element_moves(drawn.columns, fmt))


def _some_left(piece: tuple[int, int], given: Vectors) -> Vectors | None:
    fewer = without(piece, given)
    return fewer if fewer is not None and fewer.rows[0] else None


@lru_cache(256)
def _defined_largest(fmt: Format, column: tuple[int, ...]) -> int:
    return int(DEFINITION.maximum_of(np.array(column, fmt.uint).reshape(1, -1, 1), fmt)[0, 0])


def _largest(case: BackendCase, fmt: Format, drawn: Candidates) -> None:
    columns, inner = drawn
    if not columns.rows[0]:
        return _of_nothing(case, fmt)
    few = columns.array(fmt)
    outer = columns.places
    turns = (np.arange(outer * inner) % len(few)).reshape(outer, inner)
    largest = np.array([_defined_largest(fmt, tuple(row)) for row in columns.rows], fmt.uint)
    due, cube = largest[turns], np.ascontiguousarray(np.moveaxis(few[turns], -1, 1))

    def written(_: int, index: int) -> str:
        return words.listed([words.number(x, fmt) for x in few[turns.reshape(-1)[index]].tolist()])

    where = f"maximum_of in {fmt.name}"
    if cube.shape[0] != 1 or cube.shape[2] != 1:
        where += f", {cube.shape}"
    tried(case, Call("maximum_of", where, (cube, fmt), Seen((due,)), written, fmt, watches=()))


def _of_nothing(case: BackendCase, fmt: Format) -> None:
    """Ask for the largest of no values, which there is none of."""
    try:
        case.method("maximum_of")(np.empty((1, 0, 1), fmt.uint), fmt)
        what = "was given; a ValueError is due"
    except (ValueError, NotImplementedError):
        return
    except Exception as error:
        what = f"raised {type(error).__name__}: {error}; a ValueError is due"
    raise Fault("", f"maximum_of in {fmt.name}, (1, 0, 1): the largest of no values {what}")


def _relu_groups(case: BackendCase) -> Iterator[Group]:
    for fmt in case.formats:
        yield Group(
            fmt.name,
            partial(_numbers, fmt),
            partial(_rectified, case, fmt),
            partial(_relu_moves, fmt),
            3,
            partial(_relu_walk, fmt),
        )


def _numbers(fmt: Format, draw: inputs.Draw) -> Numbers:
    few = [draw(inputs.encodings(fmt)) for _ in range(draw(range(1, 17)))]
    return few, draw(_SHAPES)


def _relu_walk(fmt: Format) -> Iterator[Numbers]:
    """Give every encoding that is drawn, each at once."""
    every = inputs.different(fmt)
    yield every, (len(every),)


def _relu_moves(fmt: Format, drawn: Numbers) -> Iterator[smaller.Move]:
    yield from smaller.at(0, smaller.fewer(len(drawn[0])))
    yield from smaller.at(1, [smaller.to((1,))])
    yield from smaller.at(0, smaller.lists(fmt, len(drawn[0])))


def _rectified(case: BackendCase, fmt: Format, drawn: Numbers) -> None:
    numbers, shape = drawn
    bits = np.resize(np.array(numbers, fmt.uint), shape)
    due = DEFINITION.relu(bits, fmt)

    def written(_: int, index: int) -> str:
        return words.number(int(bits.reshape(-1)[index]), fmt)

    where = f"relu in {fmt.name}" + (f", shape {shape}" if len(shape) != 1 else "")
    tried(case, Call("relu", where, (bits, fmt), Seen((due,)), written, fmt, watches=()))


CHECKS: tuple[BackendCheck, ...] = (
    BackendCheck("maximum_of", "maximum_of", _maximum_groups),
    BackendCheck("relu", "relu", _relu_groups),
)
