"""``fp16sim scalers --check``: the property tests of :mod:`fp16sim.testing` on one scaler."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

from fp16sim.commands import Misuse, write_out

__all__ = ["add_arguments", "run"]

_OTHERS = ("window", "scaler", "plot")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``scalers --check`` takes."""
    group = parser.add_argument_group("property tests of one scaler")
    group.add_argument(
        "--check",
        metavar="FACTORY",
        help="test it: package.module:factory, path/to/file.py:factory, or one of this package with options, such as "
        "torch,growth_interval=2; exit code 1 if a check fails",
    )
    group.add_argument(
        "--traits",
        action="append",
        metavar="TRAITS",
        help="what is claimed of it besides, such as power_of_two,interval=2000",
    )
    group.add_argument(
        "--expect",
        action="append",
        metavar="CHECK=REASON",
        help="a check that is known to fail; it is an error if it passes. Repeat it for more",
    )
    group.add_argument(
        "--only",
        action="append",
        metavar="CHECK",
        help="run this check alone; repeat it for more (default: all)",
    )


def run(args: argparse.Namespace) -> int:
    """Print a verdict for each check, and 1 if one fails the scaler."""
    for name in ("history", *_OTHERS):
        if getattr(args, name) is not None:
            what = "a history" if name == "history" else f"--{name}"
            raise Misuse(
                f"--check {args.check} with {what}: the checks choose their histories; leave {what} out"
            )
    from fp16sim.testing.checking import (
        chosen_checks,
        claimed_checks,
        expected_reasons,
        unclaimed_traits,
        verdicts,
    )
    from fp16sim.testing.factories import expected_of, factory_of, traits_of
    from fp16sim.testing.report import Report, Verdict, rows
    from fp16sim.testing.search import need_hypothesis

    try:
        need_hypothesis("--check")
    except ImportError as error:
        raise Misuse(str(error)) from error
    with _own_output() as say:
        with _misuse_of("--traits"):
            traits = traits_of(args.traits or ())
        checks = claimed_checks(traits)
        with _misuse_of("--expect"):
            expected = expected_reasons(expected_of(args.expect or ()), checks)
        with _misuse_of("--only"):
            only = (
                None
                if args.only is None
                else [part.strip() for text in args.only for part in text.split(",")]
            )
            checks = chosen_checks(only, checks)
        with _misuse_of("--check"):
            make = factory_of(args.check)
        found = verdicts(make, traits, expected, only, "--expect")
        columns, kept = max(len(check.name) for check in checks), list[Verdict]()

        def each() -> Iterator[Verdict]:
            for verdict in found:
                kept.append(verdict)
                yield verdict

        for row in rows(each(), columns):
            if not args.json:
                say(row + "\n")
        report = Report(tuple(kept))
        unclaimed = unclaimed_traits(traits)
        if args.json:
            about = {"scaler": args.check, "traits": traits, "unclaimed": unclaimed}
            say(json.dumps({**about, **report.to_dict()}, indent=2, allow_nan=False) + "\n")
        else:
            say(f"\n{args.check}: {report.summary()}\n")
            if only is None and not any(check.trait for check in checks):
                say(_more(unclaimed))
    return 1 if report.failures else 0


def _more(unclaimed: list[str]) -> str:
    """Say which checks did not run since nothing was claimed: what they look for was passed over in silence."""
    several = len(unclaimed) > 1
    more = f"{len(unclaimed)} more {'checks run' if several else 'check runs'} for traits that you claim"
    text = f"{more}: {', '.join(unclaimed)} (--traits)"
    return textwrap.fill(text, shutil.get_terminal_size((100, 24)).columns) + "\n"


@contextmanager
def _misuse_of(option: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise Misuse(f"{option}: {error}") from error


@contextmanager
def _own_output() -> Iterator[Callable[[str], Any]]:
    """Keep what a scaler prints out of the verdicts: it goes to standard error."""
    out = sys.stdout

    def say(text: str) -> None:
        with redirect_stdout(out):
            write_out(text)

    with redirect_stdout(sys.stderr):
        yield say
