"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fp16sim.autograd.arithmetic import Arithmetic, Array
from fp16sim.autograd.tensor import Tensor
from fp16sim.optim.optimizer import Optimizer, check_rate

__all__ = ["SGD"]


class SGD(Optimizer):
    """Stochastic gradient descent with momentum, by torch's rule and in its order.

    Parameters
    ----------
    parameters : sequence of Tensor
    lr : float
        Learning rate.
    momentum : float
        In [0, 1).
    weight_decay : float
        Adds this times the weight to its gradient.
    nesterov : bool
        Look ahead along the velocity (Sutskever et al., ICML 2013); needs momentum.

    Attributes
    ----------
    velocity : list of arrays or None
        v of each parameter; None before its first step and without momentum.

    Notes
    -----
    For each parameter w with gradient g, R(.) being a rounding to the format of w, to which lr, momentum and weight
    decay are rounded once each::

        g  <- R(g)
        g  <- R(g + R(weight_decay w))      with weight decay
        v  <- g                             on the first step
        v  <- R(R(momentum v) + g)          later
        d  <- v,   Nesterov: R(g + R(momentum v))
        w  <- R(w - R(lr d))

    Without momentum v is g. In binary32 each is one IEEE operation; for float16 parameters each is one
    binary16 operation: updates smaller than half an ulp of the weight are lost, which is what master weights
    prevent. torch 2.13 (`torch.optim.SGD`, ``foreach=False``) has the same sequence; its CPU kernels fuse a product
    into the sum that follows it, except in the velocity.

    Raises
    ------
    ValueError
        If the learning rate or weight decay is negative or not finite, momentum is outside [0, 1), Nesterov has no
        momentum, or there are no parameters.

    Examples
    --------
    >>> import numpy as np
    >>> weight = Tensor(np.float32([1.0]), requires_grad=True)
    >>> SGD([weight], lr=0.5).step([np.float32([1.0])])
    >>> weight.data
    array([0.5], dtype=float32)
    """

    hyperparameters = ("lr", "momentum", "weight_decay", "nesterov")
    buffers = ("velocity",)
    velocity: list[Array | None]

    def __init__(
        self,
        parameters: Sequence[Tensor],
        lr: float,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(parameters, lr)
        self.momentum, self.weight_decay, self.nesterov = momentum, weight_decay, nesterov
        self.check(vars(self) | {"lr": lr})

    def check(self, values: Mapping[str, Any]) -> None:
        """Refuse hyperparameters that cannot be."""
        super().check(values)
        check_rate("momentum", values["momentum"], "momentum lies in [0, 1); choose one such as 0.9", 1.0)
        check_rate(
            "weight_decay", values["weight_decay"], "weight decay is finite and not negative; try 1e-4"
        )
        if values["nesterov"] and not values["momentum"]:
            raise ValueError("nesterov=True without momentum: it looks ahead along it; pass momentum=0.9")

    def shown(self) -> dict[str, Any]:
        """Give what the repr lists: options that are used."""
        extras = {"weight_decay": self.weight_decay, "nesterov": self.nesterov}
        return {"lr": self.lr, "momentum": self.momentum} | {k: v for k, v in extras.items() if v}

    def moved(self, position: int, weight: Array, gradient: Array, arithmetic: Arithmetic) -> Array:
        """Give the new value of a parameter, and update its velocity."""
        r = arithmetic
        if self.weight_decay:
            decay = r.constant(self.weight_decay, weight)
            gradient = r.add(gradient, r.multiply(weight, decay))
        direction = gradient
        if self.momentum:
            momentum = r.constant(self.momentum, weight)
            before = self.velocity[position]
            if before is None:
                direction = gradient.copy()  # the caller's array may change
            else:
                direction = r.add(r.multiply(before, momentum), gradient)
            self.velocity[position] = direction
            if self.nesterov:
                direction = r.add(gradient, r.multiply(direction, momentum))
        return r.subtract(weight, r.multiply(direction, r.constant(self.lr, weight)))
