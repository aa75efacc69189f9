"""Unit scaling: static factors in the layers that keep activations and gradients near unit variance.

Source: Blake, Orr and Luschi, Unit Scaling, arXiv 2303.11257, table A.2; github.com/graphcore-research/unit-scaling,
functional.py, ``constraint=None``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from fp16sim.scaling.protocol import Decision, Observation, need_observation
from fp16sim.scaling.state import SavedScaler, check_number
from fp16sim.scaling.tensors import TensorStatistics

__all__ = ["LayerFactors", "UnitScaler", "cross_entropy_scale"]


class LayerFactors(NamedTuple):
    """What a layer multiplies: its output forward, the gradient of its input and those of its parameters backward."""

    output: float
    input_gradient: float
    weight_gradient: float


_ACTIVATIONS = {
    # E[relu(x)^2] = E[relu'(x)^2] = 1/2 for a standard normal x.
    "ReLU": LayerFactors(math.sqrt(2.0), math.sqrt(2.0), 1.0),
    "GELU": LayerFactors(1 / 0.588, 1 / 0.675, 1.0),  # measured by the authors
    "Tanh": LayerFactors(1 / 0.628, 1 / 0.681, 1.0),  # root mean squares of tanh(x) and tanh'(x), likewise
}


def cross_entropy_scale(batch: int, classes: int) -> float:
    """Give the loss scale at which the gradient of evenly spread scores has unit variance, the loss being a mean.

    A gradient (softmax - one-hot) / batch has mean square (classes - 1) / classes^2 / batch^2.

    >>> cross_entropy_scale(32, 10)
    106.66666666666667
    """
    return batch * classes / math.sqrt(classes - 1.0)


@dataclass(frozen=True)
class UnitScaler(SavedScaler):
    """Multiply by 1/sqrt(fan_in) forward, by 1/sqrt(fan_out) and 1/sqrt(batch) backward; scale nothing back.

    Parameters
    ----------
    loss_scale : float
        What multiplies the loss: :func:`cross_entropy_scale` gives the gradient of the scores unit variance.

    Notes
    -----
    The weights are to have unit variance. The factors belong to the layer: forward they change its function, backward
    each gradient is that of the network up to a constant for each parameter, which nothing divides out: use an
    optimizer that does not mind, such as Adam, or other learning rates. The authors' later code takes batch^-3/4 for
    the weights. Activations have factors too: ReLU sqrt(2) both ways, GELU 1/.588 and 1/.675, tanh 1/.628 and 1/.681;
    layers whose weights have one axis (normalisation) have only that of the weight's gradient; anything else has none.

    The factor of a weight's gradient takes the examples for independent. Activations with a mean other than zero (ReLU,
    GELU) make them alike, more so with every layer: there the gradients of the last weights grow.

    Gradients are not tested, and every step is applied.

    Violates: 1 (`o`: the step is applied), 2 (nothing is divided out), 3 (the factors are static), 8 (they are no
    powers of two).

    Examples
    --------
    >>> scaler = UnitScaler()
    >>> from fp16sim.scaling.tensors import Moments
    >>> tensor = TensorStatistics(Moments(1.0, 0.0, 1.0), fan_in=64, fan_out=16, batch=4)
    >>> [scaler.scale_for(name, tensor) for name in ("0:output", "0:input_gradient", "0:weight_gradient")]
    [0.125, 0.25, 0.5]
    """

    name: ClassVar[str] = "unit"
    options: ClassVar[tuple[str, ...]] = ("loss_scale",)
    initial: ClassVar[str | None] = "loss_scale"

    loss_scale: float = 1.0

    def __post_init__(self) -> None:
        check_number("loss_scale", self.loss_scale, above=0)

    @property
    def scale(self) -> float:
        """What multiplies the loss."""
        return float(self.loss_scale)

    def layer_factors(self, kind: str, statistics: TensorStatistics) -> LayerFactors | None:
        """Give the factors of a layer, None for one that has none.

        Parameters
        ----------
        kind : str
            "weight" for a layer with a weight of two axes or more, "vector" for parameters of one axis; otherwise the
            class of the module, such as "ReLU".
        statistics : TensorStatistics
            Of which `fan_in`, `fan_out` and `batch` count.
        """
        rows = 1.0 / math.sqrt(statistics.batch)
        if kind == "weight":
            return LayerFactors(1.0 / math.sqrt(statistics.fan_in), 1.0 / math.sqrt(statistics.fan_out), rows)
        return LayerFactors(1.0, 1.0, rows) if kind == "vector" else _ACTIVATIONS.get(kind)

    def scale_for(self, name: str, statistics: TensorStatistics) -> float:
        """Give the factor of ``LAYER:output``, ``LAYER:input_gradient`` or ``LAYER:weight_gradient``."""
        factors = self.layer_factors("weight", statistics)
        part = name.rpartition(":")[2]
        if factors is None or part not in factors._fields:
            raise ValueError(
                f"{name!r}: name a layer and one of {', '.join(LayerFactors._fields)}, such as '0:output'"
            )
        return float(getattr(factors, part))

    def update(self, observation: Observation) -> tuple[UnitScaler, Decision]:
        """Apply the step as it is."""
        need_observation(observation)
        return self, Decision(apply=True, divide_by=1.0)

    def framework_state(self) -> dict[str, Any]:
        """Give what the package saves: nothing."""
        return {}

    def load_framework_state(self, state: Mapping[str, Any]) -> UnitScaler:
        """Give this scaler: there is no state to load."""
        if state:
            raise ValueError(f"a state with {sorted(state)[0]!r}: unit scaling saves nothing; pass {{}}")
        return self
