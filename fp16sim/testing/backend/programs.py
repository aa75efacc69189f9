"""Checks of programs: several operations in one pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fp16sim.emulator.formats import Format
from fp16sim.emulator.programs import OPERATIONS, Program
from fp16sim.testing.backend import inputs, smaller, words
from fp16sim.testing.backend.calls import Call, seen_of
from fp16sim.testing.backend.case import DEFINITION, BackendCase
from fp16sim.testing.backend.check import BackendCheck, Group
from fp16sim.testing.backend.smaller import Move
from fp16sim.testing.backend.trial import tried

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
        return draw(choices)

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
        yield Group(
            fmt.name, partial(_program, fmt), partial(_performed, case, fmt), partial(_moves, fmt), 10
        )


def _moves(fmt: Format, drawn: Performed) -> Iterator[Move]:
    results = drawn.program.results
    yield from (partial(_to_one_result, result) for result in results if len(results) > 1)
    yield from (partial(_without_step, step) for step in reversed(range(len(drawn.program.steps))))
    yield from (partial(_without_operand, place) for place in reversed(range(len(drawn.operands))))
    yield from (partial(_without_constant, place) for place in reversed(range(len(drawn.constants))))
    yield from (partial(_of_size, move) for move in smaller.sizes(1))
    for place, numbers in enumerate(drawn.operands):
        for pattern in ((1, drawn.size), (1, 1)):
            yield from smaller.in_field("patterns", smaller.at(place, [smaller.to(pattern)]))
        simpler = [*smaller.fewer(len(numbers)), *smaller.lists(fmt, len(numbers))]
        yield from smaller.in_field("operands", smaller.at(place, simpler))
    yield from smaller.in_field("constants", smaller.lists(fmt, len(drawn.constants)))


def _to_one_result(result: int, drawn: Performed) -> Performed | None:
    program = drawn.program
    if result not in program.results or len(program.results) == 1:
        return None
    return drawn._replace(program=replace(program, results=(result,)))


def _without_step(step: int, drawn: Performed) -> Performed | None:
    """Leave out a step whose value is no result; what took it takes its first operand instead."""
    program = drawn.program
    first = program.operands + program.constants
    if step >= len(program.steps) or first + step in program.results:
        return None
    instead = program.steps[step][1]
    fewer = replace(program, steps=(*program.steps[:step], *program.steps[step + 1 :]))
    return drawn._replace(program=_renumbered(fewer, first + step, instead))


def _without_operand(place: int, drawn: Performed) -> Performed | None:
    """Leave out an operand; what took it takes the first of those that are left."""
    if len(drawn.operands) == 1 or place >= len(drawn.operands):
        return None
    fewer = replace(drawn.program, operands=drawn.program.operands - 1)
    operands, patterns = ([*part[:place], *part[place + 1 :]] for part in (drawn.operands, drawn.patterns))
    program = _renumbered(fewer, place, int(place == 0))
    return drawn._replace(program=program, operands=operands, patterns=patterns)


def _without_constant(place: int, drawn: Performed) -> Performed | None:
    """Leave out a constant; what took it takes the first operand."""
    if place >= len(drawn.constants):
        return None
    fewer = replace(drawn.program, constants=drawn.program.constants - 1)
    constants = [*drawn.constants[:place], *drawn.constants[place + 1 :]]
    return drawn._replace(program=_renumbered(fewer, drawn.program.operands + place, 0), constants=constants)


def _renumbered(program: Program, gone: int, instead: int) -> Program:
    """Take another value for one that is gone; those behind it have moved up."""

    def moved(value: int) -> int:
        value = instead if value == gone else value
        return value - (value > gone)

    steps = tuple((operation, moved(left), moved(right)) for operation, left, right in program.steps)
    return replace(program, steps=steps, results=tuple(map(moved, program.results)))


def _of_size(move: Move, drawn: Performed) -> Performed | None:
    size = move(drawn.size)
    patterns = [(1, size) if pattern == (1, drawn.size) else pattern for pattern in drawn.patterns]
    return None if size is None else drawn._replace(size=size, patterns=patterns)


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
    )
    tried(case, call)


def _steps(program: Program) -> str:
    first = program.operands + program.constants
    return "; ".join(
        f"v{first + place} = {operation}(v{left}{'' if operation == 'sqrt' else f', v{right}'})"
        for place, (operation, left, right) in enumerate(program.steps)
    )


CHECKS: tuple[BackendCheck, ...] = (BackendCheck("perform", "perform", _program_groups),)
