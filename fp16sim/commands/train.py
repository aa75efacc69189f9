"""``fp16sim train``: one network trained in float32 and, under loss scalers, in float16, side by side.

With ``--model`` it trains a model of the reader's choice: `model_runs.py`.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fp16sim.commands import Failure, Misuse, write_out
from fp16sim.commands.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fp16sim.report.html import Setting
    from fp16sim.training.results import RunResult, RunSpec

__all__ = ["add_arguments", "output_folder", "run"]

FOLDER = "runs/digits"
EPOCHS = 12
INTERRUPTED = "interrupted"
EPOCHS_AND_REPORT = ("epochs", "no_report")
MODEL_OPTIONS = (
    "policy",
    "steps",
    "lr",
    "datapath",
    "gradients",
    "reduction",
    "measure",
    "save_every",
    "resume",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``train`` takes."""
    parser.epilog = (
        "Without --model: the digit classifier in float32 and in float16, with a report. With --model: any model under "
        "any policies and scalers; --scaler, --datapath, --gradients and --reduction belong to the --policy before "
        "them. Before the first policy, scalers belong to that one, and a datapath to every policy that takes it. "
        "What a run replaces is said on stderr."
    )
    parser.set_defaults(order=())
    parser.add_argument("--model", metavar="NAME", help="train this model; --list names them")
    parser.add_argument(
        "--list", action="store_true", help="list models, policies, scalers and datapaths, and leave"
    )
    parser.add_argument(
        "--out", metavar="DIR", help=f"where results go (default {FOLDER}; with --model runs/NAME)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of the weights and of the order of the data (default 0)"
    )
    parser.add_argument(
        "--scaler",
        action=_InOrder,
        metavar="NAME[,KEY=VALUE...]",
        help="a loss scaler: none, static,scale=8, torch,init_scale=2**16, ... (--list and fp16sim scalers name all); "
        "repeat it for more. Without --model each is compared with float32 (default: one of each kind); with it, one "
        "run each (default: torch for float16 policies, none for others)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--quiet", action="store_true", help="show no progress, and the table alone")
    alone = parser.add_argument_group("without --model")
    alone.add_argument("--epochs", type=int, help=f"passes over the training images (default {EPOCHS})")
    alone.add_argument("--no-report", action="store_true", help="write results.json, no page and no pictures")
    chosen = parser.add_argument_group("with --model")
    chosen.add_argument(
        "--policy",
        action=_InOrder,
        metavar="NAME",
        help="float32, float16, mixed_float16 (default), mixed_bfloat16 or float64; repeat it for more runs",
    )
    chosen.add_argument("--steps", type=int, metavar="N", help="of the whole run (default: the model's)")
    chosen.add_argument("--lr", type=_rate, metavar="X", help="learning rate (default: the model's)")
    for option, what in (
        ("--datapath", "products and convolutions accumulate: float32, a100, h100, ...; --list names all"),
        ("--gradients", "those of the backward pass do, if otherwise"),
        ("--reduction", "sums do"),
    ):
        chosen.add_argument(option, action=_InOrder, metavar="NAME", help=f"how {what}")
    chosen.add_argument(
        "--measure",
        action="store_true",
        help="also measure what float16 takes from activation gradients (slower)",
    )
    chosen.add_argument(
        "--save-every", type=int, metavar="N", help="save the state every N steps, not only at the end"
    )
    chosen.add_argument(
        "--resume", action="store_true", help="go on from the saved state, with the same bits"
    )


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number; write one such as 0.05") from None
    if math.isinf(value) and "inf" not in text.lower():
        raise argparse.ArgumentTypeError(f"{text} is too large, beyond float64; try 0.05")
    return value


