"""2 to a fractional power, correctly rounded, in integers: the same bits on every machine."""

from __future__ import annotations

import math
from functools import lru_cache

__all__ = ["exp2"]

_BITS = 192


@lru_cache(maxsize=4096)
def exp2(x: float) -> float:
    """Give 2^x in binary64.

    Parameters
    ----------
    x : float

    Returns
    -------
    float
        Rounded once, to nearest: x is split into an integer and a fraction f; e^(f ln 2) is summed in integers with 192
        bits after the point, where the error is below 2^-180, and cut to the bits that the result has. Infinite from
        1024 on.

    Examples
    --------
    >>> exp2(0.5), exp2(-1075.0), exp2(1024.0)
    (1.4142135623730951, 0.0, inf)
    """
    if math.isnan(x):
        return x
    if x >= 1024 or x < -1076:
        return math.inf if x > 0 else 0.0
    mantissa, exponent = math.frexp(x)
    shift = _BITS - 53 + exponent
    digits = int(math.ldexp(mantissa, 53))
    fixed = digits << shift if shift >= 0 else digits >> -shift
    whole, fraction = fixed >> _BITS, fixed & ((1 << _BITS) - 1)
    angle = fraction * _log_of_two() >> _BITS
    total = term = 1 << _BITS
    count = 1
    while term:
        term = (term * angle >> _BITS) // count
        total += term
        count += 1
    lost = _BITS - 52 + max(0, -1022 - whole)  # subnormal results have fewer bits
    kept, rest, half = total >> lost, total & ((1 << lost) - 1), 1 << (lost - 1)
    kept += rest > half or (rest == half and kept & 1)
    return math.ldexp(float(kept), whole + lost - _BITS)


@lru_cache
def _log_of_two() -> int:
    """Give ln 2 = 2 atanh(1/3) with `_BITS` bits after the point."""
    guard = 32
    total, term, odd = 0, (2 << (_BITS + guard)) // 3, 1
    while term:
        total += term // odd
        term //= 9
        odd += 2
    return total >> guard
