"""Programs: pieces that stay in the first-level cache go through all their steps in turn.

The values of a piece are kept as the numbers that processors add. Every step rounds to the format.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numba.core import types

from fp16sim.emulator.kernels.carriers import BRAIN, HALF, NATIVE, encoded, number, rounded
from fp16sim.emulator.kernels.jit import jit
from fp16sim.emulator.kernels.simd import advance, pointer, start_of
from fp16sim.emulator.kernels.workspace import workspace

__all__ = ["ARRAYS", "RESULTS", "run"]

Array = npt.NDArray[Any]

ARRAYS, RESULTS = 5, 3
"""How many operands and results the loop takes at most."""

_PIECE = 256
_KINDS: dict[str, tuple[int, str, Any]] = {
    "binary16": (HALF, "float32", types.uint16),
    "bfloat16": (BRAIN, "float32", types.uint16),
    "binary32": (NATIVE, "float32", types.uint32),
    "binary64": (NATIVE, "float64", types.uint64),
}
_compiling = threading.Lock()


@cache
def make_loop(name: str) -> Any:
    """Write and compile the loop for a format."""
    kind, carrier, word = _KINDS[name]

    # All in one function: numba's cache would not find it again if it closed over other compiled functions.
    def program(steps, patterns, a, b, c, d, e, constants, results, first, second, third, size, memory):
        values = pointer(carrier, memory)
        operands = len(patterns)
        for k in range(constants.size):
            target, value = advance(values, (operands + k) * _PIECE), number(kind, constants[k])
            for i in range(min(_PIECE, size)):
                target[i] = value
        for start in range(0, size, _PIECE):
            n = min(_PIECE, size - start)
            for k in range(operands):
                source = start_of(a)
                if k > 0:
                    source = start_of(b) if k == 1 else start_of(c) if k == 2 else start_of(d)
                if k > 3:
                    source = start_of(e)
                target = advance(values, k * _PIECE)
                repeat, length = patterns[k]
                if length == 1 and start > 0:  # it is there already
                    continue
                at, left, done = start // repeat % length, repeat - start % repeat, 0
                while done < n:
                    some, place = advance(source, at), advance(target, done)
                    if repeat == 1:
                        here, at = min(length - at, n - done), 0
                        for i in range(here):
                            place[i] = number(kind, some[i])
                    else:
                        here, at, left = min(left, n - done), at + 1 if at + 1 < length else 0, repeat
                        value = number(kind, some[0])
                        for i in range(here):
                            place[i] = value
                    done += here
            for k in range(len(steps)):
                operation, left_value, right_value = steps[k]
                x, y = advance(values, left_value * _PIECE), advance(values, right_value * _PIECE)
                out = advance(values, (operands + constants.size + k) * _PIECE)
                if operation == 0:
                    for i in range(n):
                        out[i] = rounded(kind, x[i] + y[i])
                elif operation == 1:
                    for i in range(n):
                        out[i] = rounded(kind, x[i] - y[i])
                elif operation == 2:
                    for i in range(n):
                        out[i] = rounded(kind, x[i] * y[i])
                elif operation == 3:
                    for i in range(n):
                        out[i] = rounded(kind, x[i] / y[i])
                else:
                    for i in range(n):
                        out[i] = rounded(kind, np.sqrt(x[i]))
            for k in range(results.size):
                whole = start_of(first) if k == 0 else start_of(second) if k == 1 else start_of(third)
                source, target = advance(values, results[k] * _PIECE), advance(whole, start)
                for i in range(n):
                    target[i] = encoded(kind, source[i])

    program.__name__ = f"program of {name} operations"  # for those who watch compilation
    compiled = jit(program)
    table, numbers = (types.Array(types.int64, axes, "C", readonly=True) for axes in (2, 1))
    given, made = types.Array(word, 1, "C", readonly=True), types.Array(word, 1, "C")
    compiled.compile(
        (table, table, *(given,) * (ARRAYS + 1), numbers, *(made,) * RESULTS, types.int64, types.intp)
    )
    compiled.disable_compile()
    return compiled


_loops: dict[str, Any] = {}


def run(
    name: str,
    steps: Array,
    patterns: Array,
    operands: Sequence[Array],
    constants: Array,
    places: Array,
    results: Sequence[Array],
    size: int,
) -> None:
    """Perform steps on 1-d arrays of encodings of the named format, and fill `results`, of `size` elements each.

    `steps` are rows (operation, left, right) of the numbers of values: operands, constants, what each step gives. An
    operand has as many elements as its row (repeat, length) of `patterns` says. `places` are the values to deliver.
    """
    if name not in _loops:
        with _compiling:  # of several threads one compiles
            _loops[name] = make_loop(name)
    given = (*operands, *(operands[0],) * (ARRAYS - len(operands)))
    made = (*results, *(results[0],) * (RESULTS - len(results)))
    memory = workspace.reserve((len(operands) + constants.size + len(steps)) * _PIECE * 8)
    _loops[name](steps, patterns, *given, constants, places, *made, size, memory)
