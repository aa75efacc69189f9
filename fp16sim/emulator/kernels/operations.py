"""The operations on encodings, in 64-bit integers: exact result first, then one rounding.

Each takes (a, b, c, spec, draw) and returns (encoding, flags); those of fewer operands ignore the others, so
that one loop runs them all (see loops.py).
"""

from __future__ import annotations

import numpy as np

from fp16sim.emulator.kernels.integer import (
    DIVIDE_BY_ZERO,
    FINITE,
    INEXACT,
    INFINITE,
    INVALID,
    QUIET,
    SIGNALLING,
    TOWARD_NEGATIVE,
    bit_length,
    increments,
    infinity,
    round_pack,
    split,
    unpack,
)
from fp16sim.emulator.kernels.jit import jit

__all__ = ["OPERATIONS"]

_TOP = 61  # significands are aligned with their highest bit here: sums stay below 2^62


@jit
def not_a_number(spec, invalid):
    """Deliver the canonical NaN: (encoding, flags)."""
    return spec.nan_bits, (INVALID if invalid else 0)


@jit
def sum_exactly(a_negative, a, a_exponent, b_negative, b, b_exponent, spec, draw):
    """Round the sum of two finite numbers (significands below 2^48) once.

    Both are aligned to 61 bits. Bits are lost from the smaller one only when it starts 13 or more places lower,
    so no cancellation is left, and the lost rest is subtracted as one unit less and a positive rest.
    """
    if a == 0 and b == 0:
        negative = a_negative if a_negative == b_negative else spec.mode == TOWARD_NEGATIVE
        return (spec.sign_bit if negative else 0), 0
    if a == 0:
        return round_pack(b_negative, b, b_exponent, False, spec, draw)
    if b == 0:
        return round_pack(a_negative, a, a_exponent, False, spec, draw)
    a_shift = _TOP - bit_length(a)
    b_shift = _TOP - bit_length(b)
    a <<= a_shift
    b <<= b_shift
    a_exponent -= a_shift
    b_exponent -= b_shift
    if b_exponent > a_exponent or (b_exponent == a_exponent and b > a):
        a_negative, b_negative = b_negative, a_negative
        a, b = b, a
        a_exponent, b_exponent = b_exponent, a_exponent
    distance = a_exponent - b_exponent
    if distance > 62:
        kept, lost = 0, True
    else:
        kept = b >> distance
        lost = (kept << distance) != b
    if a_negative == b_negative:
        return round_pack(a_negative, a + kept, a_exponent, lost, spec, draw)
    difference = a - kept - lost
    if difference == 0:
        return (spec.sign_bit if spec.mode == TOWARD_NEGATIVE else 0), 0
    return round_pack(a_negative, difference, a_exponent, lost, spec, draw)


@jit
def add(a, b, c, spec, draw):
    """a + b."""
    a_kind, a_negative, a_significand, a_exponent = unpack(a, spec)
    b_kind, b_negative, b_significand, b_exponent = unpack(b, spec)
    if a_kind == FINITE and b_kind == FINITE:
        return sum_exactly(
            a_negative, a_significand, a_exponent, b_negative, b_significand, b_exponent, spec, draw
        )
    if a_kind >= QUIET or b_kind >= QUIET:
        return not_a_number(spec, a_kind == SIGNALLING or b_kind == SIGNALLING)
    if a_kind == INFINITE and b_kind == INFINITE and a_negative != b_negative:
        return not_a_number(spec, True)
    return infinity(a_negative if a_kind == INFINITE else b_negative, spec, 0)


@jit
def subtract(a, b, c, spec, draw):
    """a - b."""
    return add(a, b ^ spec.sign_bit, c, spec, draw)


@jit
def multiply(a, b, c, spec, draw):
    """a * b; the product of significands below 2^24 is exact."""
    a_kind, a_negative, a_significand, a_exponent = unpack(a, spec)
    b_kind, b_negative, b_significand, b_exponent = unpack(b, spec)
    negative = a_negative != b_negative
    if a_kind == FINITE and b_kind == FINITE:
        return round_pack(negative, a_significand * b_significand, a_exponent + b_exponent, False, spec, draw)
    if a_kind >= QUIET or b_kind >= QUIET:
        return not_a_number(spec, a_kind == SIGNALLING or b_kind == SIGNALLING)
    if (a_kind == FINITE and a_significand == 0) or (b_kind == FINITE and b_significand == 0):
        return not_a_number(spec, True)
    return infinity(negative, spec, 0)


