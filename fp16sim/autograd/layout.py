"""How arrays are laid out for the backends: shapes and orders of axes, settled once for each shape."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fp16sim.emulator.programs import pattern_of

__all__ = ["Reduction", "reduction_of", "stretched"]

Array = npt.NDArray[Any]
_CODES = {size: np.dtype(f"u{size}") for size in (2, 4, 8)}


class Reduction(NamedTuple):
    """How an array is laid out as (outer, terms, inner) to be reduced over the terms, and the shape of the result."""

    order: tuple[int, ...] | None
    cube: tuple[int, int, int]
    left: tuple[int, ...]

    def __call__(self, a: Array) -> Array:
        """Give the encodings, laid out."""
        moved = a if self.order is None else a.transpose(self.order)
        return np.ascontiguousarray(moved).view(_CODES[a.itemsize]).reshape(self.cube)


@lru_cache(maxsize=1024)
def reduction_of(
    shape: tuple[int, ...], axis: int | tuple[int, ...] | None, keepdims: bool
) -> Reduction | None:
    """Lay a reduction out; None if there is no axis or an axis cannot be."""
    given = tuple(range(len(shape))) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = sorted(n + len(shape) if n < 0 else n for n in given)
    if not axes or axes[0] < 0 or axes[-1] >= len(shape) or len(set(axes)) < len(axes):
        return None
    left = tuple(1 if i in axes else n for i, n in enumerate(shape) if keepdims or i not in axes)
    terms = prod(shape[n] for n in axes)
    if axes[-1] - axes[0] + 1 == len(axes):  # neighbours
        return Reduction(None, (prod(shape[: axes[0]]), terms, prod(shape[axes[-1] + 1 :])), left)
    rest = [i for i in range(len(shape)) if i not in axes]
    return Reduction((*rest, *axes), (prod(shape[i] for i in rest), terms, 1), left)


@lru_cache(maxsize=1024)
def stretched(
    *shapes: tuple[int, ...],
) -> tuple[tuple[int, ...], npt.NDArray[np.int64], tuple[int, ...]]:
    """Give the shape of a result, how each operand stretches over it, and which operands must be written out."""
    whole = np.broadcast_shapes(*shapes)
    patterns = [pattern_of(shape, whole) for shape in shapes]
    apart = tuple(position for position, pattern in enumerate(patterns) if pattern is None)
    return whole, np.array([pattern or (1, prod(whole)) for pattern in patterns], np.int64), apart
