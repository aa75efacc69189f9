"""Scaler steps a second: many histories under one scaler, against its objects in a Python loop. `make bench`.

usage: scalers.py [--rounds N] [--quick]

The peaks are drawn by the stochastic model before the clock starts, and given again as one block after the other. What
is timed is a whole call of `simulate`, closed loop and summaries only, on two threads: the questions that it asks the
object are part of it. The loop asks the object at every step and does nothing else.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from typing import Any

import numpy as np
from timing import ROUNDS, machine, save

import fp16sim as fs
from fp16sim.scaling import PeakModel, make, simulate
from fp16sim.scaling.outcomes import KINDS, ClosedLoop

THREADS = 2
HISTORIES, BLOCK, BLOCKS = 1024, 8192, 32
BARS = {"rate": 1e8, "ratio": 1000.0}
"""For torch's rule: scaler steps a second on two cores, and times as fast as the loop, one core against one."""

SCALERS = (
    "torch", "apex", "keras3", "flax", "jmp", "mxnet", "paddle", "deepspeed", "megatron", "fairseq", "colossalai",
    "mindspore_manager", "robust",
)  # fmt: skip


def drawn() -> np.ndarray:
    """Give float32 peaks: a slow walk, heavy tails, bursts; some overflow at the scales that the rules reach."""
    model = PeakModel(
        start=-4.0, walk=0.01, jitter=0.5, tail_index=3.0, burst_rate=1e-4, burst_length=4, seed=11
    )
    return model.peaks(HISTORIES, BLOCK).astype(np.float32)


def simulated(name: str, peaks: np.ndarray, blocks: int) -> tuple[float, float, Any]:
    """Give the seconds of a simulation, wall time and processor time of all threads, and what it found."""
    start, processor = time.perf_counter(), time.process_time()
    found = simulate(make(name), (peaks for _ in range(blocks)))
    return time.perf_counter() - start, time.process_time() - processor, found


def looped(name: str, peaks: np.ndarray) -> tuple[float, float]:
    """Give the steps a second of the objects, processor time, and the last scale."""
    scaler, loop = make(name), ClosedLoop()
    values = peaks.tolist()
    start = time.thread_time()
    for peak in values:
        scaler, _ = scaler.update(KINDS[loop.kind(peak, scaler.scale)])
    return len(values) / (time.thread_time() - start), scaler.scale


def measure(name: str, peaks: np.ndarray, rounds: int, blocks: int) -> dict[str, float]:
    """Time one scaler, and see that history 0 ends where the object does."""
    work = peaks.size * blocks
    seconds, processor, loops = [], [], []
    simulated(name, peaks[:2, :2000], 1)  # compiles
    for _ in range(rounds):
        wall, busy, found = simulated(name, peaks, blocks)
        seconds.append(wall)
        processor.append(busy)
        loops.append(looped(name, peaks[0])[0])
    short = simulate(make(name), peaks[:1])
    if looped(name, peaks[0])[1] != short.final_scale[0]:
        raise SystemExit(f"{name}: the simulation parts from the object")
    low, median, high = statistics.quantiles(seconds, n=4) if rounds > 1 else [seconds[0]] * 3
    return {
        "rate": work / median,
        "spread": (high - low) / median,
        "a_core": work / statistics.median(processor),
        "objects": statistics.median(loops),
        "ratio": statistics.median(work / a / b for a, b in zip(processor, loops, strict=True)),
        "overflows": float(found.overflows.mean() / found.steps.mean()),
    }


def memory(peaks: np.ndarray) -> dict[str, float]:
    """Give the growth of the peak of resident memory, in MiB, from a tenth of the steps to all of them."""

    def resident() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    simulated("torch", peaks, 6)
    before = resident()
    *_, found = simulated("torch", peaks, 60)
    return {"steps": float(found.steps.sum()), "growth": resident() - before}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument(
        "--quick", action="store_true", help="torch's rule, one round, and nothing is written"
    )
    args = parser.parse_args()
    fs.set_threads(THREADS)
    peaks = drawn()
    rows = {}
    for name in SCALERS[: 1 if args.quick else None]:
        row = rows[name] = measure(name, peaks, 1 if args.quick else args.rounds, BLOCKS)
        print(
            f"{name:18s} {row['rate'] / 1e6:7.0f} million steps/s, spread {row['spread']:4.0%}, "
            f"{row['a_core'] / 1e6:.0f} a core, {row['ratio']:6.0f} times the objects "
            f"({row['objects']:,.0f} steps/s), overflows {row['overflows']:.2%}"
        )
    held = memory(peaks)
    print(f"ten times the steps ({held['steps']:.2g} in all): peak memory grows by {held['growth']:.1f} MiB")
    if not args.quick:
        data = {
            "machine": machine(),
            "rounds": args.rounds,
            "threads": THREADS,
            "histories": HISTORIES,
            "steps": BLOCK * BLOCKS,
            "bars": BARS,
            "rows": rows,
            "memory": held,
        }
        print(f"written: {save('bench_scalers', data)}")


if __name__ == "__main__":
    main()
