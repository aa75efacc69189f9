"""The dynamic rules of the libraries on JAX: jmp's DynamicLossScale and flax's DynamicScale.

Source: jmp/_src/loss_scale.py, jmp 0.0.4; flax/training/dynamic_scale.py, flax 0.12.8; both run on jax 0.10.2. On a
CPU XLA takes subnormal float32 operands and results as zero, and so does the arithmetic on the scale here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fp16sim.autograd.arithmetic import Array
from fp16sim.autograd.tensor import Tensor
from fp16sim.scaling.framework import check_entries
from fp16sim.scaling.numbers import (
    divide32,
    float32,
    flushed,
    multiply32,
    need_float32,
    need_integer,
    need_number,
)
from fp16sim.scaling.observing import in_float32, observe_unscaled
from fp16sim.scaling.protocol import Decision, Observation, need_check
from fp16sim.scaling.state import SavedScaler

__all__ = ["FlaxScaler", "JmpScaler"]

_JMP_STATE = ("loss_scale", "counter")
_FLAX_STATE = ("fin_steps", "scale")
_LARGEST = 2.0**128 - 2.0**104  # jnp.finfo(jnp.float32).max


@dataclass(frozen=True)
class JmpScaler(SavedScaler):
    """Divide by the factor on overflow and skip; multiply after `period` finite steps in a row.

    Parameters
    ----------
    loss_scale : float
        The initial scale, rounded to float32. jmp has no default; its examples begin with 2^15.
    period : int
        The scale grows on exactly that finite step; never if it is 0 or less.
    factor : float
        jmp does not look at it.
    min_loss_scale : float
        The floor of backoff, rounded to float32.
    scale : float, optional
        State: the current scale, a float32 value. Default: `loss_scale`.
    counter : int
        State: finite steps since the last overflow or growth.

    Notes
    -----
    Products and quotients are float32 ones. An overflow gives the larger of scale/factor and `min_loss_scale`. Growth
    to infinity is not taken. Under ``jax.jit`` XLA multiplies by the float32 reciprocal of a factor that is a Python
    number, which differs from the division here for factors such as 3. A float16 loss is scaled in float32; a float16
    gradient is multiplied in float32 by the float32 reciprocal of the scale (zero above 2^126 in XLA, subnormal here),
    and tested after that, so what is tested is what is applied. jmp leaves the skip to the user's ``select_tree``.
    The leaves of its pytree, which a checkpoint holds, are the scale and the counter; its static part is period and
    factor. `min_loss_scale` is in neither and comes back as 1 from ``jax.jit`` and from a checkpoint.

    Violates: 3 (at the minimum overflows are skipped for ever), 5 (with a minimum of 0: from 2^-126, ``o``), 7 (from
    .25, ``o`` gives 1), 10 (with a minimum of 512, saved and loaded at 512: ``o`` gives 256). With an initial scale or
    a factor that is no power of two also 8, and with an infinite one 4.

    Examples
    --------
    >>> scaler, decision = JmpScaler(loss_scale=1024.0, period=1).update(Observation())
    >>> scaler.scale, decision.divide_by
    (2048.0, 1024.0)
    """

    name: ClassVar[str] = "jmp"
    options: ClassVar[tuple[str, ...]] = ("loss_scale", "period", "factor", "min_loss_scale")
    initial: ClassVar[str | None] = "loss_scale"
    window: ClassVar[str | None] = "period"
    growth: ClassVar[str | None] = "factor"

    loss_scale: float = 2.0**15
    period: int = 2000
    factor: float = 2
    min_loss_scale: float = 1.0
    scale: float = None  # type: ignore[assignment]  # a float after __post_init__
    counter: int = 0

    def __post_init__(self) -> None:
        need_float32("loss_scale", self.loss_scale)
        need_integer("period", self.period)
        need_float32("factor", self.factor)
        need_float32("min_loss_scale", self.min_loss_scale)
        object.__setattr__(self, "scale", float32(self.loss_scale if self.scale is None else self.scale))

    def scale_loss(self, loss: Tensor) -> Tensor:
        """Multiply a loss by the scale in float32."""
        return in_float32(loss, self.scale)

    def observe(self, gradients: Sequence[Array | None]) -> Observation:
        """Test every element of the unscaled gradients."""
        return observe_unscaled(gradients, Decision(True, flushed(self.scale)))

    def update(self, observation: Observation) -> tuple[JmpScaler, Decision]:
        """Move the scale by one step."""
        need_check(observation)
        decision = Decision(apply=not observation.overflowed, divide_by=self.scale)
        if observation.overflowed:
            smaller = divide32(self.scale, self.factor, flush=True)
            return self.moved(scale=_larger(float32(self.min_loss_scale), smaller), counter=0), decision
        scale = self.scale
        if self.counter == self.period - 1:
            grown = multiply32(scale, self.factor, flush=True)
            scale = grown if math.isfinite(grown) else scale
        counter = (self.counter + 1) % self.period if self.period else 0
        return self.moved(scale=scale, counter=counter), decision

    def framework_state(self) -> dict[str, Any]:
        """Give the leaves of jmp's pytree."""
        return dict(zip(_JMP_STATE, (self.scale, self.counter), strict=True))

    def load_framework_state(self, state: Mapping[str, Any]) -> JmpScaler:
        """Give this scaler with the leaves of jmp's pytree; `min_loss_scale` becomes 1, as in jmp."""
        check_entries(state, _JMP_STATE, "DynamicLossScale", "its leaves")
        scale, counter = float(state["loss_scale"]), int(state["counter"])
        return replace(self, scale=scale, counter=counter, min_loss_scale=1.0)


