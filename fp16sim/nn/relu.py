"""The rectifier."""

from __future__ import annotations

from fp16sim.autograd import ops
from fp16sim.autograd.tensor import Tensor, need_tensor
from fp16sim.nn.module import Module

__all__ = ["ReLU"]


class ReLU(Module):
    """``max(x, 0)``, exactly; the gradient is 0 where x <= 0.

    >>> ReLU()(Tensor([-1.0, 2.0])).data
    array([0., 2.], dtype=float32)
    """

    def __repr__(self) -> str:
        return "ReLU()"

    def forward(self, x: Tensor) -> Tensor:
        """Map any shape to the same shape."""
        need_tensor(x)
        return ops.relu(x)
