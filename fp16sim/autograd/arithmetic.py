"""The arithmetic that operations and their gradients are written in.

Every function takes arrays of one dtype and rounds its result to that dtype once. All of them hand encodings to the
current backend (`emulator/backends/base.py`) and to nothing else, so that the definition and the kernels can be
exchanged for one another under a whole training run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import copysign, prod
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from fp16sim.autograd.layout import reduction_of, stretched
from fp16sim.emulator import backends, convolution, events, matmul as products, reductions
from fp16sim.emulator.arrays import broadcast
from fp16sim.emulator.datapath import Datapath, as_datapath
from fp16sim.emulator.elementwise import record, watching
from fp16sim.emulator.formats import Format, bfloat16, binary16, binary32, binary64, nearest_name
from fp16sim.emulator.programs import Program
from fp16sim.emulator.rounding import Rounding

__all__ = ["DTYPES", "Arithmetic", "Array", "as_dtype", "format_of", "keep", "round_array", "widest"]

Array = npt.NDArray[Any]
FLOAT16, BFLOAT16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
DTYPES: dict[str, np.dtype[Any]] = {
    "float16": FLOAT16,
    "bfloat16": BFLOAT16,
    "float32": FLOAT32,
    "float64": FLOAT64,
}
"""The dtypes that tensors have, by name."""

_FORMATS: dict[np.dtype[Any], Format] = {
    FLOAT16: binary16,
    BFLOAT16: bfloat16,
    FLOAT32: binary32,
    FLOAT64: binary64,
}
_CODES = {dtype: np.dtype(f"u{dtype.itemsize}") for dtype in _FORMATS}
_NEAREST = Rounding()
_REAL = (FLOAT32, FLOAT64)
_OWN_DATAPATH = {FLOAT16: "float32", BFLOAT16: "float32", FLOAT32: "float32", FLOAT64: "float64"}


def as_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Find one of `DTYPES` by name, or take the dtype as it is.

    >>> as_dtype("bfloat16").itemsize
    2
    """
    if isinstance(dtype, np.dtype) and dtype in _FORMATS:
        return dtype
    try:  # NumPy takes None for float64
        name = dtype if isinstance(dtype, str) else repr(None) if dtype is None else np.dtype(dtype).name
    except TypeError:
        name = repr(dtype)
    if name not in DTYPES:
        raise ValueError(f"dtype {name!r}: tensors have one of these; {nearest_name(name, list(DTYPES))}")
    return DTYPES[name]


def format_of(dtype: np.dtype[Any]) -> Format:
    """Give the format of a dtype of `DTYPES`."""
    return _FORMATS[dtype]


def widest(dtypes: Sequence[np.dtype[Any]]) -> np.dtype[Any] | None:
    """Give the dtype that holds all values of all, None where none of them does: float16 and bfloat16.

    >>> widest([FLOAT16, FLOAT32]), widest([FLOAT16, BFLOAT16])
    (dtype('float32'), None)
    """
    found = max(dtypes, key=lambda dtype: dtype.itemsize)
    if any(dtype.itemsize == found.itemsize and dtype != found for dtype in dtypes):
        return None
    return found


def round_array(array: Array, dtype: npt.DTypeLike) -> Array:
    """Convert to a dtype of `DTYPES`: exact where every value fits, else rounded to nearest even once.

    Takes arrays of `DTYPES`, integers and Python numbers. NaN becomes the canonical one.

    >>> round_array(np.float32([1.0, 65520.0]), "float16")
    array([ 1., inf], dtype=float16)
    """
    target = as_dtype(dtype)
    if array.dtype == target:
        return array
    if array.dtype not in _FORMATS:
        if array.dtype.kind in "cOSUMm":
            raise TypeError(
                f"an array of {array.dtype}: only real numbers are rounded; pass float16 or float32"
            )
        array = _odd_beyond_2_53(array).astype(np.float64) if target != FLOAT64 else array.astype(np.float64)
    source, goal = _FORMATS[array.dtype], _FORMATS[target]
    if goal is binary64:  # exact from every other format
        return array.astype(np.float64)
    bits = np.ascontiguousarray(array).view(source.uint).reshape(-1)
    outcome = backends.current().convert(bits, source, goal, _NEAREST, None, watching())
    record("convert", outcome)
    return outcome.bits.view(target).reshape(array.shape)


def _odd_beyond_2_53(array: Array) -> Array:
    """Round integers that binary64 does not hold to an odd multiple of 2^11, which it does hold.

    To odd in 42 bits or more, and then to nearest in 24 or fewer, is to nearest once.
    """
    if array.dtype.kind not in "iu" or array.dtype.itemsize < 8:
        return array
    low = array & 0x7FF
    inexact = ((array > 2**53) | (array < -(2**53))) & (low != 0)
    return np.where(inexact, (array - low) | 0x800, array)


