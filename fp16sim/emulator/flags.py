"""The six flags of an operation, as bits, in the one order that is used everywhere.

Five are those of IEEE 754-2019 clause 7. `SUBNORMAL` is not one of the standard's: it says that the result is
subnormal, whether exact or rounded, which is what loss scaling looks at.
"""

from __future__ import annotations

__all__ = [
    "DIVIDE_BY_ZERO",
    "FLAG_NAMES",
    "INEXACT",
    "INVALID",
    "OVERFLOW",
    "SUBNORMAL",
    "UNDERFLOW",
    "flag_names",
]

OVERFLOW = 1
UNDERFLOW = 2
SUBNORMAL = 4
INVALID = 8
DIVIDE_BY_ZERO = 16
INEXACT = 32

FLAG_NAMES = ("overflow", "underflow", "subnormal", "invalid", "divide_by_zero", "inexact")
"""Bit ``i`` of a flag word is ``FLAG_NAMES[i]``."""


def flag_names(flags: int) -> tuple[str, ...]:
    """Name the flags that are set in a word.

    >>> flag_names(UNDERFLOW | INEXACT)
    ('underflow', 'inexact')
    """
    return tuple(name for bit, name in enumerate(FLAG_NAMES) if flags >> bit & 1)
