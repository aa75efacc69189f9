"""How operands become encodings, and encodings arrays again: dtypes, broadcasting, ``out=``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.emulator import backends
from fp16sim.emulator.backends.base import Encodings
from fp16sim.emulator.formats import Format, as_format, binary16, binary32, binary64, conversion_to
from fp16sim.emulator.rounding import Rounding

__all__ = [
    "as_values",
    "broadcast",
    "decoded",
    "delivered",
    "encoded",
    "format_of_operands",
    "source_format",
    "writable",
]

_COMMON = frozenset(np.dtype(kind) for kind in (np.float16, np.float32, np.float64))
_SOURCES = "float16, bfloat16, float8_e4m3fn, float8_e5m2, float32, float64, an integer or bool dtype"


def as_values(x: Any) -> npt.NDArray[Any]:
    """Make an array of real numbers, in native byte order.

    Raises
    ------
    TypeError
        On complex, object, text or wider-than-float64 data.
    """
    if x is None:
        raise TypeError("None is no number: pass a number, a list of numbers or an array")
    if isinstance(x, int) and not -(2**63) <= x < 2**64:
        shown = x if x.bit_length() < 1000 else f"an integer of {x.bit_length()} bits"
        raise TypeError(
            f"{shown}: integers have up to 64 bits; pass float(x), which rounds it to float64 first"
        )
    array = np.asarray(x)
    if array.dtype in _COMMON:
        return array
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    kind = array.dtype.kind
    if kind == "c":
        raise TypeError(
            f"{array.dtype} array: fp16sim rounds real numbers; pass x.real and x.imag separately"
        )
    if kind not in "biuf" and source_format(array) is None:
        raise TypeError(
            f"{array.dtype} array: fp16sim takes {_SOURCES}; convert with numpy.asarray(x, float)"
        )
    if kind == "f" and array.dtype.itemsize > 8:
        raise TypeError(
            f"{array.dtype} array: fp16sim takes {_SOURCES}; x.astype(float) rounds it once before"
        )
    return array


@lru_cache(maxsize=64)
def _format_of(dtype: np.dtype[Any]) -> Format | None:
    if dtype == np.float64:
        return binary64
    try:
        return as_format(dtype)
    except ValueError:
        return None


def source_format(array: npt.NDArray[Any]) -> Format | None:
    """Find the format of a dtype, binary64 included; None for integers and the rest."""
    return _format_of(array.dtype)


def format_of_operands(operands: tuple[Any, ...], given: Any) -> Format:
    """Find the one format of an operation: the given one, or that of the operands that are arrays.

    Python numbers and lists have none of their own and follow the others; alone they are binary16.
    """
    if given is not None:
        return as_format(given)
    found: Format | None = None
    for x in operands:
        if not isinstance(x, (np.ndarray, np.generic)):
            continue
        here = source_format(as_values(x))
        if here is None or here == binary64:
            raise TypeError(
                f"{x.dtype} array: an operation takes arrays of its format; round them first, for example "
                "fp16sim.round_to(x, 'binary16')"
            )
        if found is not None and here != found:
            raise TypeError(
                f"{found.name} and {here.name}: the operands of an operation have one format; convert one with "
                f"{conversion_to(found)}"
            )
        found = here
    return found or binary16


def encoded(x: Any, fmt: Format) -> Encodings:
    """Give the encodings of an operand of that format; a Python number or list is rounded to nearest first.

    A finite number that would become infinite there is refused: 3388 / 524288 is no zero. Encodings share the
    memory and the strides of the array if its dtype is the format's own.
    """
    if type(x) is np.ndarray and x.dtype == fmt.dtype and not fmt.is_carried:
        return x.view(fmt.uint)
    array = as_values(x)
    backend = backends.current()
    if isinstance(x, (np.ndarray, np.generic)):
        if array.dtype != fmt.dtype:
            raise TypeError(
                f"{array.dtype} array in an operation of {fmt.name}, which is kept as {fmt.dtype}; round it first: "
                f"{conversion_to(fmt)}"
            )
        if not fmt.is_carried:
            return array.view(fmt.uint)
        # A carrier: its float32 values must be values of the format.
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint32)
        found = backend.convert(flat, binary32, fmt, Rounding(), watch="counts")
        assert found.counts is not None
        if found.counts[-1]:
            raise ValueError(
                f"a float32 carrier holds a value that {fmt.name} has not; round it first: "
                f"{conversion_to(fmt)}"
            )
        if fmt.nan == "ieee" and fmt.precision > 2:
            # The conversion has quietened signalling NaNs; the operation must see them, and raise invalid.
            signalling = (flat & 0x7FC00000 == 0x7F800000) & (flat & 0x3FFFFF != 0)
            found.bits[signalling] = ((1 << fmt.exponent_bits) - 1) << fmt.fraction_bits | 1
        return found.bits.reshape(array.shape)
    if array.dtype.kind in "biu":
        words = array.astype(np.uint64 if array.dtype == np.uint64 else np.int64).reshape(-1)
        bits = backend.convert_integers(words, fmt, Rounding()).bits.reshape(array.shape)
    else:
        flat = np.ascontiguousarray(array, np.float64).reshape(-1).view(np.uint64)
        bits = backend.convert(flat, binary64, fmt, Rounding()).bits.reshape(array.shape)
    beyond = ((bits & (fmt.sign_bit - 1)) > fmt.max_bits) & np.isfinite(array)
    if beyond.any():
        raise ValueError(
            f"{array[beyond].flat[0]} is beyond {fmt.name}, whose largest finite value is {fmt.max_finite}; scale the "
            f"operands, or pass {conversion_to(fmt)} if infinity is meant"
        )
    return bits


def broadcast(*arrays: npt.NDArray[Any]) -> tuple[tuple[int, ...], list[npt.NDArray[Any]]]:
    """Broadcast by NumPy's rules: (common shape, flat contiguous arrays)."""
    shapes = [array.shape for array in arrays]
    if all(shape == shapes[0] for shape in shapes):
        return shapes[0], [np.ascontiguousarray(array).reshape(-1) for array in arrays]
    try:
        shape = np.broadcast(*arrays).shape  # several times as fast as np.broadcast_shapes
    except ValueError:
        raise ValueError(
            f"shapes {' and '.join(map(str, shapes))} do not broadcast: going from the last axis, lengths must be "
            "equal or 1; reshape one operand"
        ) from None
    return shape, [_spread(array, shape) for array in arrays]


