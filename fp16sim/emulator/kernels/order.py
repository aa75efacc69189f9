"""What chooses by order and rounds nothing: the rectifier, and the largest of several values.

Encodings are compared as unsigned integers, which they fill. They are of any format whose NaNs lie beyond its
infinities; `infinity` and `nan` encode its infinity and its canonical NaN, and have the type of the encodings.
"""

from __future__ import annotations

import numpy as np
from numba.extending import intrinsic

from fp16sim.emulator.kernels.jit import jit

__all__ = ["largest", "rectify"]

_STRIP = 1024
"""Neighbouring results that are found together, in the first-level cache."""


def emit_is_nan(b, bits, infinity):
    """Emit whether an encoding is a NaN."""
    magnitude = b.and_(bits, bits.type((1 << (bits.type.width - 1)) - 1))
    return b.icmp_unsigned(">", magnitude, infinity)


@intrinsic
def rectified(typing, bits, infinity, nan):
    """The encoding of a value above zero as it is, +0 for another, the canonical NaN for any NaN."""

    def generate(context, b, signature, args):
        bits, infinity, nan = args
        positive = b.select(b.icmp_signed("<", bits, bits.type(0)), bits.type(0), bits)
        return b.select(emit_is_nan(b, bits, infinity), nan, positive)

    return bits(bits, bits, bits), generate


@intrinsic
def place_of(typing, bits, infinity):
    """The place of a value in the order of all, -0 below +0 and every NaN the largest integer."""

    def generate(context, b, signature, args):
        bits, infinity = args
        negative = b.icmp_signed("<", bits, bits.type(0))
        place = b.select(negative, b.not_(bits), b.or_(bits, bits.type(1 << (bits.type.width - 1))))
        return b.select(emit_is_nan(b, bits, infinity), bits.type(-1), place)

    return bits(bits, bits), generate


@intrinsic
def value_at(typing, place, nan):
    """The encoding of the value at a place."""

    def generate(context, b, signature, args):
        place, nan = args
        positive = b.icmp_signed("<", place, place.type(0))
        bits = b.select(positive, b.xor(place, place.type(1 << (place.type.width - 1))), b.not_(place))
        return b.select(b.icmp_unsigned("==", place, place.type(-1)), nan, bits)

    return place(place, place), generate


@intrinsic
def larger(typing, x, y):
    """The larger of two unsigned integers, within their type."""
    return x(x, x), lambda context, b, signature, args: b.select(b.icmp_unsigned(">", *args), *args)


@jit
def rectify(a, infinity, nan, out):
    """Rectify encodings."""
    for i in range(out.size):
        out[i] = rectified(a[i], infinity, nan)


@jit
def largest(a, infinity, nan, out):
    """Give the largest of contiguous (outer, n, inner) along n, a NaN if there is one, +0 rather than -0."""
    outer, n, inner = a.shape
    if inner == 1:
        values = a.reshape(outer * n)
        for o in range(outer):
            row = values[o * n : (o + 1) * n]
            found = a.dtype.type(0)
            for k in range(row.size):
                found = larger(found, place_of(row[k], infinity))
            out[o, 0] = value_at(found, nan)
    else:
        strip = np.empty(min(_STRIP, inner), a.dtype)
        for o in range(outer):
            for start in range(0, inner, _STRIP):
                results = out[o, start : start + _STRIP]
                places = strip[: results.size]
                places[:] = 0
                for k in range(n):
                    terms = a[o, k, start : start + _STRIP]
                    for i in range(terms.size):
                        places[i] = larger(places[i], place_of(terms[i], infinity))
                for i in range(results.size):
                    results[i] = value_at(places[i], nan)
