"""Alternating timings: every contestant once a round, medians and spread over the rounds, ratios within one run."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"
ROUNDS = 9


def alternate(contestants: dict[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Give the seconds of each contestant in each round, in processor time of this thread.

    The order turns around from round to round. Processor time leaves out what other jobs of the machine take.
    """
    for contestant in contestants.values():
        contestant()  # compiles, fills tables and caches
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(rounds):
        names = list(contestants) if turn % 2 == 0 else list(contestants)[::-1]
        for name in names:
            start = time.thread_time()
            contestants[name]()
            seconds[name].append(time.thread_time() - start)
    return seconds


def summary(seconds: list[float], work: float) -> dict[str, float]:
    """Give the rate (work per second) at the median, and the spread between the quartiles over the median."""
    low, median, high = statistics.quantiles(seconds, n=4)
    return {"rate": work / median, "median_seconds": median, "spread": (high - low) / median}


def machine() -> dict[str, Any]:
    """Describe the machine and the versions that a figure belongs to."""
    model = "unknown processor"
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    except OSError:
        model = platform.processor() or model
    versions = {}
    for name in ("numpy", "numba", "llvmlite", "ml_dtypes", "torch", "gfloat", "qtorch", "pychop"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "openblas": openblas_kernel(),
        **versions,
    }


def openblas_kernel() -> str:
    """Name the OpenBLAS kernel that NumPy runs; the speed bars are meant for Haswell's and Zen's."""
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return "unknown (threadpoolctl is not installed)"
    import numpy as np  # noqa: F401  threadpoolctl sees loaded libraries only

    found = [info.get("architecture", "unknown") for info in threadpool_info() if info["user_api"] == "blas"]
    return found[0] if found else "none"


def save(name: str, data: dict[str, Any]) -> Path:
    """Write results beside those of the experiments, in one piece."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(data, indent=2) + "\n")
    temporary.replace(path)
    return path
