"""Handwritten digits that ship with the package."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fp16sim.nn.random import permutation
from fp16sim.training.data.source import Array, check_whole, stored

__all__ = ["Split", "digits"]

SPLIT_SEED, SPLIT_STEP = 1, 0xFFFFFFFF
"""The stream of the shuffle that parts training from test images; epochs count steps from 0."""


@dataclass(frozen=True, eq=False)
class Split:
    """Images, one for each row, and their labels.

    Attributes
    ----------
    images : float32 array, shape (count, 64) or (count, 1, 8, 8)
    labels : int64 array, shape (count,)
    """

    images: Array
    labels: Array


def digits(training: int = 1400, *, channels: bool = False) -> tuple[Split, Split]:
    """Load 1,797 images of handwritten digits, 8 x 8 pixels, in 10 classes.

    Parameters
    ----------
    training : int
        How many are for training; the others are for testing. The images come in runs by writer, so they
        are shuffled first, always in the same way.
    channels : bool
        Whether an image is an array (1, 8, 8) of channel, row and column, as convolutions take it, and not
        a row of 64 numbers. The values are the same.

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
    >>> digits(channels=True)[1].images.shape
    (397, 1, 8, 8)
    """
    check_whole("training", training, 1, 1796, "of 1797 images some are for training and some for testing")
    with stored("digits.npz") as file, np.load(file) as data:
        shape = (-1, 1, 8, 8) if channels else (-1, 64)
        images = (data["images"].reshape(shape).astype(np.float32) - 5) / 8
        labels = data["labels"].astype(np.int64)
    order = permutation(SPLIT_SEED, len(labels), SPLIT_STEP)
    first, rest = order[:training], order[training:]
    return Split(images[first], labels[first]), Split(images[rest], labels[rest])
