"""What a loss scaler is: its input, its output, and the steps around it that have a default.

An object with only `scale` and `update` is a valid scaler.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, overload, runtime_checkable

import numpy as np
import numpy.typing as npt

from fp16sim.autograd.arithmetic import Arithmetic, round_array
from fp16sim.autograd.tensor import Tensor
from fp16sim.emulator.formats import nearest_name
from fp16sim.emulator.programs import program_of
from fp16sim.scaling.fields import need_fields
from fp16sim.scaling.state import SavedScaler
from fp16sim.scaling.wording import a_kind

__all__ = [
    "Decision",
    "Observation",
    "Scaler",
    "checked_update",
    "is_plain",
    "need_check",
    "need_observation",
    "observe",
    "scale_loss",
    "unscale",
]

Self = TypeVar("Self")
Array = npt.NDArray[Any]
_METHODS = ("reciprocal", "divide")
_DTYPES = ("float32", "tensor", "float32_then_tensor")


@dataclass(frozen=True)
class Observation:
    """What a step showed.

    Attributes
    ----------
    overflow : bool, or mapping of group to bool
        Whether a scaled gradient was infinite or NaN.
    nan : bool
        Whether one was NaN.
    checked : bool
        Whether the gradients were looked at.
    amax : float, mapping of group to float, or None
        Largest \\|unscaled gradient\\| in float64 before any flush; infinite if it overflowed.
    scales : mapping of group to float, or None
        The scales that the groups had in this step, where a `TensorScaler` chose them on the way.
    """

    overflow: bool | Mapping[str, bool] = False
    nan: bool = False
    checked: bool = True
    amax: float | Mapping[str, float] | None = None
    scales: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        plain = type(self.overflow) is bool and type(self.nan) is bool and type(self.checked) is bool
        if not (plain and (self.amax is None or type(self.amax) is float)):
            need_fields("Observation", self, ("overflow", "nan", "checked", "amax"))

    @property
    def overflowed(self) -> bool:
        """Whether any group overflowed.

        >>> Observation(overflow={"a": False, "b": True}).overflowed
        True
        """
        return any(self.overflow.values()) if isinstance(self.overflow, Mapping) else bool(self.overflow)

    def __bool__(self) -> bool:
        raise TypeError("an Observation is neither true nor false: ask whether it .overflowed")


@dataclass(frozen=True)
class Decision:
    """What to do with the gradients of the step.

    Attributes
    ----------
    apply : bool, or mapping of group to bool
        Whether the optimizer moves.
    divide_by : float, or mapping of group to float
        The scale to divide out.
    method : {"reciprocal", "divide"}
        Multiply by the reciprocal, taken in binary64 and rounded to the format of unscaling; or divide.
    dtype : {"float32", "tensor", "float32_then_tensor"}
        Unscale in float32; in the gradient's own format; or in float32, rounded to the gradient's own format after.
    advance : bool or None
        Whether counters and schedules move; None: as `apply`.
    stop : str or None
        A reason to stop training, which `fit` raises.
    """

    apply: bool | Mapping[str, bool]
    divide_by: float | Mapping[str, float]
    method: str = "reciprocal"
    dtype: str = "float32"
    advance: bool | None = None
    stop: str | None = None

    def __post_init__(self) -> None:
        if self.method not in _METHODS:
            raise ValueError(f"unknown method {self.method!r}: {nearest_name(self.method, _METHODS)}")
        if self.dtype not in _DTYPES:
            raise ValueError(f"unknown dtype {self.dtype!r}: {nearest_name(self.dtype, _DTYPES)}")


@runtime_checkable
class Scaler(Protocol):
    """A loss-scaling algorithm as a value.

    Needed are `scale` and `update`. `scale_loss` and `observe`, if a scaler has them, replace the functions of these
    names. For a run to be saved (`save_to` of :func:`fp16sim.fit`), a scaler is a dataclass whose fields are numbers,
    text, None, and tuples or dicts of those, or it has

    - ``to_json()``, which gives its whole state as text, a JSON object, and
    - ``from_state(state)``, a class method that makes a scaler from this object, without its entry ``"scaler"``.

    With `name` and `options`, a tuple with names of fields, a run is resumed only if these are as they were; other
    fields are state, and are restored.

    Examples
    --------
    >>> @dataclass(frozen=True)
    ... class Halving:
    ...     scale: float = 1024.0
    ...     def update(self, observation):
    ...         decision = Decision(apply=not observation.overflowed, divide_by=self.scale)
    ...         return Halving(self.scale / 2 if observation.overflowed else self.scale), decision
    >>> isinstance(Halving(), Scaler), Halving().update(Observation(overflow=True))[0]
    (True, Halving(scale=512.0))
    """

    @property
    def scale(self) -> float | Mapping[str, float]:
        """What the next loss is multiplied by."""

    def update(self: Self, observation: Observation) -> tuple[Self, Decision]:
        """Give the next scaler and what to do with this step; `self` does not change."""


def need_observation(observation: object) -> None:
    """Refuse what is no observation, such as a bool."""
    if not isinstance(observation, Observation):
        example = f"overflow={observation}" if isinstance(observation, bool) else "overflow=False"
        raise TypeError(
            f"update({_short(observation)}): a scaler is told what a step showed; "
            f"pass fs.scaling.Observation({example})"
        )


def need_check(observation: object) -> None:
    """Refuse what is no observation, and an observation of gradients that nobody looked at."""
    need_observation(observation)
    if isinstance(observation, Observation) and not observation.checked:
        raise ValueError("checked=False: the rule needs to know of overflow; observe the gradients first")


def _short(value: object) -> str:
    plain = value is None or isinstance(value, (bool, int, float, str))
    return repr(value) if plain else a_kind(value)


_UPDATE = (
    "a scaler gives the next one and a decision; return self, "
    "fs.scaling.Decision(apply=not observation.overflowed, divide_by=self.scale)"
)


def checked_update(scaler: Any, observation: Observation, given: Any = None) -> tuple[Any, Decision]:
    """Update a scaler, and refuse what is no next scaler with a decision.

    Parameters
    ----------
    scaler : object with `scale` and `update`
    observation : Observation
    given : optional
        What its `update` gave for this observation, if it was called already.

    Raises
    ------
    TypeError
        If `update` gives anything else, ends the process, or if the decision's `apply` is no bool, its `divide_by` no
        number or its `stop` no text, or an empty one.

    Examples
    --------
    >>> class Careless:
    ...     scale = 8.0
    ...     def update(self, observation):
    ...         return self
    >>> checked_update(Careless(), Observation())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    TypeError: Careless.update gave a Careless: a scaler gives the next one and a decision; return self, ...
    """
    kind = type(scaler).__name__
    try:
        given = scaler.update(observation) if given is None else given
    except (SystemExit, GeneratorExit) as error:
        raise TypeError(
            f"{kind}.update raised {type(error).__name__}({error}): the process is not a scaler's to end; to stop "
            "training give a decision with stop='the reason'"
        ) from error
    if not (isinstance(given, tuple) and len(given) == 2):
        raise TypeError(f"{kind}.update gave {_short(given)}: {_UPDATE}")
    following, decision = given
    if type(following) is type(scaler) and type(decision) is Decision and is_plain(decision):
        return following, decision  # to ask a protocol takes long
    if not isinstance(decision, Decision):
        raise TypeError(f"{kind}.update gave {_short(decision)} as its decision: {_UPDATE}")
    if not isinstance(following, (SavedScaler, Scaler)):
        raise TypeError(f"{kind}.update gave {_short(following)} as the next scaler: {_UPDATE}")
    need_fields(f"{kind}.update decided", decision, ("apply", "divide_by", "advance", "stop"))
    return following, decision


def is_plain(decision: Decision) -> bool:
    """Whether a decision is one of plain bools and floats, as most are, so that no field has to be looked at closer.

    >>> is_plain(Decision(True, 8.0)), is_plain(Decision(True, 8)), is_plain(Decision(None, 8.0))
    (True, False, False)
    """
    return (
        (decision.apply is True or decision.apply is False)
        and type(decision.divide_by) is float
        and decision.advance is None
        and decision.stop is None
    )


def scale_loss(scaler: Any, loss: Tensor) -> Tensor:
    """Multiply a loss by the scale, by the scaler's own `scale_loss` if it has one.

    The default rounds the scale to the format of the loss and multiplies there: in float16 a scale of 65536
    is infinite.
    """
    if hasattr(scaler, "scale_loss"):
        scaled: Tensor = scaler.scale_loss(loss)
        return scaled
    return loss * single_scale(scaler)


def observe(scaler: Any, gradients: Sequence[Array | None]) -> Observation:
    """Look at the scaled gradients, by the scaler's own `observe` if it has one.

    The default tests every element. `amax` is the largest magnitude divided by the scale, in float64.
    """
    if hasattr(scaler, "observe"):
        observation: Observation = scaler.observe(gradients)
        return observation
    largest, nan = 0.0, False
    for gradient in gradients:
        if gradient is not None and gradient.size:
            peak = _peak(gradient)
            nan = nan or math.isnan(peak)
            largest = max(largest, math.inf if math.isnan(peak) else peak)
    scale = single_scale(scaler)
    amax = largest / scale if scale else math.inf
    return Observation(overflow=math.isinf(largest), nan=nan, amax=amax)


def _peak(gradient: Array) -> float:
    """Give the largest magnitude, NaN if any element is."""
    if gradient.itemsize == 2:  # encodings without their sign are ordered as magnitudes, NaNs last
        return float((gradient.view(np.uint16) & np.uint16(0x7FFF)).max().view(gradient.dtype))
    return max(abs(float(gradient.max())), abs(float(gradient.min())))


_OVER = program_of(lambda gradient, scale: (gradient / scale,), 1, 1)
_TIMES = program_of(lambda gradient, factor: (gradient * factor,), 1, 1)


@overload
def unscale(gradient: Array, decision: Decision) -> Array: ...


@overload
def unscale(gradient: None, decision: Decision) -> None: ...


def unscale(gradient: Array | None, decision: Decision) -> Array | None:
    """Divide the scale out of a gradient, as the decision says.

    Parameters
    ----------
    gradient : array of float16, bfloat16, float32 or float64, or None
        None, for a parameter that the loss does not depend on, stays None.
    decision : Decision
        With one scale, not a mapping.

    Returns
    -------
    array
        Float32, or the gradient's dtype for ``dtype="tensor"`` and for float64: the gradient times the reciprocal, or
        over the scale, rounded to that dtype once. The reciprocal, 1 / scale in binary64, or the scale is rounded to
        that dtype first. For ``dtype="float32_then_tensor"`` the float32 result is rounded to the gradient's dtype, a
        second rounding.

    Examples
    --------
    >>> unscale(np.float16([8.0]), Decision(True, 8.0))
    array([1.], dtype=float32)
    """
    if isinstance(decision.divide_by, Mapping):
        raise TypeError("a decision with a scale for each group: pass the scale of this gradient's group")
    if gradient is None:
        return None
    r, scale = Arithmetic(), np.float64(decision.divide_by)
    keeps = decision.dtype == "tensor" or gradient.dtype == np.float64
    with np.errstate(all="ignore"):
        wide = gradient if keeps else round_array(gradient, np.float32)
        if decision.method == "divide":
            (result,) = r.perform(_OVER, wide, constants=(float(scale),))
        else:
            (result,) = r.perform(_TIMES, wide, constants=(float(1.0 / scale),))
        return round_array(result, gradient.dtype) if decision.dtype == "float32_then_tensor" else result


def single_scale(scaler: Any) -> float:
    """Give the scale of a scaler that has one for all gradients."""
    scale = scaler.scale
    if isinstance(scale, Mapping):
        raise TypeError(
            f"{type(scaler).__name__} has a scale for each group: use it with a step that has groups"
        )
    return float(scale)
