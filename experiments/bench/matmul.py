"""Speed of matrix products, as ratios to OpenBLAS sgemm taken alternately in one run: `make bench`.

usage: matmul.py [--rounds N] [--quick]

The bars are meant for OpenBLAS's AVX2 kernels (Haswell, Zen); with others the ratios are printed all the same.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits
from timing import RESULTS, ROUNDS, alternate, machine, save, summary

import fp16sim as fs

Contestants = dict[str, Callable[[], object]]

SHAPES = ((64, 64, 64), (64, 784, 256), (256, 256, 256), (512, 512, 512), (1024, 1024, 1024))
DATAPATHS = (
    "float32",
    "float16",
    "float16_fma",
    "v100",
    "a100",
    "h100",
    "v100:float16",
    "a100:float16",
    "h100:float16",
)
BARS = {  # datapath: ratio to sgemm by shape
    "float32": {(64, 64, 64): 0.7} | dict.fromkeys(SHAPES[1:], 0.9),
    "float32, binary32 operands": dict.fromkeys(SHAPES, 0.4),
    "float16": {(512, 512, 512): 0.17},
    "float16_fma": {(512, 512, 512): 0.10},
    "v100": {(512, 512, 512): 0.11},
    "a100": {(512, 512, 512): 0.15},
    "h100": {(512, 512, 512): 0.15},
    "v100:float16": {(512, 512, 512): 0.08},
    "a100:float16": {(512, 512, 512): 0.08},
    "h100:float16": {(512, 512, 512): 0.08},
}
SWEEP = (16, 32, 64, 128, 256, 512, 1024, 2048)
PLOTTED = ("sgemm", "float32", "float16", "float16_fma", "a100", "h100", "a100:float16")


def halves(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Draw binary16 numbers such as activations and weights are."""
    return rng.standard_normal(shape, dtype=np.float32).astype(np.float16)


