"""Encodings of a format in the order of their simplicity, each as often as it should be drawn.

A draw is two numbers: what kind, and a place in the table of that kind. So the share of each class is what the tables
say, and a failing test shrinks to a simpler kind and towards the front.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from fp16sim.emulator.formats import Format

__all__ = ["CHOICES", "FAR", "Limits", "Table", "classes", "drawn", "even", "magnitudes_below", "table"]

Array = npt.NDArray[Any]

FAR = 2**52
_PLACES = 2**16
_NAN, _NEGATIVE = 4, 5
_COMPLETE = 16
_SIMPLE = (*range(1, 17), 0.25, 0.5, 0.75, 1.5, 2.5)
_SHARES = {
    "zero": 0.14,
    "simple": 0.07,
    "power of two": 0.08,
    "beside a power of two": 0.09,
    "largest": 0.07,
    "infinity": 0.07,
    "smallest normal": 0.075,
    "smallest subnormal": 0.07,
    "subnormal": 0.08,
    "nan": 0.07,
    "any": 0.185,
}
_SHARE_OF_BOUNDS, _SHARE_BESIDE_BOUNDS = 0.18, 0.08
"""Shares of 1; zeros are two, of either sign. Where a class is not allowed the others are more."""
CHOICES = st.sampled_from(range(256))
"""Not st.integers: Hypothesis copies numbers between draws of the same kind, and places are too large for this one."""


@dataclass(frozen=True)
class Limits:
    """What may be drawn; :func:`fp16sim.testing.strategies.encodings` says what its fields are.

    A bound goes with its sign, so that 0.0 and -0.0 are two keys of a cache.
    """

    low: tuple[float, float] = (-math.inf, -1.0)
    high: tuple[float, float] = (math.inf, 1.0)
    nan: bool = True
    infinity: bool = True
    subnormal: bool = True
    payloads: bool = False
    bounded: bool = False

    def allow(self, fmt: Format, codes: Array) -> npt.NDArray[np.bool_]:
        """Say which encodings may be drawn."""
        values = fmt.decode(codes)
        nan = np.isnan(values)
        magnitude = codes & np.uint64(fmt.sign_bit - 1)
        kept = nan | (_not_below(values, self.low) & _not_below(-values, (-self.high[0], -self.high[1])))
        kept &= self.infinity | ~np.isinf(values)
        if not (self.subnormal and fmt.subnormals):
            kept &= (magnitude == 0) | (magnitude >= 1 << fmt.fraction_bits)
        kept &= ~nan | (self.nan & (self.payloads | (codes == fmt.nan_bits)))
        return np.asarray(kept, np.bool_)


@dataclass(frozen=True)
class Table:
    """Encodings in blocks of one kind each, simple kinds first: those of :func:`_kinds`, of positive, then of
    negative sign.

    Attributes
    ----------
    blocks : array (blocks, 2^16)
        Encodings, simple ones first, each as often as it shall be drawn from that block.
    block_of : array (256,)
        Which block to draw from, each as often as it shall be.
    """

    blocks: Array
    block_of: npt.NDArray[np.int64]

    @cached_property
    def rows(self) -> list[Array]:
        """The block of each choice, for one draw at a time."""
        return [self.blocks[block] for block in self.block_of]

    @cached_property
    def different(self) -> list[int]:
        """All encodings, simple ones first."""
        return list(dict.fromkeys(self.blocks.view(f"u{self.blocks.itemsize}").ravel().tolist()))

    @cached_property
    def place_of(self) -> dict[int, int]:
        """Where each is among those that differ."""
        return {code: place for place, code in enumerate(self.different)}

    def spread(self, choices: npt.NDArray[np.uint8], detail: int) -> Array:
        """Give an encoding for each byte. Each byte is one place in the whole; `detail` says where about it."""
        first = np.searchsorted(self.block_of, self.block_of)
        count = np.searchsorted(self.block_of, self.block_of, side="right") - first
        # Scattered over the 256 places that a byte stands for, and none of them left out: 167 is odd.
        fine = (np.arange(256) * 167 + detail) & 255
        places = (((np.arange(256) - first) * 256 + fine) * _PLACES) // (count * 256)
        found: Array = self.blocks[self.block_of, places][choices]
        return found


def even(size: int) -> st.SearchStrategy[int]:
    """Draw a number from `FAR`, 2^52, on, each of `size` as often; shrinks to `FAR`.

    Hypothesis prefers integers near 0 to those further away. So far from it its distribution is flat.
    """
    return st.integers(FAR, FAR + size - 1)


_EVEN = even(_PLACES)


@st.composite
def drawn(draw: st.DrawFn, table: Table) -> Any:
    """Draw an encoding, as a NumPy scalar."""
    return table.rows[draw(CHOICES)][draw(_EVEN) - FAR]


@lru_cache(maxsize=64)
def table(fmt: Format, limits: Limits, view: str | None = None) -> Table:
    """Make the table of a format; of dtype `fmt.uint`, or viewed as another.

    Up to 16 bits every encoding that is allowed is there. Of wider formats the class "any" is missing.
    """
    found = []
    for name, magnitudes in classes(fmt, limits.payloads).items():
        codes = _signed(fmt, magnitudes)
        found.append((codes[limits.allow(fmt, codes)], _SHARES[name]))
    if limits.bounded:
        ends, beside = _at_the_bounds(fmt, limits)
        found += [(ends, _SHARE_OF_BOUNDS), (beside, _SHARE_BESIDE_BOUNDS)]
    every = np.unique(np.concatenate([codes for codes, _ in found]))
    share = np.zeros(every.size)
    for codes, each in found:
        np.add.at(share, np.searchsorted(every, codes), each / max(codes.size, 1))
    kind, order = _kinds(fmt, every)
    kind, every, share = kind[order], every[order], share[order]
    nan = kind == _NAN
    if (kind >= _NEGATIVE).any() and not (kind == _NAN + _NEGATIVE).any():
        # So that negative kinds are laid out as positive ones, and to shrink to the opposite is to clear a bit.
        kind = np.concatenate([kind, np.full(np.count_nonzero(nan), _NAN + _NEGATIVE)])
        every = np.concatenate([every, every[nan]])
        share = np.concatenate([np.where(nan, share / 2, share), share[nan] / 2])
    present = np.unique(kind)
    blocks = [np.repeat(every[kind == one], _times(share[kind == one], _PLACES)) for one in present]
    block_of = np.repeat(
        np.arange(present.size), _choices(present, [share[kind == one].sum() for one in present])
    )
    codes = np.array(blocks, fmt.uint).reshape(present.size, _PLACES)
    for array in (codes, block_of):
        array.setflags(write=False)
    return Table(codes if view is None else codes.view(view), block_of)


def classes(fmt: Format, payloads: bool = False) -> dict[str, Array]:
    """Give the classes that a format has: magnitudes as encodings without the sign, uint64."""
    normal, largest = 1 << fmt.fraction_bits, fmt.max_bits
    finite = np.arange(largest + 1) if fmt.width <= _COMPLETE else np.empty(0, np.int64)
    inside = np.arange(1, normal) if normal <= 1 << _COMPLETE else np.linspace(1, normal - 1, 1024)
    # The encodings of powers of two: one digit, and among the subnormal ones that is one bit.
    powers = np.concatenate(
        [1 << np.arange(fmt.fraction_bits), np.arange(normal, largest + 1, normal)]
        if fmt.subnormals
        else [np.arange(normal, largest + 1, normal)]
    )
    beside = np.unique(np.concatenate([powers - 1, powers + 1]))
    values = fmt.decode(finite) if finite.size else np.empty(0)
    simple = finite[np.isin(values, _SIMPLE)] if finite.size else fmt.encode(np.array(_SIMPLE))
    nans = np.arange(largest + 1, fmt.sign_bit) if payloads and fmt.width <= _COMPLETE else [fmt.nan_bits]
    if payloads and fmt.width > _COMPLETE:
        nans = fmt.nan_bits + np.array([0, 1, normal // 2 - 1, -1, 1 - normal // 2])
    found = {
        "zero": [0],
        "simple": simple,
        "power of two": powers,
        "beside a power of two": beside[(beside > 0) & (beside <= largest)],
        "largest": [largest],
        "infinity": [] if fmt.inf_bits is None else [fmt.inf_bits],
        "smallest normal": [normal],
        "smallest subnormal": [1] if fmt.subnormals else [],
        "subnormal": inside if fmt.subnormals else [],
        "nan": [n for n in nans if n != fmt.inf_bits] if payloads else nans,
        "any": finite,
    }
    return {name: np.asarray(codes).astype(np.uint64) for name, codes in found.items()}


def magnitudes_below(fmt: Format, bound: float) -> int:
    """Count the finite magnitudes of a format that are below a positive number: the encoding of the next."""
    low, high = 0, fmt.max_bits + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if fmt.decode(middle) < bound else (low, middle)
    return low


def _signed(fmt: Format, magnitudes: Array) -> Array:
    return np.concatenate([magnitudes, magnitudes | np.uint64(fmt.sign_bit)])


def _not_below(values: Array, bound: tuple[float, float]) -> npt.NDArray[np.bool_]:
    """Compare with a bound, a negative zero below a positive one."""
    number, sign = bound
    above = values >= number
    if number == 0 and sign > 0:
        above &= (values != 0) | ~np.signbit(values)
    return np.asarray(above, np.bool_)


def _at_the_bounds(fmt: Format, limits: Limits) -> tuple[Array, Array]:
    """Give the encodings at the two bounds, and the next two inside of each."""
    places = np.array([-1, 0, 1, 2])
    found = []
    for bound, _ in (limits.low, limits.high):
        if math.isfinite(bound):
            below = magnitudes_below(fmt, abs(bound))
            near = np.clip(np.concatenate([below + places, below - places]), 0, fmt.max_bits).astype(
                np.uint64
            )
            found.append(_signed(fmt, near))
    codes = np.unique(np.concatenate(found)) if found else np.empty(0, np.uint64)
    codes = codes[limits.allow(fmt, codes)]
    values = fmt.decode(codes)
    codes = codes[np.lexsort((~np.signbit(values), values))]
    lowest, highest = math.isfinite(limits.low[0]), math.isfinite(limits.high[0])
    none = codes[:0]
    ends = np.concatenate([codes[:1] if lowest else none, codes[-1:] if highest else none])
    beside = np.concatenate([codes[1:3] if lowest else none, codes[-3:-1] if highest else none])
    return np.unique(ends), np.unique(beside)


def _kinds(fmt: Format, codes: Array) -> tuple[Array, Array]:
    """Give the kind of each encoding, simple ones first, and the order by simplicity.

    Kinds: 0 zero; 1 another integer or infinity, by size; 2 another normal number, by binary digits behind the point,
    then by size; 3 a subnormal one, by size; 4 NaN. Of negative sign 5 more.
    """
    values = fmt.decode(codes)
    magnitude = np.abs(np.where(np.isnan(values), 0.0, values))
    mantissa, exponent = np.frexp(np.where(np.isfinite(magnitude), magnitude, 0.0))
    digits = np.ldexp(mantissa, 53).astype(np.int64)
    last = np.frexp((digits & -digits).astype(np.float64))[1] - 1  # place of the last digit that is 1
    behind_the_point = np.where(digits > 0, np.maximum(53 - exponent - last, 0), 0)
    kind = np.where(behind_the_point > 0, 2, 1)
    kind = np.where(magnitude < fmt.min_normal, np.where(magnitude > 0, 3, 0), kind)
    kind = np.where(np.isnan(values), _NAN, kind) + _NEGATIVE * (codes >= fmt.sign_bit)
    return kind, np.lexsort((magnitude, np.where(kind % _NEGATIVE == 2, behind_the_point, 0), kind))


def _choices(kinds: Array, shares: list[float]) -> npt.NDArray[np.int64]:
    """Give how many of 256 choices each kind has: half of them the negative ones, if they are about half."""
    negative = kinds >= _NEGATIVE
    share = np.array(shares)
    if negative.any() and 0.4 < share[negative].sum() / share.sum() < 0.6:
        return np.concatenate([_times(share[~negative], 128), _times(share[negative], 128)])
    return _times(share, 256)


def _times(shares: Any, total: int) -> npt.NDArray[np.int64]:
    """Give how often each occurs among `total`: once at least."""
    given = np.asarray(shares, np.float64)
    if not given.size:
        return np.zeros(0, np.int64)
    times = np.maximum(np.rint(given * (total / given.sum())), 1).astype(np.int64)
    while excess := int(times.sum()) - total:
        most = np.argsort(-times, kind="stable")[: min(abs(excess), max(given.size // 2, 1))]
        times[most] = np.maximum(times[most] - int(np.sign(excess)), 1)
    return np.asarray(times, np.int64)
