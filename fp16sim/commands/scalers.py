"""``fp16sim scalers``: the loss scalers with their options, and what each does on a history or under the checks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fp16sim.commands import Misuse, scaler_checks, write_out
from fp16sim.commands.scaler_listing import listed, listed_as_json, options
from fp16sim.commands.scaler_tables import OPEN_LOOP, Row, as_json, shortened, table

if TYPE_CHECKING:
    from fp16sim.report.scaler_plot import Curve

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``scalers`` takes."""
    parser.epilog = (
        "Without a history: every scaler with its options and their defaults. With one: the scale that each scaler has "
        f"after each step; exit code 1 if one could not be taken through it. {OPEN_LOOP} To test a scaler from Python: "
        "fp16sim.testing.check_scaler."
    )
    parser.add_argument(
        "history",
        nargs="?",
        help="steps such as oo...o. : o an overflow, n a NaN, . a finite step; o{166} is 166, (.o){9} is nine times .o",
    )
    parser.add_argument(
        "--history",
        dest="history_file",
        metavar="FILE",
        help="read the history from a file, or from standard input: -; white space counts for nothing",
    )
    parser.add_argument(
        "--window",
        type=_window,
        metavar="N",
        help="finite steps before growth, for all that have such an option",
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


def _window(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no whole number: it counts the finite steps after which the scale grows, such as 2000"
        ) from None


def run(args: argparse.Namespace) -> int:
    """Print the list, or the table of traces, or what the checks say."""
    if args.check is not None:
        args.history = args.history_file if args.history is None else args.history
        return scaler_checks.run(args)
    if args.traits or args.expect or args.only:
        raise Misuse("--traits, --expect or --only without --check FACTORY: say which scaler to test")
    if args.window is not None and args.window < 1:
        raise Misuse(
            f"--window {args.window}: it counts finite steps; choose 1 or more, or try what one scaler makes of it: "
            f"--scaler torch,growth_interval={args.window}"
        )
    history = _history(args.history, args.history_file)
    chosen = _chosen(args.scaler, args.window)
    if history is None:
        if args.plot is not None:
            raise Misuse(
                "--plot without a history: say which steps, such as fp16sim scalers oo...o. --plot a.png"
            )
        scalers = {each.label: each.scaler for each in chosen}
        write_out(listed_as_json(scalers) if args.json else listed(scalers))
        return 0
    plot = _plot_file(args.plot)
    found = [_row(each, history) for each in chosen]
    failed = any(row.trace is not None and row.trace.error is not None for row in found)
    if plot is not None:
        curves = _curves(found)
        if curves:
            _draw(curves, history, args.window, plot)
        elif not failed:  # the table says what failed
            raise Misuse(f"--plot: none of {', '.join(row.label for row in found)} has one scale to draw")
    write_out(as_json(found, history, args.window) if args.json else table(found, history, args.window))
    return int(failed)


def _history(typed: str | None, file: str | None) -> str | None:
    """Give a letter for each step, from what was typed or from a file; None where there is no history."""
    if typed is not None and file is not None:
        raise Misuse(f"a history twice, {shortened(typed, 40)} and --history {file}: keep one")
    where = "-" if typed is not None and typed.strip() == "-" else file
    text = typed if where is None else _text_of(where)
    if text is None:
        return None
    place = "" if where is None else "standard input: " if where == "-" else f"{where}: "
    try:
        history = _expanded("".join(text.split()))
    except ValueError as error:
        raise Misuse(f"{place}{error}") from error
    if "|" in history:
        raise Misuse(
            f"{place}'|' in a history: a restart cannot be traced; leave it out, or let fp16sim scalers --check "
            "FILE.py:NAME --only checkpoint_round_trip say what the scaler loses by one"
        )
    wrong = history.lstrip(".on")[:1]
    if wrong or not history:
        line = text[: text.index(wrong)].count("\n") + 1
        what = f"{wrong!r} in a history" if wrong else "an empty history"
        raise Misuse(
            f"{place}{f'line {line}: ' * (line > 1)}{what}: write one character a step, '.' finite, 'o' overflow, 'n' "
            "NaN, such as oo...o. or o{166}."
        )
    return history


def _text_of(file: str) -> str:
    """Read a file, or standard input."""
    name = "standard input" if file == "-" else f"--history {file}"
    try:
        if file == "-":
            return sys.stdin.read()
        return Path(file).expanduser().read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise Misuse(f"{name}: it is no text: write a history, such as oo...o., into it") from error
    except OSError as error:
        raise Misuse(
            f"{name} cannot be read ({error.strerror or error}): name a file that holds a history; the current folder "
            f"is {Path.cwd()}"
        ) from error


def _expanded(text: str) -> str:
    from fp16sim.testing.histories import expanded

    try:
        return expanded(text)
    except ValueError as error:
        if len(text) <= 200:
            raise
        raise ValueError(str(error).replace(repr(text), repr(f"{text[:40]}..."))) from error


@dataclass(frozen=True)
class Chosen:
    """A scaler to show: what the table calls it, what makes it, and one that was made."""

    label: str
    make: Callable[[], Any]
    scaler: Any


def _chosen(texts: Sequence[str] | None, window: int | None) -> list[Chosen]:
    """Make the scalers that were asked for, each once."""
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
    return list(found.values())


def _built_in(label: str, window: int | None) -> Chosen:
    from fp16sim.scaling.registry import parse

    scaler = parse(label)
    option = type(scaler).window
    given = [part.partition("=")[0].strip() for part in label.split(",")[1:]]
    if window is not None and option is not None and option not in given:
        scaler = parse(f"{label},{option}={window}")
    return Chosen(label, lambda: scaler, scaler)


def _own(text: str) -> Chosen:
    """Make a scaler of the user's, which prints elsewhere than the table."""
    from fp16sim.scaling.wording import a_kind
    from fp16sim.testing.case import Case
    from fp16sim.testing.factories import factory_of
    from fp16sim.testing.tracing import form_of
    from fp16sim.testing.walk import Fault, Hang, described
    from fp16sim.testing.watchdog import watched

    with redirect_stdout(sys.stderr):
        make = factory_of(text)
        try:
            with watched(make):
                scaler = Case(make).made()
        except (Fault, Hang) as error:
            what = described(error.__cause__ or error) if isinstance(error, Fault) else "it does not return"
            raise ValueError(f"{text}: called a second time: {what}") from error
        form = form_of(make, scaler)
    if form == "another":
        raise ValueError(
            f"{text}: {a_kind(scaler)} cannot be traced, only an object with `scale`, a number, and "
            f"`update(observation)`; fp16sim scalers --check {text} tests it"
        )
    return Chosen(text, make, scaler)


def _row(chosen: Chosen, history: str) -> Row:
    """Take a scaler through the history, if it has one scale and needs no more than letters."""
    from fp16sim.scaling.simulate import reads_sizes
    from fp16sim.testing.tracing import form_of, traced

    label, shown = chosen.label, options(chosen.scaler)
    with redirect_stdout(sys.stderr):
        if form_of(chosen.make, chosen.scaler) == "scales":
            return Row(label, shown, None, "it has a scale for each layer or tensor")
        if reads_sizes(chosen.scaler):
            needs = "it depends on the size of every gradient, which no history tells"
            return Row(label, shown, None, f'{needs}: fs.scaling.simulate("{label}", peaks)')
        return Row(label, shown, traced(chosen.make, history))


def _plot_file(text: str | None) -> Path | None:
    if text is None:
        return None
    path = Path(text.strip())
    if path.suffix not in (".png", ".svg"):
        raise Misuse(f"--plot {text}: a picture is a .png or .svg file; name one such as traces.png")
    if not path.parent.is_dir():
        raise Misuse(f"--plot {text}: {path.parent} is no folder; make it first (mkdir -p {path.parent})")
    return path


def _curves(found: Sequence[Row]) -> dict[str, Curve]:
    from fp16sim.report.scaler_plot import Curve

    return {
        row.label: Curve([row.trace.start, *row.trace.after()], *row.end)
        for row in found
        if row.trace is not None and row.trace.start is not None
    }


def _draw(curves: dict[str, Curve], history: str, window: int | None, path: Path) -> None:
    from fp16sim.report.scaler_plot import traces_figure
    from fp16sim.report.style import png, svg
    from fp16sim.training.files import write_atomically

    chosen = "" if window is None else f", window {window}"
    figure = traces_figure(curves, history, f"Loss scalers on {shortened(history, 40)}{chosen}")
    write_atomically(path, png(figure) if path.suffix == ".png" else svg(figure))
    print(f"wrote {path}", file=sys.stderr)
