"""``fp16sim train --model``: one recipe under the policies and scalers that were asked for, saved and resumed."""

from __future__ import annotations

import argparse
import json
import math
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fp16sim.commands import Failure, Misuse, write_out
from fp16sim.commands.progress import Progress

if TYPE_CHECKING:
    from fp16sim.commands.asked_runs import AskedRun
    from fp16sim.emulator.datapath import Datapath
    from fp16sim.training.loop import Loop
    from fp16sim.training.recipes import Recipe

__all__ = ["run_model"]


@dataclass(frozen=True)
class Outcome:
    """What one run came to, as results.json holds it."""

    name: str
    policy: str
    scaler: str
    datapath: str
    gradients: str
    reduction: str
    folder: str
    steps: int
    applied: int
    skipped: int
    loss: float
    metric: str
    value: float
    final_scale: float
    digest: str

    def to_dict(self) -> dict[str, Any]:
        """Give plain data, numbers that JSON lacks as text."""
        from fp16sim.training.results import plain

        return {name: plain(value) for name, value in asdict(self).items()}


def run_model(args: argparse.Namespace) -> int:
    """Train the runs one after the other, save each, write results.json after every run, print the table."""
    from fp16sim.commands.asked_runs import asked_runs
    from fp16sim.commands.train import output_folder

    recipe = _recipe(args.model)
    steps = _checked(args, recipe)
    runs = asked_runs(args.order)
    default = f"runs/{recipe.name}"
    remarks = _look_into(Path(default if args.out is None else args.out), runs, args.resume)
    folder = output_folder(args.out, default)
    progress = Progress(len(runs), quiet=args.quiet)
    try:
        loops = [_loop(args, recipe, run, steps, folder) for run in runs]
        for remark in remarks:
            progress.say(remark)
        return _train(args, recipe, runs, loops, steps, folder, progress)
    finally:
        for run in runs:  # those that were not begun
            with suppress(OSError):
                (folder / run.folder).rmdir()


def _train(
    args: argparse.Namespace,
    recipe: Recipe,
    runs: Sequence[AskedRun],
    loops: Sequence[Loop],
    steps: int,
    folder: Path,
    progress: Progress,
) -> int:
    from fp16sim.emulator.backends import compilations
    from fp16sim.training.files import write_atomically
    from fp16sim.training.interrupts import deferred_interrupt

    finished: list[Outcome] = []
    stopped = ""
    try:
        with compilations(progress.compiling), deferred_interrupt() as interrupted:
            for run, loop in zip(runs, loops, strict=True):
                progress.skip(run.name, len(loop.history), steps)
                for step in loop:
                    progress.step(run.name, step, steps)
                    if interrupted():
                        path = loop.save().parent
                        raise Failure(
                            f"interrupted: step {step.step} of {steps} is saved in {path}; go on with {_again(args)}"
                        )
                finished.append(_outcome(recipe, run, loop, folder))
                write_atomically(folder / "results.json", _as_json(args, recipe, steps, finished, len(runs)))
                progress.finished(run.name, _says(finished[-1]))
    except KeyboardInterrupt:  # a second Ctrl-C, or none could be put off
        stopped = f"interrupted; what was saved before goes on with {_again(args)}"
    except (OSError, ValueError, ArithmeticError, MemoryError, RuntimeError) as error:
        stopped = f"{runs[len(finished)].name}: {error}"
    finally:
        progress.close()
    if stopped and not finished:
        raise Failure(stopped)
    write_out(_summary(args, recipe, steps, finished, len(runs), folder) + "\n")
    if stopped:
        raise Failure(f"{stopped}: {len(finished)} of {len(runs)} runs are finished and kept in {folder}")
    return 0


def _recipe(name: str) -> Recipe:
    from fp16sim.emulator.formats import nearest_name
    from fp16sim.training.recipes import RECIPES

    if name not in RECIPES:
        raise Misuse(f"unknown model {name!r}: {nearest_name(name, list(RECIPES))}")
    return RECIPES[name]


def _checked(args: argparse.Namespace, recipe: Recipe) -> int:
    """Refuse numbers that cannot be, and give the number of steps."""
    for option, value in (("--steps", args.steps), ("--save-every", args.save_every)):
        if value is not None and value < 1:
            raise Misuse(f"{option} {value}: it counts steps; choose 1 or more")
    if args.lr is not None and not 0 <= args.lr < math.inf:
        raise Misuse(f"--lr {args.lr}: a learning rate is finite and not negative; try 0.05")
    return recipe.steps if args.steps is None else int(args.steps)


