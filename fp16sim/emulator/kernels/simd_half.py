"""binary16 in SIMD: conversion of vectors by the processor's instruction or in portable steps, and rounding.

Roundings by arithmetic rely on float32 rounding to nearest even, and on nothing else of the processor.
"""

from __future__ import annotations

from fp16sim.emulator.kernels.jit import HAS_HALF_CONVERSION
from fp16sim.emulator.kernels.simd import Vector

__all__ = ["narrow", "round_in_range", "round_product_in_range", "round_to_half", "round_wide", "widen"]

_EXPONENT_SHIFT = 112 << 23  # between the exponent fields of binary32 and of binary16, in place
_SMALLEST_NORMAL = 2.0**-14
_OVERFLOW = 65520.0  # rounds to infinity; everything below rounds to 65504 at most


def widen(encodings: Vector) -> Vector:
    """Give binary16 encodings as float32 numbers."""
    if HAS_HALF_CONVERSION:
        return encodings.as_float().to_float(32)
    bits = encodings.to_unsigned(32)
    magnitude = bits & 0x7FFF
    # 1/2 + m 2^-24 has the significand m as its last bits, so no subnormal number is touched.
    tiny = ((magnitude | 0x3F000000).as_float() - 0.5).bits()
    shifted = magnitude << 13
    large = magnitude.less(0x7C00).choose(shifted + _EXPONENT_SHIFT, shifted | 0x7F800000)
    value = magnitude.less(0x400).choose(tiny, large)
    return (value | ((bits & 0x8000) << 16)).as_float()


def narrow(x: Vector) -> Vector:
    """Round float32 numbers to binary16 encodings, nearest even, NaN canonical."""
    if HAS_HALF_CONVERSION:
        encodings = x.to_float(16).bits()
    else:
        bits = x.bits()
        magnitude = bits & 0x7FFFFFFF
        # Below 2^-14 adding 1/2 rounds to multiples of 2^-24 and leaves them in the last bits.
        tiny = (magnitude.as_float() + 0.5).bits() - 0x3F000000
        to_even = (magnitude >> 13) & 1
        normal = (magnitude + 0xFFF + to_even - _EXPONENT_SHIFT) >> 13
        code = magnitude.as_float().less(_SMALLEST_NORMAL).choose(tiny, normal.unsigned_minimum(0x7C00))
        encodings = (code | ((bits >> 16) & 0x8000)).to_integer(16)
    return x.equal(x).choose(encodings, 0x7E00)


def round_to_half(x: Vector) -> Vector:
    """Round float32 numbers to binary16, over its whole range; float32 comes and goes."""
    if HAS_HALF_CONVERSION:
        return x.to_float(16).to_float(32)
    return widen(narrow(x))


def round_in_range(x: Vector) -> Vector:
    """Round float32 numbers to 11 bits; for sums of binary16 numbers below overflow, as tiny sums are exact."""
    # In units of the last of 11 bits, s is 8191 x rounded to an integer (8192 x is an even integer, so ties go
    # to even), and 8192 x - s is exact.
    return x.multiply_add(8192.0, -x.multiply_add(8192.0, -x))


def round_product_in_range(x: Vector) -> Vector:
    """Round exact products of two binary16 numbers to binary16 below overflow; underflow gives +0."""
    # As in `round_in_range`, with 8192 x held at 3/4, whose last place is 2^-24, for subnormal results. That the
    # other addend keeps its sign matters at ends of binades: right only because x has 22 bits at most.
    scale = x.absolute().maximum(1.5 * _SMALLEST_NORMAL)
    return scale.multiply_add(-8192.0, scale.multiply_add(8192.0, x))


def round_wide(x: Vector) -> Vector:
    """Round float64 numbers to binary16 below overflow, gradually underflowing, with the sign of zero kept."""
    # 2^42 |x| - |x| in float64 keeps 11 bits of |x|, or multiples of 2^-24, as in the two functions above.
    magnitude = x.absolute()
    scale = magnitude.maximum(1.5 * _SMALLEST_NORMAL)
    rest = scale.multiply_add(2.0**42, -magnitude)
    return scale.multiply_add(2.0**42, -rest).with_sign_of(x)
