"""A fixed workload whose digest must be the same on every machine: run as a script, prints one line for each part.

usage: python fp16sim_workload.py [threads]
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import fp16sim as fs
from fp16sim.emulator import backends, float32_functions, one_argument
from fp16sim.emulator.backends import products, unfolding
from fp16sim.emulator.rounding import MODES


def operands(seed: int, size: int) -> np.ndarray:
    """All bit patterns of binary16, NaN included, in a fixed order."""
    rng = np.random.Generator(np.random.PCG64(seed))  # integers of a bit generator are stable
    return rng.integers(0, 65536, size, dtype=np.uint16).view(np.float16)


def in_pieces(work: Callable[..., np.ndarray], arrays: tuple[np.ndarray, ...], threads: int) -> np.ndarray:
    """Do elementwise work in pieces, one thread each."""
    pieces = zip(*(np.array_split(a, threads) for a in arrays), strict=True)
    with ThreadPoolExecutor(threads) as pool:
        return np.concatenate(list(pool.map(lambda piece: work(*piece), pieces)))


def parts(threads: int) -> dict[str, list[np.ndarray]]:
    a, b, c = (operands(seed, 20_000) for seed in (1, 2, 3))
    singles = (
        np.random.Generator(np.random.PCG64(4)).integers(0, 2**32, 40_000, dtype=np.uint32).view(np.float32)
    )
    with np.errstate(all="ignore"):
        doubles = singles.astype(np.float64) * (1 + 2.0**-30)
    small = np.where(np.isfinite(a), np.clip(a.astype(np.float32), -4, 4), 0).astype(np.float16)
    left, right = small[: 64 * 100].reshape(64, 100), small[: 100 * 48].reshape(100, 48)
    deterministic = MODES[:-1]
    two = ("add", "subtract", "multiply", "divide", "ieee_remainder")
    return {
        "round_to": [
            in_pieces(lambda x, mode=mode: fs.round_to(x, rounding=mode), (x,), threads)
            for mode in deterministic
            for x in (singles, doubles)
        ],
        "stochastic": [
            fs.round_to(x, rounding="stochastic", seed=5)
            for x in (singles, doubles, singles.astype(np.float64))
        ],
        "formats": [
            fs.round_to(singles, fmt).view(np.uint8)
            for fmt in ("bfloat16", "tf32", "e4m3", "e5m2", "binary32")
        ],
        "arithmetic": [
            in_pieces(lambda x, y, f=f, m=m: getattr(fs, f)(x, y, rounding=m), (a, b), threads)
            for f in two
            for m in ("nearest_even", "to_odd")
        ],
        "fma": [in_pieces(fs.fma, (a, b, c), threads)],
        "functions": [
            getattr(fs, name)(a, rounding=mode)
            for name in sorted(one_argument.FUNCTIONS)
            if hasattr(fs, name)
            for mode in ("nearest_even", "toward_positive")
        ],
        "float32_functions": [
            np.where(np.isnan(y), np.float32(0), y).view(np.uint8)
            for y in (float32_functions.exp(singles), float32_functions.log(np.abs(singles)))
        ],
        "real_functions": [
            np.asarray(backends.current().real_function(name, *given)).view(np.uint8)
            for name in (*float32_functions.FLOAT32_FUNCTIONS, "pow")
            for given in ((singles, singles[::-1].copy()), (doubles[:4000], doubles[4000:8000]))
            for given in (given[: 1 + (name == "pow")],)
        ],
        "matmul": [
            in_pieces(lambda rows, path=path: fs.matmul(rows, right, path), (left,), threads)
            for path in ("float32", "float16")
        ],
        "sum": [
            fs.sum(left, axis=axis, datapath=path) for axis in (0, 1, None) for path in ("float32", "float16")
        ],
        "datapaths": [
            np.asarray(result).view(np.uint8)
            for path in ("float16_fma", "pairwise", "exact", "float16_kahan", "a100", "v100:float16")
            for result in (fs.matmul(left, right, path), fs.sum(left, 1, path))
        ],
        "float32_and_float64": [
            fs.matmul(left.astype(dtype), right.astype(dtype), path).view(np.uint8)
            for dtype, path in ((np.float32, "float32"), (np.float64, "float64"))
        ],
        "reductions": [
            np.asarray(function(left, 1, datapath=path)).view(np.uint8)
            for function in (fs.mean, fs.norm, fs.cumsum, fs.softmax)
            for path in ("float32", "float16")
        ],
        "convolution": [
            result for path in ("float32", "float16", "v100:float16") for result in convolutions(small, path)
        ],
        "training": [np.frombuffer(bytes.fromhex(training_digest()), np.uint8)],
    }


def convolutions(numbers: np.ndarray, path: str) -> list[np.ndarray]:
    """A convolution with every option, and its gradients."""
    x = numbers[: 3 * 8 * 9 * 11].reshape(3, 8, 9, 11)
    weight = numbers[5000 : 5000 + 6 * 4 * 3 * 2].reshape(6, 4, 3, 2)
    options = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2), "groups": 2, "datapath": path}
    result = fs.conv2d(x, weight, **options)
    gradient = numbers[7000 : 7000 + result.size].reshape(result.shape)
    return [
        result,
        fs.conv2d_input(x.shape, weight, gradient, **options),
        fs.conv2d_weight(x, weight.shape, gradient, **options),
    ]


def training_digest() -> str:
    """Digest of a few steps of a small network on the digits, in mixed precision with a scale that overflows."""
    from fp16sim.optim import SGD
    from fp16sim.training.data import Batches, digits
    from fp16sim.training.fit import fit
    from fp16sim.training.models import mlp

    model = mlp(hidden=32, layers=3)
    run = fit(
        model,
        Batches(digits()[0], 64),
        policy="mixed_float16",
        scaler="torch,init_scale=2**22,growth_interval=3",
        optimizer=SGD(model.parameters(), lr=0.05, momentum=0.9),
        steps=12,
    )
    return run.digest


if __name__ == "__main__":
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    fs.set_threads(threads)
    products._WORTH_A_THREAD, products._WORTH_A_PACKED_THREAD = {}, 1  # divide small products too
    unfolding._WORTH_THREADS = 1
    for name, arrays in parts(threads).items():
        digest = hashlib.sha256()
        for array in arrays:
            digest.update(np.ascontiguousarray(array).tobytes())
        print(name, digest.hexdigest())
