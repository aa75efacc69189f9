"""Speed of whole training steps, as ratios to torch's float32 eager steps taken alternately in one run: `make bench`.

usage: training.py [--rounds N] [--quick]

Each contestant trains a network of its own, made alike: forward, loss, backward, loss scale, optimizer. Two threads
each, wall time. The bars are meant for AVX2 machines; elsewhere the ratios are printed all the same.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import timeit
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from timing import ROUNDS, machine, save

import fp16sim as fs
from fp16sim.autograd import ops
from fp16sim.autograd.backward import gradients, saved_bytes
from fp16sim.autograd.policy import Policy, autocast
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn import CrossEntropyLoss, Module
from fp16sim.nn.random import uniforms
from fp16sim.optim import SGD
from fp16sim.scaling import make
from fp16sim.training.evaluation import model_inputs
from fp16sim.training.models import mlp
from fp16sim.training.recipes import RECIPES
from fp16sim.training.step import train_step

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))  # the twins in torch are the tests' own
from fp16sim_oracles import torch_models

THREADS = 2
BARS = {"perceptron": 2.0, "resnet": 3.0, "gpt": 3.0}
"""At most this many times torch's float32 time, for a mixed_float16 step."""

AUTOCAST_BAR = 3.0
"""At least this many times as fast as torch's own float16 autocast on the CPU."""

OVERHEAD_BAR = 15.0
"""Microseconds an operation on tensors of one element."""

Problem = tuple[Callable[[], Module], Callable[[Module], Any], Any, tuple[Any, Any]]


def problems() -> dict[str, Problem]:
    """Give, for each name: model, optimizer, loss, one batch."""
    images = uniforms(0, 128 * 784).reshape(128, 784).astype(np.float32)
    found: dict[str, Problem] = {
        "perceptron": (
            lambda: mlp(784, 256, 2, 10),
            lambda model: SGD(model.parameters(), lr=0.01, momentum=0.9),
            CrossEntropyLoss(),
            (images, np.arange(128) % 10),
        )
    }
    for name in ("resnet", "gpt"):
        recipe = RECIPES[name]
        found[name] = (
            lambda recipe=recipe: recipe.build(0),
            recipe.optimizer,
            recipe.loss_function or CrossEntropyLoss(),
            recipe.data(0).at(0),
        )
    return found


def our_step(problem: Problem, policy: str, scaler: Any) -> Callable[[], object]:
    build, optimizer_of, loss, batch = problem
    model = build()
    state = {"scaler": scaler}
    optimizer = optimizer_of(model)

    def step() -> None:
        state["scaler"] = train_step(
            1,
            model,
            loss,
            batch,
            policy=Policy(policy),
            scaler=state["scaler"],
            optimizer=optimizer,
            measure=False,
        ).scaler

    return step


