"""``fp16sim scalers``: the loss scalers with their options, and what each does on a history or under the checks."""

from __future__ import annotations

import argparse
import json
import math
import sys
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fp16sim.commands import Misuse, scaler_checks, write_out

if TYPE_CHECKING:
    from fp16sim.scaling.simulation import Simulation

__all__ = ["add_arguments", "run"]

MOST_COLUMNS = 16
"""Steps up to which the table has a column for each."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``scalers`` takes."""
    parser.epilog = (
        "Without a history: every scaler with its options and their defaults. With one: the scale that each scaler has "
        "after each step. In Python: fp16sim.scaling.simulate, and fp16sim.testing.check_scaler."
    )
    parser.add_argument(
        "history",
        nargs="?",
        help="steps such as oo...o. : o an overflow, n a NaN, . a finite step; o{166} is 166",
    )
    parser.add_argument(
        "--window", type=int, metavar="N", help="finite steps before growth, for all that have such an option"
    )
    parser.add_argument(
        "--scaler",
        action="append",
        metavar="NAME[,KEY=VALUE...]",
        help="show this one, or one of your own, such as mine.py:MyScaler; repeat it for more (default: all)",
    )
    parser.add_argument("--plot", metavar="FILE", help="also draw the traces, as .png or .svg")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    scaler_checks.add_arguments(parser)


@dataclass(frozen=True)
class Row:
    """One scaler on the history, and the scale that it starts with; without a simulation, `says` why."""

    label: str
    scaler: Any
    simulation: Simulation | None
    says: str = ""
    start: float = math.nan

    def after(self) -> list[float | None]:
        """Give the scale after each step; None after a stop."""
        if self.simulation is None or self.simulation.trace is None:
            return []
        taken = int(self.simulation.steps[0])
        scales = [*self.simulation.trace.scale[0, 1:taken].tolist(), float(self.simulation.final_scale[0])]
        return [*scales[:taken], *[None] * (self.simulation.trace.scale.shape[1] - taken)]


def run(args: argparse.Namespace) -> int:
    """Print the list, or the table of traces, or what the checks say."""
    if args.check is not None:
        return scaler_checks.run(args)
    if args.traits or args.expect or args.only:
        raise Misuse("--traits, --expect or --only without --check FACTORY: say which scaler to test")
    if args.window is not None and args.window < 1:
        raise Misuse(
            f"--window {args.window}: it counts finite steps; choose 1 or more, or try what one scaler makes of it: "
            f"--scaler torch,growth_interval={args.window}"
        )
    scalers = _scalers(args.scaler, args.window)
    if args.history is None:
        if args.plot is not None:
            raise Misuse(
                "--plot without a history: say which steps, such as fp16sim scalers oo...o. --plot a.png"
            )
        write_out(_listed_as_json(scalers) if args.json else _listed(scalers))
        return 0
    history = _expanded(args.history.strip())
    if "|" in history:
        raise Misuse(
            "'|' in a history: a restart cannot be traced; leave it out, or see what --check says of it"
        )
    wrong = sorted(set(history) - set(".on"))
    if wrong or not history:
        what = f"{wrong[0]!r} in a history" if wrong else "an empty history"
        raise Misuse(
            f"{what}: write one character a step, '.' finite, 'o' overflow, 'n' NaN, such as oo...o. or o{{166}}."
        )
    plot = _plot_file(args.plot)
    found = [_row(label, scaler, history) for label, scaler in scalers.items()]
    if plot is not None:
        _draw(found, history, args.window, plot)
    write_out(_as_json(found, history, args.window) if args.json else _table(found, history, args.window))
    return 0


def _expanded(text: str) -> str:
    from fp16sim.testing.histories import expanded

    try:
        return expanded(text)
    except ValueError as error:
        raise Misuse(str(error)) from error


def _scalers(texts: Sequence[str] | None, window: int | None) -> dict[str, Any]:
    """Make the scalers that were asked for, by what the table calls them."""
    from fp16sim.scaling.registry import names
    from fp16sim.testing.factories import names_own

    found = {}
    for text in names() if texts is None else texts:
        own = names_own(text)
        label = text.strip() if own else ",".join(part.strip() for part in text.split(","))
        try:
            found[label] = _own(label) if own else _built_in(label, window)
        except ValueError as error:
            raise Misuse(f"--scaler: {error}" if own else str(error)) from error
    return found


