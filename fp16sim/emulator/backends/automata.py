"""Many sequences walked through one table of transitions on the CPU, each by one thread."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.emulator.backends import threads
from fp16sim.emulator.kernels import automata

__all__ = ["APPLIES", "STOPS", "Table", "Walkers", "walk"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

APPLIES, STOPS = automata.APPLIES, automata.STOPS


@dataclass
class Table:
    """Transitions of n states, as the kernel takes them.

    Attributes
    ----------
    factor, bound : float64 arrays, (n,)
        A peak x leaves a state at way out 0 if x * factor < bound, at 2 if it is NaN, and at 1 otherwise.
    scale, log : float64 arrays, (n,)
        Of whose values the walk keeps the extremes, and the sum.
    following : int32 array, (3 n,)
        The next state, or -1 where it is not known.
    marks : uint8 array, (3 n,)
        Sums of `APPLIES` and `STOPS`.
    """

    factor: Floats
    bound: Floats
    scale: Floats
    log: Floats
    following: npt.NDArray[np.int32]
    marks: npt.NDArray[np.uint8]


class Walkers:
    """Where n sequences stand, and what they have met.

    Attributes
    ----------
    state, missing, stopped : int64 arrays, (n,)
        The state; the edge that the table lacks, or -2 - the edge that ended it in this walk, or -1; the step with
        which it ended, counted in its block, or -1.
    position : int64 array, (n,)
        Steps taken in the present block.
    counts : int64 array, (n, 2)
        Steps applied, and steps that were not finite.
    extremes : float64 array, (n, 2)
    total : float64 array, (n,)
    """

    def __init__(self, n: int, state: int) -> None:
        self.state: Integers = np.full(n, state, np.int64)
        self.missing: Integers = np.full(n, -1, np.int64)
        self.stopped: Integers = np.full(n, -1, np.int64)
        self.position: Integers = np.zeros(n, np.int64)
        self.counts: Integers = np.zeros((n, 2), np.int64)
        self.extremes: Floats = np.full((n, 2), np.inf)
        self.extremes[:, 1] = -np.inf
        self.total: Floats = np.zeros(n)


def walk(block: npt.NDArray[Any], table: Table, walkers: Walkers, path: npt.NDArray[np.int32]) -> None:
    """Take all sequences as far as their block or the table goes.

    Parameters
    ----------
    block : array, (n, steps)
        Peaks, float32 or float64; or ways out as uint8.
    table : Table
    walkers : Walkers
        Moved.
    path : int32 array, (n, steps) or (n, 0)
        Where the edges taken are written, if it has room.
    """
    closed = block.dtype != np.uint8
    peaks = block if closed else np.empty((0, 0), np.float32)
    outcomes = np.empty((0, 0), np.uint8) if closed else block
    w, n = walkers, len(block)
    parts = min(n, threads.threads()) or 1
    cuts = [n * part // parts for part in range(parts + 1)]
    threads.run(
        [
            partial(
                automata.walk, peaks, outcomes, closed, begin, end,
                table.factor, table.bound, table.scale, table.log, table.following, table.marks,
                w.state, w.position, w.missing, w.stopped, w.counts, w.extremes, w.total, path,
            )
            for begin, end in zip(cuts, cuts[1:], strict=False)
        ]
    )  # fmt: skip
