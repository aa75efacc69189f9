"""2 to a fractional power beside MPFR, and beside what the frameworks call."""

import math
import random

import pytest

from fp16sim.scaling.powers import exp2

gmpy2 = pytest.importorskip("gmpy2")


def correctly_rounded(x):
    """Give MPFR's value at the precision and in the range of binary64, subnormals included."""
    with gmpy2.context(gmpy2.ieee(64)):
        return float(gmpy2.exp2(gmpy2.mpfr(x)))


def test_correctly_rounded():
    rng = random.Random(5)
    values = [rng.uniform(-1080, 1025) for _ in range(4000)]
    values += [rng.uniform(-1, 1) * 2.0 ** -rng.randint(0, 80) for _ in range(2000)]
    values += [rng.uniform(-1080, -1020) for _ in range(2000)]
    values += [20.0 + k * 1e-3 for k in range(2000)]
    assert [x for x in values if exp2(x) != correctly_rounded(x)] == []


def test_whole_powers_and_ends():
    assert all(exp2(float(n)) == math.ldexp(1.0, n) for n in range(-1076, 1024))
    assert [exp2(x) for x in (-1075.0, math.nextafter(-1075.0, 0.0), -math.inf)] == [0, 2.0**-1074, 0]
    assert [exp2(x) for x in (math.nextafter(1024.0, 0.0), 1024.0, math.inf)] == [
        correctly_rounded(math.nextafter(1024.0, 0.0)),
        math.inf,
        math.inf,
    ]
    assert math.isnan(exp2(math.nan))
    assert [exp2(x) for x in (0.0, -0.0, 5e-324, -5e-324)] == [1, 1, 1, 1]


def test_roots_of_two_are_those_of_the_c_library():
    """Chainer calls math.pow; the GNU C library rounds these correctly."""
    differ = [n for n in range(1, 3001) if exp2(1.0 / n) != correctly_rounded(1.0 / n)]
    assert differ == []
    # math.pow is another machine's own: within one unit in the last place of the right value anywhere
    assert all(abs(exp2(1.0 / n) - math.pow(2.0, 1.0 / n)) <= math.ulp(1.0) for n in range(1, 3001))
