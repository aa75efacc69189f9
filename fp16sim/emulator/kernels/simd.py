"""LLVM vector values with Python operators: what the code generators of kernels are written in.

An `@intrinsic` of numba emits LLVM instructions. Wrapped in `Vector`, they read as arithmetic does::

    product = a * b
    total = (product + c).maximum(0.0)

Floating point is strict: nothing is contracted or reordered, and `multiply_add` is fused only where the processor
fuses, so it belongs where the product is exact. Constants are broadcast; comparisons give masks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from fp16sim.emulator.kernels.jit import target_features

__all__ = [
    "ELEMENTS",
    "HAS_FMA",
    "HAS_HALF_ARITHMETIC",
    "REGISTER_BITS",
    "Vector",
    "advance",
    "counted_loop",
    "lanes_of",
    "load",
    "pointer",
    "splat",
    "start_of",
    "store",
    "uniform",
]

HAS_FMA = bool({"fma", "fullfp16", "neon"} & target_features())
"""Whether the processor multiplies and adds with one rounding; elsewhere LLVM would call the C library."""

HAS_HALF_ARITHMETIC = {"avx512fp16", "avx512bw"} <= target_features()
"""Whether the processor adds and multiplies vectors of binary16, rounding each operation."""

REGISTER_BITS = 512 if "avx512f" in target_features() else 256 if "avx" in target_features() else 128
"""Width of a vector register."""

HALF, FLOAT, DOUBLE = ir.HalfType(), ir.FloatType(), ir.DoubleType()
_INTEGERS = {width: ir.IntType(width) for width in (1, 8, 16, 32, 64)}
_FLOATS = {16: HALF, 32: FLOAT, 64: DOUBLE}
_WIDTHS = {str(kind): width for kinds in (_INTEGERS, _FLOATS) for width, kind in kinds.items()}

ELEMENTS = {
    "int8": (_INTEGERS[8], types.int8),
    "int16": (_INTEGERS[16], types.int16),
    "uint16": (_INTEGERS[16], types.uint16),
    "int32": (_INTEGERS[32], types.int32),
    "uint32": (_INTEGERS[32], types.uint32),
    "int64": (_INTEGERS[64], types.int64),
    "float16": (HALF, types.uint16),  # encodings in memory, binary16 values in registers
    "float32": (FLOAT, types.float32),
    "float64": (DOUBLE, types.float64),
}
"""LLVM type of a value, and numba's type of its place in memory, by name."""


def lanes_of(element: str) -> int:
    """Count the values of a type that fill one register."""
    return REGISTER_BITS // _width(ELEMENTS[element][0])


def _width(element: ir.Type) -> int:
    return _WIDTHS[str(element)]


