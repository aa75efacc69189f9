"""Learning rates as functions of the number of steps taken.

A schedule computes in binary64, from + - * / and a cosine of fixed steps, so its rates are the same bits on every
machine; the optimizer rounds what it makes of a rate to the format of the weights, once. `step` counts steps that were
applied: a step that the loss scaler skips does not move a schedule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fp16sim.autograd.tensor import need_state
from fp16sim.emulator import float64_functions
from fp16sim.optim.optimizer import Optimizer, check_rate

__all__ = ["Schedule", "Scheduler", "constant", "cosine", "exponential", "linear_warmup", "step_decay"]


@dataclass(frozen=True)
class Schedule:
    """A learning rate for each number of applied steps, counted from 0.

    Made by the functions of this module; any function from a number of steps to a rate does as well.

    >>> constant(0.1)
    constant(lr=0.1)
    """

    name: str
    options: Mapping[str, float]
    rule: Callable[[int], float] = field(repr=False, compare=False)

    def __call__(self, step: int) -> float:
        """Give the rate for the step that follows `step` applied ones."""
        if isinstance(step, bool) or not isinstance(step, (int, np.integer)) or step < 0:
            raise ValueError(
                f"step={step!r}: a schedule is asked for 0 applied steps or more; pass an integer"
            )
        return self.rule(int(step))

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.options.items())})"


def constant(lr: float) -> Schedule:
    """Give `lr` at every step.

    >>> constant(0.1)(1000)
    0.1
    """
    _check(lr=lr)
    return Schedule("constant", {"lr": lr}, lambda step: lr)


def step_decay(lr: float, step_size: int, gamma: float = 0.1) -> Schedule:
    """Multiply the rate by `gamma` after every `step_size` steps: lr gamma^floor(step / step_size).

    The power is taken by squaring. torch 2.13: `torch.optim.lr_scheduler.StepLR`.

    >>> [step_decay(1.0, 2, 0.5)(step) for step in range(5)]
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """
    _check(lr=lr, gamma=gamma)
    _check_count("step_size", step_size, 1)
    options = {"lr": lr, "step_size": step_size, "gamma": gamma}
    return Schedule("step_decay", options, lambda step: lr * _power(gamma, step // step_size))


def exponential(lr: float, gamma: float) -> Schedule:
    """Multiply the rate by `gamma` after every step: lr gamma^step.

    The power is taken by squaring. torch 2.13: `torch.optim.lr_scheduler.ExponentialLR`.

    >>> exponential(1.0, 0.5)(3)
    0.125
    """
    _check(lr=lr, gamma=gamma)
    return Schedule("exponential", {"lr": lr, "gamma": gamma}, lambda step: lr * _power(gamma, step))


def linear_warmup(lr: float, warmup: int) -> Schedule:
    """Rise by equal amounts to `lr` at step ``warmup - 1``, from lr / warmup at step 0, and stay there.

    >>> [linear_warmup(1.0, 4)(step) for step in range(5)]
    [0.25, 0.5, 0.75, 1.0, 1.0]
    """
    _check(lr=lr)
    _check_count("warmup", warmup, 0)
    return Schedule("linear_warmup", {"lr": lr, "warmup": warmup}, lambda step: _warm(lr, warmup, step))


def cosine(lr: float, total: int, warmup: int = 0, final: float = 0.0) -> Schedule:
    """Rise as :func:`linear_warmup`, then fall along half a cosine to `final` at step `total`, and stay there.

    final + (lr - final) (1 + cos(pi (step - warmup) / (total - warmup))) / 2, without restarts (Loshchilov and Hutter,
    arXiv 1608.03983). torch 2.13: `torch.optim.lr_scheduler.CosineAnnealingLR`.

    >>> [cosine(1.0, 4)(step) for step in (0, 2, 4, 9)]
    [1.0, 0.5, 0.0, 0.0]
    """
    _check(lr=lr, final=final)
    _check_count("warmup", warmup, 0)
    _check_count("total", total, warmup + 1)

    def rule(step: int) -> float:
        if step < warmup:
            return _warm(lr, warmup, step)
        if step >= total:
            return final
        return final + (lr - final) * (1.0 + _cosine_of_part((step - warmup) / (total - warmup))) / 2.0

    return Schedule("cosine", {"lr": lr, "total": total, "warmup": warmup, "final": final}, rule)


class Scheduler:
    """Keep the rate of an optimizer on a schedule, in a loop of your own.

    Parameters
    ----------
    optimizer : Optimizer
        Gets the rate of step 0 at once.
    schedule : callable
        From a number of applied steps to a rate.

    Attributes
    ----------
    applied : int
        Steps taken so far.

    Examples
    --------
    >>> from fp16sim.autograd.tensor import Tensor
    >>> from fp16sim.optim import SGD
    >>> optimizer = SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    >>> scheduler = Scheduler(optimizer, step_decay(1.0, 1, 0.5))
    >>> scheduler.advance()  # after a step that was applied, and only then
    >>> optimizer.lr
    0.5
    """

    def __init__(self, optimizer: Optimizer, schedule: Callable[[int], float]) -> None:
        if not callable(schedule):
            raise TypeError(
                f"the schedule is a {type(schedule).__name__}: pass a function of the number of applied steps, such as "
                "constant(0.1)"
            )
        self.optimizer, self.schedule, self.applied = optimizer, schedule, 0
        optimizer.lr = schedule(0)

    def __repr__(self) -> str:
        return f"Scheduler({self.schedule!r}, applied={self.applied})"

    def advance(self) -> None:
        """Move on by one step: to be called after a step that was applied, not after one that was skipped."""
        self.applied += 1
        self.optimizer.lr = self.schedule(self.applied)

    def state_dict(self) -> dict[str, int]:
        """Give the number of applied steps; the schedule itself is made anew."""
        return {"applied": self.applied}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` gave, and set the rate accordingly."""
        need_state(saved)
        if set(saved) != {"applied"}:
            raise ValueError(
                f"the state of a Scheduler is 'applied' alone, not {sorted(saved)}: pass state_dict()"
            )
        applied = np.asarray(saved["applied"]).item()
        _check_count("applied", applied, 0)
        self.applied = applied
        self.optimizer.lr = self.schedule(applied)


def _check(**rates: float) -> None:
    for name, value in rates.items():
        check_rate(name, value, "it is finite and not negative; try 0.1")


def _check_count(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name}={value!r}: a number of steps, {least} or more; pass an integer")


def _warm(lr: float, warmup: int, step: int) -> float:
    return lr if step >= warmup else lr * ((step + 1) / warmup)


def _power(base: float, count: int) -> float:
    """base^count by squaring, each product rounded to binary64."""
    result = 1.0
    while count:
        if count & 1:
            result *= base
        base, count = base * base, count >> 1
    return result


def _cosine_of_part(part: float) -> float:
    """cos(pi part) for part in [0, 1], exactly 0 at 1/2 and odd about it."""
    if part > 0.5:
        return -_cosine_of_part(1.0 - part)  # the difference is exact
    if part == 0.5:
        return 0.0
    return float(float64_functions.cos(np.float64(math.pi * part)))
