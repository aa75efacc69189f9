"""What a backend does: a handful of loops over arrays of encodings. This plain one calls the definition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fp16sim.emulator import reference, reference_dot
from fp16sim.emulator.datapath import Datapath
from fp16sim.emulator.flags import FLAG_NAMES
from fp16sim.emulator.formats import Format, binary16
from fp16sim.emulator.random_bits import random_bits
from fp16sim.emulator.rounding import Rounding

__all__ = ["Backend", "Draws", "Outcome"]

Encodings = npt.NDArray[Any]
"""Contiguous arrays of ``Format.uint``."""

Draws = npt.NDArray[np.uint32] | int | None
"""Where stochastic rounding takes its bits: an array with 32 for each element, a key (`random_bits.key_of`), or
None where nothing is drawn."""


class Outcome(NamedTuple):
    """Results of a loop: encodings, and for each element the flags if they were asked for (else None)."""

    bits: Encodings
    flags: npt.NDArray[np.uint8] | None
    counts: npt.NDArray[np.int64] | None


class Backend:
    """The interface, implemented plainly: every element goes through the definition in ``reference.py``.

    Backends override what they do faster, and must give the same bits, flags and counts. ``watch`` says what else
    than results is wanted: ``""`` nothing, ``"counts"`` six counts of flags, ``"flags"`` also each element's flags.
    A backend may write its results into `into`, and returns that array as ``bits`` if it did.
    """

    name = "reference"

    def elementwise(
        self,
        operation: str,
        operands: Sequence[Encodings],
        fmt: Format,
        rounding: Rounding,
        draws: Draws = None,
        watch: str = "",
        into: Encodings | None = None,
    ) -> Outcome:
        """Perform an operation of ``reference.OPERATIONS`` on 1-d arrays of equal length."""
        function = reference.OPERATIONS[operation]
        return self._loop(
            fmt,
            (
                function(*map(int, row), fmt, rounding, draw)
                for row, draw in zip(zip(*operands, strict=True), _each(draws, operands[0].size), strict=True)
            ),
            watch,
        )

    def function(
        self,
        name: str,
        bits: Encodings,
        rounding: Rounding,
        draws: Draws = None,
        watch: str = "",
        into: Encodings | None = None,
    ) -> Outcome:
        """Compute a function of one binary16 argument, one of ``one_argument.FUNCTIONS``."""
        from fp16sim.emulator import reference_functions

        return self._loop(
            binary16,
            (
                reference_functions.evaluate(name, int(x), binary16, rounding, draw)
                for x, draw in zip(bits, _each(draws, bits.size), strict=True)
            ),
            watch,
        )

    def convert(
        self,
        bits: Encodings,
        source: Format,
        target: Format,
        rounding: Rounding,
        draws: Draws = None,
        watch: str = "",
        into: Encodings | None = None,
    ) -> Outcome:
        """Round encodings of one format to another."""
        return self._loop(
            target,
            (
                reference.convert(int(x), source, target, rounding, draw)
                for x, draw in zip(bits, _each(draws, bits.size), strict=True)
            ),
            watch,
        )

    def convert_integers(
        self,
        values: npt.NDArray[Any],
        target: Format,
        rounding: Rounding,
        draws: Draws = None,
        watch: str = "",
        into: Encodings | None = None,
    ) -> Outcome:
        """Round 64-bit integers, signed or not, to a format."""
        return self._loop(
            target,
            (
                reference.convert_integer(int(n), target, rounding, draw)
                for n, draw in zip(values, _each(draws, values.size), strict=True)
            ),
            watch,
        )

    def matmul(
        self,
        a: Encodings,
        b: Encodings,
        c: Encodings,
        fmt: Format,
        datapath: Datapath,
        out_format: Format,
        watch: str = "",
    ) -> Outcome:
        """Multiply (m, k) by (k, n) on top of `c`, (m, n) in the accumulator's format."""
        rows = [
            reference_dot.dot(a[i].tolist(), b[:, j].tolist(), int(c[i, j]), fmt, datapath, out_format)
            for i in range(a.shape[0])
            for j in range(b.shape[1])
        ]
        return self._gather(rows, c.shape, out_format, watch)

    def sum(
        self, a: Encodings, fmt: Format, datapath: Datapath, out_format: Format, watch: str = ""
    ) -> Outcome:
        """Sum (outer, n, inner) over n, in order, from +0."""
        rows = [
            reference_dot.accumulate(a[i, :, j].tolist(), fmt, datapath, out_format)
            for i in range(a.shape[0])
            for j in range(a.shape[2])
        ]
        return self._gather(rows, (a.shape[0], a.shape[2]), out_format, watch)

    def _loop(self, fmt: Format, results: Iterable[reference.Result], watch: str) -> Outcome:
        rows = list(results)
        bits = np.array([row.bits for row in rows], fmt.uint)
        flags = np.array([row.flags for row in rows], np.uint8)
        return Outcome(bits, flags if watch == "flags" else None, count_flags(flags) if watch else None)

    def _gather(
        self, rows: list[tuple[int, list[int]]], shape: tuple[int, ...], fmt: Format, watch: str
    ) -> Outcome:
        bits = np.array([bits for bits, _ in rows], fmt.uint).reshape(shape)
        flags = np.array([flag for _, flags in rows for flag in flags], np.uint8)
        return Outcome(bits, None, count_flags(flags) if watch else None)


def count_flags(flags: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Count each of the six flags over an array of flag words."""
    return np.array([np.count_nonzero(flags & (1 << place)) for place in range(len(FLAG_NAMES))], np.int64)


def _each(draws: Draws, size: int) -> Iterable[int | None]:
    if draws is None:
        return [None] * size
    if isinstance(draws, int):
        return [random_bits(draws, i) for i in range(size)]
    return [int(draw) for draw in draws]
