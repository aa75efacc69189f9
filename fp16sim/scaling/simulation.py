"""What a simulation of histories gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Simulation", "Trace"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Trace:
    """Every step of n histories, as arrays (n, steps); after a stop they hold NaN and False.

    Attributes
    ----------
    scale : float64 array
        What multiplied the loss.
    divide_by : float64 array
        The scale that the decision divides by.
    applied, overflow, nan : bool arrays
        `overflow` includes `nan`.
    """

    scale: Floats
    divide_by: Floats
    applied: npt.NDArray[np.bool_]
    overflow: npt.NDArray[np.bool_]
    nan: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Simulation:
    """What became of n histories: arrays (n,), and the trace if it was asked for.

    Attributes
    ----------
    steps, applied, skipped, overflows : int64 arrays
        Steps taken, those applied and not, and those that were not finite.
    first_stop : int64 array
        The step whose decision said stop, with which the history ends; -1 if there is none.
    stop_reasons : list of str or None
    lowest, highest : float64 arrays
        Of the scales that multiplied a loss; NaN without a step.
    mean_log2_scale : float64 array
        Of the same scales: log2 as :func:`fp16sim.scaling.outcomes.log2` gives it, added in order in binary64.
    final_scale : float64 array
        What would multiply the next loss.
    scalers : list
        The scaler after the last step, or one with the same future: clocks that count steps for ever are counted from
        the last event.
    trace : Trace or None
    """

    steps: Integers
    applied: Integers
    skipped: Integers
    overflows: Integers
    first_stop: Integers
    stop_reasons: list[str | None]
    lowest: Floats
    highest: Floats
    mean_log2_scale: Floats
    final_scale: Floats
    scalers: list[Any]
    trace: Trace | None = None
