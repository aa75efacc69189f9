from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from fp16sim.emulator.double_double import DoubleDouble, two_product, two_sum

U = Fraction(1, 2**53)
SAMPLES = 2000


def random_floats(seed: int, exponents: int = 40) -> np.ndarray:
    rng = np.random.default_rng(seed)
    magnitude = rng.random(SAMPLES) + 1.0
    return magnitude * 2.0 ** rng.integers(-exponents, exponents, SAMPLES) * rng.choice([-1.0, 1.0], SAMPLES)


def random_pairs(seed: int) -> DoubleDouble:
    hi = random_floats(seed)
    lo = hi * 2.0**-53 * (2.0 * np.random.default_rng(seed + 1).random(SAMPLES) - 1.0)
    return DoubleDouble(*two_sum(hi, lo))


def fractions_of(number: DoubleDouble) -> list[Fraction]:
    return [Fraction(float(hi)) + Fraction(float(lo)) for hi, lo in zip(number.hi, number.lo, strict=True)]


def worst(got: DoubleDouble, exact: list[Fraction]) -> Fraction:
    return max(abs(g - e) / abs(e) for g, e in zip(fractions_of(got), exact, strict=True) if e)


def test_two_sum_and_two_product_lose_nothing() -> None:
    a, b = random_floats(1), random_floats(2)
    for exact_pair, operation in ((two_sum, Fraction.__add__), (two_product, Fraction.__mul__)):
        s, e = exact_pair(a, b)
        for x, y, high, low in zip(a, b, s, e, strict=True):
            assert Fraction(float(high)) + Fraction(float(low)) == operation(
                Fraction(float(x)), Fraction(float(y))
            )
    assert (two_sum(a, b)[0] == a + b).all()
    assert (two_product(a, b)[0] == a * b).all()


@pytest.mark.parametrize(
    ("operation", "bound"),
    [("__add__", 3 * U**2 + 13 * U**3), ("__sub__", 3 * U**2 + 13 * U**3), ("__mul__", 5 * U**2),
     ("__truediv__", 15 * U**2 + 56 * U**3)],
)  # fmt: skip
def test_operations_keep_their_error_bounds(operation: str, bound: Fraction) -> None:
    x, y = random_pairs(3), random_pairs(5)
    exact = [
        getattr(Fraction, operation)(a, b) for a, b in zip(fractions_of(x), fractions_of(y), strict=True)
    ]
    found = worst(getattr(x, operation)(y), exact)
    assert 0 < found <= bound
    # A checker that could not tell: the same operation on the high halves alone is far outside.
    crude = getattr(x.hi, operation)(y.hi)
    assert worst(DoubleDouble(crude, np.zeros_like(crude)), exact) > bound


@pytest.mark.parametrize(
    ("operation", "bound"),
    [("__add__", 2 * U**2), ("__mul__", 3 * U**2), ("__truediv__", 4 * U**2), ("__rsub__", 2 * U**2),
     ("__rtruediv__", 15 * U**2)],
)  # fmt: skip
def test_operations_with_a_float64_keep_their_error_bounds(operation: str, bound: Fraction) -> None:
    x, y = random_pairs(7), random_floats(9)
    values = [(a, Fraction(float(b))) for a, b in zip(fractions_of(x), y, strict=True)]
    exact = [getattr(Fraction, operation)(a, b) for a, b in values]
    assert 0 < worst(getattr(x, operation)(y), exact) <= bound


def test_cancelling_sums_keep_their_relative_accuracy() -> None:
    x = random_pairs(11)
    y = DoubleDouble(*two_sum(-x.hi, x.lo * 0.5))
    exact = [a + b for a, b in zip(fractions_of(x), fractions_of(y), strict=True)]
    assert worst(x + y, exact) <= 3 * U**2 + 13 * U**3


def test_square_root_keeps_its_error_bound() -> None:
    x = random_pairs(13)
    x = DoubleDouble.where(x.hi < 0, -x, x)
    root = fractions_of(x.sqrt())
    # |r - sqrt(a)| / sqrt(a) is |r^2 - a| / (2a), to first order.
    assert (
        0
        < max(abs(r * r - a) / (2 * a) for r, a in zip(root, fractions_of(x), strict=True))
        <= Fraction(25, 8) * U**2
    )


def test_results_are_normalised_and_arrays_hand_over() -> None:
    x = random_pairs(15)
    y = np.full(SAMPLES, 3.0) * x  # the array's operator gives way to the number's
    assert isinstance(y, DoubleDouble)
    assert (y.hi + y.lo == y.hi).all()
    scaled = x.scaled(2.0**-10)
    assert fractions_of(scaled) == [a / 1024 for a in fractions_of(x)]
    assert fractions_of(x[3:5]) == fractions_of(x)[3:5]
