"""A scale for each layer in one backward pass: hooks on the tensors where layers begin and end.

The gradient of a tensor carries the scale of the region that it lies in. A region is what hangs together on the tape
between boundaries: the outputs of the modules that have parameters of their own, and their inputs. Operations within a
region do not change the scale, so the gradients that they add carry the same one. At a boundary a hook multiplies by
the ratio of the two scales.

The region of a parameter has the scale of its module; the smallest one, if parameters of several modules lie in it (a
shared weight, a checkpointed block). Other regions (an activation between two layers, the loss) take the smallest scale
of the layers before them, or, where a layer's scale is chosen only when its gradient arrives, the scale that comes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from fp16sim.autograd import ops
from fp16sim.autograd.arithmetic import Arithmetic, Array, round_array
from fp16sim.autograd.backward import tape_of
from fp16sim.autograd.tensor import Node, Tensor
from fp16sim.nn import Embedding, Module
from fp16sim.nn.capture import capture_outputs, gates
from fp16sim.scaling.protocol import Decision, Observation, scale_loss, unscale
from fp16sim.scaling.tensors import TensorStatistics, moments
from fp16sim.training.measuring import has_own_parameters

__all__ = ["LayerScales", "has_layer_scales", "loss_scale_of", "multiplied"]

Captured = list[tuple[Module, Tensor]]
Side = tuple[int, bool]  # the number of a tensor, and whether it is the upper side of a boundary


def has_layer_scales(scaler: Any) -> bool:
    """Whether a scaler has a scale for each layer, in a mapping or chosen while the gradients arrive.

    >>> from fp16sim.scaling import make
    >>> [has_layer_scales(make(name)) for name in ("static", "fairscale_layerwise", "adaptive")]
    [False, True, True]
    """
    return isinstance(scaler.scale, Mapping) or _chooses(scaler)


def loss_scale_of(scaler: Any, history: Sequence[Any]) -> float:
    """Give the scale of a scaler that has one; otherwise that of the loss in the last step, NaN before the first."""
    if not isinstance(scaler.scale, Mapping):
        return float(scaler.scale)
    return float(history[-1].scale) if history else math.nan


def multiplied(gradient: Array, factor: float) -> Array:
    """Multiply as torch multiplies a tensor by a number.

    Two-byte formats are multiplied in float32 by the factor rounded to float32, and rounded back; wider ones in
    their own format.

    >>> multiplied(np.float16([2.0**-24]), 2.0**20)
    array([0.0625], dtype=float16)
    """
    if factor == 1.0:
        return gradient
    with np.errstate(all="ignore"):
        r, wide = Arithmetic(), gradient if gradient.dtype.itemsize > 2 else round_array(gradient, "float32")
        return round_array(r.multiply(wide, r.constant(factor, wide)), gradient.dtype)


class LayerScales:
    """The scales of one step, over all its micro-batches.

    Parameters
    ----------
    model : Module
    scaler : Scaler or TensorScaler
        With a mapping `scale`, or with `scale_for`.
    """

    def __init__(self, model: Module, scaler: Any) -> None:
        self._model, self._scaler = model, scaler
        self._groups = {id(part): name for name, part in model.named_modules() if has_own_parameters(part)}
        self._owners = _owners(model)
        self._scales: dict[str, float] = {}  # of groups, once they are known
        self._peaks: dict[str, float] = {}  # of the unscaled gradients of outputs
        self._actual: dict[int, float] = {}  # of parameters by number, in this step
        self._inputs: list[Tensor] = []
        self._regions: Regions | None = None
        self.loss_scale = 1.0

    @contextmanager
    def watching(self, capture: bool = True) -> Iterator[Captured]:
        """Take note of inputs and outputs of layers during a forward pass; gives the outputs in any case."""
        self._inputs = []
        with capture_outputs() as captured, gates(self._entering, lambda _, output: output):
            yield captured

    def _entering(self, module: Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        if id(module) not in self._groups:
            return inputs
        return tuple(self._marked(x) if isinstance(x, Tensor) and x.requires_grad else x for x in inputs)

    def _marked(self, x: Tensor) -> Tensor:
        """Give a layer a tensor of its own for its input, on which a hook sees this layer's gradient alone."""
        self._inputs.append(ops.reshape(x, x.shape))
        return self._inputs[-1]

    def prepare(self, loss: Tensor, captured: Captured) -> Tensor:
        """Put hooks on the boundaries and give the scaled loss."""
        outputs = {output.number: self._groups.get(id(module)) for module, output in captured}
        layers = {number: group for number, group in outputs.items() if group is not None}
        modules = {id(output): module for module, output in captured}
        regions = self._regions = Regions(loss, {*layers, *(x.number for x in self._inputs)}, self._owners)
        if isinstance(self._scaler.scale, Mapping):
            self._scales.update((g, _scale_in(self._scaler.scale, g)) for g in self._groups.values())
            regions.settle(self._scales)
        else:
            self._scales.update(dict.fromkeys(regions.groups_of_loss(), float(self._scaler.scale)))
            regions.scale_loss(float(self._scaler.scale))
        self.loss_scale = regions.down(loss)
        for tensor in regions.boundaries:
            group = layers.get(tensor.number)
            tensor.register_hook(self._hook(tensor, group, modules.get(id(tensor)), regions))
        return scale_loss(self._scaler, loss) if _chooses(self._scaler) else loss * self.loss_scale

    def _hook(self, tensor: Tensor, group: str | None, module: Module | None, regions: Regions) -> Any:
        def convert(gradient: Array) -> Array:
            carried = regions.down(tensor)
            if not regions.is_settled(tensor):
                self._choose(tensor, module, gradient, carried, regions)
            scale = regions.up(tensor)
            found = multiplied(gradient, _over(scale, carried))
            if group is not None:
                self._peaks[group] = max(self._peaks.get(group, 0.0), _over(_peak(found), scale))
            return found

        return convert

    def _choose(
        self, tensor: Tensor, module: Module | None, gradient: Array, carried: float, regions: Regions
    ) -> None:
        """Settle the region behind a boundary: by the scales of its groups, or else by what arrives."""
        groups = regions.groups_behind(tensor)
        for group in groups:
            if group not in self._scales:
                statistics = _statistics(gradient, carried, module)
                self._scales[group] = float(self._scaler.scale_for(group, statistics))
        regions.settle_behind(tensor, min((self._scales[group] for group in groups), default=carried))

    # ---------------------------------------------------------------------------------- after the backward pass

    def note(self, parameters: Sequence[Tensor]) -> None:
        """Remember which scales the gradients of the parameters carry."""
        for parameter in parameters:
            scale = None if self._regions is None else self._regions.found(parameter)
            if scale is not None:
                self._actual[parameter.number] = scale

    def observe(self, parameters: Sequence[Tensor], gradients: Sequence[Array | None]) -> Observation:
        """Look at the scaled gradients, group by group, every element; by the scaler's own `observe` if it has one.

        `amax` is the largest unscaled magnitude of the gradients of a group's parameters and outputs. A scaler's own
        `observe` is handed a mapping of group to a list of arrays.
        """
        arrays: dict[str, list[Array]] = {}
        peaks = dict(self._peaks)
        nan = False
        for parameter, gradient in zip(parameters, gradients, strict=True):
            group = self._owners.get(parameter.number)
            if gradient is not None and gradient.size and group is not None:
                arrays.setdefault(group, []).append(gradient)
                nan = nan or bool(np.isnan(gradient).any())
                peak = _over(_peak(gradient), self._actual.get(parameter.number, 1.0))
                peaks[group] = max(peaks.get(group, 0.0), peak)
        if hasattr(self._scaler, "observe"):
            observation: Observation = self._scaler.observe(arrays)
            return observation
        ordered = [group for group in dict.fromkeys(self._owners.values()) if group in peaks]
        chosen = _chooses(self._scaler)
        return Observation(
            overflow={group: math.isinf(peaks[group]) for group in ordered},
            nan=nan,
            amax={group: peaks[group] for group in ordered},
            scales={group: self._scales[group] for group in ordered if group in self._scales}
            if chosen
            else None,
        )

    def unscaled(
        self, parameters: Sequence[Tensor], gradients: Sequence[Array | None], decision: Decision
    ) -> list[Array | None]:
        """Divide the scales out as the decision says; the gradients of a group that is not applied are None."""
        apply, divide_by = decision.apply, decision.divide_by
        found: list[Array | None] = []
        for parameter, gradient in zip(parameters, gradients, strict=True):
            group = self._owners.get(parameter.number, "")
            if gradient is None or not (apply.get(group, True) if isinstance(apply, Mapping) else apply):
                found.append(None)
                continue
            divisor = _scale_in(divide_by, group) if isinstance(divide_by, Mapping) else divide_by
            # A parameter in a region of several groups carries another scale than its own group's.
            nominal = self._scales.get(group, 1.0)
            actual = self._actual.get(parameter.number, nominal)
            found.append(unscale(gradient, replace(decision, divide_by=divisor * _over(actual, nominal))))
        return found

    def carried(self, layers: Mapping[str, Tensor]) -> dict[str, float]:
        """Give the scales that the gradients of outputs carry; 1 where none arrived."""
        regions = self._regions
        if regions is None:
            return dict.fromkeys(layers, 1.0)
        scales = {name: regions.up_if_settled(tensor) for name, tensor in layers.items()}
        return {name: 1.0 if scale is None else scale for name, scale in scales.items()}


