"""Histories of training steps as text: a letter for what each step showed.

``.`` is a finite step, ``o`` one with an infinite gradient, ``n`` one with a NaN, and ``|`` between steps a restart:
the scaler is saved, and a new one takes up its state. A run of one letter may be written with its length in braces, as
in a regular expression: ``o{166}.``; and so may what comes again and again: ``(.o){618}``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby, product

__all__ = ["FINITE", "LETTERS", "NAN", "OVERFLOW", "RESTART", "every", "expanded", "shown"]

FINITE, OVERFLOW, NAN, RESTART = ".", "o", "n", "|"
LETTERS = FINITE + OVERFLOW + NAN
_LONGEST_SPELLED = 9
_FEWEST_TIMES, _MOST_RUNS = 3, 8
"""Of a group that is written once: how often it comes, and how many runs it has."""
_MOST_STEPS = 1_000_000
_PART = re.compile(r"([^(){}])(?:\{(\d+)\})?|(\()|\)(?:\{(\d+)\})?")


def shown(history: str) -> str:
    """Write a history, long runs with their length, and what comes three times or more with how often it does.

    >>> shown("..oo" + "." * 2000), shown("..o" * 20), shown("oo.oo.oo."), shown("")
    ('..oo.{2000}', '(..o){20}', 'oo.oo.oo.', '')
    """
    runs = [_run(letter, len(list(run))) for letter, run in groupby(history)]
    parts: list[str] = []
    place = 0
    while place < len(runs):
        size, times = _repeated(runs, place)
        group = "".join(runs[place : place + size])
        once = f"({group}){{{times}}}"
        if len(group) * times > max(_LONGEST_SPELLED, len(once)):
            parts.append(once)
            place += size * times
        else:
            parts.append(runs[place])
            place += 1
    return "".join(parts)


def _run(letter: str, length: int) -> str:
    return letter * length if length <= _LONGEST_SPELLED else f"{letter}{{{length}}}"


def _repeated(runs: Sequence[str], start: int) -> tuple[int, int]:
    """Give how many runs from a place come again right behind them, and how often; as many runs in all as can be."""
    best = 1, 1
    for size in range(2, _MOST_RUNS + 1):
        if start + size >= len(runs) or runs[start + size] != runs[start]:
            continue
        group, times = runs[start : start + size], 1
        while runs[start + size * times : start + size * (times + 1)] == group:
            times += 1
        if times >= _FEWEST_TIMES and size * times > best[0] * best[1]:
            best = size, times
    return best


def expanded(text: str) -> str:
    """Give the letters of a history as :func:`shown` writes it.

    Raises
    ------
    ValueError
        If braces hold no number, follow no letter and no group, or ask for more than a million steps; or if a
        parenthesis has no other.

    Examples
    --------
    >>> expanded("o{3}."), expanded("(.o{2}){3}")
    ('ooo.', '.oo.oo.oo')
    """
    levels: list[list[str]] = [[]]  # of what is in parentheses that are not closed yet
    lengths = [0]
    end = 0
    while part := _PART.match(text, end):
        if part[0].startswith(")") and len(levels) == 1:
            break
        end = part.end()
        if part[3]:
            levels.append([])
            lengths.append(0)
            continue
        if part[1]:
            piece, length, times = part[1], 1, int(part[2] or 1)
        else:
            piece, length, times = "".join(levels.pop()), lengths.pop(), int(part[4] or 1)
        lengths[-1] += length * times
        if lengths[-1] > _MOST_STEPS:
            raise ValueError(f"{text!r}: {lengths[-1]} steps; a history has at most {_MOST_STEPS}")
        levels[-1].append(piece * times)
    if end < len(text) or len(levels) > 1:
        raise ValueError(
            f"{text!r}: braces hold the length of the run of the letter before, such as o{{166}}, or how often what is "
            "in the parentheses before comes, such as (.o){3}"
        )
    return "".join(levels[0])


def every(letters: str, most: int) -> Iterator[str]:
    """Give all histories of these letters up to a length, shorter ones first.

    >>> list(every(".o", 2))
    ['', '.', 'o', '..', '.o', 'o.', 'oo']
    """
    for length in range(most + 1):
        yield from map("".join, product(letters, repeat=length))
