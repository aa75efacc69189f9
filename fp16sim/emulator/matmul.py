"""Matrix products whose accumulation is chosen, not left to a library."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.emulator import backends
from fp16sim.emulator.arrays import delivered, encoded, format_of_operands, writable
from fp16sim.emulator.backends.base import Encodings
from fp16sim.emulator.datapath import Datapath, as_datapath
from fp16sim.emulator.elementwise import record, watching
from fp16sim.emulator.formats import Format, as_format, binary64

__all__ = ["dot", "matmul"]


def matmul(
    a: Any,
    b: Any,
    datapath: str | Datapath = "float32",
    *,
    c: Any = None,
    out: npt.NDArray[Any] | None = None,
    out_format: Any = None,
    format: Any = None,
) -> Any:
    """Multiply matrices, accumulating each element over k as the datapath says.

    An element depends on its row of `a`, its column of `b` and its element of `c` only: a batch of rows gives the
    bits that each row gives alone, and the number of threads changes nothing.

    Parameters
    ----------
    a, b : array_like
        Of shapes (..., m, k) and (..., k, n), or vectors, as in ``numpy.matmul``: leading axes broadcast. Both of
        one format that the datapath takes; any strides.
    datapath : str or Datapath
        A name (below) or a `Datapath`. float64 arrays take ``"float64"`` only, and lists are binary64 there.
    c : array_like, optional
        What the accumulators hold at first: of the accumulator's format, and of a shape that broadcasts to the
        result's. Default: +0.
    out : array, optional
        Where to put the result; it may share memory with the operands.
    out_format : Format, str or dtype, optional
        To which the accumulators are rounded, once, at the end. Default: the datapath's own for a tensor core,
        otherwise that of the operands.
    format : Format, str or dtype, optional
        That of operands in float32 carriers, such as ``"tf32"``.

    Notes
    -----
    The datapaths with names; ``fp16sim.emulator.datapath.DATAPATHS`` holds them all:

    - ``"float32"``: products and sums rounded to binary32, in order of k; other operands than binary16 and binary32
      have their products exact;
    - ``"float16"``, ``"bfloat16"``, ``"float64"``: products and sums rounded to that format, in order of k;
    - ``"float16_fma"``: exact products, sums rounded to binary16, in order of k;
    - ``"float16_kahan"``: as ``"float16"``, with compensated sums;
    - ``"pairwise"``: as ``"float32"``, summed along a tree; ``"exact"``: the exact sum, rounded once;
    - ``"v100"``, ``"turing"``, ``"a100"``, ``"ada"``, ``"h100"``, ``"blackwell"``: tensor cores that accumulate in
      binary32; ``"a100:float16"`` and so on accumulate in binary16, also ``"h100_wgmma:float16"`` and
      ``"blackwell_tcgen05:float16"``. From Ampere on they take bfloat16 and tf32 too, from Ada on 8-bit formats.

    There are fast kernels for binary16 operands on ``"float32"``, ``"float16"``, ``"float16_fma"`` and all tensor
    cores, for all other operands on ``"float32"`` and for ``"float64"``. All else (``"exact"``, ``"pairwise"``,
    ``"float16_kahan"``, ``"bfloat16"``, other operands on tensor cores, most datapaths of your own) runs in 64-bit
    integers, many times slower; so does everything inside `fp16sim.count_events`. `docs/benchmarks.md` has figures.

    Returns
    -------
    array or scalar
        Of shape (..., m, n), less the axes that vectors lack.

    Raises
    ------
    ValueError, TypeError
        If shapes or formats do not fit, or `out` cannot take the result; before any work.

    Examples
    --------
    >>> import numpy as np, fp16sim as fs
    >>> ones = np.ones((1, 4096), np.float16)
    >>> float(fs.matmul(ones, ones.T, "float16")[0, 0]), float(fs.matmul(ones, ones.T)[0, 0])
    (2048.0, 4096.0)
    """
    fmt, path, target = formats_of((a, b), datapath, format, out_format)
    left, right = encoded(a, fmt), encoded(b, fmt)
    rows, columns, shape = _cubes(left, right)
    start = None if c is None else _start(c, path, shape)
    into = writable(out, target, shape, (left, right) if start is None else (left, right, start))
    cube = (rows.shape[0], rows.shape[1], columns.shape[2])
    outcome = backends.current().matmul(
        rows,
        columns,
        None if start is None else start.reshape(cube),
        fmt,
        path,
        target,
        watching(),
        None if into is None else into.reshape(cube),
    )
    record("matmul", outcome)
    if into is not None and np.may_share_memory(outcome.bits, into):
        return out
    return delivered(outcome.bits, None, target, shape, out)


def dot(
    a: Any,
    b: Any,
    datapath: str | Datapath = "float32",
    *,
    c: Any = None,
    out_format: Any = None,
    format: Any = None,
) -> Any:
    """Multiply two vectors of one length, accumulating as the datapath says.

    Arguments as those of `matmul`; `c` is a number.

    Returns
    -------
    scalar

    Examples
    --------
    >>> import numpy as np, fp16sim as fs
    >>> x = np.float16([2048, 1, 1, -2048])
    >>> ones = np.ones(4, np.float16)
    >>> [float(fs.dot(x, ones, path)) for path in ("float32", "float16")]
    [2.0, 0.0]
    """
    shapes = np.shape(a), np.shape(b)
    if len(shapes[0]) != 1 or shapes[0] != shapes[1]:
        raise ValueError(
            f"shapes {shapes[0]} and {shapes[1]}: dot takes two vectors of one length; use fp16sim.matmul"
        )
    return matmul(a, b, datapath, c=c, out_format=out_format, format=format)


def formats_of(
    operands: tuple[Any, ...], datapath: str | Datapath, given: Any, out_format: Any
) -> tuple[Format, Datapath, Format]:
    """Settle the format of the operands, the model that the datapath has for it, and the format of the result.

    Raises
    ------
    TypeError
        If the datapath does not take the operands.
    """
    names = (str, Format, type(None))
    if (
        isinstance(given, names)
        and isinstance(out_format, names)
        and all(type(x) is np.ndarray for x in operands)
    ):
        return _formats_of_dtypes(datapath, given, out_format, *(x.dtype for x in operands))
    return _formats_of(operands, datapath, given, out_format)


@lru_cache(maxsize=256)
def _formats_of_dtypes(
    datapath: str | Datapath, given: Any, out_format: Any, *dtypes: np.dtype[Any]
) -> tuple[Format, Datapath, Format]:
    """Remember what the dtypes of arrays decide: a small product takes no longer than to find it out."""
    return _formats_of(tuple(np.empty(0, dtype) for dtype in dtypes), datapath, given, out_format)


def _formats_of(
    operands: tuple[Any, ...], datapath: str | Datapath, given: Any, out_format: Any
) -> tuple[Format, Datapath, Format]:
    path = as_datapath(datapath)
    arrays = [x for x in operands if isinstance(x, (np.ndarray, np.generic))]
    doubles = [x for x in arrays if _is_double(x)]
    # Python numbers and lists have no format: they follow the arrays, or a datapath that takes binary64 only.
    if given is None and (
        (doubles and binary64 in path.inputs) or (not arrays and path.inputs == (binary64,))
    ):
        fmt = binary64
        for x in arrays:
            if not _is_double(x):
                raise TypeError(
                    f"float64 and {x.dtype}: the operands of an operation have one format; convert one"
                )
    else:
        fmt = format_of_operands(operands, given)
    path = path.for_operands(fmt)
    target = path.result_format(fmt) if out_format is None else as_format(out_format)
    return fmt, path, target


def _is_double(x: npt.NDArray[Any] | np.generic) -> bool:
    return x.dtype.newbyteorder("=") == np.float64


def _cubes(left: Encodings, right: Encodings) -> tuple[Encodings, Encodings, tuple[int, ...]]:
    """Give the operands as (batch, m, k) and (batch, k, n), without a copy if that can be, and the result's shape."""
    if left.ndim == right.ndim == 2 and left.shape[1] == right.shape[0]:
        return left[np.newaxis], right[np.newaxis], (left.shape[0], right.shape[1])
    if left.ndim == 0 or right.ndim == 0:
        raise ValueError(
            f"shapes {left.shape} and {right.shape}: matmul takes vectors and matrices; use fp16sim.multiply"
        )
    rows = left[np.newaxis, :] if left.ndim == 1 else left
    columns = right[:, np.newaxis] if right.ndim == 1 else right
    if rows.shape[-1] != columns.shape[-2]:
        raise ValueError(
            f"shapes {left.shape} and {right.shape}: the last axis of a ({rows.shape[-1]}) and the one of b that it "
            f"meets ({columns.shape[-2]}) must agree; transpose or reshape one"
        )
    try:
        lead = np.broadcast_shapes(rows.shape[:-2], columns.shape[:-2])
    except ValueError:
        raise ValueError(
            f"shapes {left.shape} and {right.shape}: the axes before the last two, {rows.shape[:-2]} and "
            f"{columns.shape[:-2]}, do not broadcast; reshape one operand"
        ) from None
    m, n = rows.shape[-2], columns.shape[-1]
    shape = (*lead, *(() if left.ndim == 1 else (m,)), *(() if right.ndim == 1 else (n,)))
    if columns.ndim == 2:  # one b for all: the rows of the whole batch are one matrix
        return rows.reshape(1, prod(lead) * m, rows.shape[-1]), columns[np.newaxis], shape
    return _batched(rows, lead), _batched(columns, lead), shape


def _start(c: Any, path: Datapath, shape: tuple[int, ...]) -> Encodings:
    """Give the accumulator input, contiguous, in the shape of the result."""
    bits = encoded(c, path.start_format)
    try:
        return np.ascontiguousarray(np.broadcast_to(bits, shape))
    except ValueError:
        raise ValueError(
            f"c has shape {bits.shape}: the accumulator input of this product broadcasts to {shape}; reshape it"
        ) from None


def _batched(matrices: Encodings, lead: tuple[int, ...]) -> Encodings:
    """Give (batch, rows, columns); a single matrix that stands for all is repeated without a copy."""
    shape = (prod(lead), *matrices.shape[-2:])
    if matrices.ndim == 2 or all(n == 1 for n in matrices.shape[:-2]):
        return np.broadcast_to(matrices.reshape(matrices.shape[-2:]), shape)
    return np.broadcast_to(matrices, (*lead, *shape[1:])).reshape(shape)