@jit
def divide(a, b, c, spec, draw):
    """a / b, a quotient of 60 bits and whether a remainder is left."""
    a_kind, a_negative, a_significand, a_exponent = unpack(a, spec)
    b_kind, b_negative, b_significand, b_exponent = unpack(b, spec)
    negative = a_negative != b_negative
    if a_kind >= QUIET or b_kind >= QUIET:
        return not_a_number(spec, a_kind == SIGNALLING or b_kind == SIGNALLING)
    if a_kind == INFINITE:
        return not_a_number(spec, True) if b_kind == INFINITE else infinity(negative, spec, 0)
    if b_kind == INFINITE:
        return (spec.sign_bit if negative else 0), 0
    if b_significand == 0:
        return not_a_number(spec, True) if a_significand == 0 else infinity(negative, spec, DIVIDE_BY_ZERO)
    if a_significand == 0:
        return (spec.sign_bit if negative else 0), 0
    # Both to 24 bits; then a quotient of 60 or 61 bits in two steps, and whether a remainder is left.
    a_shift = 24 - bit_length(a_significand)
    b_shift = 24 - bit_length(b_significand)
    dividend = a_significand << (a_shift + 24)
    divisor = b_significand << b_shift
    high = dividend // divisor
    rest = (dividend - high * divisor) << 36
    low = rest // divisor
    exponent = (a_exponent - a_shift) - (b_exponent - b_shift) - 60
    return round_pack(negative, (high << 36) + low, exponent, low * divisor != rest, spec, draw)


@jit
def fma(a, b, c, spec, draw):
    """a * b + c, rounded once."""
    a_kind, a_negative, a_significand, a_exponent = unpack(a, spec)
    b_kind, b_negative, b_significand, b_exponent = unpack(b, spec)
    c_kind, c_negative, c_significand, c_exponent = unpack(c, spec)
    negative = a_negative != b_negative
    signalling = a_kind == SIGNALLING or b_kind == SIGNALLING or c_kind == SIGNALLING
    if a_kind >= QUIET or b_kind >= QUIET:
        return not_a_number(spec, signalling)
    product_infinite = a_kind == INFINITE or b_kind == INFINITE
    if product_infinite and (
        (a_kind == FINITE and a_significand == 0) or (b_kind == FINITE and b_significand == 0)
    ):
        return not_a_number(spec, True)  # also where c is a quiet NaN, as SoftFloat has it
    if c_kind >= QUIET:
        return not_a_number(spec, signalling)
    if product_infinite:
        if c_kind == INFINITE and c_negative != negative:
            return not_a_number(spec, True)
        return infinity(negative, spec, 0)
    if c_kind == INFINITE:
        return infinity(c_negative, spec, 0)
    return sum_exactly(
        negative,
        a_significand * b_significand,
        a_exponent + b_exponent,
        c_negative,
        c_significand,
        c_exponent,
        spec,
        draw,
    )


@jit
def sqrt(a, b, c, spec, draw):
    """Square root of a, 59 bits and whether a remainder is left."""
    kind, negative, significand, exponent = unpack(a, spec)
    if kind >= QUIET:
        return not_a_number(spec, kind == SIGNALLING)
    if kind == FINITE and significand == 0:
        return (spec.sign_bit if negative else 0), 0
    if negative:
        return not_a_number(spec, True)
    if kind == INFINITE:
        return infinity(False, spec, 0)
    # An even exponent and 59 or 60 bits below it: 30 root bits at once would do for values, stochastic
    # rounding wants 58, so the root is found bit by bit with its remainder (below 2 * root + 2 < 2^61).
    shift = 60 - bit_length(significand)
    shift -= (exponent - shift) & 1
    radicand = significand << shift
    exponent = (exponent - shift) // 2 - 29
    root = 0
    remainder = 0
    for place in range(59):
        pair = (radicand >> (58 - 2 * place)) & 3 if place < 30 else 0
        remainder = (remainder << 2) | pair
        trial = (root << 2) | 1
        root <<= 1
        if remainder >= trial:
            remainder -= trial
            root |= 1
    return round_pack(False, root, exponent, remainder != 0, spec, draw)