class Vector:
    """A vector of integers or floating-point numbers that the builder is about to compute."""

    __slots__ = ("builder", "value")

    def __init__(self, builder: ir.IRBuilder, value: ir.Value) -> None:
        self.builder = builder
        self.value = value

    @property
    def element(self) -> ir.Type:
        """The LLVM type of a lane."""
        return self.value.type.element

    @property
    def lanes(self) -> int:
        """The number of lanes."""
        return int(self.value.type.count)

    @property
    def is_integer(self) -> bool:
        """Whether the lanes are integers."""
        return isinstance(self.element, ir.IntType)

    @property
    def width(self) -> int:
        """The bits of a lane."""
        return _width(self.element)

    def _operand(self, other: Vector | float) -> ir.Value:
        return other.value if isinstance(other, Vector) else constant(self.element, self.lanes, other)

    def _emit(self, instruction: str, *operands: Vector | float) -> Vector:
        values = [self._operand(other) for other in operands]
        return Vector(self.builder, getattr(self.builder, instruction)(self.value, *values))

    def _call(self, name: str, *operands: Vector | float) -> Vector:
        values = [self.value, *map(self._operand, operands)]
        suffix = f"v{self.lanes}{'i' if self.is_integer else 'f'}{self.width}"
        signature = ir.FunctionType(self.value.type, [value.type for value in values])
        function = cgutils.get_or_insert_function(self.builder.module, signature, f"llvm.{name}.{suffix}")
        return Vector(self.builder, self.builder.call(function, values))

    def __add__(self, other: Vector | float) -> Vector:
        return self._emit("add" if self.is_integer else "fadd", other)

    def __sub__(self, other: Vector | float) -> Vector:
        return self._emit("sub" if self.is_integer else "fsub", other)

    def __mul__(self, other: Vector | float) -> Vector:
        return self._emit("mul" if self.is_integer else "fmul", other)

    def __neg__(self) -> Vector:
        return self._emit("neg" if self.is_integer else "fneg")

    def __and__(self, other: Vector | int) -> Vector:
        return self._emit("and_", other)

    def __or__(self, other: Vector | int) -> Vector:
        return self._emit("or_", other)

    def __xor__(self, other: Vector | int) -> Vector:
        return self._emit("xor", other)

    def __lshift__(self, other: Vector | int) -> Vector:
        return self._emit("shl", other)

    def __rshift__(self, other: Vector | int) -> Vector:
        """Shift in zeros."""
        return self._emit("lshr", other)

    def shift_signed(self, other: Vector | int) -> Vector:
        """Shift copies of the sign bit in."""
        return self._emit("ashr", other)

    def multiply_add(self, factor: Vector | float, addend: Vector) -> Vector:
        """Compute self * factor + addend; the product must be exact, since only some processors fuse."""
        return self.fused(factor, addend) if HAS_FMA else self * factor + addend

    def fused(self, factor: Vector | float, addend: Vector) -> Vector:
        """Compute self * factor + addend with one rounding. Only where HAS_FMA."""
        return self._call("fma", factor, addend)

    def absolute(self) -> Vector:
        """Clear the sign."""
        return self._call("fabs")

    def with_sign_of(self, other: Vector) -> Vector:
        """Take the sign bit of another vector; the own one must be clear."""
        sign = -(1 << (self.width - 1))
        return (self.bits() | (other.bits() & sign)).as_float()

    def maximum(self, other: Vector | float) -> Vector:
        """Take the larger, of signed integers or of numbers; a NaN gives `other`."""
        return self._call("smax", other) if self.is_integer else self.greater(other).choose(self, other)

    def unsigned_minimum(self, other: Vector | int) -> Vector:
        """Take the smaller of unsigned integers."""
        return self._call("umin", other)

    def _compare(self, relation: str, other: Vector | float) -> Vector:
        compare = self.builder.icmp_signed if self.is_integer else self.builder.fcmp_ordered
        return Vector(self.builder, compare(relation, self.value, self._operand(other)))

    def less(self, other: Vector | float) -> Vector:
        """Compare signed integers, or numbers (false for a NaN), to a mask."""
        return self._compare("<", other)

    def greater(self, other: Vector | float) -> Vector:
        """Compare signed integers, or numbers (false for a NaN), to a mask."""
        return self._compare(">", other)

    def equal(self, other: Vector | float) -> Vector:
        """Compare to a mask; false for a NaN."""
        return self._compare("==", other)

    def choose(self, where_true: Vector | float, where_false: Vector | float) -> Vector:
        """Select by this mask; at least one of the two is a vector."""
        model = where_true if isinstance(where_true, Vector) else where_false
        assert isinstance(model, Vector)
        values = [model._operand(where_true), model._operand(where_false)]
        return Vector(self.builder, self.builder.select(self.value, *values))

    def _cast(self, instruction: str, element: ir.Type) -> Vector:
        kind = ir.VectorType(element, self.lanes)
        return Vector(self.builder, getattr(self.builder, instruction)(self.value, kind))

    def bits(self) -> Vector:
        """Read the encodings as integers of the same width."""
        return self if self.is_integer else self._cast("bitcast", _INTEGERS[self.width])

    def as_float(self) -> Vector:
        """Read integers as the encodings of floating-point numbers of the same width."""
        return self._cast("bitcast", _FLOATS[self.width])

    def to_float(self, width: int) -> Vector:
        """Convert a signed integer or a floating-point number to the nearest of `width` bits."""
        if self.is_integer:
            return self._cast("sitofp", _FLOATS[width])
        own = self.width
        if own == width:
            return self
        return self._cast("fpext" if own < width else "fptrunc", _FLOATS[width])

    def to_integer(self, width: int) -> Vector:
        """Convert a floating-point number toward zero, or an integer (keeping its sign)."""
        if not self.is_integer:
            return self._cast("fptosi", _INTEGERS[width])
        return self._cast("sext" if self.width < width else "trunc", _INTEGERS[width])

    def to_unsigned(self, width: int) -> Vector:
        """Widen an integer with zeros, a mask to 0 and 1."""
        return self._cast("zext", _INTEGERS[width])

    def shuffled(self, other: Vector, lanes: Sequence[int]) -> Vector:
        """Pick lanes of this vector (0, 1, ...) and of another (from `self.lanes` on)."""
        places = ir.Constant(
            ir.VectorType(_INTEGERS[32], len(lanes)), [_INTEGERS[32](place) for place in lanes]
        )
        return Vector(self.builder, self.builder.shuffle_vector(self.value, other.value, places))

    def part(self, first: int, count: int) -> Vector:
        """Take `count` lanes from `first` on."""
        return self.shuffled(self, range(first, first + count))


