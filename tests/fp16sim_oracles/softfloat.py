"""Berkeley SoftFloat (softfloatpy) on encodings: five modes, both tininess rules, values and flags.

Flags come back as the bits of `fp16sim.emulator.flags`; mask the other side with `FLAGS` before comparing,
for SoftFloat has no subnormal flag. NaN results come back as the canonical positive quiet NaN, because
SoftFloat hands payloads on. Formats: ``binary16``, ``binary32``, ``binary64``; ``bfloat16`` in conversions
from and to binary32. A call takes about a microsecond.
"""

from __future__ import annotations

import softfloatpy as sf

OVERFLOW, UNDERFLOW, INVALID, DIVIDE_BY_ZERO, INEXACT = 1, 2, 8, 16, 32
FLAGS = OVERFLOW | UNDERFLOW | INVALID | DIVIDE_BY_ZERO | INEXACT
"""The flags that SoftFloat knows, as bits of this project."""

MODES = {
    "nearest_even": sf.RoundingMode.NEAR_EVEN,
    "nearest_away": sf.RoundingMode.NEAR_MAX_MAG,
    "toward_zero": sf.RoundingMode.MIN_MAG,
    "toward_positive": sf.RoundingMode.MAX,
    "toward_negative": sf.RoundingMode.MIN,
}
TININESS = {"after": sf.TininessMode.AFTER_ROUNDING, "before": sf.TininessMode.BEFORE_ROUNDING}

_FORMATS = {  # class, short name, bytes, canonical NaN
    "binary16": (sf.Float16, "f16", 2, 0x7E00),
    "bfloat16": (sf.BFloat16, "bf16", 2, 0x7FC0),
    "binary32": (sf.Float32, "f32", 4, 0x7FC00000),
    "binary64": (sf.Float64, "f64", 8, 0x7FF8 << 48),
}
_OPERATIONS = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "fma": "mul_add",
    "sqrt": "sqrt",
    "ieee_remainder": "rem",
    "rint": "round_to_int",
    "equal": "eq",
    "less": "lt",
    "less_equal": "le",
}
OPERATIONS = {
    name: 3 if name == "fma" else 1 if name in ("sqrt", "rint") else 2  # operands
    for name in _OPERATIONS
}

_TRANSLATION = [0] * 32
for _word in range(32):
    for _theirs, _ours in ((1, INEXACT), (2, UNDERFLOW), (4, OVERFLOW), (8, DIVIDE_BY_ZERO), (16, INVALID)):
        _TRANSLATION[_word] |= _ours if _word & _theirs else 0


def _prepare(mode: str, tininess: str) -> None:
    sf.set_rounding_mode(MODES[mode])
    sf.set_tininess_mode(TININESS[tininess])
    sf.set_exception_flags(sf.ExceptionFlag(0))


def _flags() -> int:
    return _TRANSLATION[int(sf.get_exception_flags())]


def _value(bits: int, fmt: str):
    kind, _, size, _ = _FORMATS[fmt]
    return kind.from_bytes(bits.to_bytes(size, "big"))


def _bits(value, fmt: str) -> int:
    _, short, _, nan = _FORMATS[fmt]
    return nan if getattr(sf, f"{short}_is_nan")(value) else int.from_bytes(value.to_bytes(), "big")


def compute(op: str, fmt: str, *bits: int, mode: str = "nearest_even", tininess: str = "after"):
    """Compute one of `OPERATIONS` on encodings of one format: ``(bits, flags)``.

    ``rint`` raises inexact; ``equal``, ``less`` and ``less_equal`` give 0 or 1 (equal is quiet, the others
    raise invalid on any NaN).
    """
    function = getattr(sf, f"{_FORMATS[fmt][1]}_{_OPERATIONS[op]}")
    operands = [_value(b, fmt) for b in bits]
    _prepare(mode, tininess)
    result = function(*operands, MODES[mode], True) if op == "rint" else function(*operands)
    flags = _flags()
    return (int(result), flags) if isinstance(result, bool) else (_bits(result, fmt), flags)


def convert(bits: int, source: str, target: str, mode: str = "nearest_even", tininess: str = "after"):
    """Convert an encoding of one format to another: ``(bits, flags)``."""
    function = getattr(sf, f"{_FORMATS[source][1]}_to_{_FORMATS[target][1]}")
    operand = _value(bits, source)
    _prepare(mode, tininess)
    result = function(operand)
    flags = _flags()
    return _bits(result, target), flags


def convert_integer(n: int, target: str, mode: str = "nearest_even"):
    """Convert an integer in [-2**63, 2**64) to a format: ``(bits, flags)``."""
    kind, short = (sf.Int64, "i64") if n < 2**63 else (sf.UInt64, "ui64")
    operand = kind.from_int(n)
    _prepare(mode, "after")
    result = getattr(sf, f"{short}_to_{_FORMATS[target][1]}")(operand)
    flags = _flags()
    return _bits(result, target), flags


def to_integer(bits: int, fmt: str, dtype: str = "int64", mode: str = "toward_zero"):
    """Convert to ``int32``, ``int64``, ``uint32`` or ``uint64``: ``(integer, flags)``.

    The integer is None where invalid is raised: what an invalid conversion gives is not SoftFloat's to say.
    """
    short = {"int32": "i32", "int64": "i64", "uint32": "ui32", "uint64": "ui64"}[dtype]
    operand = _value(bits, fmt)
    _prepare(mode, "after")
    result = getattr(sf, f"{_FORMATS[fmt][1]}_to_{short}")(operand, MODES[mode], True)
    flags = _flags()
    return (None if flags & INVALID else result.to_int()), flags
