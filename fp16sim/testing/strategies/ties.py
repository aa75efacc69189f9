"""Wide numbers at which rounding to a narrow format is decided."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from fp16sim.emulator.formats import Format, as_format, binary32, binary64
from fp16sim.testing.strategies.shapes import checked_dtype
from fp16sim.testing.strategies.tables import CHOICES, FAR, Limits, Table, even, table

__all__ = ["near_ties"]

_WIDE = {"float32": binary32, "float64": binary64}
_TIE, _ABOVE, _BELOW, _NUMBER, _ABOVE_IT, _BELOW_IT, _AT_THE_TOP = range(7)
_PLACES = (_TIE, _TIE, _ABOVE, _BELOW, _NUMBER, _ABOVE_IT, _BELOW_IT, _AT_THE_TOP)


def near_ties(
    format: str | Format = "binary16", *, dtype: npt.DTypeLike = "float32"
) -> st.SearchStrategy[np.floating[Any]]:
    """Draw float32 or float64 numbers that are ties when they are rounded to a format, or neighbours of ties.

    In 5% of the draws or more, each: ties between neighbours of the format; the next number of `dtype` above a tie;
    the one below; numbers of the format themselves; the next above, and the next below these; half of the smallest
    subnormal number (2^-25 in binary16) or beside it; where the format overflows (65520 in binary16) or beside it.
    Either sign.

    Parameters
    ----------
    format : str or Format
        To which the numbers are to be rounded.
    dtype : {"float32", "float64"}
        Of the numbers; it must hold the ties of the format exactly.

    Returns
    -------
    SearchStrategy of numpy.float32 or numpy.float64
        All finite. Shrinks to ties, and to those beside simple numbers, of which 0.0 is the first: the tie between
        0.0 and the smallest number.

    Raises
    ------
    ValueError
        If `dtype` is another, or does not hold the ties.

    Examples
    --------
    >>> from hypothesis import find, settings
    >>> quiet = settings(derandomize=True, database=None, deadline=None)
    >>> float(find(near_ties(), lambda x: True, settings=quiet)) == 2.0**-25
    True
    >>> float(find(near_ties(), lambda x: x >= 65520, settings=quiet))
    65520.0
    """
    fmt = as_format(format)
    name = checked_dtype(dtype, tuple(_WIDE), "ties are drawn as float32 or float64")
    wide = _WIDE[name]
    # A tie has one digit more than the format's numbers.
    least = fmt.emin - fmt.fraction_bits - 1
    if fmt.precision >= wide.precision or least < wide.emin - wide.fraction_bits:
        raise ValueError(f"{name} does not hold the ties of {fmt.name}: pass dtype='float64'")
    limits = Limits(low=(0.0, 1.0), nan=False, infinity=False, bounded=False)
    return _near(table(fmt, limits), fmt, np.dtype(name).type)


@st.composite
def _near(draw: st.DrawFn, found: Table, fmt: Format, kind: Any) -> Any:
    place = draw(st.sampled_from(_PLACES))
    code = int(found.rows[draw(CHOICES)][draw(even(found.blocks.shape[1])) - FAR])
    if place == _AT_THE_TOP:
        code, place = fmt.max_bits, draw(st.sampled_from((_TIE, _ABOVE, _BELOW)))
    number = fmt.decode(code)
    if place in (_NUMBER, _ABOVE_IT, _BELOW_IT):
        middle = number
    else:
        middle = (number + _next(code, fmt)) / 2  # exact: the tie has one digit more
    result = kind(middle)
    if place in (_ABOVE, _ABOVE_IT):
        result = np.nextafter(result, kind(np.inf))
    elif place in (_BELOW, _BELOW_IT):
        result = np.nextafter(result, kind(-np.inf))
    return -result if draw(st.booleans()) else result


def _next(code: int, fmt: Format) -> float:
    """Give the next larger number; beyond the largest, what it would be."""
    if code == fmt.max_bits:
        return float(fmt.max_finite + 2.0 ** (fmt.emax - fmt.fraction_bits))
    if code == 0:
        return fmt.min_subnormal
    return float(fmt.decode(code + 1))
