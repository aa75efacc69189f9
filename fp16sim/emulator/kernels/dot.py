"""Dot products in 64-bit integers, for every way to accumulate: slow, complete, and what fast kernels fall back on.

The loops read `Rules`, a datapath written as integers, and encodings of any format. Flags and swamped additions
are counted on the way. Equal to `reference_dot.py` on every input.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fp16sim.emulator.kernels import wide
from fp16sim.emulator.kernels.integer import (
    FINITE,
    INEXACT,
    INFINITE,
    OVERFLOW,
    QUIET,
    SIGNALLING,
    SUBNORMAL,
    UNDERFLOW,
    Spec,
    bit_length,
    infinity,
    round_pack,
    unpack,
)
from fp16sim.emulator.kernels.jit import jit
from fp16sim.emulator.kernels.operations import convert, not_a_number, sum_exactly

__all__ = [
    "BLOCKS",
    "COMPENSATED",
    "EXACT",
    "NEVER",
    "PAIRWISE",
    "PIECES",
    "SEQUENTIAL",
    "SWAMPED",
    "Rules",
    "dot_loop",
    "dot_products",
]

SEQUENTIAL, PAIRWISE, PIECES, COMPENSATED, BLOCKS, EXACT = range(6)

SWAMPED = 6
"""Where counts hold the swamped additions, after the six flags."""

NEVER = -10_000
"""An exponent below all that occur."""

# For arguments: numba compiles a function anew for each literal that it is called with.
_ZERO, _NO = np.int64(0), np.bool_(False)


class Rules(NamedTuple):
    """A datapath, and the formats around it, as integers."""

    operand: Spec
    product: Spec  # to which products are rounded, if they are
    accumulator: Spec  # its mode is the rounding of sums; of c, where the sum is exact
    result: Spec
    round_products: int
    convert_result: int  # whether the result's format is not the accumulator's
    order: int
    piece: int  # products in a piece or block; negative: minus the number of pieces
    fraction_bits: int  # kept when the terms of a block are aligned
    zero_exponent: int  # by which exactly zero terms of a block align, or NEVER
    keep_negative_zero: int
    normalized_accumulator: int
    nan_bits: int  # what a NaN is delivered as


@jit
def count(raised, counts):
    """Count the flags of one rounding."""
    if raised:
        for place in range(6):
            counts[place] += (raised >> place) & 1


@jit
def product_term(a, b, rules):
    """Multiply exactly: (kind, negative, significand, exponent); a NaN that raises invalid is SIGNALLING."""
    a_kind, a_negative, a_significand, a_exponent = unpack(np.int64(a), rules.operand)
    b_kind, b_negative, b_significand, b_exponent = unpack(np.int64(b), rules.operand)
    negative = a_negative != b_negative
    if a_kind == FINITE and b_kind == FINITE:
        return FINITE, negative, a_significand * b_significand, a_exponent + b_exponent
    if a_kind == SIGNALLING or b_kind == SIGNALLING:
        return SIGNALLING, False, 0, 0
    if a_kind == QUIET or b_kind == QUIET:
        return QUIET, False, 0, 0
    zero = (a_kind == FINITE and a_significand == 0) or (b_kind == FINITE and b_significand == 0)
    return (SIGNALLING if zero else INFINITE), negative, 0, 0


@jit
def term(a, b, i, j, k, rules, counts):
    """Product k of the dot product, rounded if the rules say so; a[i, k] alone in a sum, where b is empty."""
    if b.size == 0:
        return unpack(np.int64(a[i, k]), rules.operand)
    kind, negative, significand, exponent = product_term(a[i, k], b[k, j], rules)
    if rules.round_products:
        bits, raised = round_term(kind, negative, significand, exponent, rules.product)
        count(raised, counts)
        return unpack(bits, rules.product)
    return kind, negative, significand, exponent


@jit
def round_term(kind, negative, significand, exponent, spec):
    """Deliver a term to a format: (encoding, flags)."""
    if kind >= QUIET:
        return not_a_number(spec, kind == SIGNALLING)
    if kind == INFINITE:
        return infinity(negative, spec, _ZERO)
    return round_pack(negative, significand, exponent, _NO, spec, _ZERO)


@jit
def add_term(total, kind, negative, significand, exponent, spec, counts):
    """Add a term to an accumulator and round once: the new accumulator."""
    bits = round_sum(total, kind, negative, significand, exponent, spec, counts)
    # Where the encoding stays, the accumulator is zero, or it was not changed.
    if bits == total and significand and total & ~spec.sign_bit:
        counts[SWAMPED] += total & ~spec.sign_bit <= spec.max_bits
    return bits


@jit
def round_sum(total, kind, negative, significand, exponent, spec, counts):
    """Add a term to a number of the accumulator's format and round once, not as an addition that can be swamped."""
    t_kind, t_negative, t_significand, t_exponent = unpack(total, spec)
    if kind == FINITE and t_kind == FINITE:
        bits, raised = sum_exactly(
            t_negative, t_significand, t_exponent, negative, significand, exponent, spec, _ZERO
        )
    elif kind >= QUIET or t_kind >= QUIET:
        bits, raised = not_a_number(spec, kind == SIGNALLING or t_kind == SIGNALLING)
    elif kind == INFINITE and t_kind == INFINITE and negative != t_negative:
        bits, raised = not_a_number(spec, not _NO)
    else:
        bits, raised = infinity(negative if kind == INFINITE else t_negative, spec, _ZERO)
    count(raised, counts)
    return bits