def their_step(torch: Any, problem: Problem, half: bool) -> Callable[[], object]:
    build, optimizer_of, _, (inputs, targets) = problem
    model = build()
    network = torch_models.twin(torch, model)
    optimizer = torch_models.optimizer_like(torch, optimizer_of(model), network.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=half)
    x, y = torch_models.tensors(torch, inputs), torch.from_numpy(targets)
    loss_function = torch.nn.CrossEntropyLoss()
    network.train()

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16, enabled=half):
            loss = loss_function(*torch_models.flattened(network(*x), y))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def alternate(contestants: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Give the seconds of a step of each contestant in each round, wall time; a turn lasts a twentieth of a second."""
    times = {}
    for name, contestant in contestants.items():
        for _ in range(3):
            contestant()
        start = time.perf_counter()
        contestant()
        times[name] = max(1, min(50, int(0.05 / (time.perf_counter() - start))))
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds):
        for name in list(contestants)[:: 1 if turn % 2 == 0 else -1]:
            start = time.perf_counter()
            for _ in range(times[name]):
                contestants[name]()
            seconds[name].append((time.perf_counter() - start) / times[name])
    return seconds


def steps(rounds: int) -> dict[str, Any]:
    """Time every problem."""
    import torch

    torch.set_num_threads(THREADS)
    fs.set_threads(THREADS)
    result = {}
    for name, problem in problems().items():
        contestants = {
            "torch float32": their_step(torch, problem, half=False),
            "torch autocast float16": their_step(torch, problem, half=True),
            "fp16sim mixed_float16": our_step(problem, "mixed_float16", make("torch", init_scale=1024.0)),
            "fp16sim float32": our_step(problem, "float32", make("none")),
        }
        seconds = alternate(contestants, rounds)
        base = seconds["torch float32"]
        rows = {}
        for who, values in seconds.items():
            low, median, high = statistics.quantiles(values, n=4)
            ratio = statistics.median(a / b for a, b in zip(values, base, strict=True))
            rows[who] = {
                "milliseconds": median * 1e3,
                "spread": (high - low) / median,
                "to_torch_float32": ratio,
            }
        half = seconds["torch autocast float16"]
        faster = statistics.median(a / b for a, b in zip(half, seconds["fp16sim mixed_float16"], strict=True))
        result[name] = {"rows": rows, "bar": BARS[name], "faster_than_autocast": faster}
        print(f"{name} (bar {BARS[name]:g} x torch float32, {AUTOCAST_BAR:g} x faster than its autocast)")
        for who, row in rows.items():
            print(
                f"  {who:24s} {row['milliseconds']:8.2f} ms  {row['to_torch_float32']:5.2f} x torch float32 "
                f"  spread {row['spread']:.0%}"
            )
        print(f"  mixed_float16 is {faster:.1f} times as fast as torch's float16 autocast")
    return result


def overhead() -> dict[str, float]:
    """Time an operation on tensors of one element: its forward and its part of a backward pass."""
    found = {}
    for dtype in ("float16", "float32"):
        a, b = (Tensor(np.ones((1, 1)), requires_grad=True, dtype=dtype) for _ in range(2))
        operations: dict[str, Callable[[Tensor], Tensor]] = {
            "add": lambda x, b=b: x + b,
            "multiply": lambda x, b=b: x * b,
            "matmul": lambda x, b=b: x @ b,
            "relu": ops.relu,
            "sum": lambda x: ops.sum(x, 0, True),
        }
        for name, operation in operations.items():

            def chain(operation: Callable[[Tensor], Tensor] = operation, a: Tensor = a) -> Tensor:
                x = a
                for _ in range(20):
                    x = operation(x)
                return x

            y = chain()
            forward = min(timeit.repeat(chain, number=10, repeat=15)) / 200
            back = min(timeit.repeat(lambda y=y, a=a, b=b: gradients(y, [a, b]), number=10, repeat=15)) / 200
            found[f"{name}, {dtype}"] = {"forward": forward * 1e6, "backward": back * 1e6}
    for name, row in found.items():
        print(f"  {name:20s} {row['forward']:5.1f} us forward, {row['backward']:5.1f} us backward")
    return found


def memory() -> dict[str, dict[str, int]]:
    """Count the bytes that the tape of one step keeps for the gradients, beside the parameters."""
    found = {}
    for name, (build, _, loss, (inputs, targets)) in problems().items():
        sizes = {}
        for policy in ("float32", "float16", "mixed_float16"):
            model = build().to(Policy(policy).parameters)
            with autocast(policy):
                sizes[policy] = saved_bytes(loss(model(*model_inputs(inputs)), targets))
        found[name] = sizes
        print(f"  {name:12s} " + ", ".join(f"{key} {size:,}" for key, size in sizes.items()))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=max(ROUNDS, 15))
    parser.add_argument("--quick", action="store_true", help="three rounds, and nothing is written")
    args = parser.parse_args()
    if find_spec("torch") is None:
        print("torch is not installed, which the steps are measured against: pip install torch==2.13.0")
        return
    rounds = 3 if args.quick else args.rounds
    timed = steps(rounds)
    print(f"overhead of an operation on 1 x 1 tensors (bar {OVERHEAD_BAR:g} us)")
    small = overhead()
    print("bytes that the tape keeps for the gradients")
    held = memory()
    if not args.quick:
        data = {
            "machine": machine(),
            "rounds": rounds,
            "threads": THREADS,
            "bars": {"autocast": AUTOCAST_BAR, "overhead": OVERHEAD_BAR},
            "steps": timed,
            "overhead": small,
            "memory": held,
        }
        print(f"written: {save('bench_training', data)}")


if __name__ == "__main__":
    main()
