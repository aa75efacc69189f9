"""Curves of a comparison: the training loss of each run, and the loss scale over time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fp16sim.report.style import (
    INK,
    MUTED,
    VERMILION,
    names_at_the_right,
    new_axes,
    new_figure,
    power_ticks,
    run_colours,
    title,
)
from fp16sim.report.tables import percent
from fp16sim.training.results import RunResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["loss_figure", "scale_figure"]

GUESSING = 2.302585
"""The cross-entropy of guessing among ten classes: ln 10."""

WINDOW = 9
"""Steps over which a loss curve is smoothed."""

LOWEST_LOSS, HIGHEST_LOSS = 1e-3, 100.0
"""Curves are cut here. The axis is logarithmic: good runs, all near zero, are told apart beside a bad one."""


def loss_figure(results: Sequence[RunResult]) -> Figure:
    """Draw the training loss of each run, smoothed, with its test accuracy beside it.

    Parameters
    ----------
    results : sequence of RunResult
        At least one, each with at least one step.

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure = new_figure(4.3)
    axes = new_axes(figure, 0.65, 0.55, 2.45, 0.75)
    curves = [_running_mean([step.loss for step in result.history]) for result in results]
    finite = [loss for curve in curves for loss in curve if math.isfinite(loss)]
    highest, lowest = max(finite, default=1.0), min(finite, default=1.0)
    bottom = min(1.0, max(lowest, LOWEST_LOSS)) / 1.25
    top = 1.25 * max(3.0, min(highest, HIGHEST_LOSS))
    cuts = [f"{LOWEST_LOSS:g}"] * (lowest < LOWEST_LOSS) + [f"{HIGHEST_LOSS:g}"] * (highest > HIGHEST_LOSS)
    cut = f"; cut at {' and '.join(cuts)}" if cuts else ""
    subtitle = f"mean of the last {WINDOW} steps{cut}; beside each run, its accuracy on the test images"
    title(figure, 0.65, "Training loss", subtitle)
    last_step = max(len(result.history) for result in results)
    axes.axhline(GUESSING, color=MUTED, lw=1, ls=(0, (2, 3)), zorder=1)
    axes.annotate(
        "guessing",
        (last_step, GUESSING),
        (-2, 3),
        textcoords="offset points",
        ha="right",
        color=MUTED,
        fontsize=9,
    )
    ends = []
    for result, curve, colour in zip(
        results, curves, run_colours([result.policy for result in results]), strict=True
    ):
        # The float32 run is a wide pale band behind: the others are read against it.
        band = result.policy == "float32"
        look: dict[str, Any] = {"lw": 5, "alpha": 0.45, "zorder": 2} if band else {"lw": 1.8, "zorder": 3}
        steps = [step.step for step in result.history]
        heights = [max(loss, bottom) for loss in curve]  # NaN, which compares as false, stays
        axes.plot(steps, heights, color=colour, solid_capstyle="round", **look)
        end = next((loss for loss in reversed(heights) if math.isfinite(loss)), top)
        ends.append((min(end, 0.97 * top), f"{_broken(result.name)}: {percent(result.accuracy)}", colour))
        _mark_the_end(axes, result, heights, top, colour)
    axes.set_xlim(0, last_step)
    axes.set_yscale("log")
    axes.set_ylim(bottom, top)
    ticks = [10.0**power for power in range(-3, 3) if bottom <= 10.0**power <= top]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    names_at_the_right(axes, ends, last_step, lines=1 + max(name.count("\n") for _, name, _ in ends))
    axes.set_xlabel("training step", color=INK)
    axes.set_ylabel("cross-entropy (nats)", color=INK)
    return figure


def scale_figure(results: Sequence[RunResult]) -> Figure | None:
    """Draw the loss scale over time, skipped steps marked, of the runs whose scale moves.

    Parameters
    ----------
    results : sequence of RunResult

    Returns
    -------
    matplotlib.figure.Figure or None
        None when no run has a scale that moves.
    """
    moving = [
        (result, colour)
        for result, colour in zip(results, run_colours([result.policy for result in results]), strict=True)
        if len({step.scale for step in result.history}) > 1
    ]
    if not moving:
        return None
    figure = new_figure(3.6)
    axes = new_axes(figure, 0.75, 0.55, 1.75, 0.65)
    title(
        figure,
        0.75,
        "The loss scale over time",
        "every cross is a step that is skipped because a gradient overflowed",
    )
    ends, heights = [], []
    for result, colour in moving:
        steps = [step.step for step in result.history]
        curve = [_exponent(step.scale) for step in result.history]
        axes.step(steps, curve, where="mid", color=colour, lw=1.8, zorder=2)
        skipped = [index for index, step in enumerate(result.history) if not step.applied]
        axes.plot(
            [steps[index] for index in skipped],
            [curve[index] for index in skipped],
            "x",
            color=VERMILION,
            ms=7,
            mew=2.2,
            zorder=4,
            clip_on=False,
        )
        heights += curve
        ends.append(
            (curve[-1], f"{_broken(result.name)}:\n{result.skipped} of {len(steps)}\nsteps skipped", colour)
        )
    room = max(1.0, 0.08 * (max(heights) - min(heights)))
    low, high = min(heights) - room, max(heights) + room
    last_step = max(len(result.history) for result, _ in moving)
    power_ticks(axes.yaxis, low, high, 6)
    axes.set_xlim(0, last_step)
    axes.set_ylim(low, high)
    names_at_the_right(axes, ends, last_step, lines=1 + max(name.count("\n") for _, name, _ in ends))
    axes.set_xlabel("training step", color=INK)
    axes.set_ylabel("loss scale", color=INK)
    return figure


def _mark_the_end(axes: Axes, result: RunResult, curve: Sequence[float], top: float, colour: str) -> None:
    """Say where a loss stops being a number, if it does and stays so."""
    last = next((index for index in reversed(range(len(curve))) if math.isfinite(curve[index])), None)
    if last is None or last == len(curve) - 1:
        return
    place = (result.history[last].step, min(curve[last], 0.97 * top))
    if curve[last] <= top:
        axes.plot(*place, "o", color=colour, ms=5, zorder=4)
    right = last > len(curve) / 2
    axes.annotate(
        f"not a number from step {result.history[last + 1].step} on",
        place,
        (-8 if right else 8, -3),
        textcoords="offset points",
        ha="right" if right else "left",
        color=colour,
        fontsize=9.5,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
    )


def _broken(name: str) -> str:
    """A name as typed may be long: a line for each option."""
    return name.replace(",", ",\n") if len(name) > 24 else name


def _running_mean(values: Sequence[float]) -> list[float]:
    """Mean of the last few values; NaN, which leaves a gap, where one of them is not finite."""
    windows = (values[max(0, end - WINDOW) : end] for end in range(1, len(values) + 1))
    return [math.fsum(w) / len(w) if all(map(math.isfinite, w)) else math.nan for w in windows]


def _exponent(scale: float) -> float:
    """Where a scale lies on an axis of powers of two; a drawing needs no last bit."""
    return math.log2(scale) if scale > 0 and math.isfinite(scale) else math.nan
