"""Drives a scaler of this package's protocol: a value whose `update` gives the next one and a decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from typing import Any

import numpy as np

from fp16sim.autograd.tensor import Tensor
from fp16sim.scaling.protocol import (
    Decision,
    Observation,
    checked_update,
    observe,
    scale_loss,
    unscale,
)
from fp16sim.scaling.state import restored_scaler, saved_scaler
from fp16sim.testing.driver import ONE_GROUP, PEAK, Array, Driver, Floats, Refusal, Told, scaled
from fp16sim.testing.histories import FINITE, NAN, OVERFLOW

__all__ = ["ValueDriver"]

_INFINITE = float("inf")


class ValueDriver(Driver):
    """A loop around a scaler of the protocol: observe, update, unscale, look once more, step.

    All groups are observed together, at the first `unscale` or `step`, since one decision is about all of them.

    Parameters
    ----------
    scaler : object with `scale` and `update`
    groups : tuple of str
        With several the scaler is told of the overflow of each, as a mapping.
    """

    def __init__(self, scaler: Any, groups: tuple[str, ...] = ONE_GROUP) -> None:
        self.scaler, self.groups = scaler, groups
        self.can = frozenset(
            {"groups", "unchecked", "counts", *(("rechecks",) if hasattr(scaler, "accepts") else ())}
        )
        self.counted = 0
        self._by_group = isinstance(scaler.scale, Mapping)
        self._told = {letter: self._observation(letter) for letter in (FINITE, OVERFLOW, NAN)}
        self.zero_grad()
        self._begin()

    def zero_grad(self) -> None:
        self._gradients: dict[str, Array] = {}
        self._carried: dict[str, float] = {}

    def _begin(self) -> None:
        self._following: tuple[Any, Decision] | None = None
        self._unscaled: set[str] = set()
        self._stepped: set[str] = set()

    def scale(self, group: str) -> float:
        return _number(self.scaler.scale, group)

    def factor(self, group: str) -> float:
        if self._by_group:
            return self.scale(group)
        with np.errstate(all="ignore"):
            return float(scale_loss(self.scaler, Tensor(np.float32(1.0))).data)

    def backward(self, gradients: Mapping[str, Floats | None], dtype: str = "float32") -> None:
        given = {group: gradient for group, gradient in gradients.items() if gradient is not None}
        factors = {group: self.factor(group) for group in given}
        if given and self._following is not None:  # what is added now would be neither looked at nor unscaled
            raise Refusal("the gradients of this step were looked at already: update before you add to them")
        for group, factor in factors.items():
            if group in self._carried and self._carried[group] != factor:
                raise Refusal(
                    f"gradients of the scales {self._carried[group]:g} and {factor:g} cannot be added"
                )
        for group, gradient in given.items():
            factor = self._carried[group] = factors[group]
            new, old = scaled(gradient, factor, dtype), self._gradients.get(group)
            with np.errstate(all="ignore"):
                self._gradients[group] = new if old is None else old + new

    def gradient(self, group: str) -> Array | None:
        gradient = self._gradients.get(group)
        return None if gradient is None else gradient.copy()

    def put(self, group: str, gradient: Array) -> None:
        self._gradients[group] = gradient

    def _decided(self) -> Decision:
        if self._following is None:
            self._following = checked_update(self.scaler, self._observe())
        return self._following[1]

    def _observe(self) -> Observation:
        if not self._by_group and len(self.groups) == 1:
            return observe(self.scaler, list(self._gradients.values()))
        seen = {group: self._observe_one(group) for group in self.groups}
        amax = {group: _peak(one) for group, one in seen.items()}
        return Observation(
            overflow={group: one.overflowed for group, one in seen.items()},
            nan=any(one.nan for one in seen.values()),
            amax=amax if self._by_group else max(amax.values()),
        )

    def _observe_one(self, group: str) -> Observation:
        gradient = self._gradients.get(group)
        gradients = [] if gradient is None else [gradient]
        return observe(_OneScale(self.scale(group)) if self._by_group else self.scaler, gradients)

    def unscale(self, group: str) -> None:
        if group in self._unscaled:
            raise Refusal(f"the gradient of {group!r} is unscaled already")
        decision = self._decided()
        self._unscaled.add(group)
        gradient = self._gradients.get(group)
        if gradient is not None and _of(decision.apply, group):
            own = replace(decision, divide_by=float(_of(decision.divide_by, group)))
            with np.errstate(all="ignore"):
                self._gradients[group] = unscale(gradient, own)

    def step(self, group: str) -> Array | None:
        if group in self._stepped:
            raise Refusal(f"the optimizer of {group!r} moved already: update before it moves again")
        for each in self.groups:
            if each not in self._unscaled:
                self.unscale(each)
        decision = self._decided()
        if _any(decision.apply) and hasattr(self.scaler, "accepts"):
            left = [self._gradients.get(each) for each in self.groups if each not in self._stepped]
            if not self.scaler.accepts(left):
                refused = replace(self._observe(), overflow=True)
                self._following = checked_update(self.scaler, refused)
                decision = self._following[1]
        self._stepped.add(group)
        return self.gradient(group) if _of(decision.apply, group) else None

    def update(self) -> str | None:
        observation = Observation(checked=False)
        given = self._following or checked_update(self.scaler, observation)
        self.scaler, decision = given
        self.zero_grad()
        self._begin()
        applied = _any(decision.apply)
        self.counted += applied if decision.advance is None else bool(decision.advance)
        return decision.stop

    def saved(self) -> dict[str, Any]:
        ways: dict[str, Any] = {}
        for save, load in (("framework_state", "load_framework_state"), ("state_dict", "load_state_dict")):
            if hasattr(self.scaler, save) and hasattr(self.scaler, load):
                ways[save] = getattr(self.scaler, save)()
        if hasattr(self.scaler, "from_state") or is_dataclass(self.scaler):
            ways["to_json"] = saved_scaler(self.scaler)
        return ways

    def restored(self, way: str, state: Any, fresh: Any) -> ValueDriver:
        if way == "to_json":
            return ValueDriver(restored_scaler(fresh, state), self.groups)
        loaded = getattr(fresh, f"load_{way}")(state)
        return ValueDriver(fresh if loaded is None else loaded, self.groups)

    def tell(self, letter: str) -> Told:
        following, decision = given = self.scaler.update(self._told[letter])
        if type(following) is not type(self.scaler) or type(decision) is not Decision:
            following, decision = checked_update(self.scaler, self._told[letter], given)
        self.scaler = following
        return Told(_any(decision.apply), decision.stop)

    def _observation(self, letter: str) -> Observation:
        overflow, amax = letter != FINITE, PEAK if letter == FINITE else _INFINITE
        each = self._by_group or len(self.groups) > 1
        return Observation(
            overflow=dict.fromkeys(self.groups, overflow) if each else overflow,
            nan=letter == NAN,
            amax=dict.fromkeys(self.groups, amax) if self._by_group else amax,
        )


class _OneScale:
    """Stands for the scale of one group where a gradient is observed."""

    def __init__(self, scale: float) -> None:
        self.scale = scale


def _peak(observation: Observation) -> float:
    amax = observation.amax
    return max(amax.values()) if isinstance(amax, Mapping) else 0.0 if amax is None else amax


def _of(value: Any, group: str) -> Any:
    return value[group] if isinstance(value, Mapping) else value


def _any(apply: bool | Mapping[str, bool]) -> bool:
    return any(apply.values()) if isinstance(apply, Mapping) else bool(apply)


def _number(scale: Any, group: str) -> float:
    return float(_of(scale, group))
