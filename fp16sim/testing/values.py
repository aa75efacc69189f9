"""Drives a scaler of this package's protocol: a value whose `update` gives the next one and a decision."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import is_dataclass, replace
from typing import Any

import numpy as np

from fp16sim.autograd.tensor import Tensor
from fp16sim.scaling.protocol import (
    Decision,
    Observation,
    checked_update,
    is_plain,
    observe,
    scale_loss,
    unscale,
)
from fp16sim.scaling.state import restored_scaler, saved_scaler
from fp16sim.testing.driver import (
    ONE_GROUP,
    PEAK,
    Array,
    Floats,
    Refusal,
    Told,
    need_group,
    need_letter,
    number,
    scaled,
)
from fp16sim.testing.held import HeldGradients
from fp16sim.testing.histories import FINITE, NAN, OVERFLOW

__all__ = ["ValueDriver"]

_INFINITE = float("inf")


class ValueDriver(HeldGradients):
    """A loop around a scaler of the protocol, as `fit` has one: observe, update, unscale, look once more, step.

    All groups are observed together, at the first `unscale` or `step`, since one decision is about all of them; a
    gradient that came later would be applied unseen, so `backward` refuses it until `update` has ended the step.
    Nothing is applied, and nothing counted, where the decision holds a reason to stop.

    Parameters
    ----------
    scaler : object with `scale` and `update`
    groups : tuple of str
        With several the scaler is told of the overflow of each, as a mapping. A scaler that has a scale for each of
        some groups of its own is driven with those unless others are asked for.

    Attributes
    ----------
    scaler : object
        The scaler as it is now.

    Examples
    --------
    >>> from fp16sim.scaling import make
    >>> driver = ValueDriver(make("robust", init_scale=8.0))
    >>> driver.backward({"all": np.array([3.0])})
    >>> driver.gradient("all"), driver.step("all"), driver.update()
    (array([24.], dtype=float32), array([3.], dtype=float32), None)
    """

    def __init__(self, scaler: Any, groups: tuple[str, ...] = ONE_GROUP) -> None:
        self._by_group = isinstance(scaler.scale, Mapping)
        self.scaler, self.groups = scaler, _own_groups(scaler.scale, groups) if self._by_group else groups
        rechecks = ("rechecks",) if hasattr(scaler, "accepts") else ()
        self.can = frozenset({"groups", "unchecked", "counts", *rechecks})
        self.counted = 0
        self._told = {letter: self._observation(letter) for letter in (FINITE, OVERFLOW, NAN)}
        self._peak, self._told_peak = PEAK, self._told[FINITE]
        self.begin()

    def begin(self) -> None:
        super().begin()
        self._seen: Observation | None = None
        self._following: tuple[Any, Decision] | None = None
        self._moved = self._refused = False

    def zero_grad(self) -> None:
        super().zero_grad()
        self._carried: dict[str, float] = {}

    def scale(self, group: str) -> float:
        return number(_of(self.scaler.scale, group))

    def factor(self, group: str) -> float:
        if self._by_group:
            return self.scale(group)
        if not hasattr(self.scaler, "scale_loss"):
            number(self.scaler.scale)  # one that is none is named by its value
        with np.errstate(all="ignore"):
            loss = scale_loss(self.scaler, Tensor(np.float32(1.0)))
        if not isinstance(loss, Tensor):
            raise TypeError(
                f"scale_loss gave a {type(loss).__name__}: it gives the loss that it was given, scaled"
            )
        return float(loss.data)

    def backward(self, gradients: Mapping[str, Floats | None], dtype: str = "float32") -> None:
        for group in gradients:
            need_group(group, self.groups)
        given = {group: gradient for group, gradient in gradients.items() if gradient is not None}
        if given and self._following is not None:  # what is added now would be neither looked at nor unscaled
            raise Refusal("the gradients of this step were looked at already: call update before the next")
        factors = {group: self.factor(group) for group in given}
        for group, factor in factors.items():
            carried = self._carried.get(group, factor)
            if carried != factor and not carried != carried:
                raise Refusal(f"gradients of the scales {carried:g} and {factor:g} cannot be added")
        for group, gradient in given.items():
            self._carried[group] = factors[group]
            new, old = scaled(gradient, factors[group], dtype), self.gradients.get(group)
            with np.errstate(all="ignore"):
                self.gradients[group] = new if old is None else old + new

    def _decided(self) -> Decision:
        if self._following is None:
            self._seen = self._observe()
            self._following = checked_update(self.scaler, self._seen)
        return self._following[1]

    def _observe(self) -> Observation:
        if not self._by_group and len(self.groups) == 1:
            return _observed(self.scaler, list(self.gradients.values()))
        seen = {group: self._observe_one(group) for group in self.groups}
        amax = {group: _peak(one) for group, one in seen.items()}
        return Observation(
            overflow={group: one.overflowed for group, one in seen.items()},
            nan=any(one.nan for one in seen.values()),
            amax=amax if self._by_group else max(amax.values()),
        )

    def _observe_one(self, group: str) -> Observation:
        gradient = self.gradients.get(group)
        gradients = [] if gradient is None else [gradient]
        return _observed(_OneScale(self.scale(group)) if self._by_group else self.scaler, gradients)

    def unscale_once(self, group: str) -> None:
        decision = self._decided()
        gradient = self.gradients.get(group)
        if group in self.unscaled:
            return
        self.unscaled.add(group)
        if gradient is not None and _moves(decision, group):
            own = replace(decision, divide_by=number(_of(decision.divide_by, group), "divide_by"))
            with np.errstate(all="ignore"):
                self.gradients[group] = unscale(gradient, own)

    def moves(self, group: str) -> bool:
        moves = _moves(self._decided(), group) and self._accepted()
        self._moved |= moves
        return moves

    def _accepted(self) -> bool:
        """Ask a scaler that looks once more; what it refuses is an overflow, and skipped whatever it says to that."""
        if self._refused or not hasattr(self.scaler, "accepts"):
            return not self._refused
        decision = self._decided()
        left = [group for group in self.groups if group not in self.stepped and _moves(decision, group)]
        if self.scaler.accepts([self.gradients.get(group) for group in left]):
            return True
        assert self._seen is not None  # it decided by that
        self._refused = True
        self._following = checked_update(self.scaler, replace(self._seen, overflow=True))
        return False

    def update(self) -> str | None:
        self.scaler, decision = self._following or checked_update(self.scaler, Observation(checked=False))
        self._count(decision, self._moved)
        self.begin()
        return decision.stop

    def _count(self, decision: Decision, moved: bool) -> None:
        if not decision.stop:
            self.counted += moved if decision.advance is None else bool(decision.advance)

    def saved(self) -> dict[str, Any]:
        scaler, ways = self.scaler, {}
        for save, load in (("framework_state", "load_framework_state"), ("state_dict", "load_state_dict")):
            if hasattr(scaler, save) and hasattr(scaler, load):
                ways[save] = getattr(scaler, save)()
        if hasattr(scaler, "to_json"):
            if hasattr(type(scaler), "from_state"):
                ways["to_json"] = saved_scaler(scaler)
        elif is_dataclass(scaler):
            with suppress(TypeError):  # a clear refusal: this scaler cannot be saved so
                ways["to_json"] = saved_scaler(scaler)
        return ways

    def restored(self, way: str, state: Any, fresh: Any) -> ValueDriver:
        if way == "to_json":
            loaded = restored_scaler(fresh, state)
        else:
            loaded = getattr(fresh, f"load_{way}")(state)
        driver = ValueDriver(fresh if loaded is None else loaded, self.groups)
        driver.counted = self.counted
        return driver

    def tell(self, letter: str) -> Told:
        try:
            observation = self._told[letter]
        except (KeyError, TypeError):
            need_letter(letter)
            raise
        return self._tell(observation)

    def tell_peak(self, letter: str, peak: float) -> Told:
        if letter != FINITE:
            return self.tell(letter)
        if peak != self._peak:
            self._peak, self._told_peak = peak, self._observation(FINITE, peak)
        return self._tell(self._told_peak)

    def tell_without_amax(self, letter: str) -> Told:
        """Take a whole step as `tell` does, of which nobody knows the largest gradient."""
        return self._tell(replace(self._told[letter], amax=None))

    def _tell(self, observation: Observation) -> Told:
        if self._following is not None or self.gradients:
            self.begin()
        given = self.scaler.update(observation)
        if (
            type(given) is not tuple
            or len(given) != 2
            or type(given[0]) is not type(self.scaler)
            or type(given[1]) is not Decision
            or not is_plain(given[1])
        ):
            given = checked_update(self.scaler, observation, given)
        self.scaler, decision = given
        applied = not decision.stop and _any(decision.apply)
        self._count(decision, applied)
        return Told(applied, decision.stop)

    def _observation(self, letter: str, peak: float = PEAK) -> Observation:
        overflow, amax = letter != FINITE, peak if letter == FINITE else _INFINITE
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


def _observed(scaler: Any, gradients: list[Array]) -> Observation:
    observation: object = observe(scaler, gradients)
    if not isinstance(observation, Observation):
        raise TypeError(
            f"observe gave a {type(observation).__name__}: it gives an fs.scaling.Observation of the gradients"
        )
    return observation


def _own_groups(scale: Mapping[str, float], groups: tuple[str, ...]) -> tuple[str, ...]:
    """Give the groups of a scaler with scales for some, where no others were asked for that it has a scale for."""
    if groups != ONE_GROUP:
        return groups
    try:
        scale[groups[0]]  # some have a scale for every name
    except KeyError:
        return tuple(scale) or groups
    return groups


def _peak(observation: Observation) -> float:
    amax = observation.amax
    return max(amax.values()) if isinstance(amax, Mapping) else 0.0 if amax is None else amax


def _of(value: Any, group: str) -> Any:
    if not isinstance(value, Mapping):
        return value
    try:
        return value[group]
    except KeyError:
        known = ", ".join(map(repr, value)) or "none"
        raise TypeError(
            f"there is nothing for the group {group!r} among those that it has: {known}"
        ) from None


def _moves(decision: Decision, group: str) -> bool:
    """Whether the optimizer of a group moves: a reason to stop comes before it does."""
    return not decision.stop and bool(_of(decision.apply, group))


def _any(apply: bool | Mapping[str, bool]) -> bool:
    return any(apply.values()) if isinstance(apply, Mapping) else bool(apply)
