"""Operations as operators of tensors, ``x + y`` and ``x[0]``, and as the methods whose arguments are their own.

Each is a function in :mod:`fp16sim.autograd.ops`, where its roundings and its gradient are written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fp16sim.autograd.methods import Methods, call
from fp16sim.autograd.torch_names import TorchNames

if TYPE_CHECKING:
    from fp16sim.autograd.tensor import Tensor

__all__ = ["Operators"]


class Operators(Methods, TorchNames):
    """What :class:`fp16sim.Tensor` inherits.

    >>> from fp16sim.autograd.tensor import Tensor
    >>> (2.0 * Tensor([[1.0, 3.0]]) - 1.0).T.data
    array([[1.],
           [5.]], dtype=float32)
    """

    __slots__ = ()

    def __add__(self, other: Any) -> Tensor:
        return call("add", self, other)

    def __radd__(self, other: Any) -> Tensor:
        return call("add", other, self)

    def __sub__(self, other: Any) -> Tensor:
        return call("subtract", self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return call("subtract", other, self)

    def __mul__(self, other: Any) -> Tensor:
        return call("multiply", self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return call("multiply", other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return call("divide", self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return call("divide", other, self)

    def __matmul__(self, other: Tensor) -> Tensor:
        return call("matmul", self, other)

    def __rmatmul__(self, other: Any) -> Tensor:
        return call("matmul", other, self)

    def __pow__(self, exponent: float) -> Tensor:
        return call("power", self, exponent)

    def __neg__(self) -> Tensor:
        return call("negative", self)

    def __abs__(self) -> Tensor:
        return call("absolute", self)

    def __getitem__(self, key: Any) -> Tensor:
        return call("getitem", self, key)

    @property
    def T(self) -> Tensor:
        """The axes reversed."""
        return call("transpose", self)

    def cast(self, dtype: npt.DTypeLike) -> Tensor:
        """Convert to another dtype: :func:`fp16sim.autograd.ops.cast`."""
        return call("cast", self, dtype)

    def reshape(self, *shape: Any) -> Tensor:
        """Give the values another shape: :func:`fp16sim.autograd.ops.reshape`."""
        return call(
            "reshape",
            self,
            shape[0] if len(shape) == 1 and not isinstance(shape[0], (int, np.integer)) else shape,
        )

    def transpose(self, *axes: Any) -> Tensor:
        """Exchange two axes, as torch does; a tuple, or any other number of axes, is their whole order, as in NumPy.

        Without arguments the order is reversed: :func:`fp16sim.autograd.ops.swapaxes` and `transpose`.

        >>> from fp16sim.autograd.tensor import Tensor
        >>> x = Tensor(np.zeros((2, 3, 4), np.float32))
        >>> x.transpose(0, 1).shape, x.transpose(2, 0, 1).shape, x.transpose().shape
        ((3, 2, 4), (4, 2, 3), (4, 3, 2))
        """
        if len(axes) == 2:
            return call("swapaxes", self, *axes)
        return call("transpose", self, axes[0] if len(axes) == 1 else axes or None)
