"""Arrays of gradients, spread over as many powers of two as real ones are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from fp16sim.testing.strategies.shapes import Shape, checked_dtype, checked_shape, drawn_bytes, drawn_shape

__all__ = ["gradients"]

Floats = npt.NDArray[Any]

_DTYPES = ("float16", "float32", "float64")
_ZERO, _USUAL, _LARGE, _SUBNORMAL16, _FLUSHED, _SUBNORMAL32, _INFINITE, _NAN = range(8)
_SHARES = {
    _ZERO: 0.1,
    _USUAL: 0.5,
    _LARGE: 0.065,
    _SUBNORMAL16: 0.075,
    _FLUSHED: 0.075,
    _SUBNORMAL32: 0.065,
    _INFINITE: 0.06,
    _NAN: 0.06,
}
_EXPONENTS = {
    _LARGE: range(10, 16),
    _SUBNORMAL16: range(-15, -25, -1),
    _FLUSHED: range(-25, -65, -1),
    _SUBNORMAL32: range(-127, -150, -1),
}
_SPREAD = 12
_LOWEST_CENTRE = -24
_DETAILS = range(-32, 256)
"""In one of eight arrays all are powers of two, which rounding and histograms treat by rules of their own."""


def gradients(
    shape: Shape,
    *,
    dtype: npt.DTypeLike = "float32",
    allow_nan: bool = False,
    allow_infinity: bool = False,
) -> st.SearchStrategy[Floats]:
    """Draw arrays of gradients.

    Half of the elements lie around one power of two, which is drawn for each array from 2^-24 to 1, and thin out over
    12 powers of two to either side. In one of eight arrays all elements are powers of two. The others are, each 5% of
    the drawn elements or more: zeros; subnormal in binary16, 2^-24 to 2^-14; flushed by binary16 to zero, or to 2^-24
    at most, 2^-64 to 2^-24; subnormal in float32, 2^-149 to 2^-126; large, 2^10 to 2^16, which overflow under a modest
    scale. Signs are mixed. In float16 arrays the flushed ones and those of float32 are left out.

    Parameters
    ----------
    shape : int, tuple of int, or strategy of these
        As in :func:`half_arrays`; of more than 1024 elements the first 1024 are drawn, and repeated.
    dtype : {"float32", "float16", "float64"}
        Of the array. The same numbers, rounded once to float16; float64 ones are those of float32.
    allow_nan, allow_infinity : bool
        Whether some are; 5% each of the drawn elements or more.

    Returns
    -------
    SearchStrategy of array
        Shrinks to a small shape, to zeros, and to positive powers of two in front, 1.0 first.

    Raises
    ------
    TypeError, ValueError
        If the shape, the dtype or an option is none.

    Examples
    --------
    >>> from hypothesis import find, settings
    >>> quiet = settings(derandomize=True, database=None, deadline=None)
    >>> small = find(gradients(4), lambda g: (0 < g).any() and (g < 2.0**-25).any(), settings=quiet)
    >>> small.dtype, small.shape
    (dtype('float32'), (4,))
    """
    if not isinstance(shape, st.SearchStrategy):
        shape = checked_shape(shape)
    name = checked_dtype(dtype, _DTYPES, "gradients are drawn as float32, float16 or float64")
    for option, value in (("allow_nan", allow_nan), ("allow_infinity", allow_infinity)):
        if not isinstance(value, (bool, np.bool_)):
            raise TypeError(f"{option}={value!r}: they are allowed or not; pass True or False")
    left_out: set[int] = set()
    if not allow_nan:
        left_out.add(_NAN)
    if not allow_infinity:
        left_out.add(_INFINITE)
    if name == "float16":
        left_out |= {_FLUSHED, _SUBNORMAL32}
    return _arrays(shape, name, _kinds(left_out))


@st.composite
def _arrays(draw: st.DrawFn, shape: Shape, dtype: str, kinds: npt.NDArray[np.int64]) -> Floats:
    sides = drawn_shape(draw, shape)
    centre = draw(st.sampled_from(range(0, _LOWEST_CENTRE - 1, -1)))
    places, detail = drawn_bytes(draw, math.prod(sides), _DETAILS)
    values = _values(kinds, centre, max(detail, 0))
    if dtype == "float16":
        values = np.clip(values, -65504.0, 65504.0, where=np.isfinite(values), out=values)
    return values.astype(dtype)[places].reshape(sides)


def _kinds(left_out: set[int]) -> npt.NDArray[np.int64]:
    """Give the kind of each byte."""
    kinds = [kind for kind in _SHARES if kind not in left_out]
    times = np.array([_SHARES[kind] for kind in kinds])
    edges = np.rint(np.cumsum(times) / times.sum() * 256).astype(np.int64)
    return np.repeat(kinds, np.diff(edges, prepend=0))


def _values(kinds: npt.NDArray[np.int64], centre: int, detail: int) -> npt.NDArray[np.float64]:
    """Give the number of each byte: with detail 0 a power of two, else with digits and a sign scattered by it."""
    byte = np.arange(256)
    exponent = np.zeros(256, np.int64)
    usual = kinds == _USUAL
    exponent[usual] = centre + _offsets(int(usual.sum()))
    for kind, exponents in _EXPONENTS.items():
        places = np.flatnonzero(kinds == kind)
        exponent[places] = np.asarray(exponents)[
            (places - places[:1]) * len(exponents) // max(places.size, 1)
        ]
    scattered = (detail * (2 * byte + 1) * 2654435761) & 0xFFFFFFFF
    fraction = (scattered >> 9).astype(np.float64) * 2.0**-23  # 23 digits, as float32 has
    sign = np.where(scattered >> 8 & 1, -1.0, 1.0)
    values = np.ldexp((1.0 + fraction) * sign, exponent)
    subnormal = kinds == _SUBNORMAL32
    values[subnormal] = values[subnormal].astype(np.float32)
    values[kinds == _ZERO] = 0.0
    values[kinds == _INFINITE] = sign[kinds == _INFINITE] * np.inf
    values[kinds == _NAN] = np.nan
    return values


def _offsets(count: int) -> npt.NDArray[np.int64]:
    """Give distances from the centre, as often as a triangle has them: 0, 1 and -1 first."""
    away = np.array(sorted(range(-_SPREAD, _SPREAD + 1), key=lambda k: (abs(k), -k)))
    upto = np.cumsum(_SPREAD + 1 - np.abs(away))
    found: npt.NDArray[np.int64] = away[np.searchsorted(upto, (np.arange(count) + 0.5) / count * upto[-1])]
    return found
