"""Matrix products as tensor cores compute them: the blocking of gemm.py around the tiles of tensorcore_tile.py.

Finite operands and moderate accumulators go through SIMD tiles. Rows and columns that hold an infinity or a NaN, or an
accumulator that the tiles are not made for, are computed again by the integer loop of dot.py.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numba.core import types

from fp16sim.emulator.kernels import dot
from fp16sim.emulator.kernels.blocks import matrix
from fp16sim.emulator.kernels.half import widen_half
from fp16sim.emulator.kernels.integer import NEAREST_EVEN, TOWARD_ZERO, Spec
from fp16sim.emulator.kernels.jit import jit
from fp16sim.emulator.kernels.packing import SLACK, clear, load_tiles, pack, store_tiles
from fp16sim.emulator.kernels.simd import ELEMENTS, advance, pointer
from fp16sim.emulator.kernels.tensorcore_tile import (
    COLUMNS,
    PANEL,
    ROWS,
    SMALLEST_EXPONENT,
    core_of,
    multiply_blocks,
    pack_exponents,
)
from fp16sim.emulator.kernels.workspace import aligned, workspace

__all__ = ["core_name", "multiply", "product_of"]

Array = npt.NDArray[Any]

_DEPTH = 256  # of a block, along k
_LINES = 128  # rows of A in a block
_WIDTH = 512  # columns of B in a block
_HEIGHT = 1024  # rows of the result in a block
_INFINITY = 0x7F800000

_A_EXPONENTS = aligned((_LINES * _DEPTH + SLACK) * 4)
_B_PANELS = 2 * _A_EXPONENTS
_B_EXPONENTS = _B_PANELS + aligned((_WIDTH * _DEPTH + SLACK) * 4)
_TILES = _B_EXPONENTS + aligned((_WIDTH * _DEPTH + SLACK) * 2)
_END = _TILES + aligned(_HEIGHT * _WIDTH * 4)
"""Places of the parts of a workspace, in bytes; A's panels come first."""


def core_name(rules: dot.Rules) -> str:
    """Name the core of tensorcore_tile.py that does what the rules say; "" if there is none."""
    if rules.order != dot.BLOCKS or rules.piece not in (4, 8, 16) or not _is_half(rules.operand):
        return ""
    sums = rules.accumulator
    single = sums.precision == 24 and sums.emin == -126 and sums.inf_bits > 0 and sums.mode == TOWARD_ZERO
    half = _is_half(sums) and sums.mode == NEAREST_EVEN
    half &= not (rules.normalized_accumulator or rules.keep_negative_zero)
    if rules.fraction_bits < 23 or not (half or (single and rules.zero_exponent <= SMALLEST_EXPONENT)):
        return ""
    name = f"{rules.piece} {rules.fraction_bits} "
    name += f"half {max(rules.zero_exponent, SMALLEST_EXPONENT)}" if half else "single"
    return name if core_of(name).bound < 1 << 32 else ""


def _is_half(spec: Spec) -> bool:
    return (spec.precision, spec.emin, spec.inf_bits, spec.no_subnormals) == (11, -14, 0x7C00, 0)


_compiling = threading.Lock()


def product_of(core: str, result: str) -> Any:
    """Give the compiled product of a core with one type of result; of several threads one compiles."""
    with _compiling:
        return _write_product(core, result)


