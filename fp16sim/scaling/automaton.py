"""A scaler as a table of transitions that it fills in itself, one update for each state and kind of step.

The object stays the only definition of its rule: what a table holds is what `update` gave.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.emulator.backends.automata import APPLIES, STOPS, Table, Walkers, walk
from fp16sim.scaling.one_scale import decided, shown_scale
from fp16sim.scaling.outcomes import KINDS, ClosedLoop
from fp16sim.scaling.reduction import reduced

__all__ = ["Automaton"]

MOST_STATES = 1 << 19
"""States beyond which a table is begun anew, so that a scaler whose states never come back needs bounded memory."""

_AHEAD, _FURTHEST = 16, 4096
"""Finite steps that are taken ahead of a walk, which will mostly take them: at first, and at most."""

_FLOATS = ("factor", "bound", "scale", "log")


class Automaton:
    """The states that a scaler has met so far and where each kind of step led.

    Parameters
    ----------
    scaler : object with `scale` and `update`
        `update` depends on the object and the observation alone. States are the same if the dataclass fields are; an
        object that is no dataclass never comes back to a state, which makes the walk as slow as the objects are.
    loop : ClosedLoop
        When a step overflows.
    most_states : int
        When to begin anew.

    Attributes
    ----------
    states : list
        The scaler of each state.
    divide_by : float64 array
        Of the decision of each edge.
    stop_reasons : dict of sequence to str
        Why sequences have ended.

    Examples
    --------
    >>> from fp16sim.scaling.torch import TorchScaler
    >>> automaton = Automaton(TorchScaler(growth_interval=2), ClosedLoop())
    >>> walkers = automaton.walkers(1)
    >>> automaton.advance(np.uint8([[1, 0, 0, 0]]), walkers)
    >>> automaton.states[walkers.state[0]].scale
    65536.0
    """

    def __init__(self, scaler: Any, loop: ClosedLoop, most_states: int = MOST_STATES) -> None:
        self.loop = loop
        self.most_states = most_states
        self.stop_reasons: dict[int, str] = {}
        self._begin_anew([scaler])

    def _begin_anew(self, scalers: Iterable[Any]) -> list[int]:
        self.states: list[Any] = []
        self._reasons: dict[int, str] = {}
        self._numbers: dict[Any, int] = {}
        self._ends: dict[int, int] = {}  # where steps taken ahead end, and how many they were
        self._columns = {name: np.empty(64) for name in _FLOATS}
        self._following = np.full(3 * 64, -1, np.int32)
        self._marks = np.zeros(3 * 64, np.uint8)
        self.divide_by = np.full(3 * 64, np.nan)
        return [self._number(scaler) for scaler in scalers]

    def walkers(self, n: int) -> Walkers:
        """Put n sequences at the first state."""
        return Walkers(n, 0)

    @property
    def scale(self) -> npt.NDArray[np.float64]:
        """The scale of each state."""
        return self._columns["scale"][: len(self.states)]

    @property
    def applies(self) -> npt.NDArray[np.bool_]:
        """Whether the step of each edge is applied."""
        return (self._marks & APPLIES).astype(np.bool_)

    def advance(
        self, block: npt.NDArray[Any], walkers: Walkers, path: npt.NDArray[np.int32] | None = None
    ) -> None:
        """Walk all sequences to the end of a block, asking the scaler wherever the table has a gap.

        Parameters
        ----------
        block : array, (n, steps)
            Peaks, or kinds of steps as uint8: positions in `KINDS`.
        walkers : Walkers
            Moved.
        path : int32 array, (n, steps), optional
            Where the edges are written: 3 times the number of the state, plus the kind of the step. The table is not
            begun anew then.
        """
        walkers.position[:] = 0
        edges = np.empty((0, 0), np.int32) if path is None else path
        while True:
            walk(block, Table(**self._columns, following=self._following, marks=self._marks), walkers, edges)
            for sequence in np.flatnonzero(walkers.missing < -1).tolist():
                self.stop_reasons[sequence] = self._reasons[-2 - int(walkers.missing[sequence])]
            gaps = np.unique(walkers.missing[walkers.missing >= 0]).tolist()
            if not gaps:
                return
            if path is None and len(self.states) > self.most_states + len(block):
                self._forget(walkers)  # after a walk, so that what was learned has been used
                continue
            for edge in gaps:
                self._learn(edge)

    def _forget(self, walkers: Walkers) -> None:
        """Keep the states where sequences stand."""
        places, inverse = np.unique(walkers.state, return_inverse=True)
        numbers = self._begin_anew([self.states[place] for place in places.tolist()])
        walkers.state[:] = np.asarray(numbers, np.int64)[inverse]

    def _learn(self, edge: int) -> None:
        """Fill in an edge; after a finite step, also finite steps ahead, twice as many where the last were used up."""
        if self._following[edge] >= 0:
            return
        ahead = min(2 * self._ends.pop(edge, _AHEAD // 2), _FURTHEST)
        state = self._step(edge)
        if edge % 3:
            return
        for _ in range(ahead):
            if self._following[3 * state] >= 0:
                return
            state = self._step(3 * state)
        self._ends[3 * state] = ahead

    def _step(self, edge: int) -> int:
        following, decision, divide_by = decided(self.states[edge // 3], KINDS[edge % 3])
        state = self._number(following)
        self._following[edge] = state
        self._marks[edge] = APPLIES * bool(decision.apply) + STOPS * bool(decision.stop)
        self.divide_by[edge] = divide_by
        if decision.stop:
            self._reasons[edge] = decision.stop
        return state

    def _number(self, scaler: Any) -> int:
        scaler = reduced(scaler)
        key = _key(scaler)
        if key not in self._numbers:
            number = self._numbers[key] = len(self.states)
            self.states.append(scaler)
            if number == len(self._columns["scale"]):
                self._grow(2 * number)
            scale = shown_scale(scaler)
            row = (*self.loop.factor_and_bound(scale), scale, self.loop.log2(scale))
            for name, value in zip(_FLOATS, row, strict=True):
                self._columns[name][number] = value
        return self._numbers[key]

    def _grow(self, size: int) -> None:
        for name, column in self._columns.items():
            self._columns[name] = _longer(column, size, np.nan)
        self._following = _longer(self._following, 3 * size, -1)
        self._marks = _longer(self._marks, 3 * size, 0)
        self.divide_by = _longer(self.divide_by, 3 * size, np.nan)


def _longer(array: npt.NDArray[Any], size: int, rest: float) -> npt.NDArray[Any]:
    longer = np.full(size, rest, array.dtype)
    longer[: len(array)] = array
    return longer


def _key(scaler: Any) -> Any:
    """Give what is equal for equal states only; NaN equals itself here, and -0 differs from 0."""
    if not is_dataclass(scaler):
        return id(scaler)  # `states` keeps the object, so no other gets its number
    values = [getattr(scaler, field.name) for field in fields(scaler)]
    if any(isinstance(value, (list, dict, set, np.ndarray)) for value in values):
        return id(scaler)
    return (
        type(scaler),
        *(
            value.hex() if isinstance(value, float) and (value == 0 or math.isnan(value)) else value
            for value in values
        ),
    )
