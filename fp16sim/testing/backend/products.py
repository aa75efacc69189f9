"""Checks of products of matrices: every datapath, layout and size, with and without an accumulator input."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fp16sim.emulator.backends.base import Outcome
from fp16sim.testing.backend import inputs, smaller, words
from fp16sim.testing.backend.calls import Call, Seen
from fp16sim.testing.backend.case import DEFINITION, BackendCase
from fp16sim.testing.backend.check import BackendCheck, Group
from fp16sim.testing.backend.datapaths import Drawing, Route, route_moves, routes
from fp16sim.testing.backend.trial import tried
from fp16sim.testing.backend.vectors import (
    LAYOUTS,
    LENGTHS,
    WALKED,
    Vectors,
    element_moves,
    laid,
    lengths,
    limited,
    regular,
    side_moves,
    vectors,
    without,
)

__all__ = ["CHECKS"]

Array = npt.NDArray[Any]
_LARGE = (65, 67, 19)
_DIFFERENT = 3
"""Columns that differ: repeated, they are no block of the hardware's, so that a block in the place of another shows."""
_SIDES = (3, 37)
"""Of a product whose number of terms is walked through: vectors of 4 to 32 columns, and a rest of 1 or 5."""
_LONG = 777
"""Terms of one product for each datapath; matrix libraries have blocks of 256 to 768."""
_MOST_PRODUCTS = 3000
"""Of one that is drawn."""
_TERMS = 2
"""Of one whose sides are walked through."""


class Matrices(NamedTuple):
    """Operands of a product of matrices."""

    route: Route
    left: Vectors
    right: Vectors
    start: list[int] | None
    batch: int
    layouts: tuple[str, str]


def _matrices(route_of: Drawing, draw: inputs.Draw) -> Matrices:
    route, terms = route_of(draw), draw(LENGTHS)
    start, style = None, draw(("", "edges", "zeros"))
    if style:
        start = [draw(inputs.styled(route.path.start_format, style)) for _ in range(2)]
    # A start of -0 shows in the result only if all products are -0 too.
    left = vectors(draw, route.fmt, terms, ("zeros",) if style == "zeros" else inputs.STYLES)
    right = vectors(draw, route.fmt, terms)
    right = right._replace(places=limited(right.places, left.terms, _MOST_PRODUCTS))
    batch = limited(draw((1, 2, 3, 0)), left.terms * right.places, _MOST_PRODUCTS)
    return Matrices(route, left, right, start, batch, (draw(LAYOUTS), draw(LAYOUTS)))


def _groups(case: BackendCase) -> Iterator[Group]:
    for name, route_of, simplest in routes(case):
        walk = tuple if case.is_plain("matmul") else partial(_walk, simplest)
        yield Group(name, partial(_matrices, route_of), partial(_product, case), _moves, walk=walk)


def _walk(route: Route) -> Iterator[Matrices]:
    """Give products of every number of terms, rows and columns, and one that is large enough to be divided."""
    for k in lengths(route.path):
        yield _regular(route, *_SIDES, k, (2, _DIFFERENT) if k < 18 else (1, 1))
    for layout in LAYOUTS[1:]:
        for layouts in ((layout, "contiguous"), ("contiguous", layout)):
            yield _regular(route, *_SIDES, _TERMS, (2, 2))._replace(layouts=layouts)
    one, minus = inputs.one(route.fmt), route.fmt.sign_bit
    start = [route.path.start_format.sign_bit, inputs.one(route.path.start_format)]
    # A start of -0 shows where all products are -0 too.
    yield Matrices(route, Vectors([[minus]], 2), Vectors([[one]], 1), start, 1, ("contiguous", "contiguous"))
    for m, n in (*zip(WALKED[1:], reversed(WALKED[1:]), strict=True), (0, 1), (1, 0)):
        yield _regular(route, m, n, _TERMS, (_DIFFERENT, _DIFFERENT))
    yield _regular(route, *_LARGE, (1, _DIFFERENT))
    if route.path.accumulator is not None and route.fmt == route.path.inputs[0]:
        yield _long(route)


def _long(route: Route) -> Matrices:
    """Give a product whose terms libraries divide into blocks.

    Of few bits near one, as far exponents would be infinite before that, and to the accumulator's format, as a narrower
    one hides the order.
    """
    left, right = (
        Vectors([[inputs.simple(route.fmt, _LONG * turn + i) for i in range(_LONG)] for turn in turns], side)
        for turns, side in zip(((0,), (1, 2, 3)), _SIDES, strict=True)
    )
    to_accumulator = route._replace(out_format=route.path.start_format)
    return Matrices(to_accumulator, left, right, None, 1, ("contiguous", "contiguous"))


