"""Which datapaths a check goes through: those that have names, and drawn ones of every kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

from fp16sim.emulator.datapath import DATAPATHS, Datapath
from fp16sim.emulator.formats import Format, bfloat16, binary16, binary32, binary64
from fp16sim.testing.backend import words
from fp16sim.testing.backend.case import BackendCase
from fp16sim.testing.backend.inputs import Draw
from fp16sim.testing.backend.smaller import Move, in_field, sizes, to

__all__ = ["Drawing", "Route", "drawn", "route_moves", "routes"]

_DRAWN = "drawn"


class Route(NamedTuple):
    """Operands, how their products are accumulated, and the format of the result."""

    fmt: Format
    path: Datapath
    out_format: Format

    def text(self) -> str:
        """Write it for messages."""
        return f"of {self.fmt.name} by datapath {words.datapath_text(self.path)} to {self.out_format.name}"


Drawing = Callable[[Draw], Route]


def routes(case: BackendCase) -> Iterator[tuple[str, Drawing, Route]]:
    """Give the name of each kind of route, what draws such routes, and the simplest of them."""
    given = DATAPATHS.values() if case.datapaths is None else case.datapaths
    every = dict.fromkeys(one for path in given for one in (path, *path.variants))
    for path in every:
        for fmt in path.inputs:
            if fmt in case.formats:
                name = f"{fmt.name} by {words.datapath_text(path)}"
                yield name, partial(_to_a_result, fmt, path), Route(fmt, path, _results(path, fmt)[0])
    if case.datapaths is None:
        for fmt in case.formats:
            if fmt != binary64:  # accumulated as the datapath of its name does only
                first = _plain(fmt)[0]
                route = Route(fmt, first, _results(first, fmt)[0])
                yield f"{fmt.name} by drawn datapaths", partial(drawn, fmt), route


def _to_a_result(fmt: Format, path: Datapath, draw: Draw) -> Route:
    return Route(fmt, path, draw(_results(path, fmt)))


def drawn(fmt: Format, draw: Draw) -> Route:
    """Draw routes of operands of a format by datapaths that have no name."""
    path = _core(fmt, draw) if draw((False, True)) else draw(_plain(fmt))
    return _to_a_result(fmt, path, draw)


def _results(path: Datapath, fmt: Format) -> tuple[Format, ...]:
    own = [path.result_format(fmt), path.start_format]
    others = [] if binary64 in (fmt, path.accumulator) else [binary16, binary32]
    return tuple(dict.fromkeys([*own, *others]))


@cache
def _accumulators(fmt: Format) -> tuple[Format, ...]:
    """List formats that hold all numbers of one."""
    own = Format("e8m13", exponent_bits=8, precision=14)
    candidates = (binary32, fmt, binary16, bfloat16, own)
    return tuple(
        wide for wide in dict.fromkeys(candidates) if _possible(accumulator=wide, inputs=(fmt,)) is not None
    )


def _possible(**fields: Any) -> Datapath | None:
    try:
        return Datapath(_DRAWN, **fields)
    except ValueError:
        return None


@cache
def _plain(fmt: Format) -> tuple[Datapath, ...]:
    """List datapaths that are no tensor cores: each order, size of blocks and format, as far as they go together."""
    orders: list[dict[str, Any]] = [{}, {"compensated": True}, {"order": "pairwise"}]
    orders += [{"order": "blocked", "block": block} for block in (2, 3, 8)]
    orders += [{"order": "split_k", "splits": splits} for splits in (2, 3, 5)]
    found = [_possible(accumulator=None, inputs=(fmt,))]
    for accumulator in _accumulators(fmt):
        for order in orders:
            for products in (None, fmt, binary16):
                fields = {"accumulator": accumulator, "products": products, "inputs": (fmt,), **order}
                found.append(_possible(**fields))
            found.append(_possible(accumulator=accumulator, fused=True, inputs=(fmt,), **order))
    return tuple(dict.fromkeys(path for path in found if path is not None))


def _core(fmt: Format, draw: Draw) -> Datapath:
    accumulator: Format = draw(_accumulators(fmt))
    emin = accumulator.emin
    choices: dict[str, tuple[Any, ...]] = {
        "block": (4, 1, 2, 8, 16, 3),
        "fraction_bits": (24, 3, 8, 13, 23, 25, 40),
        "block_rounding": ("nearest_even", "toward_zero"),
        "zero_exponent": (None, emin, emin - 6, emin - 100),
        "keep_negative_zero": (False, True),
        "normalized_accumulator": (False, True),
        "nan_bits": (None, accumulator.nan_bits),
    }
    fields = {name: draw(some) for name, some in choices.items()}
    return Datapath(_DRAWN, accumulator, inputs=(fmt,), **fields)


_PLAINER: tuple[dict[str, Any], ...] = (
    {"compensated": False},
    {"order": "sequential", "block": 1, "splits": 1},
    {"products": None},
    {"block_rounding": "nearest_even"},
    {"zero_exponent": None},
    {"keep_negative_zero": False},
    {"normalized_accumulator": False},
    {"nan_bits": None},
)
"""What makes a drawn datapath simpler; the accumulator's format stays, in which start values are."""


def route_moves(route: Route) -> Iterator[Move]:
    """Give what makes a route simpler: the first of its formats for results; what a drawn datapath can do without."""
    yield from in_field("out_format", [to(_results(route.path, route.fmt)[0])])
    if route.path.name == _DRAWN:
        yield from in_field("path", [partial(_plainer, fields) for fields in _PLAINER])
        yield from in_field("path", in_field("block", sizes(1)))
        yield from in_field("path", in_field("splits", sizes(1)))


def _plainer(fields: dict[str, Any], path: Datapath) -> Datapath | None:
    try:
        plainer = replace(path, **fields)
    except ValueError:
        return None
    return None if plainer == path else plainer
