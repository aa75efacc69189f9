"""Matrix products, each element accumulated in order of k: the arguments are checked, blocks.py does the work.

Parts of a result may be computed apart, in any threads: the bits are those of the whole.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.emulator.kernels.blocks import Product, product_of
from fp16sim.emulator.kernels.workspace import workspace

__all__ = ["gemm"]

Array = npt.NDArray[Any]


def gemm(kind: str, a: Array, b: Array, c: Array | None, out: Array) -> None:
    """Compute out = c + a @ b, each element in order of k, with the roundings of a kind.

    One product of matrices, or with one more axis in front, of the same length everywhere, one after another.

    Parameters
    ----------
    kind : str
        ``"float32"``: binary16 operands, sums rounded to float32. ``"single"`` and ``"double"``: float32 and
        float64 operands, products and sums rounded to their format. ``"single_fused"``, where the processor fuses:
        float32 operands, each product added and then rounded, once. ``"float16"``: binary16 operands, products and
        sums rounded to binary16. ``"float16_fma"``: each product added and then rounded to binary16, once.
    a, b : array
        (m, k) and (k, n), with any strides; binary16 as its encodings in uint16.
    c : array or None
        What the accumulators hold at first: (m, n), values of the accumulator's format in float32 (float64 for
        ``"double"``), with any strides; None: +0.
    out : array
        (m, n), values of a row next to each other, no memory shared with the operands. Of the type of `c`: the
        accumulators. uint16 (not for ``"double"``): binary16 encodings, rounded once, to nearest even.
        A NaN is the canonical one.

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
    product = product_of(kind, out.dtype)
    if c is None:
        c = _no_input(product.accumulator)
    else:
        _check_accumulators(product, c, out)
    _check(product, a, b, out)
    if out.size:
        memory = workspace.reserve(product.workspace)
        product.multiply(_cube(a), _cube(b), _cube(c), out if out.ndim == 3 else out[np.newaxis], memory)


@cache
def _no_input(accumulator: np.dtype[Any]) -> Array:
    """Give the empty array that stands for accumulators of +0."""
    return np.zeros((0, 0, 0), accumulator)


def _cube(x: Array) -> Array:
    """Give one matrix as a batch of one; copy an array whose values lie at odd places, as a field of records may."""
    aligned = x if x.flags.aligned else x.copy()
    return aligned if x.ndim == 3 else aligned[np.newaxis]


def _check(product: Product, a: Array, b: Array, out: Array) -> None:
    """Refuse what the compiled code, which checks nothing, would read or write wrongly."""
    if not (a.dtype == b.dtype == product.operand):
        raise TypeError(
            f"operands are {a.dtype} and {b.dtype}: kind {product.kind!r} takes {product.operand}; convert them"
        )
    shape = (*a.shape[:-1], *b.shape[-1:])
    fits = (
        a.ndim == b.ndim and a.ndim in (2, 3) and a.shape[-1] == b.shape[-2] and a.shape[:-2] == b.shape[:-2]
    )
    if not (fits and out.shape == shape):
        raise ValueError(
            f"shapes {a.shape}, {b.shape} and out {out.shape}: a product takes (m, k), (k, n) and (m, n); reshape"
        )
    consecutive = out.strides[-1] == out.itemsize or out.shape[-1] == 1
    if out.size and not (consecutive and out.flags.writeable and out.flags.aligned):
        raise ValueError(
            f"out with strides {out.strides}: a row must be writeable, aligned and consecutive; pass a new array"
        )


def _check_accumulators(product: Product, c: Array, out: Array) -> None:
    if c.dtype != product.accumulator or c.shape != out.shape:
        raise TypeError(
            f"c is {c.dtype} of shape {c.shape}: kind {product.kind!r} takes {product.accumulator} of {out.shape}; "
            "convert it"
        )
