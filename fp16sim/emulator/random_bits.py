"""Counter-based random bits for stochastic rounding: the definition, in Python integers.

The 32 bits of a result are a function of (seed, call, index), so they do not depend on threads or on order. The
hash is `lowbias32` (C. Wellons, hash-prospector, 2018) applied twice and keyed before each time; the two halves of
the key come from SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) of seed and call.
"""

from __future__ import annotations

__all__ = ["key_of", "random_bits"]

_MASK32 = 2**32 - 1
_MASK64 = 2**64 - 1


def key_of(seed: int, call: int = 0) -> int:
    """Mix a 64-bit seed and the number of the call into a 64-bit key.

    >>> hex(key_of(0)), key_of(0, 1) == key_of(1, 0)
    ('0xa706dd2f4d197e6f', False)
    """
    state = seed & _MASK64
    for word in (call & _MASK64, 0):
        state = (state + 0x9E3779B97F4A7C15) & _MASK64
        mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK64
        state = (mixed ^ (mixed >> 31)) ^ word
    return state


def _lowbias32(x: int) -> int:
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & _MASK32
    x = ((x ^ (x >> 15)) * 0xD35A2D97) & _MASK32
    return x ^ (x >> 15)


def random_bits(key: int, index: int) -> int:
    """32 random bits for the element with that 64-bit C-order index.

    >>> random_bits(key_of(0), 0) != random_bits(key_of(0), 1)
    True
    """
    block = (index >> 32) * 0x9E3779B1 & _MASK32
    inner = _lowbias32((index ^ key) & _MASK32)
    return _lowbias32((inner + ((key >> 32) ^ block)) & _MASK32)
