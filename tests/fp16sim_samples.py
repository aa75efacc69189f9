"""Made-up results of the shape that a comparison leaves, for pictures and pages."""

from __future__ import annotations

import math

from fp16sim.recording.histogram import Histogram, Shares
from fp16sim.training.results import RunResult, Step


def histogram() -> Histogram:
    """Gradients around 2^-28, 600 of 1000 zero."""
    counts = {-36: 10, -32: 60, -30: 90, -28: 100, -26: 100, -25: 30, -24: 9, -22: 1}
    return Histogram(counts=counts, powers={-25: 5}, zeros=600)


def run(
    name: str,
    policy: str = "mixed_float16",
    scaler: str = "none",
    scales: tuple[float, ...] = (1.0,) * 40,
    skipped: tuple[int, ...] = (),
    losses: tuple[float, ...] | None = None,
    accuracy: float = 0.97,
) -> RunResult:
    losses = losses or tuple(2.3 / (1 + index / 4) for index in range(len(scales)))
    history = tuple(
        Step(index + 1, loss, scale, index + 1 not in skipped, index + 1 in skipped, 0.6, 0.3, 0.1)
        for index, (loss, scale) in enumerate(zip(losses, scales, strict=True))
    )
    return RunResult(
        name=name,
        policy=policy,
        scaler=scaler,
        history=history,
        accuracy=accuracy,
        shares=Shares(0.6, 0.3, 0.1),
        final_scale=scales[-1],
        skipped=len(skipped),
        digest="0123456789abcdef" * 4,
        histogram=histogram(),
    )


def four_runs() -> list[RunResult]:
    """A float32 run, one that diverges to NaN, a static one, and a dynamic one with three skipped steps."""
    exploding = tuple(2.3 + index for index in range(30)) + (math.nan,) * 10
    moving = (2.0**36, 2.0**35, *(2.0**34,) * 20, 2.0**35, *(2.0**34,) * 17)
    return [
        run("float32", "float32"),
        run("float16 unscaled", losses=exploding, accuracy=0.106),
        run("float16 scale 8", scaler="static,scale=8", scales=(8.0,) * 40),
        run("float16 dynamic", scaler="torch,init_scale=2**36", scales=moving, skipped=(1, 2, 23)),
    ]
