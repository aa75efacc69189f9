"""Unit scaling in the engine: factors at the entrance and the exit of a layer, and on the gradients of its parameters.

They are operations of their own on the tape, as in the authors' package: one that multiplies on the way forward only,
and one on the way back only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from fp16sim.autograd.arithmetic import Arithmetic, Array
from fp16sim.autograd.checkpoint import in_checkpoint
from fp16sim.autograd.operation import Op, run
from fp16sim.autograd.tensor import Context, Tensor
from fp16sim.nn import Module
from fp16sim.nn.capture import capture_outputs, gates
from fp16sim.scaling.tensors import Moments, TensorStatistics
from fp16sim.training.layer_scales import Captured, fans, multiplied, weight_of
from fp16sim.training.measuring import has_own_parameters

__all__ = ["UnitLayers", "has_layer_factors", "scaled"]

_UNKNOWN = Moments(0.0, 0.0, 0.0)


def has_layer_factors(scaler: Any) -> bool:
    """Whether a scaler gives static factors to layers."""
    return hasattr(scaler, "layer_factors")


def _forward(
    arithmetic: Arithmetic, a: Array, forward: float, backward: float
) -> tuple[Array, tuple[Any, ...]]:
    return multiplied(a, forward), (backward,)


def _gradient(context: Context, gradient: Array) -> tuple[Array | None, ...]:
    return (multiplied(gradient, context.saved[0]),)


_SCALED = Op("scaled", _forward, _gradient)


def scaled(x: Tensor, forward: float = 1.0, backward: float = 1.0) -> Tensor:
    """Multiply by one factor forward and by another backward; a factor of 1 rounds nothing.

    The roundings are those of :func:`fp16sim.training.layer_scales.multiplied`.

    >>> x = Tensor([1.0], requires_grad=True)
    >>> y = scaled(x, forward=2.0, backward=0.5)
    >>> y.backward()
    >>> y.item(), x.grad
    (2.0, array([0.5], dtype=float32))
    """
    return run(_SCALED, x, forward=forward, backward=backward)


class UnitLayers:
    """Put the factors of a :class:`~fp16sim.scaling.UnitScaler` around the layers of a model.

    Parameters
    ----------
    model : Module
        Without checkpointed blocks, which would be repeated without the factors: an error.
    scaler : UnitScaler
    """

    def __init__(self, model: Module, scaler: Any) -> None:
        self._scaler = scaler
        self._own = {id(part) for _, part in model.named_modules() if has_own_parameters(part)}
        self._held: dict[int, Callable[[], None]] = {}

    @contextmanager
    def watching(self) -> Iterator[Captured]:
        """Stand around every layer during a forward pass; gives the outputs of the layers."""
        with capture_outputs() as captured, gates(self._entering, self._leaving):
            yield captured

    def release(self) -> None:
        """Take the hooks away from the parameters."""
        for remove in self._held.values():
            remove()
        self._held.clear()

    def _factors(self, module: Module) -> Any:
        """Give the factors of a layer, or None."""
        weight = weight_of(module)
        if weight is not None:
            fan_in, fan_out = fans(weight)
            statistics = TensorStatistics(_UNKNOWN, fan_in=fan_in, fan_out=fan_out)
            return self._scaler.layer_factors("weight", statistics)
        kind = "vector" if id(module) in self._own else type(module).__name__
        return self._scaler.layer_factors(kind, TensorStatistics(_UNKNOWN))

    def _entering(self, module: Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        if not inputs or not isinstance(inputs[0], Tensor) or not inputs[0].requires_grad:
            return inputs
        factors = self._factors(module)
        if factors is None or factors.input_gradient == 1.0:
            return inputs
        return scaled(inputs[0], backward=factors.input_gradient), *inputs[1:]

    def _leaving(self, module: Module, output: Any) -> Any:
        if not isinstance(output, Tensor):
            return output
        self._hold(module, output)
        factors = self._factors(module)
        if factors is None or factors.output == 1.0:
            return output
        if in_checkpoint():
            raise ValueError(
                f"unit scaling of a {type(module).__name__} in a checkpointed block, which is repeated without the "
                "factors: leave the checkpoint out, or choose another scaler"
            )
        return scaled(output, forward=factors.output)

    def _hold(self, module: Module, output: Tensor) -> None:
        """Hook the parameters of a layer once in a pass, however often the layer is called."""
        if id(module) not in self._own:
            return
        for _, parameter in module.own_parameters():
            if not parameter.requires_grad or parameter.number in self._held:
                continue
            # Rows that are summed into an element: every output row, or every row of a vector.
            width = parameter.shape[0] if parameter.ndim else 1
            statistics = TensorStatistics(_UNKNOWN, batch=max(output.size // width, 1))
            factors = self._scaler.layer_factors("vector", statistics)
            hook = partial(multiplied, factor=float(factors.weight_gradient))
            self._held[parameter.number] = parameter.register_hook(hook)
