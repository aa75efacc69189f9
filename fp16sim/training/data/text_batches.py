"""Batches of windows of a text: for predicting the next character, and for filling in masked ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from fp16sim.nn.random import uniform_integers
from fp16sim.training.data.source import Array, check_array, check_batch, check_seed, check_whole, endlessly

__all__ = ["IGNORED", "MaskedTextBatches", "TextBatches", "windows"]

IGNORED = -100
"""The target that losses leave out, as in torch."""

WINDOWS, MASKS = 0xFFFFFFFE, 0xFFFFFFFD
"""The layer ids, in :mod:`fp16sim.nn.random`, of where windows start and of what is masked."""


@dataclass(frozen=True, eq=False)
class TextBatches:
    """Windows of a text and the characters that follow, for ever, at random places.

    Parameters
    ----------
    tokens : integer array, shape (count,)
    context : int
        Characters in a window.
    size : int
        Windows in a batch.
    seed : int
        Batch ``b`` starts its windows where Philox (key `seed`, step ``b``) says: 48 random bits each, modulo
        the number of places.

    Raises
    ------
    ValueError
        If the tokens are not a row of integers from 0, or `context`, `size` or `seed` does not fit them.

    Examples
    --------
    >>> from fp16sim.training.data import characters
    >>> text = characters()
    >>> inputs, targets = TextBatches(text.training, 32, 4).at(0)
    >>> inputs.shape, bool((inputs[:, 1:] == targets[:, :-1]).all())
    ((4, 32), True)
    >>> text.decode(inputs[0])
    'no arguments have  |            '
    """

    tokens: Array
    context: int
    size: int
    seed: int = 0

    def __post_init__(self) -> None:
        check_tokens(self.tokens)
        _check_windows(self.context, len(self.tokens) - 1, self.size, self.seed)

    def at(self, batch: int) -> tuple[Array, Array]:
        """Give inputs and targets of one batch, counted from 0: int64 arrays (size, context)."""
        check_batch(batch)
        found = _at_random(self.tokens, self.context + 1, self.size, self.seed, batch)
        return found[:, :-1].copy(), found[:, 1:].copy()

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        return endlessly(self.at)


@dataclass(frozen=True, eq=False)
class MaskedTextBatches:
    """Windows of a text in which 15% of the characters are masked, and those characters, for ever.

    Each window has the same number of masked characters, 15% of `context` rounded, at least one; BERT's data
    is made with that number (Devlin et al., arXiv 1810.04805, and ``create_pretraining_data.py`` of
    google-research/bert). Unlike BERT's, a chosen character is always replaced by the mask.

    Parameters
    ----------
    tokens, context, size, seed
        As in :class:`TextBatches`.
    mask : int
        The token that stands for a masked character; none of `tokens`. For a
        :class:`~fp16sim.training.data.Text` that is its `mask_token`.

    Raises
    ------
    ValueError
        As in :class:`TextBatches`, and if `mask` is among the tokens.

    Examples
    --------
    >>> from fp16sim.training.data import characters
    >>> text = characters()
    >>> inputs, targets = MaskedTextBatches(text.training, 40, 4, mask=text.mask_token).at(0)
    >>> (inputs == text.mask_token).sum(axis=1).tolist(), (targets != IGNORED).sum(axis=1).tolist()
    ([6, 6, 6, 6], [6, 6, 6, 6])
    """

    tokens: Array
    context: int
    size: int
    seed: int = 0
    mask: int = field(kw_only=True)

    def __post_init__(self) -> None:
        check_tokens(self.tokens)
        _check_windows(self.context, len(self.tokens), self.size, self.seed)
        largest = int(self.tokens.max())
        check_whole(
            "mask", self.mask, largest + 1, None, f"the mask is no character, and tokens go to {largest}"
        )

    @property
    def masked(self) -> int:
        """Number of masked characters in a window."""
        return max(1, (15 * self.context + 50) // 100)

    def at(self, batch: int) -> tuple[Array, Array]:
        """Give inputs and targets of one batch, counted from 0: int64 arrays (size, context).

        A target is the character where the input is the mask, and -100 elsewhere.
        """
        check_batch(batch)
        found = _at_random(self.tokens, self.context, self.size, self.seed, batch)
        draws = uniform_integers(self.seed, found.size, MASKS, batch).reshape(found.shape)
        places = np.argsort(draws, axis=1, kind="stable")[:, : self.masked]
        inputs, targets = found.copy(), np.full_like(found, IGNORED)
        np.put_along_axis(inputs, places, self.mask, axis=1)
        np.put_along_axis(targets, places, np.take_along_axis(found, places, axis=1), axis=1)
        return inputs, targets

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        return endlessly(self.at)


def windows(tokens: Array, context: int) -> tuple[Array, Array]:
    """Cut a text into windows one after another, to measure a model on all of it.

    Parameters
    ----------
    tokens : integer array, shape (count,)
    context : int

    Returns
    -------
    inputs, targets : int64 arrays, shape ((count - 1) // context, context)
        A target is the character after its input. What is left at the end is dropped.

    Examples
    --------
    >>> inputs, targets = windows(np.arange(8), 3)
    >>> inputs.tolist(), targets.tolist()
    ([[0, 1, 2], [3, 4, 5]], [[1, 2, 3], [4, 5, 6]])
    """
    check_tokens(tokens)
    _check_windows(context, len(tokens) - 1, 1, 0)
    whole = (len(tokens) - 1) // context * context
    row = tokens.astype(np.int64)
    return row[:whole].reshape(-1, context), row[1 : whole + 1].reshape(-1, context).copy()


def check_tokens(tokens: Array) -> None:
    """Refuse what is not a row of integers from 0."""
    check_array("tokens", tokens)
    if tokens.ndim != 1 or not np.issubdtype(tokens.dtype, np.integer):
        raise ValueError(
            f"tokens {tokens.shape} of {tokens.dtype}: a text is one row of integers; "
            "pass Text.training, Text.test or Text.encode(...)"
        )
    negative = np.flatnonzero(tokens < 0)
    if len(negative):
        place = int(negative[0])
        raise ValueError(
            f"tokens[{place}] is {tokens[place]}: tokens are numbered from 0; correct or leave it out"
        )


def _check_windows(context: int, longest: int, size: int, seed: int) -> None:
    check_whole("context", context, 1, longest, "windows, with their targets, lie within the text")
    check_whole("size", size, 1, None, "a batch holds windows")
    check_seed(seed)


def _at_random(tokens: Array, length: int, size: int, seed: int, batch: int) -> Array:
    """Give `size` windows of the text, int64, each from a place of its own."""
    draws = uniform_integers(seed, 2 * size, WINDOWS, batch).astype(np.int64)
    starts = (draws[0::2] << 24 | draws[1::2]) % (len(tokens) - length + 1)
    found: Array = tokens[starts[:, None] + np.arange(length)].astype(np.int64)
    return found
