"""Checks of sums of rows by an index."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from fp16sim.testing.backend import inputs, smaller
from fp16sim.testing.backend.calls import Call, Seen
from fp16sim.testing.backend.case import DEFINITION, BackendCase
from fp16sim.testing.backend.check import BackendCheck, Group
from fp16sim.testing.backend.datapaths import Drawing, Route, route_moves, routes
from fp16sim.testing.backend.trial import tried
from fp16sim.testing.backend.vectors import SIDES, WALKED, lengths, regular, sum_text

__all__ = ["CHECKS"]

_COUNTS = 7
_LENGTHS = (2, 1, 3, 8, 0, 9, 17, 4, 5, 6, 7, 16)


class Rows(NamedTuple):
    """Rows that are summed by an index; their columns repeat one, in turn rotated by a row."""

    route: Route
    column: list[int]
    named: list[int]
    size: int
    inner: int


def _rows(route_of: Drawing, draw: inputs.Draw) -> Rows:
    route = route_of(draw)
    n, size, table = draw(_LENGTHS), draw((1, 2, 5)), inputs.styled(route.fmt, draw(inputs.STYLES))
    index = [draw(range(size)) for _ in range(n)]
    return Rows(route, [draw(table) for _ in range(n)], index, size, draw(SIDES))


def _groups(case: BackendCase) -> Iterator[Group]:
    for name, route_of, simplest in routes(case):
        walk = tuple if case.is_plain("index_sum") else partial(_walk, simplest)
        yield Group(name, partial(_rows, route_of), partial(_indexed, case), _moves, 0.75, walk)


def _walk(route: Route) -> Iterator[Rows]:
    """Give sums of every number of rows, and of rows of every size."""
    for n in lengths(route.path):
        (column,) = regular(route.fmt, n, 1, 1).rows
        yield Rows(route, column, [0] * n, 1, 1)
    for inner in WALKED:
        yield Rows(route, regular(route.fmt, 3, 1, 1).rows[0], [0, 1, 0], 2, inner)


def _moves(drawn: Rows) -> Iterator[smaller.Move]:
    yield from smaller.in_field("inner", smaller.sizes(1))
    for piece in smaller.cuts(len(drawn.column)):
        yield partial(_fewer_rows, piece)
    yield lambda given: given._replace(named=[0] * len(given.named)) if any(given.named) else None
    for place in range(len(drawn.named)):
        yield from smaller.in_field("named", smaller.at(place, smaller.sizes(0)))
    yield from (partial(_fewer_results, move) for move in smaller.sizes(1))
    yield from smaller.in_field("route", route_moves(drawn.route))
    yield from smaller.in_field("column", smaller.lists(drawn.route.fmt, len(drawn.column)))


def _fewer_rows(piece: tuple[int, int], drawn: Rows) -> Rows | None:
    column, named = (smaller.without(piece, part) for part in (drawn.column, drawn.named))
    return None if column is None or named is None else drawn._replace(column=column, named=named)


def _fewer_results(move: smaller.Move, drawn: Rows) -> Rows | None:
    size = move(drawn.size)
    return None if size is None or max(drawn.named, default=0) >= size else drawn._replace(size=size)


def _indexed(case: BackendCase, drawn: Rows) -> None:
    fmt, path, out_format = drawn.route
    column, index = np.array(drawn.column, fmt.uint), np.array(drawn.named, np.int64)
    few = [np.roll(column, shift) for shift in range(min(2, drawn.inner))]
    turns = np.arange(drawn.inner) % 2
    outcomes = [
        DEFINITION.index_sum(one.reshape(-1, 1), index, drawn.size, fmt, path, out_format, "counts")
        for one in few
    ]
    bits = [outcome.bits[:, 0] for outcome in outcomes]
    due = np.array([bits[turn] for turn in turns], out_format.uint).reshape(drawn.inner, drawn.size).T.copy()
    each = np.array([outcome.counts for outcome in outcomes], np.int64).reshape(-1, _COUNTS)
    counts = each[turns].sum(axis=0)
    rows = np.array([few[turn] for turn in turns], fmt.uint).reshape(drawn.inner, column.size).T.copy()

    def written(_: int, place: int) -> str:
        r, j = np.unravel_index(place, due.shape)
        return f"row {r}: {sum_text(rows[index == r, j].tolist(), fmt)}"

    call = Call(
        "index_sum",
        f"index_sum {drawn.route.text()}, index {drawn.named} of {drawn.size}, {drawn.inner} to a row",
        (rows, index, drawn.size, fmt, path, out_format),
        Seen((due,), None, (("", counts),)),
        written,
        out_format,
    )
    tried(case, call)


CHECKS: tuple[BackendCheck, ...] = (BackendCheck("index_sum", "index_sum", _groups),)
