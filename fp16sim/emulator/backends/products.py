"""Dot products on the CPU: which kernel accumulates as a datapath says, and which thread does what.

A kernel here fills one tile of a result; every element is summed by one thread from its first term to its last, so
neither tiles nor threads change a bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.emulator.backends import threads
from fp16sim.emulator.backends.specs import rules_of
from fp16sim.emulator.datapath import Datapath
from fp16sim.emulator.formats import Format, binary16, binary32, binary64, is_built_in
from fp16sim.emulator.kernels import accumulate, dot, half, tensorcore
from fp16sim.emulator.kernels.gemm import gemm
from fp16sim.emulator.kernels.simd import HAS_FMA

__all__ = ["cumulative_sums", "fast_kind", "index_sums", "matmul_tiles", "sums", "sums_of_squares"]

Array = npt.NDArray[Any]
Counts = npt.NDArray[np.int64]
Convert = Callable[[Array, Format, Format], Array]
"""Rounds encodings of one format to another, to nearest."""
Tile = Callable[[Array, Array, Array | None, Array], Counts | None]
"""Fills its last argument, (batch, m, n), from (batch, m, k), (batch, k, n) and the accumulator input.

Gives counts if it was made to."""

_WORTH_A_THREAD = {"": 1 << 16, "tensor core": 1 << 22}
_WORTH_A_PACKED_THREAD = 1 << 25
"""Multiply-accumulates below which another thread costs more than it gains, by the kind of kernel."""


def fast_kind(fmt: Format, path: Datapath) -> str:
    """Name the kernel that accumulates as the datapath says; "" if there is none.

    Those of kernels/gemm.py, or ``"tensor core"``: the one of kernels/tensorcore.py.
    """
    if fmt == binary16 and path.is_tensor_core:
        return "tensor core" if tensorcore.core_name(rules_of(path, fmt, path.start_format)) else ""
    if not path.adds_in_order:
        return ""
    # A product of two binary16 numbers is exact in binary32: fused or not is one there.
    if fmt == binary16 and path.accumulator == binary32 and path.products in (None, binary32):
        return "float32"
    if fmt == binary16 and path.accumulator == binary16 and path.products in (None, binary16):
        return "float16" if path.products else "float16_fma"
    if path.products == path.accumulator == fmt:
        return {binary32: "single", binary64: "double"}.get(fmt, "")
    if path.products is None and path.accumulator == binary32 and HAS_FMA and fmt != binary64:
        return "single_fused"  # binary32 holds the values of every other format
    return ""


def matmul_tiles(
    a: Array,
    b: Array,
    c: Array | None,
    out: Array,
    fmt: Format,
    path: Datapath,
    out_format: Format,
    convert: Convert,
    counting: bool,
) -> Counts | None:
    """Fill `out`, (batch, m, n), with the products of (batch, m, k) and (batch, k, n); give counts if wanted."""
    tile, kind = _chosen(fmt, path, out_format, convert, counting)
    worth = _WORTH_A_THREAD.get(kind, _WORTH_A_PACKED_THREAD)
    if len(a) == 1 and (threads.threads() == 1 or out.size * a.shape[2] < 2 * worth):
        return tile(a, b, c, out)

    def fill(some: slice, rows: slice, columns: slice) -> Counts | None:
        start = None if c is None else c[some, rows, columns]
        return tile(a[some, rows], b[some, :, columns], start, out[some, rows, columns])

    shares = _shares(out.shape, a.shape[2], worth)
    counted = threads.run([lambda share=share: fill(*share) for share in shares])  # type: ignore[misc]
    zero = np.zeros(dot.SWAMPED + 1, np.int64)
    return sum((counts for counts in counted if counts is not None), zero) if counting else None


def sums(
    a: Array, fmt: Format, path: Datapath, out_format: Format, convert: Convert, counting: bool
) -> tuple[Array, Counts | None]:
    """Sum (outer, n, inner) over n from +0: encodings of the result's format, and counts if wanted."""
    outer, n, inner = a.shape
    if not counting:
        for result in (out_format, path.start_format):
            if loop := _loop(accumulate.SUMS, fmt, path, result):
                total = np.empty((outer, inner), result.uint)
                loop(np.ascontiguousarray(a), total)
                return _delivered(total, result, out_format, convert), None
    out = np.empty((outer * inner, 1), out_format.uint)
    rows = np.swapaxes(a, 1, 2).reshape(outer * inner, n)
    counts = dot.dot_products(rows, None, None, out, rules_of(path, fmt, out_format))
    return out.reshape(outer, inner), counts if counting else None


