"""What a framework saves of its scaler, read back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fp16sim.emulator.formats import nearest_name

__all__ = ["check_entries"]


def check_entries(state: Mapping[str, Any], entries: tuple[str, ...], what: str, source: str) -> None:
    """Refuse a saved state with unknown or missing entries, or with text where numbers stand.

    Parameters
    ----------
    state : mapping
    entries : tuple of str
        All that it has.
    what : str
        Whose state it is.
    source : str
        What gives it.

    Examples
    --------
    >>> check_entries({"scale": 8.0}, ("scale",), "GradScaler", "state_dict()")
    """
    for key in state:
        if key not in entries:
            hint = nearest_name(key, entries) if entries else "it has none"
            raise ValueError(f"unknown entry {key!r} of a {what} state: {hint}")
    for key in entries:
        if key not in state:
            raise ValueError(f"a {what} state without {key!r}: pass all of {source}")
        if state[key] is None or isinstance(state[key], (str, bytes)):
            raise ValueError(
                f"{key}={state[key]!r} in a {what} state: a number stands there; pass all of {source}"
            )
