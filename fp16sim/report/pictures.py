"""Which pictures a comparison has, what each shows, and their files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fp16sim.report.histogram_plot import histogram_figure
from fp16sim.report.plots import loss_figure, scale_figure
from fp16sim.report.style import png, svg
from fp16sim.report.tables import power_of_two, superscript
from fp16sim.scaling.registry import parse
from fp16sim.training.results import RunResult

__all__ = ["REPORT_FILES", "Picture", "pictures"]

CAPTIONS = {
    "loss": "Cross-entropy of the training batches, before the small factor and the loss scale multiply it. "
    "The axis is logarithmic; the pale band is float32. Guessing among ten digits costs ln 10 = 2.3.",
    "histogram": "The gradients of the float32 run, counted by power of two, as float16 meets them: a "
    "magnitude of at most 2^-25 becomes zero, and below 2^-14 bits are missing. The loss scale moves all of "
    "them to the right.",
    "scale": "A dynamic scaler looks for the largest scale that fits. A step whose gradients overflow is "
    "skipped and the scale is cut; after a run of good steps it grows.",
}

REPORT_FILES = ("report.html", *(f"{name}.png" for name in CAPTIONS))
"""Every file that a report can consist of."""


@dataclass(frozen=True)
class Picture:
    """A picture as SVG and as PNG, and what it shows."""

    name: str
    svg: bytes
    png: bytes
    caption: str


def pictures(
    results: Sequence[RunResult], loss_factor: float, scales: Sequence[float] = (1.0, 8.0)
) -> list[Picture]:
    """Draw every picture that these results allow.

    Parameters
    ----------
    results : sequence of RunResult
        At least one. The histogram is that of the first float32 run.
    loss_factor : float
        What multiplies the loss of every run: for the line below the title.
    scales : sequence of float
        Powers of two at which the histogram is shown.

    Returns
    -------
    list of Picture
        ``"loss"``; ``"histogram"`` where there is a float32 run; ``"scale"`` where a scale moves.

    Raises
    ------
    ImportError
        Without matplotlib; the message names the extra that brings it.
    """
    figures = {"loss": loss_figure(results)}
    float32 = next((result for result in results if result.policy == "float32"), None)
    if float32 is not None and float32.histogram.counts:
        source = f"all activation gradients of the run {float32.name}, loss times {power_of_two(loss_factor)}"
        figures["histogram"] = histogram_figure(float32.histogram, scales, source)
    moving = scale_figure(results)
    if moving is not None:
        figures["scale"] = moving
    captions = CAPTIONS | {"scale": CAPTIONS["scale"] + _where_they_start(results)}
    return [
        Picture(name, svg(figure), png(figure), superscript(captions[name]))
        for name, figure in figures.items()
    ]


def _where_they_start(results: Sequence[RunResult]) -> str:
    """Say of each run whose scale moves where it starts and when it grows."""
    sentences = ""
    for result in results:
        if len({step.scale for step in result.history}) > 1:
            interval = getattr(parse(result.scaler), "growth_interval", None)
            grows = f" and grows after {interval} good steps in a row" if interval else ""
            sentences += f" The run {result.name} starts at {power_of_two(result.history[0].scale)}{grows}."
    return sentences
