"""Claim: a network whose gradients lie where SSD's do diverges in float16, and a loss scale of 8 saves it.

Published: NVIDIA's mixed-precision training guide, on the activation gradients of SSD: 66.8% are zero, 31% become
zero in float16, 5.3% are left; Micikevicius et al., arXiv 1710.03740v3: scale 1 diverges, scale 8 matches float32.
The three shares add to 103.1%, and this is another network on other data, so each has a band: ten points either
side of the two large shares, a factor of two either side of the small one. Accuracies match within four percent:
three standard errors of a difference between two accuracies near 95% on 397 images.

Here: 64 - 6 x 64 - 10 on the digits, three seeds, the loss times 2^-17 (as `fp16sim train` has it), 2^-16 and 2^-15.
One training serves all three, because scaling is exact: the loss times 2^-17 under scale S is bit for bit the loss
times 2^-16 under scale S / 2. A step whose gradients are not finite is skipped.
"""

import json
import sys
from pathlib import Path

from fp16sim.recording.histogram import Histogram
from fp16sim.report.histogram_plot import histogram_figure
from fp16sim.report.style import png
from fp16sim.report.tables import percent, text_table
from fp16sim.training.comparison import compare
from fp16sim.training.files import write_atomically
from fp16sim.training.results import RunResult, RunSpec

RESULTS = Path(__file__).parent / "results" / "01_ssd_histogram"
SEEDS = (0, 1, 2)
BASE = 2.0**-16
FACTORS = {"2^-17": 0.5, "2^-16": 1.0, "2^-15": 2.0}
"""Loss factors, and the scale that stands in for each when the loss is multiplied by `BASE`."""

RUNS = (
    RunSpec("float32", "float32", "none"),
    *(RunSpec(f"scale {s:g}", "mixed_float16", f"static,scale={s:g}") for s in (0.5, 1, 2, 4, 8, 16)),
)
BANDS = {  # measure: (published, lowest, highest)
    "gradients zero": ("66.8%", 0.568, 0.768),
    "become zero in float16": ("31%", 0.21, 0.41),
    "survive": ("5.3%", 0.0265, 0.106),
    "accuracy at scale 1 / float32's": ("diverges", 0.0, 0.5),
    "accuracy at scale 8 / float32's": ("matches", 0.96, 1.04),
}

Runs = dict[str, RunResult]
Measured = dict[str, dict[int, dict[str, float]]]  # loss factor, seed, measure


def main() -> int:
    trained = [{run.name: run for run in compare(RUNS, loss_factor=BASE, seed=seed)} for seed in SEEDS]
    measured: Measured = {
        factor: {seed: measure(runs, scale) for seed, runs in zip(SEEDS, trained, strict=True)}
        for factor, scale in FACTORS.items()
    }
    histogram = Histogram()
    for runs in trained:
        histogram = histogram.merge(runs["float32"].histogram)
    picture = histogram_figure(histogram, (1.0, 8.0), "three float32 runs on the digits, loss times 2^-16")
    RESULTS.parent.mkdir(exist_ok=True)
    write_atomically(RESULTS.with_suffix(".json"), json.dumps(measured, indent=1) + "\n")
    write_atomically(RESULTS.with_suffix(".png"), png(picture))
    header = ("measure", "published", "band", *(f"loss x {factor}" for factor in FACTORS))
    print(text_table(header, rows(measured)))
    print(f"\nEach cell: lowest and highest of seeds {SEEDS}; * where one of them lies outside the band.")
    for factor, seeds in measured.items():
        print(
            f"loss x {factor}: every band holds"
            + (f" but {', '.join(out)}" if (out := outside(seeds)) else "")
        )
    print(f"Written: {RESULTS.with_suffix('.json')} and .png")
    return 0


def measure(runs: Runs, scale: float) -> dict[str, float]:
    """The measures of one seed, where `scale` stands in for the loss factor."""
    shares = runs["float32"].histogram.shares(scale)
    accuracies = [runs[f"scale {s * scale:g}"].accuracy / runs["float32"].accuracy for s in (1, 8)]
    return dict(zip(BANDS, [shares.zero, shares.flushed, shares.survive, *accuracies], strict=True))


def rows(measured: Measured) -> list[tuple[str, ...]]:
    table = []
    for name, (published, low, high) in BANDS.items():
        cells = []
        for seeds in measured.values():
            values = [values[name] for values in seeds.values()]
            star = "*" if name in outside(seeds) else " "
            cells.append(f"{percent(min(values))} to {percent(max(values))} {star}")
        table.append((name, published, f"{percent(low)} to {percent(high)}", *cells))
    return table


def outside(seeds: dict[int, dict[str, float]]) -> list[str]:
    """The measures that some seed has outside their band."""
    return [
        name
        for name, (_, low, high) in BANDS.items()
        if not all(low <= values[name] <= high for values in seeds.values())
    ]


if __name__ == "__main__":
    sys.exit(main())
