"""Histories of training steps, in runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from fp16sim.testing.histories import LETTERS

__all__ = ["overflow_histories"]


def overflow_histories(
    *,
    letters: str = LETTERS,
    most_runs: int = 8,
    longest_run: int = 12,
    lengths: Mapping[str, Sequence[int]] | None = None,
    most_steps: int | None = None,
) -> st.SearchStrategy[str]:
    """Draw histories: runs of ``.`` finite steps, ``o`` overflows and ``n`` NaNs.

    Parameters
    ----------
    letters : str
        Those that occur; earlier ones are simpler.
    most_runs, longest_run : int
        Runs in a history, and steps in a run.
    lengths : mapping of letter to lengths, optional
        Longer runs that are drawn as well, such as a scaler's window.
    most_steps : int, optional
        What is longer is cut off.

    Returns
    -------
    SearchStrategy of str
        Shrinks to fewer runs, shorter ones, and earlier letters.
    """

    def run(letter: str) -> st.SearchStrategy[str]:
        own = (lengths or {}).get(letter, ())
        short = st.one_of(st.integers(1, min(3, longest_run)), st.integers(1, longest_run))
        length = st.one_of(short, st.sampled_from(sorted(own))) if own else short
        if own and max(own) > longest_run:
            length = st.one_of(length, st.integers(1, max(own)))  # so that a long one shrinks step by step
        return length.map(lambda count: letter * count)

    runs = st.one_of([run(letter) for letter in letters])
    return st.lists(runs, max_size=most_runs).map(lambda found: "".join(found)[:most_steps])
