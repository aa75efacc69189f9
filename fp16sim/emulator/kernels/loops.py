"""Loops over arrays of encodings around the integer operations: results, each element's flags, and counts.

`draws` and `flags` may be empty: then random bits come from the key, and flags are only counted.
"""

from __future__ import annotations

import numpy as np

from fp16sim.emulator.kernels.hashing import random_bits
from fp16sim.emulator.kernels.integer import STOCHASTIC
from fp16sim.emulator.kernels.jit import jit
from fp16sim.emulator.kernels.operations import apply, convert, convert_integer

__all__ = ["convert_loop", "elementwise_loop", "fill_random", "integer_loop"]


@jit
def draw_for(i, first, draws, spec):
    """The 32 bits of element i of a piece that starts at index `first` of the whole."""
    if spec.mode != STOCHASTIC:
        return 0
    if draws.size:
        return np.int64(draws[i])
    return np.int64(random_bits(spec.key, first + i))


@jit
def record(i, raised, flags, counts):
    """Keep the flags of element i where wanted, and count them."""
    if flags.size:
        flags[i] = raised
    if raised:
        for place in range(6):
            counts[place] += (raised >> place) & 1


@jit
def elementwise_loop(operation, a, b, c, first, draws, out, flags, counts, spec):
    """Perform the operation with that number in `OPERATIONS` on every element."""
    for i in range(out.size):
        out[i], raised = apply(
            operation, np.int64(a[i]), np.int64(b[i]), np.int64(c[i]), spec, draw_for(i, first, draws, spec)
        )
        record(i, raised, flags, counts)


@jit
def convert_loop(a, first, draws, out, flags, counts, source, target):
    """Round every encoding of one format to another."""
    for i in range(out.size):
        out[i], raised = convert(np.int64(a[i]), 0, 0, source, target, draw_for(i, first, draws, target))
        record(i, raised, flags, counts)


@jit
def integer_loop(negative, magnitude, first, draws, out, flags, counts, target):
    """Round every integer, given as sign and magnitude, to a format."""
    for i in range(out.size):
        out[i], raised = convert_integer(negative[i], magnitude[i], target, draw_for(i, first, draws, target))
        record(i, raised, flags, counts)


@jit
def fill_random(key, first, out):
    """Draw the 32 bits of each index from `first` on."""
    for i in range(out.size):
        out[i] = random_bits(key, first + i)
