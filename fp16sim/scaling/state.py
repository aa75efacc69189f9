"""Saving a scaler: every field of the dataclass, options and counters alike, as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from typing import Any, ClassVar, TypeVar

from fp16sim.emulator.formats import nearest_name

__all__ = ["SavedScaler", "check_number", "restored_scaler", "saved_scaler"]

Kind = TypeVar("Kind", bound="SavedScaler")
_NOT_FINITE = ("inf", "-inf", "nan")


class SavedScaler:
    """Base of the scalers of this package: saves and restores the whole state.

    Attributes
    ----------
    name : str
        What `fp16sim.scaling.make` calls it.
    options : tuple of str
        The fields that a user sets; the others are state.
    initial, window, growth, backoff : str or None
        Which of the options is the initial scale, the number of finite steps before growth, and the factors of growth
        and of backoff, by whatever names the framework gives them; None where it has none.
    initial_is_exponent : bool
        Whether the initial scale is 2 to the power of that option.
    """

    name: ClassVar[str]
    options: ClassVar[tuple[str, ...]]
    initial: ClassVar[str | None] = None
    window: ClassVar[str | None] = None
    growth: ClassVar[str | None] = None
    backoff: ClassVar[str | None] = None
    initial_is_exponent: ClassVar[bool] = False
    _is_ours: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._is_ours = cls.__module__.partition(".")[0] == __name__.partition(".")[0]

    def moved(self: Kind, **state: Any) -> Kind:
        """Give this scaler in another state, as ``dataclasses.replace`` does, without looking at its fields again.

        The options are those of a scaler that was made, and were looked at then: `update` takes a fifth of the time.
        What it passes has the type of the field, and is rounded. A subclass in another package may do more when it is
        made, and is made anew.
        """
        if not self._is_ours:
            return replace(self, **state)  # type: ignore[type-var]
        following = object.__new__(type(self))
        following.__dict__.update(self.__dict__)
        following.__dict__.update(state)
        return following

    def to_json(self) -> str:
        """Give the whole state as one JSON object; every float reads back to the same bits."""
        return _as_json(self.name, self)

    @classmethod
    def from_state(cls: type[Kind], state: dict[str, Any]) -> Kind:
        """Read the object that :meth:`to_json` wrote, without its ``scaler`` entry."""
        known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
        for key in state:
            if key not in known:
                raise ValueError(f"{cls.name} has no state {key!r}: {nearest_name(key, list(known))}")
        missing = sorted(set(known) - set(state))
        if missing:
            raise ValueError(
                f"the state of {cls.name} lacks {missing[0]!r}: pass the whole of what to_json wrote"
            )
        values = {key: _read(value) for key, value in state.items()}
        for key, value in values.items():
            if not _is_of(str(known[key].type), value):
                shown = repr(value) if len(str(value)) < 60 else f"a {type(value).__name__}"
                raise ValueError(
                    f"{key}={shown} in a state of {cls.name}: its type is {known[key].type}; pass what to_json wrote"
                )
        return cls(**values)


def saved_scaler(scaler: Any) -> str:
    """Give the state of a scaler as text: by its own ``to_json``, else the fields of a dataclass.

    Raises
    ------
    TypeError
        If it has neither, or :func:`restored_scaler` would not find the same scaler in the text.
    """
    kind = type(scaler).__name__
    if hasattr(scaler, "to_json"):
        if not hasattr(scaler, "from_state"):
            raise TypeError(
                f"a {kind} has to_json and no from_state, so the run cannot be resumed: define it, or leave out save_to"
            )
        text: str = scaler.to_json()
        return text
    remedy = "define to_json and from_state, make it a dataclass of numbers and text, or leave out save_to"
    if not is_dataclass(scaler) or isinstance(scaler, type):
        raise TypeError(f"a {kind} has no to_json, so the run cannot be saved: {remedy}")
    try:
        text = _as_json(kind, scaler)
        same = _as_json(kind, restored_scaler(scaler, text)) == text
    except (TypeError, ValueError) as error:
        raise TypeError(f"a {kind} cannot be saved ({error}): {remedy}") from error
    if not same:
        raise TypeError(f"a {kind} is another one when it is read back: {remedy}")
    return text


def restored_scaler(scaler: Any, text: str) -> Any:
    """Make a scaler of the same class from what :func:`saved_scaler` wrote.

    >>> from fp16sim.scaling.static import StaticScaler
    >>> restored_scaler(StaticScaler(), saved_scaler(StaticScaler(8.0)))
    StaticScaler(scale=8.0)
    """
    state = {key: value for key, value in json.loads(text).items() if key != "scaler"}
    if hasattr(type(scaler), "from_state"):
        return type(scaler).from_state(state)
    made = {field.name for field in fields(scaler) if field.init}
    restored = type(scaler)(**{key: _read(value) for key, value in state.items() if key in made})
    for key in set(state) - made:
        object.__setattr__(restored, key, _read(state[key]))
    return restored


def _as_json(name: str, scaler: Any) -> str:
    state = {key: _plain(value) for key, value in asdict(scaler).items()}
    return json.dumps({"scaler": name, **state}, allow_nan=False)


def check_number(
    name: str,
    value: Any,
    *,
    above: float = -math.inf,
    below: float = math.inf,
    least: float = -math.inf,
    most: float = math.inf,
    whole: bool = False,
) -> None:
    """Refuse an option that is not a finite number between bounds: above and below some, at least and at most others.

    >>> check_number("burst_rate", 2, least=0, most=1)
    Traceback (most recent call last):
        ...
    ValueError: burst_rate=2: it must be a finite number from 0 to 1
    """
    kind = int if whole else (int, float)
    number = isinstance(value, kind) and not isinstance(value, bool)
    huge = number and isinstance(value, int) and not whole and _is_beyond_float64(value)
    if not number or huge or not (above < value < below and least <= value <= most):
        need = "an integer" if whole else "a finite number"
        bounds = [f"above {above:g}"] * (above > -math.inf) + [f"below {below:g}"] * (below < math.inf)
        if least > -math.inf:
            need += f", {least} or more" if most == math.inf else f" from {least} to {most}"
        shown = f"an integer of {value.bit_length()} bits" if huge else repr(value)
        raise ValueError(f"{name}={shown}: it must be {' '.join([need, ' and '.join(bounds)]).strip()}")


def _is_of(kind: str, value: Any) -> bool:
    """Whether a value is what an annotation says; of annotations that no scaler here has, it always is."""
    if kind.endswith(" | None"):
        return value is None or _is_of(kind.removesuffix(" | None"), value)
    if kind.startswith("Mapping[str, "):
        inner = kind.removeprefix("Mapping[str, ")[:-1]
        return isinstance(value, Mapping) and all(_is_of(inner, part) for part in value.values())
    if kind.startswith("tuple["):
        inner = kind.removeprefix("tuple[").removesuffix(", ...]")
        return isinstance(value, tuple) and all(_is_of(inner, part) for part in value)
    if kind in ("int", "float"):
        number = isinstance(value, int) or (kind == "float" and isinstance(value, float))
        huge = kind == "float" and isinstance(value, int) and _is_beyond_float64(value)
        return number and not isinstance(value, bool) and not huge
    if kind == "bool":
        return isinstance(value, (bool, int)) and value in (0, 1)
    return kind != "str" or isinstance(value, str)


def _is_beyond_float64(value: int) -> bool:
    try:
        float(value)
    except OverflowError:
        return True
    return False


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(part) for part in value]
    return value


def _read(value: Any) -> Any:
    """Undo :func:`_plain`: text for a float becomes one, and lists become tuples."""
    if isinstance(value, str) and value in _NOT_FINITE:
        return float(value)
    if isinstance(value, dict):
        return {key: _read(part) for key, part in value.items()}
    if isinstance(value, list):
        return tuple(_read(part) for part in value)
    return value
