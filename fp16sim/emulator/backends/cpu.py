"""The fast backend: translates formats, rules and datapaths into calls of the numba kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.emulator import tables
from fp16sim.emulator.backends import products, unfolding
from fp16sim.emulator.backends.base import Backend, Draws, Encodings, Outcome, check_index, count_flags
from fp16sim.emulator.backends.specs import signed, spec_of
from fp16sim.emulator.convolution_geometry import Geometry
from fp16sim.emulator.datapath import Datapath
from fp16sim.emulator.flags import FLAG_NAMES
from fp16sim.emulator.float32_cores import two_over_pi_pieces
from fp16sim.emulator.formats import Format, bfloat16, binary16, binary32, binary64
from fp16sim.emulator.kernels import float32_functions, half, loops, order, programs
from fp16sim.emulator.kernels.brain import BRAIN
from fp16sim.emulator.kernels.conversion import CONVERSIONS
from fp16sim.emulator.kernels.half import HALF
from fp16sim.emulator.kernels.native import NATIVE
from fp16sim.emulator.kernels.operations import OPERATIONS
from fp16sim.emulator.programs import Program
from fp16sim.emulator.rounding import MODES, Rounding

__all__ = ["CpuBackend"]

_PLAIN = Rounding()
_NO_FLAGS = np.empty(0, np.uint8)
_NO_DRAWS = np.empty(0, np.uint32)
_NO_KEY = 0
_WORTH_A_TABLE = 1 << 14
_FLOAT32 = np.dtype(np.float32)
_CIRCULAR_LOOPS = {"sin": float32_functions.sin_loop, "cos": float32_functions.cos_loop}

# By names, which hash fast; the formats beside the loops are compared, since one of your own may have such a name.
_LOOPS = {
    (operation, fmt.name): (fmt, loop)
    for fmt, loops_of_format in (
        (binary16, HALF),
        (bfloat16, BRAIN),
        (binary32, NATIVE),
        (binary64, NATIVE),
    )
    for operation, loop in loops_of_format.items()
}
_CONVERSIONS = {
    (source.name, target.name): ((source, target), CONVERSIONS[source.name, target.name])
    for source in (binary16, bfloat16, binary32, binary64)
    for target in (binary16, bfloat16, binary32)
    if (source.name, target.name) in CONVERSIONS
}
_NONE: tuple[Any, Any] = (None, None)


def _is_mode_only(rounding: Rounding) -> bool:
    """Whether nothing but the mode differs from the default; tininess shows in flags and flushing only."""
    return rounding.subnormals == "gradual" and rounding.inputs == "keep" and not rounding.saturate


def _is_plain(rounding: Rounding) -> bool:
    """Whether results without flags are those of the default rule."""
    return rounding is _PLAIN or (rounding.mode == "nearest_even" and _is_mode_only(rounding))


_ORDERED = (binary16, bfloat16, binary32, binary64)
"""Formats whose encodings fill their integers, and whose NaNs lie beyond infinity."""


@cache
def _ends(fmt: Format) -> tuple[np.generic, np.generic]:
    """Give the encodings of infinity and of NaN in their dtype."""
    assert fmt.inf_bits is not None
    return fmt.uint.type(fmt.inf_bits), fmt.uint.type(fmt.nan_bits)


class _Watch:
    """The arrays in which a kernel leaves flags and counts."""

    def __init__(self, watch: str, size: int) -> None:
        self.watch = watch
        self.flags = np.zeros(size, np.uint8) if watch == "flags" else _NO_FLAGS
        self.counts = np.zeros(6, np.int64)

    def outcome(self, bits: Encodings) -> Outcome:
        return Outcome(
            bits, self.flags if self.watch == "flags" else None, self.counts if self.watch else None
        )


def _drawn(draws: Draws) -> tuple[npt.NDArray[np.uint32], int]:
    return (_NO_DRAWS, draws) if isinstance(draws, int) else (_NO_DRAWS if draws is None else draws, _NO_KEY)


class CpuBackend(Backend):
    """Loops in numba kernels.

    The fast ones round to nearest even in binary16, bfloat16, binary32 and binary64; all else goes through 64-bit
    integers, or through the definition where binary64 does not fit them.
    """

    name = "cpu"

    def __init__(self) -> None:
        self._tables: dict[str, Encodings] = {}

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
        """Perform an operation on 1-d arrays of equal length."""
        out = np.empty(operands[0].size, fmt.uint) if into is None else into
        if not watch and _is_plain(rounding):
            known, loop = _LOOPS.get((operation, fmt.name), _NONE)
            if known is fmt or known == fmt:
                loop(*operands, out)
                return Outcome(out, None, None)
        if fmt == binary64:  # its products do not fit the integers
            return super().elementwise(operation, operands, fmt, rounding, draws, watch)
        seen = _Watch(watch, out.size)
        bits, key = _drawn(draws)
        padded = (*operands, operands[0], operands[0])[:3]
        loops.elementwise_loop(
            OPERATIONS.index(operation),
            *padded,
            0,
            bits,
            out,
            seen.flags,
            seen.counts,
            spec_of(fmt, rounding, key),
        )
        return seen.outcome(out)

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
        """Perform the steps of a program in one pass over memory."""
        fits = 0 < len(operands) <= programs.ARRAYS and len(program.results) <= programs.RESULTS
        if watch or fmt not in _ORDERED or not fits:
            return super().perform(program, operands, patterns, constants, size, fmt, watch)
        if [bits.size for bits in operands] != patterns[:, 1].tolist() or constants.size != program.constants:
            raise ValueError(
                "operands of other lengths than their patterns, or other constants than the program's"
            )
        results = [np.empty(size, fmt.uint) for _ in program.results]
        programs.run(fmt.name, program.codes, patterns, operands, constants, program.places, results, size)
        return results, []

    def function(
        self,
        name: str,
        bits: Encodings,
        rounding: Rounding,
        draws: Draws = None,
        watch: str = "",
        into: Encodings | None = None,
    ) -> Outcome:
        """Look a function of one binary16 argument up in its table."""
        flags = None
        if rounding.mode == "stochastic":
            if draws is None or isinstance(draws, int):
                key, draws = draws or _NO_KEY, np.empty(bits.size, np.uint32)
                loops.fill_random(signed(key), 0, draws)
            out, flags = tables.draw(name, rounding, bits, draws)
        else:
            out = np.empty(bits.size, np.uint16) if into is None else into
            half.gather(tables.rounded(name, rounding), bits, out)
            if watch:
                flags = np.empty(bits.size, np.uint8)
                half.gather(tables.flags(name, rounding), bits, flags)
        if not watch or flags is None:
            return Outcome(out, None, None)
        return Outcome(out, flags if watch == "flags" else None, count_flags(flags))

    def tabulated(self, name: str, rule: Callable[[Encodings], Encodings], bits: Encodings) -> Encodings:
        """Look a rule up in a table, which the first call with many encodings makes."""
        if name not in self._tables:
            if bits.size < _WORTH_A_TABLE:
                return rule(bits)
            self._tables[name] = np.ascontiguousarray(rule(np.arange(1 << 16, dtype=np.uint16)))
        out = np.empty(bits.shape, np.uint16)
        half.gather(self._tables[name], np.ascontiguousarray(bits).reshape(-1), out.reshape(-1))
        return out

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
        out = np.empty(bits.size, target.uint) if into is None else into
        if not watch:
            if _is_plain(rounding):
                known, loop = _CONVERSIONS.get((source.name, target.name), _NONE)
                if known == (source, target):  # which compares identities first
                    loop(bits, out)
                    return Outcome(out, None, None)
            if target == binary16 and self._narrow(bits, source, rounding, draws, out):
                return Outcome(out, None, None)
        if target == binary64:
            return super().convert(bits, source, target, rounding, draws, watch)
        seen = _Watch(watch, out.size)
        chosen, key = _drawn(draws)
        reading = spec_of(source, Rounding(inputs=rounding.inputs))
        loops.convert_loop(
            bits, 0, chosen, out, seen.flags, seen.counts, reading, spec_of(target, rounding, key)
        )
        return seen.outcome(out)

    @staticmethod
    def _narrow(bits: Encodings, source: Format, rounding: Rounding, draws: Draws, out: Encodings) -> bool:
        """Convert to binary16 in any mode by a loop of its own, where there is one."""
        if source not in (binary32, binary64) or not _is_mode_only(rounding):
            return False
        double = source == binary64
        if rounding.mode == "stochastic":
            if not isinstance(draws, int):
                return False
            loop = half.narrow_double_stochastic if double else half.narrow_single_stochastic
            loop(bits, 0, signed(draws), out)
        else:
            half.NARROW[MODES.index(rounding.mode), double](bits, out)
        return True

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
        out = np.empty(values.size, target.uint) if into is None else into
        seen = _Watch(watch, out.size)
        chosen, key = _drawn(draws)
        negative = values < 0
        # The magnitude of -2^63 is 2^63 as an unsigned integer: negation wraps to it.
        magnitude = np.where(negative, 0 - values.astype(np.uint64), values.astype(np.uint64))
        loops.integer_loop(
            negative, magnitude, 0, chosen, out, seen.flags, seen.counts, spec_of(target, rounding, key)
        )
        return seen.outcome(out)

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
        """Multiply (batch, m, k) by (batch, k, n) on top of `c`, or of +0."""
        if watch and fmt == binary64:
            return super().matmul(a, b, c, fmt, datapath, out_format, watch)
        out = np.empty((len(a), a.shape[1], b.shape[2]), out_format.uint) if into is None else into
        counts = products.matmul_tiles(
            a, b, c, out, fmt, datapath, out_format, self._converted, counting=bool(watch)
        )
        return Outcome(out, None, counts if watch else None)  # the complete kernel counts anyway

    def sum(
        self, a: Encodings, fmt: Format, datapath: Datapath, out_format: Format, watch: str = ""
    ) -> Outcome:
        """Sum (outer, n, inner) over n, in order, from +0."""
        if watch and fmt == binary64:
            return super().sum(a, fmt, datapath, out_format, watch)
        out, counts = products.sums(a, fmt, datapath, out_format, self._converted, counting=bool(watch))
        return Outcome(out, None, counts)

    def sum_of_squares(
        self, a: Encodings, fmt: Format, datapath: Datapath, out_format: Format, watch: str = ""
    ) -> Outcome:
        """Multiply each vector of (outer, n, inner) along n with itself."""
        if not watch:
            out = products.sums_of_squares(a, fmt, datapath, out_format, self._converted)
            if out is not None:
                return Outcome(out, None, None)
        return super().sum_of_squares(a, fmt, datapath, out_format, watch)

    def cumulative_sum(
        self, a: Encodings, fmt: Format, datapath: Datapath, out_format: Format, watch: str = ""
    ) -> Outcome:
        """Sum every beginning of (outer, n, inner) along n."""
        if not watch:
            out = products.cumulative_sums(a, fmt, datapath, out_format, self._converted)
            if out is not None:
                return Outcome(out, None, None)
        return super().cumulative_sum(a, fmt, datapath, out_format, watch)

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
        """Sum the rows of (n, inner) that have the same index, in order, from +0."""
        if not watch:
            check_index(index, size, len(a))
            out = products.index_sums(a, index, size, fmt, datapath, out_format, self._converted)
            if out is not None:
                return Outcome(out, None, None)
        return super().index_sum(a, index, size, fmt, datapath, out_format, watch)

    def relu(self, bits: Encodings, fmt: Format) -> Encodings:
        """Rectify encodings of any shape."""
        if fmt not in _ORDERED:
            return super().relu(bits, fmt)
        out = np.empty(bits.shape, bits.dtype)
        order.rectify(np.ascontiguousarray(bits).reshape(-1), *_ends(fmt), out.reshape(-1))
        return out

    def maximum_of(self, a: Encodings, fmt: Format) -> Encodings:
        """Choose the largest of (outer, n, inner) along n."""
        if fmt not in _ORDERED or not a.shape[1]:
            return super().maximum_of(a, fmt)
        out = np.empty((a.shape[0], a.shape[2]), a.dtype)
        order.largest(np.ascontiguousarray(a), *_ends(fmt), out)
        return out

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
        """Compute a convolution or one of its gradients as products of matrices."""

        def matmul(left: Encodings, right: Encodings, place: Encodings) -> npt.NDArray[np.int64] | None:
            cube = (left[np.newaxis], right[np.newaxis])
            outcome = self.matmul(*cube, None, fmt, datapath, out_format, watch, place[np.newaxis])
            if not np.may_share_memory(outcome.bits, place):  # the definition's: binary64, counting
                place[...] = outcome.bits[0]
            return outcome.counts

        out = np.empty(shape, out_format.uint)
        counts = getattr(unfolding, which)(matmul, a, b, geometry, out)
        if watch and counts is None:
            counts = np.zeros(len(FLAG_NAMES) + 1, np.int64)
        return Outcome(out, None, counts)

    def real_function(
        self, name: str, values: npt.NDArray[Any], second: npt.NDArray[Any] | None = None
    ) -> npt.NDArray[Any]:
        """Compute a function of float32 values in a compiled loop; of float64 values by the definition."""
        if values.dtype != _FLOAT32:
            return super().real_function(name, values, second)
        out = np.empty(values.size, np.uint32)
        if name in float32_functions.FLOAT32_LOOPS:
            float32_functions.FLOAT32_LOOPS[name](values, out)
        elif name in _CIRCULAR_LOOPS:
            _CIRCULAR_LOOPS[name](values, out, two_over_pi_pieces())
        elif name == "pow" and second is not None and second.shape == values.shape:
            float32_functions.pow_loop(values, second, out)
        else:
            return super().real_function(name, values, second)
        return out.view(_FLOAT32)

    def _converted(self, bits: Encodings, source: Format, target: Format) -> Encodings:
        return self.convert(bits, source, target, _PLAIN).bits
