"""Recordings of spoken vowels that ship with the package."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fp16sim.training.data.source import Array, stored

__all__ = ["Sequences", "vowels"]

TRAINING = 270
"""The published split: these recordings come first, those for testing after them."""


@dataclass(frozen=True, eq=False)
class Sequences:
    """Sequences of unequal length in one array, and their labels.

    Attributes
    ----------
    inputs : float32 array, shape (count, longest, channels)
        Zero after the end of a sequence.
    lengths : int64 array, shape (count,)
    labels : int64 array, shape (count,)
    """

    inputs: Array
    lengths: Array
    labels: Array


def vowels() -> tuple[Sequences, Sequences]:
    """Load 640 recordings of two Japanese vowels by nine speakers; who speaks is the label.

    A recording is 7 to 29 frames of 12 LPC cepstrum coefficients, between -1.86 and 2.21.

    Returns
    -------
    training, test : Sequences
        270 and 370 of them, as published: inputs of shape (count, 29, 12), labels 0 to 8. A published
        value, a decimal of up to six places, is rounded once to float32.

    Notes
    -----
    M. Kudo, J. Toyama and M. Shimbo, Japanese Vowels, UCI Machine Learning Repository, 1999,
    https://doi.org/10.24432/C5NS47, CC BY 4.0.

    Examples
    --------
    >>> training, test = vowels()
    >>> training.inputs.shape, test.inputs.shape
    ((270, 29, 12), (370, 29, 12))
    >>> training.lengths[:3].tolist(), training.labels[:3].tolist()
    ([20, 26, 22], [0, 0, 0])
    >>> bool(training.inputs[0, 0, 0] == np.float32("1.860936"))
    True
    """
    with stored("vowels.npz") as file, np.load(file) as data:
        planes = data["planes"]
        lengths, labels = data["lengths"].astype(np.int64), data["labels"].astype(np.int64)
    # The quotient is rounded to float64 and then to float32, which is as once: unless it is a midpoint of
    # float32 (then exact in float64) it is 2^-45 relative or more from one, and float64 errs by 2^-53.
    values = (millionths(planes) / 1e6).astype(np.float32)
    inputs = np.zeros((len(lengths), int(lengths.max()), values.shape[1]), np.float32)
    inputs[np.arange(inputs.shape[1]) < lengths[:, None]] = values
    return (
        Sequences(inputs[:TRAINING], lengths[:TRAINING], labels[:TRAINING]),
        Sequences(inputs[TRAINING:], lengths[TRAINING:], labels[TRAINING:]),
    )


def millionths(planes: Array) -> Array:
    """Undo the packing of values: differences along the first axis, 2 d for d >= 0 and -2 d - 1 for d < 0."""
    low, middle, high = planes.astype(np.int64)
    folded = low | middle << 8 | high << 16
    return np.asarray(np.cumsum(folded >> 1 ^ -(folded & 1), axis=0))
