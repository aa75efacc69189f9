"""What every source of batches offers, and the checks that they share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import resources
from itertools import count
from typing import IO, Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from fp16sim.nn.random import permutation, uniform_integers

__all__ = ["Array", "BatchSource"]

Array = npt.NDArray[Any]
Batch = TypeVar("Batch")


class BatchSource(Protocol):
    """Batches for ever, each a function of its number: training resumes anywhere with the same bits.

    Examples
    --------
    >>> from itertools import islice
    >>> from fp16sim.training.data import Batches, digits
    >>> source = Batches(digits()[0], 64)
    >>> third = list(islice(source, 3))[2]
    >>> bool((source.at(2)[0] == third[0]).all())
    True
    """

    def at(self, batch: int) -> tuple[Any, Any]:
        """Give the inputs and the targets of one batch, counted from 0 since the start of training."""

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """Give batch 0, 1, 2 and so on without end."""


def endlessly(at: Callable[[int], Batch]) -> Iterator[Batch]:
    """Give ``at(0)``, ``at(1)`` and so on."""
    return map(at, count())


def stored(name: str) -> IO[bytes]:
    """Open a file of the data that ships with the package."""
    return resources.files("fp16sim.training").joinpath("datasets", name).open("rb")


def batches_per_epoch(examples: int, size: int) -> int:
    """Count the batches that hold every example once; the last holds what is left."""
    return -(-examples // size)


def chosen(seed: int, examples: int, size: int, batch: int) -> npt.NDArray[np.int64]:
    """Give the indices of the examples of a batch, from the shuffle of the epoch that it falls into."""
    epoch, position = divmod(batch, batches_per_epoch(examples, size))
    return _order(seed, examples, epoch)[position * size : (position + 1) * size]


@lru_cache(maxsize=8)
def _order(seed: int, examples: int, epoch: int) -> npt.NDArray[np.int64]:
    order = permutation(seed, examples, epoch)
    order.flags.writeable = False
    return order


def check_whole(name: str, value: object, least: int, most: int | None, why: str) -> None:
    """Refuse what is not an integer from `least` to `most`."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or not least <= int(value) or (most is not None and int(value) > most):  # type: ignore[call-overload]
        reach = f"{least} or more" if most is None else f"{least} to {most}"
        raise ValueError(f"{name}={value!r}: {why}; choose a whole number, {reach}")


def check_batch(batch: object) -> None:
    """Refuse a batch number that is negative or not an integer."""
    check_whole("batch", batch, 0, None, "batches are counted from 0")


def check_seed(seed: int) -> None:
    """Refuse a seed that the random numbers do not take, before the first batch."""
    uniform_integers(seed, 0)


def check_array(name: str, value: object) -> None:
    """Refuse what is not an array of one example or more."""
    if not isinstance(value, np.ndarray):
        raise TypeError(
            f"{name} is a {type(value).__name__}: data comes in NumPy arrays; pass numpy.asarray(...) of it"
        )
    if value.ndim == 0 or len(value) == 0:
        raise ValueError(
            f"{name} {value.shape} holds no example: training needs data; pass one example or more"
        )


def check_finite(name: str, values: Array) -> None:
    """Refuse NaN and infinity, naming the first place."""
    try:
        finite = np.isfinite(values)
    except TypeError as error:
        raise TypeError(
            f"{name} of dtype {values.dtype}: training data is numbers; convert it, to float32 for example"
        ) from error
    if finite.all():
        return
    place = tuple(int(index) for index in np.argwhere(~finite)[0])
    raise ValueError(
        f"{name}[{', '.join(map(str, place))}] is {values[place]}, one of {finite.size - int(finite.sum())} such "
        f"values: training data has to be finite; repair or leave out example {place[0]}"
    )


def check_labels(labels: Array, examples: int, classes: int | None) -> None:
    """Refuse labels that are not one integer for each example, or not those of a class where `classes` is given."""
    check_array("labels", labels)
    if labels.shape != (examples,) or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"labels {labels.shape} of {labels.dtype} for {examples} examples: each has one integer label; "
            f"pass an integer array of shape ({examples},)"
        )
    if classes is None:
        return
    check_whole("classes", classes, 1, None, "labels number the classes from 0")
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        place = int(wrong[0])
        raise ValueError(
            f"labels[{place}] is {labels[place]}, one of {len(wrong)} outside the classes: with {classes} classes "
            f"labels are 0 to {classes - 1}; correct example {place} or raise classes"
        )
