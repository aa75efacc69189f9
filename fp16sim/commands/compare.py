"""``fp16sim compare``: whether two saved runs are the same, bit for bit."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from fp16sim.commands import Failure, Misuse, write_out

if TYPE_CHECKING:
    from fp16sim.training.saving import SavedRun

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``compare`` takes."""
    parser.epilog = (
        "A folder is that of one run, or what train --model got as --out: runs of the same name are compared then. "
        "Exit code 0 if every bit is the same, 1 if not."
    )
    parser.add_argument("first", metavar="DIR", help="a saved run, or several")
    parser.add_argument("second", metavar="DIR", help="what to compare with")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quiet", action="store_true", help="print nothing, the exit code says it")


def run(args: argparse.Namespace) -> int:
    """Compare the runs of the two folders, pair by pair."""
    from fp16sim.training.difference import difference
    from fp16sim.training.saving import read_run

    found = []
    for name, paths in _pairs(Path(args.first.strip()), Path(args.second.strip())).items():
        saved: list[SavedRun | None] = []
        for path in paths:
            try:
                saved.append(None if path is None else read_run(path))
            except ValueError as error:
                raise Failure(str(error)) from error
        one, other = saved
        if one is None or other is None:
            place = args.second if one is not None else args.first
            found.append({"run": name, "same": False, "step": None, "says": f"not in {place}"})
            continue
        parted = difference(one, other)
        says = str(parted) if parted is not None else f"the same bits: {_taken(one)}, digest {one.digest}"
        if (parted is not None or one.steps != other.steps) and not (one.finished and other.finished):
            says += f" (not finished: {_taken(one)}, and {_taken(other)})"
        found.append(
            {
                "run": name,
                "same": parted is None,
                "step": None if parted is None else parted.step,
                "says": says,
            }
        )
    if args.json:
        write_out(json.dumps({"same": all(each["same"] for each in found), "runs": found}, indent=2) + "\n")
    elif not args.quiet:
        write_out("".join(f"{each['run']}: {each['says']}\n" for each in found))
    return 0 if all(each["same"] for each in found) else 1


def _taken(run: SavedRun) -> str:
    """Say how many steps a run has taken, and of how many if it is not finished."""
    return f"{len(run.history)} steps" if run.finished else f"{len(run.history)} of {run.steps} steps"


def _pairs(first: Path, second: Path) -> dict[str, tuple[Path | None, Path | None]]:
    """Give the folders of runs that belong together, by name; None where one has no partner."""
    ours, theirs = _runs(first), _runs(second)
    if len(ours) == len(theirs) == 1 and (first in ours.values() or second in theirs.values()):
        (one,), (other,) = ours.values(), theirs.values()
        return {one.name: (one, other)}
    return {name: (ours.get(name), theirs.get(name)) for name in {**ours, **theirs}}


def _runs(folder: Path) -> dict[str, Path]:
    from fp16sim.training.saving import STATE_FILE

    if (folder / STATE_FILE).is_file():
        return {folder.name: folder}
    found = [path.parent for path in sorted(folder.glob(f"*/{STATE_FILE}"))]
    if not found:
        rule = "is no folder" if not folder.is_dir() else "holds no saved run"
        raise Misuse(f"{folder} {rule}: name what fp16sim train --model wrote, such as runs/mlp")
    return {path.name: path for path in found}
