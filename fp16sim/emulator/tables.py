"""Functions of one binary16 argument in every rounding mode: rounding by look-up.

Results, flags and stochastic draws all follow from the entries of `table_entries`; nothing is computed about
the function itself here.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from fp16sim.emulator.flags import INEXACT, OVERFLOW, SUBNORMAL, UNDERFLOW
from fp16sim.emulator.one_argument import FUNCTIONS
from fp16sim.emulator.rounding import Rounding
from fp16sim.emulator.table_entries import Entries, entries

__all__ = ["FUNCTIONS", "draw", "flags", "rounded"]

Bits = npt.NDArray[np.uint16]
Flags = npt.NDArray[np.uint8]

_SIGN, _MAGNITUDE = 0x8000, 0x7FFF
_MIN_NORMAL, _MAX, _INF = 0x0400, 0x7BFF, 0x7C00
_BEFORE_MIN_NORMAL = 0x03FF
_ALL = np.arange(65536, dtype=np.uint16)


def rounded(name: str, rounding: Rounding) -> Bits:
    """Give the results of a function for all 65,536 encodings; made on the first call, and kept.

    Parameters
    ----------
    name : str
        One of `FUNCTIONS`.
    rounding : Rounding
        Any mode but ``"stochastic"``.

    Returns
    -------
    uint16 array of 65,536
        Encodings, correctly rounded; read-only. ``rounded(...)[bits]`` is the function.

    Raises
    ------
    ValueError
        On an unknown name, and for stochastic rounding: see `draw`.

    >>> hex(rounded("log", Rounding())[0x1D78])
    '0xc53b'
    """
    return _tables(name, rounding)[0]


def flags(name: str, rounding: Rounding) -> Flags:
    """Give the flags of a function for all 65,536 encodings, as bits of `fp16sim.emulator.flags`.

    Parameters and errors as for `rounded`.

    Returns
    -------
    uint8 array of 65,536
        Read-only.

    >>> flags("log", Rounding())[[0x0000, 0x3C00, 0x4000, 0xBC00]]  # divide_by_zero, exact, inexact, invalid
    array([16,  0, 32,  8], dtype=uint8)
    """
    return _tables(name, rounding)[1]


def draw(
    name: str, rounding: Rounding, bits: npt.NDArray[np.uint16], random_bits: npt.NDArray[np.uint32]
) -> tuple[Bits, Flags]:
    """Compute a function in stochastic rounding.

    Parameters
    ----------
    name : str
        One of `FUNCTIONS`.
    rounding : Rounding
        With mode ``"stochastic"``.
    bits : uint16 array
        Encodings of the arguments.
    random_bits : uint32 array
        32 random bits for each; a result is rounded away from zero where they are below its fraction times
        2^32. Exact results ignore them.

    Returns
    -------
    tuple
        Encodings (uint16) and flags (uint8), of the shape of ``bits``.

    >>> result, _ = draw("exp", Rounding("stochastic"), np.uint16([0x1F79] * 2), np.uint32([0, 2**31]))
    >>> [hex(b) for b in result]
    ['0x3c08', '0x3c07']
    """
    if rounding.mode != "stochastic":
        raise ValueError(
            f"mode {rounding.mode!r} draws nothing; use rounded(name, rounding) and flags(name, rounding)"
        )
    first, second, up, between, down = _outcomes(name, rounding)
    chosen = np.where(
        random_bits < first[bits], up[bits], np.where(random_bits < second[bits], between[bits], down[bits])
    )
    return chosen.astype(np.uint16), (chosen >> 16).astype(np.uint8)


@cache
def _outcomes(name: str, rounding: Rounding) -> tuple[npt.NDArray[np.uint32], ...]:
    """Two thresholds, and what comes out below the first, below the second, and from there on.

    Outcomes are encoding | flags << 16. There are three only just below 2^-14, where random bits can round up
    to 2^-14 on the grid of the subnormals and not on the finer one by which tininess after rounding is judged.
    """
    table = entries(name)[_operand(_ALL, rounding)]
    second = table.fraction
    finer = np.maximum(_tail(table) - (1 << 33), 0) >> 1
    last_step = (table.lower & _MAGNITUDE == _BEFORE_MIN_NORMAL) & (rounding.tininess == "after")
    first = np.where(last_step, finer, second).astype(np.uint32)
    outcomes: list[npt.NDArray[np.uint32]] = []
    for random_bits in (np.zeros_like(first), first, np.full_like(first, 2**32 - 1)):
        result, raised = _round(table, rounding, random_bits)
        outcomes.append((result.astype(np.uint32) | raised.astype(np.uint32) << 16).astype(np.uint32))
    return first, second, *outcomes


@cache
def _tables(name: str, rounding: Rounding) -> tuple[Bits, Flags]:
    if rounding.mode == "stochastic":
        raise ValueError(
            "stochastic results depend on random bits; use draw(name, rounding, bits, random_bits)"
        )
    table = entries(name)
    result = _round(table if rounding.inputs == "keep" else table[_operand(_ALL, rounding)], rounding)
    for array in result:
        array.flags.writeable = False
    return result


def _operand(bits: Bits, rounding: Rounding) -> Bits:
    """Read subnormal arguments as zeros of their sign where the rule says so."""
    if rounding.inputs == "keep":
        return bits
    return np.where(bits & _INF == 0, bits & _SIGN, bits).astype(np.uint16)


def _tail(table: Entries) -> npt.NDArray[np.int64]:
    """Fraction of the spacing in 34 bits, the last of them standing for everything beyond."""
    return table.fraction.astype(np.int64) << 2 | table.rest


def _round(
    table: Entries, rounding: Rounding, random_bits: npt.NDArray[np.uint32] | None = None
) -> tuple[Bits, Flags]:
    """Round every entry: the rules of `fp16sim.emulator.exact.round_value` on look-up data."""
    sign = table.lower & _SIGN
    code = table.lower & _MAGNITUDE
    infinite_or_nan = code >= _INF
    inexact = table.inexact
    tail = _tail(table)
    up = _goes_up(tail, 2, code & 1 == 1, sign != 0, rounding.mode, random_bits)

    # Tiny results. Rounded as if exponents had no end, the spacing just below 2^-14 is half of that of the
    # subnormals: only the upper half of the last step can still be rounded to 2^-14, from an odd neighbour.
    tiny = (code < _MIN_NORMAL) & ((code > 0) | inexact)
    if rounding.tininess == "after":
        finer = tail - (1 << 33)
        reached = _goes_up(np.maximum(finer, 0), 1, np.ones_like(up), sign != 0, rounding.mode, random_bits)
        tiny &= ~((code == _BEFORE_MIN_NORMAL) & (finer >= 0) & reached)

    stays = {"toward_zero": True, "to_odd": True, "toward_positive": sign != 0, "toward_negative": sign == 0}
    beyond = ~infinite_or_nan & up & (code == _MAX) | table.overflow
    finite = table.overflow & stays.get(rounding.mode, False)
    top = _MAX if rounding.saturate else _INF
    result = np.where(infinite_or_nan, code, code + up)
    result = np.where(beyond, np.where(finite, _MAX, top), result)
    saturated = (code == _INF) & rounding.saturate
    result = np.where(saturated, _MAX, result)
    if rounding.subnormals == "flush":
        result = np.where(tiny, 0, result)
        inexact = inexact | tiny

    raised = table.flags.astype(np.uint8)
    raised = raised | np.where(inexact | saturated, INEXACT, 0)
    raised |= np.where(beyond | saturated, OVERFLOW, 0)
    raised |= np.where(tiny & inexact, UNDERFLOW, 0)
    raised |= np.where((result > 0) & (result < _MIN_NORMAL), SUBNORMAL, 0)
    sign = np.where(code > _INF, 0, sign)
    return (result | sign).astype(np.uint16), raised.astype(np.uint8)


def _goes_up(
    tail: npt.NDArray[np.int64],
    extra: int,
    odd: npt.NDArray[np.bool_],
    negative: npt.NDArray[np.bool_],
    mode: str,
    random_bits: npt.NDArray[np.uint32] | None,
) -> npt.NDArray[np.bool_]:
    """Decide whether a value rounds away from zero: `round_fraction` on a fraction of 32 + extra bits."""
    half = 1 << (31 + extra)
    if mode == "nearest_even":
        up = (tail > half) | ((tail == half) & odd)
    elif mode == "nearest_away":
        up = tail >= half
    elif mode == "toward_zero":
        up = np.zeros_like(odd)
    elif mode == "to_odd":
        up = (tail > 0) & ~odd
    elif mode == "toward_positive":
        up = (tail > 0) & ~negative
    elif mode == "toward_negative":
        up = (tail > 0) & negative
    else:
        assert random_bits is not None
        up = np.asarray(random_bits) < (tail >> extra)
    return np.asarray(up)