def _look_into(folder: Path, runs: Sequence[AskedRun], resume: bool) -> list[str]:
    """Check the scalers; refuse to resume nothing, and to write over what is unfinished.

    Gives what is worth saying: which finished runs are replaced, which stay beside them, and what will be slow.
    """
    from fp16sim.commands.asked_runs import slow_products
    from fp16sim.scaling.registry import parse
    from fp16sim.training.saving import STATE_FILE, read_run

    for run in runs:
        try:
            parse(run.scaler)
        except ValueError as error:
            raise Misuse(str(error)) from error
    there = [path for run in runs if ((path := folder / run.folder) / STATE_FILE).exists()]
    if resume and not there:
        names = ", ".join(run.folder for run in runs)
        raise Misuse(
            f"--resume: {folder} holds no saved run ({names}); name its folder, or begin without --resume"
        )
    for path in there:
        if (path / STATE_FILE).is_dir():
            raise Misuse(
                f"--out: {path / STATE_FILE} is a folder: a file is written there; remove it, or name another folder"
            )
    remarks = []
    for path in there if not resume else []:
        try:
            saved = read_run(path)
        except ValueError:
            remarks.append(f"replacing the damaged state in {path}")
            continue
        if not saved.finished:
            raise Misuse(
                f"--out: {path} was saved at step {len(saved.history)} of {saved.steps}; --resume goes on from there; "
                "or remove it, or name another folder"
            )
        remarks.append(
            f"replacing the finished run of {len(saved.history)} steps, digest {saved.digest[:12]}, in {path}"
        )
    found = {path.parent.name for path in folder.glob(f"*/{STATE_FILE}")}
    if stale := sorted(found - {run.folder for run in runs}):
        remarks.append(f"{folder} keeps other runs too, which results.json will not list: {', '.join(stale)}")
    slow = dict.fromkeys(filter(None, (slow_products(run.policy) for run in runs)))
    remarks += [
        f"no fast kernel multiplies {what}: products take hundreds of times longer than on datapath float32"
        for what in slow
    ]
    return remarks


def _loop(args: argparse.Namespace, recipe: Recipe, run: AskedRun, steps: int, folder: Path) -> Loop:
    from fp16sim.training.fit import fit_steps

    model = recipe.build(args.seed)
    optimizer = recipe.optimizer(model)
    schedule, base = recipe.schedule, optimizer.lr
    if args.lr is not None:
        optimizer.lr = args.lr
        if schedule is not None:  # the same shape, with another height
            factor, shape = args.lr / base, schedule
            schedule = lambda applied: shape(applied) * factor  # noqa: E731
    try:
        return fit_steps(
            model,
            recipe.data(args.seed),
            optimizer=optimizer,
            steps=steps,
            policy=run.policy,
            scaler=run.scaler,
            loss_function=recipe.loss_function,
            clip_norm=recipe.clip_norm,
            schedule=schedule,
            measure=args.measure,
            save_to=folder / run.folder,
            save_every=args.save_every,
            resume=args.resume,
        )
    except (ValueError, TypeError) as error:
        raise Misuse(str(error)) from error


def _outcome(recipe: Recipe, run: AskedRun, loop: Loop, folder: Path) -> Outcome:
    from fp16sim.training.digest import digest
    from fp16sim.training.layer_scales import loss_scale_of

    policy = run.policy
    applied = sum(step.applied for step in loop.history)
    return Outcome(
        name=run.name,
        policy=policy.name,
        scaler=run.scaler,
        datapath=_name_of(policy.matmul),
        gradients=_name_of(policy.gradients or policy.matmul),
        reduction=_name_of(policy.reduction),
        folder=str(folder / run.folder),
        steps=len(loop.history),
        applied=applied,
        skipped=len(loop.history) - applied,
        loss=loop.history[-1].loss,
        metric=recipe.metric,
        value=recipe.evaluate(loop.model, policy),
        final_scale=loss_scale_of(loop.scaler, loop.history),
        digest=digest(loop.model, loop.history),
    )


def _name_of(path: str | Datapath) -> str:
    return path if isinstance(path, str) else path.name


def _says(outcome: Outcome) -> str:
    from fp16sim.report.tables import percent

    return (
        f"{percent(outcome.value)} correct" if outcome.metric == "accuracy" else f"loss {outcome.value:.4f}"
    )


def _again(args: argparse.Namespace) -> str:
    """Write the command that goes on."""
    words = ["fp16sim", "train", "--model", args.model]
    for name, value in args.order:
        words += [f"--{name}", value]
    for name in ("steps", "lr", "save_every", "out", "seed"):
        value = getattr(args, name)
        if value not in (None, 0) or (name == "lr" and value is not None):
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join([*words, *(["--measure"] if args.measure else []), "--resume"])


def _fields(
    args: argparse.Namespace, recipe: Recipe, steps: int, runs: Sequence[Outcome], of: int
) -> dict[str, Any]:
    return {
        "model": recipe.name,
        "seed": args.seed,
        "steps": steps,
        "lr": args.lr,
        "complete": len(runs) == of,
        "runs": [outcome.to_dict() for outcome in runs],
    }


def _as_json(args: argparse.Namespace, recipe: Recipe, steps: int, runs: Sequence[Outcome], of: int) -> str:
    return json.dumps(_fields(args, recipe, steps, runs, of), indent=2, allow_nan=False) + "\n"


def _summary(
    args: argparse.Namespace, recipe: Recipe, steps: int, runs: Sequence[Outcome], of: int, folder: Path
) -> str:
    from fp16sim.report.tables import percent, power_of_two, text_table

    if args.json:
        return _as_json(args, recipe, steps, runs, of).rstrip()
    measured = "accuracy" if recipe.metric == "accuracy" else "test loss"
    header = ("run", "steps", "applied", "skipped", "final loss", measured, "final scale", "digest")
    cells = [
        (
            each.name,
            str(each.steps),
            str(each.applied),
            str(each.skipped),
            f"{each.loss:.4f}",
            percent(each.value) if each.metric == "accuracy" else f"{each.value:.4f}",
            "-" if each.scaler == "none" else power_of_two(each.final_scale),
            each.digest[:12],
        )
        for each in runs
    ]
    table = text_table(header, cells)
    return table if args.quiet else f"{table}\n\nResults: {folder / 'results.json'}, states beside it"
