"""Options that frameworks accept, and float32 arithmetic on the scale."""

import math

import numpy as np
import pytest

from fp16sim.scaling.numbers import (
    divide32,
    float32,
    flushed,
    multiply32,
    need_float32,
    need_integer,
    need_number,
)


@pytest.mark.parametrize("value", [0, -1.5, 2**70, math.inf, -math.inf, math.nan])
def test_numbers_that_pass(value):
    need_number("x", value)
    if abs(value) < 2**128 or not math.isfinite(value):
        need_float32("x", value)


@pytest.mark.parametrize("value", ["8", None, True, [1.0]])
def test_what_is_no_number(value):
    for check in (need_number, need_float32, need_integer):
        with pytest.raises(ValueError, match=r"^x=.*it must be an? (finite number|integer)"):
            check("x", value)


def test_the_end_of_float32():
    need_float32("x", 3.4028235e38)
    with pytest.raises(ValueError, match=r"x=3.5e[+]38"):
        need_float32("x", 3.5e38)
    with pytest.raises(ValueError, match="an integer"):
        need_integer("x", 2.0)


def test_products_and_quotients_equal_numpys():
    generator = np.random.default_rng(7)
    values = [0.0, -0.0, math.inf, -math.inf, math.nan, 2.0**-149, 2.0**127, *generator.lognormal(0, 30, 40)]
    with np.errstate(all="ignore"):
        for a in values:
            assert np.float32(float32(a)).tobytes() == np.float32(a).tobytes()
            for b in values:
                for ours, theirs in (
                    (multiply32(a, b), np.float32(a) * np.float32(b)),
                    (divide32(a, b), np.float32(a) / np.float32(b)),
                ):
                    assert np.array_equal(np.float32(ours), theirs, equal_nan=True)
                    assert math.isnan(ours) or math.copysign(1, ours) == math.copysign(1, theirs)


def test_flushing():
    assert multiply32(2.0**-127, 2.0**100) == 2.0**-27
    assert multiply32(2.0**-127, 2.0**100, flush=True) == 0.0
    assert divide32(1.0, 2.0**-140, flush=True) == math.inf
    assert divide32(2.0**-126, 2.0, flush=True) == 0.0
    assert math.copysign(1, flushed(-(2.0**-127))) == -1
    assert flushed(2.0**-126) == 2.0**-126
