"""How a result is rounded: the names of the modes, the rules around them, and the integer rule itself.

Rounding a real number to a format is rounding one nonnegative fraction to an integer: the magnitude counted in
units in the last place. :func:`round_fraction` is that rule for each of the seven modes; every fast kernel is
held to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from fp16sim.emulator.formats import nearest_name

__all__ = ["MODES", "Rounding", "round_fraction"]

MODES = (
    "nearest_even",
    "nearest_away",
    "toward_zero",
    "toward_positive",
    "toward_negative",
    "to_odd",
    "stochastic",
)
"""The five directions of IEEE 754-2019 clause 4.3, round to odd, and stochastic rounding."""

_CHOICES = {
    "mode": MODES,
    "subnormals": ("gradual", "flush"),
    "inputs": ("keep", "zero"),
    "tininess": ("after", "before"),
}


@dataclass(frozen=True)
class Rounding:
    """What an operation does with its exact result.

    Parameters
    ----------
    mode : str
        One of `MODES`.
    subnormals : {"gradual", "flush"}
        Gradual underflow, or a zero of the result's sign for every nonzero tiny result.
    inputs : {"keep", "zero"}
        ``"zero"`` reads subnormal operands as zeros of their sign (denormals-are-zero).
    saturate : bool
        Whether overflows and infinities become the largest finite value of their sign.
    tininess : {"after", "before"}
        Whether a result is tiny when judged after rounding (to unbounded exponent) or before.

    Raises
    ------
    ValueError
        On an unknown name; the message gives the nearest.
    """

    mode: str = "nearest_even"
    subnormals: str = "gradual"
    inputs: str = "keep"
    saturate: bool = False
    tininess: str = "after"

    def __post_init__(self) -> None:
        for field, valid in _CHOICES.items():
            value = getattr(self, field)
            if value not in valid:
                shown = "rounding" if field == "mode" else field
                raise ValueError(f"unknown {shown} {value!r}: {nearest_name(value, valid)}")


def round_fraction(magnitude: Fraction, negative: bool, mode: str, random_bits: int | None = None) -> int:
    """Round a nonnegative number of units in the last place to an integer: the integer rule.

    Parameters
    ----------
    magnitude : Fraction
        The exact magnitude, in units in the last place of the result.
    negative : bool
        The sign of the number, which the directed modes look at.
    mode : str
        One of `MODES`.
    random_bits : int, optional
        32 random bits, for ``"stochastic"``: rounds away from zero when they are below
        ``floor(fraction * 2**32)``.

    Returns
    -------
    int
        The rounded magnitude.

    >>> [round_fraction(Fraction(5, 2), False, mode) for mode in MODES[:6]]
    [2, 3, 2, 3, 2, 3]
    """
    below = magnitude.numerator // magnitude.denominator
    rest = magnitude - below
    if rest == 0:
        return below
    odd = below % 2 == 1
    if mode == "nearest_even":
        up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and odd)
    elif mode == "nearest_away":
        up = rest >= Fraction(1, 2)
    elif mode == "toward_zero":
        up = False
    elif mode == "toward_positive":
        up = not negative
    elif mode == "toward_negative":
        up = negative
    elif mode == "to_odd":
        up = not odd
    elif mode == "stochastic":
        if random_bits is None:
            raise ValueError("random_bits=None: stochastic rounding of an inexact value draws 32 bits")
        up = random_bits < rest * 2**32 // 1
    else:
        raise ValueError(f"unknown rounding {mode!r}: {nearest_name(mode, MODES)}")
    return below + up
