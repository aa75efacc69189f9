"""Sums in plain loops, strictly in order, on encodings: whole axes, beginnings of axes, and rows by an index.

Each addition of a sum waits for the one before it, so the innermost loops run over independent sums, which LLVM makes
vectors of. Every sum starts from +0.
"""

from __future__ import annotations

import numpy as np

from fp16sim.emulator.kernels.carriers import BRAIN, HALF, NATIVE, encoded, number, rounded
from fp16sim.emulator.kernels.jit import jit

__all__ = ["CUMULATIVE_SUMS", "INDEX_SUMS", "SUMS"]

_STRIP = 1024
"""Neighbouring sums whose totals stay in the first-level cache."""

# Loops run over slices, whose indices cannot be negative: LLVM makes vectors of them then.


def make_sum(source, target, result, carrier):
    """Write the loop that sums (outer, n, inner) over n into (outer, inner), each sum rounded to `result` last."""

    @jit
    def sum_axis(a, out):
        outer, n, inner = a.shape
        if inner == 1:  # four rows side by side, each total in a register
            whole = outer - outer % 4
            for o in range(0, whole, 4):
                first = second = third = fourth = carrier(0)
                for k in range(n):
                    first = rounded(target, first + number(source, a[o, k, 0]))
                    second = rounded(target, second + number(source, a[o + 1, k, 0]))
                    third = rounded(target, third + number(source, a[o + 2, k, 0]))
                    fourth = rounded(target, fourth + number(source, a[o + 3, k, 0]))
                out[o, 0] = encoded(result, first)
                out[o + 1, 0] = encoded(result, second)
                out[o + 2, 0] = encoded(result, third)
                out[o + 3, 0] = encoded(result, fourth)
            for o in range(whole, outer):
                total = carrier(0)
                for k in range(n):
                    total = rounded(target, total + number(source, a[o, k, 0]))
                out[o, 0] = encoded(result, total)
        else:
            strip = np.empty(min(_STRIP, inner), carrier)
            for o in range(outer):
                for start in range(0, inner, _STRIP):
                    results = out[o, start : start + _STRIP]
                    totals = strip[: results.size]
                    totals[:] = carrier(0)
                    for k in range(n):
                        terms = a[o, k, start : start + _STRIP]
                        for i in range(terms.size):
                            totals[i] = rounded(target, totals[i] + number(source, terms[i]))
                    for i in range(results.size):
                        results[i] = encoded(result, totals[i])

    return sum_axis


def make_cumulative_sum(source, target, carrier):
    """Write the loop that sums every beginning of (outer, n, inner) along n."""

    @jit
    def sum_beginnings(a, out):
        outer, n, inner = a.shape
        totals = np.empty(inner, carrier)
        for o in range(outer):
            totals[:] = carrier(0)
            for k in range(n):
                terms, results = a[o, k], out[o, k]
                for i in range(terms.size):
                    totals[i] = rounded(target, totals[i] + number(source, terms[i]))
                    results[i] = encoded(target, totals[i])

    return sum_beginnings


def make_index_sum(source, target, carrier):
    """Write the loop that adds each row of (n, inner) to the row of `out` that its index names, in order."""

    @jit
    def sum_by_index(a, index, out):
        out[:] = 0
        for k in range(a.shape[0]):
            terms, totals = a[k], out[index[k]]
            for i in range(terms.size):
                totals[i] = encoded(target, number(target, totals[i]) + number(source, terms[i]))

    return sum_by_index


_WAYS = {
    ("binary16", "binary16"): (HALF, HALF, np.float32),
    ("binary16", "binary32"): (HALF, NATIVE, np.float32),
    ("bfloat16", "binary32"): (BRAIN, NATIVE, np.float32),
    ("binary32", "binary32"): (NATIVE, NATIVE, np.float32),
    ("binary64", "binary64"): (NATIVE, NATIVE, np.float64),
}
SUMS = {
    (terms, total, total): make_sum(source, target, target, carrier)
    for (terms, total), (source, target, carrier) in _WAYS.items()
} | {
    ("binary16", "binary32", "binary16"): make_sum(HALF, NATIVE, HALF, np.float32),
    ("bfloat16", "binary32", "bfloat16"): make_sum(BRAIN, NATIVE, BRAIN, np.float32),
}
CUMULATIVE_SUMS = {(*formats, formats[1]): make_cumulative_sum(*way) for formats, way in _WAYS.items()}
INDEX_SUMS = {(*formats, formats[1]): make_index_sum(*way) for formats, way in _WAYS.items()}
"""Loops by the formats of the terms, of the accumulator and of the result, whose encodings they give."""
