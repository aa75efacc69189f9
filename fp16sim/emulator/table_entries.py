"""Where the exact value of a function lies on the grid of binary16, for each of the 65,536 arguments.

An entry says enough for every rounding mode, for the flags and for the threshold of stochastic rounding: the
neighbour toward zero, 33 bits of the fraction of the way to the next value, and whether anything is left
beyond these bits. Entries come from double-double arithmetic, which is the same on every machine, and from
the exact rules of `one_argument`; a digest of each table is checked when it is made.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from functools import cache

import numpy as np
import numpy.typing as npt

from fp16sim.emulator.double_double import DoubleDouble
from fp16sim.emulator.elementary import power_of_two
from fp16sim.emulator.flags import DIVIDE_BY_ZERO, INVALID
from fp16sim.emulator.formats import binary16, nearest_name
from fp16sim.emulator.one_argument import FUNCTIONS, OneArgument
from fp16sim.emulator.table_digests import DIGESTS

__all__ = ["Entries", "check_digest", "entries", "make_entries"]

Array = npt.NDArray[np.float64]
_SIZE = 65536
_INF, _MAX = 0x7C00, 0x7BFF


@dataclass(frozen=True, slots=True)
class Entries:
    """What is known of a function at many arguments; arrays of one length.

    Parameters
    ----------
    lower : uint16 array
        The neighbour toward zero, an encoding with its sign; the result itself where it is exact (then also
        NaN or infinity). 0x7bff for every finite value above 65504.
    fraction : uint32 array
        Fraction of the way from ``lower`` to the next value away from zero (65536 after 65504), floor of
        fraction * 2^32.
    rest : uint8 array
        Bit 1: the next bit of the fraction. Bit 0: whether anything is left after that.
    overflow : bool array
        The value is finite and at or above 65536 (fraction and rest mean nothing).
    flags : uint8 array
        Invalid and divide_by_zero.
    """

    lower: npt.NDArray[np.uint16]
    fraction: npt.NDArray[np.uint32]
    rest: npt.NDArray[np.uint8]
    overflow: npt.NDArray[np.bool_]
    flags: npt.NDArray[np.uint8]

    @property
    def inexact(self) -> npt.NDArray[np.bool_]:
        """Whether the exact value is not one of binary16's."""
        return np.asarray((self.fraction != 0) | (self.rest != 0) | self.overflow)

    def __getitem__(self, index: npt.NDArray[np.unsignedinteger]) -> Entries:
        return Entries(*(getattr(self, field.name)[index] for field in fields(self)))

    def digest(self) -> str:
        """Give the SHA-256 of the arrays, little-endian, one after the other."""
        sha = hashlib.sha256()
        for field in fields(self):
            array = getattr(self, field.name)
            sha.update(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
        return sha.hexdigest()


@cache
def entries(name: str) -> Entries:
    """Give the entries of a function for all 65,536 encodings; made on the first call, and kept.

    Parameters
    ----------
    name : str
        One of `FUNCTIONS`.

    Returns
    -------
    Entries
        Row ``i`` is that of encoding ``i``. The arrays are read-only.

    Raises
    ------
    ValueError
        If there is no such function; the message names the nearest.
    RuntimeError
        If the table's digest is not the recorded one: then float64 ``+ - * /`` or ``sqrt`` is not IEEE 754's
        on this machine, and nothing that it computes can be trusted.

    >>> table = entries("exp")
    >>> hex(table.lower[0x1F79]), hex(table.fraction[0x1F79])  # a fraction of 0.49999
    ('0x3c07', '0x7fff40e5')
    """
    if name not in FUNCTIONS:
        raise ValueError(f"unknown function {name!r}: {nearest_name(name, tuple(FUNCTIONS))}")
    table = make_entries(FUNCTIONS[name], name)
    check_digest(name, table)
    return table


def check_digest(name: str, table: Entries) -> None:
    """Compare a table with the digest kept in the source; raise RuntimeError if they differ."""
    found, recorded = table.digest()[:12], DIGESTS[name][:12]
    if table.digest() != DIGESTS[name]:
        raise RuntimeError(
            f"the table of {name} has digest {found}, not {recorded}: float64 here is not IEEE 754's "
            "(extended precision? contraction to fma?); use another build of NumPy"
        )


def make_entries(function: OneArgument, name: str) -> Entries:
    """Make the entries of a function without looking at the digest.

    Raises
    ------
    AssertionError
        If a value is too close to a multiple of 2^-33 of the spacing to be told from it.
    """
    bits = np.arange(_SIZE, dtype=np.uint16)
    code = bits & 0x7FFF
    negative = bits >= 0x8000
    values = bits.view(np.float16).astype(np.float64)
    nan = code > _INF
    zero, infinite = code == 0, code == _INF
    table = Entries(
        np.full(_SIZE, binary16.nan_bits, np.uint16),
        np.zeros(_SIZE, np.uint32),
        np.zeros(_SIZE, np.uint8),
        np.zeros(_SIZE, np.bool_),
        np.zeros(_SIZE, np.uint8),
    )
    table.flags[nan & (bits & 0x200 == 0)] = INVALID  # signalling

    evaluated = ~nan
    if function.at_infinity is not None:
        evaluated &= ~infinite
        table.lower[infinite] = np.array(function.at_infinity)[negative[infinite].astype(int)]
        table.flags[infinite] = np.where(table.lower[infinite] == binary16.nan_bits, INVALID, 0)
    if function.at_zero is not None:
        evaluated &= ~zero
        table.lower[zero] = np.array(function.at_zero)[negative[zero].astype(int)]
        table.flags[zero] = np.where(table.lower[zero] & 0x7FFF == _INF, DIVIDE_BY_ZERO, 0)
    outside = evaluated & (values < function.lowest)
    table.flags[outside] = INVALID
    pole = evaluated & ~infinite & (values == function.lowest)
    table.lower[pole] = _INF | 0x8000
    table.flags[pole] = DIVIDE_BY_ZERO
    evaluated &= ~outside & ~pole

    chosen = np.flatnonzero(evaluated & ~negative if function.parity else evaluated)
    x = values[chosen]
    exact = np.full_like(x, np.nan) if function.exact is None else function.exact(x)
    _place(table, chosen, function.evaluate(x), exact, function.error, name)
    if function.parity:
        mirror = chosen | 0x8000
        table.lower[mirror] = table.lower[chosen] ^ (0x8000 if function.parity == "odd" else 0)
        for array in (table.fraction, table.rest, table.overflow):
            array[mirror] = array[chosen]
    for field in fields(table):
        getattr(table, field.name).flags.writeable = False
    return table


def _place(
    table: Entries, where: npt.NDArray[np.intp], value: DoubleDouble, exact: Array, error: float, name: str
) -> None:
    """Put values on the grid: ``exact`` where it is a number, ``value`` elsewhere."""
    is_exact = ~np.isnan(exact)
    hi = np.where(is_exact, exact, value.hi)
    lo = np.where(is_exact, 0.0, value.lo)
    sign = np.signbit(hi)
    hi, lo = np.abs(hi), np.where(sign, -lo, lo)

    # Exponent of the value; a power of two less something lies below it.
    fraction, exponent = np.frexp(hi)
    exponent = exponent - 1 - ((fraction == 0.5) & (lo < 0))
    exponent = np.where(hi == 0, binary16.emin, np.maximum(exponent, binary16.emin))
    # In units of 2^-33 of the spacing. Scaling is exact; hi is below 2^44, so its floor and rest are exact.
    scale = power_of_two(binary16.fraction_bits + 33 - exponent)
    hi, lo = hi * scale, lo * scale
    whole = np.floor(hi)
    above = (hi - whole) + lo  # distance from `whole` upward; the sum's sign is right
    below = (1.0 - (hi - whole)) - lo  # distance from whole + 1 downward
    units = whole.astype(np.int64) + np.where(above < 0, -1, 0) + np.where(below <= 0, 1, 0)

    # The evaluation is off by at most `error` of the larger of the value and 2^-14.
    doubt = error * np.maximum(hi, 2.0**43)
    overflow = exponent > binary16.emax
    undecided = ~is_exact & ~overflow & (np.minimum(np.abs(above), np.abs(below)) <= doubt)
    if undecided.any():
        raise AssertionError(
            f"{name} of encoding {where[undecided][0]:#06x}: too close to a multiple of 2^-33 ulp"
        )

    step = units >> 33
    # The implicit bit of a normal significand adds the one that the exponent field lacks.
    lower = ((exponent - binary16.emin).astype(np.int64) << binary16.fraction_bits) + step
    lower = np.where(overflow, _MAX, lower)
    left = np.where(is_exact, above != 0, True)
    table.lower[where] = lower | np.where(sign, 0x8000, 0)
    table.fraction[where] = np.where(overflow, 0, units >> 1 & 0xFFFFFFFF)
    table.rest[where] = np.where(overflow, 0, (units & 1) << 1 | left)
    table.overflow[where] = overflow
