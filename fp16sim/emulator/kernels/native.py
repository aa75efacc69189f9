"""binary32 and binary64 by the processor's operations, which IEEE 754 fixes, with every NaN made the canonical one.

Every loop takes and gives contiguous one-dimensional arrays of encodings, uint32 or uint64: numba compiles it for
each. Each result is rounded once, to nearest even.
"""

from __future__ import annotations

import numpy as np

from fp16sim.emulator.kernels.carriers import encode, value_of
from fp16sim.emulator.kernels.jit import jit

__all__ = ["NATIVE"]


@jit
def add_native(a, b, out):
    """Add."""
    for i in range(out.size):
        out[i] = encode(value_of(a[i]) + value_of(b[i]))


@jit
def subtract_native(a, b, out):
    """Subtract."""
    for i in range(out.size):
        out[i] = encode(value_of(a[i]) - value_of(b[i]))


@jit
def multiply_native(a, b, out):
    """Multiply."""
    for i in range(out.size):
        out[i] = encode(value_of(a[i]) * value_of(b[i]))


@jit
def divide_native(a, b, out):
    """Divide."""
    for i in range(out.size):
        out[i] = encode(value_of(a[i]) / value_of(b[i]))


@jit
def sqrt_native(a, out):
    """Take square roots."""
    for i in range(out.size):
        out[i] = encode(np.sqrt(value_of(a[i])))


NATIVE = {
    "add": add_native,
    "subtract": subtract_native,
    "multiply": multiply_native,
    "divide": divide_native,
    "sqrt": sqrt_native,
}
"""Loops by the name of the operation."""
