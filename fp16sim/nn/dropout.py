"""Dropout whose mask is a function of the seed, the layer and the call."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from fp16sim.autograd import ops
from fp16sim.autograd.checkpoint import remembered
from fp16sim.autograd.ops.dropout import dropout_factor
from fp16sim.autograd.tensor import Tensor, need_tensor
from fp16sim.nn.module import Module
from fp16sim.nn.random import next_stream, uniform_integers

__all__ = ["Dropout"]


class Dropout(Module):
    """While training, drop each value with probability p and multiply the others by 1/(1-p).

    Parameters
    ----------
    p : float
        Between 0 and 1.

    Attributes
    ----------
    calls : int
        How many masks were drawn; it is saved with the state, so that a resumed run draws the same ones.

    Notes
    -----
    Element i, in C order, is kept where integer i of :func:`fp16sim.nn.random.uniform_integers`, of the seed and
    layer number that the layer took when it was made, and of step `calls`, is at least ceil(p 2^24). The roundings are
    those of :func:`fp16sim.autograd.ops.dropout`. With p = 0, or in :meth:`eval`, the input is returned as it is and no
    mask is drawn. Dropped infinities are NaN, as in torch.

    Examples
    --------
    >>> from fp16sim.nn.random import streams
    >>> with streams(0):
    ...     layer = Dropout(0.5)
    >>> layer(Tensor([1.0, 1.0, 1.0, 1.0])).data
    array([0., 2., 2., 2.], dtype=float32)
    >>> layer.eval()(Tensor([1.0, 1.0])).data
    array([1., 1.], dtype=float32)
    """

    state = ("calls",)

    def __init__(self, p: float = 0.5) -> None:
        dropout_factor(p)  # refuses what is no probability
        self.p = float(p)
        self.calls = 0
        self._stream = next_stream()

    def __repr__(self) -> str:
        return f"Dropout({self.p})"

    def forward(self, x: Tensor) -> Tensor:
        """Map any shape to the same shape."""
        need_tensor(x)
        if not self.training or self.p == 0:
            return x
        return ops.dropout(x, self._mask(x.shape, remembered(self._next_call)), self.p)

    def _next_call(self) -> int:
        self.calls += 1
        return self.calls - 1

    def _mask(self, shape: tuple[int, ...], call: int) -> npt.NDArray[np.bool_]:
        seed, layer = self._stream
        drawn = uniform_integers(seed, math.prod(shape), layer, call)
        return np.asarray(drawn >= math.ceil(self.p * 2**24)).reshape(shape)
