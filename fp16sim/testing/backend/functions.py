"""Checks of rules that a backend may tabulate, and of functions of float32 and float64 values."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from fp16sim.emulator.float32_functions import FLOAT32_FUNCTIONS
from fp16sim.emulator.formats import Format, bfloat16, binary16, binary32, binary64
from fp16sim.testing.backend import inputs, smaller, words
from fp16sim.testing.backend.calls import Call, Seen
from fp16sim.testing.backend.case import DEFINITION, BackendCase
from fp16sim.testing.backend.check import BackendCheck, Group
from fp16sim.testing.backend.smaller import Move
from fp16sim.testing.backend.trial import tried

__all__ = ["CHECKS"]

_FACTORS = (40503, 1, 65535, 30773)


def _rule(factor: int, bits: Any) -> Any:
    """Map every 16-bit encoding to another, one to one as the factor is odd."""
    return (bits * np.uint16(factor) + np.uint16(factor >> 3)).astype(np.uint16)


def _tabulated_groups(case: BackendCase) -> Iterator[Group]:
    for fmt in (binary16, bfloat16):
        if fmt in case.formats:
            draw, examine = partial(_rule_of_few, fmt), partial(_tabulated, case, fmt)
            yield Group(fmt.name, draw, examine, partial(_rule_moves, fmt), 3)


def _rule_of_few(fmt: Format, draw: inputs.Draw) -> tuple[int, list[int], tuple[int, ...]]:
    factor, few = draw(_FACTORS), [draw(inputs.encodings(fmt)) for _ in range(draw(range(1, 9)))]
    # A few elements of a rule, all, few again: a backend that keeps tables has one by then.
    return factor, few, draw(((1,), (65536,), (3,), (2, 2), (0,), (16384,), (1, 20000)))


def _rule_moves(fmt: Format, drawn: tuple[int, list[int], tuple[int, ...]]) -> Iterator[Move]:
    yield from smaller.at(2, [smaller.to((1,))])
    yield from smaller.at(1, smaller.fewer(len(drawn[1])))
    yield from smaller.at(0, [smaller.to(1)])
    yield from smaller.at(1, smaller.lists(fmt, len(drawn[1])))


def _tabulated(case: BackendCase, fmt: Format, drawn: tuple[int, list[int], tuple[int, ...]]) -> None:
    factor, numbers, shape = drawn
    size = int(np.prod(shape))
    bits = np.arange(size, dtype=np.uint16) if size > 100 else np.resize(np.array(numbers, np.uint16), size)
    bits = bits.reshape(shape)

    def written(_: int, index: int) -> str:
        return words.number(int(bits.reshape(-1)[index]), fmt)

    name = f"check {factor} in {fmt.name}"
    call = Call(
        "tabulated",
        f"tabulated, the rule {name!r}",
        (name, partial(_rule, factor), bits),
        Seen((_rule(factor, bits),)),
        written,
        fmt,
        watches=(),
    )
    tried(case, call)


def _pairs(fmt: Format, draw: inputs.Draw) -> list[tuple[int, int]]:
    tables = [inputs.encodings(fmt), inputs.styled(fmt, "moderate"), inputs.styled(fmt, "swamping")]
    return [(draw(draw(tables)), draw(draw(tables))) for _ in range(draw((1, 2, 12, 33, 0)))]


def _pair_moves(fmt: Format, drawn: list[tuple[int, int]]) -> Iterator[Move]:
    yield from smaller.fewer(len(drawn))
    for index in range(len(drawn)):
        for place in range(2):
            yield from smaller.at(index, smaller.at(place, smaller.numbers(fmt)))


def _real_groups(case: BackendCase) -> Iterator[Group]:
    for fmt in (binary32, binary64):
        if fmt in case.formats:
            for name in (*FLOAT32_FUNCTIONS, "pow"):
                examine = partial(_real_function, case, name, fmt)
                yield Group(f"{name} in {fmt.name}", partial(_pairs, fmt), examine, partial(_pair_moves, fmt))


def _real_function(case: BackendCase, name: str, fmt: Format, drawn: list[tuple[int, int]]) -> None:
    first, second = (
        np.array([pair[place] for pair in drawn], fmt.uint).view(fmt.dtype) for place in range(2)
    )
    arguments = (name, first, second) if name == "pow" else (name, first)
    expected = DEFINITION.real_function(*arguments)
    middle = len(drawn) // 3
    halves = (slice(0, middle), slice(middle, len(drawn)))

    def written(_: int, index: int) -> str:
        return ", ".join(words.number(x, fmt) for x in drawn[index][: len(arguments) - 1])

    call = Call(
        "real_function",
        f"{name} in {fmt.name}",
        arguments,
        Seen((expected,)),
        written,
        fmt,
        watches=(),
        parts=tuple(((name, *(part[half] for part in arguments[1:])), expected[half]) for half in halves)
        if middle
        else (),
    )
    tried(case, call)


CHECKS: tuple[BackendCheck, ...] = (
    BackendCheck("tabulated", "tabulated", _tabulated_groups),
    BackendCheck("real_function", "real_function", _real_groups),
)