@cache
def _write_product(core: str, result: str) -> Any:
    """Compile the loops around the tiles of a core."""
    block = core_of(core).block

    @jit
    def multiply(a_array, b_array, c_array, out_array, special_rows, special_columns, work):
        # As variables, so that numba compiles packing once and not for each literal.
        rows, columns, panel = np.intp(ROWS), np.intp(COLUMNS), np.intp(PANEL)
        m, n = out_array.shape
        k = a_array.shape[1]
        a, a_row, a_k = matrix(a_array)
        b, b_k, b_column = matrix(b_array)
        c, c_row, c_column = matrix(c_array)
        out, out_row, _ = matrix(out_array)
        a_panels, a_exponents = pointer("float32", work), pointer("int32", work + _A_EXPONENTS)
        b_panels = pointer("float32", work + _B_PANELS)
        b_exponents = pointer("int16", work + _B_EXPONENTS)
        tiles = pointer("float32", work + _TILES)
        for j in range(0, n, _WIDTH):
            width = min(_WIDTH, n - j)
            across = (width + columns - 1) // columns
            for i in range(0, m, _HEIGHT):
                height = min(_HEIGHT, m - i)
                if c_array.size:
                    start = advance(c, i * c_row + j * c_column)
                    load_tiles(start, c_row, c_column, height, width, rows, columns, tiles)
                else:
                    clear(tiles, (height + rows - 1) // rows * across * rows * columns)
                for p in range(0, k, _DEPTH):
                    count = min(_DEPTH, k - p)
                    pack(advance(b, p * b_k + j * b_column), b_column, b_k, width, count, columns, b_panels)
                    for q in range(across):
                        place, size = q * columns * count, columns * count
                        largest = pack_exponents(
                            "b", advance(b_panels, place), size, advance(b_exponents, place)
                        )
                        special_columns[j // columns + q] |= largest >= _INFINITY
                    for r in range(0, height, _LINES):
                        lines = min(_LINES, height - r)
                        pack(advance(a, (i + r) * a_row + p * a_k), a_row, a_k, lines, count, panel, a_panels)
                        for s in range((lines + panel - 1) // panel):
                            place, size = s * panel * count, panel * count
                            largest = pack_exponents(
                                "a", advance(a_panels, place), size, advance(a_exponents, place)
                            )
                            special_rows[(i + r) // panel + s] |= largest >= _INFINITY
                        for q in range(across):
                            right = q * columns * count
                            for s in range((lines + rows - 1) // rows):
                                left = s * rows // panel * panel * count + s * rows % panel
                                tile = ((r // rows + s) * across + q) * rows * columns
                                multiply_blocks(
                                    core,
                                    advance(a_panels, left),
                                    advance(a_exponents, left),
                                    advance(b_panels, right),
                                    advance(b_exponents, right),
                                    advance(tiles, tile),
                                    count // block,
                                )
                store_tiles(tiles, rows, columns, height, width, advance(out, i * out_row + j), out_row)

    # One compilation for all strides, and for arrays that may not be written.
    read = [types.Array(ELEMENTS[name][1], 2, "A", readonly=True) for name in ("uint16", "uint16", "float32")]
    marks = types.Array(types.boolean, 1, "C")
    multiply.compile((*read, types.Array(ELEMENTS[result][1], 2, "A"), marks, marks, types.intp))
    multiply.disable_compile()
    return multiply


def multiply(a: Array, b: Array, c: Array | None, out: Array, rules: dot.Rules) -> None:
    """Compute out = c + a @ b as a tensor core does for which `core_name` has a name.

    Parameters
    ----------
    a, b : uint16 array
        Encodings of binary16, (m, k) and (k, n), with any strides.
    c : array or None
        Encodings of the accumulator's format, (m, n), with any strides; None: +0.
    out : array
        Encodings of the result's format, (m, n), values of a row next to each other: the accumulator's format, or
        binary16, to which it is rounded once. It shares no memory with the others.
    rules : Rules
        The datapath and the formats.
    """
    core = core_name(rules)
    if not core:
        raise ValueError(f"{rules}: no tile computes this; use fp16sim.emulator.kernels.dot.dot_products")
    if not out.size:
        return
    half = rules.accumulator.precision == 11
    start, special_rows = np.empty((0, 0), np.float32), np.zeros(len(a), np.bool_)
    if c is not None:
        start, special_rows = _accumulators(c, rules, half, a.shape[1])
    place = out if rules.result.precision == 11 else out.view(np.float32)
    row_panels = np.zeros(-(-out.shape[0] // PANEL), np.bool_)
    column_panels = np.zeros(-(-out.shape[1] // COLUMNS), np.bool_)
    left, right = _filled(a, 1, rules.piece), _filled(b, 0, rules.piece)
    product_of(core, place.dtype.name)(
        left, right, start, place, row_panels, column_panels, workspace.reserve(_END)
    )
    if row_panels.any() or column_panels.any() or special_rows.any():
        _again(a, b, c, out, rules, special_rows)


def _filled(x: Array, axis: int, block: int) -> Array:
    """Add zeros along an axis up to a multiple of the block."""
    lacking = -x.shape[axis] % block
    if not lacking:
        return x if x.flags.aligned else x.copy()
    return np.pad(x, [(0, lacking if n == axis else 0) for n in range(2)])


def _accumulators(
    c: Array, rules: dot.Rules, half: bool, depth: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """Give the accumulator input as float32, and the rows in which the tiles cannot use it."""
    sign = 0x8000 if half else 0x80000000
    # NaN; of float32, all from 2^126 on, so that none overflows.
    special: npt.NDArray[np.bool_] = np.asarray(c & (sign - 1) > (0x7C00 if half else 0x7E7FFFFF))
    if rules.keep_negative_zero:
        special |= c == sign
    elif depth:
        c = np.where(c == sign, 0, c).astype(c.dtype)  # a block makes +0 of -0
    if not half:
        return c.view(np.float32), np.asarray(special.any(axis=1))
    values = np.empty(c.shape, np.float32)
    widen_half(np.ascontiguousarray(c).reshape(-1), values.reshape(-1))
    return values, np.asarray(special.any(axis=1))


def _again(
    a: Array, b: Array, c: Array | None, out: Array, rules: dot.Rules, rows: npt.NDArray[np.bool_]
) -> None:
    """Compute with the integer loop what the tiles got wrong: these rows, and where there are infinities and NaN."""

    def compute(rows: Array, ks: Array, columns: Array) -> None:
        if not (len(rows) and len(columns)):
            return
        here = np.ix_(rows, columns)
        part = np.empty((len(rows), len(columns)), out.dtype)
        start = None if c is None else c[here]
        dot.dot_products(a[np.ix_(rows, ks)], b[np.ix_(ks, columns)], start, part, rules)
        out[here] = part

    all_ks, all_columns = np.arange(len(b)), np.arange(b.shape[1])
    compute(np.flatnonzero(rows), all_ks, all_columns)
    # An infinity among the products decides a binary32 sum, whatever the finite ones are: these cannot overflow.
    special = (_largest(a, 0) >= 0x7C00) | (_largest(b, 1) >= 0x7C00)
    ks = np.flatnonzero(special) if rules.accumulator.precision == 24 else all_ks
    compute(np.flatnonzero((_largest(a, 1) == 0x7C00) & ~rows), ks, all_columns)
    compute(np.flatnonzero(~rows), ks, np.flatnonzero(_largest(b, 0) == 0x7C00))
    # A NaN among them needs no loop.
    out[_largest(a, 1) > 0x7C00] = rules.nan_bits
    out[:, _largest(b, 0) > 0x7C00] = rules.nan_bits


def _largest(x: Array, axis: int) -> Array:
    """Give the largest magnitude along an axis, as an encoding: that of a NaN is above that of infinity."""
    return np.asarray((x & 0x7FFF).max(axis=axis, initial=0))
