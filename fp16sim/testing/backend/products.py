"""Checks of products of matrices: every datapath, layout and size, with and without an accumulator input."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fp16sim.testing.backend import inputs, words
from fp16sim.testing.backend.check import BackendCheck, Group
from fp16sim.testing.backend.datapaths import Drawing, Route, routes
from fp16sim.testing.backend.trial import DEFINITION, BackendCase, Call, Seen, tried
from fp16sim.testing.backend.vectors import LAYOUTS, LENGTHS, Vectors, laid, vectors

__all__ = ["CHECKS"]

Array = npt.NDArray[Any]
_LARGE = (65, 67, 19)


class Matrices(NamedTuple):
    """Operands of a product of matrices."""

    route: Route
    left: Vectors
    right: Vectors
    start: list[int] | None
    batch: int
    layouts: tuple[str, str]


def _matrices(route_of: Drawing, draw: inputs.Draw) -> Matrices:
    route, terms = route_of(draw), draw(inputs.chosen(LENGTHS))
    start, style = None, draw(inputs.chosen(("", "edges", "zeros")))
    if style:
        start = [draw(inputs.styled(route.path.start_format, style)) for _ in range(2)]
    # A start of -0 shows in the result only if all products are -0 too.
    left = vectors(draw, route.fmt, terms, ("zeros",) if style == "zeros" else inputs.STYLES)
    right = vectors(draw, route.fmt, terms)
    layouts = draw(inputs.chosen(LAYOUTS)), draw(inputs.chosen(LAYOUTS))
    return Matrices(route, left, right, start, draw(inputs.chosen((1, 2, 3, 0))), layouts)


def _groups(case: BackendCase) -> Iterator[Group]:
    for name, route_of, simplest in routes(case):
        strategy = inputs.composed(partial(_matrices, route_of))
        fixed = () if case.is_plain("matmul") else (partial(_large, case, simplest),)
        yield Group(name, strategy, partial(_product, case), fixed=fixed)


def _large(case: BackendCase, route: Route) -> None:
    """Examine a product that is large enough to be divided."""
    m, n, k = _LARGE
    numbers = [inputs.simple(route.fmt, i) for i in range(6 * k)]
    rows = [numbers[i * k : (i + 1) * k] for i in range(6)]
    left, right = Vectors(rows[:3], m), Vectors(rows[3:], n)
    _product(case, Matrices(route, left, right, None, 1, ("contiguous", "contiguous")), quick=True)


def _product(case: BackendCase, drawn: Matrices, quick: bool = False) -> None:
    (fmt, path, out_format), start = drawn.route, drawn.start
    a, b = drawn.left.array(fmt), drawn.right.array(fmt)
    terms = a.shape[1]
    rows, columns = drawn.left.turns(), drawn.right.turns()
    # Element (b, i, j) starts at number (b + i + j) % 2 of those drawn.
    places = np.add.outer(np.arange(drawn.batch), np.add.outer(rows, columns)) % 2
    some = range(1 if start is None else 2)
    bits = np.zeros((len(some), len(a), len(b)), out_format.uint)
    counts = np.zeros((*bits.shape, 7), np.int64)
    for s, i, j in np.ndindex(bits.shape):
        c = None if start is None else np.full((1, 1, 1), start[s], path.start_format.uint)
        outcome = DEFINITION.matmul(
            a[i].reshape(1, 1, terms), b[j].reshape(1, terms, 1), c, fmt, path, out_format, "counts"
        )
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
                Seen((due[:, half],)),
            )
            for half in halves
        )
        if middle
        else (),
    )
    tried(case, call, quick)


CHECKS: tuple[BackendCheck, ...] = (BackendCheck("matmul", "matmul", _groups),)
