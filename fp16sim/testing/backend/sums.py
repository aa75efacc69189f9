"""Checks of sums along an axis: of numbers, of their squares, of every beginning."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fp16sim.emulator.backends.base import Outcome
from fp16sim.emulator.datapath import Datapath
from fp16sim.testing.backend import inputs, smaller
from fp16sim.testing.backend.calls import Call, Seen
from fp16sim.testing.backend.case import DEFINITION, BackendCase
from fp16sim.testing.backend.check import BackendCheck, Group
from fp16sim.testing.backend.datapaths import Drawing, Route, route_moves, routes
from fp16sim.testing.backend.trial import tried
from fp16sim.testing.backend.vectors import (
    LENGTHS,
    SIDES,
    WALKED,
    Vectors,
    element_moves,
    lengths,
    limited,
    regular,
    side_moves,
    sum_text,
    vectors,
    without,
)

__all__ = ["CHECKS"]

Array = npt.NDArray[Any]
_COUNTS = 7
_MOST_BEGINNINGS = 17
"""Terms of a cumulative sum: each beginning may be summed anew."""
_INNER = 21
"""Columns beside each other: vectors of 4 to 16, and a rest of 1 or 5."""
_FEW = 5
"""The same where each costs more."""


class Cube(NamedTuple):
    """Columns to reduce: element (i, :, j) of (outer, terms, inner) is column i * inner + j, in turn."""

    route: Route
    columns: Vectors
    inner: int

    def array(self) -> Array:
        """Give (outer, terms, inner)."""
        columns = self.columns.array(self.route.fmt)[self._turns]
        return np.ascontiguousarray(np.moveaxis(columns, -1, 1))

    @property
    def _turns(self) -> npt.NDArray[np.int64]:
        outer, inner = self.columns.places, self.inner
        return (np.arange(outer * inner) % len(self.columns.rows)).reshape(outer, inner)


def _cube(route_of: Drawing, terms_of: tuple[int, ...], draw: inputs.Draw) -> Cube:
    route = route_of(draw)
    columns = vectors(draw, route.fmt, draw(terms_of))
    return Cube(route, columns, limited(draw(SIDES), columns.terms))


def _groups(method: str, case: BackendCase) -> Iterator[Group]:
    most = _MOST_BEGINNINGS if method == "cumulative_sum" else max(LENGTHS)
    some = tuple(n for n in LENGTHS if n <= most)
    for name, route_of, simplest in routes(case):
        walk = tuple if case.is_plain(method) else partial(_walk, simplest, method)
        yield Group(name, partial(_cube, route_of, some), partial(_reduced, case, method), _moves, 0.75, walk)


def _walk(route: Route, method: str) -> Iterator[Cube]:
    """Give sums of every number of terms, of one column and of columns beside each other; then of every size."""
    for n in lengths(route.path):
        if n <= _most_walked(route.path, method):
            yield Cube(route, regular(route.fmt, n, 1, 1), 1)
            yield Cube(route, regular(route.fmt, n, 1, 1), _INNER if method == "sum" else _FEW)
    for size in WALKED if method == "sum" else range(18):
        if method == "sum":
            yield Cube(route, regular(route.fmt, 2, 2, size), 1)
        yield Cube(route, regular(route.fmt, 2, 2, 1), size)


def _most_walked(path: Datapath, method: str) -> int:
    if method == "cumulative_sum":
        return _MOST_BEGINNINGS if path.adds_in_order else 9
    return max(lengths(path)) if method == "sum" else max(17, 2 * path.block + 1)


def _moves(drawn: Cube) -> Iterator[smaller.Move]:
    yield from smaller.in_field("columns", side_moves(drawn.columns))
    yield from smaller.in_field("inner", smaller.sizes(1))
    for piece in smaller.cuts(len(drawn.columns.rows[0])):
        yield from smaller.in_field("columns", [partial(without, piece)])
    yield from smaller.in_field("route", route_moves(drawn.route))
    yield from smaller.in_field("columns", element_moves(drawn.columns, drawn.route.fmt))


@lru_cache(256)
def _defined(method: str, route: Route, column: tuple[int, ...]) -> Outcome:
    fmt, path, out_format = route
    cube = np.array(column, fmt.uint).reshape(1, -1, 1)
    outcome: Outcome = getattr(DEFINITION, method)(cube, fmt, path, out_format, "counts")
    return outcome


def _reduced(case: BackendCase, method: str, drawn: Cube) -> None:
    fmt, path, out_format = drawn.route
    columns, turns = drawn.columns.array(fmt), drawn._turns
    outcomes = [_defined(method, drawn.route, tuple(column)) for column in drawn.columns.rows]
    bits = np.array([outcome.bits[0, ..., 0] for outcome in outcomes], out_format.uint)[turns]
    counts = (
        np.array([outcome.counts for outcome in outcomes], np.int64)[turns].reshape(-1, _COUNTS).sum(axis=0)
    )
    running = method == "cumulative_sum"
    due = np.ascontiguousarray(np.moveaxis(bits, -1, 1)) if running else bits
    cube, tail = drawn.array(), (fmt, path, out_format)

    def written(_: int, index: int) -> str:
        place = np.unravel_index(index, due.shape)
        column = columns[turns[place[0], place[-1]]].tolist()
        return sum_text(column[: place[1] + 1] if running else column, fmt)

    where = f"{method} {drawn.route.text()}"
    middle = len(cube) // 2
    call = Call(
        method,
        where if cube.shape[0] == cube.shape[2] == 1 else f"{where}, {cube.shape}",
        (cube, *tail),
        Seen((due,), None, (("", counts),)),
        written,
        out_format,
        parts=(
            ((cube[:middle], *tail), due[:middle]),
            ((cube[middle:], *tail), due[middle:]),
        )
        if middle
        else (),
    )
    tried(case, call)


CHECKS: tuple[BackendCheck, ...] = tuple(
    BackendCheck(method, method, partial(_groups, method))
    for method in ("sum", "cumulative_sum", "sum_of_squares")
)
