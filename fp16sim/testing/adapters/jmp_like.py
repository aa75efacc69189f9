"""Drives objects that look like jmp's DynamicLossScale: values with `scale`, `unscale` and `adjust`."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from copy import copy
from functools import cache
from typing import Any

import numpy as np

from fp16sim.testing.adapters.looks import has_methods, made_of, stop_of
from fp16sim.testing.adapters.loop import LoopDriver
from fp16sim.testing.driver import ONE_GROUP, Array, Told, need_letter
from fp16sim.testing.histories import FINITE

__all__ = ["JmpDriver"]

_OF_JMP, _OF_JAX = 4, 160
"""20 us a step of jmp's own on a CPU, compiled; 800 us of another object made of JAX, where one of this package takes
3 to 7."""


class JmpDriver(LoopDriver):
    """The loop of jmp's documentation around a scaler that is a value.

    Needed are ``scale(loss)``, ``unscale(gradients)`` and ``adjust(finite)``, which gives the next scaler. They are
    given numpy arrays (a dict of them by group), and ``np.bool_``; jmp's own accept those. As in jmp's loop (jmp 0.0.4)
    the unscaled gradients are tested, all of them together, and applied if finite. A checkpoint holds the leaves of the
    scaler as a pytree, by its `tree_flatten` and `tree_unflatten` or by JAX; whatever the pytree lacks is lost.

    ``adjust`` of jmp's own scalers is compiled, as it is in a user's compiled step: it takes 800 us otherwise.
    """

    def __init__(self, scaler: Any, groups: tuple[str, ...] = ONE_GROUP) -> None:
        super().__init__(scaler, groups)
        self._following: Any = None
        self._compiles = type(scaler).__module__.partition(".")[0] == "jmp"
        if self._compiles or made_of(scaler, "jax"):
            self.cost = _OF_JMP if self._compiles else _OF_JAX

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
            self._following = self._adjusted(finite)
        return unscaled if finite else None

    def commit(self) -> None:
        self.scaler = self._following

    def saved(self) -> dict[str, Any]:
        leaves = _flattened(self.scaler)
        return {} if leaves is None else {"pytree leaves": [_kept(leaf) for leaf in leaves[0]]}

    def restored(self, way: str, state: Any, fresh: Any) -> JmpDriver:
        flattened = _flattened(fresh)
        assert flattened is not None  # it was saved like that
        return self.followed_by(JmpDriver(flattened[1](state), self.groups))

    def tell(self, letter: str) -> Told:
        need_letter(letter)
        self.begin()
        finite, stop = letter == FINITE, None
        try:
            with np.errstate(all="ignore"):
                self.scaler = self._adjusted(finite)
        except Exception as error:
            stop = stop_of(error, not finite)
        self.counted += finite
        return Told(finite, stop)

    def _adjusted(self, finite: bool) -> Any:
        return _compiled(self.scaler, finite) if self._compiles else self.scaler.adjust(np.bool_(finite))


def _compiled(scaler: Any, finite: bool) -> Any:
    """Give ``scaler.adjust(finite)``, its numbers computed by a compiled function: the pytree of jmp's lacks one."""
    numbers, fixed = {}, []
    for field in dataclasses.fields(scaler):
        value = getattr(scaler, field.name)
        if isinstance(value, (bool, int, float)):
            fixed.append((field.name, value))
        else:
            numbers[field.name] = value
    found = _numbers_adjusted()(type(scaler), tuple(fixed), numbers, finite)
    following = copy(scaler)
    for name, value in found.items():
        object.__setattr__(following, name, value)
    return following


@cache
def _numbers_adjusted() -> Callable[..., dict[str, Any]]:
    import jax

    def adjusted(kind: type, fixed: tuple[tuple[str, Any], ...], numbers: Any, finite: Any) -> dict[str, Any]:
        known = dict(fixed)
        following = kind(**known, **numbers).adjust(finite)
        found = {name: getattr(following, name) for name in (*known, *numbers)}
        return {name: value for name, value in found.items() if name in numbers or value is not known[name]}

    compiled: Callable[..., dict[str, Any]] = jax.jit(adjusted, static_argnums=(0, 1))
    return compiled


def _kept(leaf: Any) -> Any:
    """Give an array of JAX as it is: of another kind it would be divided by otherwise, where XLA has no subnormals."""
    jax = sys.modules.get("jax")
    return leaf if jax is not None and isinstance(leaf, jax.Array) else np.asarray(leaf)


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
