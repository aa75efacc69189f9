"""Adam and AdamW."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np

from fp16sim.autograd.arithmetic import Arithmetic, Array
from fp16sim.autograd.tensor import Tensor
from fp16sim.emulator.programs import Program, Symbol, program_of
from fp16sim.optim.optimizer import Optimizer, RepeatedProduct, check_rate

__all__ = ["Adam", "AdamW"]


class Adam(Optimizer):
    """Adam: steps of about the learning rate, whatever the size of the gradient (Kingma and Ba, arXiv 1412.6980).

    Parameters
    ----------
    parameters : sequence of Tensor
    lr : float
        Learning rate.
    betas : pair of float
        Decays b1, b2 of the averages of the gradient and of its square, in [0, 1).
    eps : float
        Added to the denominator. 1e-8 is 0 in float16, whose smallest positive number is 6e-8.
    weight_decay : float
        Adds this times the weight to its gradient.

    Attributes
    ----------
    first, second : list of arrays or None
        The averages m and v of each parameter; None before its first step.
    steps : list of int
        How often each parameter has moved.

    Notes
    -----
    For each parameter w with gradient g at its step t, R(.) being a rounding to the format of w. What is inside
    R(.) without an array, such as R(1 - b1), is computed in binary64 and rounded once; b1^t and b2^t by repeated
    multiplication in binary64::

        g  <- R(g)
        g  <- R(g + R(R(weight_decay) w))                with weight decay
        m  <- R(m + R(R(1 - b1) R(g - m)))               from 0
              R(g - R(R(g - m) R(1 - R(1 - b1))))        instead, where R(1 - b1) >= 1/2
        v  <- R(R(R(b2) v) + R(R(R(1 - b2) g) g))        from 0
        d  <- R(R(R(sqrt(v)) / R(sqrt(1 - b2^t))) + R(eps))
        w  <- R(w - R(R(R(lr / (1 - b1^t)) m) / d))

    That is the sequence of torch 2.13 (`torch.optim.Adam`, ``foreach=False``), whose CPU kernels fuse some products
    into the sums that follow them, and whose square root is not always the nearest. In float16 with the usual options
    R(eps) is 0, and a first gradient under 2^-8 has v = 0 and moves the weight by infinity.

    Raises
    ------
    ValueError
        If an option is outside its range, or there are no parameters.

    Examples
    --------
    >>> import numpy as np
    >>> weight = Tensor(np.float32([1.0]), requires_grad=True)
    >>> Adam([weight], lr=0.125).step([np.float32([1e-4])])
    >>> weight.data
    array([0.8750125], dtype=float32)
    """

    hyperparameters = ("lr", "beta1", "beta2", "eps", "weight_decay")
    buffers = ("first", "second")
    counts = ("steps",)
    first: list[Array | None]
    second: list[Array | None]
    steps: list[int]

    def __init__(
        self,
        parameters: Sequence[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(parameters, lr)
        if np.shape(betas) != (2,):
            raise TypeError(
                f"betas={betas!r}: two averages have a decay each; pass a pair such as (0.9, 0.999)"
            )
        self.beta1, self.beta2 = betas
        self.eps, self.weight_decay = eps, weight_decay
        self._power1, self._power2 = RepeatedProduct(), RepeatedProduct()
        self.check(vars(self) | {"lr": lr})

    @property
    def betas(self) -> tuple[float, float]:
        """The decays of both averages."""
        return self.beta1, self.beta2

    def check(self, values: Mapping[str, Any]) -> None:
        """Refuse hyperparameters that cannot be."""
        super().check(values)
        for name in ("beta1", "beta2"):
            check_rate(
                name, values[name], "a decay of an average lies in [0, 1); choose one such as 0.9", 1.0
            )
        check_rate("eps", values["eps"], "it is finite and not negative; try 1e-8, or 1e-4 in float16")
        check_rate(
            "weight_decay", values["weight_decay"], "weight decay is finite and not negative; try 1e-2"
        )

    def shown(self) -> dict[str, Any]:
        """Give what the repr lists."""
        shown = {"lr": self.lr, "betas": self.betas, "eps": self.eps}
        return shown | ({"weight_decay": self.weight_decay} if self.weight_decay else {})

    def moved(self, position: int, weight: Array, gradient: Array, arithmetic: Arithmetic) -> Array:
        """Give the new value of a parameter, and update its averages."""
        self.steps[position] = t = self.steps[position] + 1
        m, v = (
            np.zeros_like(gradient) if before is None else before
            for before in (self.first[position], self.second[position])
        )
        part = 1.0 - self.beta1
        numbers = (
            self.lr / (1.0 - self._power1(self.beta1, t)),
            math.sqrt(1.0 - self._power2(self.beta2, t)),
            self.eps,
            part,
            self.beta2,
            1.0 - self.beta2,
            self.decay(),
            1.0,
        )
        rule = _rule(bool(self.weight_decay), self.decoupled, bool(arithmetic.constant(part, m) < 0.5))
        weight, self.first[position], self.second[position] = arithmetic.perform(
            rule, weight, gradient, m, v, constants=numbers
        )
        return weight

    decoupled: ClassVar[bool] = False
    """Whether weight decay acts on the weight and not through the gradient."""

    def decay(self) -> float:
        """Give the number of the rule's line for weight decay."""
        return self.weight_decay


@cache
def _rule(decay: bool, decoupled: bool, near: bool) -> Program:
    """Write down the new weight and both averages; `near` if the first one moves by less than half the way."""

    def rule(w: Symbol, g: Symbol, m: Symbol, v: Symbol, *numbers: Symbol) -> tuple[Symbol, ...]:
        size, correction, eps, part, beta2, part2, decay_number, one = numbers
        if decay:
            w, g = (w * decay_number, g) if decoupled else (w, g + w * decay_number)
        difference = g - m
        m = m + difference * part if near else g - difference * (one - part)
        v = v * beta2 + g * part2 * g
        d = v.sqrt() / correction + eps
        return w - m * size / d, m, v

    return program_of(rule, 4, 8)


class AdamW(Adam):
    """Adam with weight decay apart from the gradient (Loshchilov and Hutter, arXiv 1711.05101).

    Parameters and attributes are those of :class:`Adam`.

    Notes
    -----
    As :class:`Adam`, with this in place of its second line::

        w  <- R(R(1 - lr weight_decay) w)

    In float16 that factor is 1, and nothing decays, wherever ``lr * weight_decay`` is at most 2^-12. Source: torch
    2.13, `torch.optim.AdamW`.

    Examples
    --------
    >>> import numpy as np
    >>> weight = Tensor(np.float32([1.0]), requires_grad=True)
    >>> AdamW([weight], lr=0.5, weight_decay=0.5).step([np.float32([0.0])])
    >>> weight.data
    array([0.75], dtype=float32)
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        super().__init__(parameters, lr, betas, eps, weight_decay)

    decoupled: ClassVar[bool] = True

    def decay(self) -> float:
        """Give what the weight is multiplied by."""
        return 1.0 - self.lr * self.weight_decay
