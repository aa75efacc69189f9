"""The loops around the micro-kernel: blocks that fit the caches, strictly sequential in k.

The blocking is that of Goto and van de Geijn (Anatomy of high-performance matrix multiplication, 2008), but for one
thing: no partial sums are formed. Each block of k goes on from the accumulators that the block before it left, so the
blocking does not show in the bits.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numba.core import types

from fp16sim.emulator.kernels.guard import LONGEST, is_safe, largest_of_accumulators, largest_of_panels
from fp16sim.emulator.kernels.jit import jit
from fp16sim.emulator.kernels.microkernel import KINDS, fastest, multiply_tile
from fp16sim.emulator.kernels.packing import SLACK, clear, load_tiles, pack, store_tiles
from fp16sim.emulator.kernels.simd import ELEMENTS, advance, pointer, start_of
from fp16sim.emulator.kernels.workspace import aligned

__all__ = ["Product", "matrix", "product_of", "write_product"]

# Sizes of blocks: a panel of B stays in the first-level cache, a block of A in the second.
_DEPTH = LONGEST  # steps of k
_PANELS = 16  # panels of A
_WIDTH = 1024  # columns of B and of the result
_HEIGHT = 1536  # rows of the result


@jit
def matrix(array):
    """Give where a matrix starts, and its two steps in values."""
    row, column = array.strides
    return start_of(array), row // array.itemsize, column // array.itemsize


@jit
def matrices(array):
    """Give where the first of several matrices starts, and the steps between them, rows and columns in values."""
    step, row, column = array.strides
    return start_of(array), step // array.itemsize, row // array.itemsize, column // array.itemsize


@dataclass(frozen=True)
class Product:
    """A compiled product, the types of its arguments, and the workspace that it needs, in bytes."""

    kind: str
    operand: np.dtype[Any]
    accumulator: np.dtype[Any]
    result: np.dtype[Any]
    workspace: int
    multiply: Any


_compiling = threading.Lock()


def product_of(kind: str, result_type: np.dtype[Any]) -> Product:
    """Give the compiled product of a kind with one type of result; of several threads one compiles."""
    with _compiling:
        return write_product(kind, result_type)


@cache
def write_product(kind: str, result_type: np.dtype[Any]) -> Product:
    """Lay out the blocks of a kind, and compile the loops around its micro-kernel."""
    if kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r}: there are {', '.join(KINDS)}")
    asked, kind = kind, fastest(kind)
    chosen = KINDS[kind]
    operand, carrier, tile_rows, tile_columns = chosen.source, chosen.carrier, chosen.rows, chosen.columns
    accumulator = "float64" if operand == "float64" else "float32"
    result = result_type.name
    if result not in (accumulator, accumulator if operand == "float64" else "uint16"):
        raise TypeError(
            f"out is {result}: kind {asked!r} gives {accumulator}"
            f"{'' if operand == 'float64' else ' or, as encodings of binary16, uint16'}; pass such an array"
        )
    guarded = int(chosen.full_range is not None)
    depth = _DEPTH
    block = _PANELS * tile_rows
    wide = _WIDTH // tile_columns * tile_columns
    tall = -(-_HEIGHT // block) * block
    # The workspace holds packed A, packed B, tiles, and the largest magnitudes of panels.
    item = np.dtype(carrier).itemsize
    b_place = aligned((block * depth + SLACK) * item)
    tiles_place = b_place + aligned((wide * depth + SLACK) * item)
    a_limits_place = tiles_place + aligned(tall * wide * item)
    b_limits_place = a_limits_place + aligned(_PANELS * item)
    end = b_limits_place + wide // tile_columns * item

    def multiply(a_array, b_array, c_array, out_array, workspace):
        # As variables, so that numba compiles packing once and not for each literal.
        rows, columns = np.intp(tile_rows), np.intp(tile_columns)
        batch, m, n = out_array.shape
        k = a_array.shape[2]
        a_first, a_step, a_row, a_k = matrices(a_array)
        b_first, b_step, b_k, b_column = matrices(b_array)
        c_first, c_step, c_row, c_column = matrices(c_array)
        out_first, out_step, out_row, _ = matrices(out_array)
        a_panels = pointer(carrier, workspace)
        b_panels = pointer(carrier, workspace + b_place)
        a_limits = pointer(carrier, workspace + a_limits_place)
        b_limits = pointer(carrier, workspace + b_limits_place)
        tiles = pointer(carrier, workspace + tiles_place)
        for each in range(batch):
            a, b = advance(a_first, each * a_step), advance(b_first, each * b_step)
            c, out = advance(c_first, each * c_step), advance(out_first, each * out_step)
            for j in range(0, n, wide):
                width = min(wide, n - j)
                across = (width + columns - 1) // columns
                for i in range(0, m, tall):
                    height = min(tall, m - i)
                    if c_array.size:
                        start = advance(c, i * c_row + j * c_column)
                        load_tiles(start, c_row, c_column, height, width, rows, columns, tiles)
                    else:
                        clear(tiles, (height + rows - 1) // rows * across * rows * columns)
                    for p in range(0, k, depth):
                        count = min(depth, k - p)
                        start = advance(b, p * b_k + j * b_column)
                        pack(start, b_column, b_k, width, count, columns, b_panels)
                        if guarded:
                            largest_of_panels(b_panels, columns * count, across, b_limits)
                        for r in range(0, height, block):
                            lines = min(block, height - r)
                            down = (lines + rows - 1) // rows
                            pack(
                                advance(a, (i + r) * a_row + p * a_k),
                                a_row,
                                a_k,
                                lines,
                                count,
                                rows,
                                a_panels,
                            )
                            if guarded:
                                largest_of_panels(a_panels, rows * count, down, a_limits)
                            for q in range(across):
                                right = advance(b_panels, q * columns * count)
                                for s in range(down):
                                    left = advance(a_panels, s * rows * count)
                                    tile = advance(tiles, ((r // rows + s) * across + q) * rows * columns)
                                    fast = 1
                                    if guarded:
                                        reached = largest_of_accumulators(tile, rows * columns)
                                        fast = is_safe(reached, a_limits[s], b_limits[q], count)
                                    if fast:
                                        multiply_tile(kind, 0, left, right, tile, count)
                                    else:
                                        multiply_tile(kind, 1, left, right, tile, count)
                    store_tiles(tiles, rows, columns, height, width, advance(out, i * out_row + j), out_row)

    multiply.__name__ = f"matrix product, {asked}"  # for those who watch compilation
    compiled = jit(multiply)
    # One compilation for all strides, and for arrays that may not be written.
    read = [types.Array(ELEMENTS[name][1], 3, "A", readonly=True) for name in (operand, operand, accumulator)]
    compiled.compile((*read, types.Array(ELEMENTS[result][1], 3, "A"), types.intp))
    compiled.disable_compile()
    return Product(asked, np.dtype(operand), np.dtype(accumulator), result_type, end, compiled)
