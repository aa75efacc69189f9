"""What a backend does: a handful of loops over arrays of encodings. This plain one calls the definition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fp16sim.emulator import reference, reference_convolution, reference_dot, reference_order
from fp16sim.emulator.convolution_geometry import Geometry
from fp16sim.emulator.datapath import Datapath
from fp16sim.emulator.exact import decode
from fp16sim.emulator.flags import FLAG_NAMES
from fp16sim.emulator.formats import Format, binary16, nearest_name
from fp16sim.emulator.programs import Program, spread
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
    Sums of every kind count the flags of each rounding inside them and, as a seventh, the swamped additions.
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
        """Perform an operation of ``reference.OPERATIONS`` on 1-d arrays of equal length.

        Of these the package asks for the ones that ``kernels/operations.py`` names; a backend need have no others.
        """
        function = reference.OPERATIONS[operation]
        return self._loop(
            fmt,
            (
                function(*map(int, row), fmt, rounding, draw)
                for row, draw in zip(zip(*operands, strict=True), _each(draws, operands[0].size), strict=True)
            ),
            watch,
        )

    def perform(
        self,
        program: Program,
        operands: Sequence[Encodings],
        patterns: npt.NDArray[np.int64],
        constants: Encodings,
        size: int,
        fmt: Format,
        watch: str = "",
    ) -> tuple[list[Encodings], list[tuple[str, npt.NDArray[np.int64]]]]:
        """Perform the steps of a program one after the other, each rounded to nearest even.

        Operands are 1-d arrays that stretch over `size` elements by the rows (repeat, length) of `patterns`. Gives the
        results, and if counts are wanted those of each step with the name of its operation.
        """
        values = [spread(bits, pattern, size) for bits, pattern in zip(operands, patterns, strict=True)]
        values += [np.full(size, constant, fmt.uint) for constant in constants]
        counted = []
        for operation, left, right in program.steps:
            taken = [values[left]] if operation == "sqrt" else [values[left], values[right]]
            outcome = self.elementwise(operation, taken, fmt, Rounding(), None, watch)
            values.append(outcome.bits)
            if outcome.counts is not None:
                counted.append((operation, outcome.counts))
        return [values[number] for number in program.results], counted

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

    def tabulated(self, name: str, rule: Callable[[Encodings], Encodings], bits: Encodings) -> Encodings:
        """Apply a rule that maps every 16-bit encoding by itself; `name` names the rule and the format.

        A backend may keep what it gives for all encodings.
        """
        return rule(bits)

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
        c: Encodings | None,
        fmt: Format,
        datapath: Datapath,
        out_format: Format,
        watch: str = "",
        into: Encodings | None = None,
    ) -> Outcome:
        """Multiply (batch, m, k) by (batch, k, n) on top of `c`, (batch, m, n) in the accumulator's format, or of +0.

        Operands may have any strides, 0 among them; `into` is contiguous and shares no memory with them.
        """
        shape = (len(a), a.shape[1], b.shape[2])
        rows = [
            reference_dot.dot(
                a[i, j].tolist(),
                b[i, :, k].tolist(),
                0 if c is None else int(c[i, j, k]),
                fmt,
                datapath,
                out_format,
            )
            for i, j, k in np.ndindex(shape)
        ]
        return self._gather(rows, shape, out_format, watch)

    def sum(
        self, a: Encodings, fmt: Format, datapath: Datapath, out_format: Format, watch: str = ""
    ) -> Outcome:
        """Sum (outer, n, inner) over n, in order, from +0."""
        rows = [
            reference_dot.accumulate(a[i, :, j].tolist(), fmt, datapath, out_format)
            for i, j in np.ndindex(a.shape[0], a.shape[2])
        ]
        return self._gather(rows, (a.shape[0], a.shape[2]), out_format, watch)

    def index_sum(
        self,
        a: Encodings,
        index: npt.NDArray[np.int64],
        size: int,
        fmt: Format,
        datapath: Datapath,
        out_format: Format,
        watch: str = "",
    ) -> Outcome:
        """Sum the rows of (n, inner) that have the same index; row r of (size, inner) is the sum of those with r.

        Each is the `sum` of its rows in their order, from +0; where an index does not occur it is +0. `index` has one
        int64 in [0, size) for each row.
        """
        check_index(index, size, len(a))
        out = np.zeros((size, a.shape[1]), out_format.uint)
        counts = np.zeros(len(FLAG_NAMES) + 1, np.int64)
        order = np.argsort(index, kind="stable")
        present, starts = np.unique(index[order], return_index=True)
        for r, rows in zip(present, np.split(order, starts[1:]), strict=False):  # no rows are one empty piece
            outcome = self.sum(a[rows][np.newaxis], fmt, datapath, out_format, watch)
            out[r] = outcome.bits[0]
            counts += 0 if outcome.counts is None else outcome.counts
        return Outcome(out, None, counts if watch else None)

    def relu(self, bits: Encodings, fmt: Format) -> Encodings:
        """Rectify encodings of any shape: values above zero stay, others become +0, any NaN the canonical one."""
        results = [_rectified(int(x), fmt) for x in bits.reshape(-1)]
        return np.array(results, fmt.uint).reshape(bits.shape)

    def maximum_of(self, a: Encodings, fmt: Format) -> Encodings:
        """Choose the largest of (outer, n, inner) along n: +0 rather than -0, and the canonical NaN if one is NaN.

        Raises
        ------
        ValueError
            If n is 0: nothing has no largest value.
        """
        outer, n, inner = a.shape
        if not n:
            raise ValueError("maximum of no values: there is none; reduce an axis with at least one element")
        out = np.empty((outer, inner), fmt.uint)
        for i, j in np.ndindex(outer, inner):
            values = map(int, a[i, :, j])
            out[i, j] = reduce(lambda x, y: reference_order.maximum(x, y, fmt).bits, values, int(a[i, 0, j]))
        return out

    def sum_of_squares(
        self, a: Encodings, fmt: Format, datapath: Datapath, out_format: Format, watch: str = ""
    ) -> Outcome:
        """Multiply each vector of (outer, n, inner) along n with itself, as `matmul` would."""
        outer, n, inner = a.shape
        rows = np.ascontiguousarray(np.swapaxes(a, 1, 2)).reshape(outer * inner, 1, n)
        outcome = self.matmul(rows, np.swapaxes(rows, 1, 2), None, fmt, datapath, out_format, watch)
        return outcome._replace(bits=outcome.bits.reshape(outer, inner))

    def cumulative_sum(
        self, a: Encodings, fmt: Format, datapath: Datapath, out_format: Format, watch: str = ""
    ) -> Outcome:
        """Sum every beginning of (outer, n, inner) along n as `sum` would.

        Where a datapath adds in order that is one pass; in other orders each sum, and its events, is made anew.
        """
        if datapath.adds_in_order:
            columns = [
                reference_dot.running_sums(a[i, :, j].tolist(), fmt, datapath, out_format)
                for i, j in np.ndindex(a.shape[0], a.shape[2])
            ]
            rows = [row for column in columns for row in column]
            outcome = self._gather(rows, (a.shape[0], a.shape[2], a.shape[1]), out_format, watch)
            return outcome._replace(bits=np.swapaxes(outcome.bits, 1, 2))
        sums = [self.sum(a[:, : n + 1], fmt, datapath, out_format, watch) for n in range(a.shape[1])]
        bits = np.stack([s.bits for s in sums], 1) if sums else np.empty(a.shape, out_format.uint)
        counts = sum(
            (s.counts for s in sums if s.counts is not None), np.zeros(len(FLAG_NAMES) + 1, np.int64)
        )
        return Outcome(bits, None, counts if watch else None)

    def convolve(
        self,
        which: str,
        a: Encodings,
        b: Encodings,
        geometry: Geometry,
        shape: tuple[int, ...],
        fmt: Format,
        datapath: Datapath,
        out_format: Format,
        watch: str = "",
    ) -> Outcome:
        """Compute a convolution or one of its gradients, by the function of `reference_convolution.py` so named.

        ``"forward"`` takes input and weight, ``"input_gradient"`` the gradient of the output and the weight,
        ``"weight_gradient"`` the input and the gradient of the output; `shape` is that of the result.
        """
        if which == "forward":
            channels = (a.shape[1], b.shape[0])
        elif which == "input_gradient":
            channels = (shape[1], a.shape[1])
        else:
            channels = (a.shape[1], b.shape[1])
        tables = [{index: int(bits) for index, bits in np.ndenumerate(x)} for x in (a, b)]
        function = getattr(reference_convolution, which)
        rows = function(*tables, a.shape[0], channels, geometry, fmt, datapath, out_format)
        return self._gather(rows, shape, out_format, watch)

    def real_function(
        self, name: str, values: npt.NDArray[Any], second: npt.NDArray[Any] | None = None
    ) -> npt.NDArray[Any]:
        """Compute a function of float32 or float64 values, a contiguous 1-d array, by its fixed sequence.

        `name` is one of ``float32_functions.FLOAT32_FUNCTIONS``, or ``"pow"`` with the exponents as `second`.
        """
        from fp16sim.emulator import float32_functions

        module: Any = float32_functions
        if values.dtype == np.float64:
            from fp16sim.emulator import float64_functions

            module = float64_functions
        if name == "pow":
            return np.asarray(module.pow(values, second))
        if name not in float32_functions.FLOAT32_FUNCTIONS:
            valid = (*float32_functions.FLOAT32_FUNCTIONS, "pow")
            raise ValueError(
                f"unknown function {name!r} of {values.dtype} values: {nearest_name(name, valid)}"
            )
        return np.asarray(getattr(module, name)(values))

    def _loop(self, fmt: Format, results: Iterable[reference.Result], watch: str) -> Outcome:
        rows = list(results)
        bits = np.array([row.bits for row in rows], fmt.uint)
        flags = np.array([row.flags for row in rows], np.uint8)
        return Outcome(bits, flags if watch == "flags" else None, count_flags(flags) if watch else None)

    def _gather(
        self,
        rows: Sequence[reference_dot.Accumulation],
        shape: tuple[int, ...],
        fmt: Format,
        watch: str,
    ) -> Outcome:
        bits = np.array([row.bits for row in rows], fmt.uint).reshape(shape)
        if not watch:
            return Outcome(bits, None, None)
        flags = np.array([flag for row in rows for flag in row.flags], np.uint8)
        return Outcome(bits, None, np.append(count_flags(flags), sum(row.swamped for row in rows)))


def _rectified(bits: int, fmt: Format) -> int:
    value = decode(bits, fmt)
    if value.kind == "nan":
        return fmt.nan_bits
    return 0 if value.negative or value.is_zero else bits


def check_index(index: npt.NDArray[np.int64], size: int, rows: int) -> None:
    """Refuse an index that does not name a row of the result for each row: kernels would write anywhere.

    Raises
    ------
    ValueError
        Which says what is wrong.
    """
    if index.shape != (rows,) or index.dtype != np.int64:
        raise ValueError(
            f"index is {index.dtype} of shape {index.shape}: pass int64 of shape ({rows},), one a row"
        )
    if rows and (index.min() < 0 or index.max() >= size):
        wrong = index[(index < 0) | (index >= size)][0]
        raise ValueError(
            f"index {wrong} of {size} rows: an index lies in [0, {size}); raise size or drop its row"
        )


def count_flags(flags: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Count each of the six flags over an array of flag words."""
    return np.array([np.count_nonzero(flags & (1 << place)) for place in range(len(FLAG_NAMES))], np.int64)


def _each(draws: Draws, size: int) -> Iterable[int | None]:
    if draws is None:
        return [None] * size
    if isinstance(draws, int):
        return [random_bits(draws, i) for i in range(size)]
    return [int(draw) for draw in draws]
