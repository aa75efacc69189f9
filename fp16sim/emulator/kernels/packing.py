"""Packing: operands and accumulators in the order in which micro-kernels read them.

A *line* is a row of A or a column of B. A panel holds `width` lines; it stores, for each k, the values of all its
lines next to each other. Since both operands are addressed by a step between lines and a step along k, one packer
serves both, transposed or not. Lines that do not exist are zeros.

Source and target are pointers (simd.py), whose types say what is converted; steps count values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import types
from numba.extending import intrinsic

from fp16sim.emulator.kernels.jit import jit
from fp16sim.emulator.kernels.simd import Vector, advance, load, store
from fp16sim.emulator.kernels.simd_half import canonical, narrow, widen

__all__ = ["SLACK", "clear", "load_tiles", "pack", "store_tiles"]

SLACK = 8
"""How many values behind the last panel `pack` may write."""


def convert(values: Vector, source: str, target: str) -> Vector:
    """Convert values of one place in memory to those of another.

    float64 goes to binary16 through float32: it must hold a binary16 number.
    """
    if source == target:
        return values
    if target == "uint16":
        return narrow(values.to_float(32))
    numbers = widen(values) if source == "uint16" else values
    return numbers.to_float(32 if target == "float32" else 64)


@intrinsic(prefer_literal=True)
def copy(typing: Any, source: Any, target: Any, count: Any) -> Any:
    """Copy `count` (a literal) consecutive values, converting them."""
    return emitted_copy(source, target, count, convert)


@intrinsic(prefer_literal=True)
def deliver(typing: Any, source: Any, target: Any, count: Any) -> Any:
    """Copy as `copy` does, with the canonical NaN in the place of any other."""

    def finish(values: Vector, source: str, target: str) -> Vector:
        result = convert(values, source, target)
        if target == "uint16":
            return (result & 0x7FFF).greater(0x7C00).choose(0x7E00, result) if source == target else result
        return canonical(result)

    return emitted_copy(source, target, count, finish)


def emitted_copy(source: Any, target: Any, count: Any, conversion: Callable[..., Vector]) -> Any:
    """Give the signature and the code of a copy."""
    if not isinstance(count, types.IntegerLiteral):
        return None

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values = load(builder, args[0], source.dtype.name, count.literal_value)
        store(conversion(values, source.dtype.name, target.dtype.name), args[1])
        return context.get_dummy_value()

    return types.void(source, target, count), generate


@intrinsic
def transpose(typing: Any, source: Any, line_step: Any, target: Any, width: Any) -> Any:
    """Copy 8 consecutive values of each of 8 lines to 8 consecutive k of a panel, converting them."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source_place, step, target_place, row_step = args

        def place(start: Any, step: Any, n: int) -> Any:
            return builder.gep(start, [builder.mul(step, step.type(n))])

        block = [load(builder, place(source_place, step, n), source.dtype.name, 8) for n in range(8)]
        for _ in range(3):  # interleaving the halves of the list three times transposes it
            pairs = zip(block[:4], block[4:], strict=True)
            low, high = [0, 8, 1, 9, 2, 10, 3, 11], [4, 12, 5, 13, 6, 14, 7, 15]
            block = [first.shuffled(second, part) for first, second in pairs for part in (low, high)]
        for k, values in enumerate(block):
            store(convert(values, source.dtype.name, target.dtype.name), place(target_place, row_step, k))
        return context.get_dummy_value()

    return types.void(source, types.intp, target, types.intp), generate


@jit
def pack(source, line_step, k_step, lines, count, width, target):
    """Pack `lines` lines of `count` values each into panels of `width` lines.

    Eight lines at a time, also where the panel ends earlier: what is written too much belongs to the first lines of the
    next k or of the next panel, and these are written later.
    """
    for first in range(0, lines, width):
        place, panel = advance(source, first * line_step), advance(target, first * count)
        here = min(width, lines - first)
        if here < width:
            clear(panel, width * count)
        # Of the first `by_eights` lines, the first `done` steps are copied eight lines at a time.
        by_eights = min((lines - first) // 8 * 8, (here + 7) // 8 * 8)
        done = 0
        if line_step == 1:
            done = count
            for k in range(done):
                for line in range(0, by_eights, 8):
                    copy(advance(place, k * k_step + line), advance(panel, k * width + line), 8)
        elif k_step == 1:
            done = count // 8 * 8
            for line in range(by_eights - 8, -1, -8):
                for k in range(0, done, 8):
                    start = advance(place, line * line_step + k)
                    transpose(start, line_step, advance(panel, k * width + line), width)
        for line in range(here):
            for k in range(done if line < by_eights else 0, count):
                copy(advance(place, line * line_step + k * k_step), advance(panel, k * width + line), 1)


@jit
def clear(target, count):
    """Write zeros."""
    for i in range(count):
        target[i] = 0


@jit
def load_tiles(source, row_step, column_step, m, n, rows, columns, tiles):
    """Cut an m by n matrix into tiles of `rows` by `columns`, all tiles of the first rows first; the rest is zeros."""
    across = (n + columns - 1) // columns
    clear(tiles, (m + rows - 1) // rows * rows * across * columns)
    for i in range(m):
        first = advance(tiles, i // rows * across * rows * columns + i % rows * columns)
        line = advance(source, i * row_step)
        for q in range(across):
            start = advance(line, q * columns * column_step)
            place = advance(first, q * rows * columns)
            width = min(columns, n - q * columns)
            whole = width // 8 * 8 if column_step == 1 else 0
            for j in range(0, whole, 8):
                copy(advance(start, j), advance(place, j), 8)
            for j in range(whole, width):
                copy(advance(start, j * column_step), advance(place, j), 1)


@jit
def store_tiles(tiles, rows, columns, m, n, target, row_step):
    """Put tiles together again, rounding to the target's type; a NaN becomes the canonical one."""
    across = (n + columns - 1) // columns
    for i in range(m):
        first = advance(tiles, i // rows * across * rows * columns + i % rows * columns)
        for q in range(across):
            source = advance(first, q * rows * columns)
            place = advance(target, i * row_step + q * columns)
            width = min(columns, n - q * columns)
            whole = width // 8 * 8
            for j in range(0, whole, 8):
                deliver(advance(source, j), advance(place, j), 8)
            for j in range(whole, width):
                deliver(advance(source, j), advance(place, j), 1)
