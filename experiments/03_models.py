"""Claim: small versions of the networks that the field uses train as in torch, and in float16 as in float32.

Published: Micikevicius et al., arXiv 1710.03740v3, tables 1 to 5: from AlexNet to bigLSTM, mixed precision reaches the
accuracy of float32 (ResNet-50 on ImageNet 75.92% and 76.04%), with the same hyperparameters. Those networks and
data sets are out of reach here; each kind has a small stand-in, `fp16sim.training.recipes.RECIPES`, on data that
ships with the package.

Every recipe is trained for each seed in float32; in float32 by torch, if it is installed (the same initial weights,
batches, optimizer and schedule); and in float16 with float32 master weights under torch's loss scaler. The test data is
evaluated in the format of the training. Bands:

- The result of every seed is good: digits at least 97%, speakers 93%, and the loss on characters is below the entropy
  of the training text by single characters (BERT, which fills in masked ones) or by pairs of characters (GPT).
- Two columns match: their means differ by no more than the results of the seeds do in either (largest less smallest),
  and for accuracies by no less than one example, the unit of the measure.

    python experiments/03_models.py [--models gpt,gru] [--seeds 3]
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from fp16sim.autograd.policy import Policy
from fp16sim.report.style import BLUE, GREEN, MUTED, new_axes, new_figure, png, title
from fp16sim.report.tables import percent, text_table
from fp16sim.training.data import characters
from fp16sim.training.files import write_atomically
from fp16sim.training.fit import fit
from fp16sim.training.recipes import RECIPES, Recipe

RESULTS = Path(__file__).parent / "results" / "03_models"
ADAPTERS = Path(__file__).parents[1] / "tests"
"""Where torch's twins of the models are: `fp16sim_oracles/torch_models.py`."""

COLUMNS = ("torch float32", "float32", "mixed_float16")
PAIRS = (("float32", "torch float32"), ("mixed_float16", "float32"))
"""Which column is to match which."""

LEAST = {"mlp": 0.95, "vgg": 0.97, "resnet": 0.97, "gru": 0.93}
"""The accuracy that every seed reaches."""

TESTED = {"mlp": 397, "vgg": 397, "resnet": 397, "gru": 370}
"""Examples that an accuracy is a share of."""

Outcome = dict[str, float]  # result, final training loss, seconds, skipped steps
Measured = dict[str, dict[str, dict[str, Outcome]]]  # model, column, seed


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Train every recipe in float32, by torch, and in float16.")
    parser.add_argument("--models", default=",".join(RECIPES), help="names with commas; default: %(default)s")
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0, 1, ...; default: %(default)s")
    options = parser.parse_args(arguments)
    recipes = [RECIPES[name] for name in options.models.split(",")]
    trainings: dict[str, Callable[[Recipe, int], Outcome]] = {
        "float32": lambda recipe, seed: train(recipe, seed, "float32", "none"),
        "mixed_float16": lambda recipe, seed: train(recipe, seed, "mixed_float16", "torch"),
    }
    torch = torch_if_installed()
    if torch is None:
        print("torch is not installed, so its column is missing: pip install torch==2.13.0")
    else:
        trainings["torch float32"] = lambda recipe, seed: train_by_torch(torch, recipe, seed)
    measured: Measured = {recipe.name: {column: {} for column in trainings} for recipe in recipes}
    RESULTS.parent.mkdir(exist_ok=True)
    for seed in range(options.seeds):
        for recipe in recipes:
            for column, training in trainings.items():
                outcome = measured[recipe.name][column][str(seed)] = training(recipe, seed)
                print(
                    f"{recipe.name}, seed {seed}, {column}: {shown(recipe.name, outcome['result'])} "
                    f"after {outcome['seconds']:.0f} s",
                    file=sys.stderr,
                    flush=True,
                )
        # What is finished survives an interruption.
        write_atomically(RESULTS.with_suffix(".json"), json.dumps(measured, indent=1) + "\n")
    write_atomically(RESULTS.with_suffix(".png"), png(picture(measured)))
    header = ("model", "parameters", "steps", "measure", *COLUMNS, "to reach", "bands")
    print(text_table(header, rows(measured)))
    print(f"\nEach cell: mean of {options.seeds} seeds, and the lowest and highest of them.")
    print(f"Written: {RESULTS.with_suffix('.json')} and .png")
    return 0


# ---------------------------------------------------------------------------------------------------- training


def train(recipe: Recipe, seed: int, policy: str, scaler: str) -> Outcome:
    """Train once and measure."""
    started = time.perf_counter()
    model = recipe.build(seed)
    run = fit(
        model,
        recipe.data(seed),
        policy=policy,
        scaler=scaler,
        optimizer=recipe.optimizer(model),
        steps=recipe.steps,
        loss_function=recipe.loss_function,
        schedule=recipe.schedule,
        clip_norm=recipe.clip_norm,
        measure=False,
    )
    seconds = time.perf_counter() - started
    return {
        "result": recipe.evaluate(model, Policy(policy)),
        "training loss": last_losses([step.loss for step in run.history]),
        "seconds": seconds,
        "skipped": sum(not step.applied for step in run.history),
    }


