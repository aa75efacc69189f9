"""An exact account of a gradient beside a scaler: what it truly is, and so what may be applied."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from fp16sim.testing.driver import Array, scaled

__all__ = ["NORM", "VALUES", "Account"]

VALUES = (1.0, 2.0, 3.0, -1.0, 0.5, 0.0, math.inf, math.nan)
"""True gradients: integers times a power of two, so that sums of them, and products with one, are exact in float32."""
NORM = 1.0

# A scale that is no power of two: a rounding for each gradient, sum, reciprocal and product, 2^-24 each, of few.
_ROUNDED = 2.0**-20
# Clipping divides by the norm plus 1e-6 in torch, and rounds a few times in float32.
_CLIPPED = 4e-6


@dataclass
class Account:
    """What a group holds, and what was done with it since the last update."""

    true: float | None = None
    size: float = 0.0  # the sum of the magnitudes that were added
    given: Array = field(default_factory=lambda: np.zeros(1, np.float32))  # the scaled sum in float32
    factors: frozenset[float] = frozenset()
    clipped: bool = False
    stale: bool = False  # what it holds was unscaled in a step before
    unscaled: bool = False
    stepped: bool = False
    applied: bool | None = None

    @property
    def bad(self) -> bool:
        """Whether what it holds must not be applied."""
        return self.true is not None and not (math.isfinite(self.true) and np.isfinite(self.given).all())

    def add(self, value: float, factor: float) -> None:
        """Add a gradient that a backward pass gave."""
        if self.clipped:
            self.true, self.clipped = self.expected(), False
        with np.errstate(all="ignore"):
            self.given = self.given + scaled(np.array([value]), factor)
        self.true = value if self.true is None else self.true + value
        self.size += abs(value)
        self.factors |= {factor}

    def forget(self) -> None:
        """Hold nothing."""
        empty = Account()
        self.true, self.size, self.given, self.factors = None, 0.0, empty.given, empty.factors
        self.clipped = self.stale = False

    def expected(self) -> float:
        """Give what is to be applied."""
        assert self.true is not None
        return math.copysign(NORM, self.true) if self.clipped and abs(self.true) > NORM else self.true

    def tolerance(self) -> float | None:
        """Give how far from it the applied gradient may be; None where scaling lost too much to say."""
        (factor, *others) = self.factors or {1.0}
        power_of_two = abs(math.frexp(factor)[0]) == 0.5
        if power_of_two and float(self.given[0]) / factor != self.true and not others:
            return None
        if self.clipped:
            return _CLIPPED * max(self.size, NORM)
        return 0.0 if power_of_two and not others else _ROUNDED * self.size