@jit
def add_total(total, addend, spec, counts):
    """Add two accumulators and round once."""
    kind, negative, significand, exponent = unpack(addend, spec)
    return add_term(total, kind, negative, significand, exponent, spec, counts)


@jit
def one_by_one(a, b, i, j, first, last, total, rules, counts):
    """Products `first` to `last` added to the accumulator in order."""
    for k in range(first, last):
        kind, negative, significand, exponent = term(a, b, i, j, k, rules, counts)
        total = add_term(total, kind, negative, significand, exponent, rules.accumulator, counts)
    return total


@jit
def difference(minuend, subtrahend, spec, counts):
    """Subtract two numbers of the accumulator's format and round once."""
    kind, negative, significand, exponent = unpack(subtrahend ^ spec.sign_bit, spec)
    return round_sum(minuend, kind, negative, significand, exponent, spec, counts)


@jit
def compensated(a, b, i, j, first, last, total, rules, counts):
    """Kahan's algorithm: y = x - e; t = s + y; e = (t - s) - y; s = t, each rounded."""
    spec = rules.accumulator
    error = np.int64(0)
    for k in range(first, last):
        kind, negative, significand, exponent = term(a, b, i, j, k, rules, counts)
        corrected = round_sum(error ^ spec.sign_bit, kind, negative, significand, exponent, spec, counts)
        before = total
        total = add_total(before, corrected, spec, counts)
        error = difference(difference(total, before, spec, counts), corrected, spec, counts)
    return total


@jit
def pairwise(a, b, i, j, depth, total, rules, partial, counts):
    """A tree that splits at the largest power of two below its length, then c + tree."""
    spec = rules.accumulator
    height = 0
    for k in range(depth):
        kind, negative, significand, exponent = term(a, b, i, j, k, rules, counts)
        # The accumulator's format holds the term; a signalling NaN must raise invalid where it is added.
        leaf, _ = round_term(kind, negative, significand, exponent, spec)
        partial[height] = spec.inf_bits + 1 if kind == SIGNALLING and spec.inf_bits > 0 else leaf
        height += 1
        # Complete subtrees of equal size are joined at once: as many as k + 1 has trailing zeros.
        complete = k + 1
        while complete & 1 == 0:
            height -= 1
            partial[height - 1] = add_total(partial[height - 1], partial[height], spec, counts)
            complete >>= 1
    while height > 1:
        height -= 1
        partial[height - 1] = add_total(partial[height - 1], partial[height], spec, counts)
    return add_total(total, partial[0], spec, counts) if height else total


