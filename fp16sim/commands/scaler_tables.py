"""What scalers do on one history, as text and as JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fp16sim.testing.tracing import Traced

__all__ = ["OPEN_LOOP", "Row", "as_json", "shortened", "table"]

MOST_COLUMNS = 16
"""Steps up to which the table has a column for each."""
MOST_CHARACTERS = 160
"""Of a row that tells all changes of the scale; where one would be longer, each scaler is summed up."""
_FEWEST_MOVES = 3
"""Changes in a row that are told as one."""

OPEN_LOOP = (
    "A history is an open loop: it says which steps overflow, and under another scale others might have. "
    'fs.scaling.simulate("torch", peaks) closes it, by log2 of the largest gradient of each step.'
)


@dataclass(frozen=True)
class Row:
    """One scaler on the history; without a trace, `says` why."""

    label: str
    options: dict[str, Any]
    trace: Traced | None
    says: str = ""

    @property
    def end(self) -> tuple[str, int]:
        """Say in a few words how it ends, if it does not come through, and after which step that is."""
        if self.trace is None:
            return "", 0
        taken = len(self.trace.scale)
        if self.trace.error is not None:
            return f"fails at step {taken + 1}", taken
        if self.trace.stop is not None:
            return f"stops at step {taken}", taken
        if self.trace.unusable:
            last = self.trace.unusable[-1]
            return f"{_short(last.scale)} {_after(last.after)}", last.after
        return "", 0


def shortened(history: str, most: int) -> str:
    """Write a history with the lengths of its runs, and of a long one the beginning.

    >>> shortened("ooo" + "." * 500, 12), shortened("o" * 30 + "." * 40 + "o" * 50, 12)
    ('ooo.{500}', 'o{30} ...')
    """
    from fp16sim.testing.histories import shown

    text = shown(history)
    if len(text) <= most:
        return text
    whole = text[: most - 4]
    while re.match(r"[\d{}]", text[len(whole) :]):  # within braces, or between them and what they belong to
        whole = whole[:-1]
    return f"{whole} ..."


def table(found: Sequence[Row], history: str, window: int | None) -> str:
    """Write the scale after each step, or what it comes to, and below it what is remarkable."""
    traced = [(row, row.trace) for row in found if row.trace is not None and row.trace.start is not None]
    chosen = "" if window is None else f" with a window of {window}"
    steps = shortened(history, 200)
    head = f"The scale after each step of {steps}{chosen}, from the initial scale on:"
    if len(history) <= MOST_COLUMNS:
        body = _aligned(
            [["", "", *history], *([row.label, *_columns(trace, len(history))] for row, trace in traced)]
        )
    else:
        width = max((len(row.label) for row, _ in traced), default=0)
        body = [f"{row.label.ljust(width)}  {_changes(trace)}" for row, trace in traced]
        if max(map(len, body), default=0) > MOST_CHARACTERS:
            head = f"The {len(history)} steps of {steps}{chosen}:"
            titles = ["", "applied", "skipped", "lowest", "highest", "last scale"]
            body = _aligned([titles, *(_summed_up(row, trace) for row, trace in traced)])
    notes = [note for row in found for note in _notes(row, history)]
    parts = [[head], body if traced else [], notes, [OPEN_LOOP]]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _aligned(cells: list[list[str]]) -> list[str]:
    """Write the first column at the left, the others at the right, and what is beyond the titles as it is."""
    columns = len(cells[0])
    widths = [max(map(len, column)) for column in zip(*(line[:columns] for line in cells), strict=True)]
    lines = []
    for line in cells:
        placed = [cell.rjust(width) for cell, width in zip(line, widths, strict=False)]
        placed[0] = line[0].ljust(widths[0])
        lines.append("  ".join([*placed, *line[columns:]]).rstrip())
    return lines


def _columns(trace: Traced, steps: int) -> list[str]:
    scales = [*_scales(trace)]
    return [*map(_short, scales), *["-"] * (steps + 1 - len(scales))]


def _scales(trace: Traced) -> list[float]:
    return [] if trace.start is None else [trace.start, *trace.after()]


def _short(scale: float) -> str:
    from fp16sim.report.tables import power_of_two

    exact = not math.isfinite(scale) or math.frexp(scale)[0] == 0.5 or scale == int(scale) < 65536
    return power_of_two(scale) if exact else f"{scale:.6g}"


def _changes(trace: Traced) -> str:
    """Write the initial scale, and each other one with the step after which it holds, counted from 1."""
    scales = _scales(trace)
    moves = [
        (step, _move(before, scale))
        for step, (before, scale) in enumerate(zip(scales, scales[1:], strict=False), 1)
        if before != scale and (before == before or scale == scale)
    ]
    parts = [_short(scales[0])]
    # Of a run the steps less their places in the list are equal.
    for (_, move), run in groupby(enumerate(moves), key=lambda each: (each[1][0] - each[0], each[1][1])):
        steps = [step for _, (step, _) in run]
        if move and len(steps) >= _FEWEST_MOVES:
            parts.append(f"{steps[0]}-{steps[-1]}: {move} to {_short(scales[steps[-1]])}")
        else:
            parts += [f"{step}: {_short(scales[step])}" for step in steps]
    return "  ".join(parts)


def _move(before: float, scale: float) -> str:
    if not (math.isfinite(before) and math.isfinite(scale)):
        return ""
    if scale < before:
        return "halved" if scale == before / 2 else "lowered"
    return "doubled" if scale == before * 2 else "raised"


def _summed_up(row: Row, trace: Traced) -> list[str]:
    scales, applied = _scales(trace), sum(trace.applied)
    numbers = [scale for scale in scales if scale == scale] or scales
    ends = [min(numbers), max(numbers), scales[-1]]
    return [row.label, str(applied), str(len(trace.applied) - applied), *map(_short, ends), row.end[0]]


def _after(step: int) -> str:
    return f"after step {step}" if step else "from the start"


def _notes(row: Row, history: str) -> list[str]:
    trace = row.trace
    if trace is None or trace.start is None:
        return [f"{row.label}: no trace, {row.says if trace is None else trace.error}"]
    notes, taken = [], len(trace.scale)
    steps = list(zip(history[:taken], trace.scale, trace.divide_by, trace.applied, strict=True))
    for step, (_, scale, divides, applied) in enumerate(steps, 1):
        if applied and scale != divides and (scale == scale or divides == divides):
            notes.append(f"step {step} multiplies by {_short(scale)} and divides by {_short(divides)}")
            break
    kept = next(
        (step for step, (letter, *_, applied) in enumerate(steps, 1) if applied and letter != "."), None
    )
    if kept is not None:
        notes.append(f"applies step {kept}, though it is not finite")
    for each in trace.unusable:
        why = f", {each.why}" * bool(each.why)
        applied_too = f", and step {each.applied[0]} is applied" if each.applied else ""
        notes.append(
            f"the scale is {_short(each.scale)} {_after(each.after)}{why}: no gradient unscaled by it is finite"
            f"{applied_too}"
        )
    if trace.stop is not None:
        notes.append(f"stops at step {taken}: {trace.stop}")
    if trace.error is not None:
        notes.append(f"fails at step {taken + 1}: {trace.error}")
    return [f"{row.label}: {note}" for note in notes]


def as_json(found: Sequence[Row], history: str, window: int | None) -> str:
    """Write everything of every step as one JSON object."""
    rows = [{"name": row.label, **_plain(row)} for row in found]
    return json.dumps({"history": history, "window": window, "scalers": rows}, indent=2) + "\n"


def _plain(row: Row) -> dict[str, Any]:
    from fp16sim.training.results import plain

    trace = row.trace
    data: dict[str, Any] = {"options": {key: plain(value) for key, value in row.options.items()}}
    if trace is None:
        return {**data, "says": row.says}
    failure = None if trace.error is None else {"step": len(trace.scale) + 1, "says": trace.error}
    return {
        **data,
        "start": None if trace.start is None else plain(trace.start),
        "scale": list(map(plain, trace.scale)),
        "divide_by": list(map(plain, trace.divide_by)),
        "applied": list(map(bool, trace.applied)),
        "after": list(map(plain, trace.after())),
        "stop": trace.stop,
        "not_finite": [
            {
                "after": each.after,
                "scale": plain(each.scale),
                "why": each.why or "the scale itself",
                "applied": each.applied,
            }
            for each in trace.unusable
        ],
        "failure": failure,
    }
