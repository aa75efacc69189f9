"""SoftFloat and MPFR over whole arrays of encodings, in tight loops: about a million results a second.

Flags come back as uint8 in the bits of `fp16sim_oracles.integer`. SoftFloat knows all but `SUBNORMAL`
(`SOFTFLOAT_FLAGS`); MPFR also lacks underflow, which it judges by another rule (`MPFR_FLAGS`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import gmpy2
import numpy as np
import softfloatpy as sf

from fp16sim_oracles import mpfr, softfloat
from fp16sim_oracles.exact import FORMATS_OF_OPERANDS, Spec

SOFTFLOAT_FLAGS, MPFR_FLAGS = softfloat.FLAGS, mpfr.FLAGS
_SHORT = {"binary16": "f16", "binary32": "f32", "binary64": "f64", "bfloat16": "bf16"}
_CLASS = {"binary16": sf.Float16, "binary32": sf.Float32, "binary64": sf.Float64, "bfloat16": sf.BFloat16}
_NAME = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "fma": "mul_add",
    "sqrt": "sqrt",
    "ieee_remainder": "rem",
}
_FLAGS = np.array(softfloat._TRANSLATION, np.uint8)


def _canonical(bits: Any, spec: Spec) -> Any:
    magnitude = (1 << (spec.exponent_bits + spec.precision - 1)) - 1
    infinity = magnitude & ~((1 << (spec.precision - 1)) - 1)
    return np.where(bits & bits.dtype.type(magnitude) > infinity, bits.dtype.type(spec.nan), bits)


def _objects(bits: Any, fmt: str) -> list[Any]:
    size = np.dtype(bits.dtype).itemsize
    raw = np.ascontiguousarray(bits, bits.dtype.newbyteorder(">")).tobytes()
    make = _CLASS[fmt].from_bytes
    return [make(raw[i : i + size]) for i in range(0, len(raw), size)]


@cache
def _all_binary16() -> list[Any]:
    return _objects(np.arange(65536, dtype=np.uint16), "binary16")


def by_softfloat(
    op: str, fmt: str, mode: str, *operands: Any, source: str | None = None, tininess: str = "after"
) -> tuple[Any, Any]:
    """Compute ``op`` of arrays of encodings; ``convert`` takes those of ``source``, ``rint`` raises inexact."""
    of = source or fmt
    if of == "binary16":
        table = _all_binary16()
        rows = [[table[i] for i in column.tolist()] for column in operands]
    else:
        rows = [_objects(column, of) for column in operands]
    if op == "convert":
        function: Callable[..., Any] = getattr(sf, f"{_SHORT[of]}_to_{_SHORT[fmt]}")
    elif op == "rint":
        plain, rule = getattr(sf, f"{_SHORT[fmt]}_round_to_int"), softfloat.MODES[mode]
        function = lambda x: plain(x, rule, True)  # noqa: E731
    else:
        function = getattr(sf, f"{_SHORT[fmt]}_{_NAME[op]}")
    sf.set_rounding_mode(softfloat.MODES[mode])
    sf.set_tininess_mode(softfloat.TININESS[tininess])
    clear, raised, none = sf.set_exception_flags, sf.get_exception_flags, sf.ExceptionFlag(0)
    results, flags = [], []
    for row in zip(*rows, strict=True):
        clear(none)
        results.append(function(*row).to_bytes())
        flags.append(raised())
    dtype = FORMATS_OF_OPERANDS[fmt].dtype
    bits = np.frombuffer(b"".join(results), dtype.newbyteorder(">")).astype(dtype)
    return _canonical(bits, FORMATS_OF_OPERANDS[fmt]), _FLAGS[np.array(flags, np.uint8)]


_MPFR: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "add": lambda c: c.add,
    "subtract": lambda c: c.sub,
    "multiply": lambda c: c.mul,
    "divide": lambda c: c.div,
    "fma": lambda c: c.fma,
    "sqrt": lambda c: c.sqrt,
    "convert": lambda c: c.plus,
}


def by_mpfr(op: str, mode: str, context: Any, *operands: Any) -> tuple[Any, Any]:
    """Compute ``op`` of arrays of float64 values, none NaN, in a context: float64 values and flags."""
    context.round = mpfr.MODES[mode]
    function = _MPFR[op](context)
    rows = [[gmpy2.mpfr(v, 53) for v in column.tolist()] for column in operands]
    results, flags = [], []
    for row in zip(*rows, strict=True):
        context.clear_flags()
        results.append(float(function(*row)))
        flags.append(
            context.overflow | context.invalid << 3 | context.divzero << 4 | context.inexact << 5,
        )
    return np.array(results), np.array(flags, np.uint8)
