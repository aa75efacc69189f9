"""Claim: float16 weights without a float32 copy lose most updates at small learning rates, and with them accuracy.

Published: Micikevicius et al., arXiv 1710.03740v3, section 3.1: about 5% of the weight gradients of a Mandarin speech
model have exponents under -24, and updating float16 weights directly loses 80% relative accuracy (figure 2). That
model is not at hand, so its shape is shown: a 64-64-10 network on the digits, SGD in batches of 32, three learning
rates with about as much training. The bands follow from the claim: with master weights accuracy is float32's within two
points; without, updates are lost, more than half of them at the smaller rates, and accuracy falls by five points or
more there.

An update is lost where the gradient is not zero and the weight stays as it was.
"""

import json
import sys
from pathlib import Path

import numpy as np

from fp16sim.autograd.backward import gradients
from fp16sim.autograd.policy import Policy, autocast
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn import CrossEntropyLoss
from fp16sim.optim import SGD
from fp16sim.report.style import BLUE, MUTED, VERMILION, new_axes, new_figure, png, title
from fp16sim.report.tables import percent, text_table
from fp16sim.training.comparison import accuracy
from fp16sim.training.data import Batches, digits
from fp16sim.training.files import write_atomically
from fp16sim.training.models import mlp

RESULTS = Path(__file__).parent / "results" / "02_master_weights"
SETTINGS = ((0.05, 20), (0.001, 150), (0.0005, 300))
"""Learning rates and epochs."""

POLICIES = {
    "float32": Policy("float32"),
    "master weights": Policy("mixed_float16"),
    "float16 weights": Policy("mixed_float16", parameters="float16"),
}
SCALE = 1024.0
"""A static loss scale: the gradients themselves survive, so that what is lost is lost in the update."""

Outcome = dict[str, float]  # accuracy, lost


def main() -> int:
    measured = {
        f"{rate:g}": {name: train(policy, rate, epochs) for name, policy in POLICIES.items()}
        for rate, epochs in SETTINGS
    }
    RESULTS.parent.mkdir(exist_ok=True)
    write_atomically(RESULTS.with_suffix(".json"), json.dumps(measured, indent=1) + "\n")
    write_atomically(RESULTS.with_suffix(".png"), png(picture(measured)))
    header = ("lr", "epochs", "float32", "master weights", "float16 weights", "updates lost", "bands")
    print(text_table(header, rows(measured)))
    print(f"Written: {RESULTS.with_suffix('.json')} and .png")
    return 0


def train(policy: Policy, rate: float, epochs: int) -> Outcome:
    """Train the network once, and give its accuracy and the share of updates that changed nothing."""
    training, test = digits()
    batches = Batches(training, 32)
    model, loss_function = mlp(hidden=64, layers=1).to(policy.parameters), CrossEntropyLoss()
    parameters = model.parameters()
    optimizer = SGD(parameters, lr=rate)
    scale = 1.0 if policy.compute == "float32" else SCALE
    lost = total = 0
    for _, (images, labels) in zip(range(epochs * batches.per_epoch), batches, strict=False):
        with autocast(policy):
            loss = loss_function(model(Tensor(images)), labels) * scale
        steps = [np.float32(g) / np.float32(scale) for g in gradients(loss, parameters) if g is not None]
        before = [parameter.data for parameter in parameters]
        optimizer.step(steps)
        for old, parameter, step in zip(before, parameters, steps, strict=True):
            moving = step != 0
            total += int(moving.sum())
            lost += int((moving & (old == parameter.data)).sum())
    return {"accuracy": accuracy(model, test, policy), "lost": lost / total}


def rows(measured: dict[str, dict[str, Outcome]]) -> list[tuple[str, ...]]:
    epochs = {f"{rate:g}": str(number) for rate, number in SETTINGS}
    return [
        (
            rate,
            epochs[rate],
            *(percent(outcomes[name]["accuracy"]) for name in POLICIES),
            percent(outcomes["float16 weights"]["lost"]),
            ", ".join(outside(rate, outcomes)) or "hold",
        )
        for rate, outcomes in measured.items()
    ]


def outside(rate: str, outcomes: dict[str, Outcome]) -> list[str]:
    """Name the bands that these outcomes leave."""
    full, master, half = (outcomes[name] for name in POLICIES)
    small = float(rate) < 0.01
    bands = {
        "master weights match float32": abs(master["accuracy"] - full["accuracy"]) <= 0.02,
        "float16 weights lose updates": half["lost"] > (0.5 if small else 0.1),
        "float16 weights lose accuracy": not small or half["accuracy"] <= full["accuracy"] - 0.05,
    }
    return [name for name, holds in bands.items() if not holds]


def picture(measured: dict[str, dict[str, Outcome]]) -> object:
    figure = new_figure(3.6)
    title(
        figure,
        0.75,
        "What master weights keep",
        "64-64-10 on the digits, SGD in batches of 32, loss scale 1024",
    )
    axes = new_axes(figure, 0.75, 0.65, 0.2, 0.95)
    colours = dict(zip(POLICIES, (MUTED, BLUE, VERMILION), strict=True))
    for place, name in enumerate(POLICIES):
        heights = [100 * outcomes[name]["accuracy"] for outcomes in measured.values()]
        spots = [i + 0.27 * (place - 1) for i in range(len(measured))]
        axes.bar(spots, heights, width=0.25, color=colours[name], label=name)
        for spot, height, outcomes in zip(spots, heights, measured.values(), strict=True):
            lost = f"\n{percent(outcomes[name]['lost'])} lost" if name == "float16 weights" else ""
            axes.text(
                spot, height + 1.5, f"{height:.1f}{lost}", ha="center", fontsize=8.5, color=colours[name]
            )
    epochs = {f"{rate:g}": number for rate, number in SETTINGS}
    axes.set_xticks(range(len(measured)), [f"learning rate {r}, {epochs[r]} epochs" for r in measured])
    axes.set_ylim(0, 119)
    axes.set_yticks(range(0, 101, 25))
    axes.set_ylabel("accuracy on 397 images (%)", color=MUTED, fontsize=9.5)
    axes.legend(loc="upper right", bbox_to_anchor=(1, 1.22), ncols=3, frameon=False, fontsize=9.5)
    return figure


if __name__ == "__main__":
    sys.exit(main())