@jit
def one_block(a, b, i, j, first, last, total, rules, significands, exponents, counts):
    """Add the products of a block and the accumulator at once, cut and rounded once: the new accumulator.

    A block that lacks products at its end has zeros there.
    """
    spec = rules.accumulator
    # From the last bit of a term's significand to the point by which it aligns.
    point = (rules.operand.precision - 1) * (2 if b.size else 1)
    total_kind, total_negative, total_significand, total_exponent = unpack(total, spec)
    nans = 1 if total_kind == QUIET else 2 if total_kind == SIGNALLING else 0
    infinities = 0 if total_kind != INFINITE else 2 if total_negative else 1
    negative_zeros = total_negative and last - first == rules.piece
    zeros = total_significand == 0 or last - first < rules.piece
    largest = NEVER
    for k in range(first, last):
        kind, negative, significand, exponent = term(a, b, i, j, k, rules, counts)
        significands[k - first] = -significand if negative else significand
        exponents[k - first] = exponent
        negative_zeros &= negative
        if kind == INFINITE:
            infinities |= 2 if negative else 1
        elif kind != FINITE:
            nans |= 1 if kind == QUIET else 2
        elif significand:
            largest = max(largest, exponent + point)
        else:
            zeros = True
    if nans or infinities:
        if nans or infinities == 3:
            bits, raised = not_a_number(spec, nans != 1)
        else:
            bits, raised = infinity(infinities == 2, spec, _ZERO)
        count(raised, counts)
        return bits
    if largest == NEVER:  # nothing but zeros: the accumulator stays
        if total_significand == 0:
            return spec.sign_bit if negative_zeros and rules.keep_negative_zero else 0
        bits, raised = round_term(total_kind, total_negative, total_significand, total_exponent, spec)
        count(raised, counts)
        return bits

    if total_significand:
        leading = bit_length(total_significand) if rules.normalized_accumulator else spec.precision
        largest = max(largest, total_exponent + leading - 1)
    if zeros:
        largest = max(largest, rules.zero_exponent)
    unit = largest - rules.fraction_bits
    products = 0
    lost = False
    for n in range(last - first):
        kept, inexact = cut(significands[n], exponents[n] - unit)
        products += kept
        lost |= inexact
    kept, inexact = cut(-total_significand if total_negative else total_significand, total_exponent - unit)
    bits, raised = round_block(products + kept, unit, spec)
    if bits == spec.sign_bit and not rules.keep_negative_zero:
        bits = np.int64(0)
    if total_significand and bits == total and (products or lost):
        counts[SWAMPED] += 1
    if lost or inexact:  # whatever became of the rest
        raised |= INEXACT | (UNDERFLOW if raised & SUBNORMAL else 0)
    count(raised, counts)
    return bits


@jit
def round_block(whole, unit, spec):
    """Round whole * 2^unit: (encoding, flags). An overflow is an infinity in every mode."""
    magnitude = abs(whole)
    spare = magnitude >> 62  # 63 bits are one too many for round_pack: the last becomes the rest
    bits, raised = round_pack(
        whole < 0, magnitude >> spare, unit + spare, (spare & magnitude) != 0, spec, _ZERO
    )
    if raised & OVERFLOW:
        bits, _ = infinity(whole < 0, spec, _ZERO)
    return bits, raised


@jit
def cut(significand, shift):
    """Multiply by 2^shift and drop the fraction, toward zero: (what is kept, whether anything was lost)."""
    if shift >= 0:
        return significand << shift, False
    shift = min(-shift, 63)
    magnitude = abs(significand)
    kept = magnitude >> shift
    return (-kept if significand < 0 else kept), kept << shift != magnitude


