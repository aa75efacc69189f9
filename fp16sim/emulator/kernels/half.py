"""binary16 at memory speed: conversion by hardware where it exists, arithmetic through wider carriers.

Every loop takes and gives contiguous one-dimensional arrays; encodings are uint16. NaN becomes 0x7e00 at the
store.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from fp16sim.emulator.kernels.hashing import block_key, random_bits, random_bits_in_block
from fp16sim.emulator.kernels.integer import (
    NEAREST_AWAY,
    NEAREST_EVEN,
    STOCHASTIC,
    TO_ODD,
    TOWARD_NEGATIVE,
    TOWARD_POSITIVE,
    TOWARD_ZERO,
)
from fp16sim.emulator.kernels.jit import HAS_HALF_CONVERSION, jit

__all__ = [
    "HALF",
    "NARROW",
    "add_half",
    "divide_half",
    "fma_half",
    "gather",
    "multiply_half",
    "narrow_double_stochastic",
    "narrow_single",
    "narrow_single_stochastic",
    "sqrt_half",
    "subtract_half",
    "widen_half",
]

_PIECE = 16384


@intrinsic
def bits_of_single(typing, x):
    """float32 -> uint32, the same bits."""
    return types.uint32(types.float32), lambda context, b, signature, args: b.bitcast(args[0], ir.IntType(32))


@intrinsic
def single_of_bits(typing, x):
    """uint32 -> float32, the same bits."""
    return types.float32(types.uint32), lambda context, b, signature, args: b.bitcast(args[0], ir.FloatType())


@intrinsic
def bits_of_double(typing, x):
    """float64 -> uint64, the same bits."""
    return types.uint64(types.float64), lambda context, b, signature, args: b.bitcast(args[0], ir.IntType(64))


@intrinsic
def shift_left(typing, x, n):
    """Shift within the type of x; numba's own operator would go through 64 bits, at half the speed."""
    return x(x, x), lambda context, b, signature, args: b.shl(args[0], args[1])


@intrinsic
def shift_right(typing, x, n):
    """Shift an unsigned integer within its type."""
    return x(x, x), lambda context, b, signature, args: b.lshr(args[0], args[1])


@intrinsic
def convert_to_half(typing, x):
    """float32 -> binary16 encoding by the processor's instruction. Only where HAS_HALF_CONVERSION."""

    def generate(context, b, signature, args):
        return b.bitcast(b.fptrunc(args[0], ir.HalfType()), ir.IntType(16))

    return types.uint16(types.float32), generate


