"""The fast twin of ``emulator/random_bits.py``."""

from __future__ import annotations

import numpy as np

from fp16sim.emulator.kernels.jit import jit

__all__ = ["block_key", "random_bits", "random_bits_in_block"]


@jit
def lowbias32(x):
    """Mix 32 bits."""
    # Each step is cast: numba would carry uint32 arithmetic on in 64 bits and change the hash.
    x = np.uint32(x ^ np.uint32(x >> np.uint32(16)))
    x = np.uint32(x * np.uint32(0x21F0AAAD))
    x = np.uint32(x ^ np.uint32(x >> np.uint32(15)))
    x = np.uint32(x * np.uint32(0xD35A2D97))
    return np.uint32(x ^ np.uint32(x >> np.uint32(15)))


@jit
def block_key(key, index):
    """Second half of the key for the 2^32 elements of the index's block."""
    block = np.uint32(np.uint32(index >> 32) * np.uint32(0x9E3779B1))
    return np.uint32(np.uint32(key >> 32) ^ block)


@jit
def random_bits_in_block(first_key, second_key, low):
    """32 random bits for the element with that low half of its index."""
    return lowbias32(np.uint32(lowbias32(np.uint32(low ^ first_key)) + second_key))


@jit
def random_bits(key, index):
    """32 random bits for the element with that C-order index; `key` is the 64-bit key as a signed integer."""
    return random_bits_in_block(np.uint32(key), block_key(key, index), np.uint32(index))
