"""Checks of sums along an axis, of rows by an index, of squares, of beginnings; of the largest; of rectifiers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fp16sim.emulator.backends.base import Outcome
from fp16sim.emulator.datapath import Datapath
from fp16sim.emulator.formats import Format
from fp16sim.testing.backend import inputs, smaller, words
from fp16sim.testing.backend.check import BackendCheck, Group
from fp16sim.testing.backend.datapaths import Drawing, Route, route_moves, routes
from fp16sim.testing.backend.trial import DEFINITION, BackendCase, Call, Seen, tried
from fp16sim.testing.backend.vectors import (
    LENGTHS,
    SIDES,
    WALKED,
    Vectors,
    element_moves,
    lengths,
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
_INDEXED = (2, 1, 3, 8, 0, 9, 17, 4, 5, 6, 7, 16)
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
    route, terms = route_of(draw), draw(inputs.chosen(terms_of))
    return Cube(route, vectors(draw, route.fmt, terms), draw(inputs.chosen(SIDES)))


def _groups(method: str, case: BackendCase) -> Iterator[Group]:
    most = _MOST_BEGINNINGS if method == "cumulative_sum" else max(LENGTHS)
    some = tuple(n for n in LENGTHS if n <= most)
    for name, route_of, simplest in routes(case):
        walk = tuple if case.is_plain(method) else partial(_walk, simplest, method)
        strategy = inputs.composed(partial(_cube, route_of, some))
        yield Group(name, strategy, partial(_reduced, case, method), 0.75, walk=walk, moves=_moves)


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
            ((cube[:middle], *tail), Seen((due[:middle],))),
            ((cube[middle:], *tail), Seen((due[middle:],))),
        )
        if middle
        else (),
    )
    tried(case, call)


class Rows(NamedTuple):
    """Rows that are summed by an index; their columns repeat one, in turn rotated by a row."""

    route: Route
    column: list[int]
    named: list[int]
    size: int
    inner: int


def _rows(route_of: Drawing, draw: inputs.Draw) -> Rows:
    route = route_of(draw)
    choices: tuple[tuple[Any, ...], ...] = (_INDEXED, (1, 2, 5), inputs.STYLES)
    n, size, style = (draw(inputs.chosen(some)) for some in choices)
    one = inputs.styled(route.fmt, style)
    index = [draw(inputs.chosen(tuple(range(size)))) for _ in range(n)]
    return Rows(route, [draw(one) for _ in range(n)], index, size, draw(inputs.chosen(SIDES)))


def _index_groups(case: BackendCase) -> Iterator[Group]:
    for name, route_of, simplest in routes(case):
        walk = tuple if case.is_plain("index_sum") else partial(_index_walk, simplest)
        strategy = inputs.composed(partial(_rows, route_of))
        yield Group(name, strategy, partial(_indexed, case), 0.75, walk=walk, moves=_index_moves)


def _index_walk(route: Route) -> Iterator[Rows]:
    """Give sums of every number of rows, and of rows of every size."""
    for n in lengths(route.path):
        (column,) = regular(route.fmt, n, 1, 1).rows
        yield Rows(route, column, [0] * n, 1, 1)
    for inner in WALKED:
        yield Rows(route, regular(route.fmt, 3, 1, 1).rows[0], [0, 1, 0], 2, inner)


def _index_moves(drawn: Rows) -> Iterator[smaller.Move]:
    yield from smaller.in_field("inner", smaller.sizes(1))
    for start, end in smaller.cuts(len(drawn.column)):
        yield partial(_fewer_rows, start, end)
    yield lambda given: given._replace(named=[0] * len(given.named)) if any(given.named) else None
    for place in range(len(drawn.named)):
        yield from smaller.in_field("named", smaller.at(place, smaller.sizes(0)))
    yield from (partial(_fewer_results, move) for move in smaller.sizes(1))
    yield from smaller.in_field("route", route_moves(drawn.route))
    yield from smaller.in_field("column", smaller.lists(drawn.route.fmt, len(drawn.column)))


def _fewer_rows(start: int, end: int, drawn: Rows) -> Rows | None:
    if start >= len(drawn.column):
        return None
    column, named = ([*part[:start], *part[end:]] for part in (drawn.column, drawn.named))
    return drawn._replace(column=column, named=named)


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


class Candidates(NamedTuple):
    """Columns to find the largest in; as those of Cube."""

    columns: Vectors
    inner: int


def _maximum_groups(case: BackendCase) -> Iterator[Group]:
    some = inputs.chosen(tuple(n for n in LENGTHS if n))

    def build(fmt: Format, draw: inputs.Draw) -> Candidates:
        return Candidates(vectors(draw, fmt, draw(some)), draw(inputs.chosen(SIDES)))

    for fmt in case.formats:
        yield Group(
            fmt.name,
            inputs.composed(partial(build, fmt)),
            partial(_largest, case, fmt),
            3,
            partial(_maximum_walk, fmt),
            (partial(_of_nothing, case, fmt),),
            partial(_maximum_moves, fmt),
        )


def _maximum_walk(fmt: Format) -> Iterator[Candidates]:
    for n in WALKED[1:]:
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
    call = Call(
        "maximum_of",
        f"maximum_of in {fmt.name}, (1, 0, 1)",
        (),
        Seen(()),
        lambda _, index: "",
        fmt,
        watches=(),
    )
    try:
        case.method("maximum_of")(np.empty((1, 0, 1), fmt.uint), fmt)
    except ValueError:
        return
    except NotImplementedError:
        return
    except Exception as error:
        raise call.fault("", f"raised {type(error).__name__}: {error}; a ValueError is due") from error
    raise call.fault("", "the largest of no values was given; a ValueError is due")


def _relu_groups(case: BackendCase) -> Iterator[Group]:
    from hypothesis import strategies as st

    shapes = st.sampled_from([(1,), (2,), (7,), (3, 3), (2, 1, 9), (65,), (), (0,), (2, 0)])
    for fmt in case.formats:
        numbers = st.lists(inputs.encodings(fmt), min_size=1, max_size=16)
        yield Group(
            fmt.name,
            st.tuples(numbers, shapes),
            partial(_rectified, case, fmt),
            3,
            partial(_relu_walk, fmt),
            moves=partial(_relu_moves, fmt),
        )


def _relu_walk(fmt: Format) -> Iterator[tuple[list[int], tuple[int, ...]]]:
    """Give every encoding that is drawn, each at once."""
    every = inputs.table(fmt)
    yield every, (len(every),)


def _relu_moves(fmt: Format, drawn: tuple[list[int], tuple[int, ...]]) -> Iterator[smaller.Move]:
    pieces = [partial(_left, piece) for piece in smaller.cuts(len(drawn[0]))]
    yield from smaller.at(0, pieces)
    yield from smaller.at(1, [smaller.to((1,))])
    yield from smaller.at(0, smaller.lists(fmt, len(drawn[0])))


def _left(piece: tuple[int, int], numbers: list[int]) -> list[int] | None:
    start, end = piece
    left = [*numbers[:start], *numbers[end:]]
    return left if left and start < len(numbers) else None


def _rectified(case: BackendCase, fmt: Format, drawn: tuple[list[int], tuple[int, ...]]) -> None:
    numbers, shape = drawn
    bits = np.resize(np.array(numbers, fmt.uint), shape)
    due = DEFINITION.relu(bits, fmt)

    def written(_: int, index: int) -> str:
        return words.number(int(bits.reshape(-1)[index]), fmt)

    where = f"relu in {fmt.name}" + (f", shape {shape}" if len(shape) != 1 else "")
    tried(case, Call("relu", where, (bits, fmt), Seen((due,)), written, fmt, watches=()))


CHECKS: tuple[BackendCheck, ...] = (
    *(
        BackendCheck(method, method, partial(_groups, method))
        for method in ("sum", "cumulative_sum", "sum_of_squares")
    ),
    BackendCheck("index_sum", "index_sum", _index_groups),
    BackendCheck("maximum_of", "maximum_of", _maximum_groups),
    BackendCheck("relu", "relu", _relu_groups),
)