def repeated(function: Callable[[], object], macs: int) -> Callable[[], None]:
    """Make a turn of at least ten million multiply-accumulates, for the clock's sake."""
    times = max(1, 10_000_000 // macs)

    def turn() -> None:
        for _ in range(times):
            function()

    return turn


def ours(a: np.ndarray, b: np.ndarray, datapaths: Iterable[str] = DATAPATHS) -> Contestants:
    """sgemm on float32 copies, and our products, all into arrays that are there already."""
    left, right = a.astype(np.float32), b.astype(np.float32)
    shape = (a.shape[0], b.shape[1])
    single, half, wide = (
        np.empty(shape, np.float32),
        np.empty(shape, np.float16),
        np.empty(shape, np.float32),
    )
    contestants: Contestants = {"sgemm": lambda: np.matmul(left, right, out=single)}
    for name in datapaths:
        out = half if name.startswith("float") or name.endswith("float16") else wide
        contestants[name] = lambda name=name, out=out: fs.matmul(a, b, name, out=out)  # type: ignore[misc]
    contestants["float32, binary32 operands"] = lambda: fs.matmul(left, right, out=wide)
    return contestants


def numpy_loop(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Products and sums rounded to binary16 by NumPy's float16, one k at a time."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float16)
    for k in range(a.shape[1]):
        total += a[:, k, None] * b[k]
    return total


def peers(a: np.ndarray, b: np.ndarray) -> Contestants:
    """Other programs that multiply binary16 matrices, where installed."""
    found: Contestants = {
        "np.matmul float16": lambda: np.matmul(a, b),
        "numpy binary16 loop": lambda: numpy_loop(a, b),
    }
    left, right = a.astype(np.float32), b.astype(np.float32)
    try:
        import torch

        torch.set_num_threads(1)
        first, second = torch.from_numpy(a), torch.from_numpy(b)
        found["torch half @ half"] = lambda: first @ second
    except ImportError:
        pass
    try:
        import torch
        from qtorch.quant import float_quantize

        def qtorch_loop() -> Any:
            x, y = torch.from_numpy(left), torch.from_numpy(right)
            total = torch.zeros(a.shape[0], b.shape[1])
            for k in range(a.shape[1]):
                term = float_quantize(x[:, k, None] * y[k], exp=5, man=10, rounding="nearest")
                total = float_quantize(total + term, exp=5, man=10, rounding="nearest")
            return total

        qtorch_loop()
        found["QPyTorch loop"] = qtorch_loop
    except Exception:  # its extension is compiled on import, which fails in many ways
        pass
    try:
        from pychop import Chop

        chop = Chop(exp_bits=5, sig_bits=10)

        def pychop_loop() -> Any:
            total = np.zeros((a.shape[0], b.shape[1]), np.float32)
            for k in range(a.shape[1]):
                total = chop(total + chop(left[:, k, None] * right[k]))
            return total

        pychop_loop()
        found["pychop loop"] = pychop_loop
    except Exception:  # absent, or of another interface
        pass
    try:
        import torch
        from mptorch import FloatingPoint
        from mptorch.quant import float_gemm

        half = FloatingPoint(exp=5, man=10, subnormals=True, saturate=False)
        formats = {"man_add": half.man, "exp_add": half.exp, "man_mul": half.man, "exp_mul": half.exp}
        x, y = torch.from_numpy(left), torch.from_numpy(right)
        float_gemm(x, y, **formats, fma=False)
        found["MPTorch gemm"] = lambda: float_gemm(x, y, **formats, fma=False)
    except Exception:  # its extension is compiled on import
        pass
    return found


def rated(contestants: Contestants, macs: int, rounds: int) -> dict[str, dict[str, float]]:
    """Time contestants; rates in multiply-accumulates a second, and ratios to sgemm."""
    timed = alternate({name: repeated(f, macs) for name, f in contestants.items()}, rounds)
    work = macs * max(1, 10_000_000 // macs)
    rows = {name: summary(seconds, work) for name, seconds in timed.items()}
    for row in rows.values():
        row["to_sgemm"] = row["rate"] / rows["sgemm"]["rate"]
    return rows


def show(title: str, rows: dict[str, dict[str, float]], bars: dict[str, float]) -> None:
    """Print a table; a bar that is met has a +, one that is not a -."""
    print(f"\n{title:<44}GMAC/s  spread  /sgemm    bar", flush=True)
    for name, row in rows.items():
        bar = f"{bars[name]:6.2f} {'+' if row['to_sgemm'] >= bars[name] else '-'}" if name in bars else ""
        print(
            f"  {name:<40}{row['rate'] / 1e9:8.2f}  {row['spread']:5.0%}  {row['to_sgemm']:7.3f} {bar}",
            flush=True,
        )


def convolution(rng: np.random.Generator, rounds: int) -> dict[str, dict[str, float]]:
    """conv2d 3x3 on 32x64x28x28, beside the product of its size."""
    x, weight = halves(rng, 32, 64, 28, 28), halves(rng, 64, 64, 3, 3)
    pixels = halves(rng, 32 * 28 * 28, 64 * 9)
    matrix = weight.reshape(64, -1)
    columns = np.ascontiguousarray(pixels.T)
    left, right = matrix.astype(np.float32), columns.astype(np.float32)
    single, half = np.empty((64, columns.shape[1]), np.float32), np.empty((64, columns.shape[1]), np.float16)
    contestants: Contestants = {
        "sgemm": lambda: np.matmul(left, right, out=single),
        "matmul of its size": lambda: fs.matmul(matrix, columns, out=half),
        "conv2d": lambda: fs.conv2d(x, weight, padding=1),
    }
    rows = rated(contestants, 64 * columns.size, rounds)
    for row in rows.values():
        row["to_matmul"] = row["rate"] / rows["matmul of its size"]["rate"]
    return rows


def two_threads(rng: np.random.Generator, rounds: int, size: int = 1024) -> dict[str, float]:
    """Best wall times of one and two threads, alternating: how much faster two are."""
    a, b = halves(rng, size, size), halves(rng, size, size)
    gains = {}
    for name in ("float32", "float16", "a100"):
        best = {1: np.inf, 2: np.inf}
        for _ in range(rounds):
            for threads in (1, 2):
                fs.set_threads(threads)
                fs.matmul(a[:64], b, name)  # wakes the pool up
                start = time.perf_counter()
                fs.matmul(a, b, name)
                best[threads] = min(best[threads], time.perf_counter() - start)
        gains[name] = best[1] / best[2]
    fs.set_threads(1)
    return gains


def sweep(rng: np.random.Generator, rounds: int, sizes: Iterable[int]) -> dict[str, dict[str, float]]:
    """Rates of square products as their size grows."""
    rates: dict[str, dict[str, float]] = {name: {} for name in PLOTTED}
    for size in sizes:
        contestants = ours(halves(rng, size, size), halves(rng, size, size), PLOTTED[1:])
        rows = rated({name: contestants[name] for name in PLOTTED}, size**3, rounds)
        for name, row in rows.items():
            rates[name][str(size)] = row["rate"]
    return rates


def plot(rates: dict[str, dict[str, float]], about: dict[str, Any]) -> None:
    """Draw rates over sizes, where matplotlib is installed."""
    try:
        import matplotlib
    except ImportError:
        print("no plot: pip install 'fp16sim[report]'")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for name, by_size in rates.items():
        axes.loglog([int(n) for n in by_size], [r / 1e9 for r in by_size.values()], "o-", label=name, base=2)
    axes.set_xticks([int(n) for n in rates["sgemm"]], list(rates["sgemm"]))
    axes.yaxis.set_major_formatter(lambda rate, _: f"{rate:g}")
    axes.set_xlabel("n, of an n by n by n product")
    axes.set_ylabel("GMAC/s, one thread")
    axes.set_title(f"{about['processor']}, OpenBLAS {about['openblas']}", fontsize="small")
    axes.legend(fontsize="small")
    axes.grid(alpha=0.3)
    path = RESULTS / "bench_matmul.png"
    figure.savefig(path, dpi=150)
    print(f"written: {path}")


def main() -> None:
    """Run everything, print the tables, write JSON and plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--quick", action="store_true", help="small sizes only, nothing written")
    options = parser.parse_args()
    rounds, largest = options.rounds, 256 if options.quick else 2048
    rng = np.random.default_rng(0)
    about = machine()
    print("  ".join(f"{key}: {value}" for key, value in about.items()))
    fs.set_threads(1)
    results: dict[str, Any] = {"machine": about, "rounds": rounds, "shapes": {}}
    with threadpool_limits(1):
        for shape in SHAPES:
            m, k, n = shape
            if max(shape) > max(largest, 784):
                continue
            rows = rated(ours(halves(rng, m, k), halves(rng, k, n)), m * k * n, rounds)
            bars = {name: by_shape[shape] for name, by_shape in BARS.items() if shape in by_shape}
            show(f"{m} x {k} x {n}", rows, bars)
            results["shapes"][f"{m} x {k} x {n}"] = {"rows": rows, "bars": bars}

        size = min(512, largest)
        a, b = halves(rng, size, size), halves(rng, size, size)
        contestants = {"sgemm": ours(a, b, ())["sgemm"], "float16": ours(a, b)["float16"], **peers(a, b)}
        rows = rated(contestants, size**3, min(rounds, 3))
        show(f"other programs, {size} x {size} x {size}", rows, {})
        factor = rows["float16"]["rate"] / rows["numpy binary16 loop"]["rate"]
        print(f"  float16 to the numpy binary16 loop: {factor:.0f} (bar: 100)")
        results["peers"] = {"size": size, "rows": rows, "to_numpy_loop": factor}

        rows = convolution(rng, rounds)
        show("conv2d 3x3 on 32 x 64 x 28 x 28", rows, {})
        print(f"  conv2d to the product of its size: {rows['conv2d']['to_matmul']:.2f} (bar: .7)")
        results["convolution"] = rows

        rates = sweep(rng, min(rounds, 5), [n for n in SWEEP if n <= largest])
        results["sweep"] = rates
    gains = two_threads(rng, rounds, min(1024, largest))
    print(
        "\ntwo threads to one, best wall times: "
        + ", ".join(f"{k} {v:.2f}" for k, v in gains.items())
        + " (bar: 1.5)"
    )
    results["two_threads"] = gains
    if not options.quick:
        plot(rates, about)
        print(f"written: {save('bench_matmul', results)}")


if __name__ == "__main__":
    main()
