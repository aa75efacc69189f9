"""Numbers as frameworks keep them: what an option may be, and float32 arithmetic on the scale.

A model accepts every number that its framework accepts, infinities and NaN too, where the framework does not look.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fp16sim.scaling.state import check_number

__all__ = ["divide32", "float32", "flushed", "multiply32", "need_float32", "need_integer", "need_number"]

_ABOVE_FLOAT32 = 2.0**128 - 2.0**103  # the smallest number that rounds to infinity
_TINY = 2.0**-126


def need_number(name: str, value: Any) -> None:
    """Refuse an option that is no number; infinities and NaN pass.

    >>> need_number("init_scale", float("nan"))
    """
    if not (isinstance(value, float) and not math.isfinite(value)):
        check_number(name, value)


def need_float32(name: str, value: Any) -> None:
    """Refuse an option that is no number, or a finite one beyond float32; infinities and NaN pass."""
    need_number(name, value)
    if math.isfinite(value):
        check_number(name, value, above=-_ABOVE_FLOAT32, below=_ABOVE_FLOAT32)


def need_integer(name: str, value: Any) -> None:
    """Refuse an option that is no integer."""
    check_number(name, value, whole=True)


def float32(value: float) -> float:
    """Round to float32.

    >>> float32(0.1)
    0.10000000149011612
    """
    with np.errstate(all="ignore"):
        return float(np.float32(value))


def multiply32(a: float, b: float, flush: bool = False) -> float:
    """Round both to float32, multiply, and round to float32.

    Parameters
    ----------
    a, b : float
    flush : bool
        Take subnormal operands and a subnormal product as zero of the same sign.

    Returns
    -------
    float
        A float32 value.

    Examples
    --------
    >>> multiply32(2.0**-126, 0.5) == 2.0**-127, multiply32(2.0**-126, 0.5, flush=True)
    (True, 0.0)
    """
    x, y = _operand(a, flush), _operand(b, flush)
    with np.errstate(all="ignore"):
        return _result(x * y, flush)


def divide32(a: float, b: float, flush: bool = False) -> float:
    """Round both to float32, divide, and round to float32; a zero divisor gives an infinity or NaN.

    >>> divide32(1.0, 3.0), divide32(1.0, 0.0)
    (0.3333333432674408, inf)
    """
    x, y = _operand(a, flush), _operand(b, flush)
    with np.errstate(all="ignore"):
        return _result(x / y, flush)


def flushed(value: float) -> float:
    """Give zero of the same sign for a subnormal float32 value, other values as they are.

    >>> flushed(2.0**-127), flushed(-1.0)
    (0.0, -1.0)
    """
    return math.copysign(0.0, value) if abs(value) < _TINY else value


def _operand(value: float, flush: bool) -> np.float32:
    rounded = float32(value)
    return np.float32(flushed(rounded) if flush else rounded)


def _result(value: np.float32, flush: bool) -> float:
    return flushed(float(value)) if flush else float(value)
