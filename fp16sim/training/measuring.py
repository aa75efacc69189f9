"""What becomes of the gradients of activations: which are zero anyway, which float16 flushes, which survive."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from fp16sim.autograd.arithmetic import Array
from fp16sim.autograd.backward import gradients
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn import Module
from fp16sim.recording.histogram import Shares, measure

__all__ = ["UNMEASURED", "Outputs", "has_own_parameters", "shares_of"]

UNMEASURED = Shares(math.nan, math.nan, math.nan)
"""The shares of a step that did not measure, or that had no activation gradient."""


def has_own_parameters(module: Module) -> bool:
    """Whether a module has a parameter with a gradient that belongs to none of its parts.

    >>> from fp16sim.nn import Linear, ReLU, Sequential
    >>> [has_own_parameters(module) for module in (Linear(2, 2), ReLU(), Sequential(Linear(2, 2)))]
    [True, False, False]
    """
    return any(parameter.requires_grad for _, parameter in module.own_parameters())


@dataclass(frozen=True)
class Outputs:
    """The outputs of the modules with parameters of their own, in one forward pass or several of one step.

    An output goes by the dotted name of its module; from its second on (it is called again, in this pass or a later
    one, or gives several tensors) ``#2``, ``#3`` and so on follow.

    Attributes
    ----------
    gradients : dict of name to array
        As the backward pass gave them: in the format of the output, carrying the scale.
    exact : dict of name to array
        As a backward pass in float32 gives them, without the scale: float32, or float64 where the output is float64.
    scales : dict of name to float
        The scale that each of the first ones carries.
    """

    gradients: dict[str, Array]
    exact: dict[str, Array]
    scales: dict[str, float] = field(default_factory=dict)

    def named(self, model: Module, captured: Iterable[tuple[Module, Tensor]]) -> dict[str, Tensor]:
        """Give names to what a forward pass captured, apart from those taken by earlier passes."""
        names = {id(part): name for name, part in model.named_modules() if has_own_parameters(part)}
        found: dict[str, Tensor] = {}
        for module, output in captured:
            if id(module) in names:
                name, call = names[id(module)], 1
                while (key := name if call == 1 else f"{name}#{call}") in found or key in self.gradients:
                    call += 1
                found[key] = output
        return found

    def add(
        self,
        outputs: Mapping[str, Tensor],
        arrays: Iterable[Array | None],
        loss: Tensor,
        scales: Mapping[str, float],
    ) -> None:
        """Take note of a backward pass: the gradients of the outputs, the loss without the scale, and the scales."""
        seen = _present(outputs, arrays)
        self.gradients.update(seen)
        self.scales.update((name, scales[name]) for name in seen)
        if all(scales[name] == 1.0 for name in seen) and all(
            array.dtype.itemsize >= 4 for array in seen.values()
        ):
            self.exact.update(seen)
        else:
            kept = {name: outputs[name] for name in seen}
            self.exact.update(_present(kept, gradients(loss, list(kept.values()), wide=True)))


def shares_of(outputs: Outputs) -> Shares:
    """Count what became of each activation gradient: zero before float16, flushed by it, or alive.

    Gradients in a format of two bytes are counted as they are. Wider ones are counted as binary16 would store them at
    their scale.
    """
    zero = flushed = survive = 0
    for name, array in outputs.gradients.items():
        if array.dtype.itemsize == 2:
            gone = array == 0
            nothing = int((gone & (outputs.exact[name] == 0)).sum())
            counts = (nothing, int(gone.sum()) - nothing, int((~gone).sum()))
        else:
            counts = measure(outputs.exact[name], outputs.scales[name])
        zero, flushed, survive = zero + counts[0], flushed + counts[1], survive + counts[2]
    total = zero + flushed + survive
    return Shares(zero / total, flushed / total, survive / total) if total else UNMEASURED


def _present(outputs: Mapping[str, Tensor], arrays: Iterable[Array | None]) -> dict[str, Array]:
    return {name: np.asarray(array) for name, array in zip(outputs, arrays, strict=True) if array is not None}
