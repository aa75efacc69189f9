"""The fully connected layer."""

from __future__ import annotations

import numpy as np

from fp16sim.autograd import ops
from fp16sim.autograd.tensor import Tensor, need_tensor
from fp16sim.nn.initial import he_normal, need_widths
from fp16sim.nn.module import Module

__all__ = ["Linear"]


class Linear(Module):
    """``y = x W^T + b``.

    Parameters
    ----------
    in_features, out_features : int
        Widths.
    bias : bool
        Whether to add b.

    Attributes
    ----------
    weight : Tensor, shape (out_features, in_features), float32
        He initialisation: standard normal numbers of the next random stream
        (:func:`fp16sim.nn.random.manual_seed`) times sqrt(2 / in_features), in float64, rounded to float32 once.
    bias : Tensor, shape (out_features,), float32, or None
        Zeros.

    Notes
    -----
    The roundings are those of :func:`fp16sim.autograd.ops.linear`, in the compute format of the policy: x, W and b are
    rounded to it once each (weights stay float32 under mixed policies).

    Examples
    --------
    >>> layer = Linear(3, 2)
    >>> layer
    Linear(3, 2)
    >>> layer(Tensor([[1.0, 0.0, 0.0]])).shape
    (1, 2)
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        need_widths(in_features=in_features, out_features=out_features)
        self.weight = Tensor(he_normal((out_features, in_features), in_features), requires_grad=True)
        self.bias = Tensor(np.zeros(out_features, np.float32), requires_grad=True) if bias else None

    def __repr__(self) -> str:
        outputs, inputs = self.weight.shape
        return f"Linear({inputs}, {outputs}{'' if self.bias is not None else ', bias=False'})"

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in_features) to (..., out_features)."""
        need_tensor(x)
        width = self.weight.shape[1]
        if x.ndim < 1 or x.shape[-1] != width:
            raise ValueError(
                f"an input of shape {x.shape} for a Linear of {width} inputs: pass (..., {width})"
            )
        return ops.linear(x, self.weight, self.bias)
