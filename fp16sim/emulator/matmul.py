"""Matrix products whose accumulation is chosen, not left to a library."""

from __future__ import annotations

from typing import Any

import numpy as np

from fp16sim.emulator import backends, events
from fp16sim.emulator.arrays import decoded, encoded, format_of_operands
from fp16sim.emulator.datapath import Datapath, as_datapath
from fp16sim.emulator.formats import Format, as_format, binary16, binary32

__all__ = ["matmul"]


def matmul(
    a: Any, b: Any, datapath: str | Datapath = "float32", *, c: Any = None, out_format: Any = None
) -> Any:
    """Multiply matrices, accumulating each element in order of k as the datapath says.

    Parameters
    ----------
    a, b : array_like
        Of shapes (m, k) and (k, n), or vectors as in ``numpy.matmul``; both binary16 or both binary32.
    datapath : str or Datapath
        ``"float32"``: products and sums rounded to binary32 (a product of binary16 numbers is exact there).
        ``"float16"``: products and sums rounded to binary16; needs binary16 operands.
    c : array_like, optional
        What the accumulators hold at first, (m, n), in the accumulator's format; default +0.
    out_format : Format, str or dtype, optional
        To which the accumulators are rounded, once, at the end. Default: the format of the operands.

    Returns
    -------
    array or scalar
        Of shape (m, n), less the axis that a vector lacks.

    Raises
    ------
    ValueError, TypeError
        If shapes or formats do not fit.

    Examples
    --------
    >>> import numpy as np, fp16sim as fs
    >>> ones = np.ones((1, 4096), np.float16)
    >>> float(fs.matmul(ones, ones.T, "float16")[0, 0]), float(fs.matmul(ones, ones.T)[0, 0])
    (2048.0, 4096.0)
    """
    path = as_datapath(datapath)
    fmt = format_of_operands((a, b), None)
    check_operand_format(fmt, path)
    target = fmt if out_format is None else as_format(out_format)
    left, right = encoded(a, fmt), encoded(b, fmt)
    if left.ndim not in (1, 2) or right.ndim not in (1, 2):
        raise ValueError(f"shapes {left.shape} and {right.shape}: matmul takes vectors and matrices; reshape")
    rows = left[np.newaxis, :] if left.ndim == 1 else left
    columns = right[:, np.newaxis] if right.ndim == 1 else right
    if rows.shape[1] != columns.shape[0]:
        raise ValueError(
            f"shapes {left.shape} and {right.shape}: the last axis of a ({rows.shape[1]}) and the first of b "
            f"({columns.shape[0]}) must agree; transpose or reshape one"
        )
    shape = (rows.shape[0], columns.shape[1])
    start = np.zeros(shape, path.accumulator.uint) if c is None else encoded(c, path.accumulator)
    if start.shape != shape:
        raise ValueError(f"c has shape {start.shape}: the accumulator input of this product has {shape}")
    outcome = backends.current().matmul(
        np.ascontiguousarray(rows),
        np.ascontiguousarray(columns),
        np.ascontiguousarray(start),
        fmt,
        path,
        target,
        "counts" if events.counting() else "",
    )
    if outcome.counts is not None:
        events.record("matmul", outcome.counts)
    result = decoded(outcome.bits, target)
    if left.ndim == 1:
        result = result[0]
    return result[..., 0] if right.ndim == 1 else result


def check_operand_format(fmt: Format, path: Datapath) -> None:
    """Refuse operands that a datapath cannot take."""
    if fmt not in (binary16, binary32) or (fmt == binary32 and path.accumulator != binary32):
        raise TypeError(
            f"{fmt.name} operands with datapath {path.name!r}: it takes "
            f"{'binary16 or binary32' if path.accumulator == binary32 else 'binary16'}; convert with "
            "fp16sim.round_to(x, 'binary16')"
        )