def _built_in(label: str, window: int | None) -> Any:
    from fp16sim.scaling.registry import parse

    scaler = parse(label)
    option = type(scaler).window
    given = [part.partition("=")[0].strip() for part in label.split(",")[1:]]
    return (
        scaler if window is None or option is None or option in given else parse(f"{label},{option}={window}")
    )


def _own(text: str) -> Any:
    """Make a scaler of the user's, which prints elsewhere than the table."""
    from fp16sim.scaling.protocol import Scaler
    from fp16sim.testing.factories import factory_of

    with redirect_stdout(sys.stderr):
        scaler = factory_of(text)()
    if not isinstance(scaler, Scaler) or callable(scaler.scale):
        raise ValueError(
            f"{text}: a {type(scaler).__name__} cannot be traced, only an object with `scale`, a number, and "
            f"`update(observation)`; fp16sim scalers --check {text} tests it"
        )
    return scaler


def _options(scaler: Any) -> dict[str, Any]:
    """Give the options of a scaler and their values; one of the user's own has none that are known as such."""
    known = getattr(scaler, "options", ())
    return {field: getattr(scaler, field) for field in _fields(scaler) if field in known}


def _fields(scaler: Any) -> list[str]:
    return [field.name for field in fields(scaler)] if is_dataclass(scaler) else []


def _summary(scaler: Any) -> str:
    return " ".join((type(scaler).__doc__ or "").split("\n\n")[0].split()).replace("`", "")


def _listed(scalers: dict[str, Any]) -> str:
    from fp16sim.report.tables import power_of_two

    def shown(value: Any) -> str:
        if not isinstance(value, float):
            return str(value)
        return f"{value:g}" if 0.001 < abs(value) < 1 else power_of_two(value)

    lines = []
    for label, scaler in scalers.items():
        lines.append(f"{label}: {_summary(scaler)}".removesuffix(": "))
        options = ", ".join(f"{key}={shown(value)}" for key, value in _options(scaler).items())
        lines += textwrap.wrap(options or "no options", 110, initial_indent="    ", subsequent_indent="    ")
    lines += ["", 'What they do on a history: fp16sim scalers "oo...o." --window 2']
    return "\n".join(lines) + "\n"


def _listed_as_json(scalers: dict[str, Any]) -> str:
    from fp16sim.training.results import plain

    found = [
        {
            "name": label,
            "summary": _summary(scaler),
            "options": {key: plain(value) for key, value in _options(scaler).items()},
            **{
                role: getattr(type(scaler), role, None) for role in ("initial", "window", "growth", "backoff")
            },
        }
        for label, scaler in scalers.items()
    ]
    return json.dumps({"scalers": found}, indent=2) + "\n"


def _row(label: str, scaler: Any, history: str) -> Row:
    from fp16sim.scaling.protocol import Scaler
    from fp16sim.scaling.simulate import simulate
    from fp16sim.testing.driver import number
    from fp16sim.testing.raised import described

    if hasattr(scaler, "scale_for") or not isinstance(scaler, Scaler) or isinstance(scaler.scale, Mapping):
        return Row(label, scaler, None, "it has a scale for each layer or tensor")
    try:
        start = number(scaler.scale)  # before it takes a step, which may change it
        with redirect_stdout(sys.stderr):
            found = simulate(scaler, history, trace=True, method="objects")
    except Exception as error:
        built_in = type(scaler).__module__.startswith("fp16sim.")
        return Row(label, scaler, None, str(error) if built_in else f"it raised {described(error)}")
    return Row(label, scaler, found, start=start)


