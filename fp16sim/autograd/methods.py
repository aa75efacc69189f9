"""Operations as methods of tensors, for those that read best after their operand: ``x.exp()``, ``x.flatten(1)``.

Each is the function of that name in :mod:`fp16sim.autograd.ops`, where its roundings and its gradient are written.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fp16sim.autograd.hints import axis_not_dim

if TYPE_CHECKING:
    from fp16sim.autograd.tensor import Tensor

__all__ = ["Methods", "call"]

Axis = int | tuple[int, ...] | None


class Methods:
    """What :class:`fp16sim.Tensor` inherits: methods with the parameters of their functions.

    >>> from fp16sim.autograd.tensor import Tensor
    >>> Tensor([[1.0, 4.0], [9.0, 16.0]]).sqrt().flatten().data
    array([1., 2., 3., 4.], dtype=float32)
    """

    __slots__ = ()

    def exp(self) -> Tensor:
        """Exponential."""
        return call("exp", self)

    def log(self) -> Tensor:
        """Natural logarithm."""
        return call("log", self)

    def sqrt(self) -> Tensor:
        """Square root."""
        return call("sqrt", self)

    def abs(self) -> Tensor:
        """Clear the sign."""
        return call("absolute", self)

    def clip(self, low: float | None = None, high: float | None = None) -> Tensor:
        """Replace values below `low` by it, and values above `high`."""
        return call("clip", self, low, high)

    @axis_not_dim
    def amax(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """Choose the largest element."""
        return call("amax", self, axis, keepdims)

    @axis_not_dim
    def amin(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """Choose the smallest element."""
        return call("amin", self, axis, keepdims)

    @axis_not_dim
    def argmax(self, axis: int | None = None) -> Any:
        """Give the index of the first largest element, as a NumPy array."""
        return call("argmax", self, axis)

    @axis_not_dim
    def variance(self, axis: Axis = None, correction: int = 1, keepdims: bool = False) -> Tensor:
        """Sum of squared distances from the mean, over the number of terms less `correction`."""
        return call("variance", self, axis, correction, keepdims)

    @axis_not_dim
    def norm(self, axis: Axis = None, keepdims: bool = False) -> Tensor:
        """Euclidean norm."""
        return call("norm", self, axis, keepdims)

    @axis_not_dim
    def cumsum(self, axis: int) -> Tensor:
        """Sum the elements up to each one."""
        return call("cumsum", self, axis)

    def flatten(self, start: int = 0, end: int = -1) -> Tensor:
        """Make one axis of those from `start` to `end`, the latter included."""
        return call("flatten", self, start, end)

    @axis_not_dim
    def squeeze(self, axis: Axis = None) -> Tensor:
        """Drop axes of length 1."""
        return call("squeeze", self, axis)

    def expand_dims(self, axis: int) -> Tensor:
        """Insert an axis of length 1."""
        return call("expand_dims", self, axis)

    def swapaxes(self, first: int, second: int) -> Tensor:
        """Exchange two axes."""
        return call("swapaxes", self, first, second)

    @axis_not_dim
    def flip(self, axis: int | tuple[int, ...]) -> Tensor:
        """Reverse the order along axes."""
        return call("flip", self, axis)


def call(name: str, *arguments: Any) -> Tensor:
    """Call a function of :mod:`fp16sim.autograd.ops`, a module that stands on the tensor and is imported late."""
    ops = import_module("fp16sim.autograd.ops")
    result: Tensor = getattr(ops, name)(*arguments)
    return result
