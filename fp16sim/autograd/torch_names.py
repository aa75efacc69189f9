"""Methods of tensors that go by their names in torch; for names without a method see `hints.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fp16sim.autograd.methods import call

if TYPE_CHECKING:
    from fp16sim.autograd.tensor import Tensor

__all__ = ["TorchNames"]


class TorchNames:
    """What :class:`fp16sim.Tensor` inherits: each method is one operation with another name.

    >>> from fp16sim.autograd.tensor import Tensor
    >>> Tensor([1.0, 2.0, 3.0, 4.0]).view(2, 2).permute(1, 0).clamp(min=2.0).data
    array([[2., 3.],
           [2., 4.]], dtype=float32)
    """

    __slots__ = ()

    def clamp(self, min: float | None = None, max: float | None = None) -> Tensor:
        """Replace values below `min` by it, and values above `max`: ``clip``."""
        return call("clip", self, min, max)

    def clone(self) -> Tensor:
        """Copy; gradients pass."""
        return call("broadcast_to", self, self.shape)  # type: ignore[attr-defined]

    def permute(self, *axes: Any) -> Tensor:
        """Put all axes into another order: :func:`fp16sim.autograd.ops.transpose`."""
        return call(
            "transpose", self, axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes
        )

    def pow(self, exponent: float) -> Tensor:
        """Raise to a power: ``x ** exponent``."""
        return call("power", self, exponent)

    def unsqueeze(self, dim: int) -> Tensor:
        """Insert an axis of length 1: ``expand_dims``."""
        return call("expand_dims", self, dim)

    def view(self, *shape: Any) -> Tensor:
        """Give the values another shape: ``reshape``."""
        return call(
            "reshape", self, shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        )