def sums_of_squares(
    a: Array, fmt: Format, path: Datapath, out_format: Format, convert: Convert
) -> Array | None:
    """Sum the squares of (outer, n, inner) over n from +0, if a loop does that: rounded squares, then their sums."""
    inner = path.start_format
    if fast_kind(fmt, path) in ("", "tensor core", "float16_fma", "single_fused"):
        return None
    loop = accumulate.SUMS[inner.name, inner.name, inner.name]
    if inner == binary16:
        squares = np.empty(a.shape, np.uint16)
        flat = np.ascontiguousarray(a).reshape(-1)
        half.multiply_half(flat, flat, squares.reshape(-1))
    else:
        carrier = np.dtype(np.float64 if inner == binary64 else np.float32)
        values = _values(a, fmt, carrier)
        with np.errstate(all="ignore"):
            squares = np.ascontiguousarray(values * values).view(inner.uint)
    total = np.empty((a.shape[0], a.shape[2]), inner.uint)
    loop(squares, total)
    return _delivered(total, inner, out_format, convert)


def cumulative_sums(
    a: Array, fmt: Format, path: Datapath, out_format: Format, convert: Convert
) -> Array | None:
    """Sum every beginning of (outer, n, inner) along n, if a kernel does that in one pass."""
    loop = _loop(accumulate.CUMULATIVE_SUMS, fmt, path, path.start_format)
    if loop is None:
        return None
    total = np.empty(a.shape, path.start_format.uint)
    loop(np.ascontiguousarray(a), total)
    return _delivered(total, path.start_format, out_format, convert)


def index_sums(
    a: Array, index: Array, size: int, fmt: Format, path: Datapath, out_format: Format, convert: Convert
) -> Array | None:
    """Sum the rows of (n, inner) that have the same index, if a kernel does that in one pass."""
    loop = _loop(accumulate.INDEX_SUMS, fmt, path, path.start_format)
    if loop is None:
        return None
    total = np.empty((size, a.shape[1]), path.start_format.uint)
    loop(np.ascontiguousarray(a), index, total)
    return _delivered(total, path.start_format, out_format, convert)


_ADDING: dict[tuple[int, int, int, int], tuple[Any, tuple[Any, ...]]] = {}


def _loop(loops: dict[tuple[str, str, str], Any], fmt: Format, path: Datapath, result: Format) -> Any:
    """Choose the loop that adds terms of the format in order, if the datapath does and there is one.

    They are remembered as tiles are.
    """
    key = id(loops), id(fmt), id(path), id(result)
    if key not in _ADDING:
        formats = fmt, path.start_format, result
        known = path.adds_in_order and all(map(is_built_in, formats))
        loop = loops.get((fmt.name, path.start_format.name, result.name)) if known else None
        if len(_ADDING) > 256:
            _ADDING.clear()
        _ADDING[key] = loop, (fmt, path, result)
    return _ADDING[key][0]


def _delivered(total: Array, inner: Format, out_format: Format, convert: Convert) -> Array:
    """Round accumulators to the result's format."""
    if inner is out_format or inner == out_format:
        return total
    return convert(total.reshape(-1), inner, out_format).reshape(total.shape)


