"""The table of a comparison, and the sentences around it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from fp16sim.training.results import RunResult
from fp16sim.training.tables import html_table, power_of_two, text_table

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