def _spread(array: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Repeat an array to fill a shape, as a flat contiguous one."""
    if array.shape == shape:
        return np.ascontiguousarray(array).reshape(-1)
    whole = np.empty(shape, array.dtype)
    whole[...] = array
    return whole.reshape(-1)


def decoded(bits: Encodings, fmt: Format) -> npt.NDArray[Any]:
    """Give the array in ``fmt.dtype`` that encodings stand for."""
    if not fmt.is_carried:
        return bits.view(fmt.dtype)
    return (
        backends.current()
        .convert(bits.reshape(-1), fmt, binary32, Rounding())
        .bits.view(np.float32)
        .reshape(bits.shape)
    )


def writable(
    out: Any, fmt: Format, shape: tuple[int, ...], operands: Sequence[npt.NDArray[Any]]
) -> Encodings | None:
    """Check `out` before any work; give its flat encodings if results can be written there at once.

    None otherwise: no `out`, a strided or byte-swapped one, a carrier, or one that shares memory with an operand.
    """
    if out is None:
        return None
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out={type(out).__name__}: pass an array of {fmt.dtype} with shape {shape}")
    if out.dtype.newbyteorder("=") != fmt.dtype or out.shape != shape:
        raise ValueError(
            f"out has {out.dtype} and shape {out.shape}, the result {fmt.dtype} and {shape}; pass an array like "
            "the result"
        )
    if not out.flags.writeable:
        raise ValueError("out is read-only; pass a writable array")
    if fmt.is_carried or not out.dtype.isnative or not out.flags.c_contiguous:
        return None
    if any(np.may_share_memory(out, operand) for operand in operands):
        return None
    # As a plain array: np.matrix has two dimensions whatever it is reshaped to, and a loop would run over its end.
    return out.view(np.ndarray).reshape(-1).view(fmt.uint)


def delivered(
    bits: Encodings, into: Encodings | None, fmt: Format, shape: tuple[int, ...], out: npt.NDArray[Any] | None
) -> Any:
    """Return results as NumPy does: in `out` if given, and a scalar for no dimension."""
    if out is not None and bits is into:
        return out
    result = decoded(bits.reshape(shape), fmt)
    if out is None:
        return result[()] if result.ndim == 0 else result
    out[...] = result
    return out
