"""Tables as plain text and as HTML."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

__all__ = ["html_table", "power_of_two", "text_table"]


def power_of_two(scale: float) -> str:
    """Write a scale: in full up to 65536, a larger or smaller power of two as such.

    >>> power_of_two(8.0), power_of_two(2.0**33), power_of_two(2.0**-17), power_of_two(100.5)
    ('8', '2^33', '2^-17', '100.5')
    """
    if not math.isfinite(scale):
        return str(scale)
    mantissa, exponent = math.frexp(scale)
    if mantissa == 0.5 and not 1 <= scale <= 65536:
        return f"2^{exponent - 1}"
    return f"{scale:.10g}"


def text_table(header: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """Align columns: the first to the left, the others to the right.

    >>> print(text_table(("run", "accuracy"), [("float32", "97.5%"), ("unscaled", "9.1%")]))
    run       accuracy
    --------  --------
    float32      97.5%
    unscaled      9.1%
    """
    widths = [max(len(row[column]) for row in [header, *cells]) for column in range(len(header))]
    lines = [
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width) for column, (cell, width) in enumerate(pairs)
        )
        for pairs in (
            zip(row, widths, strict=True) for row in [header, ["-" * width for width in widths], *cells]
        )
    ]
    return "\n".join(line.rstrip() for line in lines)


def html_table(header: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """Give the same as an HTML table, every cell escaped.

    >>> html_table(("run",), [("<b>",)])
    '<table><thead><tr><th>run</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in cells
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
