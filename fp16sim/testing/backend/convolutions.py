"""Checks of convolutions and their two gradients: strides, dilations, padding, groups, in one to three dimensions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from fp16sim.emulator.convolution_geometry import Geometry
from fp16sim.testing.backend import inputs, smaller, words
from fp16sim.testing.backend.calls import Call, Seen
from fp16sim.testing.backend.case import DEFINITION, BackendCase
from fp16sim.testing.backend.check import BackendCheck, Group
from fp16sim.testing.backend.datapaths import Drawing, Route, route_moves, routes
from fp16sim.testing.backend.trial import tried

__all__ = ["CHECKS", "KINDS"]

KINDS = ("forward", "input_gradient", "weight_gradient")
_MOST_PRODUCTS = 400


class Convolution(NamedTuple):
    """Sizes of a convolution, and numbers that its operands repeat."""

    route: Route
    geometry: Geometry
    images: int
    channels: tuple[int, int]
    numbers: tuple[list[int], list[int]]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Give the shapes of input, weight and output."""
        each = self.channels[0] * self.geometry.groups, self.channels[1] * self.geometry.groups
        return {
            "input": (self.images, each[0], *self.geometry.size),
            "weight": (each[1], self.channels[0], *self.geometry.kernel),
            "output": (self.images, each[1], *self.geometry.output),
        }

    def products(self, which: str) -> int:
        """Count those that the definition makes."""
        shapes = {name: prod(shape) for name, shape in self.shapes().items()}
        each = {
            "forward": shapes["weight"] // self.shapes()["weight"][0],
            "input_gradient": self.channels[1] * prod(self.geometry.kernel),
            "weight_gradient": self.images * prod(self.geometry.output),
        }
        return shapes[_TAKES[which][2]] * each[which]


_TAKES = {
    "forward": ("input", "weight", "output"),
    "input_gradient": ("output", "weight", "input"),
    "weight_gradient": ("input", "output", "weight"),
}
"""Both operands, and the result."""


_CHEAPER: tuple[Callable[[Convolution], Convolution], ...] = (
    lambda drawn: drawn._replace(images=1),
    lambda drawn: drawn._replace(channels=(1, drawn.channels[1])),
    lambda drawn: drawn._replace(geometry=replace(drawn.geometry, groups=1)),
    lambda drawn: drawn._replace(geometry=_without_axis(0, drawn.geometry) or drawn.geometry),
    lambda drawn: drawn._replace(channels=(1, 1)),
)
"""What a drawn convolution does without where the definition would take long."""


def _convolution(which: str, route_of: Drawing, draw: inputs.Draw) -> Convolution:
    def one_of(*choices: Any) -> Any:
        return draw(choices)

    route, dimensions = route_of(draw), one_of(1, 2, 2, 3)
    axes = range(dimensions)
    kernel = tuple(one_of(1, 2, 3) for _ in axes)
    dilation = tuple(one_of(1, 1, 2) for _ in axes)
    padding = tuple((one_of(0, 1, 2), one_of(0, 1)) for _ in axes)
    spare = tuple(one_of(0, 1, 2) for _ in axes)
    # At least one window fits, and there is something that it reads.
    size = tuple(
        max(1, d * (k - 1) + 1 - sum(pad)) + more
        for d, k, pad, more in zip(dilation, kernel, padding, spare, strict=True)
    )
    geometry = Geometry(
        size, kernel, tuple(one_of(1, 2, 3) for _ in axes), dilation, padding, one_of(1, 1, 2)
    )
    styles = one_of(*inputs.STYLES), one_of(*inputs.STYLES)
    numbers = tuple(
        [draw(inputs.styled(route.fmt, style)) for _ in range(one_of(1, 3, 8))] for style in styles
    )
    drawn = Convolution(route, geometry, one_of(1, 2), (one_of(1, 2, 3), one_of(1, 2)), numbers)  # type: ignore[arg-type]
    for less in _CHEAPER:
        drawn = less(drawn) if drawn.products(which) > _MOST_PRODUCTS else drawn
    return drawn


