"""Short fixed sequences of operations on arrays, as data: a backend may do all of them in one pass over memory.

Nothing is fused: every step rounds as the operation of that name does, so the results are those of one operation after
the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["OPERATIONS", "Pattern", "Program", "Symbol", "pattern_of", "program_of", "spread"]

OPERATIONS = ("add", "subtract", "multiply", "divide", "sqrt")
"""Operations of a step."""

Pattern = tuple[int, int]
"""How an operand stretches over the flat result: element i is number ``i // repeat % length`` of the operand."""


@dataclass(frozen=True)
class Program:
    """Steps on numbered values: the operands, then the constants, then what each step gives.

    Attributes
    ----------
    operands, constants : int
        How many there are.
    steps : tuple of (operation, left, right)
        With the numbers of the values that it takes; a root takes the left one.
    results : tuple of int
        The numbers of the values that are wanted, each made by a step.
    """

    operands: int
    constants: int
    steps: tuple[tuple[str, int, int], ...]
    results: tuple[int, ...]

    @cached_property
    def codes(self) -> npt.NDArray[np.int64]:
        """The steps as rows of integers."""
        rows = [(OPERATIONS.index(operation), left, right) for operation, left, right in self.steps]
        return np.array(rows, np.int64).reshape(-1, 3)

    @cached_property
    def places(self) -> npt.NDArray[np.int64]:
        """The numbers of the results as an array."""
        return np.array(self.results, np.int64)

    @property
    def values(self) -> int:
        """How many numbered values there are."""
        return self.operands + self.constants + len(self.steps)


class Symbol:
    """A value while a rule is written down: each operator becomes one step."""

    def __init__(self, number: int, steps: list[tuple[str, int, int]], first: int) -> None:
        self.number, self._steps, self._first = number, steps, first

    def _step(self, operation: str, other: Symbol) -> Symbol:
        self._steps.append((operation, self.number, other.number))
        return Symbol(self._first + len(self._steps) - 1, self._steps, self._first)

    def __add__(self, other: Symbol) -> Symbol:
        return self._step("add", other)

    def __sub__(self, other: Symbol) -> Symbol:
        return self._step("subtract", other)

    def __mul__(self, other: Symbol) -> Symbol:
        return self._step("multiply", other)

    def __truediv__(self, other: Symbol) -> Symbol:
        return self._step("divide", other)

    def sqrt(self) -> Symbol:
        """Take the square root."""
        return self._step("sqrt", self)


def program_of(rule: Callable[..., tuple[Symbol, ...]], operands: int, constants: int = 0) -> Program:
    """Write down what a rule does to its operands and constants, each operator being one rounded step.

    Raises
    ------
    ValueError
        If it gives an operand or a constant back.

    >>> program_of(lambda w, g, rate: (w - g * rate,), 2, 1).steps
    (('multiply', 1, 2), ('subtract', 0, 3))
    """
    steps: list[tuple[str, int, int]] = []
    first = operands + constants
    results = rule(*(Symbol(number, steps, first) for number in range(first)))
    numbers = tuple(symbol.number for symbol in results)
    if min(numbers) < first:
        raise ValueError("a rule that gives an operand back: a program gives what its steps make")
    return Program(operands, constants, tuple(steps), numbers)


def pattern_of(shape: tuple[int, ...], whole: tuple[int, ...]) -> Pattern | None:
    """Find how an array stretches over a result of shape `whole`; None if axes between its own are stretched.

    >>> pattern_of((8, 1), (2, 8, 5)), pattern_of((5,), (2, 8, 5)), pattern_of((2, 1, 5), (2, 8, 5))
    ((5, 8), (1, 5), None)
    """
    own = (1,) * (len(whole) - len(shape)) + shape
    kept = [i for i, (n, m) in enumerate(zip(own, whole, strict=True)) if n == m and m != 1]
    if not kept:
        return max(1, prod(whole)), 1
    first, last = kept[0], kept[-1]
    if own[first : last + 1] != whole[first : last + 1]:
        return None
    return prod(whole[last + 1 :]), prod(own)


def spread(operand: npt.NDArray[Any], pattern: Pattern, size: int) -> npt.NDArray[Any]:
    """Write a flat operand out as its pattern says.

    >>> spread(np.array([7, 8]), (2, 2), 6).tolist()
    [7, 7, 8, 8, 7, 7]
    >>> spread(np.array([7, 8]), (3, 2), 2).tolist()
    [7, 7]
    """
    repeat, length = pattern
    return operand if repeat == 1 and length == size else operand[np.arange(size) // repeat % length]
