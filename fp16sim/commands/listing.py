"""``fp16sim train --list``: what its options take, by name."""

from __future__ import annotations

import json
import textwrap
from typing import Any

__all__ = ["listed"]

WIDTH = 110


def listed(as_json: bool) -> str:
    """Give the models, policies, loss scalers and datapaths, as text or as one JSON object."""
    found = {
        "models": _models(),
        "policies": _policies(),
        "scalers": _scalers(),
        "datapaths": _datapaths(),
    }
    if as_json:
        return json.dumps(found, indent=2, allow_nan=False) + "\n"
    sections = [
        _section(
            "Models, for --model:",
            {
                each["name"]: f"{each['summary']}; {each['steps']} steps, measured by {each['metric']}"
                for each in found["models"]
            },
        ),
        _section(
            "Policies, for --policy:",
            {
                each["name"]: f"computes in {each['compute']}, keeps parameters in {each['parameters']}, "
                f"what needs range is in {each['wide']}"
                for each in found["policies"]
            },
        ),
        _section(
            "Loss scalers, for --scaler, with their options; fp16sim scalers says what each does:",
            {
                each["name"]: ", ".join(f"{key}={value}" for key, value in each["options"].items())
                for each in found["scalers"]
            },
        ),
        _section(
            "Datapaths, for --datapath, --gradients and --reduction:",
            {each["name"]: each["summary"] for each in found["datapaths"]},
        ),
    ]
    return "\n".join(sections)


def _section(title: str, entries: dict[str, str]) -> str:
    width = max(map(len, entries))
    lines = [title]
    for name, text in entries.items():
        begin = f"  {name.ljust(width)}  "
        lines += textwrap.wrap(
            text or "no options", WIDTH, initial_indent=begin, subsequent_indent=" " * len(begin)
        )
    return "\n".join(lines) + "\n"


def _models() -> list[dict[str, Any]]:
    from fp16sim.training.recipes import RECIPES

    return [
        {"name": name, "summary": each.summary, "steps": each.steps, "metric": each.metric}
        for name, each in RECIPES.items()
    ]


def _policies() -> list[dict[str, Any]]:
    from fp16sim.autograd.policy import POLICIES, Policy

    return [
        {"name": name, **{key: getattr(Policy(name), key) for key in ("compute", "parameters", "wide")}}
        for name in POLICIES
    ]


def _scalers() -> list[dict[str, Any]]:
    from fp16sim.scaling.registry import make, names
    from fp16sim.training.results import plain

    found = {name: make(name) for name in names()}
    return [
        {"name": name, "options": {key: plain(getattr(each, key)) for key in each.options}}
        for name, each in found.items()
    ]


def _datapaths() -> list[dict[str, Any]]:
    """Describe those that take operands of a policy; others take tf32 or 8 bits."""
    from fp16sim.emulator.datapath import DATAPATHS
    from fp16sim.emulator.formats import bfloat16, binary16, binary32, binary64

    operands = {binary16, bfloat16, binary32, binary64}
    return [
        {
            "name": name,
            "summary": repr(each).removeprefix(f"Datapath({name!r}: ").removesuffix(")"),
            "takes": [fmt.name for path in (each, *each.variants) for fmt in path.inputs if fmt in operands],
        }
        for name, each in DATAPATHS.items()
        if operands.intersection(each.inputs)
    ]
