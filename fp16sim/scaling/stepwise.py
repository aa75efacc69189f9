"""The definition of a simulation: the scaler's own `update` at every step, in Python."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.emulator import float64_functions
from fp16sim.scaling.one_scale import decided, shown_scale
from fp16sim.scaling.outcomes import FINITE, KINDS, NAN, ClosedLoop, log2
from fp16sim.scaling.protocol import Decision, Observation
from fp16sim.scaling.simulation import Simulation, Trace

__all__ = ["History", "stepwise"]


class History:
    """One history on its way.

    Attributes
    ----------
    scaler : object
        As it is now.
    decision : Decision or None
        Of the last step.
    steps, applied, overflows, stop : int
        Counts of steps; and the step that said stop, -1 before.
    reason : str or None
        Why it stopped.
    low, high, total : float
        Of the scales that multiplied a loss; the sum is of their logarithms.
    """

    def __init__(self, scaler: Any) -> None:
        self.scaler = scaler
        self.decision: Decision | None = None
        self.steps = self.applied = self.overflows = 0
        self.stop = -1
        self.reason: str | None = None
        self.low, self.high, self.total = math.inf, -math.inf, 0.0

    def step(
        self, kind: int, scale: float, observation: Observation
    ) -> tuple[float, float, bool, bool, bool]:
        """Take a step under `scale`: give the scale, what the decision divides by, whether it applies, and the kind."""
        self.scaler, decision, divide_by = decided(self.scaler, observation)
        self.decision = decision
        if decision.stop:
            self.stop, self.reason = self.steps, decision.stop
        self.steps += 1
        self.applied += bool(decision.apply)
        self.overflows += kind != FINITE
        # As in the kernel: a NaN moves neither.
        self.low = scale if scale < self.low else self.low
        self.high = scale if scale > self.high else self.high
        self.total += log2(scale)
        return scale, divide_by, bool(decision.apply), kind != FINITE, kind == NAN


def stepwise(
    scaler: Any, blocks: Iterator[npt.NDArray[Any]], loop: ClosedLoop, trace: bool, with_amax: bool
) -> Simulation:
    """Take every history step by step.

    Parameters
    ----------
    scaler, loop, trace
        As for :func:`fp16sim.scaling.simulate`.
    blocks : iterator of arrays (n, steps)
        Peaks, or kinds of steps as uint8.
    with_amax : bool
        Whether observations say how large the largest gradient was: the peak, or in ``"log2"`` 2^peak, a rounded
        binary64 power; infinite where it overflowed.

    Returns
    -------
    Simulation
    """
    found: list[History] = []
    rows: list[list[tuple[float, float, bool, bool, bool]]] = []
    longest = 0
    for block in blocks:
        if not found:
            found = [History(scaler) for _ in block]
            rows = [[] for _ in block]
        if with_amax and block.dtype == np.uint8:
            raise ValueError(
                f"{type(scaler).__name__} depends on the size of every gradient: pass peaks, not kinds of steps"
            )
        longest += block.shape[1]
        for history, row, values in zip(found, rows, block, strict=True):
            for value in values.tolist():
                if history.stop >= 0:
                    break
                scale = shown_scale(history.scaler)
                kind = value if block.dtype == np.uint8 else loop.kind(value, scale)
                observation = KINDS[kind]
                if with_amax:
                    observation = replace(observation, amax=_amax(kind, value, loop))
                step = history.step(kind, scale, observation)
                if trace:
                    row.append(step)
    return _result(found, rows, longest, trace)


def _amax(kind: int, peak: float, loop: ClosedLoop) -> float:
    if kind != FINITE:
        return math.inf
    return peak if loop.units == "linear" else float(float64_functions.pow(2.0, peak))


def _result(found: list[History], rows: list[list[Any]], longest: int, trace: bool) -> Simulation:
    steps = np.array([each.steps for each in found], np.int64)
    applied = np.array([each.applied for each in found], np.int64)
    some = steps > 0
    with np.errstate(invalid="ignore"):
        mean = np.array([each.total for each in found]) / steps
    return Simulation(
        steps=steps,
        applied=applied,
        skipped=steps - applied,
        overflows=np.array([each.overflows for each in found], np.int64),
        first_stop=np.array([each.stop for each in found], np.int64),
        stop_reasons=[each.reason for each in found],
        lowest=np.where(some, [each.low for each in found], np.nan),
        highest=np.where(some, [each.high for each in found], np.nan),
        mean_log2_scale=mean,
        final_scale=np.array([shown_scale(each.scaler) for each in found]),
        scalers=[each.scaler for each in found],
        trace=_trace(rows, longest) if trace else None,
    )


def _trace(rows: list[list[tuple[float, float, bool, bool, bool]]], longest: int) -> Trace:
    after = (math.nan, math.nan, False, False, False)
    padded = [[*row, *[after] * (longest - len(row))] for row in rows]

    def column(place: int, dtype: type) -> npt.NDArray[Any]:
        return np.array([[step[place] for step in row] for row in padded], dtype).reshape(len(rows), longest)

    numbers, flags = (
        [column(place, np.float64) for place in (0, 1)],
        [column(place, np.bool_) for place in (2, 3, 4)],
    )
    return Trace(*numbers, *flags)
