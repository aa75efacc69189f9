"""MPFR (gmpy2) on encodings: four modes, in every format that looks like an IEEE 754 interchange format.

Operands must not be NaN (`ValueError`): MPFR has no signalling NaN and calls every NaN result invalid. Flags
come back as the bits of `fp16sim.emulator.flags`; `FLAGS` says which of them count. Underflow does not: MPFR
judges it against the smallest subnormal.

gmpy2's `context.square` rounds subnormal results twice (2.3.2: the square of binary16 0x1814 is 0x42, not
0x43); the operations below were found free of that against SoftFloat. Ask MPFR for other functions at a high
precision instead.
"""

from __future__ import annotations

import math
import struct

import gmpy2

OVERFLOW, INVALID, DIVIDE_BY_ZERO, INEXACT = 1, 8, 16, 32
FLAGS = OVERFLOW | INVALID | DIVIDE_BY_ZERO | INEXACT

MODES = {
    "nearest_even": gmpy2.RoundToNearest,
    "toward_zero": gmpy2.RoundToZero,
    "toward_positive": gmpy2.RoundUp,
    "toward_negative": gmpy2.RoundDown,
}

FORMATS = {  # exponent bits, precision, struct code of the widest format with these exponents, bits dropped
    "binary16": (5, 11, "e", 0),
    "e5m2": (5, 3, "e", 8),
    "bfloat16": (8, 8, "f", 16),
    "tf32": (8, 11, "f", 13),
    "binary32": (8, 24, "f", 0),
    "binary64": (11, 53, "d", 0),
}
_INTEGER = {"e": "H", "f": "I", "d": "Q"}

_OPERATIONS = {
    "add": lambda c, x, y: c.add(x, y),
    "subtract": lambda c, x, y: c.sub(x, y),
    "multiply": lambda c, x, y: c.mul(x, y),
    "divide": lambda c, x, y: c.div(x, y),
    "fma": lambda c, x, y, z: c.fma(x, y, z),
    "sqrt": lambda c, x: c.sqrt(x),
    "ieee_remainder": lambda c, x, y: c.remainder(x, y),
    "square": lambda c, x: c.mul(x, x),
    "reciprocal": lambda c, x: c.div(gmpy2.mpfr(1), x),
    "rsqrt": lambda c, x: c.rec_sqrt(x),
}
OPERATIONS = {name: f.__code__.co_argcount - 1 for name, f in _OPERATIONS.items()}


def decode(bits: int, fmt: str = "binary16") -> float:
    """Give the value of an encoding, as a Python float."""
    _, _, code, drop = FORMATS[fmt]
    return struct.unpack(code, struct.pack(_INTEGER[code], bits << drop))[0]


def encode(value: float, fmt: str = "binary16") -> int:
    """Give the encoding of a value of the format; NaN becomes the canonical one."""
    _, _, code, drop = FORMATS[fmt]
    bits = struct.unpack(_INTEGER[code], struct.pack(code, abs(value) if math.isnan(value) else value))[0]
    assert bits & ((1 << drop) - 1) == 0, f"{value!r} is not a value of {fmt}"
    return bits >> drop


def context(fmt: str = "binary16", mode: str = "nearest_even") -> gmpy2.context:
    """Make the context in which MPFR computes as the format does, flags clear."""
    exponent_bits, precision, _, _ = FORMATS[fmt]
    emax = 2 ** (exponent_bits - 1)  # MPFR's significands lie in [1/2, 1)
    return gmpy2.context(
        precision=precision,
        emax=emax,
        emin=4 - emax - precision,
        subnormalize=True,
        round=MODES[mode],
    )


def _finish(result: gmpy2.mpfr, ctx: gmpy2.context, fmt: str) -> tuple[int, int]:
    flags = (
        ctx.overflow * OVERFLOW | ctx.invalid * INVALID | ctx.divzero * DIVIDE_BY_ZERO | ctx.inexact * INEXACT
    )
    return encode(float(result), fmt), flags


def compute(op: str, *bits: int, mode: str = "nearest_even", fmt: str = "binary16") -> tuple[int, int]:
    """Compute one of `OPERATIONS` on encodings of one format: ``(bits, flags)``."""
    values = [gmpy2.mpfr(decode(b, fmt), 53) for b in bits]
    if any(gmpy2.is_nan(v) for v in values):
        raise ValueError(f"{op}{tuple(map(hex, bits))}: a NaN operand is beyond MPFR; ask softfloat")
    ctx = context(fmt, mode)
    return _finish(_OPERATIONS[op](ctx, *values), ctx, fmt)


def convert(bits: int, source: str, target: str, mode: str = "nearest_even") -> tuple[int, int]:
    """Convert an encoding of one format to another, rounding once: ``(bits, flags)``."""
    value = gmpy2.mpfr(decode(bits, source), 53)
    if gmpy2.is_nan(value):
        raise ValueError(f"{hex(bits)}: a NaN operand is beyond MPFR; ask softfloat")
    ctx = context(target, mode)
    return _finish(ctx.plus(value), ctx, target)
