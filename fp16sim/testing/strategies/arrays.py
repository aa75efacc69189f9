"""Arrays of binary16."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from hypothesis.extra import numpy as extra

from fp16sim.emulator.formats import binary16, nearest_name
from fp16sim.testing.strategies.halves import OPTIONS, limits_of
from fp16sim.testing.strategies.shapes import Shape, checked_shape, drawn_bytes, drawn_shape
from fp16sim.testing.strategies.tables import Table, table

__all__ = ["half_arrays"]

Halves = npt.NDArray[np.float16]


def half_arrays(
    shape: Shape,
    *,
    elements: st.SearchStrategy[Any] | Mapping[str, Any] | None = None,
    unique: bool = False,
) -> st.SearchStrategy[Halves]:
    """Draw float16 arrays whose elements are as :func:`half` draws them.

    Most arrays are drawn element by element, the others have few elements that are not simple. Each class
    that :func:`half` names is 5% of the drawn elements or more. All 65536 encodings occur, 256 different ones in an
    array at most.

    Parameters
    ----------
    shape : int, tuple of int, or strategy of these
        Such as 5, (2, 3), () or ``hypothesis.extra.numpy.array_shapes()``. Of more than 1024 elements the first 1024
        are drawn, and repeated.
    elements : mapping or strategy, optional
        Options of :func:`half`, such as ``{"allow_nan": False}``; or another strategy of numbers, which
        ``hypothesis.extra.numpy.arrays`` then asks for each element.
    unique : bool
        Whether all elements differ in their bits; -0.0 and 0.0 do.

    Returns
    -------
    SearchStrategy of float16 array
        Shrinks to a small shape, to zeros, and to the elements that are not zero in front, each as :func:`half`
        shrinks; a unique one to 0, 1, 2, ...

    Raises
    ------
    TypeError, ValueError
        If the shape or an option of :func:`half` is none; if fewer numbers are allowed than shall be unique.

    Examples
    --------
    >>> from hypothesis import find, settings
    >>> quiet = settings(derandomize=True, database=None, deadline=None)
    >>> small = find(half_arrays((2, 3)), lambda a: (a == 2.0**-24).any(), settings=quiet)
    >>> small.dtype, small.tolist()
    (dtype('float16'), [[5.960464477539063e-08, 0.0, 0.0], [0.0, 0.0, 0.0]])
    """
    if not isinstance(shape, st.SearchStrategy):
        shape = checked_shape(shape)
    if not isinstance(unique, (bool, np.bool_)):
        raise TypeError(f"unique={unique!r}: elements differ or not; pass True or False")
    if isinstance(elements, st.SearchStrategy):
        return extra.arrays(np.float16, shape, elements=elements, unique=bool(unique))
    if elements is not None and not isinstance(elements, Mapping):
        raise TypeError(
            f"elements={elements!r}: pass options of half(), such as {{'allow_nan': False}}, or a strategy of numbers"
        )
    for option in elements or {}:
        if option not in OPTIONS:
            raise TypeError(
                f"elements has {option!r}, and half() no such option: {nearest_name(option, OPTIONS)}"
            )
    found = table(binary16, limits_of(binary16, **(elements or {})), "float16")
    if unique and not isinstance(shape, st.SearchStrategy):
        _check_enough(found, math.prod(shape))
    return _arrays(shape, found, bool(unique))


@st.composite
def _arrays(draw: st.DrawFn, shape: Shape, found: Table, unique: bool) -> Halves:
    sides = drawn_shape(draw, shape)
    size = math.prod(sides)
    result = found.spread(*drawn_bytes(draw, size, range(256)))
    if unique:
        _check_enough(found, size)
        result = _made_unique(result, found)
    return result.reshape(sides)


def _made_unique(drawn: Halves, found: Table) -> Halves:
    """Replace what was there before by what comes next in the order of simplicity."""
    order, next_of = (
        found.different,
        dict[int, int](),
    )  # from each place that is taken towards the next free one

    def next_free(place: int) -> int:
        while place in next_of:
            further = next_of[place]
            if further in next_of:
                next_of[place] = next_of[further]  # halves the way for who asks next
            place = further
        return place

    result = []
    for code in drawn.view(np.uint16).tolist():
        place = next_free(found.place_of[code])
        place = next_free(0) if place == len(order) else place
        next_of[place] = place + 1
        result.append(order[place])
    return np.array(result, np.uint16).view(np.float16)


def _check_enough(found: Table, size: int) -> None:
    if size > len(found.different):
        raise ValueError(
            f"{size} unique elements of {len(found.different)} numbers that are allowed: give a smaller shape or "
            "wider options"
        )