class Regions:
    """The regions of one tape: a union of sets over two sides of every tensor, the same side unless it is a boundary.

    The gradient of a tensor arrives with the scale of its lower side, and goes on with that of its upper side.
    """

    def __init__(self, loss: Tensor, boundaries: set[int], owners: Mapping[int, str]) -> None:
        tape = tape_of(loss)
        self._loss = loss
        self._cut = boundaries
        self._parent: dict[Side, Side] = {}
        self.boundaries = [tensor for tensor in tape if tensor.number in boundaries]
        for tensor in tape:
            if isinstance(tensor.node, Node):
                for parent in tensor.node.parents:
                    if parent.requires_grad:
                        self._join(self._upper(tensor), (parent.number, False))
        self._groups: dict[Side, set[str]] = {}
        for tensor in tape:
            if tensor.number in owners:
                self._groups.setdefault(self._root((tensor.number, False)), set()).add(owners[tensor.number])
        self._scales: dict[Side, float] = {}

    def _upper(self, tensor: Tensor) -> Side:
        return tensor.number, tensor.number in self._cut

    def _root(self, key: Side) -> Side:
        while (parent := self._parent.get(key, key)) != key:
            self._parent[key] = self._parent.get(parent, parent)
            key = parent
        return key

    def _join(self, one: Side, other: Side) -> None:
        self._parent[self._root(one)] = self._root(other)

    def groups_behind(self, tensor: Tensor) -> set[str]:
        """Name the groups whose parameters lie in the region above a boundary."""
        return self._groups.get(self._root(self._upper(tensor)), set())

    def groups_of_loss(self) -> set[str]:
        """Name the groups whose parameters lie in the region of the loss."""
        return self._groups.get(self._root((self._loss.number, False)), set())

    def is_settled(self, tensor: Tensor) -> bool:
        """Whether the region above a boundary has its scale."""
        return self._root(self._upper(tensor)) in self._scales

    def scale_loss(self, scale: float) -> None:
        """Settle the region of the loss."""
        self._scales[self._root((self._loss.number, False))] = scale

    def settle_behind(self, tensor: Tensor, scale: float) -> None:
        """Settle the region above a boundary."""
        self._scales[self._root(self._upper(tensor))] = scale

    def settle(self, scales: Mapping[str, float]) -> None:
        """Settle the regions from the scales of all groups, and that of the loss in any case."""
        for root, groups in self._groups.items():
            self._scales[root] = min(scales[group] for group in groups)
        while above := self._below_settled():
            self._scales.update((root, min(found)) for root, found in above.items())
        self._scales.setdefault(self._root((self._loss.number, False)), 1.0)

    def _below_settled(self) -> dict[Side, list[float]]:
        """Give every region that has no scale, with the scales of the regions next above it that have one."""
        found: dict[Side, list[float]] = {}
        for tensor in self.boundaries:
            lower, upper = self._root((tensor.number, False)), self._root(self._upper(tensor))
            if lower not in self._scales and upper in self._scales:
                found.setdefault(lower, []).append(self._scales[upper])
        return found

    def down(self, tensor: Tensor) -> float:
        """Give the scale with which the gradient of a tensor arrives."""
        return self._scales[self._root((tensor.number, False))]

    def up(self, tensor: Tensor) -> float:
        """Give the scale with which the gradient of a tensor goes on."""
        return self._scales[self._root(self._upper(tensor))]

    def up_if_settled(self, tensor: Tensor) -> float | None:
        """Give the scale with which the gradient of a tensor goes on, None if none came."""
        return self._scales.get(self._root(self._upper(tensor)))

    def found(self, tensor: Tensor) -> float | None:
        """Give the scale with which the gradient of a leaf arrived, None if none did."""
        return self._scales.get(self._root((tensor.number, False)))


