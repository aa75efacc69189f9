"""Conversions between binary16, bfloat16 and binary32, and from binary64, to nearest even, at memory speed.

Every loop takes and gives contiguous one-dimensional arrays of encodings. A NaN becomes the canonical one. Between
the two 16-bit formats values pass through binary32, which holds both, so they are rounded once.
"""

from __future__ import annotations

import numpy as np

from fp16sim.emulator.kernels.carriers import encode, round_to_brain, value_of, widen_brain
from fp16sim.emulator.kernels.half import bits_of_single, narrow_single, single_of_bits, store, widen
from fp16sim.emulator.kernels.jit import jit

__all__ = ["CONVERSIONS"]


@jit
def half_to_single(a, out):
    """binary16 to binary32; exact."""
    for i in range(out.size):
        out[i] = encode(widen(a[i]))


@jit
def brain_to_single(a, out):
    """bfloat16 to binary32; exact."""
    for i in range(out.size):
        out[i] = encode(widen_brain(a[i]))


@jit
def single_to_brain(a, out):
    """binary32 to bfloat16."""
    for i in range(out.size):
        out[i] = round_to_brain(value_of(a[i]))


@jit
def half_to_brain(a, out):
    """binary16 to bfloat16."""
    for i in range(out.size):
        out[i] = round_to_brain(widen(a[i]))


@jit
def brain_to_half(a, out):
    """bfloat16 to binary16."""
    for i in range(out.size):
        out[i] = store(widen_brain(a[i]))


@jit
def double_to_single(a, out):
    """binary64 to binary32."""
    for i in range(out.size):
        out[i] = encode(np.float32(value_of(a[i])))


@jit
def double_to_brain(a, out):
    """binary64 to bfloat16."""
    for i in range(out.size):
        x = value_of(a[i])
        nearest = np.float32(x)
        bits = bits_of_single(nearest)
        # Rounded to odd instead (toward zero, then the last bit set if that is inexact), binary32 says to which side of
        # a boundary of bfloat16 x lies, so that rounding once more rounds x.
        away = abs(np.float64(nearest)) > abs(x)
        odd = np.uint32(np.uint32(bits - np.uint32(away)) | np.uint32(1))
        out[i] = round_to_brain(single_of_bits(odd if np.float64(nearest) != x and x == x else bits))


CONVERSIONS = {
    ("binary16", "binary32"): half_to_single,
    ("bfloat16", "binary32"): brain_to_single,
    ("binary32", "binary16"): narrow_single,
    ("binary32", "bfloat16"): single_to_brain,
    ("binary16", "bfloat16"): half_to_brain,
    ("bfloat16", "binary16"): brain_to_half,
    ("binary64", "binary32"): double_to_single,
    ("binary64", "bfloat16"): double_to_brain,
}
"""Loops by the formats of source and target."""
