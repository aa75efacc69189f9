"""What a model is made of beside its arrays, so that a run is not taken up with another one."""

from __future__ import annotations

from typing import Any

from fp16sim.autograd.policy import Policy
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn import Module

__all__ = ["described"]

_PLAIN = (bool, int, float, str, tuple, Policy)


def described(name: str, part: Any) -> dict[str, Any]:
    """Name the kinds of all modules and their options: a probability, a slope, the random stream of a dropout.

    Parameters
    ----------
    name : str
        What the part itself is called.
    part : Module, or a function, of which only the name counts

    Examples
    --------
    >>> from fp16sim.nn import LeakyReLU, Sequential
    >>> described("model", Sequential(LeakyReLU(0.25)))
    {'model': 'Sequential', "layer '0'": 'LeakyReLU', "layer '0' negative_slope": 0.25}
    """
    if not isinstance(part, Module):
        return {name: getattr(part, "__qualname__", type(part).__name__)}
    found: dict[str, Any] = {}
    for path, module in part.named_modules():
        where = f"layer {path!r}" if path else name
        found[where] = type(module).__name__
        for option, value in vars(module).items():
            counts = option == "training" or option in module.state
            if isinstance(value, _PLAIN) and not counts and not _holds_parts(value):
                found[f"{where} {option.lstrip('_')}"] = value
        for own, parameter in module.own_parameters():
            if not parameter.requires_grad:
                found[f"{where} {own}"] = "without gradient"
    return found


def _holds_parts(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_holds_parts, value))
    return isinstance(value, (Module, Tensor, dict))
