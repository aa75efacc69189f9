"""Losses, in the policy's wide format."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.autograd.arithmetic import Arithmetic, Array
from fp16sim.autograd.operation import Op, run
from fp16sim.autograd.tensor import Context, Tensor, need_tensor

__all__ = ["cross_entropy"]

Saved = tuple[Any, ...]
Parts = tuple[Array | None, ...]


def _cross_entropy(arithmetic: Arithmetic, logits: Array, labels: Array) -> tuple[Array, Saved]:
    rows = np.arange(len(labels))
    shifted = arithmetic.subtract(logits, arithmetic.maximum_of(logits, 1))
    exponentials = arithmetic.function("exp", shifted)
    sums = arithmetic.sum(exponentials, 1)
    losses = arithmetic.subtract(arithmetic.function("log", sums), shifted[rows, labels])
    count = arithmetic.constant(len(labels), logits)
    loss = arithmetic.divide(arithmetic.sum(losses), count)
    return loss, (exponentials, sums, labels, count)


def _cross_entropy_gradient(context: Context, gradient: Array) -> Parts:
    exponentials, sums, labels, count = context.saved
    arithmetic = context.arithmetic
    probabilities = arithmetic.divide(exponentials, sums[:, None])
    hot = np.zeros_like(probabilities)
    hot[np.arange(len(labels)), labels] = 1
    difference = arithmetic.subtract(probabilities, hot)
    return (arithmetic.multiply(difference, arithmetic.divide(gradient, count)),)


_CROSS_ENTROPY = Op("cross_entropy", _cross_entropy, _cross_entropy_gradient)


def cross_entropy(logits: Tensor, labels: npt.ArrayLike) -> Tensor:
    """Mean over the batch of -log softmax(logits)[label].

    Parameters
    ----------
    logits : Tensor, shape (batch, classes)
    labels : integers, shape (batch,)
        Classes from 0.

    Notes
    -----
    Each step is rounded to the dtype of the logits: z = logits - max; e = exp(z); s = sum(e); row = log(s) -
    z[label]; the sum over rows; its quotient by the batch size. Sums by the policy's reduction.

    Gradient, each step rounded: p = e / s; d = p - onehot; q = G / batch; d q.
    """
    need_tensor(logits)
    classes = np.asarray(labels)
    if logits.ndim != 2 or classes.shape != logits.shape[:1] or not classes.size:
        raise ValueError(
            f"cross_entropy of logits {logits.shape} and labels {classes.shape}: "
            "pass (batch, classes) and (batch,)"
        )
    if classes.dtype.kind not in "iu" or classes.min() < 0 or classes.max() >= logits.shape[1]:
        raise ValueError(
            f"labels must be integers from 0 to {logits.shape[1] - 1}; check the classes of the data"
        )
    return run(_CROSS_ENTROPY, logits, labels=classes)
