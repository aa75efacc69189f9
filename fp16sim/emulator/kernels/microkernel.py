"""The inner loop of every matrix product: one tile of the result, all its accumulators in registers.

A micro-kernel is a `Kind`: the types that meet, the shape of a tile, and a step of one to three lines that says what
one multiply-accumulate rounds. `multiply_tile` emits the loop around it.

A tile of the result is `rows` by `vectors * lanes` values, row after row. The operands are packed (see
packing.py): for each k, `rows` values of a column of A, and `vectors * lanes` values of a row of B.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numba.core import types
from numba.extending import intrinsic

from fp16sim.emulator.kernels.simd import (
    HAS_FMA,
    HAS_HALF_ARITHMETIC,
    REGISTER_BITS,
    Vector,
    counted_loop,
    lanes_of,
    load,
    store,
)
from fp16sim.emulator.kernels.simd_half import (
    beyond_range,
    round_in_range,
    round_product,
    round_sum,
    round_to_half,
)

__all__ = ["KINDS", "Kind", "fastest", "multiply_tile"]

Step = Callable[[Vector, Vector, Vector], Vector]


@dataclass(frozen=True)
class Kind:
    """What one multiply-accumulate does, and the shape of the tile that hides its latency.

    Parameters
    ----------
    source, carrier : str
        Types of the operands in memory and in packed panels; the carrier is that of the accumulators too.
    rows, vectors : int
        The tile: rows of A, and vector registers of a row of B.
    step : callable
        ``step(a, b, accumulator)`` gives the new accumulator.
    full_range : callable, optional
        The step without the limits of `step`; None where `step` has none.
    """

    source: str
    carrier: str
    rows: int
    vectors: int
    step: Step
    full_range: Step | None = None

    @property
    def columns(self) -> int:
        """The number of columns of a tile."""
        return self.vectors * lanes_of(self.carrier)


def exact_products(a: Vector, b: Vector, accumulator: Vector) -> Vector:
    """Round the sum only: a product of two binary16 numbers is exact in float32, so fused or not is one."""
    return a.multiply_add(b, accumulator)


def fused(a: Vector, b: Vector, accumulator: Vector) -> Vector:
    """Round a * b + accumulator to the carrier once."""
    return a.fused(b, accumulator)


def unfused(a: Vector, b: Vector, accumulator: Vector) -> Vector:
    """Round the product, then the sum, to the carrier."""
    return accumulator + a * b


def half(a: Vector, b: Vector, accumulator: Vector) -> Vector:
    """Round product and sum to binary16, where neither overflows and no accumulator is -0.

    Rounding the float32 sum of two binary16 numbers again is innocuous: 24 >= 2 * 11 + 2.
    """
    return round_sum(accumulator + round_product(a * b))


def half_full_range(a: Vector, b: Vector, accumulator: Vector) -> Vector:
    """Round product and sum to binary16."""
    return round_to_half(accumulator + round_to_half(a * b))


def half_fused(a: Vector, b: Vector, accumulator: Vector) -> Vector:
    """Round a * b + accumulator to binary16 once, where it does not overflow.

    The product is exact in float64, and rounding the sum to 53 bits first is innocuous.
    """
    return round_in_range(a.multiply_add(b, accumulator))


def half_fused_full_range(a: Vector, b: Vector, accumulator: Vector) -> Vector:
    """Round a * b + accumulator to binary16 once."""
    exact = a.multiply_add(b, accumulator)
    return beyond_range(exact, round_in_range(exact), 1e308)


_MANY = REGISTER_BITS == 512  # 32 registers, not 16

KINDS = {
    "float32": Kind("uint16", "float32", 14 if _MANY else 6, 2, exact_products),
    "single": Kind("float32", "float32", 12 if _MANY else 6, 2, unfused),
    "double": Kind("float64", "float64", 12 if _MANY else 6, 2, unfused),
    "float16": Kind("uint16", "float32", 6 if _MANY else 3, 2, half, half_full_range),
    "float16_fma": Kind("uint16", "float64", 8 if _MANY else 5, 2, half_fused, half_fused_full_range),
}

if HAS_FMA:
    KINDS["single_fused"] = Kind("float32", "float32", 12 if _MANY else 6, 2, fused)

if HAS_HALF_ARITHMETIC:  # the whole range, at the speed of float32 and more
    KINDS["float16 native"] = Kind("uint16", "float16", 12, 2, unfused)
    KINDS["float16_fma native"] = Kind("uint16", "float16", 14, 2, fused)


def fastest(kind: str) -> str:
    """Name the kind that has the same roundings and is the fastest on this processor."""
    native = f"{kind} native"
    return native if native in KINDS else kind


@intrinsic(prefer_literal=True)
def multiply_tile(typing: Any, kind: Any, full_range: Any, a: Any, b: Any, c: Any, count: Any) -> Any:
    """Accumulate `count` steps of packed panels `a` and `b` on the tile `c`, in order of k.

    `kind` is a name in `KINDS`; `full_range`, an integer literal, picks the step without limits.
    """
    if not isinstance(kind, types.StringLiteral) or not isinstance(full_range, types.IntegerLiteral):
        return None
    chosen = KINDS[kind.literal_value]
    step = (chosen.full_range or chosen.step) if full_range.literal_value else chosen.step

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, _, a, b, c, count = args
        emit_tile(builder, chosen, step, a, b, c, count)
        return context.get_dummy_value()

    return types.void(kind, full_range, a, b, c, types.intp), generate


def emit_tile(builder: Any, kind: Kind, step: Step, a: Any, b: Any, c: Any, count: Any) -> None:
    """Emit the loop over k, with the accumulators of the tile carried in registers."""
    lanes = lanes_of(kind.carrier)
    word = count.type

    def place(start: Any, offset: int) -> Any:
        return builder.gep(start, [word(offset)])

    def body(k: Any, accumulators: list[Vector]) -> list[Vector]:
        column = builder.gep(a, [builder.mul(k, word(kind.rows))])
        row = builder.gep(b, [builder.mul(k, word(kind.columns))])
        right = [load(builder, place(row, v * lanes), kind.carrier, lanes) for v in range(kind.vectors)]
        moved = []
        for r in range(kind.rows):
            left = load(builder, place(column, r), kind.carrier, 1)
            left = left.shuffled(left, [0] * lanes)
            moved += [step(left, right[v], accumulators[r * kind.vectors + v]) for v in range(kind.vectors)]
        return moved

    places = [place(c, n * lanes) for n in range(kind.rows * kind.vectors)]
    start = [load(builder, where, kind.carrier, lanes) for where in places]
    for total, where in zip(counted_loop(builder, count, start, body), places, strict=True):
        store(total, where)
