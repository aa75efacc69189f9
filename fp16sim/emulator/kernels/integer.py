"""Rounding in 64-bit integers, for any format and mode: the fast twin of ``reference.round_value``.

An exact result arrives as ``(-1)^negative * (significand + rest) * 2^exponent`` with an integer significand
below 2^62 and a rest in [0, 1) of which only is known whether it is zero (`sticky`). A nonzero rest is allowed
only below significands of at least precision + 34 bits, so that the rest lies under the 32 fraction bits which
stochastic rounding looks at.
"""

from __future__ import annotations

from typing import NamedTuple

from fp16sim.emulator.flags import DIVIDE_BY_ZERO, INEXACT, INVALID, OVERFLOW, SUBNORMAL, UNDERFLOW
from fp16sim.emulator.kernels.jit import jit

__all__ = [
    "DIVIDE_BY_ZERO",
    "FINITE",
    "INEXACT",
    "INFINITE",
    "INVALID",
    "NEAREST_AWAY",
    "NEAREST_EVEN",
    "QUIET",
    "SIGNALLING",
    "STOCHASTIC",
    "TOWARD_NEGATIVE",
    "TOWARD_POSITIVE",
    "TOWARD_ZERO",
    "TO_ODD",
    "Spec",
    "bit_length",
    "increments",
    "infinity",
    "round_pack",
    "split",
    "unpack",
]

# Modes are known by their places in `rounding.MODES`.
NEAREST_EVEN, NEAREST_AWAY, TOWARD_ZERO, TOWARD_POSITIVE, TOWARD_NEGATIVE, TO_ODD, STOCHASTIC = range(7)
FINITE, INFINITE, QUIET, SIGNALLING = range(4)
EXACT, BELOW_HALF, HALF, ABOVE_HALF = range(4)


class Spec(NamedTuple):
    """A format and a rounding rule as integers, which is how kernels see them."""

    precision: int
    emin: int
    sign_bit: int
    max_bits: int
    inf_bits: int  # -1: none
    nan_bits: int
    all_ones_nan: int
    no_subnormals: int
    mode: int
    flush: int
    zero_inputs: int
    saturate: int
    tiny_before: int
    overflow_gap: int  # encodings from the largest finite value to 2^(emax+1)
    key: int  # of the random bits


@jit
def bit_length(n):
    """Position of the highest set bit plus one, for 0 <= n < 2^63."""
    length = 0
    if n >> 32:
        n >>= 32
        length += 32
    if n >> 16:
        n >>= 16
        length += 16
    if n >> 8:
        n >>= 8
        length += 8
    if n >> 4:
        n >>= 4
        length += 4
    if n >> 2:
        n >>= 2
        length += 2
    if n >> 1:
        n >>= 1
        length += 1
    return length + n


@jit
def unpack(bits, spec):
    """Take an encoding apart: (kind, negative, significand, exponent of the significand's last bit)."""
    negative = (bits & spec.sign_bit) != 0
    magnitude = bits & ~spec.sign_bit
    fraction_bits = spec.precision - 1
    if magnitude > spec.max_bits:
        if magnitude == spec.inf_bits:
            return INFINITE, negative, 0, 0
        quiet = spec.all_ones_nan or (magnitude >> (fraction_bits - 1)) & 1
        return (QUIET if quiet else SIGNALLING), negative, 0, 0
    field = magnitude >> fraction_bits
    significand = magnitude & ((1 << fraction_bits) - 1)
    if field == 0:
        if spec.zero_inputs or spec.no_subnormals:
            significand = 0
        return FINITE, negative, significand, spec.emin - fraction_bits
    return FINITE, negative, significand | (1 << fraction_bits), field - 1 + spec.emin - fraction_bits


