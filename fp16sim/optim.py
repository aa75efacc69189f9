"""Optimizers. State and arithmetic have the format of the parameters: float32 for master weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fp16sim.autograd.arithmetic import Arithmetic, Array, round_array
from fp16sim.autograd.tensor import Tensor

__all__ = ["SGD"]


class SGD:
    """Stochastic gradient descent with momentum, by torch's rule and in its order.

    Parameters
    ----------
    parameters : sequence of Tensor
    lr : float
        Learning rate, rounded to the format of each parameter once.
    momentum : float
        In [0, 1), rounded likewise.

    Notes
    -----
    For each parameter w with gradient g, R(.) being a rounding to the format of w::

        g  <- R(g)
        v  <- g                       on the first step
        v  <- R(R(momentum v) + g)    later
        w  <- R(w - R(lr v))

    Without momentum v is g. In binary32 each is one IEEE operation; for float16 parameters each is one
    binary16 operation: updates smaller than half an ulp of the weight are lost, which is what master weights
    prevent.

    Raises
    ------
    ValueError
        If the learning rate is negative or not finite, momentum is outside [0, 1), or there are no
        parameters.

    Examples
    --------
    >>> weight = Tensor(np.float32([1.0]), requires_grad=True)
    >>> SGD([weight], lr=0.5).step([np.float32([1.0])])
    >>> weight.data
    array([0.5], dtype=float32)
    """

    def __init__(self, parameters: Sequence[Tensor], lr: float, momentum: float = 0.0) -> None:
        self.parameters = list(parameters)
        if not self.parameters:
            raise ValueError("no parameters: pass model.parameters() of a model that has some")
        if not (math.isfinite(lr) and lr >= 0):
            raise ValueError(f"lr={lr!r}: a learning rate is finite and not negative; try 0.05")
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum={momentum!r}: momentum lies in [0, 1); choose one such as 0.9")
        self.lr = lr
        self.momentum = momentum
        self.velocity: list[Array | None] = [None] * len(self.parameters)

    def __repr__(self) -> str:
        count = len(self.parameters)
        return f"SGD({count} parameter{'s' * (count > 1)}, lr={self.lr!r}, momentum={self.momentum!r})"

    def zero_grad(self) -> None:
        """Forget the gradients: every parameter's `grad` becomes None, as torch does by default."""
        for parameter in self.parameters:
            parameter.grad = None

    def step(self, gradients: Sequence[Array | None] | None = None) -> None:
        """Move every parameter.

        Parameters
        ----------
        gradients : sequence of arrays, optional
            One for each parameter, loss scale divided out; None leaves a parameter alone. Default: their
            `grad`.
        """
        if gradients is None:
            gradients = [parameter.grad for parameter in self.parameters]
        if len(gradients) != len(self.parameters):
            raise ValueError(
                f"{len(gradients)} gradients for {len(self.parameters)} parameters: "
                "pass one for each, or None"
            )
        arithmetic = Arithmetic()
        with np.errstate(all="ignore"):
            for position, (parameter, gradient) in enumerate(zip(self.parameters, gradients, strict=True)):
                if gradient is None:
                    continue
                dtype = parameter.dtype
                velocity = round_array(gradient, dtype)
                before = self.velocity[position]
                if self.momentum and before is not None:
                    momentum = round_array(np.asarray(self.momentum), dtype)
                    velocity = arithmetic.add(arithmetic.multiply(before, momentum), velocity)
                if self.momentum:
                    self.velocity[position] = velocity
                rate = round_array(np.asarray(self.lr), dtype)
                parameter.data = arithmetic.subtract(parameter.data, arithmetic.multiply(velocity, rate))
