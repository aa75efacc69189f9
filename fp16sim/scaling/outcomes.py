"""Kinds of steps, and when a step overflows: where the largest gradient times the scale rounds to infinity."""

from __future__ import annotations

import math

from fp16sim.emulator.formats import Format, as_format, nearest_name
from fp16sim.scaling.protocol import Observation

__all__ = ["FINITE", "KINDS", "NAN", "OVERFLOW", "ClosedLoop"]

FINITE, OVERFLOW, NAN = 0, 1, 2
KINDS = (Observation(), Observation(overflow=True), Observation(overflow=True, nan=True))
"""What a scaler is told of each kind of step: no `amax`."""

_LOG_2 = 0.6931471805599453
_UNITS = ("log2", "linear")


class ClosedLoop:
    """When a gradient overflows under a scale, in a format.

    Parameters
    ----------
    units : {"log2", "linear"}
        Of the peaks. ``"linear"``: a step overflows unless peak * scale, a binary64 product, is below the smallest
        magnitude that rounds to infinity; for a float32 peak and a float32 scale the product is exact. ``"log2"``:
        unless peak is below log2(that magnitude) - log2(scale), a binary64 difference. log2 of a power of two is
        exact; any other is computed in binary64 + - * / alone, within 2^-50.
    format : str or Format
        Of the scaled gradients: binary16 overflows from 65520. It needs an infinity.

    Examples
    --------
    >>> ClosedLoop().kind(0.0, 32768.0), ClosedLoop().kind(0.0, 65536.0)
    (0, 1)
    """

    def __init__(self, units: str = "log2", format: str | Format = "binary16") -> None:
        if units not in _UNITS:
            raise ValueError(f"unknown units {units!r}: {nearest_name(units, _UNITS)}")
        self.units = units
        self.format = as_format(format)
        if self.format.inf_bits is None:
            raise ValueError(f"{self.format.name} has no infinity: simulate in binary16, bfloat16 or e5m2")
        # Half a unit in the last place above the largest finite number: nearest_even rounds it to infinity.
        self.limit = self.format.max_finite + 2.0 ** (self.format.emax - self.format.precision)
        self._log_limit = log2(self.limit)

    def factor_and_bound(self, scale: float) -> tuple[float, float]:
        """Give f and b such that a step with peak x is finite if and only if x * f < b."""
        if self.units == "linear":
            return scale, self.limit
        if math.isnan(scale):
            return 1.0, -math.inf
        return 1.0, self._log_limit - log2(abs(scale))

    def kind(self, peak: float, scale: float) -> int:
        """Give the kind of a step."""
        if math.isnan(peak):
            return NAN
        factor, bound = self.factor_and_bound(scale)
        return FINITE if peak * factor < bound else OVERFLOW

    @staticmethod
    def log2(scale: float) -> float:
        """Give the binary logarithm as in :func:`log2`."""
        return log2(scale)


def log2(x: float) -> float:
    """Give the binary logarithm: exact for powers of two, else within 2^-50 for exponents below 1024; of 0, -inf.

    x = m 2^e with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| < .1716: the series
    through s^21 leaves less than 1e-18.

    >>> log2(65536.0), log2(0.0)
    (16.0, -inf)
    """
    if not 0 < x < math.inf:
        return -math.inf if x == 0 else math.inf if x > 0 else math.nan
    mantissa, exponent = math.frexp(x)
    if mantissa == 0.5:
        return float(exponent - 1)
    if mantissa < 0.7071067811865476:
        mantissa, exponent = 2 * mantissa, exponent - 1
    s = (mantissa - 1.0) / (mantissa + 1.0)
    square = s * s
    series = 1.0 / 21.0
    for odd in range(19, 0, -2):
        series = series * square + 1.0 / odd
    return exponent + 2.0 * s * series / _LOG_2
