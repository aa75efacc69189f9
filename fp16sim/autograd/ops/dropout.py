"""Dropout, with a mask that the caller draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.autograd.arithmetic import Arithmetic, Array, keep
from fp16sim.autograd.operation import Op, run
from fp16sim.autograd.tensor import Context, Tensor, need_tensor

__all__ = ["dropout"]

Saved = tuple[Any, ...]
Parts = tuple[Array | None, ...]


def _dropout(arithmetic: Arithmetic, a: Array, mask: Array, factor: float) -> tuple[Array, Saved]:
    return arithmetic.multiply(a, _factors(arithmetic, a, mask, factor)), (mask, factor)


def _dropout_gradient(context: Context, gradient: Array) -> Parts:
    factors = _factors(context.arithmetic, gradient, *context.saved)
    return (context.arithmetic.multiply(gradient, factors),)


def _factors(arithmetic: Arithmetic, like: Array, mask: Array, factor: float) -> Array:
    constant = arithmetic.constant(factor, like)
    return keep(np.broadcast_to(constant, like.shape), mask)


_DROPOUT = Op("dropout", _dropout, _dropout_gradient)


def dropout(a: Tensor, mask: npt.NDArray[np.bool_], p: float) -> Tensor:
    """Multiply by 1/(1-p) where the mask is True, by 0 elsewhere, as torch does.

    Parameters
    ----------
    a : Tensor
    mask : bool array of the same shape
        True: kept. :class:`fp16sim.nn.Dropout` draws it.
    p : float
        Share of values that are dropped.

    Notes
    -----
    1/(1-p) is rounded to the dtype, and the product is rounded once. Dropped values are +-0, dropped infinities NaN.
    Gradient: G times the same factors, rounded once.

    >>> dropout(Tensor([1.0, 2.0]), np.array([True, False]), 0.5).data
    array([2., 0.], dtype=float32)
    """
    need_tensor(a)
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != a.shape:
        found = f"{mask.dtype} of {mask.shape}" if isinstance(mask, np.ndarray) else type(mask).__name__
        raise ValueError(f"dropout of shape {a.shape} with a mask {found}: pass a bool array of that shape")
    return run(_DROPOUT, a, mask=mask, factor=dropout_factor(p))


def dropout_factor(p: float) -> float:
    """Give 1/(1-p), 0 if everything is dropped; refuse what is no probability."""
    if isinstance(p, bool) or not isinstance(p, (int, float, np.number)) or not 0 <= p <= 1:
        raise ValueError(f"p={p!r}: the share of dropped values lies between 0 and 1; pass such as 0.1")
    return 1.0 / (1.0 - float(p)) if p < 1 else 0.0
