"""Real data that ships with the package, and batches of it in an order that a seed fixes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.nn.random import permutation

__all__ = ["Batches", "digits"]

Array = npt.NDArray[Any]

SPLIT_SEED, SPLIT_STEP = 1, 0xFFFFFFFF
"""The stream of the shuffle that parts training from test images; epochs count steps from 0."""


@dataclass(frozen=True)
class Split:
    """Images as rows and their labels.

    Attributes
    ----------
    images : float32 array, shape (count, 64)
    labels : int64 array, shape (count,)
    """

    images: Array
    labels: Array


def digits(training: int = 1400) -> tuple[Split, Split]:
    """Load 1,797 images of handwritten digits, 8 x 8 pixels, in 10 classes.

    Parameters
    ----------
    training : int
        How many are for training; the others are for testing. The images come in runs by writer, so they
        are shuffled first, always in the same way.

    Returns
    -------
    training, test : Split
        A pixel p of 0 to 16 becomes (p - 5) / 8, about centred and exact in binary16; the mean of p is 4.9.

    Notes
    -----
    E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository,
    1998, https://doi.org/10.24432/C50P49, CC BY 4.0.

    Examples
    --------
    >>> train, test = digits()
    >>> train.images.shape, test.images.shape, test.labels[:3].tolist()
    ((1400, 64), (397, 64), [9, 0, 0])
    """
    if not 0 < training < 1797:
        raise ValueError(f"training={training!r}: of 1797 images, 1 to 1796 can be for training")
    with (
        resources.files("fp16sim.training").joinpath("datasets/digits.npz").open("rb") as file,
        np.load(file) as data,
    ):
        images = (data["images"].reshape(-1, 64).astype(np.float32) - 5) / 8
        labels = data["labels"].astype(np.int64)
    order = permutation(SPLIT_SEED, len(labels), SPLIT_STEP)
    first, rest = order[:training], order[training:]
    return Split(images[first], labels[first]), Split(images[rest], labels[rest])


@dataclass(frozen=True)
class Batches:
    """Batches of a split, for ever, shuffled anew in each epoch.

    Parameters
    ----------
    split : Split
    size : int
        Examples in a batch; the last of an epoch holds what is left.
    seed : int
        Fixes the order: epoch ``e`` is :func:`fp16sim.nn.random.permutation` at step ``e``.

    Examples
    --------
    >>> batches = Batches(digits()[0], 64)
    >>> batches.per_epoch
    22
    >>> images, labels = next(iter(batches))
    >>> images.shape, labels.shape
    ((64, 64), (64,))
    """

    split: Split
    size: int
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.size <= len(self.split.labels):
            raise ValueError(
                f"size={self.size!r}: a batch holds 1 to {len(self.split.labels)} examples of these"
            )

    @property
    def per_epoch(self) -> int:
        """Number of batches in an epoch."""
        return -(-len(self.split.labels) // self.size)

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        epoch = 0
        while True:
            order = permutation(self.seed, len(self.split.labels), epoch)
            for start in range(0, len(order), self.size):
                chosen = order[start : start + self.size]
                yield self.split.images[chosen], self.split.labels[chosen]
            epoch += 1
