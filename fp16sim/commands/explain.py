"""``fp16sim explain``: one number in float16, before and after a loss scale."""

from __future__ import annotations

import argparse
import re
from decimal import Decimal, InvalidOperation
from fractions import Fraction

from fp16sim.commands import Misuse, write_out

__all__ = ["add_arguments", "parse_number", "run"]


_HEXADECIMAL = re.compile(r"([+-]?)0x([0-9a-f]*)\.?([0-9a-f]*)(?:p([+-]?\d{1,4}))?", re.IGNORECASE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``explain`` takes."""
    parser.add_argument(
        "number", help="2e-8, -65520, 0x1p-24, 2^-25, 1/3, inf or nan; its exact value counts"
    )
    parser.add_argument(
        "--scale", default="1", metavar="S", help="also show what becomes of number * S (default 1)"
    )
    parser.add_argument(
        "--format",
        default="binary16",
        metavar="NAME",
        help="binary16 (default), bfloat16, tf32, binary32, e4m3, e5m2",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print the description."""
    from fp16sim.emulator.describe import describe

    number, scale = parse_number(args.number, "number"), parse_number(args.scale, "--scale")
    try:
        description = describe(number, args.format, scale)
    except (ValueError, TypeError) as error:
        raise Misuse(str(error)) from error
    write_out(f"{description.to_json() if args.json else description}\n")
    return 0


def parse_number(text: str, name: str) -> Decimal | Fraction | float:
    """Read a number exactly as it is written.

    >>> parse_number("2^-25", "number"), parse_number("1/3", "number"), parse_number("2e-8", "number")
    (Fraction(1, 33554432), Fraction(1, 3), Decimal('2E-8'))
    """
    word = text.strip()
    if power := re.fullmatch(r"([+-]?)2(?:\^|\*\*)(-?\d{1,4})", word):
        value = Fraction(2) ** int(power[2])
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
    raise Misuse(f"{name}: {text!r} is not a number; write one such as 2e-8, 0x1p-24, 2^-25 or 1/3")
