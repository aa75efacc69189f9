"""Delayed scaling of Transformer Engine: a scale for each tensor from the largest values that it lately had.

Source: transformer_engine/pytorch/fp8.py (`_default_get_amax_and_update_history`, `_default_sf_compute`) and
common/recipe/__init__.py (`DelayedScaling`), Transformer Engine 2.1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fp16sim.emulator.formats import nearest_name
from fp16sim.scaling.framework import check_entries
from fp16sim.scaling.numbers import float32
from fp16sim.scaling.protocol import Decision, Observation, need_check
from fp16sim.scaling.state import SavedScaler, check_number
from fp16sim.scaling.tensors import Scales, TensorStatistics

__all__ = ["DelayedScaler"]

_LARGEST = {"HYBRID": 57344.0, "E4M3": 448.0, "E5M2": 57344.0, "binary16": 65504.0}
_FLOAT32_MAX = 2.0**128 - 2.0**104
_STATE = ("scale", "amax_history")


@dataclass(frozen=True)
class DelayedScaler(SavedScaler):
    """Map the largest value that a tensor lately had to the largest of its format.

    Parameters
    ----------
    margin : int
        The scale is divided by 2^margin.
    fp8_format : str
        "E4M3" (largest 448), "E5M2" (57344), "HYBRID" (gradients as E5M2) or, not in Transformer Engine, "binary16"
        (65504).
    amax_history_len : int
        Steps that the history holds; 1 or more.
    amax_compute_algo : str
        "max": the largest of the history; "most_recent": the last.
    scales : mapping of tensor name to float
        State: float32 values; a tensor that was never seen has 1.
    amax_history : mapping of tensor name to tuple of float
        State: the last values, the newest at the end.

    Notes
    -----
    With a, the amax of the history in float32::

        s = f32(f32(largest / a) / 2^margin)      if a > 0 is finite
        s = the old s                             if a is 0, infinite or NaN
        s = the largest float32                   if that is infinite

    One NaN or infinity in the history makes its maximum NaN or infinite: with "max" the scale then stays for
    `amax_history_len` steps. The scale of a step comes from the steps before it, so a value that grows overflows once;
    casts to fp8 saturate, and no step is skipped. The engine here stores gradients in the formats of the policy, which
    do not saturate: a step with an infinite or NaN gradient is skipped.

    Violates: 3 and 6 (one `o` holds the scale for the whole history), 8 (scales are no powers of two), 9 (there is no
    window).

    Examples
    --------
    >>> scaler = DelayedScaler(fp8_format="E4M3", amax_compute_algo="most_recent")
    >>> for amax in (0.0, float("inf"), float("nan"), 3.5, 448.0):
    ...     scaler, _ = scaler.update(Observation(amax={"x": amax}))
    ...     print(scaler.scale["x"])
    1.0
    1.0
    1.0
    128.0
    1.0
    """

    name: ClassVar[str] = "delayed"
    options: ClassVar[tuple[str, ...]] = ("margin", "fp8_format", "amax_history_len", "amax_compute_algo")

    margin: int = 0
    fp8_format: str = "HYBRID"
    amax_history_len: int = 1024
    amax_compute_algo: str = "max"
    scales: Mapping[str, float] = None  # type: ignore[assignment]  # a dict after __post_init__
    amax_history: Mapping[str, tuple[float, ...]] = None  # type: ignore[assignment]  # likewise

    def __post_init__(self) -> None:
        check_number("margin", self.margin, above=-127, below=127, whole=True)
        check_number("amax_history_len", self.amax_history_len, above=0, whole=True)
        for name, valid in (
            ("fp8_format", tuple(_LARGEST)),
            ("amax_compute_algo", ("max", "most_recent")),
        ):
            value = getattr(self, name)
            if value not in valid:
                raise ValueError(f"{name}={value!r}: {nearest_name(str(value), valid)}")
        for name in ("scales", "amax_history"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, {})

    @property
    def scale(self) -> Scales:
        """The scale of each tensor, 1 for one that was never seen."""
        return Scales(self.scales, 1.0)

    def scale_for(self, name: str, statistics: TensorStatistics) -> float:
        """Give the scale of a tensor, whatever it holds now: it comes from earlier steps."""
        return self.scale[name]

    def update(self, observation: Observation) -> tuple[DelayedScaler, Decision]:
        """Take up the `amax` of each tensor and move its scale.

        An observation without `amax` counts as 0 for every known tensor, or as infinite if it overflowed.
        """
        need_check(observation)
        amax = observation.amax
        if amax is None:
            amax = math.inf if observation.overflowed else 0.0
        values = dict(amax) if isinstance(amax, Mapping) else dict.fromkeys(self.scales or ("",), amax)
        scales, histories = dict(self.scales), dict(self.amax_history)
        for name, value in values.items():
            history = (*histories.get(name, ()), float32(value))[-self.amax_history_len :]
            scales[name] = self._next(scales.get(name, 1.0), self._chosen(history))
            histories[name] = history
        following = replace(self, scales=scales, amax_history=histories)
        return following, Decision(
            apply=not (observation.overflowed or observation.nan), divide_by=self.scale
        )

    def _chosen(self, history: tuple[float, ...]) -> float:
        if self.amax_compute_algo == "most_recent":
            return history[-1]
        return math.nan if any(map(math.isnan, history)) else max(history)

    def _next(self, scale: float, amax: float) -> float:
        if not 0.0 < amax < math.inf:
            return scale
        found = float32(float32(_LARGEST[self.fp8_format] / amax) / math.ldexp(1.0, self.margin))
        return _FLOAT32_MAX if math.isinf(found) else found

    def framework_state(self) -> dict[str, Any]:
        """Give what the layers of Transformer Engine save: scales and histories by name."""
        return {"scale": dict(self.scales), "amax_history": dict(self.amax_history)}

    def load_framework_state(self, state: Mapping[str, Any]) -> DelayedScaler:
        """Give this scaler with saved scales and histories."""
        check_entries(state, _STATE, "delayed scaling", "framework_state()")
        history = {name: tuple(map(float, values)) for name, values in state["amax_history"].items()}
        return replace(self, scales=dict(state["scale"]), amax_history=history)
