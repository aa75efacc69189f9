"""Comparisons (IEEE 754-2019 clause 5.6.1 and 5.11) and conversion to integers (clause 5.4.1)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.emulator import events
from fp16sim.emulator.arrays import as_values, encoded, format_of_operands, source_format
from fp16sim.emulator.flags import FLAG_NAMES
from fp16sim.emulator.formats import Format, nearest_name
from fp16sim.emulator.rounding import MODES, Rounding

__all__ = ["equal", "greater", "greater_equal", "less", "less_equal", "not_equal", "to_integer"]


def _compare(name: str, a: Any, b: Any, format: Any, inputs: str) -> Any:
    """Compare the values that encodings stand for: float64 holds every format exactly."""
    rule = Rounding(inputs=inputs)
    fmt = format_of_operands((a, b), format)
    left, right = encoded(a, fmt), encoded(b, fmt)
    try:
        result = getattr(np, name)(_values(left, fmt, rule), _values(right, fmt, rule))
    except ValueError:
        raise ValueError(
            f"shapes {left.shape} and {right.shape} do not broadcast: going from the last axis, lengths must be "
            "equal or 1; reshape one operand"
        ) from None
    if events.counting():
        quiet = name in ("equal", "not_equal")
        wrong = [_is_signalling(x, fmt) if quiet else np.isnan(fmt.decode(x)) for x in (left, right)]
        counts = np.zeros(len(FLAG_NAMES), np.int64)
        counts[FLAG_NAMES.index("invalid")] = np.count_nonzero(np.logical_or(*np.broadcast_arrays(*wrong)))
        events.record(name, counts)
    return result


def _values(bits: npt.NDArray[Any], fmt: Format, rule: Rounding) -> npt.NDArray[np.float64]:
    values: npt.NDArray[np.float64] = np.asarray(fmt.decode(bits))
    if rule.inputs == "zero":
        values = np.where(np.abs(values) < fmt.min_normal, np.copysign(0.0, values), values)
    return values


def _is_signalling(bits: npt.NDArray[Any], fmt: Format) -> npt.NDArray[np.bool_]:
    quiet = (bits >> (fmt.fraction_bits - 1)) & 1 == 1
    signalling: npt.NDArray[np.bool_] = np.isnan(fmt.decode(bits)) & ~quiet & (fmt.nan == "ieee")
    return signalling


def equal(a: Any, b: Any, *, format: Any = None, inputs: str = "keep") -> Any:
    """Whether a == b; NaN equals nothing, -0 equals +0. Raises invalid on signalling NaN only.

    Parameters
    ----------
    a, b : array_like
        Arrays of one format, which broadcast; Python numbers are rounded to it first.
    format : Format, str or dtype, optional
        Needed where float32 arrays carry a format without a dtype.
    inputs : {"keep", "zero"}
        ``"zero"`` reads subnormals as zeros.

    Returns
    -------
    bool array or scalar

    >>> import fp16sim as fs
    >>> bool(fs.equal(0.0, -0.0)), bool(fs.equal(6e-8, 0.0, inputs="zero"))
    (True, True)
    """
    return _compare("equal", a, b, format, inputs)


def not_equal(a: Any, b: Any, *, format: Any = None, inputs: str = "keep") -> Any:
    """Whether a != b, the opposite of `equal`; NaN differs from everything.

    >>> import fp16sim as fs
    >>> bool(fs.not_equal(float("nan"), float("nan")))
    True
    """
    return _compare("not_equal", a, b, format, inputs)


def less(a: Any, b: Any, *, format: Any = None, inputs: str = "keep") -> Any:
    """Whether a < b; raises invalid on any NaN. Arguments as those of `equal`.

    >>> import fp16sim as fs
    >>> bool(fs.less(-0.0, 0.0)), bool(fs.less(1.0, 2.0))
    (False, True)
    """
    return _compare("less", a, b, format, inputs)


def less_equal(a: Any, b: Any, *, format: Any = None, inputs: str = "keep") -> Any:
    """Whether a <= b; raises invalid on any NaN. Arguments as those of `equal`.

    >>> import fp16sim as fs
    >>> bool(fs.less_equal(0.0, -0.0))
    True
    """
    return _compare("less_equal", a, b, format, inputs)


def greater(a: Any, b: Any, *, format: Any = None, inputs: str = "keep") -> Any:
    """Whether a > b; raises invalid on any NaN. Arguments as those of `equal`.

    >>> import fp16sim as fs
    >>> bool(fs.greater(2.0, 1.0))
    True
    """
    return _compare("greater", a, b, format, inputs)


def greater_equal(a: Any, b: Any, *, format: Any = None, inputs: str = "keep") -> Any:
    """Whether a >= b; raises invalid on any NaN. Arguments as those of `equal`.

    >>> import fp16sim as fs
    >>> bool(fs.greater_equal(float("nan"), 1.0))
    False
    """
    return _compare("greater_equal", a, b, format, inputs)


_INTEGER_MODES = MODES[:5]
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def to_integer(x: Any, dtype: Any = "int64", *, rounding: str = "toward_zero") -> Any:
    """Round to integers, once, in a given mode.

    Parameters
    ----------
    x : array_like
        binary16, bfloat16, 8-bit, float32 or float64 values.
    dtype : dtype
        A signed or unsigned integer type.
    rounding : str
        One of the five directions of IEEE 754; C's and NumPy's cast is ``"toward_zero"``.

    Returns
    -------
    integer array or scalar
        Beyond the type's range the nearest integer that it has, for NaN zero; both raise invalid, and where the
        value changes otherwise inexact is raised.

    >>> to_integer([2.5, -2.5, float("inf")], "int8", rounding="nearest_even").tolist()
    [2, -2, 127]
    """
    try:
        target = np.dtype(dtype)
    except TypeError:
        raise TypeError(f"unknown dtype {dtype!r}: {nearest_name(dtype, _INTEGERS)}") from None
    if target.kind not in "iu":
        raise TypeError(f"dtype={dtype!r}: choose an integer type such as 'int32'")
    if rounding not in _INTEGER_MODES:
        raise ValueError(f"unknown rounding {rounding!r}: {nearest_name(rounding, _INTEGER_MODES)}")
    array = as_values(x)
    if source_format(array) is None:
        raise TypeError(f"{array.dtype} array: it holds integers already; use x.astype({target.name!r})")
    with np.errstate(invalid="ignore"):  # signalling NaNs are counted below
        values = array.astype(np.float64) + 0.0  # exact from every source; makes NaNs quiet
        whole = _integral(values, rounding)
    limits = np.iinfo(target)
    # 2^63 - 1 and 2^64 - 1 are no float64, so the upper limit is tested as "below max + 1".
    too_high, too_low = whole >= float(limits.max) + 1.0, whole < float(limits.min)
    if limits.bits < 64:
        too_high = whole > limits.max
    lost = np.isnan(values)
    safe = np.where(too_high | too_low | lost, 0.0, whole)
    result = safe.astype(target)
    result = np.where(too_high, target.type(limits.max), np.where(too_low, target.type(limits.min), result))
    if events.counting():
        invalid = too_high | too_low | lost
        counts = np.zeros(len(FLAG_NAMES), np.int64)
        counts[FLAG_NAMES.index("invalid")] = np.count_nonzero(invalid)
        counts[FLAG_NAMES.index("inexact")] = np.count_nonzero(~invalid & (whole != values))
        events.record("to_integer", counts)
    return result[()]


def _integral(values: npt.NDArray[np.float64], rounding: str) -> npt.NDArray[np.float64]:
    """Round float64 to integral float64; all of these are exact in float64."""
    if rounding == "toward_zero":
        return np.trunc(values)
    if rounding == "toward_positive":
        return np.ceil(values)
    if rounding == "toward_negative":
        return np.floor(values)
    if rounding == "nearest_even":
        return np.rint(values)
    # Ties away: the fraction of |x| is exact, so no half is added that could round.
    below = np.floor(np.abs(values))
    away = np.abs(values) - below >= 0.5  # NaN for an infinity, which stays
    rounded: npt.NDArray[np.float64] = np.copysign(below + away, values)
    return rounded
