"""Dot products and sums in plain loops, strictly sequential in k: one result for every blocking.

Carriers are float32 and the loops run over a row of the result, which LLVM vectorises; nothing is contracted.
"""

from __future__ import annotations

import numpy as np

from fp16sim.emulator.kernels.half import round_to_half, widen
from fp16sim.emulator.kernels.jit import jit
from fp16sim.emulator.kernels.loops import record
from fp16sim.emulator.kernels.operations import add, multiply

__all__ = ["matmul_counted", "matmul_half", "matmul_single", "sum_counted", "sum_half", "sum_single"]


@jit
def matmul_single(a, b, out):
    """out += a @ b, each product and each sum rounded to binary32."""
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            x = a[i, k]
            for j in range(b.shape[1]):
                out[i, j] += x * b[k, j]


@jit
def matmul_half(a, b, out):
    """out += a @ b on float32 carriers, each product and each sum rounded to binary16."""
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            x = a[i, k]
            for j in range(b.shape[1]):
                out[i, j] = widen(round_to_half(out[i, j] + widen(round_to_half(x * b[k, j]))))


@jit
def sum_single(a, out):
    """out[o, i] += a[o, :, i] in order, each sum rounded to binary32."""
    for o in range(a.shape[0]):
        for n in range(a.shape[1]):
            for i in range(a.shape[2]):
                out[o, i] += a[o, n, i]


@jit
def sum_half(a, out):
    """out[o, i] += a[o, :, i] in order on float32 carriers, each sum rounded to binary16."""
    for o in range(a.shape[0]):
        for n in range(a.shape[1]):
            for i in range(a.shape[2]):
                out[o, i] = widen(round_to_half(out[o, i] + a[o, n, i]))


@jit
def matmul_counted(a, b, out, flags, counts, spec):
    """out += a @ b on encodings of the accumulator's format, counting the flags of every rounding."""
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            total = np.int64(out[i, j])
            for k in range(a.shape[1]):
                product, raised = multiply(np.int64(a[i, k]), np.int64(b[k, j]), 0, spec, 0)
                record(0, raised, flags, counts)
                total, raised = add(total, product, 0, spec, 0)
                record(0, raised, flags, counts)
            out[i, j] = total


@jit
def sum_counted(a, out, flags, counts, spec):
    """out[o, i] += a[o, :, i] on encodings, counting the flags of every rounding."""
    for o in range(a.shape[0]):
        for i in range(a.shape[2]):
            total = np.int64(out[o, i])
            for n in range(a.shape[1]):
                total, raised = add(total, np.int64(a[o, n, i]), 0, spec, 0)
                record(0, raised, flags, counts)
            out[o, i] = total