@lru_cache(maxsize=256)
def _path(chosen: str | Datapath, dtype: np.dtype[Any]) -> Datapath:
    """Give the chosen datapath where it takes operands of the dtype, and the dtype's usual one elsewhere."""
    fmt = _FORMATS[dtype]
    path = as_datapath(chosen)
    if any(fmt in each.inputs for each in (path, *path.variants)):
        return path
    return as_datapath(_OWN_DATAPATH[dtype])


@lru_cache(maxsize=256)
def _route(chosen: str | Datapath, dtype: np.dtype[Any]) -> tuple[str | Datapath, str | None]:
    """Give what the functions of the emulator take for the datapath and the format of the result.

    Names, where there are names: the emulator remembers what it has settled, and a datapath takes long to look up. A
    tensor core gives float32, if it is not asked for the operands' format.
    """
    path = _path(chosen, dtype)
    own = _OWN_DATAPATH[dtype]
    name = next((name for name in (chosen, own) if isinstance(name, str) and as_datapath(name) is path), path)
    return name, None if path.out_format is None else _FORMATS[dtype].name


@lru_cache(maxsize=256)
def _settled(chosen: str | Datapath, dtype: np.dtype[Any]) -> Datapath:
    """Give what a backend takes: the model that the datapath has for operands of the dtype."""
    return _path(chosen, dtype).for_operands(_FORMATS[dtype])


