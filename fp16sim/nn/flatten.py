"""All axes after the first in one, and nothing at all."""

from __future__ import annotations

from fp16sim.autograd import ops
from fp16sim.autograd.tensor import Tensor, need_tensor
from fp16sim.nn.module import Module

__all__ = ["Flatten", "Identity"]


class Flatten(Module):
    """Turn (batch, ...) into (batch, features), in C order; nothing is rounded.

    >>> Flatten()(Tensor([[[1.0, 2.0], [3.0, 4.0]]])).shape
    (1, 4)
    """

    def __repr__(self) -> str:
        return "Flatten()"

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, ...) to (batch, features)."""
        need_tensor(x)
        if x.ndim < 1:
            raise ValueError("a number without axes for Flatten: pass (batch, ...)")
        features = 1
        for size in x.shape[1:]:
            features *= size
        return ops.reshape(x, (x.shape[0], features))


class Identity(Module):
    """Give what comes in: to stand where a layer is left out.

    >>> Identity()(Tensor([1.0])).data
    array([1.], dtype=float32)
    """

    def __repr__(self) -> str:
        return "Identity()"

    def forward(self, x: Tensor) -> Tensor:
        """Give the input itself."""
        need_tensor(x)
        return x
