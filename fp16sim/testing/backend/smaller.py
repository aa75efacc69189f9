"""Makes an input with a fault smaller: cuts its sizes, then makes its numbers simpler, as long as a fault shows.

The input itself is cut, not the choices that made it as Hypothesis does: so inputs that are walked through can be
cut too, and a product of 65 by 19 by 67 is one of 1 by 9 by 1 after a few dozen calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from fp16sim.emulator.formats import Format
from fp16sim.testing.walk import Fault

__all__ = [
    "Move",
    "alike",
    "at",
    "changed",
    "cuts",
    "fewer",
    "in_field",
    "integers",
    "lists",
    "made_smaller",
    "numbers",
    "sizes",
    "to",
    "to_none",
    "without",
]

Move = Callable[[Any], Any]
"""Gives a smaller input, or None where it can make none of this one."""

_MOST = 2000
"""Inputs that are examined, for one fault."""
_LONG = 128


def made_smaller(
    drawn: Any, fault: Fault, moves: Callable[[Any], Iterable[Move]], examine: Callable[[Any], None]
) -> Fault:
    """Make moves as long as one of them leaves a fault; give that of the smallest input.

    >>> def examine(number):
    ...     if number > 8:
    ...         raise Fault("", f"{number} is too large")
    >>> print(made_smaller(67, Fault("", "67 is too large"), lambda number: sizes(0), examine))
    9 is too large
    """
    left, moved = _MOST, True
    while moved:
        moved = False
        for move in moves(drawn):
            while left and (smaller := move(drawn)) is not None:
                left -= 1
                try:
                    examine(smaller)
                except Fault as another:
                    drawn, fault, moved = smaller, another, True
                else:
                    break
    return fault


def to(simplest: Any) -> Move:
    """Move there at once."""
    return lambda value: None if value == simplest else simplest


def to_none(field: str) -> Move:
    """Leave out what a field of the whole has."""
    return lambda whole: None if getattr(whole, field) is None else whole._replace(**{field: None})


def sizes(least: int) -> tuple[Move, ...]:
    """Give moves of a number of something: to the least, to half of it, one down."""
    steps: tuple[Move, ...] = (lambda n: least, lambda n: max(least, n // 2), lambda n: n - 1)
    return tuple(partial(_if_larger, least, step) for step in steps)


def _if_larger(least: int, step: Move, n: int) -> int | None:
    return step(n) if n > least else None


def cuts(length: int) -> Iterator[tuple[int, int]]:
    """Give (from, to) of pieces to take out of what has a length: halves, quarters and so on, the last ones first.

    Of what is long not less than its 32nd part, and `lists` makes no number of it simpler by itself: to examine it
    takes long.
    """
    size = length
    while size > (length // 32 if length > _LONG else 0):
        for end in range(length, 0, -size):
            yield max(0, end - size), end
        size //= 2


def without(piece: tuple[int, int], whole: list[Any]) -> list[Any] | None:
    """Take a piece out of a list; None if it begins behind the end."""
    start, end = piece
    return [*whole[:start], *whole[end:]] if start < len(whole) else None


def fewer(length: int) -> Iterator[Move]:
    """Give moves of a list that is as long to one that has fewer elements, but one at least."""
    return (partial(_some_left, piece) for piece in cuts(length))


def _some_left(piece: tuple[int, int], whole: list[Any]) -> list[Any] | None:
    return without(piece, whole) or None


def changed(whole: Any, field: str, value: Any) -> Any:
    """Give a named tuple or a dataclass with another value in a field; None where the value is None, or impossible."""
    if value is None:
        return None
    try:
        return (
            whole._replace(**{field: value})
            if hasattr(whole, "_replace")
            else replace(whole, **{field: value})
        )
    except ValueError:
        return None


def in_field(field: str, moves: Iterable[Move]) -> Iterator[Move]:
    """Make moves of a field moves of the whole."""
    for move in moves:
        yield partial(_in_field, field, move)


def _in_field(field: str, move: Move, whole: Any) -> Any:
    value = getattr(whole, field)
    return None if value is None else changed(whole, field, move(value))


def at(index: int, moves: Iterable[Move]) -> Iterator[Move]:
    """Make moves of an element moves of a list or a tuple."""
    for move in moves:
        yield partial(_at, index, move)


def _at(index: int, move: Move, whole: Any) -> Any:
    if index >= len(whole) or (value := move(whole[index])) is None:
        return None
    return type(whole)([*whole[:index], value, *whole[index + 1 :]])


def alike(index: int, moves: Iterable[Move]) -> Iterator[Move]:
    """Make moves of an element moves of a list or a tuple, in which all that equal it go with it."""
    for move in moves:
        yield partial(_alike, index, move)


def _alike(index: int, move: Move, whole: Any) -> Any:
    if index >= len(whole) or (value := move(whole[index])) is None:
        return None
    return type(whole)(value if other == whole[index] else other for other in whole)


def lists(fmt: Format, length: int) -> Iterator[Move]:
    """Give moves of a list of encodings that keep its length: all of them, each."""
    one = fmt.bias << fmt.fraction_bits
    yield from (partial(_all, 0), partial(_all, one))
    for index in range(length if length <= _LONG else 0):
        yield from at(index, numbers(fmt))


def _all(value: int, given: list[int]) -> list[int] | None:
    return [value] * len(given) if any(n not in (0, value) for n in given) else None


def integers() -> tuple[Move, ...]:
    """Give moves of an integer of 64 bits: to 0, to plus, to half, to fewer bits."""
    steps: tuple[Move, ...] = (
        lambda n: 0,
        lambda n: min(abs(n), 2**63 - 1),  # that of -2^63 is none of a signed integer
        lambda n: n // 2 if n > 0 else -(-n // 2),
        lambda n: n & (n - 1) if n > 0 else -(-n & (-n - 1)),
    )
    return tuple(partial(_if_nearer_to_zero, step) for step in steps)


def _if_nearer_to_zero(step: Move, n: int) -> int | None:
    moved: int = step(n)
    return moved if (abs(moved), moved < 0) < (abs(n), n < 0) else None


def numbers(fmt: Format) -> tuple[Move, ...]:
    """Give moves of an encoding: to 0, to 1, to plus, to fewer bits of its fraction, toward the exponent of 1."""
    one, step, mask = fmt.bias << fmt.fraction_bits, 1 << fmt.fraction_bits, fmt.sign_bit - 1

    def exponent(bits: int) -> int:
        return (bits & mask) // step - fmt.bias

    steps: tuple[Move, ...] = (
        lambda bits: 0,
        lambda bits: one,
        lambda bits: bits & mask,
        lambda bits: bits & ~(step - 1),
        lambda bits: bits & ~(step - 1) | (bits & (step - 1) & -bits),
        lambda bits: bits & ~(bits & -bits) if bits & (step - 1) else bits,
        lambda bits: bits - int(exponent(bits) / 2) * step,
        lambda bits: bits - ((exponent(bits) > 0) - (exponent(bits) < 0)) * step,
    )
    return tuple(partial(_if_simpler, fmt, move) for move in steps)


def _if_simpler(fmt: Format, step: Move, bits: int) -> int | None:
    simpler = int(step(bits))
    return simpler if _simplicity(simpler, fmt) < _simplicity(bits, fmt) else None


def _simplicity(bits: int, fmt: Format) -> tuple[int, int, int, int]:
    """Order encodings: 0, 1, then by the bits of the fraction, how far the exponent is from that of 1, the sign."""
    magnitude, step = bits & (fmt.sign_bit - 1), 1 << fmt.fraction_bits
    sign = int(bits != magnitude)
    if magnitude in (0, fmt.bias * step):
        return 0, sign, magnitude, 0
    fraction = magnitude % step
    unusual = 1 + (magnitude > fmt.max_bits)
    return unusual, fraction.bit_count(), abs(magnitude // step - fmt.bias), sign
