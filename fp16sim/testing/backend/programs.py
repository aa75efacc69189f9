"""Checks of programs, of rules that a backend may tabulate, and of functions of float32 and float64 values."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fp16sim.emulator.float32_functions import FLOAT32_FUNCTIONS
from fp16sim.emulator.formats import Format, bfloat16, binary16, binary32, binary64
from fp16sim.emulator.programs import OPERATIONS, Program
from fp16sim.testing.backend import inputs, words
from fp16sim.testing.backend.check import BackendCheck, Group
from fp16sim.testing.backend.trial import DEFINITION, BackendCase, Call, Seen, seen_of, tried

__all__ = ["CHECKS"]

_PATTERNS = ((1, 1), (1, 2), (2, 1), (3, 2), (1, 5), (5, 1))
_SIZES = (1, 2, 7, 10, 31, 64, 0)


class Performed(NamedTuple):
    """A program and its operands: the numbers of each, its pattern, and how many elements all stretch over."""

    program: Program
    operands: list[list[int]]
    patterns: list[tuple[int, int]]
    constants: list[int]
    size: int


def _program(fmt: Format, draw: inputs.Draw) -> Performed:
    def one_of(*choices: Any) -> Any:
        return draw(inputs.chosen(choices))

    operands, constants = one_of(1, 2, 3, 4, 6), one_of(0, 1, 2)
    steps: list[tuple[str, int, int]] = []
    for _ in range(one_of(1, 2, 3, 5, 8)):
        known = tuple(range(operands + constants + len(steps)))
        steps.append((one_of(*OPERATIONS), one_of(*known), one_of(*known)))
    made = tuple(range(operands + constants, operands + constants + len(steps)))
    results = tuple(dict.fromkeys((made[-1], *(one_of(*made) for _ in range(one_of(0, 1, 2))))))
    size = one_of(*_SIZES)
    patterns = [one_of((1, size), (1, size), *_PATTERNS) for _ in range(operands)]
    numbers = inputs.encodings(fmt)
    values = [[draw(numbers) for _ in range(min(length, 8))] for _, length in patterns]
    given = [draw(numbers) for _ in range(constants)]
    return Performed(Program(operands, constants, tuple(steps), results), values, patterns, given, size)


def _program_groups(case: BackendCase) -> Iterator[Group]:
    for fmt in case.formats:
        yield Group(fmt.name, inputs.composed(partial(_program, fmt)), partial(_performed, case, fmt), 10)


def _performed(case: BackendCase, fmt: Format, drawn: Performed) -> None:
    operands = [
        np.resize(np.array(numbers, fmt.uint), length)
        for numbers, (_, length) in zip(drawn.operands, drawn.patterns, strict=True)
    ]
    arguments = (
        drawn.program,
        operands,
        np.array(drawn.patterns, np.int64),
        np.array(drawn.constants, fmt.uint),
        drawn.size,
        fmt,
    )

    def written(result: int, index: int) -> str:
        numbers = [
            words.number(int(bits[index // repeat % length]), fmt)
            for bits, (repeat, length) in zip(operands, drawn.patterns, strict=True)
        ]
        numbers += [words.number(bits, fmt) for bits in drawn.constants]
        values = ", ".join(f"v{place} = {text}" for place, text in enumerate(numbers))
        return f"{values}: v{drawn.program.results[result]}"

    call = Call(
        "perform",
        f"perform in {fmt.name}, {_steps(drawn.program)}",
        arguments,
        seen_of(DEFINITION.perform(*arguments, "counts")),
        written,
        fmt,
        watches=("", "counts"),
    )
    tried(case, call)


def _steps(program: Program) -> str:
    first = program.operands + program.constants
    return "; ".join(
        f"v{first + place} = {operation}(v{left}{'' if operation == 'sqrt' else f', v{right}'})"
        for place, (operation, left, right) in enumerate(program.steps)
    )


def _rule(factor: int, bits: Any) -> Any:
    """Map every 16-bit encoding to another, one to one as the factor is odd."""
    return (bits * np.uint16(factor) + np.uint16(factor >> 3)).astype(np.uint16)


def _tabulated_groups(case: BackendCase) -> Iterator[Group]:
    from hypothesis import strategies as st

    # First few elements of a rule, then all, then few again: a backend that keeps tables has one by then.
    shapes = inputs.chosen(((1,), (65536,), (3,), (2, 2), (0,), (16384,), (1, 20000)))
    for fmt in (binary16, bfloat16):
        if fmt in case.formats:
            numbers = st.lists(inputs.encodings(fmt), min_size=1, max_size=8)
            factors = inputs.chosen((40503, 1, 65535, 30773))
            strategy = st.tuples(factors, numbers, shapes)
            yield Group(fmt.name, strategy, partial(_tabulated, case, fmt), 3)


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


def _real(name: str, fmt: Format, draw: inputs.Draw) -> list[tuple[int, int]]:
    kinds = [inputs.encodings(fmt), inputs.styled(fmt, "moderate"), inputs.styled(fmt, "swamping")]
    few = []
    for _ in range(draw(inputs.chosen((1, 2, 12, 33, 0)))):
        first, second = (draw(kinds[draw(inputs.chosen((0, 1, 2)))]) for _ in range(2))
        few.append((first, second))
    return few


def _real_groups(case: BackendCase) -> Iterator[Group]:
    for fmt in (binary32, binary64):
        if fmt in case.formats:
            for name in (*FLOAT32_FUNCTIONS, "pow"):
                strategy = inputs.composed(partial(_real, name, fmt))
                yield Group(f"{name} in {fmt.name}", strategy, partial(_real_function, case, name, fmt))


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
        parts=tuple(
            ((name, *(part[half] for part in arguments[1:])), Seen((expected[half],))) for half in halves
        )
        if middle
        else (),
    )
    tried(case, call)


CHECKS: tuple[BackendCheck, ...] = (
    BackendCheck("perform", "perform", _program_groups),
    BackendCheck("tabulated", "tabulated", _tabulated_groups),
    BackendCheck("real_function", "real_function", _real_groups),
)
