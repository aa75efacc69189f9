"""Checks of what rounds each element by itself: operations, functions, conversions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fp16sim.emulator.backends.base import count_flags
from fp16sim.emulator.elementwise import ARITY
from fp16sim.emulator.formats import Format, binary16, binary64
from fp16sim.emulator.one_argument import FUNCTIONS
from fp16sim.emulator.programs import OPERATIONS as IN_BINARY64
from fp16sim.emulator.rounding import MODES, Rounding
from fp16sim.testing.backend import inputs, smaller, words
from fp16sim.testing.backend.calls import Array, Call, Seen
from fp16sim.testing.backend.case import DEFINITION, BackendCase
from fp16sim.testing.backend.check import BackendCheck, Group
from fp16sim.testing.backend.smaller import Move
from fp16sim.testing.backend.trial import tried

__all__ = ["CHECKS"]

_RULES: tuple[tuple[tuple[str, Any], ...], ...] = (
    (),
    (("tininess", "before"),),
    (("subnormals", "flush"),),
    (("inputs", "zero"), ("saturate", True)),
    (("subnormals", "flush"), ("tininess", "before"), ("saturate", True)),
)
"""What else a rounding rule says beside its mode."""
_ARITY = {**ARITY, "ldexp": 2}
"""Operands of each operation that this package asks for; the second of ldexp is an integer."""
_SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}
_LANES = 12
_LENGTHS = (0, 0, 0, 17, 131)
"""How many elements the lanes drawn are repeated to; 0: as many as there are."""
_FIRSTS = range(len(MODES))


class Lanes(NamedTuple):
    """A few elements, each with its operands and 32 random bits, and what else decides about the results.

    Attributes
    ----------
    some : list of (operands, bits)
    rule : int
        Of `_RULES`: the first that is examined beside the plain one, which is number 0; then those after it.
    key : int or None
        Of stochastic rounding; None: by the bits of each element.
    length : int
        To which the elements are repeated; 0: they are not.
    first : int
        Of the modes that the other rules are examined in.
    """

    some: list[tuple[tuple[int, ...], int]]
    rule: int
    key: int | None
    length: int
    first: int

    def columns(self, dtypes: Sequence[Any]) -> list[Array]:
        """Give the operands as arrays, repeated."""
        arrays = [
            np.array([operands[place] for operands, _ in self.some], dtype)
            for place, dtype in enumerate(dtypes)
        ]
        return [np.resize(array, self.length or array.size) for array in arrays]

    def drawn(self, mode: str) -> Any:
        """Give the bits that a mode draws, repeated as the operands."""
        if mode != "stochastic":
            return None
        bits = np.array([bits for _, bits in self.some], np.uint32)
        return np.resize(bits, self.length or bits.size) if self.key is None else self.key

    def operands(self, index: int) -> tuple[int, ...]:
        """Give the operands of an element."""
        return self.some[index % len(self.some)][0]


Operands = Callable[[inputs.Draw], tuple[int, ...]]
"""Draws those of one element."""


def lanes(
    operands: Operands, draw: inputs.Draw, most: int = _LANES, firsts: Sequence[int] = _FIRSTS
) -> Lanes:
    """Draw a few elements."""
    size = draw((1, most, 2, 7, 2 * most))
    some = [(operands(draw), draw(inputs.random_words())) for _ in range(size)]
    return Lanes(some, draw(range(len(_RULES))), draw(inputs.KEYS), draw(_LENGTHS), draw(firsts))


def moves(of_operands: Sequence[Sequence[Move]], drawn: Lanes) -> Iterator[Move]:
    """Give moves to fewer elements, to the plain rule, and of each operand those given."""
    yield from smaller.in_field("some", smaller.fewer(len(drawn.some)))
    yield smaller.to_none("key")
    for field in ("length", "rule", "first"):
        yield from smaller.in_field(field, smaller.sizes(0))
    for lane in range(len(drawn.some)):
        for place, some in enumerate(of_operands):
            each = (*smaller.alike(place, some), *smaller.at(place, some))
            yield from smaller.in_field("some", smaller.at(lane, smaller.at(0, each)))
        yield from smaller.in_field("some", smaller.at(lane, smaller.at(1, smaller.integers())))


class Task(NamedTuple):
    """A method that rounds each element, and its arguments but for the rounding.

    Attributes
    ----------
    method, where : str
    columns : list of arrays
        The operands, which stand between `head` and `tail`: as a list if `listed`, the only one by itself if not.
    written : callable
        Writes the operands of an element.
    result : Format
    """

    method: str
    where: str
    head: tuple[Any, ...]
    columns: list[Array]
    tail: tuple[Any, ...]
    written: Callable[[int], str]
    result: Format
    listed: bool = False

    def arguments(self, some: slice, rule: Rounding, draws: Any) -> tuple[Any, ...]:
        """Give the arguments for some of the elements."""
        cut = [column[some] for column in self.columns]
        taken = draws[some] if isinstance(draws, np.ndarray) else draws
        return (*self.head, cut if self.listed else cut[0], *self.tail, rule, taken)


def examined(case: BackendCase, drawn: Lanes, task: Task, modes: Sequence[str]) -> None:
    """Hold a method to the definition: in each mode by the plain rule, and in some by the others."""
    for mode in modes:
        _in_mode(case, drawn, task, Rounding(mode))
    others = len(_RULES) - 1
    for place in range(others if drawn.rule else 0):
        mode = modes[(drawn.first + place) % len(modes)]
        rule = _RULES[1 + (drawn.rule - 1 + place) % others]
        _in_mode(case, drawn, task, Rounding(mode, **dict(rule)))


def _in_mode(case: BackendCase, drawn: Lanes, task: Task, rule: Rounding) -> None:
    draws = drawn.drawn(rule.mode)
    size = task.columns[0].size
    keyed = isinstance(draws, int)
    some = slice(0, size if keyed else len(drawn.some))  # by a key each element has bits of its own
    outcome = getattr(DEFINITION, task.method)(*task.arguments(some, rule, draws), "flags")
    bits, flags = (np.resize(part, size) for part in (outcome.bits, outcome.flags))

    cuts = () if keyed or size < 2 else (slice(0, size // 3), slice(size // 3, size))
    call = Call(
        task.method,
        f"{task.where}, {words.rule_text(rule)}",
        task.arguments(slice(0, size), rule, draws),
        Seen((bits,), flags, (("", count_flags(flags)),)),
        lambda _, index: _with_bits(task.written(index), draws, index),
        task.result,
        watches=("", "counts", "flags"),
        into=True,
        parts=tuple((task.arguments(some, rule, draws), bits[some]) for some in cuts),
    )
    tried(case, call)


def _with_bits(text: str, draws: Any, index: int) -> str:
    if draws is None:
        return text
    return (
        f"{text}, key {draws:#x}," if isinstance(draws, int) else f"{text}, bits {int(draws[index]):#010x},"
    )


def _operation_groups(operation: str, case: BackendCase) -> Iterator[Group]:
    for fmt in case.formats:
        if fmt == binary64 and operation not in IN_BINARY64:
            continue
        # The second operand of ldexp is an integer.
        of_operands = [smaller.numbers(fmt)] * _ARITY[operation]
        of_operands[1:] = [smaller.integers()] if operation == "ldexp" else of_operands[1:]
        yield Group(
            fmt.name,
            partial(lanes, partial(_operands, operation, fmt)),
            partial(_operation, case, operation, fmt),
            partial(moves, of_operands),
        )


def _operands(operation: str, fmt: Format, draw: inputs.Draw) -> tuple[int, ...]:
    """Draw an operand, and others that cancel or tie with it."""
    first: int = draw(inputs.encodings(fmt))
    if operation == "ldexp":
        span = fmt.emax - fmt.emin + fmt.precision
        # Callers limit the powers to +-2000, beyond which nothing changes.
        return first, draw((0, 1, -1, *range(-span - 2, span + 3, 3), 2000, -2000))
    others = range(_ARITY[operation] - 1)
    return first, *(inputs.resolved(first, draw(inputs.partners(fmt)), fmt) for _ in others)


def _operation(case: BackendCase, operation: str, fmt: Format, drawn: Lanes) -> None:
    dtypes: list[Any] = [fmt.uint] * _ARITY[operation]
    if operation == "ldexp":
        dtypes[1] = np.int64

    def written(index: int) -> str:
        lane = drawn.operands(index)
        texts = [
            str(x) if dtype == np.int64 else words.number(x, fmt)
            for x, dtype in zip(lane, dtypes, strict=True)
        ]
        return f" {_SIGNS[operation]} ".join(texts) if operation in _SIGNS else ", ".join(texts)

    where = f"{operation} in {fmt.name}"
    columns = drawn.columns(dtypes)
    task = Task("elementwise", where, (operation,), columns, (fmt,), written, fmt, listed=True)
    examined(case, drawn, task, MODES)


def _one_of(table: Sequence[int]) -> Operands:
    """Draw operands of what has one."""
    return lambda draw: (draw(table),)


def _function_groups(case: BackendCase) -> Iterator[Group]:
    if binary16 not in case.formats:
        return
    firsts = (*range(len(MODES)), len(MODES) - 1, len(MODES) - 1)  # the last is stochastic: a rule of its own
    for name in FUNCTIONS:
        draw = partial(lanes, _one_of(inputs.encodings(binary16)), most=6, firsts=firsts)
        yield Group(name, draw, partial(_function, case, name), partial(moves, [smaller.numbers(binary16)]))


def _function(case: BackendCase, name: str, drawn: Lanes) -> None:
    if drawn.key is not None:  # the definition computes each element: no more than these
        drawn = drawn._replace(length=0)

    def written(index: int) -> str:
        return words.number(drawn.operands(index)[0], binary16)

    columns = drawn.columns([np.uint16])
    where = f"{name} in binary16"
    task = Task("function", where, (name,), columns, (), written, binary16)
    _in_mode(case, drawn, task, Rounding(MODES[drawn.first], **dict(_RULES[drawn.rule])))


def _conversion_groups(case: BackendCase) -> Iterator[Group]:
    for source in dict.fromkeys((*case.formats, binary64)):
        for target in case.formats:
            if source == target == binary64:
                continue
            draw = partial(lanes, _one_of(inputs.sources(source, target)), most=16)
            examine = partial(_conversion, case, source, target)
            simpler = partial(moves, [smaller.numbers(source)])
            yield Group(f"{source.name} to {target.name}", draw, examine, simpler, 0.5)


def _conversion(case: BackendCase, source: Format, target: Format, drawn: Lanes) -> None:
    def written(index: int) -> str:
        return words.number(drawn.operands(index)[0], source)

    where, columns = f"convert from {source.name} to {target.name}", drawn.columns([source.uint])
    # Nothing is rounded to binary64 but binary64 itself, and that in no way.
    modes = MODES if target != binary64 else MODES[:1]
    examined(case, drawn, Task("convert", where, (), columns, (source, target), written, target), modes)


def _integer_groups(case: BackendCase) -> Iterator[Group]:
    for target in case.formats:
        if target == binary64:
            continue
        for dtype in (np.dtype(np.int64), np.dtype(np.uint64)):
            draw = partial(lanes, _one_of(inputs.integers(dtype == np.uint64)))
            examine = partial(_integers, case, dtype, target)
            yield Group(f"{dtype} to {target.name}", draw, examine, partial(moves, [smaller.integers()]))


def _integers(case: BackendCase, dtype: np.dtype[Any], target: Format, drawn: Lanes) -> None:
    def written(index: int) -> str:
        return str(drawn.operands(index)[0])

    where, columns = f"convert_integers from {dtype} to {target.name}", drawn.columns([dtype])
    examined(case, drawn, Task("convert_integers", where, (), columns, (target,), written, target), MODES)


CHECKS: tuple[BackendCheck, ...] = (
    *(
        BackendCheck(f"elementwise.{name}", "elementwise", partial(_operation_groups, name))
        for name in _ARITY
    ),
    BackendCheck("function", "function", _function_groups),
    BackendCheck("convert", "convert", _conversion_groups),
    BackendCheck("convert_integers", "convert_integers", _integer_groups),
)
