"""Drives objects that look like flax's DynamicScale: values with `scale` and `value_and_grad`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from fp16sim.testing.adapters.looks import has_methods, made_of, stop_of
from fp16sim.testing.adapters.loop import LoopDriver
from fp16sim.testing.driver import ONE_GROUP, PEAK, Array, Told, need_letter
from fp16sim.testing.histories import FINITE, NAN, OVERFLOW

__all__ = ["FlaxDriver", "GivenLoss"]

_SHOWN = {FINITE: PEAK, OVERFLOW: np.inf, NAN: np.nan}
_OF_JAX = 6  # 30 us a step on a CPU, compiled, where one of this package takes 3 to 7


class GivenLoss:
    """A loss with given derivatives, for look-alikes without JAX.

    Attributes
    ----------
    derivatives : dict of group to array
        Of the loss times the scale.
    """

    def __init__(self, derivatives: Mapping[str, Array]) -> None:
        self.derivatives = derivatives

    def __call__(self, parameters: Mapping[str, Array]) -> Any:
        return np.float32(1.0)


class FlaxDriver(LoopDriver):
    """A loop around ``value_and_grad`` of a scaler that is a value.

    Needed are the number `scale` and ``value_and_grad(loss)``: what it gives, called with a dict of parameters by
    group, has `dynamic_scale`, the next scaler; `finite`; and `grad`, unscaled (flax 0.12.8). The loss is one whose
    derivatives are the scaled gradients that the step has. If the object is made of JAX, it is differentiated by JAX,
    and the whole call is compiled. A look-alike without JAX finds them in ``loss.derivatives``, see :class:`GivenLoss`.
    A checkpoint holds what ``flax.serialization`` gives.
    """

    def __init__(self, scaler: Any, groups: tuple[str, ...] = ONE_GROUP) -> None:
        super().__init__(scaler, groups)
        self._following: Any = None
        self._jax = made_of(scaler, "jax") or made_of(scaler, "flax")
        self.cost = _OF_JAX if self._jax else 1
        one = (np.zeros(1, np.float32),)
        self._parameters = dict(zip(groups, one * len(groups), strict=True))

    @staticmethod
    def drives(scaler: Any) -> bool:
        """Whether an object looks like that."""
        return has_methods(scaler, "value_and_grad") and not callable(getattr(scaler, "scale", print))

    def scale(self, group: str) -> float:
        return float(self.scaler.scale)

    def factor(self, group: str) -> float:
        with np.errstate(all="ignore"):
            return float(np.float32(1.0) * np.float32(self.scaler.scale))

    def _differentiated(self, parameters: dict[str, Array], gradients: dict[str, Array]) -> Any:
        if self._jax:
            return _compiled()(self.scaler, parameters, gradients)
        return self.scaler.value_and_grad(GivenLoss(gradients))(parameters)

    def judge(self, gradients: dict[str, Array]) -> dict[str, Array] | None:
        parameters = {group: np.zeros(part.shape, part.dtype) for group, part in gradients.items()}
        with np.errstate(all="ignore"):
            found = self._differentiated(parameters, gradients)
        self._following = found.dynamic_scale
        return (
            {group: np.asarray(part).copy() for group, part in found.grad.items()}
            if bool(found.finite)
            else None
        )

    def commit(self) -> None:
        self.scaler = self._following

    def saved(self) -> dict[str, Any]:
        if not made_of(self.scaler, "flax"):
            return {}
        from flax import serialization  # type: ignore[import-not-found, unused-ignore]

        return {"flax.serialization": serialization.to_bytes(self.scaler)}

    def restored(self, way: str, state: Any, fresh: Any) -> FlaxDriver:
        from flax import serialization

        return self.followed_by(FlaxDriver(serialization.from_bytes(fresh, state), self.groups))

    def tell(self, letter: str) -> Told:
        need_letter(letter)
        self.begin()
        shown = dict.fromkeys(self.groups, np.full(1, _SHOWN[letter], np.float32))
        try:
            with np.errstate(all="ignore"):
                found = self._differentiated(self._parameters, shown)
            self.scaler, applied, stop = found.dynamic_scale, bool(found.finite), None
        except Exception as error:
            applied, stop = False, stop_of(error, letter != FINITE)
        self.counted += applied
        return Told(applied, stop)


@cache
def _compiled() -> Callable[..., Any]:
    """Compile `value_and_grad` of a loss whose derivatives are the gradients that it is given."""
    import jax

    @jax.custom_vjp  # type: ignore[untyped-decorator, unused-ignore]
    def loss(parameters: Any, gradients: Any) -> Any:
        return jax.numpy.float32(1.0)

    loss.defvjp(
        lambda parameters, gradients: (jax.numpy.float32(1.0), gradients),
        lambda gradients, _: (gradients, None),
    )
    compiled: Callable[..., Any] = jax.jit(
        lambda scaler, parameters, gradients: scaler.value_and_grad(loss)(parameters, gradients)
    )
    return compiled
