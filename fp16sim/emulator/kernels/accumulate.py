"""Sums in plain loops, strictly in order, each as it is.

Carriers are float32 (or float64) and the innermost loop runs over independent sums, which LLVM vectorises.
"""

from __future__ import annotations

import numpy as np

from fp16sim.emulator.kernels.half import round_to_half, widen
from fp16sim.emulator.kernels.jit import jit

__all__ = [
    "CUMULATIVE_SUMS",
    "SUMS",
    "scan_half",
    "scan_single",
    "sum_half",
    "sum_single",
]


@jit
def sum_single(a, out):
    """out[o, i] += a[o, :, i] in order, each sum rounded to binary32."""
    for o in range(a.shape[0]):
        if a.shape[2] == 1:  # one sum at a time, kept in a register
            total = out[o, 0]
            for n in range(a.shape[1]):
                total += a[o, n, 0]
            out[o, 0] = total
        else:
            for n in range(a.shape[1]):
                for i in range(a.shape[2]):
                    out[o, i] += a[o, n, i]


@jit
def sum_half(a, out):
    """out[o, i] += a[o, :, i] in order on float32 carriers, each sum rounded to binary16."""
    for o in range(a.shape[0]):
        if a.shape[2] == 1:
            total = out[o, 0]
            for n in range(a.shape[1]):
                total = widen(round_to_half(total + a[o, n, 0]))
            out[o, 0] = total
        else:
            for n in range(a.shape[1]):
                for i in range(a.shape[2]):
                    out[o, i] = widen(round_to_half(out[o, i] + a[o, n, i]))


@jit
def scan_single(a, out):
    """out[o, n, i] = a[o, 0, i] + ... + a[o, n, i] in order from +0, each sum rounded to the carrier."""
    for o in range(a.shape[0]):
        for n in range(a.shape[1]):
            for i in range(a.shape[2]):
                out[o, n, i] = a[o, n, i] + (out[o, n - 1, i] if n else np.float32(0))


@jit
def scan_half(a, out):
    """The same on float32 carriers, each sum rounded to binary16."""
    for o in range(a.shape[0]):
        for n in range(a.shape[1]):
            for i in range(a.shape[2]):
                before = out[o, n - 1, i] if n else np.float32(0)
                out[o, n, i] = widen(round_to_half(before + a[o, n, i]))


SUMS = {"binary16": sum_half, "binary32": sum_single, "binary64": sum_single}
CUMULATIVE_SUMS = {"binary16": scan_half, "binary32": scan_single, "binary64": scan_single}
"""Loops by the format of the accumulator; those of binary64 run on float64 carriers."""
