"""near_ties(): where rounding is decided, in the formats and in what is wider."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from fp16sim_draws import draws, rare, shares, smallest

import fp16sim as fs
from fp16sim.emulator.formats import Format, bfloat16, binary16, binary32, binary64, e4m3, tf32
from fp16sim.testing.strategies import near_ties


def is_tie(x, fmt: Format) -> bool:
    """Whether x lies in the middle of two neighbours, the next above the largest included."""
    magnitude = Fraction(abs(float(x)))
    exponent = max(math.frexp(float(magnitude))[1] - 1, fmt.emin)
    return (magnitude / Fraction(2) ** (exponent - fmt.fraction_bits)) % 1 == Fraction(1, 2)


def is_number(x, fmt: Format) -> bool:
    magnitude = Fraction(abs(float(x)))
    exponent = max(math.frexp(float(magnitude))[1] - 1, fmt.emin)
    return (magnitude / Fraction(2) ** (exponent - fmt.fraction_bits)) % 1 == 0


def outward(x):
    return np.nextafter(x, type(x)(math.copysign(math.inf, x)))


def inward(x):
    return np.nextafter(x, type(x)(0))


CASES = [(binary16, "float32"), (binary16, "float64"), (bfloat16, "float32"), (e4m3, "float32"),
         (tf32, "float32"), (binary32, "float64")]  # fmt: skip


@pytest.mark.parametrize(
    ("fmt", "dtype"),
    [CASES[0], *(pytest.param(*case, marks=pytest.mark.slow) for case in CASES[1:])],
    ids=lambda part: getattr(part, "name", part),
)
def test_each_place_about_a_tie_is_drawn_in_one_of_twenty(fmt: Format, dtype: str) -> None:
    drawn = draws(near_ties(fmt, dtype=dtype))
    assert all(x.dtype == dtype and np.isfinite(x) for x in drawn)
    half_smallest, overflow = fmt.min_subnormal / 2, fmt.max_finite + 2.0 ** (fmt.emax - fmt.precision)

    def near(x, tie: float) -> bool:
        return abs(x) in (inward(x.dtype.type(tie)), tie, outward(x.dtype.type(tie)))

    classes = {
        "tie": lambda x: is_tie(x, fmt),
        "just above a tie": lambda x: is_tie(inward(x), fmt) and not is_tie(x, fmt),
        "just below a tie": lambda x: is_tie(outward(x), fmt) and not is_tie(x, fmt),
        "number": lambda x: is_number(x, fmt),
        "just above a number": lambda x: is_number(inward(x), fmt) and not is_number(x, fmt),
        "just below a number": lambda x: is_number(outward(x), fmt) and not is_number(x, fmt),
        "negative": lambda x: x < 0,
        "at or beside half of the smallest": lambda x: near(x, half_smallest),
        "at or beside the overflow": lambda x: near(x, overflow),
    }
    assert rare(shares(drawn, classes)) == {}


def test_ties_shrink_to_ties_beside_simple_numbers() -> None:
    assert smallest(near_ties(), lambda x: True) == 2.0**-25
    assert smallest(near_ties(), lambda x: x > 0.5) == 1 + 2.0**-11
    assert smallest(near_ties(), lambda x: abs(x) >= 65520) == 65520
    assert smallest(near_ties("bfloat16"), lambda x: x > 1.5) == 2 + 2.0**-7
    away = smallest(near_ties(), lambda x: not is_tie(x, binary16))
    assert away == np.nextafter(np.float32(2.0**-25), np.float32(1))


def test_a_rounding_that_takes_ties_away_is_caught_by_a_tie() -> None:
    def wrong(x) -> bool:
        ours = fs.round_to(x, "binary16", rounding="nearest_away")
        return ours != fs.round_to(x, "binary16")

    assert is_tie(smallest(near_ties(), wrong), binary16)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float16"}, "dtype='float16': ties are drawn as float32 or float64"),
        ({"dtype": None}, "dtype=None: ties are drawn as float32 or float64"),
        ({"dtype": "float17"}, "dtype='float17': ties are drawn as float32 or float64"),
        ({"format": "binary32"}, "float32 does not hold the ties of binary32: pass dtype='float64'"),
        (
            {"format": binary64, "dtype": "float64"},
            "binary64 is a source of conversions only",
        ),
        ({"format": "binry16"}, "did you mean 'binary16'"),
    ],
)
def test_impossible_ties_are_refused_before_a_draw(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        near_ties(**options)