@intrinsic
def convert_from_half(typing, x):
    """binary16 encoding -> float32 by the processor's instruction. Only where HAS_HALF_CONVERSION."""

    def generate(context, b, signature, args):
        return b.fpext(b.bitcast(args[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), generate


def make_rounded(word, fraction_bits, bias):
    """Write the rounding of a binary32 or binary64 encoding to binary16 in branch-free `word` integers.

    `word` is the unsigned type of the source's width. Each step is cast to it: numba would carry 32-bit
    arithmetic on in 64 bits, and mix signed and unsigned 64-bit integers to float64.
    """
    exponent_bits = 8 if fraction_bits == 23 else 11
    last = word(fraction_bits + exponent_bits)  # the highest shift, and the place of the sign
    first_normal = word(bias - 14)  # exponent field of 2^-14
    implicit = word(1 << fraction_bits)
    sign = word(1 << (fraction_bits + exponent_bits))
    infinite = word(((1 << exponent_bits) - 1) << fraction_bits)
    normal_shift = word(fraction_bits - 10)
    zero, one, ten, word_of_bits, maximum, infinity = (word(n) for n in (0, 1, 10, 32, 0x7BFF, 0x7C00))

    @jit
    def rounded(bits, mode, draw):
        bits = word(bits)
        negative = shift_right(bits, last)
        magnitude = word(bits & word(~sign))
        field = shift_right(magnitude, word(fraction_bits))
        significand = word(magnitude & word(implicit - one))
        significand = word(significand | implicit) if field else significand
        # Below 2^-14 each binade drops one bit more.
        drop = word(normal_shift + word(first_normal - min(field, first_normal)))
        shift = min(drop, last)
        whole = shift_right(significand, shift)
        rest = word(significand - shift_left(whole, shift))
        half = shift_left(one, word(shift - one))
        if mode == NEAREST_EVEN:
            up = word(rest > half) | word(word(rest == half) & whole & one)
        elif mode == NEAREST_AWAY:
            up = word(rest >= half)
        elif mode == TOWARD_ZERO:
            up = zero
        elif mode == TOWARD_POSITIVE:
            up = word(word(rest != zero) & word(negative ^ one))
        elif mode == TOWARD_NEGATIVE:
            up = word(word(rest != zero) & negative)
        elif mode == TO_ODD:
            up = word(word(rest != zero) & word(~whole) & one)
        else:
            left = word(word_of_bits - min(drop, word_of_bits))
            right = min(word(max(drop, word_of_bits) - word_of_bits), last)
            threshold = shift_right(shift_left(rest, left), right)
            up = word(word(draw) < threshold)
        base = shift_left(word(max(field, first_normal) - first_normal), ten)
        code = word(word(base + whole) + up)
        if mode == TOWARD_ZERO or mode == TO_ODD:
            most = maximum
        elif mode == TOWARD_POSITIVE:
            most = maximum if negative else infinity
        elif mode == TOWARD_NEGATIVE:
            most = infinity if negative else maximum
        else:
            most = infinity
        code = min(code, most)
        code = infinity if magnitude == infinite else code
        code = word(code | shift_left(negative, word(15)))
        return np.uint16(0x7E00) if magnitude > infinite else np.uint16(code)

    return rounded


rounded_single = make_rounded(np.uint32, 23, 127)
rounded_double = make_rounded(np.uint64, 52, 1023)


@jit
def narrow_portable(x):
    """float32 -> binary16 encoding, nearest even, in integers: what the instruction must equal."""
    return rounded_single(bits_of_single(x), NEAREST_EVEN, np.uint32(0))


@jit
def widen_portable(h):
    """binary16 encoding -> float32 in integers and one exact subtraction: no subnormal float32 is touched."""
    bits = np.uint32(h)
    sign = np.uint32((bits & np.uint32(0x8000)) << np.uint32(16))
    magnitude = np.uint32(bits & np.uint32(0x7FFF))
    shifted = np.uint32(magnitude << np.uint32(13))
    normal = np.uint32(shifted + np.uint32(112 << 23))
    special = np.uint32(shifted | np.uint32(0x7F800000))
    # 1/2 + m 2^-24 has the significand m as its last bits.
    tiny = bits_of_single(single_of_bits(np.uint32(magnitude | np.uint32(0x3F000000))) - np.float32(0.5))
    tiny = tiny if magnitude & np.uint32(0x3FF) else np.uint32(0)
    value = tiny if magnitude < np.uint32(0x400) else (special if magnitude >= np.uint32(0x7C00) else normal)
    return single_of_bits(np.uint32(value | sign))


round_to_half = convert_to_half if HAS_HALF_CONVERSION else narrow_portable
widen = convert_from_half if HAS_HALF_CONVERSION else widen_portable


@jit
def store(x):
    """Round a float32 carrier to nearest even, with the canonical NaN."""
    return round_to_half(x) if x == x else np.uint16(0x7E00)


@jit
def widen_half(a, out):
    """Give the float32 values of binary16 encodings; exact, NaN payloads aside."""
    for i in range(out.size):
        out[i] = widen(a[i])


@jit
def narrow_single(a, out):
    """Round binary32 encodings to binary16, to nearest even."""
    for i in range(out.size):
        out[i] = store(single_of_bits(a[i]))


@jit
def add_half(a, b, out):
    """Add binary16 encodings, each sum rounded once to nearest even."""
    # 24 >= 2 * 11 + 2: rounding a float32 sum, product, quotient or root of halves again is innocuous
    # (Figueroa, When is double rounding innocuous?, 1995).
    for i in range(out.size):
        out[i] = store(widen(a[i]) + widen(b[i]))


@jit
def subtract_half(a, b, out):
    """Subtract binary16 encodings, each difference rounded once to nearest even."""
    for i in range(out.size):
        out[i] = store(widen(a[i]) - widen(b[i]))


@jit
def multiply_half(a, b, out):
    """Multiply binary16 encodings, each product rounded once to nearest even."""
    for i in range(out.size):
        out[i] = store(widen(a[i]) * widen(b[i]))


@jit
def divide_half(a, b, out):
    """Divide binary16 encodings, each quotient rounded once to nearest even."""
    for i in range(out.size):
        out[i] = store(widen(a[i]) / widen(b[i]))


@jit
def sqrt_half(a, out):
    """Take square roots of binary16 encodings, each rounded once to nearest even."""
    for i in range(out.size):
        out[i] = store(np.sqrt(widen(a[i])))


@jit
def fma_half(a, b, c, out):
    """Multiply and add binary16 encodings, rounded once to nearest even."""
    # The product of two halves is exact in float64, and rounding the sum to 53 bits first is innocuous for
    # nearest even.
    for i in range(out.size):
        exact = np.float64(widen(a[i])) * np.float64(widen(b[i])) + np.float64(widen(c[i]))
        out[i] = rounded_double(bits_of_double(exact), NEAREST_EVEN, np.uint64(0))


HALF = {
    "add": add_half,
    "subtract": subtract_half,
    "multiply": multiply_half,
    "divide": divide_half,
    "sqrt": sqrt_half,
    "fma": fma_half,
}
"""Loops by the name of the operation."""


@jit
def gather(table, a, out):
    """Look a function of one argument up."""
    for i in range(out.size):
        out[i] = table[a[i]]


def make_narrow(mode, double):
    """Write the loop that rounds binary32 or binary64 encodings to binary16 in one deterministic mode."""
    if double:

        @jit
        def narrow(a, out):
            for i in range(out.size):
                out[i] = rounded_double(a[i], mode, np.uint64(0))

    else:

        @jit
        def narrow(a, out):
            for i in range(out.size):
                out[i] = rounded_single(a[i], mode, np.uint32(0))

    return narrow


NARROW = {(mode, double): make_narrow(mode, double) for mode in range(6) for double in (False, True)}
"""Loops by (mode, whether the source is binary64)."""


@jit
def narrow_single_in_block(a, first_key, second_key, low, out):
    """Round stochastically what lies in one block of 2^32 indices, beginning at `low`."""
    for i in range(out.size):
        draw = random_bits_in_block(first_key, second_key, np.uint32(low + np.uint32(i)))
        out[i] = rounded_single(a[i], STOCHASTIC, draw)


@jit
def narrow_single_stochastic(a, first, key, out):
    """Round binary32 encodings stochastically; element i draws the bits of index first + i."""
    # Pieces are copied to the cache first: the long loop body keeps too few loads from memory in flight. No
    # piece crosses a block of 2^32 indices, so the loop counts in 32 bits.
    staged = np.empty(_PIECE, np.uint32)
    start = 0
    while start < out.size:
        index = first + start
        stop = min(out.size, start + _PIECE, start + (1 << 32) - (index & 0xFFFFFFFF))
        piece = staged[: stop - start]
        piece[:] = a[start:stop]
        narrow_single_in_block(
            piece, np.uint32(key), block_key(key, index), np.uint32(index), out[start:stop]
        )
        start = stop


@jit
def narrow_double_stochastic(a, first, key, out):
    """Round binary64 encodings stochastically; element i draws the bits of index first + i."""
    for i in range(out.size):
        out[i] = rounded_double(a[i], STOCHASTIC, random_bits(key, first + i))
