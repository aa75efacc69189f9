"""Activation functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from fp16sim.autograd.arithmetic import Arithmetic, Array
from fp16sim.autograd.operation import Op, run
from fp16sim.autograd.tensor import Context, Tensor

__all__ = ["relu"]

Saved = tuple[Any, ...]
Parts = tuple[Array | None, ...]


def _relu(arithmetic: Arithmetic, a: Array) -> tuple[Array, Saved]:
    result = np.where(a <= 0, a.dtype.type(0), a)
    return result, (result,)


def _relu_gradient(context: Context, gradient: Array) -> Parts:
    # The result is what the next operation keeps as well: saving it costs no memory.
    return (np.where(context.saved[0] <= 0, gradient.dtype.type(0), gradient),)


_RELU = Op("relu", _relu, _relu_gradient)


def relu(a: Tensor) -> Tensor:
    """Replace values <= 0 by +0; NaN stays. Nothing is rounded.

    Gradient: +0 where the value was <= 0, that of the result elsewhere.
    """
    return run(_RELU, a)