@dataclass(frozen=True)
class FlaxScaler(SavedScaler):
    """Multiply by the backoff factor on overflow and skip; grow on the finite step after `growth_interval` ones.

    Parameters
    ----------
    scale : float
        The initial scale, rounded to float32, and the state.
    growth_factor, backoff_factor : float
        flax does not look at them.
    growth_interval : int
        The scale grows on the finite step after that many, so every ``growth_interval + 1`` finite steps; never if it
        is negative.
    minimum_scale : float or None
        The floor of backoff. Default: 2^-126.
    fin_steps : int
        State: finite steps since the last overflow or growth.
    weak : bool
        State: whether the scale is still the Python number that it was made from, which JAX promotes otherwise than
        an array.

    Notes
    -----
    Products are float32 ones, as under ``jax.jit``; outside of it the first, of two Python numbers, is a binary64 one
    rounded to float32, which differs for factors that are no float32 values. Growth stops at the largest float32 value.
    On the first step a float16 loss is multiplied in float16, where the default scale is infinite: the step is skipped.
    After that it is scaled in float32. A gradient is divided by the scale in float32 and tested after that, so what is
    tested is what is applied. flax leaves the skip to the user's ``jnp.where``.

    Violates: 3 (at the minimum overflows are skipped for ever; an infinite scale stays), 4 (only if it is made with an
    infinite scale), 5 (without a minimum, None or 0: from 2^-126, ``o``), 7 (from 1 with a minimum of 8, ``o`` gives
    8), 8 (from 2^127 with an interval of 0, ``.`` gives the largest float32 value, no power of two), 9 (grows after
    ``growth_interval + 1`` finite steps).

    Examples
    --------
    >>> scaler = FlaxScaler(growth_interval=2)
    >>> for _ in range(3):
    ...     scaler, _ = scaler.update(Observation())
    ...     print(scaler.scale)
    65536.0
    65536.0
    131072.0
    """

    name: ClassVar[str] = "flax"
    options: ClassVar[tuple[str, ...]] = (
        "scale",
        "growth_factor",
        "backoff_factor",
        "growth_interval",
        "minimum_scale",
    )
    initial: ClassVar[str | None] = "scale"
    window: ClassVar[str | None] = "growth_interval"
    growth: ClassVar[str | None] = "growth_factor"
    backoff: ClassVar[str | None] = "backoff_factor"

    scale: float = 65536.0
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    minimum_scale: float | None = 2.0**-126
    fin_steps: int = 0
    weak: bool = True

    def __post_init__(self) -> None:
        need_float32("scale", self.scale)
        need_number("growth_factor", self.growth_factor)
        need_number("backoff_factor", self.backoff_factor)
        need_integer("growth_interval", self.growth_interval)
        if self.minimum_scale is not None:
            need_float32("minimum_scale", self.minimum_scale)
        object.__setattr__(self, "scale", float32(self.scale))

    def scale_loss(self, loss: Tensor) -> Tensor:
        """Multiply a loss by the scale: in its own format on the first step, in float32 after that."""
        return loss * self.scale if self.weak else in_float32(loss, self.scale)

    def observe(self, gradients: Sequence[Array | None]) -> Observation:
        """Test every element of the unscaled gradients."""
        return observe_unscaled(gradients, Decision(True, flushed(self.scale), method="divide"))

    def update(self, observation: Observation) -> tuple[FlaxScaler, Decision]:
        """Move the scale by one step."""
        need_check(observation)
        decision = Decision(apply=not observation.overflowed, divide_by=self.scale, method="divide")
        scale, fin_steps = self.scale, self.fin_steps + 1
        if observation.overflowed:
            scale, fin_steps = multiply32(scale, self.backoff_factor, flush=True), 0
            if self.minimum_scale is not None:
                scale = _larger(scale, float32(self.minimum_scale))
        elif self.fin_steps == self.growth_interval:
            grown = multiply32(scale, self.growth_factor, flush=True)
            scale, fin_steps = (_LARGEST if grown > _LARGEST else grown), 0
        return self.moved(scale=scale, fin_steps=fin_steps, weak=False), decision

    def framework_state(self) -> dict[str, Any]:
        """Give what ``flax.serialization.to_state_dict`` gives."""
        return dict(zip(_FLAX_STATE, (self.fin_steps, self.scale), strict=True))

    def load_framework_state(self, state: Mapping[str, Any]) -> FlaxScaler:
        """Give this scaler with what ``to_state_dict`` gave, as arrays; the options stay its own."""
        check_entries(state, _FLAX_STATE, "DynamicScale", "to_state_dict()")
        return replace(self, fin_steps=int(state["fin_steps"]), scale=float(state["scale"]), weak=False)


def _larger(a: float, b: float) -> float:
    """The larger, as jnp.maximum gives it: NaN if one is."""
    return math.nan if math.isnan(a) or math.isnan(b) else max(a, b)
