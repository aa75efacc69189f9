"""Speed of conversions and elementwise arithmetic, as ratios within one run: `make bench`.

usage: elementwise.py [--size N] [--rounds N]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from timing import ROUNDS, alternate, machine, save, summary

import fp16sim as fs

Contestants = dict[str, Callable[[], object]]


def conversions(x: np.ndarray) -> Contestants:
    """float32 -> binary16, and a copy of the same bytes (4 read and 2 written for each value)."""
    source, sink = np.zeros(3 * x.size, np.uint8), np.zeros(3 * x.size, np.uint8)
    out = np.empty(x.size, np.float16)
    contestants: Contestants = {
        "copy of the bytes": lambda: np.copyto(sink, source),
        "fp16sim nearest_even": lambda: fs.round_to(x),
        "fp16sim toward_zero": lambda: fs.round_to(x, rounding="toward_zero"),
        "fp16sim stochastic": lambda: fs.round_to(x, rounding="stochastic", seed=1),
        "numpy astype": lambda: x.astype(np.float16),
        "numpy astype into out": lambda: np.copyto(out, x, casting="unsafe"),
    }
    return contestants


def peers(x: np.ndarray) -> Contestants:
    """Other programs that convert to binary16, where installed."""
    found: Contestants = {}
    try:
        import torch

        torch.set_num_threads(1)
        tensor = torch.from_numpy(x)
        found["torch half"] = lambda: tensor.half()
    except ImportError:
        pass
    try:
        from gfloat import RoundMode, round_ndarray
        from gfloat.formats import format_info_binary16

        few = x[:: max(1, x.size // 100_000)]
        found[f"gfloat ({few.size} values)"] = lambda: round_ndarray(
            format_info_binary16, few.astype(np.float64), RoundMode.TiesToEven
        )
    except ImportError:
        pass
    try:
        import torch
        from qtorch.quant import float_quantize

        quantized = torch.from_numpy(x)
        found["qtorch float_quantize"] = lambda: float_quantize(quantized, exp=5, man=10, rounding="nearest")
    except Exception:  # its extension is compiled on import, which fails in many ways
        pass
    try:
        from pychop import Chop

        chop = Chop(exp_bits=5, sig_bits=10)
        few_chopped = x[:: max(1, x.size // 100_000)]
        found[f"pychop ({few_chopped.size} values)"] = lambda: chop(few_chopped)
    except Exception:
        pass
    return found


def arithmetic(a: np.ndarray, b: np.ndarray) -> dict[str, Contestants]:
    """Each operation against NumPy's ufunc on float16, both into an array that is there already."""
    positive = np.abs(a)
    moderate = np.clip(a, np.float16(-8), np.float16(8))
    out = np.empty_like(a)
    operands = {"add": (a, b), "multiply": (a, b), "divide": (a, b), "sqrt": (positive,), "exp": (moderate,)}

    def contestants(name: str, arrays: tuple[np.ndarray, ...]) -> Contestants:
        ours, theirs = getattr(fs, name), getattr(np, name)
        repeats = max(1, 10_000_000 // (20 * a.size))  # short arrays: many calls a turn, for the clock's sake

        def repeat(function: Callable[..., object]) -> Callable[[], None]:
            def turn() -> None:
                for _ in range(repeats):
                    function(*arrays, out=out)

            return turn

        return {"fp16sim": repeat(ours), "numpy": repeat(theirs)}

    return {name: contestants(name, arrays) for name, arrays in operands.items()}


def all_conversions(threads: int = 2) -> float:
    """Convert all 2^32 float32 values; give the seconds of wall time."""
    piece = 2**24

    def work(index: int) -> None:
        fs.round_to(np.arange(index * piece, (index + 1) * piece, dtype=np.uint32).view(np.float32))

    start = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(2**32 // piece)))
    return time.perf_counter() - start


def process_seconds(code: str, rounds: int = 5) -> float:
    """Give the median seconds of a Python process that runs the code, its start included."""
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        seconds.append(time.perf_counter() - start)
    return sorted(seconds)[rounds // 2]


def main() -> None:
    """Run everything, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    size = options.size
    x = rng.standard_normal(size, dtype=np.float32)
    a, b = (rng.standard_normal(size, dtype=np.float32).astype(np.float16) for _ in range(2))
    about = machine()
    print("  ".join(f"{key}: {value}" for key, value in about.items()))

    results: dict[str, Any] = {"machine": about, "size": size, "rounds": options.rounds}
    timed = alternate({**conversions(x), **peers(x)}, options.rounds)
    rows = {}
    for name, seconds in timed.items():
        count = int(name.split("(")[1].split()[0]) if "(" in name else size
        rows[name] = summary(seconds, count)
    copy, astype = rows["copy of the bytes"]["rate"], rows["numpy astype"]["rate"]
    print(f"\nfloat32 -> binary16, {size:,} values{'':9}Gvalue/s  spread  /copy  /astype")
    for name, row in rows.items():
        row.update(to_copy=row["rate"] / copy, to_numpy=row["rate"] / astype)
        line = (
            f"{row['rate'] / 1e9:8.3f}  {row['spread']:5.0%}  {row['to_copy']:5.2f}  {row['to_numpy']:7.2f}"
        )
        print(f"  {name:<42}{line}")
    results["conversions"] = rows

    results["arithmetic"] = {}
    for length in (2**18, size):  # in the cache, and in memory
        print(f"\nbinary16 arithmetic, {length:,} values{'':10}Gvalue/s  spread  numpy's  ratio")
        results["arithmetic"][str(length)] = table = {}
        with np.errstate(all="ignore"):
            for name, contestants in arithmetic(a[:length].copy(), b[:length].copy()).items():
                calls = max(1, 10_000_000 // (20 * length))
                times = alternate(contestants, options.rounds)
                row = {who: summary(seconds, length * calls) for who, seconds in times.items()}
                ratio = row["fp16sim"]["rate"] / row["numpy"]["rate"]
                table[name] = {**row, "ratio": ratio}
                ours, theirs = row["fp16sim"]["rate"] / 1e9, row["numpy"]["rate"] / 1e9
                print(
                    f"  {name:<42}{ours:8.3f}  {row['fp16sim']['spread']:5.0%}  {theirs:7.3f}  {ratio:5.1f}"
                )

    starts = {
        "import fp16sim": process_seconds("import fp16sim") - process_seconds("pass"),
        "process start to first round_to, warm cache": process_seconds(
            "import fp16sim as fs; fs.round_to(1.0)"
        ),
        "all 2^32 float32 -> binary16, 2 threads": all_conversions(),
    }
    print("\nseconds")
    for name, seconds in starts.items():
        print(f"  {name:<42}{seconds:8.2f}")
    results["seconds"] = starts
    print(f"\nwritten: {save('bench_elementwise', results)}")


if __name__ == "__main__":
    main()
