"""A model of how the largest gradient of a training run moves: histories to simulate scalers on.

Everything is drawn from :mod:`fp16sim.nn.random` (Philox, fixed formulas of binary64) and added in order, so a history
is the same on every machine, whatever the blocks that it is asked for in.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.nn.random import normals, uniform_integers
from fp16sim.scaling.state import check_number

__all__ = ["PeakModel"]

Floats = npt.NDArray[np.float64]

CHUNK = 4096
"""Steps whose random numbers are drawn at once: number i of chunk c belongs to step 4096 c + i."""

_LOG_2 = 0.6931471805599453
# Streams of one chunk: the layer of Philox's counter is the history, its step 8 times the chunk plus one of these.
_WALK, _JITTER, _TAIL, _BURST, _NAN = range(5)
_MOST_STEPS = CHUNK * 2**29


@dataclass(frozen=True)
class PeakModel:
    """Largest magnitudes of the unscaled gradients, step by step, as binary logarithms.

    The peak of step t is the sum, in this order and in binary64, of

    - a random walk: ``start``, plus for each step so far ``drift`` and a normal number times ``walk``;
    - a normal number times ``jitter``;
    - with ``tail_index`` a, a heavy upper tail: magnitudes are multiplied by a Pareto variable, P(above y) = y^-a,
      which adds an exponential variable of mean 1 / (a ln 2), made as half the sum of two squared normals over a ln 2;
    - ``burst_height`` while a burst lasts.

    A burst begins with probability ``burst_rate`` at each step and lasts ``burst_length`` steps from there; one that
    begins during another prolongs it. With probability ``nan_rate`` the peak is NaN.

    Parameters
    ----------
    start, drift, walk, jitter : float
        In powers of two. `walk` and `jitter` are not negative.
    tail_index : float, optional
        Above 0. Default: no tail.
    burst_rate, nan_rate : float
        From 0 to 1, rounded up to a multiple of 2^-24.
    burst_length : int
        At least 1.
    burst_height : float
    seed : int
        64 bits.

    Examples
    --------
    >>> model = PeakModel(start=-6.0, walk=0.02, jitter=0.5, burst_rate=0.001, seed=1)
    >>> peaks = model.peaks(histories=2, steps=3)
    >>> peaks.shape, peaks.dtype
    ((2, 3), dtype('float64'))
    >>> import fp16sim as fs
    >>> found = fs.scaling.simulate("torch", model.blocks(histories=2, steps=10_000))
    >>> found.steps.tolist()
    [10000, 10000]
    """

    start: float = -6.0
    drift: float = 0.0
    walk: float = 0.02
    jitter: float = 0.5
    tail_index: float | None = None
    burst_rate: float = 0.0
    burst_length: int = 1
    burst_height: float = 12.0
    nan_rate: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("start", "drift", "burst_height"):
            check_number(name, getattr(self, name))
        for name in ("walk", "jitter"):
            check_number(name, getattr(self, name), least=0)
        if self.tail_index is not None:
            check_number("tail_index", self.tail_index, above=0)
        for name in ("burst_rate", "nan_rate"):
            check_number(name, getattr(self, name), least=0, most=1)
        check_number("burst_length", self.burst_length, above=0, whole=True)
        uniform_integers(self.seed, 0)  # refuses an impossible seed

    def peaks(self, histories: int, steps: int) -> Floats:
        """Give all of them, (histories, steps)."""
        blocks = list(self.blocks(histories, steps))
        return np.concatenate(blocks, axis=1) if blocks else np.empty((histories, 0))

    def blocks(self, histories: int, steps: int, block: int = CHUNK) -> Iterator[Floats]:
        """Give them one block after the other; memory does not depend on `steps`.

        Parameters
        ----------
        histories : int
            At least 1.
        steps : int
        block : int
            Steps to a block; the last may have fewer. The numbers do not depend on it.

        Yields
        ------
        float64 array, (histories, at most `block`)
        """
        check_number("histories", histories, least=1, most=2**32, whole=True)
        check_number("steps", steps, least=0, most=_MOST_STEPS, whole=True)
        check_number("block", block, least=1, whole=True)
        return _regrouped(self._chunks(histories, steps), block)

    def _chunks(self, histories: int, steps: int) -> Iterator[Floats]:
        level = np.full((histories, 1), float(self.start))
        left = np.zeros((histories, 1), np.int64)  # steps that a burst still lasts
        for chunk in range(-(-steps // CHUNK)):
            peaks = np.empty((histories, CHUNK))
            for history in range(histories):
                draws = _Draws(self.seed, history, chunk)
                peaks[history] = self._chunk(draws, level[history], left[history])
            yield peaks[:, : min(CHUNK, steps - chunk * CHUNK)]

    def _chunk(self, draws: _Draws, level: Floats, left: npt.NDArray[np.int64]) -> Floats:
        """Give one history's chunk and move where its walk and its burst stand."""
        if self.walk:
            moves = draws.normals(_WALK) * self.walk + self.drift
        else:
            moves = np.full(CHUNK, float(self.drift))
        walked = np.cumsum(np.concatenate([level, moves]))  # in order, each sum rounded
        level[:] = walked[-1:]
        peaks = walked[:-1]
        if self.jitter:
            peaks = peaks + draws.normals(_JITTER) * self.jitter
        if self.tail_index is not None:
            pairs = draws.normals(_TAIL, 2)
            squares = pairs[:CHUNK] * pairs[:CHUNK] + pairs[CHUNK:] * pairs[CHUNK:]
            peaks = peaks + squares * 0.5 / (self.tail_index * _LOG_2)
        if self.burst_rate:
            begun = np.where(draws.happens(_BURST, self.burst_rate), np.arange(CHUNK), -self.burst_length)
            # A burst of the chunk before looks as if it had begun that much earlier.
            begun[0] = max(begun[0], int(left[0]) - self.burst_length)
            age = np.arange(CHUNK) - np.maximum.accumulate(begun)
            peaks = np.where(age < self.burst_length, peaks + self.burst_height, peaks)
            left[:] = max(self.burst_length - int(age[-1]) - 1, 0)
        if self.nan_rate:
            peaks = np.where(draws.happens(_NAN, self.nan_rate), math.nan, peaks)
        return peaks

    def to_dict(self) -> dict[str, Any]:
        """Give the parameters, as plain data.

        >>> PeakModel(**PeakModel(drift=0.5).to_dict()) == PeakModel(drift=0.5)
        True
        """
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class _Draws:
    """Random numbers of one chunk of one history."""

    seed: int
    history: int
    chunk: int

    def normals(self, stream: int, each: int = 1) -> Floats:
        return normals(self.seed, each * CHUNK, self.history, 8 * self.chunk + stream)

    def happens(self, stream: int, rate: float) -> npt.NDArray[np.bool_]:
        drawn = uniform_integers(self.seed, CHUNK, self.history, 8 * self.chunk + stream)
        return drawn < rate * 2.0**24


def _regrouped(chunks: Iterator[Floats], block: int) -> Iterator[Floats]:
    """Give the same numbers in blocks of another length."""
    rest: Floats | None = None
    for chunk in chunks:
        rest = chunk if rest is None or not rest.shape[1] else np.concatenate([rest, chunk], axis=1)
        while rest.shape[1] >= block:
            yield rest[:, :block]
            rest = rest[:, block:]
    if rest is not None and rest.shape[1]:
        yield rest