def constant(element: ir.Type, lanes: int, number: float) -> ir.Constant:
    """Repeat a number in every lane, as a value of LLVM."""
    return ir.Constant(ir.VectorType(element, lanes), [ir.Constant(element, number)] * lanes)


def uniform(builder: ir.IRBuilder, element: str, lanes: int, number: float) -> Vector:
    """Repeat a number in every lane."""
    return Vector(builder, constant(ELEMENTS[element][0], lanes, number))


def splat(builder: ir.IRBuilder, scalar: ir.Value, lanes: int) -> Vector:
    """Repeat a value in every lane."""
    empty = ir.Constant(ir.VectorType(scalar.type, lanes), ir.Undefined)
    first = Vector(builder, builder.insert_element(empty, scalar, _INTEGERS[32](0)))
    return first.shuffled(first, [0] * lanes)


def load(builder: ir.IRBuilder, place: ir.Value, element: str, lanes: int) -> Vector:
    """Read consecutive values, which need no alignment beyond their own."""
    kind = ir.VectorType(ELEMENTS[element][0], lanes)
    value = builder.load(builder.bitcast(place, kind.as_pointer()), align=_width(kind.element) // 8)
    return Vector(builder, value)


def store(vector: Vector, place: ir.Value) -> None:
    """Write consecutive values, which need no alignment beyond their own."""
    target = vector.builder.bitcast(place, vector.value.type.as_pointer())
    vector.builder.store(vector.value, target, align=_width(vector.element) // 8)


def counted_loop(
    builder: ir.IRBuilder,
    count: ir.Value,
    start: Sequence[Vector],
    body: Callable[[ir.Value, list[Vector]], list[Vector]],
) -> list[Vector]:
    """Emit ``for i in range(count): carried = body(i, carried)`` and give what is carried at the end."""
    before = builder.block
    loop, after = builder.append_basic_block("loop"), builder.append_basic_block("after")
    zero = count.type(0)
    builder.cbranch(builder.icmp_signed(">", count, zero), loop, after)

    builder.position_at_end(loop)
    index = builder.phi(count.type)
    carried = [Vector(builder, builder.phi(vector.value.type)) for vector in start]
    moved = body(index, carried)
    following = builder.add(index, count.type(1), flags=["nsw"])
    latch = builder.block
    index.add_incoming(zero, before)
    index.add_incoming(following, latch)
    for phi, first, later in zip(carried, start, moved, strict=True):
        phi.value.add_incoming(first.value, before)
        phi.value.add_incoming(later.value, latch)
    builder.cbranch(builder.icmp_signed("<", following, count), loop, after)

    builder.position_at_end(after)
    result = []
    for first, later in zip(start, moved, strict=True):
        phi = builder.phi(first.value.type)
        phi.add_incoming(first.value, before)
        phi.add_incoming(later.value, latch)
        result.append(Vector(builder, phi))
    return result


@intrinsic(prefer_literal=True)
def pointer(typing: Any, element: Any, address: Any) -> Any:
    """Turn an address into a pointer to values of the named type; nothing checks its accesses."""
    if not isinstance(element, types.StringLiteral):
        return None
    kind, memory = ELEMENTS[element.literal_value]

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[1], context.get_value_type(signature.return_type))

    return types.CPointer(memory)(element, types.intp), generate


@intrinsic
def start_of(typing: Any, array: Any) -> Any:
    """Point to the first value of an array; nothing checks its accesses."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.make_array(array)(context, builder, args[0]).data

    return types.CPointer(array.dtype)(array), generate


@intrinsic
def advance(typing: Any, place: Any, count: Any) -> Any:
    """Move a pointer on by `count` values."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.gep(args[0], [args[1]])

    return place(place, types.intp), generate
