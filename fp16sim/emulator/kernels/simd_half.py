"""binary16 in SIMD: conversion of vectors by the processor's instruction or in portable steps, and rounding.

Roundings by arithmetic rely on float32 rounding to nearest even, and on nothing else of the processor.
"""

from __future__ import annotations

from fp16sim.emulator.kernels.jit import HAS_HALF_CONVERSION
from fp16sim.emulator.kernels.simd import Vector

__all__ = [
    "beyond_range",
    "canonical",
    "narrow",
    "round_in_range",
    "round_product",
    "round_sum",
    "round_to_half",
    "widen",
]

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
    x = canonical(x)
    if HAS_HALF_CONVERSION:
        return x.to_float(16).bits()
    bits = x.bits()
    magnitude = bits & 0x7FFFFFFF
    # Below 2^-14 adding 1/2 rounds to multiples of 2^-24 and leaves them in the last bits.
    tiny = (magnitude.as_float() + 0.5).bits() - 0x3F000000
    to_even = (magnitude >> 13) & 1
    normal = ((magnitude + 0xFFF + to_even - _EXPONENT_SHIFT) >> 13).unsigned_minimum(0x7C00)
    code = x.absolute().less(_SMALLEST_NORMAL).choose(tiny, x.equal(x).choose(normal, 0x7E00))
    return (code | ((bits >> 16) & 0x8000)).to_integer(16)


def canonical(x: Vector) -> Vector:
    """Put the canonical NaN, positive and quiet, in the place of any other."""
    return x.equal(x).choose(x, float("nan"))


def round_to_half(x: Vector) -> Vector:
    """Round float32 numbers to binary16, over its whole range; float32 comes and goes."""
    if HAS_HALF_CONVERSION:
        return x.to_float(16).to_float(32)
    return beyond_range(x, round_in_range(x), 3e38)


def beyond_range(x: Vector, rounded: Vector, huge: float) -> Vector:
    """Give infinity where x overflows binary16, and infinities and NaN of x as they are; else `rounded`."""
    return x.absolute().less(_OVERFLOW).choose(rounded, x * huge)


def round_in_range(x: Vector) -> Vector:
    """Round float32 or float64 numbers below overflow to binary16; zeros keep their signs."""
    # In units of the last of 11 bits of x, s is (8192 y - |x|) rounded to an integer and 8192 y - s is exact. y = |x|
    # gives 11 bits; y = 1.5 * 2^-14 fixes the unit at 2^-24. 8192 y is even at a tie, so ties go to even.
    # float64 has 29 bits more than float32, and 2^42 in place of 8192.
    scale = 2.0**13 if x.width == 32 else 2.0**42
    magnitude = x.absolute()
    y = magnitude.maximum(1.5 * _SMALLEST_NORMAL)
    s = y.multiply_add(scale, -magnitude)
    return y.multiply_add(scale, -s).with_sign_of(x)


def round_product(x: Vector) -> Vector:
    """Round exact float32 products of two binary16 numbers below overflow to binary16; underflow gives +0."""
    # `round_in_range` with the sign of x left in s. At the ends of binades s has a unit of 2 or 1/2 then, which is
    # harmless only because 8192 x is a multiple of 4 for x of 22 bits.
    y = x.absolute().maximum(1.5 * _SMALLEST_NORMAL)
    return y.multiply_add(-8192.0, y.multiply_add(8192.0, x))


def round_sum(x: Vector) -> Vector:
    """Round float32 sums of two binary16 numbers below overflow to binary16."""
    # `round_in_range` without its lower end: a sum below 2^-13 is a multiple of 2^-24, and exact.
    return x.multiply_add(8192.0, -x.multiply_add(8192.0, -x))