def _shares(shape: tuple[int, ...], k: int, worth: int) -> list[tuple[slice, slice, slice]]:
    """Divide a (batch, m, n) result among the threads: tiles (matrices, rows, columns)."""
    batch, m, n = shape
    workers = max(1, min(threads.threads(), batch * m * n * k // worth))
    if workers == 1 or batch >= workers:
        ends = [batch * i // workers for i in range(workers + 1)]
        return [(slice(*pair), slice(0, m), slice(0, n)) for pair in zip(ends, ends[1:], strict=False)]
    if m >= n or m >= 64 * workers:
        tiles = [(part, slice(0, n)) for part in _parts(m, workers)]
    else:
        tiles = [(slice(0, m), part) for part in _parts(n, workers)]
    return [(slice(i, i + 1), *tile) for i in range(batch) for tile in tiles]


def _parts(length: int, workers: int) -> list[slice]:
    step = -(-length // workers)
    if step > 48:  # whole tiles of micro-kernels, whose sides are 3 to 48
        step = -(-step // 48) * 48
    return [slice(first, min(first + step, length)) for first in range(0, length, step)]


_CHOSEN: dict[tuple[int, int, int, bool], tuple[Tile, str, tuple[Any, ...]]] = {}


def _chosen(
    fmt: Format, path: Datapath, out_format: Format, convert: Convert, counting: bool
) -> tuple[Tile, str]:
    """Choose a tile, and name its kernel as `fast_kind` does.

    They are remembered by identity: to hash a datapath takes longer than a small product.
    """
    key = id(fmt), id(path), id(out_format), counting
    if key not in _CHOSEN:
        kind = "" if counting else fast_kind(fmt, path)
        if kind == "tensor core":
            tile = _tensor_core_tile(path, out_format, convert)
        elif kind:
            tile = _fast_tile(kind, fmt, path, out_format, convert)
        else:
            tile = _complete_tile(fmt, path, out_format)
        if len(_CHOSEN) > 256:
            _CHOSEN.clear()
        kept = fmt, path, out_format  # so that no other object gets their identities
        _CHOSEN[key] = tile, kind, kept
    return _CHOSEN[key][:2]


def _complete_tile(fmt: Format, path: Datapath, out_format: Format) -> Tile:
    """Make the tile that knows every way, in integers, and counts."""
    rules = rules_of(path, fmt, out_format)

    def tile(a: Array, b: Array, c: Array | None, out: Array) -> Counts:
        counts = np.zeros(dot.SWAMPED + 1, np.int64)
        for i in range(len(out)):
            counts += dot.dot_products(a[i], b[i], None if c is None else c[i], out[i], rules)
        return counts

    return tile


def _tensor_core_tile(path: Datapath, out_format: Format, convert: Convert) -> Tile:
    """Make the tile of a tensor core on binary16, which gives accumulators or binary16 encodings."""
    given = binary16 if out_format == binary16 else path.start_format
    rules = rules_of(path, binary16, given)

    def tile(a: Array, b: Array, c: Array | None, out: Array) -> None:
        place = out if given == out_format else np.empty(out.shape, given.uint)
        for i in range(len(out)):
            tensorcore.multiply(a[i], b[i], None if c is None else c[i], place[i], rules)
        if place is not out:
            out[...] = convert(place.reshape(-1), given, out_format).reshape(out.shape)

    return tile


def _fast_tile(kind: str, fmt: Format, path: Datapath, out_format: Format, convert: Convert) -> Tile:
    """Make the tile of a fast kernel, which gives binary16 encodings or its accumulators in float32 or float64."""
    inner = binary64 if kind == "double" else binary32
    given = binary16 if out_format == binary16 and inner == binary32 else inner
    halves, direct = given == binary16, given == out_format
    operands = {"single": np.float32, "single_fused": np.float32, "double": np.float64}.get(kind)
    widened = kind == "single_fused" and fmt != binary32

    def tile(a: Array, b: Array, c: Array | None, out: Array) -> None:
        if widened:
            a, b = (_widened(x, fmt, convert) for x in (a, b))
        if operands:
            a, b = a.view(operands), b.view(operands)
        start = None if c is None else _values(c, path.start_format, inner.dtype)
        place = out if direct else np.empty(out.shape, given.uint)
        gemm(kind, a, b, start, place if halves else place.view(inner.dtype))
        if not direct:
            out[...] = convert(place.reshape(-1), given, out_format).reshape(out.shape)

    return tile


def _widened(matrices: Array, fmt: Format, convert: Convert) -> Array:
    """Give the binary32 encodings of matrices; transposed ones stay so."""
    turned = np.swapaxes(matrices, 1, 2)
    if turned.flags.c_contiguous:
        return np.swapaxes(convert(turned.reshape(-1), fmt, binary32).reshape(turned.shape), 1, 2)
    return convert(np.ascontiguousarray(matrices).reshape(-1), fmt, binary32).reshape(matrices.shape)


def _values(bits: Array, fmt: Format, carrier: np.dtype[Any]) -> Array:
    """Give the values of encodings of binary16, binary32 or binary64 in a carrier that holds them."""
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        return bits.view(fmt.dtype).astype(carrier, copy=False)