def _table(found: Sequence[Row], history: str, window: int | None) -> str:
    """Write the scale after each step, and below it what is remarkable."""
    from fp16sim.testing.histories import shown as shown_history

    shown = [row for row in found if row.simulation is not None]
    chosen = "" if window is None else f" with a window of {window}"
    steps = shown_history(history)
    lines = [f"The scale after each step of {steps}{chosen}, from the initial scale on:", ""]
    if len(history) <= MOST_COLUMNS:
        cells = [
            ["", "", *history],
            *([row.label, *map(_short, (row.start, *row.after()))] for row in shown),
        ]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for line in cells:
            first, *others = (
                cell.ljust(width) if place == 0 else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
            lines.append("  ".join([first, *others]).rstrip())
    else:
        width = max((len(row.label) for row in shown), default=0)
        lines += [f"{row.label.ljust(width)}  {_changes(row)}" for row in shown]
    notes = [note for row in found for note in _notes(row)]
    return "\n".join([*lines, *([""] if notes else []), *notes]) + "\n"


def _short(scale: float | None) -> str:
    from fp16sim.report.tables import power_of_two

    if scale is None:
        return "-"
    exact = (
        math.isinf(scale) or math.frexp(scale)[0] == 0.5 or scale == int(scale) < 65536
        if scale == scale
        else True
    )
    return power_of_two(scale) if exact else f"{scale:.6g}"


def _changes(row: Row) -> str:
    """Write the initial scale, and each other one with the step after which it holds, counted from 1."""
    before, parts = row.start, [_short(row.start)]
    for step, scale in enumerate(row.after(), 1):
        if scale is not None and scale != before:
            parts.append(f"{step}: {_short(scale)}")
            before = scale
    return "  ".join(parts)


def _notes(row: Row) -> list[str]:
    if row.simulation is None or row.simulation.trace is None:
        return [f"{row.label}: no trace, {row.says}"]
    trace, notes = row.simulation.trace, []
    other = trace.applied[0] & (trace.divide_by[0] != trace.scale[0])
    if other.any():
        step = int(other.argmax())
        used, divides = _short(float(trace.scale[0, step])), _short(float(trace.divide_by[0, step]))
        notes.append(f"{row.label}: step {step + 1} multiplies by {used} and divides by {divides}")
    kept = trace.applied[0] & trace.overflow[0]
    if kept.any():
        notes.append(f"{row.label}: applies step {int(kept.argmax()) + 1}, though it is not finite")
    if row.simulation.first_stop[0] >= 0:
        notes.append(
            f"{row.label}: stops at step {int(row.simulation.first_stop[0]) + 1}: {row.simulation.stop_reasons[0]}"
        )
    return notes


def _as_json(found: Sequence[Row], history: str, window: int | None) -> str:
    from fp16sim.training.results import plain

    rows = []
    for row in found:
        data: dict[str, Any] = {
            "name": row.label,
            "options": {k: plain(v) for k, v in _options(row.scaler).items()},
        }
        if row.simulation is None or row.simulation.trace is None:
            rows.append({**data, "says": row.says})
            continue
        taken, trace = int(row.simulation.steps[0]), row.simulation.trace
        rows.append(
            {
                **data,
                "scale": [plain(value) for value in trace.scale[0, :taken].tolist()],
                "divide_by": [plain(value) for value in trace.divide_by[0, :taken].tolist()],
                "applied": trace.applied[0, :taken].tolist(),
                "after": [plain(value) for value in row.after()[:taken] if value is not None],
                "stop": row.simulation.stop_reasons[0],
            }
        )
    return json.dumps({"history": history, "window": window, "scalers": rows}, indent=2) + "\n"


def _plot_file(text: str | None) -> Path | None:
    if text is None:
        return None
    path = Path(text.strip())
    if path.suffix not in (".png", ".svg"):
        raise Misuse(f"--plot {text}: a picture is a .png or .svg file; name one such as traces.png")
    if not path.parent.is_dir():
        raise Misuse(f"--plot {text}: {path.parent} is no folder; make it first (mkdir -p {path.parent})")
    return path


def _draw(found: Sequence[Row], history: str, window: int | None, path: Path) -> None:
    from fp16sim.report.scaler_plot import traces_figure
    from fp16sim.report.style import png, svg
    from fp16sim.training.files import write_atomically

    curves = {
        row.label: [row.start, *(math.nan if scale is None else scale for scale in row.after())]
        for row in found
        if row.simulation is not None
    }
    if not curves:
        raise Misuse(f"--plot: none of {', '.join(row.label for row in found)} has one scale to draw")
    figure = traces_figure(curves, history, window)
    write_atomically(path, png(figure) if path.suffix == ".png" else svg(figure))
