"""What a training step does with the scale or the scales of its scaler: one for everything, or one for each layer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Protocol

import numpy as np

from fp16sim.autograd.arithmetic import Array
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn import Module, capture_outputs
from fp16sim.scaling.protocol import Decision, Observation, observe, scale_loss, single_scale, unscale
from fp16sim.training.layer_scales import Captured, LayerScales, has_layer_scales
from fp16sim.training.unit_layers import UnitLayers, has_layer_factors

__all__ = ["OneScale", "StepScales", "check_scales", "scales_of_step"]


class StepScales(Protocol):
    """What :func:`fp16sim.training.step.train_step` needs, over the micro-batches of one step."""

    @property
    def loss_scale(self) -> float:
        """What the loss is multiplied by."""

    def watching(self, capture: bool) -> AbstractContextManager[Captured]:
        """Stand around a forward pass; gives the outputs of the layers, if `capture` asks for them."""

    def prepare(self, loss: Tensor, captured: Captured) -> Tensor:
        """Give the scaled loss, ready for the backward pass."""

    def note(self, parameters: Sequence[Tensor]) -> None:
        """Take note that the backward pass is over."""

    def carried(self, layers: Mapping[str, Tensor]) -> dict[str, float]:
        """Give the scales that the gradients of outputs carry."""

    def observe(self, parameters: Sequence[Tensor], gradients: Sequence[Array | None]) -> Observation:
        """Look at the scaled gradients."""

    def unscaled(
        self, parameters: Sequence[Tensor], gradients: Sequence[Array | None], decision: Decision
    ) -> list[Array | None]:
        """Divide the scales out of the gradients; None for what does not move."""


class OneScale:
    """One scale for all gradients."""

    def __init__(self, scaler: Any) -> None:
        self._scaler = scaler
        self.loss_scale = single_scale(scaler)

    def watching(self, capture: bool) -> AbstractContextManager[Captured]:
        """Capture the outputs, if asked."""
        return capture_outputs() if capture else nullcontext([])

    def prepare(self, loss: Tensor, captured: Captured) -> Tensor:
        """Multiply the loss by the scale."""
        return scale_loss(self._scaler, loss)

    def note(self, parameters: Sequence[Tensor]) -> None:
        """Nothing has to be kept."""

    def carried(self, layers: Mapping[str, Tensor]) -> dict[str, float]:
        """Give the scale of all."""
        return dict.fromkeys(layers, self.loss_scale)

    def observe(self, parameters: Sequence[Tensor], gradients: Sequence[Array | None]) -> Observation:
        """Look at all gradients together."""
        return observe(self._scaler, gradients)

    def unscaled(
        self, parameters: Sequence[Tensor], gradients: Sequence[Array | None], decision: Decision
    ) -> list[Array | None]:
        """Divide by the one scale."""
        if isinstance(decision.apply, Mapping):
            raise TypeError("a decision for each group: use it with a scaler that has groups")
        return [None if gradient is None else unscale(gradient, decision) for gradient in gradients]


class UnitScale(OneScale):
    """One scale for the loss, and factors in the layers."""

    def __init__(self, model: Module, scaler: Any) -> None:
        super().__init__(scaler)
        self._layers = UnitLayers(model, scaler)

    def watching(self, capture: bool) -> AbstractContextManager[Captured]:
        """Put the factors of the layers into the forward pass."""
        return self._layers.watching()

    def note(self, parameters: Sequence[Tensor]) -> None:
        """Take the hooks away from the parameters."""
        self._layers.release()


def check_scales(what: str, scales: Any) -> None:
    """Refuse a scale, or one of a mapping of them, that is no number, NaN or negative.

    Zero and infinity are what some scalers end at.

    >>> check_scales("the scale", -8)
    Traceback (most recent call last):
    ...
    ValueError: the scale is -8: a scale is a number above 0; give one, such as 1024.0
    """
    for group, scale in scales.items() if isinstance(scales, Mapping) else [("", scales)]:
        number = math.nan
        if not isinstance(scale, (str, bytes, bool, np.bool_)):
            with suppress(TypeError, ValueError):
                number = float(scale)
        if not number >= 0:
            of = f" for {group!r}" if group else ""
            raise ValueError(
                f"{what}{of} is {scale!r}: a scale is a number above 0; give one, such as 1024.0"
            )


def scales_of_step(model: Module, scaler: Any) -> StepScales:
    """Choose by what the scaler has: factors of layers, scales of layers, or one scale.

    >>> from fp16sim.nn import Linear
    >>> from fp16sim.scaling import make
    >>> [type(scales_of_step(Linear(2, 2), make(name))).__name__ for name in ("static", "adaptive", "unit")]
    ['OneScale', 'LayerScales', 'UnitScale']
    """
    check_scales(f"the scale of {type(scaler).__name__}", scaler.scale)
    if has_layer_factors(scaler):
        return UnitScale(model, scaler)
    return LayerScales(model, scaler) if has_layer_scales(scaler) else OneScale(scaler)
