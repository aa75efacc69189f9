"""RMSprop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fp16sim.autograd.arithmetic import Arithmetic, Array
from fp16sim.autograd.tensor import Tensor
from fp16sim.optim.averages import average, average_of_squares
from fp16sim.optim.optimizer import Optimizer, check_flag, check_rate

__all__ = ["RMSprop"]


class RMSprop(Optimizer):
    """Gradients divided by a running root mean square of theirs (Hinton, lecture 6e of his course, 2012).

    Parameters
    ----------
    parameters : sequence of Tensor
    lr : float
        Learning rate.
    alpha : float
        Decay of the averages, in [0, 1).
    eps : float
        Added to the denominator. 1e-8 is 0 in float16.
    weight_decay : float
        Adds this times the weight to its gradient.
    momentum : float
        In [0, 1).
    centered : bool
        Divide by the standard deviation: the square of the average gradient is subtracted.

    Attributes
    ----------
    second, first, velocity : lists of arrays or None
        v, a and b of each parameter; None before its first step and where they are not used.

    Notes
    -----
    For each parameter w with gradient g, R(.) being a rounding to the format of w; what is inside R(.) without an
    array is computed in binary64 and rounded once::

        g  <- R(g)
        g  <- R(g + R(R(weight_decay) w))                  with weight decay
        v  <- R(R(R(alpha) v) + R(R(R(1 - alpha) g) g))    from 0
        a  <- R(a + R(R(1 - alpha) R(g - a)))              from 0, where centered;
              R(g - R(R(g - a) R(1 - R(1 - alpha))))       instead, where alpha <= 1/2
        d  <- R(R(sqrt(v)) + R(eps)),   centered: R(R(sqrt(R(v - R(a a)))) + R(eps))
        w  <- R(w - R(R(R(lr) g) / d))                     without momentum
        b  <- R(R(R(momentum) b) + R(g / d))               with momentum, from 0; then
        w  <- R(w - R(R(lr) b))

    That is the sequence of torch 2.13 (`torch.optim.RMSprop`, ``foreach=False``), whose CPU kernels fuse some products
    into the sums that follow them. Where rounding leaves v < a a, the root is NaN, as in torch.

    Raises
    ------
    ValueError
        If an option is outside its range, or there are no parameters.

    Examples
    --------
    >>> weight = Tensor(np.float32([1.0]), requires_grad=True)
    >>> RMSprop([weight], lr=0.125, alpha=0.75).step([np.float32([1e-4])])
    >>> weight.data
    array([0.75005], dtype=float32)
    """

    hyperparameters = ("lr", "alpha", "eps", "weight_decay", "momentum", "centered")
    buffers = ("second", "first", "velocity")
    first: list[Array | None]
    second: list[Array | None]
    velocity: list[Array | None]

    def __init__(
        self,
        parameters: Sequence[Tensor],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
    ) -> None:
        super().__init__(parameters, lr)
        self.alpha, self.eps, self.weight_decay = alpha, eps, weight_decay
        self.momentum, self.centered = momentum, centered
        self.check(vars(self) | {"lr": lr})

    def check(self, values: Mapping[str, Any]) -> None:
        """Refuse hyperparameters that cannot be."""
        super().check(values)
        check_rate(
            "alpha", values["alpha"], "a decay of an average lies in [0, 1); choose one such as 0.99", 1.0
        )
        check_rate("eps", values["eps"], "it is finite and not negative; try 1e-8, or 1e-4 in float16")
        check_rate("momentum", values["momentum"], "momentum lies in [0, 1); choose one such as 0.9", 1.0)
        check_rate(
            "weight_decay", values["weight_decay"], "weight decay is finite and not negative; try 1e-4"
        )
        check_flag("centered", values["centered"])

    def shown(self) -> dict[str, Any]:
        """Give what the repr lists: options that are used."""
        extras = {name: getattr(self, name) for name in ("weight_decay", "momentum", "centered")}
        shown = {"lr": self.lr, "alpha": self.alpha, "eps": self.eps}
        return shown | {name: value for name, value in extras.items() if value}

    def moved(self, position: int, weight: Array, gradient: Array, arithmetic: Arithmetic) -> Array:
        """Give the new value of a parameter, and update its averages."""
        r = arithmetic
        if self.weight_decay:
            decay = r.constant(self.weight_decay, weight)
            gradient = r.add(gradient, r.multiply(weight, decay))
        v = self.second[position] = average_of_squares(r, self.second[position], gradient, self.alpha)
        if self.centered:
            a = self.first[position] = average(r, self.first[position], gradient, self.alpha)
            v = r.subtract(v, r.multiply(a, a))
        d = r.add(r.sqrt(v), r.constant(self.eps, v))
        rate = r.constant(self.lr, weight)
        if not self.momentum:
            return r.subtract(weight, r.divide(r.multiply(gradient, rate), d))
        before = self.velocity[position]
        b = np.zeros_like(weight) if before is None else before
        b = r.add(r.multiply(b, r.constant(self.momentum, b)), r.divide(gradient, d))
        self.velocity[position] = b
        return r.subtract(weight, r.multiply(b, rate))
