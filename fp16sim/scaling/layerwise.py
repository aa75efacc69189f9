"""The layer-wise rule of fairscale.

Source: fairscale/optim/layerwise_gradient_scaler.py, fairscale 0.4.13, whose recorded traces the tests replay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from fp16sim.scaling.protocol import Decision, Observation, need_check
from fp16sim.scaling.state import SavedScaler, check_number
from fp16sim.scaling.tensors import Scales

__all__ = ["FairscaleLayerwiseScaler"]

_FLOAT32_TINY, _FLOAT32_MAX = 2.0**-126, 2.0**128 - 2.0**104


@dataclass(frozen=True)
class FairscaleLayerwiseScaler(SavedScaler):
    """Give each layer a scale of its own: halve that of a layer that overflowed, double it after finite steps.

    Parameters
    ----------
    layer_scale_dict : mapping of layer name to float, optional
        Initial scales. fairscale does not look at them.
    growth_factor : float
        Above 1.
    backoff_factor : float
        Below 1.
    growth_interval : int
        A layer's scale grows on exactly its finite step of that number; never if it is 0 or less.
    min_scale, max_scale : float
        To which a scale is clipped when it moves; of a minimum above the maximum it is the minimum.
    init_scale : float, optional
        Not an option of fairscale: the initial scale of every layer that `layer_scale_dict` does not name. Without it
        such a layer keeps the scale 1, as in fairscale.
    scales : mapping of layer name to float
        State: the scales that move.
    growth_trackers : mapping of layer name to int
        State: finite steps of those layers since they overflowed or grew.
    found_inf : tuple of str
        State: the layers that overflowed in the last step.

    Notes
    -----
    A step is skipped if any layer overflowed, which the gradients of its parameters show, element by element. They are
    looked at while they are scaled; fairscale looks after it has multiplied by the reciprocals, and so sees what a
    scale far below 1 makes infinite there as well. Scales are Python floats; the gradient of a layer's output is
    multiplied in float32 and rounded to its own format, that of a parameter by the reciprocal of the scale of its
    layer.

    With no `layer_scale_dict` (and no `init_scale`) fairscale does nothing: every step is applied, even an infinite
    one. Its ``unscale`` goes by what ``step`` found the time before: a layer that overflowed in a step is not unscaled
    in the next one, whose update is larger by the scale. It counts modules without parameters as layers of scale 1 too,
    and leaves the loss alone, so that its users end the network with an ``nn.Identity``; in the engine here layers are
    the modules that have parameters, and the loss takes the scale of the last one. It saves nothing.

    Violates: 1 (without layers, ``o``), 2 (``o.``), 3 (`growth_interval` 0, or layers that keep scale 1), 7 (a scale
    below `min_scale`), 8 (with other factors, and at `max_scale`), 10 (nothing is saved).

    Examples
    --------
    >>> scaler = FairscaleLayerwiseScaler({"a": 8.0, "b": 8.0}, growth_interval=2)
    >>> for overflow in ({"a": True, "b": False}, {"a": False, "b": False}):
    ...     scaler, decision = scaler.update(Observation(overflow=overflow))
    ...     print(dict(scaler.scale), decision.apply, dict(decision.divide_by))
    {'a': 4.0, 'b': 8.0} False {'a': 8.0, 'b': 8.0}
    {'a': 4.0, 'b': 16.0} True {'a': 1.0, 'b': 8.0}
    """

    name: ClassVar[str] = "fairscale_layerwise"
    options: ClassVar[tuple[str, ...]] = (
        "layer_scale_dict",
        "growth_factor",
        "backoff_factor",
        "growth_interval",
        "min_scale",
        "max_scale",
        "init_scale",
    )
    initial: ClassVar[str | None] = "init_scale"
    window: ClassVar[str | None] = "growth_interval"
    growth: ClassVar[str | None] = "growth_factor"
    backoff: ClassVar[str | None] = "backoff_factor"

    layer_scale_dict: Mapping[str, float] | None = None
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 10000
    min_scale: float = _FLOAT32_TINY
    max_scale: float = _FLOAT32_MAX
    init_scale: float | None = None
    scales: Mapping[str, float] = None  # type: ignore[assignment]  # a dict after __post_init__
    growth_trackers: Mapping[str, int] = None  # type: ignore[assignment]  # likewise
    found_inf: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        given = self.layer_scale_dict
        if given is not None and not isinstance(given, Mapping):
            raise ValueError(
                f"layer_scale_dict={given!r}: a scale for each layer by its name; pass {{'0': 1024.0}}, or init_scale"
            )
        for layer, scale in (given or {}).items():
            check_number(f"layer_scale_dict[{layer!r}]", scale)
        if self.init_scale is not None:
            check_number("init_scale", self.init_scale, above=0)
        check_number("growth_factor", self.growth_factor, above=1)
        check_number("backoff_factor", self.backoff_factor, below=1)
        check_number("growth_interval", self.growth_interval, whole=True)
        for name in ("min_scale", "max_scale"):
            check_number(name, getattr(self, name))
        if self.scales is None:
            object.__setattr__(self, "scales", {k: float(v) for k, v in (given or {}).items()})
        if self.growth_trackers is None:
            object.__setattr__(self, "growth_trackers", dict.fromkeys(self.scales, 0))

    @property
    def scale(self) -> Scales:
        """The scale of each layer; a layer that is not named has `init_scale`, or 1."""
        return Scales(self.scales, 1.0 if self.init_scale is None else float(self.init_scale))

    def update(self, observation: Observation) -> tuple[FairscaleLayerwiseScaler, Decision]:
        """Move the scale of every layer by one step; one answer for all means each of them."""
        need_check(observation)
        overflow = observation.overflow
        every = dict.fromkeys(overflow if isinstance(overflow, Mapping) else self.scales)
        found = {k: overflow[k] if isinstance(overflow, Mapping) else bool(overflow) for k in every}
        scale = self.scale
        if not self.layer_scale_dict and self.init_scale is None:
            return self, Decision(apply=True, divide_by=Scales({}, 1.0))
        divide_by = Scales(
            {k: 1.0 if k in self.found_inf else scale[k] for k in dict.fromkeys((*every, *self.scales))},
            scale.other,
        )
        moving = [k for k in every if k in self.scales or self.init_scale is not None]
        scales, trackers = dict(self.scales), dict(self.growth_trackers)
        for layer in moving:
            scales[layer], trackers[layer] = self._moved(scale[layer], trackers.get(layer, 0), found[layer])
        overflowed = tuple(k for k in every if found[k])
        following = replace(self, scales=scales, growth_trackers=trackers, found_inf=overflowed)
        return following, Decision(apply=not observation.overflowed, divide_by=divide_by)

    def _moved(self, scale: float, tracker: int, overflowed: bool) -> tuple[float, int]:
        if overflowed:
            return self._clipped(self.backoff_factor * scale), 0
        if tracker + 1 == self.growth_interval:
            return self._clipped(self.growth_factor * scale), 0
        return scale, tracker + 1

    def _clipped(self, scale: float) -> float:
        return max(self.min_scale, min(scale, self.max_scale))

    def framework_state(self) -> dict[str, Any]:
        """Give what fairscale saves: nothing."""
        return {}

    def load_framework_state(self, state: Mapping[str, Any]) -> FairscaleLayerwiseScaler:
        """Give the scaler as it was made: fairscale has no state to load."""
        if state:
            raise ValueError(
                f"a state with {sorted(state)[0]!r}: fairscale saves nothing of its layer-wise scaler; pass {{}}"
            )
        return FairscaleLayerwiseScaler(**{option: getattr(self, option) for option in self.options})
