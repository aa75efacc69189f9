"""Histories of training steps, in runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fp16sim.testing.histories import LETTERS, RESTART

__all__ = ["overflow_histories"]


def overflow_histories(
    *,
    letters: str = LETTERS,
    most_runs: int = 8,
    longest_run: int = 12,
    lengths: Mapping[str, Sequence[int]] | None = None,
    most_steps: int | None = None,
) -> st.SearchStrategy[str]:
    """Draw histories of a run: ``.`` for a finite step, ``o`` for one that overflows, ``n`` for one with a NaN.

    A history is a sequence of runs of one letter. In 5% of the draws or more, each: one run alone; several; each
    letter; overflows, finite steps, and overflows again; runs longer than 3; runs of each of `lengths`, unless there
    are many.

    Parameters
    ----------
    letters : str
        Those that occur; earlier ones are simpler. ``|``, a restart from a saved state, may be one of them.
    most_runs, longest_run : int
        Runs in a history, and steps in a run; at least 1.
    lengths : mapping of letter to lengths, optional
        Longer runs that are drawn as well, such as a scaler's window of 2000 steps and one more. Those of
        letters that do not occur are ignored.
    most_steps : int, optional
        What is longer is cut off.

    Returns
    -------
    SearchStrategy of str
        As :func:`fp16sim.scaling.simulate` takes it (without ``|``), and
        :func:`fp16sim.testing.histories.shown` writes it. Shrinks to fewer runs, shorter ones, and earlier letters.

    Raises
    ------
    TypeError, ValueError
        If an option is none.

    Examples
    --------
    >>> from hypothesis import find, settings
    >>> quiet = settings(derandomize=True, database=None, deadline=None)
    >>> find(overflow_histories(), lambda history: "o.o" in history, settings=quiet)
    'o.o'

    Of a window of 2000 steps the last one matters:

    >>> import fp16sim as fs
    >>> def grows(history):
    ...     return fs.scaling.simulate("torch", history).final_scale[0] > 2.0**16
    >>> histories = overflow_histories(most_runs=1, lengths={".": (1999, 2000, 2001)})
    >>> len(find(histories, grows, settings=quiet))
    2000
    """
    _check(letters, most_runs, longest_run, lengths, most_steps)

    def run(letter: str) -> st.SearchStrategy[str]:
        own = (lengths or {}).get(letter, ())
        short = st.one_of(st.integers(1, min(3, longest_run)), st.integers(1, longest_run))
        length = st.one_of(short, st.sampled_from(sorted(own))) if own else short
        if own and max(own) > longest_run:
            length = st.one_of(length, st.integers(1, max(own)))  # so that a long one shrinks step by step
        return length.map(lambda count: letter * count)

    runs = st.one_of([run(letter) for letter in letters])
    return st.lists(runs, max_size=most_runs).map(lambda found: "".join(found)[:most_steps])


def _check(letters: Any, most_runs: Any, longest_run: Any, lengths: Any, most_steps: Any) -> None:
    known = LETTERS + RESTART
    if not isinstance(letters, str) or not letters or not set(letters) <= set(known):
        raise (ValueError if isinstance(letters, str) else TypeError)(
            f"letters={letters!r}: one or more of {', '.join(map(repr, known))}; pass '.o', for example"
        )
    for name, value in (("most_runs", most_runs), ("longest_run", longest_run), ("most_steps", most_steps)):
        if name == "most_steps" and value is None:
            continue
        _check_count(name, value)
    if lengths is not None and not isinstance(lengths, Mapping):
        raise TypeError(
            f"lengths={lengths!r}: pass a mapping of letter to lengths, such as {{'.': (1999, 2000, 2001)}}"
        )
    for letter, own in (lengths or {}).items():
        if letter not in tuple(known):
            raise ValueError(f"lengths has {letter!r}, which is no letter: use {', '.join(map(repr, known))}")
        if isinstance(own, str) or not isinstance(own, Sequence):
            raise TypeError(f"lengths[{letter!r}]={own!r}: pass a list of lengths, such as [5]")
        for value in own:
            _check_count(f"lengths[{letter!r}]", value)


def _check_count(name: str, value: Any) -> None:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise TypeError(f"{name}={value!r}: it is counted; pass an integer, 1 or more")
    if value < 1:
        raise ValueError(f"{name}={value}: pass 1 or more")
