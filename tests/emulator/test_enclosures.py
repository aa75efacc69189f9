from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpq

from fp16sim.emulator import enclosures
from fp16sim.emulator.enclosures import Enclosure

ARGUMENTS = [
    Fraction(n, d) for n, d in ((1, 3), (-7, 5), (100, 7), (1, 2**60), (-(2**40) - 1, 2**40), (12345, 2))
]


def _odd_factorial_sum(w: Any) -> Any:
    # erf(x) = 2/sqrt(pi) exp(-x^2) x sum(2x^2), so the sum follows from MPFR's erf.
    x = gmpy2.sqrt(w / 2)
    return gmpy2.erf(x) * gmpy2.sqrt(gmpy2.const_pi()) / 2 * gmpy2.exp(x * x) / x


CASES: tuple[tuple[str, Callable[[Any], Any], Callable[[Fraction], bool]], ...] = (
    ("exponential", gmpy2.exp, lambda x: abs(x) < 100),
    ("logarithm", gmpy2.log, lambda x: x > 0),
    ("sine", gmpy2.sin, lambda x: True),
    ("cosine", gmpy2.cos, lambda x: True),
    ("arctangent", gmpy2.atan, lambda x: True),
    ("odd_factorial_sum", _odd_factorial_sum, lambda x: 0 < x < 100),
    ("square_root", gmpy2.sqrt, lambda x: x > 0),
)


@pytest.mark.parametrize("bits", [40, 64, 150])
@pytest.mark.parametrize(("name", "oracle", "inside"), CASES, ids=[c[0] for c in CASES])
def test_series_enclose_the_value_tightly(
    name: str, oracle: Callable[[Any], Any], inside: Callable[[Fraction], bool], bits: int
) -> None:
    with gmpy2.context(precision=600):
        for x in filter(inside, ARGUMENTS):
            found = getattr(enclosures, name)(x, bits)
            value = oracle(gmpy2.mpfr(mpq(x)))
            assert mpq(found.low) <= value <= mpq(found.high), x
            assert found.high - found.low < abs(Fraction(float(value))) * Fraction(1, 2 ** (bits - 12)), x


def test_pi() -> None:
    for bits in (30, 100, 300):
        found = enclosures.pi(bits)
        with gmpy2.context(precision=600):
            assert mpq(found.low) < gmpy2.const_pi() < mpq(found.high)
        assert found.high - found.low < Fraction(1, 2 ** (bits - 6))


@pytest.mark.parametrize("operation", ["__add__", "__sub__", "__mul__", "__truediv__"])
def test_arithmetic_keeps_every_number_inside(operation: str) -> None:
    rng = np.random.default_rng(7)
    for _ in range(300):
        ends = [Fraction(int(n), 1000) for n in rng.integers(-5000, 5000, 4)]
        a, b = Enclosure(min(ends[:2]), max(ends[:2]), 20), Enclosure(min(ends[2:]), max(ends[2:]), 20)
        if operation == "__truediv__" and b.low <= 0 <= b.high:
            continue
        result = getattr(a, operation)(b)
        for part in (Fraction(0), Fraction(1, 3), Fraction(1)):
            for other in (Fraction(0), Fraction(2, 7), Fraction(1)):
                x, y = a.low + part * (a.high - a.low), b.low + other * (b.high - b.low)
                assert result.low <= getattr(Fraction, operation)(x, y) <= result.high


def test_ends_move_outward_and_no_further_than_one_unit() -> None:
    tenth = Enclosure.of(1, 20) / 10
    assert tenth.low < Fraction(1, 10) < tenth.high
    assert tenth.high - tenth.low == Fraction(1, 2**23)
    assert (-tenth).low == -tenth.high
    exact = Enclosure.of(3, 20) * Fraction(1, 4)
    assert exact.low == exact.high == Fraction(3, 4)


def test_a_divisor_that_may_be_zero_is_refused() -> None:
    with pytest.raises(AssertionError, match="may be zero"):
        Enclosure.of(1, 20) / Enclosure(Fraction(-1), Fraction(1), 20)