@jit
def split(significand, shift, sticky):
    """Divide by 2^shift: (whole part, floor(fraction * 2^32), how the fraction compares with a half)."""
    if shift <= 0:
        return significand << -shift, 0, EXACT
    if shift > 62:
        threshold = significand >> (shift - 32) if shift < 95 else 0
        return 0, threshold, BELOW_HALF
    whole = significand >> shift
    rest = significand - (whole << shift)
    threshold = rest << (32 - shift) if shift <= 32 else rest >> (shift - 32)
    half = 1 << (shift - 1)
    if rest == 0 and not sticky:
        order = EXACT
    elif rest < half:
        order = BELOW_HALF
    elif rest == half and not sticky:
        order = HALF
    else:
        order = ABOVE_HALF
    return whole, threshold, order


@jit
def increments(mode, negative, odd, order, threshold, draw):
    """Whether an inexact whole part is rounded away from zero: ``rounding.round_fraction`` in integers."""
    if order == EXACT:
        return False
    if mode == NEAREST_EVEN:
        return order == ABOVE_HALF or (order == HALF and odd)
    if mode == NEAREST_AWAY:
        return order >= HALF
    if mode == TOWARD_ZERO:
        return False
    if mode == TOWARD_POSITIVE:
        return not negative
    if mode == TOWARD_NEGATIVE:
        return negative
    if mode == TO_ODD:
        return not odd
    return draw < threshold


@jit
def infinity(negative, spec, flags):
    """Deliver an infinite result: (encoding, flags)."""
    sign = spec.sign_bit if negative else 0
    if spec.saturate:
        return sign | spec.max_bits, flags | OVERFLOW | INEXACT
    if spec.inf_bits >= 0:
        return sign | spec.inf_bits, flags
    return spec.nan_bits, flags | OVERFLOW | INEXACT


@jit
def overflow(negative, spec):
    """Deliver a finite result beyond the largest finite value: (encoding, flags)."""
    sign = spec.sign_bit if negative else 0
    mode = spec.mode
    stays = (
        mode == TOWARD_ZERO
        or mode == TO_ODD
        or (mode == TOWARD_POSITIVE and negative)
        or (mode == TOWARD_NEGATIVE and not negative)
    )
    if stays:
        return sign | spec.max_bits, OVERFLOW | INEXACT
    return infinity(negative, spec, OVERFLOW | INEXACT)


@jit
def round_pack(negative, significand, exponent, sticky, spec, draw):
    """Round an exact result once and encode it: (encoding, flags)."""
    sign = spec.sign_bit if negative else 0
    if significand == 0:
        return sign, 0
    top = exponent + bit_length(significand) - 1
    binade = max(top, spec.emin)
    shift = binade - (spec.precision - 1) - exponent
    whole, threshold, order = split(significand, shift, sticky)
    # A normal whole part carries the implicit bit, which adds the one that the exponent field lacks here.
    below = ((binade - spec.emin) << (spec.precision - 1)) + whole

    if spec.mode == STOCHASTIC and below >= spec.max_bits:
        beyond = below - spec.max_bits
        if beyond >= spec.overflow_gap:
            return overflow(negative, spec)
        threshold = ((beyond << 32) + threshold) // spec.overflow_gap
        if draw < threshold:
            return overflow(negative, spec)
        return sign | spec.max_bits, (INEXACT if beyond or order != EXACT else 0)

    code = below + increments(spec.mode, negative, whole & 1 == 1, order, threshold, draw)
    if code > spec.max_bits:
        return overflow(negative, spec)
    if top >= spec.emin:
        return sign | code, (0 if order == EXACT else INEXACT)

    tiny = True
    if not spec.tiny_before and top == spec.emin - 1:
        # Tiny after rounding: would precision bits at this exponent still stay below 2^emin?
        finer, threshold, fine_order = split(significand, shift - 1, sticky)
        finer += increments(spec.mode, negative, finer & 1 == 1, fine_order, threshold, draw)
        tiny = (finer >> spec.precision) == 0
    if tiny and (spec.flush or spec.no_subnormals):
        return sign, UNDERFLOW | INEXACT
    flags = 0 if order == EXACT else INEXACT
    if tiny and flags:
        flags |= UNDERFLOW
    if 0 < code < 1 << (spec.precision - 1):
        flags |= SUBNORMAL
    return sign | code, flags
