"""Losses as layers, in the policy's wide format: the roundings are those of `autograd/ops/losses.py`."""

from __future__ import annotations

import numpy.typing as npt

from fp16sim.autograd import ops
from fp16sim.autograd.tensor import Tensor, need_tensor
from fp16sim.nn.module import Module

__all__ = ["BCEWithLogitsLoss", "CrossEntropyLoss", "MSELoss", "NLLLoss"]


class CrossEntropyLoss(Module):
    """-log softmax(logits)[label], by default its mean: :func:`fp16sim.autograd.ops.cross_entropy`.

    Parameters
    ----------
    label_smoothing : float
        Share of the target that is spread over all classes.
    ignore_index : int
        A label whose examples do not count.
    reduction : {"mean", "sum", "none"}

    >>> loss = CrossEntropyLoss()(Tensor([[0.0, 0.0]]), [1])
    >>> round(loss.item(), 6)
    0.693147
    """

    def __init__(
        self, label_smoothing: float = 0.0, ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        self.label_smoothing, self.ignore_index, self.reduction = label_smoothing, ignore_index, reduction

    def forward(self, logits: Tensor, labels: npt.ArrayLike) -> Tensor:
        """Map logits (batch, classes, ...) and labels (batch, ...) to one number, or to one for each label."""
        need_tensor(logits)
        return ops.cross_entropy(logits, labels, self.label_smoothing, self.ignore_index, self.reduction)


class NLLLoss(Module):
    """Minus the logarithm at the label, by default its mean: :func:`fp16sim.autograd.ops.nll_loss`.

    >>> NLLLoss()(Tensor([[-1.0, -3.0]]), [1]).item()
    3.0
    """

    def __init__(self, ignore_index: int = -100, reduction: str = "mean") -> None:
        self.ignore_index, self.reduction = ignore_index, reduction

    def forward(self, logarithms: Tensor, labels: npt.ArrayLike) -> Tensor:
        """Map logarithms (batch, classes, ...) and labels (batch, ...) to one number, or to one for each label."""
        need_tensor(logarithms)
        return ops.nll_loss(logarithms, labels, self.ignore_index, self.reduction)


class MSELoss(Module):
    """Squares of differences, by default their mean: :func:`fp16sim.autograd.ops.mse_loss`.

    >>> MSELoss()(Tensor([1.0, 2.0]), [0.0, 0.0]).item()
    2.5
    """

    def __init__(self, reduction: str = "mean") -> None:
        self.reduction = reduction

    def forward(self, x: Tensor, targets: Tensor | npt.ArrayLike) -> Tensor:
        """Map two of one shape to one number, or to that shape."""
        need_tensor(x)
        return ops.mse_loss(x, targets, self.reduction)


class BCEWithLogitsLoss(Module):
    """Cross-entropy of sigmoid(logits) with targets: :func:`fp16sim.autograd.ops.bce_with_logits`.

    >>> round(BCEWithLogitsLoss()(Tensor([0.0]), [1.0]).item(), 6)
    0.693147
    """

    def __init__(self, reduction: str = "mean") -> None:
        self.reduction = reduction

    def forward(self, logits: Tensor, targets: Tensor | npt.ArrayLike) -> Tensor:
        """Map two of one shape to one number, or to that shape."""
        need_tensor(logits)
        return ops.bce_with_logits(logits, targets, self.reduction)
