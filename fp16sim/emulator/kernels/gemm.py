"""Matrix products: blocks that fit the caches, cut into tiles for the micro-kernel, strictly sequential in k.

The blocking is that of Goto and van de Geijn (Anatomy of high-performance matrix multiplication, 2008), but for one
thing: no partial sums are formed. Each block of k goes on from the accumulators that the block before it left, so the
blocking does not show in the bits. Neither do threads, which divide the result between them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.emulator.formats import nearest_name
from fp16sim.emulator.kernels.guard import LONGEST, is_safe, largest_of_accumulators, largest_of_panels
from fp16sim.emulator.kernels.jit import jit
from fp16sim.emulator.kernels.microkernel import KINDS, multiply_tile
from fp16sim.emulator.kernels.packing import SLACK, clear, load_tiles, pack, store_tiles
from fp16sim.emulator.kernels.simd import advance, pointer

__all__ = ["gemm"]

Array = npt.NDArray[Any]
Task = Callable[[], None]

# Sizes of blocks: a panel of B stays in the first-level cache, a block of A in the second.
_DEPTH = LONGEST  # steps of k
_PANELS = 16  # panels of A
_WIDTH = 1024  # columns of B and of the result
_HEIGHT = 1536  # rows of the result
_ALIGNMENT = 64


@dataclass(frozen=True)
class _Product:
    """A compiled product: its kind, the types of its arguments, and the workspace that it needs, in bytes."""

    kind: str
    operand: str
    accumulator: str
    result: str
    workspace: int
    multiply: Any


@cache
def _product(kind: str, result: str) -> _Product:
    """Lay out the blocks of a kind, and write the loops around its micro-kernel; the first call compiles them."""
    chosen = KINDS[kind]
    operand, carrier, rows, columns = chosen.source, chosen.carrier, chosen.rows, chosen.columns
    accumulator = "float64" if operand == "float64" else "float32"
    guarded = int(chosen.full_range is not None)
    depth = _DEPTH
    block = _PANELS * rows
    wide = _WIDTH // columns * columns
    tall = -(-_HEIGHT // block) * block
    # The workspace holds packed A, packed B, tiles, and the largest magnitudes of panels.
    item = np.dtype(carrier).itemsize
    b_place = _aligned((block * depth + SLACK) * item)
    tiles_place = b_place + _aligned((wide * depth + SLACK) * item)
    a_limits_place = tiles_place + _aligned(tall * wide * item)
    b_limits_place = a_limits_place + _aligned(_PANELS * item)
    end = b_limits_place + wide // columns * item

    @jit
    def multiply(
        m, n, k, a_at, a_row, a_k, b_at, b_k, b_column, c_at, c_row, c_column, out_at, out_row, workspace
    ):
        a, b = pointer(operand, a_at), pointer(operand, b_at)
        c, out = pointer(accumulator, c_at), pointer(result, out_at)
        a_panels, b_panels = pointer(carrier, workspace), pointer(carrier, workspace + b_place)
        a_limits, b_limits = (
            pointer(carrier, workspace + a_limits_place),
            pointer(carrier, workspace + b_limits_place),
        )
        tiles = pointer(carrier, workspace + tiles_place)
        for j in range(0, n, wide):
            width = min(wide, n - j)
            across = (width + columns - 1) // columns
            for i in range(0, m, tall):
                height = min(tall, m - i)
                if c_at:
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
                        pack(advance(a, (i + r) * a_row + p * a_k), a_row, a_k, lines, count, rows, a_panels)
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

    return _Product(kind, operand, accumulator, result, end, multiply)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


class _Workspace(threading.local):
    """Memory of a thread for packed operands and tiles; only what a product touches becomes resident."""

    size = address = 0

    def reserve(self, size: int) -> int:
        """Give the address of at least `size` bytes."""
        if self.size < size:
            self.memory = np.empty(size + _ALIGNMENT, np.uint8)
            self.address = _aligned(self.memory.ctypes.data)
            self.size = size
        return self.address


_workspace = _Workspace()


def gemm(
    kind: str,
    a: Array,
    b: Array,
    c: Array | None,
    out: Array,
    threads: int = 1,
    run: Callable[[Sequence[Task]], object] | None = None,
) -> None:
    """Compute out = c + a @ b, each element in order of k, with the roundings of a kind.

    Parameters
    ----------
    kind : str
        ``"float32"``: binary16 operands, sums rounded to float32. ``"single"`` and ``"double"``: float32 and
        float64 operands, products and sums rounded to their format. ``"float16"``: binary16 operands, products
        and sums rounded to binary16. ``"float16_fma"``: each product added and then rounded to binary16, once.
    a, b : array
        (m, k) and (k, n), with any strides; binary16 as its encodings in uint16.
    c : array or None
        What the accumulators hold at first: (m, n), values of the accumulator's format in float32 (float64 for
        ``"double"``), with any strides; None: +0.
    out : array
        (m, n), values of a row next to each other, no memory shared with the operands. Of the type of `c`: the
        accumulators. uint16 (not for ``"double"``): binary16 encodings, rounded once, to nearest even.
        A NaN is the canonical one.
    threads : int
        Into how many parts to divide the result.
    run : callable, optional
        What runs a list of tasks, perhaps on threads; default: one after another.

    Raises
    ------
    ValueError, TypeError
        If a shape or a type is not as above.

    Examples
    --------
    >>> import numpy as np
    >>> ones, total = np.ones((1, 4096), np.float16).view(np.uint16), np.empty((1, 1), np.float32)
    >>> gemm("float16", ones, ones.T, None, total)
    >>> float(total[0, 0])
    2048.0
    """
    if kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r}: {nearest_name(kind, list(KINDS))}")
    product = _product(kind, out.dtype.name)
    _check(product, a, b, c, out)
    a, b, c = _addressable(a), _addressable(b), c if c is None else _addressable(c)
    m, n = out.shape
    if threads <= 1:
        _multiply(product, a, b, c, out)
        return
    tasks = []
    axis = 0 if m >= n else 1
    tile = KINDS[kind].rows if axis == 0 else KINDS[kind].columns
    tiles = -(-max(m, n) // tile)
    edges = [tiles * part // threads * tile for part in range(threads + 1)]
    for start, stop in zip(edges, edges[1:], strict=False):
        rows, columns = (slice(start, stop), slice(None)) if axis == 0 else (slice(None), slice(start, stop))
        part = None if c is None else c[rows, columns]
        tasks.append(partial(_multiply, product, a[rows], b[:, columns], part, out[rows, columns]))
    if run is None:
        for task in tasks:
            task()
    else:
        run(tasks)


def _multiply(product: _Product, a: Array, b: Array, c: Array | None, out: Array) -> None:
    if not out.size:
        return
    workspace = _workspace.reserve(product.workspace)
    accumulators = (0, 0, 0) if c is None else _place(c)
    out_at, out_row, _ = _place(out)
    product.multiply(
        *out.shape, a.shape[1], *_place(a), *_place(b), *accumulators, out_at, out_row, workspace
    )


def _place(x: Array) -> tuple[int, int, int]:
    """Give the address of a matrix, and its two steps in values."""
    row, column = x.strides
    return x.__array_interface__["data"][0], row // x.itemsize, column // x.itemsize


def _addressable(x: Array) -> Array:
    """Copy an array whose places are no multiples of its items, as a field of records may be."""
    whole = x.flags.aligned and not any(step % x.itemsize for step in x.strides)
    return x if whole else np.ascontiguousarray(x)


def _check(product: _Product, a: Array, b: Array, c: Array | None, out: Array) -> None:
    """Refuse what the compiled code, which checks nothing, would read or write wrongly."""
    for name, x, dtype in (
        ("a", a, product.operand),
        ("b", b, product.operand),
        ("c", a if c is None else c, product.operand if c is None else product.accumulator),
    ):
        if x.dtype != dtype:
            raise TypeError(f"{name} is {x.dtype}: kind {product.kind!r} takes {dtype}; convert it first")
    narrow = "uint16" if product.accumulator == "float32" else product.accumulator
    if product.result not in (product.accumulator, narrow):
        raise TypeError(
            f"out is {product.result}: kind {product.kind!r} gives {product.accumulator} or {narrow}; pass one of them"
        )
    shape = (a.shape[0], b.shape[1]) if a.ndim == b.ndim == 2 else None
    if (
        shape is None
        or a.shape[1] != b.shape[0]
        or out.shape != shape
        or (c is not None and c.shape != shape)
    ):
        shapes = [x.shape for x in (a, b, out)] + ([] if c is None else [c.shape])
        raise ValueError(f"shapes {shapes}: a product takes (m, k), (k, n), (m, n) and c as (m, n); reshape")
    rows_ok = out.strides[0] % out.itemsize == 0 and (out.shape[1] == 1 or out.strides[1] == out.itemsize)
    if out.size and not (rows_ok and out.flags.writeable and out.flags.aligned):
        raise ValueError(
            f"out with strides {out.strides}: rows must be writeable and consecutive; pass a copy"
        )
