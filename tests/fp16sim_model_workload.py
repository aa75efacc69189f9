"""The first steps of every model under mixed_float16, whose digests must be the same on every machine.

usage: python fp16sim_model_workload.py [threads [steps [model ...]]]
"""

from __future__ import annotations

import sys

import fp16sim as fs
from fp16sim.training.recipes import RECIPES

STEPS = 100
SCALER = "torch,init_scale=2**24,growth_interval=20"
"""It starts too high and grows again soon, so that some of the steps are skipped."""


def digest(name: str, steps: int) -> str:
    recipe = RECIPES[name]
    model = recipe.build(0)
    run = fs.fit(
        model,
        recipe.data(0),
        policy="mixed_float16",
        scaler=SCALER,
        optimizer=recipe.optimizer(model),
        loss_function=recipe.loss_function,
        schedule=recipe.schedule,
        clip_norm=recipe.clip_norm,
        steps=steps,
        measure=False,
    )
    return run.digest


def main(threads: int = 1, steps: int = STEPS, *names: str) -> None:
    fs.set_threads(threads)
    for name in names or RECIPES:
        print(name, digest(name, steps), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]), *sys.argv[3:])
