"""Adaptive loss scaling: a scale for each layer from the statistics of its gradient and its weight.

Source: Zhao, Vogel and Ahmed, Adaptive Loss Scaling for Mixed Precision Training, arXiv 1910.12385; the authors' code,
ada_loss/core.py and ada_loss/chainer_impl/ada_loss_chainer.py (github.com/kumasento/gradient-scaling), method
"approx_range".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from fp16sim.autograd.arithmetic import Arithmetic
from fp16sim.scaling.numbers import float32
from fp16sim.scaling.protocol import Decision, Observation, need_check
from fp16sim.scaling.state import SavedScaler, check_number
from fp16sim.scaling.tensors import Moments, TensorStatistics

__all__ = ["AdaptiveScaler", "underflow_threshold"]

_MOST = 2.0**126


@lru_cache(maxsize=64)
def underflow_threshold(n_uf: float) -> float:
    """Give T with P(\\|N\\| <= T) = n_uf for a standard normal N: sqrt(2) times the inverse error function of n_uf.

    The largest binary64 t whose `erf` here does not exceed n_uf, found by bisection, times the rounded sqrt(2).

    >>> round(underflow_threshold(1e-3), 12)
    0.001253314465
    """
    low, high = 0.0, 6.0
    while low < (middle := (low + high) / 2) < high:
        if float(Arithmetic().function("erf", np.array([middle]))[0]) <= n_uf:
            low = middle
        else:
            high = middle
    return low * math.sqrt(2.0)


@dataclass(frozen=True)
class AdaptiveScaler(SavedScaler):
    """Lift the gradient that reaches a layer so far that few products with the layer's weight underflow.

    Parameters
    ----------
    n_uf_threshold : float
        The share of products that may underflow, between 0 and 1.
    scale_upper_bound : float
        The most that one layer multiplies by.
    accum_upper_bound : float
        The most that the layers up to one multiply by together.
    use_bound : bool
        Whether these two bounds hold.
    power_of_two : bool
        Whether the factor of a layer is floored to a power of two.
    u_min, u_max : float
        The range of the format; rounded to float32.
    init_scale : float
        What multiplies the loss. (In the authors' code chainer's own loss scale.)

    Notes
    -----
    With the gradient g of the layer's output as it arrives, carrying the scale c of the layers before it on the way
    back, its weight W, which sums F products into one element of the gradient of the input, and T of
    :func:`underflow_threshold`::

        sigma  = sqrt((sd(g)^2 + mean(g)^2) (sd(W)^2 + mean(W)^2)) sqrt(F / 2)
        factor = max(u_min / (T sigma), 1)
        factor = min(factor, u_max / F / (max|g| max|W|))
        factor = min(factor, accum_upper_bound / c, scale_upper_bound)
        factor = 2^floor(log2(factor))
        scale  = c factor

    Without a weight sigma = sd(g), F = 1 and max\\|W\\| = 1; sigma = 0 gives the factor 1, and so does a gradient that
    is not finite: its step is skipped. A factor is 2^126 at most. Everything is computed in binary64 (the authors'
    code: float32, and the factor itself in the format of the gradient).

    In the authors' code the gradient of the weight is formed before the factor is applied. A tensor here has one
    gradient, so it carries the factor too. Where branches meet the first to arrive gives the scale (there: the largest
    that does not overflow). A step with an overflow is skipped, which leaves nothing behind: the rule has no state.

    Violates: 3 (`o` for ever where the loss itself is too large for `init_scale`). With ``power_of_two=False`` also 8.

    Examples
    --------
    >>> from fp16sim.scaling.tensors import Moments
    >>> gradient, weight = Moments(2.0**-10, 0.0, 2.0**-20), Moments(1.0, 0.0, 0.125)
    >>> scaler = AdaptiveScaler(accum_upper_bound=2.0**30, scale_upper_bound=2.0**20)
    >>> scaler.scale_for("0", TensorStatistics(gradient, weight=weight, fan_out=32))
    64.0
    """

    name: ClassVar[str] = "adaptive"
    options: ClassVar[tuple[str, ...]] = (
        "n_uf_threshold",
        "scale_upper_bound",
        "accum_upper_bound",
        "use_bound",
        "power_of_two",
        "u_min",
        "u_max",
        "init_scale",
    )
    initial: ClassVar[str | None] = "init_scale"

    n_uf_threshold: float = 1e-3
    scale_upper_bound: float = 16.0
    accum_upper_bound: float = 1024.0
    use_bound: bool = True
    power_of_two: bool = True
    u_min: float = 6.0e-8
    u_max: float = 65504.0
    init_scale: float = 1.0

    def __post_init__(self) -> None:
        check_number("n_uf_threshold", self.n_uf_threshold, above=0, below=1)
        for name in ("scale_upper_bound", "accum_upper_bound", "u_min", "u_max", "init_scale"):
            check_number(name, getattr(self, name), above=0)
        if self.u_min >= self.u_max:
            raise ValueError(f"u_min={self.u_min:g}, u_max={self.u_max:g}: a range; pass u_min below u_max")
        for name in ("use_bound", "power_of_two"):
            if getattr(self, name) not in (0, 1):
                raise ValueError(f"{name}={getattr(self, name)!r}: yes or no; pass 1 or 0")

    @property
    def scale(self) -> float:
        """What multiplies the loss."""
        return float(self.init_scale)

    def scale_for(self, name: str, statistics: TensorStatistics) -> float:
        """Give the scale that the gradient of a layer's output is to carry."""
        return statistics.carried * self._factor(statistics)

    def _factor(self, statistics: TensorStatistics) -> float:
        g, w, carried = statistics.values, statistics.weight, statistics.carried
        if not math.isfinite(g.amax):
            return 1.0
        u_min, u_max, sigma, largest = float32(self.u_min), float32(self.u_max), g.deviation, g.amax
        if w is not None:
            sigma = math.sqrt(_square(g) * _square(w)) * math.sqrt(0.5 * statistics.fan_out)
            u_max, largest = u_max / statistics.fan_out, g.amax * w.amax
        if sigma == 0.0 or largest == 0.0:
            return 1.0
        factor = min(max(u_min / (underflow_threshold(self.n_uf_threshold) * sigma), 1.0), u_max / largest)
        if self.use_bound:
            factor = min(factor, self.accum_upper_bound / carried, self.scale_upper_bound)
        factor = min(factor, _MOST)
        return math.ldexp(0.5, math.frexp(factor)[1]) if self.power_of_two else factor

    def update(self, observation: Observation) -> tuple[AdaptiveScaler, Decision]:
        """Apply the step unless it overflowed; each layer is divided by the scale that it had."""
        need_check(observation)
        divide_by = self.scale if observation.scales is None else dict(observation.scales)
        return self, Decision(apply=not observation.overflowed, divide_by=divide_by)

    def framework_state(self) -> dict[str, Any]:
        """Give what the authors' code saves: nothing."""
        return {}

    def load_framework_state(self, state: Mapping[str, Any]) -> AdaptiveScaler:
        """Give this scaler: there is no state to load."""
        if state:
            raise ValueError(f"a state with {sorted(state)[0]!r}: adaptive scaling saves nothing; pass {{}}")
        return self


def _square(of: Moments) -> float:
    return of.deviation * of.deviation + of.mean * of.mean