class _InOrder(argparse.Action):
    """Collects options in the order in which they were typed."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, *_: Any) -> None:
        namespace.order = (*namespace.order, (self.dest, values))


def run(args: argparse.Namespace) -> int:
    """Train what was asked for."""
    if not 0 <= args.seed < 2**64:
        raise Misuse(
            f"--seed {args.seed}: random streams are numbered from 0 to 2**64 - 1; choose one of them"
        )
    if args.list:
        from fp16sim.commands.listing import listed

        write_out(listed(as_json=args.json))
        return 0
    if args.model is not None:
        from fp16sim.commands.model_runs import run_model

        _refuse(args, "without", EPOCHS_AND_REPORT)
        return run_model(args)
    _refuse(args, "with", MODEL_OPTIONS)
    return _compare_on_digits(args)


def _refuse(args: argparse.Namespace, which: str, options: Sequence[str]) -> None:
    typed = {name for name, _ in args.order} | {
        name for name, value in vars(args).items() if value is not None and value is not False
    }
    for name in options:
        if name in typed:
            option = f"--{name.replace('_', '-')}"
            remedy = f"name a model, or leave {option} out" if which == "with" else "leave one of them out"
            raise Misuse(f"{option} goes {which} --model: {remedy}")


def _compare_on_digits(args: argparse.Namespace) -> int:
    """Train, write results.json after every run, print the table, write the report."""
    args.epochs = EPOCHS if args.epochs is None else args.epochs
    args.scaler = [value for _, value in args.order] or None
    folder = output_folder(args.out, FOLDER)
    from fp16sim.emulator.backends import compilations
    from fp16sim.report.pictures import REPORT_FILES
    from fp16sim.training.comparison import compare_runs
    from fp16sim.training.files import remove_files, write_atomically
    from fp16sim.training.results import results_to_json

    specs = _specs(args.scaler)
    progress = Progress(len(specs), quiet=args.quiet)
    try:
        results_of = compare_runs(
            specs,
            epochs=args.epochs,
            seed=args.seed,
            progress=lambda spec, *taken: progress.step(spec.name, *taken),
        )
    except (ValueError, TypeError) as error:
        raise Misuse(str(error)) from error
    if (folder / "results.json").exists():
        progress.say(f"replacing the results in {folder}, once the first run is finished")
    finished: list[RunResult] = []
    stopped = ""
    try:
        with compilations(progress.compiling):
            for result in results_of:
                if not finished:  # results.json is about to change: a report of earlier results goes first
                    remove_files(folder, REPORT_FILES)
                finished.append(result)
                write_atomically(folder / "results.json", results_to_json(finished))
                progress.finished(result.name, f"{100 * result.accuracy:.1f}% correct")
    except KeyboardInterrupt:
        stopped = INTERRUPTED
    except (ValueError, ArithmeticError, MemoryError) as error:
        stopped = str(error)
    finally:
        progress.close()
    if stopped and not finished:
        raise Failure(f"{stopped}; no run was finished and nothing was written to {folder}")
    if stopped == INTERRUPTED:
        print("interrupted; writing what is finished ...", file=sys.stderr, flush=True)
    page, remark = _report(args, folder, finished, complete=not stopped)
    write_out(_summary(args, finished, folder, page, remark, complete=not stopped) + "\n")
    if stopped:
        names = ", ".join(result.name for result in finished)
        raise Failure(
            f"{stopped}: {len(finished)} of {len(specs)} runs are finished and kept in {folder}: {names}"
        )
    return 0


def output_folder(out: str | None, default: str) -> Path:
    """Make the folder for results, and see that they can be written."""
    from fp16sim.report.pictures import REPORT_FILES
    from fp16sim.training.files import prepare_folder

    if out is not None and not out.strip():
        raise Misuse(f"--out {out!r}: results go into a folder; name one, such as --out {default}")
    # The folder above is made for the default only: a path that someone typed may hold a typing error.
    if out in (None, default):
        Path(default).parent.mkdir(exist_ok=True)
    try:
        folder = prepare_folder(default if out is None else out)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Misuse(f"--out: {error}") from error
    except OSError as error:
        raise Failure(f"--out: {error}") from error
    for name in ("results.json", *REPORT_FILES):
        if (folder / name).is_dir():
            raise Misuse(f"--out: {folder / name} is a folder: a file is written there; name another folder")
    return folder


def _specs(scalers: list[str] | None) -> Sequence[RunSpec]:
    """The runs: float32 and one for each scaler, named as the default runs where they are the same."""
    from fp16sim.training.comparison import DEFAULT_RUNS
    from fp16sim.training.results import RunSpec

    if scalers is None:
        return DEFAULT_RUNS
    names = {spec.scaler: spec.name for spec in DEFAULT_RUNS[1:]}
    wanted = ["".join(text.split()) for text in scalers]
    for text in wanted:
        if wanted.count(text) > 1:
            raise Misuse(f"--scaler {text} stands twice: keep one")
    return [DEFAULT_RUNS[0], *(RunSpec(names.get(text, text), "mixed_float16", text) for text in wanted)]


def _report(
    args: argparse.Namespace, folder: Path, results: Sequence[RunResult], complete: bool
) -> tuple[Path | None, str]:
    """Write the page, and give its path; or None and why there is none."""
    if args.no_report:
        return None, ""
    from fp16sim.report.html import write_report

    try:
        return write_report(folder, results, _setting(args, complete)), ""
    except ImportError as error:
        return None, f"No report.html: {error}"


def _setting(args: argparse.Namespace, complete: bool) -> Setting:
    from fp16sim.report.html import Setting
    from fp16sim.training.comparison import LOSS_FACTOR

    command = ["fp16sim", "train", "--seed", str(args.seed), "--epochs", str(args.epochs)]
    for scaler in args.scaler or []:
        command += ["--scaler", scaler]
    task = (
        "A network with six hidden layers of 64 units learns handwritten digits from 1,400 images in "
        f"{args.epochs} {'epoch' if args.epochs == 1 else 'epochs'} and is tested on 397 others."
    )
    return Setting(task, LOSS_FACTOR, shlex.join(command), complete)


def _summary(
    args: argparse.Namespace,
    results: Sequence[RunResult],
    folder: Path,
    page: Path | None,
    remark: str,
    complete: bool,
) -> str:
    from fp16sim.report.tables import ACCURACY_NOTE, HEADER, SHARES_NOTE, factor_note, rows, text_table
    from fp16sim.training.comparison import LOSS_FACTOR

    if args.json:
        runs = [result.to_dict() for result in results]
        for each in runs:
            del each["history"], each["histogram"]
        fields = {
            "complete": complete,
            "loss_factor": LOSS_FACTOR,
            "results": str(folder / "results.json"),
            "report": None if page is None else str(page),
            "runs": runs,
        }
        if remark:
            print(f"fp16sim: {remark}", file=sys.stderr)
        return json.dumps(fields, indent=2, allow_nan=False)
    table = text_table(HEADER, rows(results))
    if args.quiet:
        if remark:
            print(f"fp16sim: {remark}", file=sys.stderr)
        return table
    notes = [ACCURACY_NOTE, SHARES_NOTE, factor_note(LOSS_FACTOR)]
    paragraphs = [table, *(textwrap.fill(note, 92) for note in notes)]
    paragraphs.append(
        f"Report: {page}" if page is not None else remark or f"Results: {folder / 'results.json'}"
    )
    return "\n\n".join(paragraphs)
