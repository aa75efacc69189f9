"""The inner loop of tensor cores: blocks of products, aligned, cut and summed in 32-bit integers.

The operands are packed as for `microkernel.multiply_tile`, in float32, and beside each value lies its exponent:
int16 for B, and for A the same number twice in an int32, so that one 32-bit load serves all 16-bit lanes. A product
aligns by the sum of both, which packing shifts to be the exponent field of a float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from fp16sim.emulator.kernels.simd import Vector, counted_loop, lanes_of, load, splat, store, uniform
from fp16sim.emulator.kernels.simd_half import round_to_half

__all__ = [
    "COLUMNS",
    "PANEL",
    "ROWS",
    "SMALLEST_EXPONENT",
    "Core",
    "core_of",
    "multiply_blocks",
    "pack_exponents",
]

LANES = lanes_of("float32")
VECTORS = 2
"""Vector registers in a row of a tile: their exponents fill one."""

ROWS, COLUMNS = 2, VECTORS * LANES
"""The shape of a tile."""

PANEL = 8
"""Rows of A in a packed panel, which serves four tiles."""

_NO_EXPONENT = -1000  # of a zero

SMALLEST_EXPONENT = -28
"""By which the product of two subnormals aligns: no product that is not zero has a smaller one."""

_BIAS = 127
_HALF_NORMAL = _BIAS - 14
_FIELD = 23  # place of the exponent field


@dataclass(frozen=True)
class Core:
    """A tensor core on binary16 operands, as far as these kernels go.

    Parameters
    ----------
    block : int
        Products summed at once.
    fraction_bits : int
        Kept below the largest exponent.
    half : bool
        Whether sums are rounded to nearest even in binary16; else toward zero in binary32.
    zero_exponent : int
        Of binary16 sums: by which zeros align, -28 to -14; no product aligns by less than -28.
    """

    block: int
    fraction_bits: int
    half: bool
    zero_exponent: int

    @property
    def bound(self) -> int:
        """What no sum of a block exceeds in magnitude: products are below 4, the accumulator is below 2."""
        return (4 * self.block + 2) << self.fraction_bits

    @property
    def is_wide(self) -> bool:
        """Whether a sum may need 32 bits beside its sign."""
        return self.bound >= 1 << 31


def core_of(name: str) -> Core:
    """Read the name that chooses a core: ``"8 24 single"``, ``"8 24 half -21"``."""
    block, fraction_bits, accumulator, *zero = name.split()
    return Core(int(block), int(fraction_bits), accumulator == "half", int(*zero))


@intrinsic(prefer_literal=True)
def multiply_blocks(
    typing: Any, core: Any, a: Any, a_exponents: Any, b: Any, b_exponents: Any, c: Any, count: Any
) -> Any:
    """Add `count` blocks of packed panels to the tile `c`, one after another.

    `core` is a name for `core_of`; the others are pointers to float32, int32, float32, int16 and float32.
    """
    if not isinstance(core, types.StringLiteral):
        return None
    chosen = core_of(core.literal_value)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        emit_blocks(builder, chosen, *args[1:])
        return context.get_dummy_value()

    return types.void(core, a, a_exponents, b, b_exponents, c, types.intp), generate


@intrinsic(prefer_literal=True)
def pack_exponents(typing: Any, side: Any, values: Any, count: Any, target: Any) -> Any:
    """Write the exponents of `count` packed values, and give the largest magnitude of a value as an encoding.

    For `side` ``"a"`` they are biased, twice in each int32; for ``"b"`` they are int16. `count` is a multiple of
    `PANEL`.
    """
    if not isinstance(side, types.StringLiteral):
        return None
    is_a = side.literal_value == "a"

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, values, count, target = args

        def body(n: Any, carried: list[Vector]) -> list[Vector]:
            first = builder.mul(n, count.type(PANEL))
            bits = load(builder, builder.gep(values, [first]), "float32", PANEL).bits() & 0x7FFFFFFF
            # A subnormal of binary16 aligns by -14.
            exponent = (bits >> _FIELD).maximum(_HALF_NORMAL) - (0 if is_a else _BIAS)
            exponent = bits.equal(0).choose(_NO_EXPONENT, exponent)
            written = exponent & 0xFFFF | exponent << 16 if is_a else exponent.to_integer(16)
            store(written, builder.gep(target, [first]))
            return [carried[0].maximum(bits)]

        panels = builder.sdiv(count, count.type(PANEL))
        largest = counted_loop(builder, panels, [uniform(builder, "int32", PANEL, 0)], body)[0]
        while largest.lanes > 1:
            half = largest.lanes // 2
            largest = largest.part(0, half).maximum(largest.part(half, half))
        return builder.extract_element(largest.value, ir.IntType(32)(0))

    return types.int32(side, values, types.intp, target), generate


def emit_blocks(
    builder: Any, core: Core, a: Any, a_exponents: Any, b: Any, b_exponents: Any, c: Any, count: Any
) -> None:
    """Emit the loop over blocks, with the accumulators of the tile carried in registers."""
    word = count.type

    def place(start: Any, offset: Any) -> Any:
        return builder.gep(start, [offset])

    def row_of_blocks(k: Any, r: int, totals: list[Vector]) -> list[Vector]:
        steps = [builder.add(k, word(t)) for t in range(core.block)]
        lefts = [builder.add(builder.mul(step, word(PANEL)), word(r)) for step in steps]
        rights = [builder.mul(step, word(COLUMNS)) for step in steps]
        fields = largest_fields(
            core,
            [
                in_short_lanes(splat(builder, builder.load(place(a_exponents, left)), LANES * VECTORS // 2))
                + load(builder, place(b_exponents, right), "int16", COLUMNS)
                for left, right in zip(lefts, rights, strict=True)
            ],
        )
        left_values = [splat(builder, builder.load(place(a, left)), LANES) for left in lefts]
        new = []
        for v, total in enumerate(totals):
            right_values = [
                load(builder, place(b, builder.add(right, word(v * LANES))), "float32", LANES)
                for right in rights
            ]
            products = [x * y for x, y in zip(left_values, right_values, strict=True)]
            field = fields.part(v * LANES, LANES).to_integer(32)
            new.append((half_block if core.half else single_block)(core, products, field, total))
        return new

    def body(n: Any, totals: list[Vector]) -> list[Vector]:
        k = builder.mul(n, word(core.block))
        new = []
        for r in range(ROWS):
            new += row_of_blocks(k, r, totals[r * VECTORS : (r + 1) * VECTORS])
        return new

    places = [place(c, word(n * LANES)) for n in range(ROWS * VECTORS)]
    start = [load(builder, where, "float32", LANES) for where in places]
    for total, where in zip(counted_loop(builder, count, start, body), places, strict=True):
        store(total, where)


def in_short_lanes(pairs: Vector) -> Vector:
    """Read int32 lanes as twice as many of int16."""
    kind = ir.VectorType(ir.IntType(16), 2 * pairs.lanes)
    return Vector(pairs.builder, pairs.builder.bitcast(pairs.value, kind))


def largest_fields(core: Core, fields: list[Vector]) -> Vector:
    """Find the largest exponent field of a block's products; a block of zeros has one below all others."""
    largest = fields[0]
    for field in fields[1:]:
        largest = largest.maximum(field)
    return largest.maximum(_BIAS + (core.zero_exponent if core.half else SMALLEST_EXPONENT - 1))


