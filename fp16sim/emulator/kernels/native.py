"""binary32 and binary64 add, subtract, multiply, divide and sqrt in nearest_even: the processor's own, which IEEE 754
fixes, with every NaN made the canonical one (processors differ in its sign)."""

import numpy as np

from fp16sim.emulator.kernels.jit import jit

__all__ = ["NATIVE"]

# One loop for both widths: numba compiles it for each dtype that it meets.


@jit
def add_native(a, b, out):
    nan = out.dtype.type(np.nan)
    for i in range(out.size):
        value = a[i] + b[i]
        out[i] = value if value == value else nan


@jit
def subtract_native(a, b, out):
    nan = out.dtype.type(np.nan)
    for i in range(out.size):
        value = a[i] - b[i]
        out[i] = value if value == value else nan


@jit
def multiply_native(a, b, out):
    nan = out.dtype.type(np.nan)
    for i in range(out.size):
        value = a[i] * b[i]
        out[i] = value if value == value else nan


@jit
def divide_native(a, b, out):
    nan = out.dtype.type(np.nan)
    for i in range(out.size):
        value = a[i] / b[i]
        out[i] = value if value == value else nan


@jit
def sqrt_native(a, out):
    nan = out.dtype.type(np.nan)
    for i in range(out.size):
        value = np.sqrt(a[i])
        out[i] = value if value == value else nan


NATIVE = {
    "add": add_native,
    "subtract": subtract_native,
    "multiply": multiply_native,
    "divide": divide_native,
    "sqrt": sqrt_native,
}
