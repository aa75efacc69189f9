"""The fully connected layer."""

from __future__ import annotations

import math

import numpy as np

from fp16sim.autograd import ops
from fp16sim.autograd.arithmetic import Array
from fp16sim.autograd.policy import current_policy
from fp16sim.autograd.tensor import Tensor, need_tensor
from fp16sim.nn.module import Module
from fp16sim.nn.random import normals

__all__ = ["Linear"]


class Linear(Module):
    """``y = x W^T + b``.

    Parameters
    ----------
    inputs, outputs : int
        Widths.
    seed : int
        The key of the random numbers.
    layer : int, optional
        The random stream of the initial weights; layers of one network take different numbers. Default: 0,
        until a :class:`Sequential` takes the layer in and gives it the number of its place.

    Attributes
    ----------
    weight : Tensor, shape (outputs, inputs), float32
        He initialisation: standard normal numbers times sqrt(2 / inputs), in float64, rounded to float32
        once.
    bias : Tensor, shape (outputs,), float32
        Zeros.

    Notes
    -----
    In the compute format of the policy: x, W and b are rounded to it (once each; weights stay float32 under
    mixed_float16), the product is accumulated as the policy's matmul says and rounded, the sum with the bias
    is rounded. Gradients follow the same path back; that of the bias is the sum over the batch, by the
    policy's reduction.

    Modules of your own give no numbers: pass `layer` to each Linear there, or equal shapes start alike.

    Examples
    --------
    >>> layer = Linear(3, 2)
    >>> layer
    Linear(3, 2)
    >>> layer(Tensor([[1.0, 0.0, 0.0]])).shape
    (1, 2)
    """

    def __init__(self, inputs: int, outputs: int, *, seed: int = 0, layer: int | None = None) -> None:
        for name, value in (("inputs", inputs), ("outputs", outputs)):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise ValueError(
                    f"{name}={value!r}: a layer has a width of 1 or more; pass a positive integer"
                )
        self.seed = seed
        self._layer = 0 if layer is None else layer
        self._fixed = layer is not None
        weights = _initial_weights(seed, self._layer, (outputs, inputs))
        self.weight = Tensor(weights, requires_grad=True)
        self.bias = Tensor(np.zeros(outputs, np.float32), requires_grad=True)

    def __repr__(self) -> str:
        outputs, inputs = self.weight.shape
        return f"Linear({inputs}, {outputs})"

    def take_place(self, place: int) -> None:
        """Draw the weights anew from the stream `place`, unless `layer` was given or the weights have changed.

        :class:`Sequential` calls it. Trained or loaded weights stay, bit for bit.
        """
        initial = _initial_weights(self.seed, self._layer, self.weight.shape)
        untouched = self.weight.dtype == initial.dtype and self.weight.data.tobytes() == initial.tobytes()
        if untouched and not self._fixed:
            self._layer = place
            self.weight.data = _initial_weights(self.seed, place, self.weight.shape)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, inputs) to (batch, outputs)."""
        need_tensor(x)
        if len(x.shape) != 2 or x.shape[1] != self.weight.shape[1]:
            raise ValueError(
                f"an input of shape {x.shape} for a Linear of {self.weight.shape[1]} inputs: "
                f"pass (batch, {self.weight.shape[1]})"
            )
        dtype = current_policy().compute
        product = ops.matmul(ops.cast(x, dtype), ops.transpose(ops.cast(self.weight, dtype)))
        return ops.add(product, ops.cast(self.bias, dtype))


def _initial_weights(seed: int, layer: int, shape: tuple[int, ...]) -> Array:
    outputs, inputs = shape
    values = normals(seed, inputs * outputs, layer) * math.sqrt(2.0 / inputs)
    return values.reshape(shape).astype(np.float32)
