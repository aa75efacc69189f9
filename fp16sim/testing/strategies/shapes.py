"""Shapes of drawn arrays, and bytes for their elements that shrink to a few."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

__all__ = ["MOST_DRAWN", "Shape", "checked_dtype", "checked_shape", "drawn_bytes", "drawn_shape"]

Shape: TypeAlias = "int | tuple[int, ...] | st.SearchStrategy[Any]"

MOST_DRAWN = 1024
"""Elements that are drawn; larger arrays repeat them. Hypothesis gives an example 8192 bytes."""


def checked_shape(shape: Any, name: str = "shape") -> tuple[int, ...]:
    """Read a shape: a number of elements, or a tuple."""
    sides = shape if isinstance(shape, tuple) else (shape,)
    for side in sides:
        if not isinstance(side, (int, np.integer)) or isinstance(side, bool) or side < 0:
            raise (ValueError if isinstance(side, int) and not isinstance(side, bool) else TypeError)(
                f"{name}={shape!r}: sides are integers, 0 or more; pass 5, (2, 3), or a strategy of these, such as "
                "hypothesis.extra.numpy.array_shapes()"
            )
    return tuple(int(side) for side in sides)


def checked_dtype(dtype: Any, valid: Sequence[str], rule: str) -> str:
    """Give the name of a dtype; None, which is float64 to NumPy, is none.

    >>> checked_dtype(np.float32, ("float32", "float64"), "ties are drawn as float32 or float64")
    'float32'
    >>> checked_dtype("float17", ("float32", "float64"), "ties are drawn as float32 or float64")
    Traceback (most recent call last):
        ...
    ValueError: dtype='float17': ties are drawn as float32 or float64; pass one of these
    """
    name = dtype
    if dtype is not None:
        with suppress(TypeError):
            name = np.dtype(dtype).name
    if name not in valid:
        raise ValueError(f"dtype={name!r}: {rule}; pass one of these")
    return str(name)


def drawn_shape(draw: st.DrawFn, shape: Shape) -> tuple[int, ...]:
    """Give a shape, drawn where it is a strategy."""
    return checked_shape(draw(shape) if isinstance(shape, st.SearchStrategy) else shape)


def drawn_bytes(draw: st.DrawFn, size: int, details: range) -> tuple[npt.NDArray[np.uint8], int]:
    """Draw a byte for each of `size` elements, in most draws all of them, else a few and zeros behind; and a
    detail for all of them.

    Shrinks to zeros, to nonzero bytes in front, and to the first detail: Hypothesis deletes where there may be few,
    and goes there from all of them with the bytes that it has. Where the first element lies is drawn as well.

    These are three choices. Hypothesis deletes five at once at most, and a list of arrays needs one, their owner one.
    """
    count = min(size, MOST_DRAWN)
    dense, place = divmod(draw(st.sampled_from(range(4 * len(details)))), len(details))
    if not count:
        return np.zeros(0, np.uint8), details[place]
    found = np.zeros(count, np.uint8)
    start = draw(st.integers(0, count - 1))
    given = np.frombuffer(draw(st.binary(min_size=count if dense else 0, max_size=count)), np.uint8)
    found[: given.size] = given
    return np.resize(np.roll(found, start), size), details[place]