def train_by_torch(torch: ModuleType, recipe: Recipe, seed: int) -> Outcome:
    """Train torch's twin, whose weights are then evaluated here: by the same arithmetic."""
    from fp16sim_oracles import torch_models

    started = time.perf_counter()
    taken = list(torch_models.train(torch, recipe, seed))
    seconds = time.perf_counter() - started
    losses, networks = zip(*taken, strict=True)
    model = torch_models.back(networks[-1], recipe.build(seed))
    return {
        "result": recipe.evaluate(model, Policy("float32")),
        "training loss": last_losses(list(losses)),
        "seconds": seconds,
        "skipped": 0,
    }


def torch_if_installed() -> ModuleType | None:
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(1)  # networks this small lose time to threads, and much on a busy machine
    sys.path.insert(0, str(ADAPTERS))
    return torch


def last_losses(losses: list[float]) -> float:
    """Give the mean of the last 20."""
    last = losses[-20:]
    return sum(last) / len(last)


# ---------------------------------------------------------------------------------------------------- bands


def to_reach(name: str) -> float:
    """Give the accuracy that is reached at least, or the loss that stays below."""
    if name in LEAST:
        return LEAST[name]
    text = characters()
    return text.bigram_entropy if name == "gpt" else text.unigram_entropy


def results(columns: dict[str, dict[str, Outcome]], column: str) -> list[float]:
    return [outcome["result"] for outcome in columns.get(column, {}).values()]


def outside(name: str, columns: dict[str, dict[str, Outcome]]) -> list[str]:
    """Name the bands that these results leave."""
    goal, accuracy = to_reach(name), name in LEAST
    broken = []
    for column in columns:
        values = results(columns, column)
        if not all(value >= goal if accuracy else value < goal for value in values):
            broken.append(f"{column} reaches it")
    for ours, other in PAIRS:
        first, second = results(columns, ours), results(columns, other)
        if len(first) < 2 or len(second) < 2:
            continue  # one seed has no spread
        spread = max(max(first) - min(first), max(second) - min(second))
        if accuracy:
            spread = max(spread, 1 / TESTED[name])
        if not abs(mean(first) - mean(second)) <= spread:
            broken.append(f"{ours} matches {other}")
    return broken


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


# ---------------------------------------------------------------------------------------------------- shown


def shown(name: str, value: float) -> str:
    return percent(value) if name in LEAST else f"{value:.3f}"


def rows(measured: Measured) -> list[tuple[str, ...]]:
    table = []
    for name, columns in measured.items():
        recipe = RECIPES[name]
        cells = []
        for column in COLUMNS:
            values = results(columns, column)
            if not values:
                cells.append("-")
                continue
            low, high = shown(name, min(values)), shown(name, max(values))
            cells.append(f"{shown(name, mean(values))} ({low} to {high})")
        size = sum(parameter.size for parameter in recipe.build(0).parameters())
        goal = f"{'>= ' if name in LEAST else '< '}{shown(name, to_reach(name))}"
        broken = ", ".join(f"not: {band}" for band in outside(name, columns))
        table.append((name, f"{size:,}", str(recipe.steps), recipe.metric, *cells, goal, broken or "hold"))
    return table


def picture(measured: Measured) -> object:
    figure = new_figure(3.9)
    title(
        figure,
        0.75,
        "Small networks train in float16 as in float32",
        "a dot for each of the seeds, their mean as a line; accuracies are to be above the grey bar, losses below",
    )
    groups = {"accuracy on test data (%)": [], "test loss (nats a character)": []}
    for name in measured:
        groups["accuracy on test data (%)" if name in LEAST else "test loss (nats a character)"].append(name)
    shares = {label: names for label, names in groups.items() if names}
    total = sum(len(names) for names in shares.values())
    left, room, gap = 0.75, 8.6 - 0.75 - 0.2 - 0.75 * (len(shares) - 1), 0.75
    colours = dict(zip(COLUMNS, (GREEN, MUTED, BLUE), strict=True))
    for label, names in shares.items():
        width = room * len(names) / total
        axes = new_axes(figure, left, 0.5, 8.6 - left - width, 1.05)
        left += width + gap
        factor = 100 if names[0] in LEAST else 1
        for place, name in enumerate(names):
            goal = to_reach(name) * factor
            axes.plot([place - 0.42, place + 0.42], [goal, goal], color="#b5b5b5", lw=5, alpha=0.6, zorder=1)
            for position, column in enumerate(COLUMNS):
                values = [value * factor for value in results(measured[name], column)]
                spot = place + 0.26 * (position - 1)
                if values:
                    axes.plot([spot - 0.09, spot + 0.09], [mean(values)] * 2, color=colours[column], lw=2)
                    axes.plot(
                        [spot] * len(values), values, "o", ms=5.5, alpha=0.75, color=colours[column], mew=0
                    )
        axes.set_xlim(-0.6, len(names) - 0.4)
        axes.set_xticks(range(len(names)), names)
        axes.set_ylabel(label, color=MUTED, fontsize=9.5)
        if factor == 100:
            axes.set_ylim(None, 100.4)
    for column in reversed(COLUMNS):  # one legend for both
        axes.plot([], [], "o", ms=6, mew=0, color=colours[column], label=column)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles[::-1], labels[::-1], loc="upper right", bbox_to_anchor=(0.99, 0.87), ncols=3, frameon=False
    )
    return figure


if __name__ == "__main__":
    sys.exit(main())