@dataclass(frozen=True)
class Arithmetic:
    """How an operation accumulates; the dtype of its operands says where it rounds.

    Parameters
    ----------
    products, convolutions : str or Datapath
        How matrix products and convolutions accumulate, for operands that the datapath takes: all others accumulate
        in their own format, in float32 at least. Results are rounded to the format of the operands.
    reductions : str or Datapath
        Likewise for sums.
    wide : bool
        True in a backward pass that stores everything in float32: then :meth:`cast` does not narrow.
    """

    products: str | Datapath = "float32"
    convolutions: str | Datapath = "float32"
    reductions: str | Datapath = "float32"
    wide: bool = False

    def add(self, a: Array, b: Array) -> Array:
        """Add, rounded once; shapes broadcast."""
        return _elementwise("add", a, b)

    def subtract(self, a: Array, b: Array) -> Array:
        """Subtract, rounded once; shapes broadcast."""
        return _elementwise("subtract", a, b)

    def multiply(self, a: Array, b: Array) -> Array:
        """Multiply, rounded once; shapes broadcast."""
        return _elementwise("multiply", a, b)

    def divide(self, a: Array, b: Array) -> Array:
        """Divide, rounded once; shapes broadcast."""
        return _elementwise("divide", a, b)

    def sqrt(self, a: Array) -> Array:
        """Square root, rounded once."""
        return _elementwise("sqrt", a)

    def negative(self, a: Array) -> Array:
        """Change the sign, as -0 - a does: nothing is rounded, and NaN is the canonical one."""
        return _elementwise("subtract", _constant(-0.0, -1.0, a.dtype), a)

    def function(self, name: str, a: Array) -> Array:
        """Compute exp, log, tanh, erf, sigmoid, gelu, ... of each element.

        Binary16: correctly rounded (`emulator/functions.py`). Float32 and float64: the fixed sequences of
        `emulator/float32_functions.py` and `float64_functions.py`. Bfloat16: that of float32, rounded once more.
        """
        flat = np.ascontiguousarray(a).reshape(-1)
        backend = backends.current()
        if a.dtype == FLOAT16:
            outcome = backend.function(name, flat.view(np.uint16), _NEAREST, None, watching())
            record(name, outcome)
            return outcome.bits.view(FLOAT16).reshape(a.shape)
        if a.dtype == BFLOAT16:
            return round_array(self.function(name, round_array(a, FLOAT32)), BFLOAT16)
        return backend.real_function(name, flat).reshape(a.shape)

    def perform(self, program: Program, *operands: Array, constants: Sequence[float] = ()) -> list[Array]:
        """Perform the steps of a program on operands that broadcast, each step rounded once.

        Constants are rounded to the dtype first.
        """
        dtype = operands[0].dtype
        uint, numbers = _CODES[dtype], _constants(np.array(constants, np.float64).tobytes(), dtype)
        shape, patterns, apart = stretched(*[operand.shape for operand in operands])
        flat = [
            (np.broadcast_to(operand, shape) if position in apart else operand).ravel().view(uint)
            for position, operand in enumerate(operands)
        ]
        backend, size = backends.current(), prod(shape)
        results, counted = backend.perform(
            program, flat, patterns, numbers, size, _FORMATS[dtype], watching()
        )
        for name, counts in counted:
            events.record(name, counts)
        return [result.view(dtype).reshape(shape) for result in results]

    def tabulated(self, name: str, rule: Callable[[Arithmetic, Array], Array], a: Array) -> Array:
        """Apply a rule that computes each element from that element alone, and that `name` names.

        Of 16-bit formats a backend may keep the results.
        """
        if a.itemsize != 2 or watching():
            return rule(self, a)
        dtype = a.dtype
        found = backends.current().tabulated(
            f"{name} in {dtype.name}",
            lambda bits: rule(self, bits.view(dtype)).view(np.uint16),
            a.view(np.uint16),
        )
        return found.view(dtype)

    def power(self, a: Array, exponent: float) -> Array:
        """Raise to a constant power, in float32 at least, then rounded to the dtype once more if that is narrower."""
        wide = a if a.dtype in _REAL else round_array(a, FLOAT32)
        flat = np.ascontiguousarray(wide).reshape(-1)
        second = np.full(flat.shape, exponent, flat.dtype)
        result = backends.current().real_function("pow", flat, second).reshape(a.shape)
        return round_array(result, a.dtype)

    def matmul(self, a: Array, b: Array) -> Array:
        """Multiply (..., m, k) and (..., k, n): accumulated as `products` says, rounded to the dtype once."""
        dtype = a.dtype
        if not (a.ndim == b.ndim == 2 and a.shape[1] == b.shape[0] and b.dtype == dtype):
            path, out_format = _route(self.products, dtype)
            return np.asarray(products.matmul(a, b, path, out_format=out_format))
        fmt, settled = _FORMATS[dtype], _settled(self.products, dtype)
        left, right = a.view(_CODES[dtype])[np.newaxis], b.view(_CODES[dtype])[np.newaxis]
        outcome = backends.current().matmul(left, right, None, fmt, settled, fmt, watching())
        record("matmul", outcome)
        return np.asarray(outcome.bits[0].view(dtype))

    def convolve(self, which: str, *operands: Any, **steps: Any) -> Array:
        """Call ``fs.conv2d``, ``conv2d_input``, ``conv2d_weight`` or their 1-d and 3-d forms, named by `which`.

        Accumulated as `convolutions` says, rounded to the dtype once.
        """
        dtype = next(x.dtype for x in operands if isinstance(x, np.ndarray))
        path, out_format = _route(self.convolutions, dtype)
        function = getattr(convolution, which)
        return np.asarray(function(*operands, **steps, datapath=path, out_format=out_format))

    def sum(self, a: Array, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Array:
        """Sum in increasing C-order index from +0, accumulated as `reductions` says, rounded to the dtype once."""
        reduction = reduction_of(a.shape, axis, keepdims)
        if reduction is None:
            path, out_format = _route(self.reductions, a.dtype)
            return np.asarray(reductions.sum(a, axis, path, keepdims=keepdims, out_format=out_format))
        fmt = _FORMATS[a.dtype]
        settled = _settled(self.reductions, a.dtype)
        outcome = backends.current().sum(reduction(a), fmt, settled, fmt, watching())
        record("sum", outcome)
        return outcome.bits.view(a.dtype).reshape(reduction.left)

    def mean(self, a: Array, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Array:
        """Divide the sum by the number of terms, in the accumulator's format, and round to the dtype last."""
        reduction = reduction_of(a.shape, axis, keepdims)
        settled, fmt = _settled(self.reductions, a.dtype), _FORMATS[a.dtype]
        inner = settled.accumulator
        if reduction is None or inner not in (binary16, bfloat16, binary32) or watching():
            path, out_format = _route(self.reductions, a.dtype)
            return np.asarray(reductions.mean(a, axis, path, keepdims=keepdims, out_format=out_format))
        backend = backends.current()
        total = backend.sum(reduction(a), fmt, settled, inner).bits.reshape(-1)
        count = np.full(total.shape, _count(reduction.cube[1], inner), inner.uint)
        bits = backend.elementwise("divide", [total, count], inner, _NEAREST).bits
        if inner != fmt:
            bits = backend.convert(bits, inner, fmt, _NEAREST).bits
        return bits.view(a.dtype).reshape(reduction.left)

    def norm(self, a: Array, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Array:
        """Take the square root of the sum of squares, both in the accumulator's format, and round to the dtype last."""
        path, out_format = _route(self.reductions, a.dtype)
        return np.asarray(reductions.norm(a, axis, path, keepdims=keepdims, out_format=out_format))

    def cumsum(self, a: Array, axis: int) -> Array:
        """Sum the elements up to each one, accumulated as `reductions` says, each sum rounded to the dtype once."""
        path, out_format = _route(self.reductions, a.dtype)
        return np.asarray(reductions.cumsum(a, axis, path, out_format=out_format))

    def index_sum(self, a: Array, index: npt.NDArray[np.int64], size: int) -> Array:
        """Sum the rows of (n, inner) that have the same index, in order from +0: a result of (size, inner).

        Accumulated as `reductions` says, rounded to the dtype once.
        """
        path, fmt = _settled(self.reductions, a.dtype), _FORMATS[a.dtype]
        bits = np.ascontiguousarray(a).view(fmt.uint)
        outcome = backends.current().index_sum(bits, index, size, fmt, path, fmt, watching())
        record("sum", outcome)
        return outcome.bits.view(a.dtype)

    def maximum_of(self, a: Array, axis: int = -1) -> Array:
        """Choose the largest element along an axis, which stays with length 1; NaN if there is one."""
        fmt, axis = _FORMATS[a.dtype], axis % a.ndim
        outer, inner = prod(a.shape[:axis]), prod(a.shape[axis + 1 :])
        bits = np.ascontiguousarray(a).view(fmt.uint).reshape(outer, a.shape[axis], inner)
        largest = backends.current().maximum_of(bits, fmt).view(a.dtype)
        return largest.reshape(*a.shape[:axis], 1, *a.shape[axis + 1 :])

    def relu(self, a: Array) -> Array:
        """Replace what is not above zero by +0; NaN stays."""
        fmt = _FORMATS[a.dtype]
        bits = np.ascontiguousarray(a).view(fmt.uint)  # which gives a number an axis
        return backends.current().relu(bits, fmt).view(a.dtype).reshape(a.shape)

    def cast(self, a: Array, dtype: npt.DTypeLike) -> Array:
        """Convert as :func:`round_array`; a wide backward pass widens and never narrows."""
        return round_array(a, FLOAT32 if self.wide and as_dtype(dtype) != FLOAT64 else dtype)

    def constant(self, value: float, like: Array) -> Array:
        """Round a Python number to the dtype of `like`, as an array without dimensions."""
        return _constant(value, copysign(1.0, value), like.dtype)

    def sum_to(self, a: Array, shape: tuple[int, ...]) -> Array:
        """Undo broadcasting to `shape`: one sum over all the axes that it added or stretched."""
        if a.shape == shape:
            return a
        added = a.ndim - len(shape)
        axes = tuple(i for i in range(a.ndim) if i < added or (shape[i - added] == 1 and a.shape[i] != 1))
        return self.sum(a, axes).reshape(shape) if axes else a.reshape(shape)


def keep(a: Array, chosen: npt.NDArray[np.bool_]) -> Array:
    """Put +0 where `chosen`, which broadcasts to the shape of `a`, is False; nothing is rounded.

    Encodings times 0 or 1: several times as fast as ``np.where`` on a random choice.

    >>> keep(np.float16([-1.0, np.nan]), np.array([True, False]))
    array([-1.,  0.], dtype=float16)
    """
    return np.asarray(a.view(_FORMATS[a.dtype].uint) * chosen).view(a.dtype)


@lru_cache(maxsize=256)
def _count(terms: int, fmt: Format) -> int:
    """Give the encoding of a number of terms, rounded once."""
    dtype = next(dtype for dtype, each in _FORMATS.items() if each == fmt)
    return int(round_array(np.asarray(float(terms)), dtype).view(_CODES[dtype]).item())


@lru_cache(maxsize=1024)
def _constant(value: float, sign: float, dtype: np.dtype[Any]) -> Array:
    """Round a number once for all uses, which only read it; 0 and -0 are equal but not the same."""
    return round_array(np.asarray(value, np.float64), dtype)


def _elementwise(name: str, first: Array, second: Array | None = None) -> Array:
    dtype, shape = first.dtype, first.shape
    fmt, uint = _FORMATS[dtype], _CODES[dtype]
    if second is None:
        bits = [first.ravel().view(uint)]
    elif second.shape == shape:
        bits = [first.ravel().view(uint), second.ravel().view(uint)]
    elif not second.shape:
        flat = first.ravel().view(uint)
        bits = [flat, np.empty(flat.shape, uint)]
        bits[1].fill(second.view(uint).item())
    else:
        shape, arrays = broadcast(first, second)
        bits = [array.view(uint) for array in arrays]
    outcome = backends.current().elementwise(name, bits, fmt, _NEAREST, None, watching())
    if outcome.counts is not None:
        record(name, outcome)
    result = outcome.bits.view(dtype)
    return result if len(shape) == 1 else result.reshape(shape)


@lru_cache(maxsize=256)
def _constants(values: bytes, dtype: np.dtype[Any]) -> Array:
    """Round float64 numbers, given as their bytes, once for all uses, which only read them."""
    return round_array(np.frombuffer(values, np.float64), dtype).view(_CODES[dtype])
