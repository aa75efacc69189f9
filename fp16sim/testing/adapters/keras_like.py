"""Drives objects that look like Keras 3's LossScaleOptimizer: an optimizer around an inner one."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from fp16sim.testing.adapters.looks import has_methods, made_of, stop_of
from fp16sim.testing.adapters.loop import LoopDriver
from fp16sim.testing.driver import ONE_GROUP, PEAK, Array, Refusal, Told, need_letter
from fp16sim.testing.histories import FINITE, NAN, OVERFLOW

__all__ = ["KerasDriver"]

_SHOWN = {FINITE: PEAK, OVERFLOW: np.inf, NAN: np.nan}
_OF_KERAS = 60  # 270 us a step with torch on a CPU, where one of this package takes 3 to 7


class KerasDriver(LoopDriver):
    """A loop around ``scale_loss`` and ``apply``, which tests, unscales, applies and updates.

    Needed are ``build(variables)``, ``scale_loss(loss)``, ``apply(gradients, variables)`` and `inner_optimizer`, whose
    ``apply`` is replaced by one that records (Keras 3.15). The scale is `dynamic_scale`. A group is a variable, all of
    one optimizer. If the object is made of Keras, losses, gradients and variables are those of its backend; a
    look-alike is given float32 numpy arrays, None for a group without a gradient, and as variables objects with a
    `value` and nothing else. A checkpoint holds what ``save_own_variables`` stores.
    Nothing can be unscaled before ``apply``. Steps are counted by `iterations`.
    """

    def __init__(self, scaler: Any, groups: tuple[str, ...] = ONE_GROUP) -> None:
        if getattr(scaler, "built", False):
            raise TypeError(
                f"this {type(scaler).__name__} is built for variables of its own: pass a factory that makes a new one"
            )
        self._keras: Any = None
        if made_of(scaler, "keras"):
            import keras  # type: ignore[import-not-found, unused-ignore]

            self._keras, self.cost = keras, _OF_KERAS
        self._variables = [self._variable() for _ in groups]
        self._shown = {
            letter: [self._tensor(np.full(1, value, np.float32)) for _ in groups]
            for letter, value in _SHOWN.items()
        }
        self._one = self._tensor(np.float32(1.0))
        scaler.build(self._variables)
        self._given: list[Any] | None = None
        self._handed = 0
        self._inner_apply = scaler.inner_optimizer.apply
        scaler.inner_optimizer.apply = self._record
        super().__init__(scaler, groups)

    @staticmethod
    def drives(scaler: Any) -> bool:
        """Whether an object looks like that."""
        return has_methods(scaler, "build", "scale_loss", "apply") and hasattr(scaler, "inner_optimizer")

    def scale(self, group: str) -> float:
        return float(self.scaler.dynamic_scale)

    def factor(self, group: str) -> float:
        with np.errstate(all="ignore"):
            return float(self.scaler.scale_loss(self._one))

    def unscale(self, group: str) -> None:
        raise Refusal(f"{type(self.scaler).__name__} unscales inside of apply, and nowhere else")

    def clip(self, group: str, norm: float) -> None:
        self.unscale(group)

    def judge(self, gradients: dict[str, Array]) -> dict[str, Array] | None:
        parts = [gradients.get(group) for group in self.groups]
        self._apply([None if part is None else self._tensor(part) for part in parts])
        if self._given is None:
            return None
        given = zip(self.groups, self._given, strict=True)
        return {group: self._array(part) for group, part in given if part is not None}

    def update(self) -> str | None:
        stop = super().update()
        self._count()
        return stop

    def saved(self) -> dict[str, Any]:
        if not has_methods(self.scaler, "save_own_variables", "load_own_variables"):
            return {}
        store: dict[str, Any] = {}
        self.scaler.save_own_variables(store)
        copied = {name: np.asarray(value).copy() for name, value in store.items()}  # as into a file of Keras
        return {"save_own_variables": copied}

    def restored(self, way: str, state: Any, fresh: Any) -> KerasDriver:
        driver = KerasDriver(fresh, self.groups)
        fresh.load_own_variables(state)
        driver._handed = self._handed  # their iterations were loaded
        return self.followed_by(driver)

    def tell(self, letter: str) -> Told:
        need_letter(letter)
        self.begin()
        stop = None
        try:
            self._apply(self._shown[letter])
        except Exception as error:
            stop = stop_of(error, letter != FINITE)
        self._count()
        return Told(self._given is not None, stop)

    def _apply(self, gradients: list[Any]) -> None:
        self._given = None
        with np.errstate(all="ignore"):
            self.scaler.apply(gradients, self._variables)

    def _record(self, gradients: Sequence[Any], trainable_variables: Any = None) -> None:
        """Stand in for ``inner_optimizer.apply``: variables are too small for most gradients, and stay as they are."""
        given = list(gradients)
        if all(part is None for part in given):
            self._inner_apply(given, trainable_variables)  # it refuses
        self._given = given
        self._handed += 1

    def _count(self) -> None:
        """Add the steps that `apply` let the inner optimizer count to those that it took."""
        self.counted = self._handed + int(getattr(self.scaler, "iterations", 0))

    def _variable(self) -> Any:
        value = np.zeros(1, np.float32)
        return SimpleNamespace(value=value) if self._keras is None else self._keras.Variable(value)

    def _tensor(self, value: Any) -> Any:
        return value if self._keras is None else self._keras.ops.convert_to_tensor(value)

    def _array(self, value: Any) -> Array:
        array = np.asarray(value if self._keras is None else self._keras.ops.convert_to_numpy(value))
        return array.copy()
