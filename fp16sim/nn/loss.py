"""Losses."""

from __future__ import annotations

import numpy.typing as npt

from fp16sim.autograd import ops
from fp16sim.autograd.tensor import Tensor, need_tensor
from fp16sim.nn.module import Module

__all__ = ["CrossEntropyLoss"]


class CrossEntropyLoss(Module):
    """Mean over the batch of -log softmax(logits)[label], in the policy's wide format.

    The steps and their roundings are
    those of :func:`fp16sim.autograd.ops.cross_entropy`.

    >>> loss = CrossEntropyLoss()(Tensor([[0.0, 0.0]]), [1])
    >>> round(loss.item(), 6)
    0.693147
    """

    def forward(self, logits: Tensor, labels: npt.ArrayLike) -> Tensor:
        """Map logits (batch, classes) and labels (batch,) to one number."""
        need_tensor(logits)
        return ops.cross_entropy(logits, labels)
