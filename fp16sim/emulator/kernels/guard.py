"""The guard of binary16 accumulation: a proof that nothing overflows, or else the micro-kernel of full range.

The fast steps of binary16 (microkernel.py) make no infinity and no NaN, and lose the sign of an accumulator of -0.
They are right on a tile where no accumulator is -0 and no sum can reach overflow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from fp16sim.emulator.kernels.jit import jit
from fp16sim.emulator.kernels.simd import Vector, advance, counted_loop, load, uniform

__all__ = ["LONGEST", "is_safe", "largest", "largest_of_accumulators", "largest_of_panels"]

LONGEST = 256
"""The most steps that `is_safe` may judge at once."""


@jit
def is_safe(accumulators, a, b, count):
    """Say whether sums stay below overflow for `count` steps, given the largest magnitude of each operand.

    Where an operand is infinity or NaN, so is the bound, or NaN, and the answer is no.
    """
    # A rounding adds 2^-11 of a value, or 2^-25, at most. A sum of n steps is then below
    # (|c| + n |product|) (1 + 2^-11)^n, and (1 + 2^-11)^n < 1 + n / 1800 up to n = 256 (convex, equal at 0).
    product = np.float64(a) * b * (1 + 2.0**-11) + 2.0**-25
    return (accumulators + count * product) * (1 + count / 1800) < 65504


def _largest_magnitude(
    builder: Any, start: Any, count: Any, element: str, lanes: int, refuse_negative_zero: bool
) -> Vector:
    """Emit the largest magnitude of `count * lanes` values, as the encoding in a vector of one lane."""
    integer = element.replace("float", "int")
    width = int(integer.removeprefix("int"))
    sign = -(1 << (width - 1))
    infinity = 0x7F800000 if width == 32 else 0x7FF << 52

    def body(i: Any, carried: list[Vector]) -> list[Vector]:
        where = builder.gep(start, [builder.mul(i, count.type(lanes))])
        bits = load(builder, where, element, lanes).bits()
        magnitude = bits & ~sign  # magnitudes are in the order of their encodings, NaN last
        if refuse_negative_zero:
            magnitude = bits.equal(sign).choose(infinity, magnitude)
        return [carried[0].maximum(magnitude)]

    best = counted_loop(builder, count, [uniform(builder, integer, lanes, 0)], body)[0]
    while best.lanes > 1:
        half = best.lanes // 2
        best = best.part(0, half).maximum(best.part(half, half))
    return best


@intrinsic(prefer_literal=True)
def largest(typing: Any, place: Any, count: Any, refuse_negative_zero: Any) -> Any:
    """Take the largest magnitude of `count` numbers; a NaN where there is one.

    With `refuse_negative_zero` (a literal) a -0 counts as infinity.
    """
    if not isinstance(refuse_negative_zero, types.IntegerLiteral):
        return None
    refuse = bool(refuse_negative_zero.literal_value)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        start, count, _ = args
        vectors = builder.sdiv(count, count.type(8))
        done = builder.mul(vectors, count.type(8))
        end, rest = builder.gep(start, [done]), builder.sub(count, done)
        best = _largest_magnitude(builder, start, vectors, place.dtype.name, 8, refuse)
        last = _largest_magnitude(builder, end, rest, place.dtype.name, 1, refuse)
        return builder.extract_element(best.maximum(last).as_float().value, count.type(0))

    return place.dtype(place, types.intp, refuse_negative_zero), generate


@jit
def largest_of_accumulators(tile, count):
    """Take the largest magnitude of a tile; infinity where an accumulator is -0."""
    return largest(tile, count, 1)


@jit
def largest_of_panels(panels, size, count, out):
    """Take the largest magnitude of each of `count` panels of `size` values."""
    for panel in range(count):
        out[panel] = largest(advance(panels, panel * size), size, 0)
