"""How encodings are read into the numbers that processors add, and written back with one canonical NaN.

binary32 and binary64 are carried as they are, binary16 and bfloat16 as binary32 numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic, overload

from fp16sim.emulator.kernels.half import (
    bits_of_single,
    round_to_half,
    shift_left,
    shift_right,
    single_of_bits,
    store,
    widen,
)
from fp16sim.emulator.kernels.jit import jit

__all__ = [
    "BRAIN",
    "HALF",
    "NATIVE",
    "encode",
    "encoded",
    "number",
    "round_to_brain",
    "rounded",
    "value_of",
    "widen_brain",
]

_CARRIERS: dict[Any, Any] = {
    types.uint32: (types.float32, ir.FloatType()),
    types.uint64: (types.float64, ir.DoubleType()),
}
_ENCODINGS: dict[Any, Any] = {
    types.float32: (types.uint32, ir.IntType(32), 0x7FC00000),
    types.float64: (types.uint64, ir.IntType(64), 0x7FF8000000000000),
}


@intrinsic
def value_of(typing, bits):
    """Encoding -> number: uint32 -> float32, uint64 -> float64."""
    kind, element = _CARRIERS[bits]
    return kind(bits), lambda context, b, signature, args: b.bitcast(args[0], element)


@intrinsic
def encode(typing, x):
    """Number -> encoding, the canonical one of a NaN: float32 -> uint32, float64 -> uint64."""
    kind, word, nan = _ENCODINGS[x]

    def generate(context, b, signature, args):
        return b.select(b.fcmp_unordered("uno", args[0], args[0]), word(nan), b.bitcast(args[0], word))

    return kind(x), generate


@jit
def widen_brain(h):
    """bfloat16 encoding -> float32: the upper half of a binary32 encoding, exact."""
    return single_of_bits(shift_left(np.uint32(h), np.uint32(16)))


@jit
def round_to_brain(x):
    """float32 -> bfloat16 encoding, to nearest even, with the canonical NaN."""
    bits = bits_of_single(x)
    odd = np.uint32(shift_right(bits, np.uint32(16)) & np.uint32(1))
    # What is dropped rounds up from half a unit on, where the last bit is even from more than half: adding 2^15 - 1
    # or 2^15 carries then, and a carry out of the significand is the next exponent, or infinity, as it should be.
    rounded = shift_right(np.uint32(np.uint32(bits + np.uint32(0x7FFF)) + odd), np.uint32(16))
    return np.uint16(rounded) if x == x else np.uint16(0x7FC0)


NATIVE, HALF, BRAIN = range(3)
"""What an encoding is of: binary32 (uint32) or binary64 (uint64); binary16 (uint16); bfloat16 (uint16)."""


def number(source, bits):
    """Give the number that an encoding stands for; `source`, a literal, says of what."""


def rounded(target, x):
    """Round a number to what `target`, a literal, says, and keep it in the type it has."""


def encoded(target, x):
    """Round a number likewise and encode it, a NaN as the canonical one."""


@overload(number, prefer_literal=True)
def number_of(source, bits):
    """Choose the reading of an encoding by its carrier, when a kernel is compiled."""
    return {
        NATIVE: lambda source, bits: value_of(bits),
        HALF: lambda source, bits: widen(bits),
        BRAIN: lambda source, bits: widen_brain(bits),
    }[source.literal_value]


@overload(rounded, prefer_literal=True)
def rounded_to(target, x):
    """Choose the rounding to a carrier likewise."""
    return {
        NATIVE: lambda target, x: x,
        HALF: lambda target, x: widen(round_to_half(x)),
        BRAIN: lambda target, x: widen_brain(round_to_brain(x)),
    }[target.literal_value]


@overload(encoded, prefer_literal=True)
def encoded_as(target, x):
    """Choose the encoding of a carrier likewise."""
    return {
        NATIVE: lambda target, x: encode(x),
        HALF: lambda target, x: store(x),
        BRAIN: lambda target, x: round_to_brain(x),
    }[target.literal_value]
