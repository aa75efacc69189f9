"""Exponent histograms of gradients: how many values lie in each power of two, and what float16 would keep.

A record type: it depends on NumPy only, so that training, reports and readers can all hold one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Histogram", "Shares", "measure"]

FLUSH_EXPONENT = -25
"""Under nearest_even a magnitude of 2^-25 or less becomes zero in binary16; anything above becomes 2^-24."""


@dataclass(frozen=True)
class Shares:
    """What becomes of a set of gradients in binary16; the three shares add to 1.

    Attributes
    ----------
    zero : float
        Share that is exactly zero in float32 already.
    flushed : float
        Share that is nonzero in float32 and zero in binary16.
    survive : float
        Share that is nonzero in binary16; infinities and NaN count here.
    """

    zero: float
    flushed: float
    survive: float


@dataclass
class Histogram:
    """Counts of values by ``floor(log2 |g|)``, with zeros, infinities and NaN apart.

    Attributes
    ----------
    counts : dict of int to int
        Exponent to number of finite nonzero values with that exponent.
    powers : dict of int to int
        How many of these are exactly a power of two: they decide at the edge of flushing, where 2^-25 becomes
        zero and everything above it in [2^-25, 2^-24) does not.
    zeros, infinities, nans : int
        Values that have no exponent.

    Raises
    ------
    ValueError
        If an exponent is no integer, or a count is none or is negative.
    TypeError
        If `counts` or `powers` is no mapping.

    Examples
    --------
    >>> histogram = Histogram()
    >>> histogram.add([1.0, 1.5, -0.25, 0.0, 2.0**-26])
    >>> sorted(histogram.counts.items()), histogram.zeros
    ([(-26, 1), (-2, 1), (0, 2)], 1)
    >>> histogram.shares(1.0)
    Shares(zero=0.2, flushed=0.2, survive=0.6)
    >>> histogram.shares(8.0)
    Shares(zero=0.2, flushed=0.0, survive=0.8)
    """

    counts: dict[int, int] = field(default_factory=dict)
    powers: dict[int, int] = field(default_factory=dict)
    zeros: int = 0
    infinities: int = 0
    nans: int = 0

    def __post_init__(self) -> None:
        for name in ("counts", "powers"):
            if not isinstance(getattr(self, name), Mapping):
                raise TypeError(
                    f"{name} is a {type(getattr(self, name)).__name__}: pass a dict of exponent to number of values, "
                    "such as {-31: 500}"
                )
            for exponent, count in getattr(self, name).items():
                if not _is_whole(exponent):
                    raise ValueError(
                        f"{name} has the exponent {exponent!r}: keys are the integers floor(log2 |g|); pass -31, say"
                    )
                _check_count(f"{name}[{exponent}]", count)
        for name in ("zeros", "infinities", "nans"):
            _check_count(name, getattr(self, name))

    @property
    def total(self) -> int:
        """Number of values counted."""
        return sum(self.counts.values()) + self.zeros + self.infinities + self.nans

    def add(self, values: npt.ArrayLike, scale: float = 1.0) -> None:
        """Count the values of an array, divided by `scale`.

        Parameters
        ----------
        values : array of float16, float32 or float64, any shape
            Gradients, read as they are.
        scale : float
            The loss scale that they carry, above 0 and finite. The division is rounded once to binary64; it is exact
            for a power of two (within binary64's range).

        Raises
        ------
        ValueError
            If the scale is another, or the values are no numbers.
        """
        if not (_is_number(scale) and 0 < scale < math.inf):
            raise ValueError(
                f"scale={scale!r}: the values are divided by it; pass the loss scale that they carry, such as 1024.0"
            )
        try:
            array = np.asarray(values).astype(np.float64).ravel()
        except (TypeError, ValueError) as error:
            raise ValueError(f"values that are no numbers ({error}): pass an array of gradients") from error
        if scale != 1.0:
            array = array / scale
        finite = np.isfinite(array)
        self.nans += int(np.isnan(array).sum())
        self.infinities += int(np.isinf(array).sum())
        array = np.abs(array[finite])
        nonzero = array[array != 0]
        self.zeros += array.size - nonzero.size
        # frexp is exact: |g| = m * 2^e with m in [1/2, 1), so floor(log2 |g|) = e - 1.
        mantissa, exponent = np.frexp(nonzero)
        for target, chosen in ((self.counts, exponent), (self.powers, exponent[mantissa == 0.5])):
            if chosen.size:
                low = int(chosen.min())
                for offset, count in enumerate(np.bincount(chosen - low)):
                    if count:
                        key = low + offset - 1
                        target[key] = target.get(key, 0) + int(count)

    def merge(self, other: Histogram) -> Histogram:
        """Give a new histogram with the counts of both.

        >>> a, b = Histogram(), Histogram()
        >>> a.add([1.0]); b.add([1.0, 0.0])
        >>> a.merge(b).total
        3
        """
        if not isinstance(other, Histogram):
            raise TypeError(f"merge of a {type(other).__name__}: pass another Histogram")
        return Histogram(
            _summed(self.counts, other.counts),
            _summed(self.powers, other.powers),
            self.zeros + other.zeros,
            self.infinities + other.infinities,
            self.nans + other.nans,
        )

    def shares(self, scale: float) -> Shares:
        """Give the shares that are zero, flushed and surviving when multiplied by `scale` and stored in
        binary16.

        Parameters
        ----------
        scale : float
            A power of two: whole bins then move together and the shares are exact.

        Raises
        ------
        ValueError
            If `scale` is not a power of two, or nothing was counted.
        """
        mantissa, exponent = math.frexp(scale) if _is_number(scale) else (math.nan, 0)
        if mantissa != 0.5 or not math.isfinite(scale):
            raise ValueError(
                f"scale={scale!r}: an exponent histogram answers exactly for powers of two only; "
                "round the scale to one, or measure the gradients themselves"
            )
        if not self.total:
            raise ValueError("the histogram is empty: add gradients before asking for shares")
        edge = FLUSH_EXPONENT - (exponent - 1)
        flushed = sum(count for key, count in self.counts.items() if key < edge) + self.powers.get(edge, 0)
        total = self.total
        return Shares(self.zeros / total, flushed / total, (total - self.zeros - flushed) / total)

    def to_json(self) -> str:
        """Give the counts as one JSON object; exponents are its keys, as text."""
        return json.dumps(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Give the counts as plain data."""
        return {
            "counts": {str(key): self.counts[key] for key in sorted(self.counts)},
            "powers": {str(key): self.powers[key] for key in sorted(self.powers)},
            "zeros": self.zeros,
            "infinities": self.infinities,
            "nans": self.nans,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Histogram:
        """Read what :meth:`to_dict` wrote."""
        try:
            return cls(
                {int(key): count for key, count in data["counts"].items()},
                {int(key): count for key, count in data["powers"].items()},
                data["zeros"],
                data["infinities"],
                data["nans"],
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"not a histogram ({error!r}): pass what Histogram.to_dict wrote") from error

    @classmethod
    def from_json(cls, text: str) -> Histogram:
        """Read what :meth:`to_json` wrote.

        >>> histogram = Histogram()
        >>> histogram.add([0.1, 0.0])
        >>> Histogram.from_json(histogram.to_json()) == histogram
        True
        """
        try:
            data = json.loads(text)
        except (json.JSONDecodeError, TypeError) as error:
            raise ValueError(f"not JSON ({error}): pass what Histogram.to_json wrote") from None
        return cls.from_dict(data)


def measure(exact: npt.ArrayLike, scale: float) -> tuple[int, int, int]:
    """Count the gradients that are zero, that `scale` leaves flushed, and that survive in binary16.

    Parameters
    ----------
    exact : array of float32 or float64
        Gradients as float32 has them, not multiplied by `scale`.
    scale : float
        Any positive number; the product is rounded once to binary64 before it is compared with 2^-25.

    >>> measure([0.0, 2.0**-26, 1.0], 1.0)
    (1, 1, 1)
    """
    magnitude = np.abs(np.asarray(exact).astype(np.float64))
    zero = int((magnitude == 0).sum())
    gone = int((magnitude * scale <= 2.0**FLUSH_EXPONENT).sum())
    return zero, gone - zero, magnitude.size - gone


def _summed(first: Mapping[int, int], second: Mapping[int, int]) -> dict[int, int]:
    return {key: first.get(key, 0) + second.get(key, 0) for key in sorted({*first, *second})}


def _is_whole(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, (float, np.floating)) or (_is_whole(value) and abs(value) < 2**1023)


def _check_count(name: str, count: Any) -> None:
    if not _is_whole(count) or count < 0:
        raise ValueError(f"{name}={count!r}: it counts values; pass an integer, 0 or more")
