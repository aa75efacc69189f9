"""Numbers of binary16 and encodings of any format, with their edges."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fp16sim.emulator.formats import Format, as_format, binary16
from fp16sim.testing.strategies.tables import Limits, drawn, magnitudes_below, table

__all__ = ["OPTIONS", "encodings", "half", "limits_of"]

OPTIONS = ("min_value", "max_value", "allow_nan", "allow_infinity", "allow_subnormal", "payloads")
"""Of :func:`half`."""

_ANY = st.sampled_from((False, False, False, False, False, True))


def half(
    min_value: float | None = None,
    max_value: float | None = None,
    *,
    allow_nan: bool | None = None,
    allow_infinity: bool | None = None,
    allow_subnormal: bool = True,
    payloads: bool = False,
) -> st.SearchStrategy[np.float16]:
    """Draw numbers of binary16; where float16 code goes wrong, more often.

    In 5% of the draws or more, each: 0.0; -0.0; 2^-24, the smallest subnormal; other subnormals; 2^-14, the smallest
    normal number; powers of two; their neighbours; 65504, the largest; infinities; NaN; small numbers such as 1, 2.5
    and 16. Some 18% are drawn from all finite numbers alike. Except zeros, each comes with either sign.

    Parameters
    ----------
    min_value, max_value : float, optional
        Bounds, which may be drawn. As in Hypothesis' floats, ``min_value=0.0`` leaves -0.0 out and ``min_value=-0.0``
        does not. A number of binary16 or not. The numbers at the bounds are an edge then: 10% of the draws and more.
    allow_nan : bool, optional
        Default: unless there is a bound.
    allow_infinity : bool, optional
        Default: the infinities that the bounds leave.
    allow_subnormal : bool
    payloads : bool
        Whether NaNs of all encodings are drawn, signalling ones and negative ones among them. Default: 0x7e00 alone,
        which every operation of this package returns.

    Returns
    -------
    SearchStrategy of numpy.float16
        Shrinks to 0.0. Integers are simplest, small before large, and infinity after the largest; then numbers with
        few binary digits behind the point; then subnormals, from 2^-24; then NaN; positive before negative.

    Raises
    ------
    ValueError
        If nothing is left to draw, or a bound is NaN. TypeError if an option has the wrong type. At once, not when
        the first number is drawn.

    Examples
    --------
    >>> from hypothesis import find, settings
    >>> quiet = settings(derandomize=True, database=None, deadline=None)
    >>> float(find(half(), lambda x: 0 < abs(x) < 2.0**-14, settings=quiet)) == 2.0**-24
    True
    >>> float(find(half(1.0, 2.0), lambda x: 1 < x < 2, settings=quiet))
    1.5
    """
    limits = limits_of(binary16, min_value, max_value, allow_nan, allow_infinity, allow_subnormal, payloads)
    return drawn(table(binary16, limits, "float16"))


def encodings(
    format: str | Format = "binary16",
    *,
    min_value: float | None = None,
    max_value: float | None = None,
    allow_nan: bool | None = None,
    allow_infinity: bool | None = None,
    allow_subnormal: bool = True,
    payloads: bool = False,
) -> st.SearchStrategy[int]:
    """Draw encodings of a format, with the classes, the options and the shrinking of :func:`half`.

    Parameters
    ----------
    format : str or Format
        Any; a Format may be your own or ``fp16sim.emulator.formats.binary64``. Classes that it lacks, such as
        infinities of e4m3, are not drawn. Of more than 16 bits five of six draws are edges.
    min_value, max_value, allow_nan, allow_infinity, allow_subnormal, payloads
        As in :func:`half`.

    Returns
    -------
    SearchStrategy of int
        Shrinks to 0, the encoding of 0.0.

    Examples
    --------
    >>> from hypothesis import find, settings
    >>> from fp16sim.emulator.formats import bfloat16
    >>> quiet = settings(derandomize=True, database=None, deadline=None)
    >>> hex(find(encodings("bfloat16"), lambda bits: bfloat16.decode(bits) < 0, settings=quiet))  # -1
    '0xbf80'
    """
    fmt = format if isinstance(format, Format) else as_format(format)
    limits = limits_of(fmt, min_value, max_value, allow_nan, allow_infinity, allow_subnormal, payloads)
    edges = drawn(table(fmt, limits)).map(int)
    ranges = _finite_ranges(fmt, limits)
    if fmt.width <= 16 or not ranges:
        return edges
    return _edges_or_any(edges, st.one_of(ranges))


@st.composite
def _edges_or_any(draw: st.DrawFn, edges: st.SearchStrategy[int], every: st.SearchStrategy[int]) -> int:
    return draw(every if draw(_ANY) else edges)


def _finite_ranges(fmt: Format, limits: Limits) -> list[st.SearchStrategy[int]]:
    """Draw all finite numbers of a sign alike, where there are some."""
    found = []
    least = 0 if limits.subnormal and fmt.subnormals else 1 << fmt.fraction_bits
    for sign, low, high in (
        (0, limits.low[0], limits.high[0]),
        (fmt.sign_bit, -limits.high[0], -limits.low[0]),
    ):
        first = max(magnitudes_below(fmt, low), least, 1)
        last = magnitudes_below(fmt, math.nextafter(high, math.inf)) - 1
        if first <= last:
            found.append(st.integers(sign | first, sign | last))
    return found


def limits_of(
    fmt: Format,
    min_value: float | None = None,
    max_value: float | None = None,
    allow_nan: bool | None = None,
    allow_infinity: bool | None = None,
    allow_subnormal: bool = True,
    payloads: bool = False,
) -> Limits:
    """Read the options of :func:`half` for a format."""
    for name, value in (("min_value", min_value), ("max_value", max_value)):
        if value is None:
            continue
        if isinstance(value, (bool, np.bool_, str, complex)) or not hasattr(value, "__float__"):
            raise TypeError(f"{name}={value!r}: a bound is a number; pass a float, or None for no bound")
        if math.isnan(value):
            raise ValueError(f"{name}=nan: nothing compares with NaN; pass a number, or None for no bound")
    for name, flag, others in (
        ("allow_nan", allow_nan, (None,)),
        ("allow_infinity", allow_infinity, (None,)),
        ("allow_subnormal", allow_subnormal, ()),
        ("payloads", payloads, ()),
    ):
        if not isinstance(flag, bool) and flag not in others:
            raise TypeError(f"{name}={flag!r}: it is allowed or not; pass True or False")
    bounded = min_value is not None or max_value is not None
    low, high = (
        (-math.inf if min_value is None else min_value),
        (math.inf if max_value is None else max_value),
    )
    if bounded and allow_nan:
        raise ValueError(
            f"allow_nan=True with min_value={min_value} and max_value={max_value}: NaN is within no bounds; "
            "leave one of them out, or draw st.one_of(half(...), st.just(np.float16('nan')))"
        )
    limits = Limits(
        low=_signed(low),
        high=_signed(high),
        nan=not bounded if allow_nan is None else allow_nan,
        infinity=allow_infinity is not False,
        subnormal=allow_subnormal,
        payloads=payloads,
        bounded=bounded,
    )
    if limits.low > limits.high or not _has_any(fmt, limits):
        raise ValueError(
            f"min_value={min_value!r} and max_value={max_value!r} leave no number of {fmt.name}; give wider bounds"
            + ("" if allow_subnormal else ", or allow_subnormal=True")
        )
    if allow_infinity and not _has_infinity(fmt, limits):
        raise ValueError(
            f"allow_infinity=True, and no infinity of {fmt.name} lies from {low} to {high}; leave it out, or give "
            "wider bounds"
        )
    return limits


def _signed(bound: Any) -> tuple[float, float]:
    number = float(bound)
    return number, math.copysign(1.0, number)


def _has_any(fmt: Format, limits: Limits) -> bool:
    return limits.nan or table(fmt, limits).blocks.size > 0


def _has_infinity(fmt: Format, limits: Limits) -> bool:
    if fmt.inf_bits is None:
        return False
    return bool(limits.allow(fmt, np.array([fmt.inf_bits, fmt.inf_bits | fmt.sign_bit], np.uint64)).any())
