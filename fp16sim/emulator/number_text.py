"""Numbers as people write them, read exactly."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from fractions import Fraction

__all__ = ["parse_number"]

_HEXADECIMAL = re.compile(r"([+-]?)0x([0-9a-f]*)\.?([0-9a-f]*)(?:p([+-]?\d{1,4}))?", re.IGNORECASE)


def parse_number(text: str, name: str) -> Decimal | Fraction | float:
    """Read a number exactly as it is written.

    Raises
    ------
    ValueError
        If it is no number; the message calls it `name`.

    >>> parse_number("2^-25", "number"), parse_number("1/3", "number"), parse_number("2e-8", "number")
    (Fraction(1, 33554432), Fraction(1, 3), Decimal('2E-8'))
    """
    word = text.strip()
    if power := re.fullmatch(r"([+-]?)2(?:\^|\*\*)(-?)(\d+)", word):
        if len(power[3].lstrip("0")) > 4:
            size = "small" if power[2] else "large"
            raise ValueError(f"{name}: {text} is too {size}; use an exponent within 1000")
        value = Fraction(2) ** int(power[2] + power[3])
        return -value if power[1] == "-" else value
    try:
        if hexadecimal := _HEXADECIMAL.fullmatch(word):
            sign, whole, fraction, exponent = hexadecimal.groups(default="")
            # int() refuses the empty word, so "0x" is no number; float keeps the sign of a zero.
            places = int(exponent or 0) - 4 * len(fraction)
            value = int(whole + fraction, 16) * Fraction(2) ** places
            return (-value if sign == "-" else value) or float(f"{sign}0")
        if "/" in word:
            return Fraction(word)
        value_read = Decimal(word)
        if not value_read.is_snan():
            return value_read
    except (ValueError, OverflowError, InvalidOperation, ZeroDivisionError):
        pass
    raise ValueError(f"{name}: {text!r} is not a number; write one such as 2e-8, 0x1p-24, 2^-25 or 1/3")
