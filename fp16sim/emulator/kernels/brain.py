"""bfloat16 arithmetic through binary32, whose exponents it shares.

Every loop takes and gives contiguous one-dimensional arrays of encodings in uint16. A NaN becomes the canonical one.

Each operation is rounded to nearest even twice, to 24 bits and to 8. That is innocuous, so one rounding in effect:

- Normal results: 24 >= 2 * 8 + 2 is enough for sums, differences, products, quotients and roots (Figueroa, When is
  double rounding innocuous?, 1995). Infinity begins at a boundary of 8 bits, which 24 bits represent.
- Below 2^-126 the values lie 2^-133 apart, the boundaries between them are odd multiples m of 2^-134, and binary32
  represents those and moves a number by at most 2^-150. So the second rounding sees another side of m than the exact
  result only if that lies within 2^-150 of m. A sum is a multiple of 2^-133 and exact. A product s 2^e with s <= 255^2
  is exact from e = -149 on, and below that 511 * 2^-150 or more under the smallest boundary. A quotient A 2^i / B 2^j
  with A, B <= 255 that is not m lies either 2^-134 / B or the A-th part of itself from m, or farther: not within
  2^-144. A root is never so small.
"""

from __future__ import annotations

import numpy as np

from fp16sim.emulator.kernels.carriers import round_to_brain, widen_brain
from fp16sim.emulator.kernels.jit import jit

__all__ = ["BRAIN"]


@jit
def add_brain(a, b, out):
    """Add bfloat16 encodings, each sum rounded once to nearest even."""
    for i in range(out.size):
        out[i] = round_to_brain(widen_brain(a[i]) + widen_brain(b[i]))


@jit
def subtract_brain(a, b, out):
    """Subtract bfloat16 encodings, each difference rounded once to nearest even."""
    for i in range(out.size):
        out[i] = round_to_brain(widen_brain(a[i]) - widen_brain(b[i]))


@jit
def multiply_brain(a, b, out):
    """Multiply bfloat16 encodings, each product rounded once to nearest even."""
    for i in range(out.size):
        out[i] = round_to_brain(widen_brain(a[i]) * widen_brain(b[i]))


@jit
def divide_brain(a, b, out):
    """Divide bfloat16 encodings, each quotient rounded once to nearest even."""
    for i in range(out.size):
        out[i] = round_to_brain(widen_brain(a[i]) / widen_brain(b[i]))


@jit
def sqrt_brain(a, out):
    """Take square roots of bfloat16 encodings, each rounded once to nearest even."""
    for i in range(out.size):
        out[i] = round_to_brain(np.sqrt(widen_brain(a[i])))


BRAIN = {
    "add": add_brain,
    "subtract": subtract_brain,
    "multiply": multiply_brain,
    "divide": divide_brain,
    "sqrt": sqrt_brain,
}
"""Loops by the name of the operation."""
