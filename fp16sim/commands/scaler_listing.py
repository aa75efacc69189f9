"""The loss scalers of this package with their options, as text and as JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

__all__ = ["listed", "listed_as_json", "options"]


def options(scaler: Any) -> dict[str, Any]:
    """Give the options of a scaler and their values; one of the user's own has none that are known as such."""
    known = getattr(scaler, "options", ())
    names = [field.name for field in fields(scaler)] if is_dataclass(scaler) else []
    return {name: getattr(scaler, name) for name in names if name in known}


def listed(scalers: Mapping[str, Any]) -> str:
    """Write what each scaler is, and its options with their values."""
    from fp16sim.report.tables import power_of_two

    def shown(value: Any) -> str:
        if not isinstance(value, float):
            return str(value)
        return f"{value:g}" if 0.001 < abs(value) < 1 else power_of_two(value)

    lines = []
    for label, scaler in scalers.items():
        lines.append(f"{label}: {_summary(scaler)}".removesuffix(": "))
        text = ", ".join(f"{key}={shown(value)}" for key, value in options(scaler).items())
        lines += textwrap.wrap(text or "no options", 110, initial_indent="    ", subsequent_indent="    ")
    lines += ["", 'What they do on a history: fp16sim scalers "oo...o." --window 2']
    return "\n".join(lines) + "\n"


def listed_as_json(scalers: Mapping[str, Any]) -> str:
    """Write the same as one JSON object, with the options that mean the same everywhere."""
    from fp16sim.training.results import plain

    found = [
        {
            "name": label,
            "summary": _summary(scaler),
            "options": {key: plain(value) for key, value in options(scaler).items()},
            **{
                role: getattr(type(scaler), role, None) for role in ("initial", "window", "growth", "backoff")
            },
        }
        for label, scaler in scalers.items()
    ]
    return json.dumps({"scalers": found}, indent=2) + "\n"


def _summary(scaler: Any) -> str:
    return " ".join((type(scaler).__doc__ or "").split("\n\n")[0].split()).replace("`", "")
