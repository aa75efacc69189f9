"""Sums without any rounding: one fixed-point number that holds every sum of products of two formats.

Formats have at most 8 exponent bits and 24 bits of precision, so a product lies between 2^-298 and 2^256. The
number has 32-bit digits in 64-bit words, the lowest worth 2^-384: the two lowest stay empty, and 2^60 products
fit below the top.
"""

from __future__ import annotations

import numpy as np

from fp16sim.emulator.kernels.integer import bit_length, round_pack
from fp16sim.emulator.kernels.jit import jit

__all__ = ["DIGITS", "accumulate", "carry", "round_sum"]

DIGITS = 22
_LOWEST = -384
_DIGIT = 0xFFFFFFFF


@jit
def accumulate(digits, negative, significand, exponent):
    """Add (-1)^negative * significand * 2^exponent, significand below 2^48. `carry` after at most 2^28 calls."""
    place = exponent - _LOWEST
    for part in range(2):
        # Halves of 24 bits, shifted by at most 31: 55 bits, two digits.
        half = (significand >> (24 * part)) & 0xFFFFFF
        index = (place + 24 * part) >> 5
        half <<= (place + 24 * part) & 31
        if negative:
            digits[index] -= half & _DIGIT
            digits[index + 1] -= half >> 32
        else:
            digits[index] += half & _DIGIT
            digits[index + 1] += half >> 32


@jit
def carry(digits):
    """Bring every digit but the highest, which keeps the sign, into [0, 2^32)."""
    for i in range(DIGITS - 1):
        digits[i + 1] += digits[i] >> 32
        digits[i] &= _DIGIT


@jit
def round_sum(digits, spec):
    """Round the sum once: (encoding, flags). A sum of nothing but zeros gives +0."""
    carry(digits)
    negative = digits[DIGITS - 1] < 0
    if negative:
        for i in range(DIGITS):
            digits[i] = -digits[i]
        carry(digits)
    top = DIGITS - 1
    while top > 1 and digits[top] == 0:
        top -= 1
    if digits[top] == 0:
        return 0, 0
    # The highest 62 bits, from three digits, and whether anything lies below them.
    length = bit_length(digits[top])
    left = 62 - length
    significand = digits[top] << left
    if left >= 32:
        significand |= digits[top - 1] << (left - 32)
        dropped = 64 - left
        low = digits[top - 2]
        lowest = top - 2
    else:
        dropped = 32 - left
        low = digits[top - 1]
        lowest = top - 1
    significand |= low >> dropped
    sticky = (low & ((1 << dropped) - 1)) != 0
    for i in range(lowest):
        sticky |= digits[i] != 0
    return round_pack(negative, significand, 32 * top + _LOWEST - left, sticky, spec, np.int64(0))
