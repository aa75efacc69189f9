"""Batches of examples in an order that a seed fixes, shuffled anew in each epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fp16sim.training.data.images import Split
from fp16sim.training.data.source import (
    Array,
    batches_per_epoch,
    check_array,
    check_batch,
    check_finite,
    check_labels,
    check_seed,
    check_whole,
    chosen,
    endlessly,
)
from fp16sim.training.data.speech import Sequences

__all__ = ["Batches", "SequenceBatches"]


@dataclass(frozen=True, eq=False)
class Batches:
    """Batches of a split, for ever, shuffled anew in each epoch.

    Parameters
    ----------
    split : Split
        Any object with `images`, whose first dimension counts examples, and `labels`.
    size : int
        Examples in a batch; the last of an epoch holds what is left.
    seed : int
        Fixes the order: epoch ``e`` is :func:`fp16sim.nn.random.permutation` at step ``e``.
    classes : int, optional
        Where given, labels have to be 0 to ``classes - 1``.

    Raises
    ------
    ValueError
        If an input is NaN or infinite, a label is not one of the classes, the labels do not fit the images,
        or `size` or `seed` is impossible.

    Examples
    --------
    >>> from fp16sim.training.data import digits
    >>> batches = Batches(digits()[0], 64)
    >>> batches.per_epoch
    22
    >>> images, labels = next(iter(batches))
    >>> images.shape, labels.shape
    ((64, 64), (64,))
    >>> batches.at(21)[0].shape
    (56, 64)
    """

    split: Split
    size: int
    seed: int = 0
    classes: int | None = None

    def __post_init__(self) -> None:
        _check(self.split.images, "images", self.split.labels, self.size, self.seed, self.classes)

    @property
    def per_epoch(self) -> int:
        """Number of batches in an epoch."""
        return batches_per_epoch(len(self.split.labels), self.size)

    def at(self, batch: int) -> tuple[Array, Array]:
        """Give the images and labels of one batch, counted from 0 since the first epoch began."""
        check_batch(batch)
        part = chosen(self.seed, len(self.split.labels), self.size, batch)
        return self.split.images[part], self.split.labels[part]

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        return endlessly(self.at)


@dataclass(frozen=True, eq=False)
class SequenceBatches:
    """Batches of sequences with their lengths, for ever, shuffled anew in each epoch.

    Parameters
    ----------
    sequences : Sequences
    size, seed, classes
        As in :class:`Batches`, whose order this is for as many examples.

    Raises
    ------
    ValueError
        As in :class:`Batches`, and if a length is not 1 to the longest that the inputs hold.

    Examples
    --------
    >>> from fp16sim.training.data import vowels
    >>> batches = SequenceBatches(vowels()[0], 30, classes=9)
    >>> (inputs, lengths), labels = batches.at(0)
    >>> inputs.shape, lengths.shape, labels.shape, batches.per_epoch
    ((30, 29, 12), (30,), (30,), 9)
    """

    sequences: Sequences
    size: int
    seed: int = 0
    classes: int | None = None

    def __post_init__(self) -> None:
        inputs, lengths = self.sequences.inputs, self.sequences.lengths
        _check(inputs, "inputs", self.sequences.labels, self.size, self.seed, self.classes)
        check_array("lengths", lengths)
        if (
            inputs.ndim < 2
            or lengths.shape != inputs.shape[:1]
            or not np.issubdtype(lengths.dtype, np.integer)
        ):
            raise ValueError(
                f"lengths {lengths.shape} of {lengths.dtype} for inputs {inputs.shape}: inputs are (example, "
                f"frame, ...) with one integer length for each example; pass lengths of shape ({len(inputs)},)"
            )
        wrong = np.flatnonzero((lengths < 1) | (lengths > inputs.shape[1]))
        if len(wrong):
            place = int(wrong[0])
            raise ValueError(
                f"lengths[{place}] is {lengths[place]}: inputs {inputs.shape} hold sequences of 1 to "
                f"{inputs.shape[1]} frames; correct or leave out example {place}"
            )

    @property
    def per_epoch(self) -> int:
        """Number of batches in an epoch."""
        return batches_per_epoch(len(self.sequences.labels), self.size)

    def at(self, batch: int) -> tuple[tuple[Array, Array], Array]:
        """Give ((inputs, lengths), labels) of one batch, counted from 0 since the first epoch began."""
        check_batch(batch)
        sequences = self.sequences
        part = chosen(self.seed, len(sequences.labels), self.size, batch)
        return (sequences.inputs[part], sequences.lengths[part]), sequences.labels[part]

    def __iter__(self) -> Iterator[tuple[tuple[Array, Array], Array]]:
        return endlessly(self.at)


def _check(inputs: Array, name: str, labels: Array, size: int, seed: int, classes: int | None) -> None:
    check_array(name, inputs)
    check_labels(labels, len(inputs), classes)
    check_whole(
        "size", size, 1, len(labels), f"these are {len(labels)} examples, and a batch holds none twice"
    )
    check_seed(seed)
    check_finite(name, inputs)
