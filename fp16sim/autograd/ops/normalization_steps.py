"""The steps of normalisations, every one of them rounded in the format of the operation: float32 under mixed policies.

A mean runs in C order from +0 by the policy's reduction; it is divided in the accumulator's format and rounded to that
of the operation last. With x the elements, w the weight and b the bias, all steps forward are

1. m = mean(x); d = x - m (RMSNorm has neither: d = x)
2. v = mean(d d): squares are rounded, and so is their mean; the number of terms divides it ("biased")
3. r = 1 / sqrt(v + eps): three roundings; eps is rounded to the format first
4. n = d r; y = n w; y + b

Gradients keep x, m, r and w, and compute n again as it was.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from fp16sim.autograd.arithmetic import Arithmetic, Array, round_array
from fp16sim.autograd.operation import Op, run
from fp16sim.autograd.tensor import Context, Tensor, need_tensor
from fp16sim.emulator.programs import Program, Symbol, program_of

__all__ = [
    "Parts",
    "Saved",
    "check_channels",
    "checked_eps",
    "deviation",
    "normalised_again",
    "over_channels",
    "rest_of",
    "root_of",
    "run_with",
    "scaled",
]

Saved = tuple[Any, ...]
Parts = tuple[Array | None, ...]


def _deviation_rule(x: Symbol, mean: Symbol) -> tuple[Symbol, ...]:
    d = x - mean
    return d, d * d


_ROOT = program_of(lambda variance, eps, one: (one / (variance + eps).sqrt(),), 1, 2)
_DEVIATION = program_of(_deviation_rule, 2)
_NORMALISED = program_of(lambda x, mean, root: ((x - mean) * root,), 3)


@cache
def scaled(weight: bool, bias: bool) -> Program:
    """Write down step 4: the deviation and the root, then weight and bias if there are any."""

    def rule(d: Symbol, root: Symbol, *parameters: Symbol) -> tuple[Symbol, ...]:
        y = d * root
        y = y * parameters[0] if weight else y
        return (y + parameters[-1] if bias else y,)

    return program_of(rule, 2 + weight + bias)


def root_of(arithmetic: Arithmetic, variance: Array, eps: float) -> Array:
    """Give r, step 3."""
    return arithmetic.perform(_ROOT, variance, constants=(eps, 1.0))[0]


def deviation(arithmetic: Arithmetic, x: Array, mean: Array | None) -> list[Array]:
    """Give d and its square."""
    if mean is None:
        return [x, arithmetic.multiply(x, x)]
    return arithmetic.perform(_DEVIATION, x, mean)


def normalised_again(
    context: Context, x: Array, mean: Array | None, root: Array, like: Array, dtype: Any
) -> Array:
    """Compute n as forward did, in its format; in a wide backward pass the saved arrays have been widened."""
    arithmetic = context.arithmetic
    x, root = round_array(x, dtype), round_array(root, dtype)
    if mean is None:
        return round_array(arithmetic.multiply(x, root), like.dtype)
    return round_array(arithmetic.perform(_NORMALISED, x, round_array(mean, dtype), root)[0], like.dtype)


def over_channels(a: Array, view: tuple[int, ...]) -> Array:
    """Let an array of one number a channel stretch over `view`.

    That is (examples, channels), (examples, channels, places), or (examples, groups, channels of a group, places).
    """
    return a.reshape(view[1], *view[2:3] * (len(view) == 4), *(1,) * (len(view) > 2))


def rest_of(view: tuple[int, ...]) -> tuple[int, ...]:
    """Give the axes beside the channels."""
    return (0,) if len(view) == 2 else (0, len(view) - 1)


def run_with(op: Op, x: Tensor, weight: Tensor | None, bias: Tensor | None, **options: Any) -> Tensor:
    """Run an operation with those parameters that there are, and name them to it."""
    given = {name: part for name, part in (("weight", weight), ("bias", bias)) if part is not None}
    return run(op, x, *given.values(), names=tuple(given), **options)


def checked_eps(name: str, eps: float) -> float:
    """Refuse what cannot be added to a variance."""
    if isinstance(eps, bool) or not isinstance(eps, (int, float, np.number)) or not eps >= 0:
        raise ValueError(f"{name} with eps={eps!r}: it is added to a variance; pass a number from 0 on")
    return float(eps)


def check_channels(name: str, x: Tensor, **parameters: Tensor | None) -> None:
    """Refuse a tensor without channels, and parameters that do not have one number for each."""
    need_tensor(x)
    if x.ndim < 2:
        raise ValueError(f"{name} of shape {x.shape}: pass (batch, channels) and any spatial axes")
    for which, parameter in parameters.items():
        if parameter is not None:
            need_tensor(parameter)
            if parameter.shape != (x.shape[1],):
                raise ValueError(
                    f"{name} of {x.shape[1]} channels with a {which} of shape {parameter.shape}: pass one number for "
                    "each channel"
                )
