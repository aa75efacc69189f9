"""Drives objects that look like jmp's DynamicLossScale: values with `scale`, `unscale` and `adjust`."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import numpy as np

from fp16sim.testing.adapters.looks import has_methods, stop_of
from fp16sim.testing.adapters.loop import LoopDriver
from fp16sim.testing.driver import ONE_GROUP, Array, Told
from fp16sim.testing.histories import FINITE

__all__ = ["JmpDriver"]

_MOST_REMEMBERED = 20_000
_remembered: dict[tuple[Any, ...], Any] = {}


class JmpDriver(LoopDriver):
    """The loop of jmp's documentation around a scaler that is a value.

    Needed are ``scale(loss)``, ``unscale(gradients)`` and ``adjust(finite)``, which gives the next scaler. They are
    given numpy arrays (a dict of them by group), and ``np.bool_``; jmp's own accept those. As in jmp's loop (jmp 0.0.4)
    the unscaled gradients are tested, all of them together, and applied if finite. A checkpoint holds the leaves of the
    scaler as a pytree, by its `tree_flatten` and `tree_unflatten` or by JAX; whatever the pytree lacks is lost.

    One step of a frozen dataclass of numbers is computed once, and remembered: outside of ``jax.jit`` it takes jmp 600
    us.
    """

    def __init__(self, scaler: Any, groups: tuple[str, ...] = ONE_GROUP) -> None:
        super().__init__(scaler, groups)
        self._following: Any = None

    @staticmethod
    def drives(scaler: Any) -> bool:
        """Whether an object looks like that."""
        return has_methods(scaler, "scale", "unscale", "adjust")

    def scale(self, group: str) -> float:
        shown = getattr(self.scaler, "loss_scale", None)
        return self.factor(group) if shown is None else float(shown)

    def factor(self, group: str) -> float:
        with np.errstate(all="ignore"):
            return float(self.scaler.scale(np.float32(1.0)))

    def judge(self, gradients: dict[str, Array]) -> dict[str, Array] | None:
        with np.errstate(all="ignore"):
            unscaled = {
                group: np.asarray(part).copy() for group, part in self.scaler.unscale(gradients).items()
            }
        finite = all(np.isfinite(part).all() for part in unscaled.values())
        self._following = _adjusted(self.scaler, finite)
        return unscaled if finite else None

    def commit(self) -> None:
        self.scaler = self._following

    def saved(self) -> dict[str, Any]:
        leaves = _flattened(self.scaler)
        return {} if leaves is None else {"pytree leaves": [np.asarray(leaf) for leaf in leaves[0]]}

    def restored(self, way: str, state: Any, fresh: Any) -> JmpDriver:
        flattened = _flattened(fresh)
        assert flattened is not None  # it was saved like that
        return self.followed_by(JmpDriver(flattened[1](state), self.groups))

    def tell(self, letter: str) -> Told:
        self.begin()
        finite, stop = letter == FINITE, None
        try:
            self.scaler = _adjusted(self.scaler, finite)
        except Exception as error:
            stop = stop_of(error, not finite)
        self.counted += finite
        return Told(finite, stop)


def _adjusted(scaler: Any, finite: bool) -> Any:
    """Give ``scaler.adjust(finite)``."""
    key = _key(scaler, finite)
    if key is not None and key in _remembered:
        return _remembered[key]
    with np.errstate(all="ignore"):
        following = scaler.adjust(np.bool_(finite))
    if key is not None:
        if len(_remembered) >= _MOST_REMEMBERED:
            _remembered.clear()
        _remembered[key] = following
    return following


def _key(scaler: Any, finite: bool) -> tuple[Any, ...] | None:
    """What the next scaler depends on, if this one is a value that consists of numbers."""
    parameters = getattr(type(scaler), "__dataclass_params__", None)
    if parameters is None or not parameters.frozen:
        return None
    parts: list[Any] = [type(scaler), finite]
    for field in dataclasses.fields(scaler):
        value = getattr(scaler, field.name)
        number = value.item() if getattr(value, "ndim", None) == 0 else value
        if not isinstance(number, (bool, int, float)):
            return None
        parts += [type(value), getattr(value, "dtype", None), number]
    return tuple(parts)


def _flattened(scaler: Any) -> tuple[list[Any], Any] | None:
    """Give the leaves, and what makes a scaler of them; None if it is no pytree."""
    if has_methods(scaler, "tree_flatten", "tree_unflatten"):
        leaves, rest = scaler.tree_flatten()
        return list(leaves), lambda loaded: type(scaler).tree_unflatten(rest, tuple(loaded))
    if "jax" in sys.modules:
        from jax import tree_util

        leaves, structure = tree_util.tree_flatten(scaler)
        if leaves and leaves[0] is not scaler:
            return leaves, structure.unflatten
    return None