def single_block(core: Core, products: list[Vector], field: Vector, total: Vector) -> Vector:
    """Add a block to a float32 accumulator below 2^126, toward zero. A block of zeros leaves it as it is."""
    exponent = (field << _FIELD).maximum(total.bits() & (0xFF << _FIELD))
    whole, sign = cut_and_sum(core, products, total, exponent)
    result = to_single(core, whole, sign, exponent, odd=False)
    return field.less(_BIAS + SMALLEST_EXPONENT).choose(total, result)


def half_block(core: Core, products: list[Vector], field: Vector, total: Vector) -> Vector:
    """Add a block to a binary16 accumulator in float32, to nearest even. An infinity stays as it is."""
    infinite = total.absolute().greater(65504.0)
    start = infinite.choose(0.0, total)
    # A subnormal of binary16 aligns by -14, a zero not at all.
    own = start.equal(0.0).choose(0, (start.bits() & (0xFF << _FIELD)).maximum(_HALF_NORMAL << _FIELD))
    exponent = (field << _FIELD).maximum(own)
    whole, sign = cut_and_sum(core, products, start, exponent)
    # To odd first: then rounding to 11 bits is as from the exact sum, as 24 >= 11 + 2. Adding +0 makes +0 of -0.
    result = round_to_half(to_single(core, whole, sign, exponent, odd=True)) + 0.0
    return infinite.choose(total, result)


def cut_and_sum(core: Core, products: list[Vector], total: Vector, exponent: Vector) -> tuple[Vector, Vector]:
    """Sum the terms in units of the last kept bit: (the sum modulo 2^32, a vector with its sign)."""
    # 2^(F - E) has the exponent field 2 * bias + F - field.
    scale = (-(exponent - ((2 * _BIAS + core.fraction_bits) << _FIELD))).as_float()
    terms = [(product * scale).to_integer(32) for product in products]
    first = (total * scale).to_integer(32)
    if not core.is_wide:
        for term in terms:
            first = first + term
        return first, first
    # Either half stays below 2^31; where their sum leaves 32 bits, its sign is theirs.
    middle = core.block // 2
    for term in terms[:middle]:
        first = first + term
    second = terms[middle]
    for term in terms[middle + 1 :]:
        second = second + term
    whole = first + second
    return whole, whole ^ ((first ^ whole) & (second ^ whole))


def to_single(core: Core, whole: Vector, sign: Vector, exponent: Vector, odd: bool) -> Vector:
    """Give whole * 2^(E - F) in float32: toward zero, or with the last bit set where it is inexact."""
    mask = sign.shift_signed(31)
    magnitude = (whole ^ mask) - mask
    scale = exponent - (core.fraction_bits << _FIELD)
    if core.is_wide:
        # To 30 bits: up to three fall off. They are kept where they lie too, below the 24 bits that count.
        excess = magnitude >> 30
        magnitude = (magnitude >> excess) | (magnitude & 7) if odd else magnitude >> excess
        scale = scale + (excess << _FIELD)
    nearest = magnitude.to_float(32)
    rest = magnitude - nearest.to_integer(32)
    bits = nearest.bits() + rest.shift_signed(31)
    if odd:
        bits = bits | (rest.equal(0).to_unsigned(32) ^ 1)
    return (bits.as_float() * scale.as_float()).with_sign_of(sign)
