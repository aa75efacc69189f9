"""The table of a comparison, as plain text and as HTML, and the sentences around it."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence

from fp16sim.training.results import RunResult

__all__ = [
    "ACCURACY_NOTE",
    "HEADER",
    "SHARES_NOTE",
    "factor_note",
    "html_table",
    "percent",
    "power_of_two",
    "rows",
    "superscript",
    "text_table",
]

HEADER = ("run", "accuracy", "zero", "flushed", "surviving", "final scale", "skipped steps")
"""What :func:`rows` gives for each run; zero, flushed and surviving are shares of the gradients."""


SHARES_NOTE = (
    "Zero, flushed and surviving are shares of the float32 run's activation gradients, as the final scale of each "
    "float16 run would leave them in float16: zero in float32 already; nonzero there and zero in float16; nonzero in "
    "both. A float32 run flushes nothing and needs no scale."
)
"""What the three shares are."""

ACCURACY_NOTE = (
    "Accuracy is the share of 397 test images that are labelled correctly: one image is 0.25%, so a difference of "
    "0.76% is three images."
)
"""How fine the accuracy is."""


def percent(share: float) -> str:
    """Write a share with one decimal.

    >>> percent(0.9748), percent(float("nan"))
    ('97.5%', '-')
    """
    return f"{100 * share:.1f}%" if math.isfinite(share) else "-"


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


def superscript(text: str) -> str:
    """Raise the exponents of powers of two, for pages and pictures.

    >>> superscript("2^-17 and 2^33")
    '2⁻¹⁷ and 2³³'
    """
    raised = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    return re.sub(r"\b2\^(-?\d+)", lambda power: "2" + power[1].translate(raised), text)


def rows(results: Sequence[RunResult]) -> list[tuple[str, ...]]:
    """Give the cells of the table, one row a run, in the order of `HEADER`.

    Nothing is flushed in float32, and there is no scale: these cells of a float32 run hold a dash.
    """
    return [
        (
            result.name,
            percent(result.accuracy),
            percent(result.shares.zero),
            *(("-", "-", "-") if result.policy == "float32" else _after_float16(result)),
            str(result.skipped),
        )
        for result in results
    ]


def _after_float16(result: RunResult) -> tuple[str, str, str]:
    return percent(result.shares.flushed), percent(result.shares.survive), power_of_two(result.final_scale)


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


def factor_note(loss_factor: float) -> str:
    """Say what the small factor on the loss stands for.

    >>> factor_note(2.0**-17)[:53]
    'The loss of every run is multiplied by 2^-17. That st'
    """
    return (
        f"The loss of every run is multiplied by {power_of_two(loss_factor)}. That stands for a network "
        "whose gradients are that small, as those of the object detector SSD are: it moves the gradients of "
        "this small network to where SSD's lie. The learning rate is divided by the same factor, and float32 "
        "does not notice it."
    )
