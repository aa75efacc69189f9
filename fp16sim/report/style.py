"""How every picture looks: the palette, the axes, names beside curves; and how a figure becomes a file.

matplotlib is imported when a picture is drawn, without pyplot and its global state.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fp16sim.extras import not_installed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["new_axes", "new_figure", "png", "run_colours", "svg"]

# The Okabe-Ito palette: told apart with every common colour blindness, and in grey.
VERMILION, BLUE, GREEN, ORANGE, PURPLE = "#d55e00", "#0072b2", "#009e73", "#e69f00", "#cc79a7"
INK, MUTED, GRID, PALE = "#222222", "#5f5f5f", "#e6e6e6", "#b5b5b5"
RUN_COLOURS = (VERMILION, BLUE, GREEN, PURPLE, ORANGE)

WIDTH = 8.6
"""Inches; every picture is as wide."""


def new_figure(height: float) -> Figure:
    """Give an empty figure, `height` inches high.

    Raises
    ------
    ImportError
        Without matplotlib; the message names the extra that brings it.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(not_installed("pictures need matplotlib", "report")) from error
    return Figure(figsize=(WIDTH, height), facecolor="white")


def new_axes(figure: Figure, left: float, bottom: float, right: float, top: float) -> Axes:
    """Add axes at these distances, in inches, from the edges of the figure: horizontal grid lines, no box."""
    width, height = figure.get_size_inches()
    axes = figure.add_axes(
        (left / width, bottom / height, (width - left - right) / width, (height - bottom - top) / height)
    )
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(MUTED)
    axes.tick_params(colors=MUTED, labelsize=9.5, length=3, left=False)
    axes.grid(axis="y", color=GRID, lw=0.8, zorder=0)
    axes.set_axisbelow(True)
    return axes


def run_colours(policies: Sequence[str]) -> list[str]:
    """Give each run its colour: grey for float32, the palette in order for the others.

    >>> run_colours(["float32", "mixed_float16", "mixed_float16"])
    ['#5f5f5f', '#d55e00', '#0072b2']
    """
    palette = iter(RUN_COLOURS * len(policies))
    return [MUTED if policy == "float32" else next(palette) for policy in policies]


def title(figure: Figure, left: float, text: str, subtitle: str) -> None:
    """Write a title and a line below it, `left` inches from the edge."""
    width, height = figure.get_size_inches()
    place = {"x": left / width, "va": "top"}
    figure.text(y=1 - 0.14 / height, s=text, fontsize=13, fontweight="bold", color=INK, **place)
    figure.text(y=1 - 0.41 / height, s=subtitle, fontsize=9.5, color=MUTED, **place)


def names_at_the_right(axes: Axes, ends: Sequence[tuple[float, str, str]], x: float, lines: int = 1) -> None:
    """Name each curve beside its end, moved apart so that no two names overlap.

    Parameters
    ----------
    axes : Axes
        Its limits are final.
    ends : sequence of (height, name, colour)
        In data coordinates.
    x : float
        Where the curves end.
    lines : int
        Lines of the longest name.
    """
    inches = axes.get_window_extent().height / axes.figure.dpi
    gap = 0.19 * lines / inches
    order = sorted(range(len(ends)), key=lambda index: ends[index][0])
    to_share = (
        axes.transData + axes.transAxes.inverted()
    )  # heights as shares of the axes, on any kind of scale
    heights = [float(to_share.transform((x, ends[index][0]))[1]) for index in order]
    places = spread(heights, gap, gap / 2, 1 - gap / 2)
    for index, place in zip(order, places, strict=True):
        end, text, colour = ends[index]
        line = {"arrowstyle": "-", "color": colour, "lw": 0.8, "shrinkA": 2, "shrinkB": 0, "relpos": (0, 0.5)}
        axes.annotate(
            text,
            (x, end),
            (1.035, place),
            textcoords="axes fraction",
            color=colour,
            fontsize=10,
            va="center",
            annotation_clip=False,
            arrowprops=line,
        )


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move ascending places apart to at least `gap`, within bounds as far as there is room.

    >>> spread([0.0, 0.1, 5.0], 1.0, 0.0, 6.0)
    [0.0, 1.0, 5.0]
    >>> spread([5.8, 5.9], 1.0, 0.0, 6.0)
    [5.0, 6.0]
    """
    moved: list[float] = []
    for place in places:
        moved.append(max(place, moved[-1] + gap if moved else low))
    ceiling = high
    for index in reversed(range(len(moved))):
        moved[index] = min(moved[index], ceiling)
        ceiling = moved[index] - gap
    return moved


def power_ticks(axis: Any, low: float, high: float, at_most: int) -> None:
    """Put ticks that read 2^k at whole steps of the axis, whose data are exponents."""
    span = math.ceil(high) - math.floor(low)
    step = next((step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500) if span / step <= at_most), 1000)
    ticks = list(range(math.ceil(low / step) * step, math.floor(high) + 1, step))
    axis.set_ticks(ticks, [f"$2^{{{tick}}}$" for tick in ticks])


def png(figure: Figure) -> bytes:
    """Render a figure as PNG, at 160 dots an inch."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160, metadata={"Software": None})
    return buffer.getvalue()


def svg(figure: Figure) -> bytes:
    """Render a figure as SVG whose text is outlines, so that it looks the same everywhere."""
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "fp16sim", "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()
