"""The fast twin of ``emulator/random_bits.py``."""

from __future__ import annotations

import numpy as np

from fp16sim.emulator.kernels.jit import jit

__all__ = ["random_bits"]


@jit
def lowbias32(x):
    # Each step is cast: numba would carry uint32 arithmetic on in 64 bits and change the hash.
    x = np.uint32(x ^ np.uint32(x >> np.uint32(16)))
    x = np.uint32(x * np.uint32(0x21F0AAAD))
    x = np.uint32(x ^ np.uint32(x >> np.uint32(15)))
    x = np.uint32(x * np.uint32(0xD35A2D97))
    return np.uint32(x ^ np.uint32(x >> np.uint32(15)))


@jit
def random_bits(key, index):
    """32 random bits for the element with that C-order index; `key` is the 64-bit key as a signed integer."""
    block = np.uint32(np.uint32(index >> 32) * np.uint32(0x9E3779B1))
    inner = lowbias32(np.uint32(np.uint32(index) ^ np.uint32(key)))
    return lowbias32(np.uint32(inner + np.uint32(np.uint32(key >> 32) ^ block)))