@jit
def ieee_remainder(a, b, c, spec, draw):
    """x - y * n with n the integer nearest to x / y, ties to even (IEEE 754-2019 clause 5.3.1); exact."""
    a_kind, a_negative, x, x_exponent = unpack(a, spec)
    b_kind, _, y, y_exponent = unpack(b, spec)
    if a_kind >= QUIET or b_kind >= QUIET:
        return not_a_number(spec, a_kind == SIGNALLING or b_kind == SIGNALLING)
    if a_kind == INFINITE or (b_kind == FINITE and y == 0):
        return not_a_number(spec, True)
    if b_kind == INFINITE or x_exponent < y_exponent - 26:  # then |x| < |y| / 4
        return round_pack(a_negative, x, x_exponent, False, spec, draw)
    if x_exponent < y_exponent:
        y <<= y_exponent - x_exponent
        y_exponent = x_exponent
    quotient = x // y
    x -= quotient * y
    distance = x_exponent - y_exponent
    while distance > 0:
        step = min(distance, 36)  # x < y < 2^24 wherever the distance is positive
        x <<= step
        quotient = x // y
        x -= quotient * y
        distance -= step
    negative = a_negative
    if 2 * x > y or (2 * x == y and quotient & 1):
        x = y - x
        negative = not negative
    if x == 0:
        return (spec.sign_bit if a_negative else 0), 0
    return round_pack(negative, x, y_exponent, False, spec, draw)


@jit
def rint(a, b, c, spec, draw):
    """Round to an integral value, raising inexact (roundToIntegralExact)."""
    kind, negative, significand, exponent = unpack(a, spec)
    if kind >= QUIET:
        return not_a_number(spec, kind == SIGNALLING)
    if kind == INFINITE:
        return infinity(negative, spec, 0)
    if exponent >= 0 or significand == 0:
        return round_pack(negative, significand, exponent, False, spec, draw)
    whole, threshold, order = split(significand, -exponent, False)
    whole += increments(spec.mode, negative, whole & 1 == 1, order, threshold, draw)
    bits, flags = round_pack(negative, whole, 0, False, spec, draw)
    return bits, flags | (INEXACT if order else 0)


@jit
def ldexp(a, b, c, spec, draw):
    """Multiply by 2^b, b an integer, with one rounding (scaleB)."""
    kind, negative, significand, exponent = unpack(a, spec)
    if kind >= QUIET:
        return not_a_number(spec, kind == SIGNALLING)
    if kind == INFINITE:
        return infinity(negative, spec, 0)
    return round_pack(negative, significand, exponent + b, False, spec, draw)


@jit
def logb(a, b, c, spec, draw):
    """Exponent of the value as a number of the format."""
    kind, _, significand, exponent = unpack(a, spec)
    if kind >= QUIET:
        return not_a_number(spec, kind == SIGNALLING)
    if kind == INFINITE:
        return infinity(False, spec, 0)
    if significand == 0:
        return infinity(True, spec, DIVIDE_BY_ZERO)
    exponent += bit_length(significand) - 1
    return round_pack(exponent < 0, abs(exponent), 0, False, spec, draw)


@jit
def ordered(bits, spec):
    """Map encodings of finite and infinite values to integers in the order of the values, -0 below +0."""
    magnitude = bits & ~spec.sign_bit
    return -magnitude - 1 if bits & spec.sign_bit else magnitude


@jit
def passed(bits, kind, negative, significand, exponent, spec):
    """Deliver an operand as a result: what saturation and flushing do to results applies."""
    if kind == INFINITE:
        return infinity(negative, spec, 0)
    return round_pack(negative, significand, exponent, False, spec, 0)


@jit
def minimum(a, b, c, spec, draw):
    """IEEE 754-2019 minimum: NaN propagates, -0 is below +0."""
    a_kind, a_negative, a_significand, a_exponent = unpack(a, spec)
    b_kind, b_negative, b_significand, b_exponent = unpack(b, spec)
    if a_kind >= QUIET or b_kind >= QUIET:
        return not_a_number(spec, a_kind == SIGNALLING or b_kind == SIGNALLING)
    if ordered(a, spec) <= ordered(b, spec):
        return passed(a, a_kind, a_negative, a_significand, a_exponent, spec)
    return passed(b, b_kind, b_negative, b_significand, b_exponent, spec)


