"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from fp16sim.autograd.arithmetic import Arithmetic, Array
from fp16sim.autograd.tensor import Tensor
from fp16sim.emulator.programs import Program, Symbol, program_of
from fp16sim.optim.optimizer import Optimizer, check_flag, check_rate

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
        check_flag("nesterov", values["nesterov"])
        if values["nesterov"] and not values["momentum"]:
            raise ValueError("nesterov=True without momentum: it looks ahead along it; pass momentum=0.9")

    def shown(self) -> dict[str, Any]:
        """Give what the repr lists: options that are used."""
        extras = {"weight_decay": self.weight_decay, "nesterov": self.nesterov}
        return {"lr": self.lr, "momentum": self.momentum} | {k: v for k, v in extras.items() if v}

    def moved(self, position: int, weight: Array, gradient: Array, arithmetic: Arithmetic) -> Array:
        """Give the new value of a parameter, and update its velocity."""
        before = self.velocity[position] if self.momentum else None
        operands = (weight, gradient) if before is None else (weight, gradient, before)
        rule = _rule(bool(self.weight_decay), before is not None, self.nesterov)
        numbers = (self.lr, self.weight_decay, self.momentum)
        weight, *directions = arithmetic.perform(rule, *operands, constants=numbers)
        if self.momentum:  # the first velocity may be the gradient, whose array the caller may change
            self.velocity[position] = directions[0] if directions else gradient.copy()
        return weight


@cache
def _rule(decay: bool, moving: bool, nesterov: bool) -> Program:
    """Write down the new weight and, if it is computed, the velocity; `moving` if there is one before."""

    def rule(w: Symbol, g: Symbol, *rest: Symbol) -> tuple[Symbol, ...]:
        *before, lr, weight_decay, momentum = rest
        g = g + w * weight_decay if decay else g
        v = before[0] * momentum + g if moving else g
        d = g + v * momentum if nesterov else v
        w = w - d * lr
        return (w, v) if decay or moving else (w,)

    return program_of(rule, 3 if moving else 2, 3)
