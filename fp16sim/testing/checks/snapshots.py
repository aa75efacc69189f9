"""What an object holds, as values that can be compared: to see that a call left it as it was."""

from __future__ import annotations

import reprlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

__all__ = ["Snapshot", "snapshot"]

_DEEPEST = 12


class Snapshot(dict[str, tuple[Any, str]]):
    """The attributes of an object by name, each as something that compares by value, and as text."""

    def differences(self, other: Snapshot) -> Iterator[str]:
        """Say what differs in another one of the same object; what it has more is no difference: a cache, say."""
        for name, (value, text) in self.items():
            if name not in other:
                yield f"{name} is gone"
            elif other[name][0] != value:
                yield f"{name} was {text}, then {other[name][1]}"


def snapshot(subject: Any) -> Snapshot:
    """Take down the attributes of an object, and its `scale`.

    >>> from types import SimpleNamespace
    >>> a, b = SimpleNamespace(scale=2.0, seen=[0.0]), SimpleNamespace(scale=2.0, seen=[-0.0])
    >>> list(snapshot(a).differences(snapshot(b)))
    ['seen was [0.0], then [-0.0]']
    """
    found = dict(_attributes(subject))
    if "scale" not in found and hasattr(subject, "scale"):
        found["scale"] = subject.scale
    return Snapshot({name: (_comparable(value), reprlib.repr(value)) for name, value in found.items()})


def _attributes(subject: Any) -> Iterator[tuple[str, Any]]:
    if is_dataclass(subject):
        yield from ((field.name, getattr(subject, field.name, None)) for field in fields(subject))
    for kind in type(subject).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__"):
                yield name, getattr(subject, name, None)
    yield from getattr(subject, "__dict__", {}).items()


def _comparable(value: Any, above: tuple[int, ...] = ()) -> Any:
    """Give what is equal where the values are, by type and bits: 0.0 is not -0.0, and a NaN is itself."""
    kind = type(value).__name__
    if value is None or isinstance(value, (bool, int, str, bytes)):
        return kind, value
    if isinstance(value, float):
        return kind, struct.pack("<d", value)
    if id(value) in above or len(above) >= _DEEPEST:
        return kind
    within = (*above, id(value))
    if isinstance(value, Mapping):
        items = ((_comparable(key, within), _comparable(part, within)) for key, part in value.items())
        return kind, tuple(sorted(items, key=repr))
    if isinstance(value, Sequence):
        return kind, tuple(_comparable(part, within) for part in value)
    if isinstance(value, (set, frozenset)):
        return kind, tuple(sorted((_comparable(part, within) for part in value), key=repr))
    if hasattr(value, "__array__"):
        array = np.asarray(value)
        return kind, array.dtype.str, array.shape, array.tobytes()
    return kind, tuple((name, _comparable(part, within)) for name, part in _attributes(value))