def _regular(route: Route, m: int, n: int, k: int, numbers: tuple[int, int]) -> Matrices:
    # The first vector has far exponents left, and few bits near one right: such products show in which order they are
    # added more often than those of far exponents, of which one swamps the others.
    left, right = (
        regular(route.fmt, k, number, places, turn)
        for number, places, turn in zip(numbers, (m, n), (0, 3), strict=True)
    )
    return Matrices(route, left, right, None, 1, ("contiguous", "contiguous"))


def _moves(drawn: Matrices) -> Iterator[smaller.Move]:
    yield from smaller.in_field("batch", smaller.sizes(1))
    for place in range(2):
        yield from smaller.in_field("layouts", smaller.at(place, [smaller.to("contiguous")]))
    yield smaller.to_none("start")
    for side in ("left", "right"):
        yield from smaller.in_field(side, side_moves(getattr(drawn, side)))
    for piece in smaller.cuts(len(drawn.left.rows[0])):
        yield partial(_shorter, piece)
    yield from smaller.in_field("route", route_moves(drawn.route))
    for side in ("left", "right"):
        yield from smaller.in_field(side, element_moves(getattr(drawn, side), drawn.route.fmt))
    if drawn.start is not None:
        yield from smaller.in_field("start", smaller.lists(drawn.route.path.start_format, len(drawn.start)))


def _shorter(piece: tuple[int, int], drawn: Matrices) -> Matrices | None:
    left, right = without(piece, drawn.left), without(piece, drawn.right)
    return None if left is None or right is None else drawn._replace(left=left, right=right)


@lru_cache(256)
def _defined(route: Route, left: tuple[int, ...], right: tuple[int, ...], start: int | None) -> Outcome:
    fmt, path, out_format = route
    c = None if start is None else np.full((1, 1, 1), start, path.start_format.uint)
    a, b = np.array(left, fmt.uint).reshape(1, 1, -1), np.array(right, fmt.uint).reshape(1, -1, 1)
    return DEFINITION.matmul(a, b, c, fmt, path, out_format, "counts")


def _product(case: BackendCase, drawn: Matrices) -> None:
    (fmt, path, out_format), start = drawn.route, drawn.start
    a, b = drawn.left.array(fmt), drawn.right.array(fmt)
    rows, columns = drawn.left.turns(), drawn.right.turns()
    # Element (b, i, j) starts at number (b + i + j) % 2 of those drawn.
    places = np.add.outer(np.arange(drawn.batch), np.add.outer(rows, columns)) % 2
    some: list[Any] = [None] if start is None else start
    bits = np.zeros((len(some), len(a), len(b)), out_format.uint)
    counts = np.zeros((*bits.shape, 7), np.int64)
    for s, i, j in np.ndindex(bits.shape):
        outcome = _defined(drawn.route, tuple(drawn.left.rows[i]), tuple(drawn.right.rows[j]), some[s])
        bits[s, i, j], counts[s, i, j] = outcome.bits[0, 0, 0], outcome.counts
    which = places if start is not None else np.zeros_like(places)
    due = bits[which, rows[:, np.newaxis], columns]
    total = counts[which, rows[:, np.newaxis], columns].sum(axis=(0, 1, 2))
    left = laid(np.repeat(a[rows][np.newaxis], drawn.batch, 0), drawn.layouts[0])
    right = laid(np.repeat(b[columns].T[np.newaxis], drawn.batch, 0), drawn.layouts[1])
    c = None if start is None else np.array(start, path.start_format.uint)[places]

    def written(_: int, index: int) -> str:
        batch, i, j = np.unravel_index(index, due.shape)
        texts = [
            f"{words.number(x, fmt)} * {words.number(y, fmt)}"
            for x, y in zip(a[rows[i]].tolist(), b[columns[j]].tolist(), strict=True)
        ]
        begin = [] if c is None else [words.number(int(c[batch, i, j]), path.start_format)]
        return words.listed([*begin, *texts], " + ") or "no terms"

    odd = [
        f"{side} operand {layout}"
        for side, layout in zip(("left", "right"), drawn.layouts, strict=True)
        if layout != "contiguous"
    ]
    where = ", ".join([f"matmul {drawn.route.text()}", *odd])
    if len(left) != 1 or left.shape[1] != 1 or right.shape[2] != 1:
        where += f", {left.shape} by {right.shape}"
    middle = len(rows) // 2
    halves = (slice(0, middle), slice(middle, len(rows)))
    call = Call(
        "matmul",
        where,
        (left, right, c, fmt, path, out_format),
        Seen((due,), None, (("", total),)),
        written,
        out_format,
        into=True,
        parts=tuple(
            (
                (left[:, half], right, None if c is None else c[:, half], fmt, path, out_format),
                due[:, half],
            )
            for half in halves
        )
        if middle
        else (),
    )
    tried(case, call)


CHECKS: tuple[BackendCheck, ...] = (BackendCheck("matmul", "matmul", _groups),)
