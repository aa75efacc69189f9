"""What scalers do on one history: a small panel for each."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from fp16sim.report.style import (
    BLUE,
    GRID,
    INK,
    VERMILION,
    WIDTH,
    new_axes,
    new_figure,
    power_ticks,
    title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Curve", "traces_figure"]

MOST_COLUMNS = 4
HEIGHT = 1.15
"""Inches from one row of panels to the next, where names take a line."""
LINE = 0.14
"""Inches that a further line of a name takes."""
LONGEST_LINE = 25
"""Letters of a name where there are as many columns as may be."""
THINNEST = 0.018
"""Inches that a step takes at least, if it is marked: 1.3 points."""
PALE, DARK = 0.15, 0.5
"""Of what is marked; single steps are dark, so as to be seen."""
MOST_DARK = 0.3
"""Share of a panel from which on that would hide the line."""


@dataclass(frozen=True)
class Curve:
    """What a panel shows.

    Attributes
    ----------
    scales : sequence of float
        Before the first step and after each that was taken; what is not positive and finite is left out.
    end : str
        Written below the panel: how the scaler ends; empty if it comes through.
    at : int
        The step after which that is; there the line gets a cross.
    """

    scales: Sequence[float]
    end: str = ""
    at: int = 0


def traces_figure(curves: Mapping[str, Curve], history: str, text: str) -> Figure:
    """Draw the scale of each step and the one after the last, on a logarithmic axis of each panel's own.

    Parameters
    ----------
    curves : mapping of name to Curve
    history : str
        Steps that are not ``.`` are marked.
    text : str
        The title.

    Returns
    -------
    matplotlib.figure.Figure
    """
    columns = min(len(curves), MOST_COLUMNS)
    names = {name: wrapped(name, LONGEST_LINE * MOST_COLUMNS // columns) for name in curves}
    rest = LINE * max(len(lines) - 1 for lines in names.values())
    rows = -(-len(curves) // columns)
    figure = new_figure(0.95 + (HEIGHT + rest) * rows)
    height = figure.get_size_inches()[1]
    across = (WIDTH - 0.2) / columns
    for place, (name, curve) in enumerate(curves.items()):
        row, column = divmod(place, columns)
        left, top = 0.55 + column * across, 0.95 + row * (HEIGHT + rest) + rest
        axes = new_axes(figure, left, height - top - HEIGHT + 0.42, WIDTH - left - across + 0.65, top)
        _draw(axes, curve, history, THINNEST / (across - 0.65))
        axes.set_title("\n".join(names[name]), fontsize=8.5, color=INK, loc="left", pad=3)
    title(
        figure,
        0.12,
        text,
        "the scale that multiplies the loss at each step, and after the last; steps that are not finite are shaded",
    )
    return figure


def _draw(axes: Axes, curve: Curve, history: str, thinnest: float) -> None:
    logs = [  # for the eye only
        math.log2(scale) if 0 < scale < math.inf else math.nan for scale in curve.scales
    ]
    finite = [value for value in logs if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    rest = max(0.5, 0.15 * (high - low))
    steps = len(history) + 1
    wide, thin = marked(history, thinnest * steps)
    few = sum(length for _, length in thin) < MOST_DARK * steps
    for spans, alpha in ((wide, PALE), (thin, DARK if few else PALE)):
        axes.broken_barh(
            spans, (0, 1), transform=axes.get_xaxis_transform(), color=VERMILION, alpha=alpha, lw=0, zorder=0
        )
    # A corner where the scale changes is enough: thousands of steps need no points of their own.
    corners = [
        step
        for step, value in enumerate(logs)
        if step in (0, len(logs) - 1) or repr(value) != repr(logs[step - 1])
    ]
    values = [logs[step] for step in corners]
    axes.step([*corners, len(logs)], [*values, values[-1]], where="post", color=BLUE, lw=1.4)
    axes.set_xlim(0, steps)
    axes.set_ylim(low - rest, high + rest)
    if curve.end:
        _mark_end(axes, logs, curve)
    power_ticks(axes.yaxis, low - rest, high + rest, 5)
    axes.set_xticks([])
    axes.tick_params(labelsize=7.5)
    axes.spines["bottom"].set_color(GRID)


def _mark_end(axes: Axes, logs: Sequence[float], curve: Curve) -> None:
    """Put a cross at the step, as high as the line last was there, and words below the panel."""
    value = next((value for value in reversed(logs[: curve.at + 1]) if math.isfinite(value)), 0.0)
    axes.plot([curve.at], [value], marker="x", color=VERMILION, ms=5, mew=1.5, clip_on=False, zorder=4)
    axes.annotate(
        curve.end,
        (1, 0),
        (0, -2),
        xycoords="axes fraction",
        textcoords="offset points",
        color=VERMILION,
        fontsize=7.5,
        ha="right",
        va="top",
    )


def marked(history: str, thinnest: float) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """Give where steps are not finite, and how long: long runs, and short ones, which are drawn wider than they are.

    >>> marked("..ooo.o.", 2)
    ([(2, 3)], [(6, 2)])
    """
    wide: list[tuple[float, float]] = []
    thin: list[tuple[float, float]] = []
    start = 0
    for finite, run in groupby(history, key=".".__eq__):
        length = len(list(run))
        if not finite and length > thinnest:
            wide.append((start, length))
        elif not finite and thin and start < sum(thin[-1]):  # one bar for what would overlap
            thin[-1] = (thin[-1][0], max(start + length, sum(thin[-1])) - thin[-1][0])
        elif not finite:
            thin.append((start, max(length, thinnest)))
        start += length
    return wide, thin


def wrapped(name: str, most: int) -> list[str]:
    """Break a name into lines behind its punctuation, and within a word that is longer than a line.

    >>> wrapped("torch,init_scale=2**24,growth_interval=40", 25)
    ['torch,init_scale=2**24,', 'growth_interval=40']
    """
    lines = [""]
    for word in re.findall(r"[^,:/]*[,:/]+|[^,:/]+", name):
        pieces = [word[start : start + most] for start in range(0, len(word), most)]
        for piece in pieces:
            if lines[-1] and len(lines[-1]) + len(piece) > most:
                lines.append("")
            lines[-1] += piece
    return lines