def _chooses(scaler: Any) -> bool:
    return hasattr(scaler, "scale_for") and not isinstance(scaler.scale, Mapping)


def _owners(model: Module) -> dict[int, str]:
    """Name the first module that has each parameter, by the number of the parameter."""
    owners: dict[int, str] = {}
    for name, part in model.named_modules():
        for _, parameter in part.own_parameters():
            if parameter.requires_grad:
                owners.setdefault(parameter.number, name)
    return owners


def _scale_in(scales: Mapping[str, float], group: str) -> float:
    try:
        return float(scales[group])
    except KeyError:
        return 1.0


def _over(a: float, b: float) -> float:
    """Divide as IEEE 754 says, by 0 too; 0 / 0, nothing at no scale, is infinite like any overflow."""
    return a / b if b else math.inf


def _peak(array: Array) -> float:
    peak = float(np.max(np.abs(array))) if array.size else 0.0
    return math.inf if math.isnan(peak) else peak


def _statistics(gradient: Array, carried: float, module: Module | None) -> TensorStatistics:
    weight = weight_of(module)
    values = moments(gradient)
    if weight is None:
        return TensorStatistics(values, carried)
    fan_in, fan_out = fans(weight)
    batch = max(gradient.size // weight.shape[0], 1)
    return TensorStatistics(values, carried, moments(weight.data), fan_in, fan_out, batch)


def weight_of(module: Module | None) -> Tensor | None:
    """Give the parameter `weight` of a module if products with it are summed: two axes or more, and no embedding."""
    weight = None if isinstance(module, Embedding) else getattr(module, "weight", None)
    return weight if isinstance(weight, Tensor) and weight.ndim >= 2 else None


def fans(weight: Tensor) -> tuple[int, int]:
    """Count the products in one output, and in one element of the gradient of the input: (out, in, kernel...).

    >>> fans(Tensor(np.zeros((8, 4, 3, 3), np.float32)))
    (36, 72)
    """
    kernel = math.prod(weight.shape[2:])
    return weight.shape[1] * kernel, weight.shape[0] * kernel
