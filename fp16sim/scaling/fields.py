"""What the fields of an observation and of a decision may hold: whoever made one of something else is told the rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

__all__ = ["as_number", "need_fields"]


def need_fields(what: str, record: Any, names: Iterable[str]) -> None:
    """Refuse a field of an observation or a decision that holds what it cannot.

    Parameters
    ----------
    what : str
        Whose they are, as the message begins.
    record : Observation or Decision
    names : iterable of str
        The fields that are looked at.

    Raises
    ------
    TypeError
        Of an empty reason to stop, too: no ValueError, which might be a clear answer to a call out of order.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> need_fields("Mine.update decided", SimpleNamespace(apply="yes"), ["apply"])
    Traceback (most recent call last):
        ...
    TypeError: Mine.update decided apply='yes': it is True or False, whether the optimizer moves; pass apply=not ...
    """
    for name in names:
        value = getattr(record, name)
        fits, rule, several = _FIELDS[name]
        parts = value.values() if several and isinstance(value, Mapping) else (value,)
        if not all(fits(part) for part in parts):
            raise TypeError(f"{what} {name}={repr(value)[:40]}: {rule}")


def as_number(value: Any) -> float | None:
    """Give the number that a value is, and None if it is none, several, or an integer beyond float64.

    >>> as_number(np.float32(8.0)), as_number("8"), as_number(True)
    (8.0, None, None)
    """
    numeric = hasattr(value, "__float__") or hasattr(value, "__index__")
    if numeric and not isinstance(value, (str, bytes, bool, np.bool_)):
        with suppress(TypeError, ValueError, OverflowError):
            return float(value)
    return None


def _is_flag(value: Any) -> bool:
    """Whether a value is a bool of Python, NumPy, or another library's with one element."""
    return isinstance(value, (bool, np.bool_)) or (
        str(getattr(value, "dtype", "")).endswith("bool") and getattr(value, "shape", None) in ((), (1,))
    )


def _is_seen(value: Any) -> bool:
    """Whether a value says yes or no of what was seen: frameworks count it, so 1 and 0.0 do, too."""
    return _is_flag(value) or (isinstance(value, (int, float, np.integer, np.floating)) and value in (0, 1))


def _is_number(value: Any) -> bool:
    return as_number(value) is not None


_FIELDS: dict[str, tuple[Callable[[Any], bool], str, bool]] = {
    "apply": (
        _is_flag,
        "it is True or False, whether the optimizer moves; pass apply=not observation.overflowed",
        True,
    ),
    "divide_by": (_is_number, "a scale is a number above 0; give one, such as 1024.0", True),
    "advance": (
        lambda value: value is None or _is_flag(value),
        "it is True or False, whether counters move, or None for as `apply`; leave it out",
        False,
    ),
    "stop": (
        lambda value: value is None or (isinstance(value, str) and value != ""),
        "it is None, or text that says why; pass stop='too low', for example",
        False,
    ),
    "overflow": (
        _is_seen,
        "it is True or False, whether a scaled gradient was infinite or NaN; pass True, for example",
        True,
    ),
    "nan": (
        _is_seen,
        "it is True or False, whether a scaled gradient was NaN; pass True, for example",
        False,
    ),
    "checked": (_is_seen, "it is True or False, whether anybody looked; pass False, for example", False),
    "amax": (
        lambda value: value is None or _is_number(value),
        "it is the largest magnitude of the unscaled gradients; pass a number, or None if nobody knows",
        True,
    ),
}
"""Of each field what fits it, the rule and the remedy, and whether there may be one for each group."""
