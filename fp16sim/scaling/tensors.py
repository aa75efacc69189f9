"""The second protocol: a scale for each layer or tensor, and what such a scaler is told of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

from fp16sim.autograd.arithmetic import Arithmetic, Array, round_array
from fp16sim.scaling.protocol import Decision, Observation

__all__ = ["Moments", "Scales", "TensorScaler", "TensorStatistics", "moments"]

Self = TypeVar("Self")


@dataclass(frozen=True)
class Moments:
    """Largest magnitude, mean and standard deviation (over the count) of a tensor, in binary64."""

    amax: float
    mean: float
    deviation: float


@dataclass(frozen=True)
class TensorStatistics:
    """What a scaler is told of a tensor before it gives its scale.

    Attributes
    ----------
    values : Moments
        Of the tensor as it is, carrying the scale `carried`.
    carried : float
        The scale that it carries already.
    weight : Moments or None
        Of the weight that it meets next; None for a layer without one.
    fan_in, fan_out : int
        Products that the weight sums into one output, and into one element of the gradient of its input; 1 without a
        weight.
    batch : int
        Products that are summed into one element of the gradient of the weight.
    """

    values: Moments
    carried: float = 1.0
    weight: Moments | None = None
    fan_in: int = 1
    fan_out: int = 1
    batch: int = 1


@runtime_checkable
class TensorScaler(Protocol):
    """A scaling algorithm with a scale for each tensor, as a value.

    `scale` multiplies the loss. If it is a mapping, the loss takes the smallest scale of the layers next to it, and
    `scale_for` is not asked while training: the mapping holds the scale of every group.
    """

    @property
    def scale(self) -> float | Mapping[str, float]:
        """What the next loss is multiplied by, or the scale of each group."""

    def scale_for(self, name: str, statistics: TensorStatistics) -> float:
        """Give the scale that a tensor is to carry; `self` does not change."""

    def update(self: Self, observation: Observation) -> tuple[Self, Decision]:
        """Give the next scaler and what to do with this step; `self` does not change."""


class Scales(Mapping[str, float]):
    """Scales by group, with one for every group that is not named.

    >>> scales = Scales({"a": 8.0}, 2.0)
    >>> scales["a"], scales["b"], dict(scales)
    (8.0, 2.0, {'a': 8.0})
    """

    def __init__(self, named: Mapping[str, float], other: float) -> None:
        self._named, self.other = dict(named), other

    def __getitem__(self, group: str) -> float:
        return self._named.get(group, self.other)

    def __iter__(self) -> Iterator[str]:
        return iter(self._named)

    def __len__(self) -> int:
        return len(self._named)

    def __repr__(self) -> str:
        return f"Scales({self._named!r}, {self.other!r})"


def moments(array: Array) -> Moments:
    """Measure a tensor: exact conversion to binary64, then sums in C order, each step rounded to binary64.

    mean = sum(x) / n; deviation = sqrt(sum((x - mean)^2) / n). All are 0 without elements.

    >>> moments(np.float16([1, -3]))
    Moments(amax=3.0, mean=-1.0, deviation=2.0)
    """
    if not array.size:
        return Moments(0.0, 0.0, 0.0)
    with np.errstate(all="ignore"):
        r, x = Arithmetic(), round_array(array, "float64").ravel()
        count = r.constant(float(x.size), x)
        mean = r.divide(r.sum(x), count)
        away = r.subtract(x, mean)
        deviation = r.sqrt(r.divide(r.sum(r.multiply(away, away)), count))
        amax = float(np.max(np.abs(x)))
    return Moments(math.inf if math.isnan(amax) else amax, float(mean), float(deviation))
