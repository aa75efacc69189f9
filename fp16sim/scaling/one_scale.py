"""What is asked of a scaler that has one scale for all gradients, where it is simulated step by step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fp16sim.scaling.fields import as_number
from fp16sim.scaling.protocol import Decision, Observation, checked_update, single_scale
from fp16sim.scaling.wording import a_kind

__all__ = ["decided", "need_one_scale", "shown_scale"]


def need_one_scale(scaler: Any) -> None:
    """Refuse a scaler that has, or chooses, a scale for each layer or tensor.

    >>> from fp16sim.scaling.adaptive import AdaptiveScaler
    >>> need_one_scale(AdaptiveScaler())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    TypeError: an AdaptiveScaler chooses a scale for each layer or tensor (`scale_for`): simulate takes ...
    """
    if hasattr(scaler, "scale_for"):
        raise TypeError(
            f"{a_kind(scaler)} chooses a scale for each layer or tensor (`scale_for`): simulate takes scalers with one "
            "for all gradients; train with it, fs.fit"
        )
    if isinstance(scaler.scale, Mapping):
        single_scale(scaler)  # raises


def shown_scale(scaler: Any) -> float:
    """Give the scale that a scaler shows.

    Raises
    ------
    TypeError
        If it is no number, or several.
    """
    scale = scaler.scale
    if isinstance(scale, float):
        return float(scale)
    return (
        single_scale(scaler)
        if isinstance(scale, Mapping)
        else _number(scale, f"the scale of {type(scaler).__name__} is ")
    )


def decided(scaler: Any, observation: Observation) -> tuple[Any, Decision, float]:
    """Update a scaler, and give the next one, its decision, and the one scale to divide by.

    Raises
    ------
    TypeError
        If `update` gives no next scaler with a decision, ends the process, or decides for each group; if `apply` is no
        bool, `divide_by` no number or `stop` no text.

    Examples
    --------
    >>> class Careless:
    ...     scale = 8.0
    ...     def update(self, observation):
    ...         return self, Decision(apply=None, divide_by=8.0)
    >>> decided(Careless(), Observation())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    TypeError: Careless.update decided apply=None: it is True or False, whether the optimizer moves; pass ...
    """
    following, decision = checked_update(scaler, observation)
    divide_by = decision.divide_by
    if isinstance(decision.apply, Mapping) or isinstance(divide_by, Mapping):
        raise TypeError("a decision for each group: simulate takes scalers with one scale for all gradients")
    return following, decision, float(divide_by)


def _number(value: Any, what: str) -> float:
    number = as_number(value)
    if number is None:
        raise TypeError(f"{what}{repr(value)[:40]}: a scale is a number above 0; give one, such as 1024.0")
    return number
