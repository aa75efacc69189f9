"""Activation functions as layers: the roundings are those of the functions in `autograd/ops/activations.py`."""

from __future__ import annotations

from fp16sim.autograd import ops
from fp16sim.autograd.tensor import Tensor, need_tensor
from fp16sim.emulator.formats import nearest_name
from fp16sim.nn.module import Module

__all__ = ["GELU", "LeakyReLU", "LogSoftmax", "ReLU", "SiLU", "Sigmoid", "Softmax", "Softplus", "Tanh"]


class ReLU(Module):
    """``max(x, 0)``, exactly; the gradient is 0 where x <= 0: :func:`fp16sim.autograd.ops.relu`.

    >>> ReLU()(Tensor([-1.0, 2.0])).data
    array([0., 2.], dtype=float32)
    """

    def __repr__(self) -> str:
        return "ReLU()"

    def forward(self, x: Tensor) -> Tensor:
        """Map any shape to the same shape."""
        need_tensor(x)
        return ops.relu(x)


class LeakyReLU(Module):
    """x above zero, elsewhere x times a slope: :func:`fp16sim.autograd.ops.leaky_relu`.

    >>> LeakyReLU(0.5)(Tensor([-1.0, 2.0])).data
    array([-0.5,  2. ], dtype=float32)
    """

    def __init__(self, negative_slope: float = 0.01) -> None:
        self.negative_slope = negative_slope

    def __repr__(self) -> str:
        return f"LeakyReLU({self.negative_slope})"

    def forward(self, x: Tensor) -> Tensor:
        """Map any shape to the same shape."""
        need_tensor(x)
        return ops.leaky_relu(x, self.negative_slope)


class GELU(Module):
    """x Phi(x), or with ``approximate="tanh"`` its approximation, in one rounding: :func:`fp16sim.autograd.ops.gelu`.

    >>> import numpy as np
    >>> GELU()(Tensor(np.float16([41.0]))).data
    array([41.], dtype=float16)
    """

    def __init__(self, approximate: str = "none") -> None:
        if approximate not in ("none", "tanh"):
            raise ValueError(
                f"approximate={approximate!r}: {nearest_name(str(approximate), ['none', 'tanh'])}"
            )
        self.approximate = approximate

    def __repr__(self) -> str:
        return "GELU()" if self.approximate == "none" else f"GELU(approximate={self.approximate!r})"

    def forward(self, x: Tensor) -> Tensor:
        """Map any shape to the same shape."""
        need_tensor(x)
        return ops.gelu(x, self.approximate)


class SiLU(Module):
    """x sigmoid(x), in one rounding: :func:`fp16sim.autograd.ops.silu`.

    >>> SiLU()(Tensor([0.0, 1.0])).data
    array([0.       , 0.7310586], dtype=float32)
    """

    def __repr__(self) -> str:
        return "SiLU()"

    def forward(self, x: Tensor) -> Tensor:
        """Map any shape to the same shape."""
        need_tensor(x)
        return ops.silu(x)


class Tanh(Module):
    """Hyperbolic tangent, in one rounding: :func:`fp16sim.autograd.ops.tanh`.

    >>> Tanh()(Tensor([0.0, 1.0])).data
    array([0.       , 0.7615942], dtype=float32)
    """

    def __repr__(self) -> str:
        return "Tanh()"

    def forward(self, x: Tensor) -> Tensor:
        """Map any shape to the same shape."""
        need_tensor(x)
        return ops.tanh(x)


class Sigmoid(Module):
    """1/(1 + exp(-x)), in one rounding: :func:`fp16sim.autograd.ops.sigmoid`.

    >>> import numpy as np
    >>> Sigmoid()(Tensor(np.float16([0.0, 8.4]))).data
    array([0.5, 1. ], dtype=float16)
    """

    def __repr__(self) -> str:
        return "Sigmoid()"

    def forward(self, x: Tensor) -> Tensor:
        """Map any shape to the same shape."""
        need_tensor(x)
        return ops.sigmoid(x)


class Softplus(Module):
    """log(1 + exp(x)), in one rounding: :func:`fp16sim.autograd.ops.softplus`.

    >>> Softplus()(Tensor([0.0])).data
    array([0.6931472], dtype=float32)
    """

    def __repr__(self) -> str:
        return "Softplus()"

    def forward(self, x: Tensor) -> Tensor:
        """Map any shape to the same shape."""
        need_tensor(x)
        return ops.softplus(x)


class Softmax(Module):
    """Exponentials along an axis over their sum: :func:`fp16sim.autograd.ops.softmax`.

    >>> Softmax()(Tensor([[0.0, 0.0]])).data
    array([[0.5, 0.5]], dtype=float32)
    """

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def __repr__(self) -> str:
        return f"Softmax(dim={self.dim})"

    def forward(self, x: Tensor) -> Tensor:
        """Map any shape to the same shape."""
        need_tensor(x)
        return ops.softmax(x, self.dim)


class LogSoftmax(Module):
    """Logarithms of softmax, finite where that is 0: :func:`fp16sim.autograd.ops.log_softmax`.

    >>> LogSoftmax()(Tensor([[0.0, 20.0]])).data
    array([[-20.,   0.]], dtype=float32)
    """

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def __repr__(self) -> str:
        return f"LogSoftmax(dim={self.dim})"

    def forward(self, x: Tensor) -> Tensor:
        """Map any shape to the same shape."""
        need_tensor(x)
        return ops.log_softmax(x, self.dim)
