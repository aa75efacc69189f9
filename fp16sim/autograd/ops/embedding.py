"""Rows of a table, chosen by integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.autograd.arithmetic import Arithmetic, Array
from fp16sim.autograd.operation import Op, run
from fp16sim.autograd.tensor import Context, Tensor, need_tensor

__all__ = ["embedding"]

Saved = tuple[Any, ...]
Parts = tuple[Array | None, ...]


def _embedding(
    arithmetic: Arithmetic, weight: Array, ids: npt.NDArray[np.int64], padding: int | None
) -> tuple[Array, Saved]:
    return weight[ids], (ids, padding, weight.shape)


def _embedding_gradient(context: Context, gradient: Array) -> Parts:
    ids, padding, (size, width) = context.saved
    rows, index = gradient.reshape(-1, width), ids.reshape(-1)
    if padding is not None:
        rows, index = rows[index != padding], index[index != padding]
    return (context.arithmetic.index_sum(rows, index, size),)


_EMBEDDING = Op("embedding", _embedding, _embedding_gradient)


def embedding(ids: npt.ArrayLike, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Take the rows of a table with these numbers; nothing is rounded.

    Parameters
    ----------
    ids : integers of any shape
        From 0 up to the number of rows, which is not included.
    weight : Tensor, shape (rows, width)
    padding_idx : int, optional
        A row whose gradient stays zero.

    Returns
    -------
    Tensor, shape (*ids.shape, width)

    Notes
    -----
    Gradient: row r is the sum of G over the places where the id is r, in C order from +0, by the policy's reduction,
    rounded to the dtype once. In float16 a frequent row stalls: (mxnet#17703) 1 and 12,500 times .01 make 32.

    >>> embedding([2, 0], Tensor([[0.0], [1.0], [2.0]])).data
    array([[2.],
           [0.]], dtype=float32)
    """
    need_tensor(weight)
    if weight.ndim != 2:
        raise ValueError(f"an embedding with a weight of shape {weight.shape}: pass (rows, width)")
    if padding_idx is not None:
        padding_idx = row_number("padding_idx", padding_idx, len(weight))
    return run(_EMBEDDING, weight, ids=_ids(ids, len(weight)), padding=padding_idx)


def _ids(ids: npt.ArrayLike, rows: int) -> npt.NDArray[np.int64]:
    if isinstance(ids, Tensor):
        raise TypeError(
            "the ids of an embedding are a Tensor: pass an integer array, such as np.array([2, 0])"
        )
    array = np.asarray(ids)
    if not array.size and not isinstance(ids, np.ndarray):  # NumPy makes float64 of an empty list
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(
            f"the ids of an embedding have dtype {array.dtype}: pass integers, such as ids.astype(np.int64)"
        )
    wrong = (array < 0) | (array >= rows)
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(
            f"id {array[place]} at position {place}: an embedding of {rows} rows takes 0 to {rows - 1}; make it "
            "larger, or check the vocabulary"
        )
    return array.astype(np.int64, copy=False)


def row_number(name: str, value: object, rows: int) -> int:
    """Count a row from 0, refusing one that is not there."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not -rows <= value < rows:
        raise ValueError(f"{name}={value!r}: name one of the {rows} rows, or None")
    return int(value) % rows
