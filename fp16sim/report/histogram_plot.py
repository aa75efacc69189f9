"""The picture of this project: where gradients lie, and what float16 makes of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fp16sim.recording.histogram import FLUSH_EXPONENT, Histogram
from fp16sim.report.style import (
    BLUE,
    INK,
    MUTED,
    ORANGE,
    PALE,
    VERMILION,
    WIDTH,
    new_axes,
    new_figure,
    power_ticks,
    title,
)
from fp16sim.report.tables import percent, power_of_two, superscript

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["histogram_figure"]

MIN_NORMAL_EXPONENT = -14
LEFT, RIGHT, PANEL, HEAD, FOOT = 0.75, 0.2, 2.5, 0.75, 0.25
"""Inches: the margins at the sides, one panel, what is above and below all panels."""

NEGLIGIBLE = 0.0005
"""Bins further left than the first with this share of the gradients are told, not drawn."""


def histogram_figure(histogram: Histogram, scales: Sequence[float] = (1.0, 8.0), source: str = "") -> Figure:
    """Draw an exponent histogram as binary16 meets it at each scale, with its zones shaded.

    Parameters
    ----------
    histogram : Histogram
        Gradients as float32 has them, not scaled; at least one is not zero.
    scales : sequence of float
        Powers of two; a panel each.
    source : str
        Which gradients these are: the line below the title.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If a scale is not a power of two, or there is nothing to draw.
    """
    if not histogram.counts:
        raise ValueError(
            "the histogram holds no finite nonzero value: there is nothing to draw; add gradients first"
        )
    heights = {exponent: count / histogram.total for exponent, count in sorted(histogram.counts.items())}
    first = next((exponent for exponent, share in heights.items() if share >= NEGLIGIBLE), min(heights))
    cut = sum(share for exponent, share in heights.items() if exponent < first)
    shifts = [math.frexp(scale)[1] - 1 for scale in scales]
    left = min(first, FLUSH_EXPONENT - 3) - 1
    right = max(max(heights) + max(shifts) + 2, MIN_NORMAL_EXPONENT + 6)
    figure = new_figure(HEAD + PANEL * len(scales) + FOOT)
    title(figure, LEFT, "Where the gradients lie, and what float16 keeps of them", superscript(source))
    for panel, (scale, shift) in enumerate(zip(scales, shifts, strict=True)):
        above = HEAD + PANEL * panel
        below = FOOT + PANEL * (len(scales) - 1 - panel)
        _strip(new_axes(figure, LEFT, below + 1.82, RIGHT, above + 0.42), histogram, scale, shift)
        axes = new_axes(figure, LEFT, below + 0.38, RIGHT, above + 0.8)
        axes.set_xlim(left, right)
        axes.set_ylim(0, max(heights.values()) * 1.32)
        _zones(axes)
        for exponent, share in heights.items():
            place = exponent + shift
            if exponent >= first and place < right:
                axes.bar(place + 0.5, share, width=0.86, color=_zone_colour(place), zorder=3)
        if cut >= NEGLIGIBLE:
            axes.annotate(
                f"\N{LEFTWARDS ARROW} {percent(cut)} more",
                (0, 0),
                (4, 12),
                xycoords="axes fraction",
                textcoords="offset points",
                fontsize=9,
                color=MUTED,
            )
        axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g}%")
        axes.locator_params(axis="y", nbins=4)
        axes.set_ylabel("share of all", color=INK)
        power_ticks(axes.xaxis, left, right, 11)
    axes.set_xlabel("magnitude of the number that float16 has to store", color=INK)
    return figure


def _zone_colour(exponent: int) -> str:
    return VERMILION if exponent < FLUSH_EXPONENT else ORANGE if exponent < MIN_NORMAL_EXPONENT else BLUE


def _zones(axes: Axes) -> None:
    left, right = axes.get_xlim()
    high = axes.get_ylim()[1]
    for low, up, colour, name in (
        (left, FLUSH_EXPONENT, VERMILION, "becomes zero"),
        (FLUSH_EXPONENT, MIN_NORMAL_EXPONENT, ORANGE, "subnormal: fewer bits"),
        (MIN_NORMAL_EXPONENT, right, BLUE, "normal: all 11 bits"),
    ):
        axes.axvspan(low, up, color=colour, alpha=0.1, lw=0, zorder=0)
        small = (up - low) / (right - left) * (WIDTH - LEFT - RIGHT) < 0.085 * len(name)
        axes.text(
            (low + up) / 2,
            0.965 * high,
            name.split(":")[0] if small else name,
            ha="center",
            va="top",
            fontsize=9.5,
            color=INK,
        )


def _strip(axes: Axes, histogram: Histogram, scale: float, shift: int) -> None:
    """All gradients as one bar: zero anyway, flushed, subnormal, normal; and the heading of the panel."""
    shares = histogram.shares(scale)
    subnormal = (
        sum(count for exponent, count in histogram.counts.items() if exponent + shift < MIN_NORMAL_EXPONENT)
        / histogram.total
        - shares.flushed
    )
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    start = 0.0
    for share, colour, ink, name in (
        (shares.zero, PALE, INK, "zero already in float32"),
        (shares.flushed, VERMILION, "white", "become zero"),
        (subnormal, ORANGE, INK, "subnormal"),
        (shares.survive - subnormal, BLUE, "white", "normal"),
    ):
        axes.barh(0.5, share, left=start, height=1, color=colour, edgecolor="white", lw=1.2)
        text = f"{percent(share)} {name}"
        if share * (WIDTH - LEFT - RIGHT) > 0.085 * len(text):
            axes.text(start + share / 2, 0.46, text, ha="center", va="center", fontsize=9.5, color=ink)
        start += share
    heading = (
        "Without a loss scale" if scale == 1 else f"With the loss scale {superscript(power_of_two(scale))}"
    )
    axes.text(0, 1.35, heading, fontsize=10.5, fontweight="bold", color=INK)
    axes.text(
        1,
        1.35,
        f"{percent(shares.survive)} of the gradients survive",
        ha="right",
        fontsize=10.5,
        fontweight="bold",
        color=INK,
    )
