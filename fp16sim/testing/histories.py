"""Histories of training steps as text: a letter for what each step showed.

``.`` is a finite step, ``o`` one with an infinite gradient, ``n`` one with a NaN, and ``|`` between steps a restart:
the scaler is saved, and a new one takes up its state. A run of one letter may be written with its length in braces, as
in a regular expression: ``o{166}.``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby, product

__all__ = ["FINITE", "LETTERS", "NAN", "OVERFLOW", "RESTART", "every", "expanded", "shown"]

FINITE, OVERFLOW, NAN, RESTART = ".", "o", "n", "|"
LETTERS = FINITE + OVERFLOW + NAN
_LONGEST_SPELLED = 9
_MOST_STEPS = 1_000_000


def shown(history: str) -> str:
    """Write a history, long runs with their length.

    >>> shown("..oo" + "." * 2000), shown("")
    ('..oo.{2000}', '')
    """
    runs = ((letter, len(list(run))) for letter, run in groupby(history))
    return "".join(
        letter * length if length <= _LONGEST_SPELLED else f"{letter}{{{length}}}" for letter, length in runs
    )


def expanded(text: str) -> str:
    """Give the letters of a history as :func:`shown` writes it.

    Raises
    ------
    ValueError
        If braces hold no number, follow no letter, or ask for more than a million steps.

    Examples
    --------
    >>> expanded("o{3}.")
    'ooo.'
    """
    runs = re.findall(r"([^{}])(?:\{(\d+)\})?", text)
    if "".join(letter + (f"{{{count}}}" if count else "") for letter, count in runs) != text:
        raise ValueError(
            f"{text!r}: braces hold the length of the run of the letter before, such as o{{166}}"
        )
    lengths = [int(count or 1) for _, count in runs]
    if sum(lengths) > _MOST_STEPS:
        raise ValueError(f"{text!r}: {sum(lengths)} steps; a history has at most {_MOST_STEPS}")
    return "".join(letter * length for (letter, _), length in zip(runs, lengths, strict=True))


def every(letters: str, most: int) -> Iterator[str]:
    """Give all histories of these letters up to a length, shorter ones first.

    >>> list(every(".o", 2))
    ['', '.', 'o', '..', '.o', 'o.', 'oo']
    """
    for length in range(most + 1):
        yield from map("".join, product(letters, repeat=length))