@jit
def exactly(a, b, i, j, depth, total, rules, digits, counts):
    """The exact sum, c (binary32) included, rounded once to the result's format."""
    digits[:] = 0
    nans = 0
    infinities = 0
    negative_zeros = True
    for k in range(-1, depth):
        if k < 0:
            kind, negative, significand, exponent = unpack(total, rules.accumulator)
        else:
            kind, negative, significand, exponent = term(a, b, i, j, k, rules, counts)
        negative_zeros &= negative and significand == 0
        if kind == INFINITE:
            infinities |= 2 if negative else 1
            if infinities == 3 and not nans:
                nans = 2
        elif kind != FINITE:
            nans |= 1 if kind == QUIET else 2
        elif significand:
            wide.accumulate(digits, negative, significand, exponent)
            if k & 0xFFFFFFF == 0xFFFFFFF:
                wide.carry(digits)
    if nans:
        bits, raised = not_a_number(rules.result, nans != 1)
    elif infinities:
        bits, raised = infinity(infinities == 2, rules.result, _ZERO)
    else:
        bits, raised = wide.round_sum(digits, rules.result)
        if negative_zeros:
            bits = rules.result.sign_bit
    count(raised, counts)
    return bits


@jit
def accumulate(a, b, i, j, total, rules, digits, partial, exponents, counts):
    """One element of the result, from its accumulator input to its final rounding."""
    depth = a.shape[1]
    if rules.order == EXACT:
        return exactly(a, b, i, j, depth, total, rules, digits, counts)
    if rules.order == PAIRWISE:
        total = pairwise(a, b, i, j, depth, total, rules, partial, counts)
    elif rules.order == PIECES:
        length = rules.piece if rules.piece > 0 else max(1, -(depth // rules.piece))
        for first in range(0, depth, length):
            last = min(first + length, depth)
            piece = one_by_one(a, b, i, j, first, last, np.int64(0), rules, counts)
            total = add_total(total, piece, rules.accumulator, counts)
    elif rules.order == COMPENSATED:
        total = compensated(a, b, i, j, _ZERO, depth, total, rules, counts)
    elif rules.order == BLOCKS:
        for first in range(0, depth, rules.piece):
            last = min(first + rules.piece, depth)
            total = one_block(a, b, i, j, first, last, total, rules, partial, exponents, counts)
    else:
        total = one_by_one(a, b, i, j, _ZERO, depth, total, rules, counts)
    kind, _, _, _ = unpack(total, rules.accumulator)
    if rules.convert_result:
        total, raised = convert(total, _ZERO, _ZERO, rules.accumulator, rules.result, _ZERO)
        count(raised, counts)
    return rules.nan_bits if kind >= QUIET else total


@jit
def dot_loop(a, b, c, out, counts, rules):
    """out = c + a @ b on encodings: (m, k), (k, n), (m, n). An empty b makes out[i, 0] the sum of row i of a."""
    digits = np.zeros(wide.DIGITS, np.int64)
    room = max(64, rules.piece)  # a tree of 2^64 products, a block
    partial = np.zeros(room, np.int64)
    exponents = np.zeros(room, np.int64)
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = accumulate(a, b, i, j, np.int64(c[i, j]), rules, digits, partial, exponents, counts)


def dot_products(
    a: npt.NDArray[Any],
    b: npt.NDArray[Any] | None,
    c: npt.NDArray[Any] | None,
    out: npt.NDArray[Any],
    rules: Rules,
) -> npt.NDArray[np.int64]:
    """Compute out = c + a @ b as the rules say.

    Parameters
    ----------
    a, b : array
        Encodings of the operands, (m, k) and (k, n), of any strides. b = None: sums of the rows of a, n = 1.
    c : array or None
        Encodings of the accumulators' format, (m, n), of the exact sum binary32; None: +0.
    out : array
        For encodings of the result's format, (m, n).

    Returns
    -------
    array of int64
        How often each flag was raised, then the number of swamped additions, at SWAMPED.
    """
    counts = np.zeros(SWAMPED + 1, np.int64)
    # One type for all formats: the loop takes seconds to compile.
    right = np.empty((0, 0), np.uint32) if b is None else np.ascontiguousarray(b, np.uint32)
    start = np.zeros(out.shape, np.uint32) if c is None else np.ascontiguousarray(c, np.uint32)
    place = np.empty(out.shape, np.uint32)
    dot_loop(np.ascontiguousarray(a, np.uint32), right, start, place, counts, rules)
    out[...] = place
    return counts