@jit
def maximum(a, b, c, spec, draw):
    """IEEE 754-2019 maximum: NaN propagates, +0 is above -0."""
    a_kind, a_negative, a_significand, a_exponent = unpack(a, spec)
    b_kind, b_negative, b_significand, b_exponent = unpack(b, spec)
    if a_kind >= QUIET or b_kind >= QUIET:
        return not_a_number(spec, a_kind == SIGNALLING or b_kind == SIGNALLING)
    if ordered(a, spec) >= ordered(b, spec):
        return passed(a, a_kind, a_negative, a_significand, a_exponent, spec)
    return passed(b, b_kind, b_negative, b_significand, b_exponent, spec)


@jit
def nextafter(a, b, c, spec, draw):
    """The neighbour of a towards b; b itself where they are equal. Raises nothing but invalid."""
    a_kind, a_negative, _, _ = unpack(a, spec)
    b_kind, b_negative, _, _ = unpack(b, spec)
    if a_kind >= QUIET or b_kind >= QUIET:
        return not_a_number(spec, a_kind == SIGNALLING or b_kind == SIGNALLING)
    # Where subnormals are flushed, read as zero or missing, the neighbours of zero are the smallest normals.
    skips = spec.zero_inputs or spec.flush or spec.no_subnormals
    smallest = 1 << (spec.precision - 1) if skips else 1
    start = a & ~spec.sign_bit
    goal = b & ~spec.sign_bit
    start = start if start >= smallest else 0
    goal = goal if goal >= smallest else 0
    from_value = -start if a_negative else start
    to_value = -goal if b_negative else goal
    if from_value == to_value:
        if b_kind == INFINITE:
            return infinity(b_negative, spec, 0)
        return (spec.sign_bit if b_negative else 0) | goal, 0
    if start == 0:
        return (spec.sign_bit if to_value < 0 else 0) | smallest, 0
    away = (to_value > from_value) != a_negative
    code = start + 1 if away else (start - 1 if start > smallest else 0)
    if a_kind == INFINITE and not away:
        code = spec.max_bits
    if code > spec.max_bits:
        return infinity(a_negative, spec, 0)
    return (spec.sign_bit if a_negative else 0) | code, 0


@jit
def convert(a, b, c, source, target, draw):
    """Round a value of one format to another."""
    kind, negative, significand, exponent = unpack(a, source)
    if kind >= QUIET:
        return not_a_number(target, kind == SIGNALLING)
    if kind == INFINITE:
        return infinity(negative, target, 0)
    return round_pack(negative, significand, exponent, False, target, draw)


@jit
def convert_integer(negative, magnitude, target, draw):
    """Round an integer of up to 64 bits to a format."""
    if magnitude >> 62:  # two bits too many: they become the rest below a significand of 60 bits or more
        return round_pack(negative, np.int64(magnitude >> 2), 2, (magnitude & 3) != 0, target, draw)
    return round_pack(negative, np.int64(magnitude), 0, False, target, draw)


@jit
def apply(operation, a, b, c, spec, draw):
    """Perform the operation with that number in `OPERATIONS`."""
    if operation == 0:
        return add(a, b, c, spec, draw)
    if operation == 1:
        return subtract(a, b, c, spec, draw)
    if operation == 2:
        return multiply(a, b, c, spec, draw)
    if operation == 3:
        return divide(a, b, c, spec, draw)
    if operation == 4:
        return fma(a, b, c, spec, draw)
    if operation == 5:
        return sqrt(a, b, c, spec, draw)
    if operation == 6:
        return ieee_remainder(a, b, c, spec, draw)
    if operation == 7:
        return rint(a, b, c, spec, draw)
    if operation == 8:
        return ldexp(a, b, c, spec, draw)
    if operation == 9:
        return logb(a, b, c, spec, draw)
    if operation == 10:
        return minimum(a, b, c, spec, draw)
    if operation == 11:
        return maximum(a, b, c, spec, draw)
    return nextafter(a, b, c, spec, draw)


OPERATIONS = (
    "add",
    "subtract",
    "multiply",
    "divide",
    "fma",
    "sqrt",
    "ieee_remainder",
    "rint",
    "ldexp",
    "logb",
    "minimum",
    "maximum",
    "nextafter",
)
"""Names in the order of their numbers in `apply`."""
