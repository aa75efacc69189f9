"""What scalers do on one history: a small panel for each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fp16sim.report.style import (
    BLUE,
    GRID,
    INK,
    MUTED,
    VERMILION,
    WIDTH,
    new_axes,
    new_figure,
    power_ticks,
    title,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["traces_figure"]

COLUMNS = 4
HEIGHT = 1.15
"""Inches from one row of panels to the next."""


def traces_figure(curves: Mapping[str, Sequence[float]], history: str, window: int | None = None) -> Figure:
    """Draw the scale of each step and the one after the last, on a logarithmic axis of each panel's own.

    Parameters
    ----------
    curves : mapping of name to sequence of float
        One more than the history has steps; what is not positive and finite is left out.
    history : str
        Steps that are not ``.`` are marked.
    window : int, optional
        For the title.

    Returns
    -------
    matplotlib.figure.Figure
    """
    rows = -(-len(curves) // COLUMNS)
    figure = new_figure(0.95 + HEIGHT * rows)
    height = figure.get_size_inches()[1]
    across = (WIDTH - 0.2) / COLUMNS
    for place, (name, scales) in enumerate(curves.items()):
        row, column = divmod(place, COLUMNS)
        left, top = 0.55 + column * across, 0.95 + row * HEIGHT
        axes = new_axes(figure, left, height - top - HEIGHT + 0.42, WIDTH - left - across + 0.65, top)
        logs = [
            math.log2(scale) if 0 < scale < math.inf else math.nan for scale in scales
        ]  # for the eye only
        finite = [value for value in logs if math.isfinite(value)] or [0.0]
        low, high = min(finite), max(finite)
        rest = max(0.5, 0.15 * (high - low))
        for step, letter in enumerate(history):
            if letter != ".":
                axes.axvspan(step, step + 1, color=VERMILION, alpha=0.15, lw=0, zorder=0)
        axes.step(range(len(logs) + 1), [*logs, logs[-1]], where="post", color=BLUE, lw=1.4)
        axes.set_xlim(0, len(history) + 1)
        axes.set_ylim(low - rest, high + rest)
        power_ticks(axes.yaxis, low - rest, high + rest, 5)
        axes.set_xticks([])
        axes.tick_params(labelsize=7.5)
        axes.spines["bottom"].set_color(GRID)
        axes.set_title(name, fontsize=8.5, color=INK if len(name) < 24 else MUTED, loc="left", pad=3)
    shown = history if len(history) <= 40 else f"{history[:37]}..."
    chosen = "" if window is None else f", window {window}"
    title(
        figure,
        0.12,
        f"Loss scalers on {shown}{chosen}",
        "the scale that multiplies the loss at each step, and after the last; steps that are not finite are shaded",
    )
    return figure
