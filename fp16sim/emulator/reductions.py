"""Sums in order: what NumPy adds pairwise, hardware and naive loops add one after another."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from fp16sim.emulator import backends, events
from fp16sim.emulator.arrays import decoded, encoded, format_of_operands
from fp16sim.emulator.datapath import Datapath, as_datapath
from fp16sim.emulator.formats import as_format
from fp16sim.emulator.matmul import check_operand_format

__all__ = ["sum"]


def sum(
    x: Any, axis: int | None = None, datapath: str | Datapath = "float32", *, out_format: Any = None
) -> Any:
    """Sum sequentially in increasing C-order index from +0.

    Parameters
    ----------
    x : array_like
        binary16 or binary32.
    axis : int, optional
        Default: over all elements.
    datapath : str or Datapath
        Whose accumulator each sum is rounded to: ``"float32"`` or ``"float16"``.
    out_format : Format, str or dtype, optional
        To which the sum is rounded, once, at the end. Default: the format of `x`.

    Returns
    -------
    array or scalar

    Examples
    --------
    >>> import numpy as np, fp16sim as fs
    >>> ones = np.ones(4096, np.float16)
    >>> float(fs.sum(ones, datapath="float16")), float(fs.sum(ones))
    (2048.0, 4096.0)
    """
    path = as_datapath(datapath)
    fmt = format_of_operands((x,), None)
    check_operand_format(fmt, path)
    target = fmt if out_format is None else as_format(out_format)
    bits = encoded(x, fmt)
    if axis is not None and not -bits.ndim <= axis < bits.ndim:
        raise ValueError(f"axis={axis}: an array of shape {bits.shape} has axes 0 to {bits.ndim - 1}")
    shape: tuple[int, ...]
    if axis is None:
        shape, cube = (), bits.reshape(1, -1, 1)
    else:
        before, after = bits.shape[: axis % bits.ndim], bits.shape[axis % bits.ndim + 1 :]
        shape, cube = before + after, bits.reshape(prod(before), bits.shape[axis], prod(after))
    cube = np.ascontiguousarray(cube)
    outcome = backends.current().sum(cube, fmt, path, target, "counts" if events.counting() else "")
    if outcome.counts is not None:
        events.record("sum", outcome.counts)
    return decoded(outcome.bits, target).reshape(shape)[()]