def _groups(which: str, case: BackendCase) -> Iterator[Group]:
    for name, route_of, _ in routes(case):
        yield Group(name, partial(_convolution, which, route_of), partial(_convolved, case, which), _moves)


def _moves(drawn: Convolution) -> Iterator[smaller.Move]:
    one = smaller.sizes(1)
    yield from smaller.in_field("images", one)
    axes = range(len(drawn.geometry.size))
    yield from smaller.in_field("geometry", [partial(_without_axis, axis) for axis in axes])
    for place in range(2):
        yield from smaller.in_field("channels", smaller.at(place, one))
    yield from smaller.in_field("geometry", smaller.in_field("groups", one))
    for axis in axes:
        for pads in ((0, 0), (1, 0), (0, 1)):
            padding = smaller.at(axis, [partial(_less_padding, pads)])
            yield from smaller.in_field("geometry", smaller.in_field("padding", padding))
        for field in ("stride", "dilation", "kernel", "size"):
            yield from smaller.in_field("geometry", smaller.in_field(field, smaller.at(axis, one)))
    yield from smaller.in_field("route", route_moves(drawn.route))
    for place, numbers in enumerate(drawn.numbers):
        moves = [*smaller.fewer(len(numbers)), *smaller.lists(drawn.route.fmt, len(numbers))]
        yield from smaller.in_field("numbers", smaller.at(place, moves))


def _without_axis(axis: int, geometry: Geometry) -> Geometry | None:
    if not axis < len(geometry.size) > 1:
        return None
    names = ("size", "kernel", "stride", "dilation", "padding")
    every = {name: getattr(geometry, name) for name in names}
    kept: dict[str, Any] = {name: (*each[:axis], *each[axis + 1 :]) for name, each in every.items()}
    return replace(geometry, **kept)


def _less_padding(pads: tuple[int, int], given: tuple[int, int]) -> tuple[int, int] | None:
    return pads if sum(pads) < sum(given) else None


def _convolved(case: BackendCase, which: str, drawn: Convolution) -> None:
    (fmt, path, out_format), geometry = drawn.route, drawn.geometry
    shapes = drawn.shapes()
    first, second, result = (shapes[name] for name in _TAKES[which])
    a, b = (
        np.array([numbers[place] for place in _spread(prod(shape), len(numbers))], fmt.uint).reshape(shape)
        for numbers, shape in zip(drawn.numbers, (first, second), strict=True)
    )
    arguments = (which, a, b, geometry, result, fmt, path, out_format)
    outcome = DEFINITION.convolve(*arguments, "counts")
    assert outcome.counts is not None

    def written(_: int, index: int) -> str:
        texts = [words.listed([words.number(x, fmt) for x in part.reshape(-1).tolist()]) for part in (a, b)]
        return f"[{texts[0]}] by [{texts[1]}]"

    call = Call(
        "convolve",
        f"convolve {which!r} {drawn.route.text()}, {first} by {second}{_steps(geometry)}",
        arguments,
        Seen((outcome.bits,), None, (("", outcome.counts),)),
        written,
        out_format,
    )
    tried(case, call)


def _steps(geometry: Geometry) -> str:
    """Write what is not as it usually is."""
    ones, none = (1,) * len(geometry.size), ((0, 0),) * len(geometry.size)
    usual = {"stride": ones, "dilation": ones, "padding": none, "groups": 1}
    given = {name: getattr(geometry, name) for name in usual}
    return "".join(f", {name} {value}" for name, value in given.items() if value != usual[name])


def _spread(size: int, few: int) -> list[int]:
    """Say which of a few numbers stands where: each once, then without a period that sizes could share."""
    return [i if i < few else (i * i // 3 + i) % few for i in range(size)]


CHECKS: tuple[BackendCheck, ...] = tuple(
    BackendCheck(f"convolve.{which}", "convolve", partial(_groups, which)) for which in KINDS
)
