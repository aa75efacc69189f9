"""``fp16sim explain``: one number in float16, before and after a loss scale."""

from __future__ import annotations

import argparse
import re

from fp16sim.commands import Misuse, write_out

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what ``explain`` takes."""
    parser.epilog = (
        "In Python this is fp16sim.describe(number); fp16sim.explain shows one dot product instead."
    )
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
    from fp16sim.emulator.number_text import parse_number

    try:
        number, scale = parse_number(args.number, "number"), parse_number(args.scale, "--scale")
        description = describe(number, args.format, scale)
    except (ValueError, TypeError) as error:
        # What Python calls x and scale was typed by other names.
        says = re.sub(r"^x\b", "number", re.sub(r"^scale\b", "--scale", str(error)))
        raise Misuse(says) from error
    write_out(f"{description.to_json() if args.json else description}\n")
    return 0
