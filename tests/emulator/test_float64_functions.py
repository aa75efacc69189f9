"""The float64 functions against MPFR: within an ulp everywhere, within 0.51 where results are normal."""

from __future__ import annotations

import math
import time

import gmpy2
import numpy as np
import pytest
from fp16sim_oracles.real_functions import (
    DERIVATIVES,
    POWER_SPECIAL,
    ROOTS,
    SPECIAL,
    arguments,
    exact_value,
    power_arguments,
    same_bits,
    ulps,
)
from gmpy2 import mpfr

from fp16sim.emulator import float64_activations, float64_cores, float64_functions as f64
from fp16sim.emulator.double_double import DoubleDouble
from fp16sim.emulator.float64_functions import FLOAT64_FUNCTIONS

NAMES = [*FLOAT64_FUNCTIONS, "pow"]
# Cancellation and huge arguments: bits that MPFR needs to be right to 2^-60 itself.
PRECISION = {"sin": 1300, "cos": 1300, "expm1": 1200, "log1p": 1200}
SMALLEST = 2.0**-1022


def sample(name: str, count: int) -> tuple[np.ndarray, ...]:
    return power_arguments(np.float64, 4 * count) if name == "pow" else (arguments(name, np.float64, count),)


def worst(name: str, operands: tuple[np.ndarray, ...]) -> tuple[float, float]:
    """Give the largest error among normal and among subnormal results, in units in the last place."""
    got = getattr(f64, name)(*operands)
    assert got.dtype == np.float64
    largest = [0.0, 0.0]
    with gmpy2.context(precision=PRECISION.get(name, 300)):
        for g, *row in zip(got.tolist(), *(x.tolist() for x in operands), strict=True):
            exact = exact_value(name, *row)
            subnormal = abs(exact) < SMALLEST
            largest[subnormal] = max(largest[subnormal], ulps(g, exact, np.float64))
    return largest[0], largest[1]


@pytest.mark.parametrize("name", NAMES)
def test_sampled_errors_against_mpfr(name: str) -> None:
    normal, subnormal = worst(name, sample(name, 250))
    assert 0.4 < normal < 0.51
    assert subnormal <= 1.0


@pytest.mark.slow
def test_errors_against_mpfr() -> None:
    start = time.perf_counter()
    for name in NAMES:
        operands = sample(name, 8000)
        normal, subnormal = worst(name, operands)
        print(
            f"float64 {name}: {operands[0].size} arguments, largest error {normal:.6f} ulp, subnormal {subnormal:.3f}"
        )
        assert normal < 0.51
        assert subnormal <= 1.0
    print(f"{time.perf_counter() - start:.0f} s")


@pytest.mark.parametrize(
    "name", ["exp", "sigmoid", "silu", "softplus", "gelu", "gelu_tanh", *DERIVATIVES, "pow"]
)
def test_results_from_the_subnormal_range(name: str) -> None:
    rng = np.random.default_rng(7)
    ranges = {"gelu": (-38.6, -37.5), "gelu_tanh": (-21.48, -21.17)}
    low, high = ranges.get(name.removesuffix("_derivative"), (-746.0, -706.0))
    x = low + (high - low) * rng.random(100)
    operands = (np.full(100, 2.0), x / math.log(2)) if name == "pow" else (x,)
    got = np.abs(getattr(f64, name)(*operands))
    assert ((got > 0) & (got < SMALLEST)).sum() > 60
    normal, subnormal = worst(name, operands)
    assert normal < 0.51
    assert 0.0 < subnormal <= 1.0


@pytest.mark.parametrize("name", FLOAT64_FUNCTIONS)
def test_tiny_arguments(name: str) -> None:
    x = np.random.default_rng(9).standard_normal(200) * 2.0 ** np.repeat(np.arange(-1060, -40, 51), 10)
    x = np.abs(x) if name == "log" else x
    normal, subnormal = worst(name, (x,))
    assert normal < 0.51
    assert subnormal <= 1.0


@pytest.mark.parametrize("name", DERIVATIVES)
def test_the_neighbours_of_the_root_are_right(name: str) -> None:
    x = np.float64(ROOTS[name]) + np.arange(-100, 101) * np.spacing(abs(ROOTS[name]))
    assert np.sign(FLOAT64_FUNCTIONS[name](x[[0, -1]])).tolist() == [-1.0, 1.0]
    assert worst(name, (x,))[0] < 0.51


def test_an_error_of_two_ulps_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = float64_cores.round_scaled
    monkeypatch.setattr(
        float64_cores, "round_scaled", lambda value, exponent: original(value, exponent) * (1 + 2.0**-51)
    )
    assert worst("exp", (arguments("exp", np.float64, 100),))[0] > 1


@pytest.mark.parametrize("name", FLOAT64_FUNCTIONS)
def test_special_values(name: str) -> None:
    for argument, result in (*SPECIAL[name], (math.nan, math.nan), (-math.nan, math.nan)):
        got = FLOAT64_FUNCTIONS[name](np.float64(argument))
        assert same_bits(got, result, np.float64), (argument, got)
    for huge in (1.7e308, -1.7e308):  # nothing overflows on the way
        got = FLOAT64_FUNCTIONS[name](np.float64(huge))
        if name not in ("sin", "cos", "log", "log1p"):
            assert got in (0.0, 1.0, -1.0, math.inf, max(huge, 0.0))
    signalling = np.array([0x7FF0000000000001, 0xFFF4000000000000], np.uint64).view(np.float64)
    assert (FLOAT64_FUNCTIONS[name](signalling).view(np.uint64) == 0x7FF8000000000000).all()


def test_pow_special_values_are_those_of_c99() -> None:
    for x, y, want in (*POWER_SPECIAL, (2.0, 1e308, math.inf), (-1.0, 1e308, 1.0), (0.5, 1074.0, 2.0**-1074)):
        got = f64.pow(np.float64(x), np.float64(y))
        assert same_bits(got, want, np.float64), (x, y, got)
    assert f64.pow(np.ones((2, 1)) * 3, np.arange(4.0)).tolist() == [[1.0, 3.0, 9.0, 27.0]] * 2


def test_results_do_not_depend_on_the_company_and_keep_the_shape() -> None:
    for name, function in FLOAT64_FUNCTIONS.items():
        x = arguments(name, np.float64, 20)[:40]
        whole = function(x)
        alone = np.array([function(v) for v in x])
        assert (whole.view(np.uint64) == alone.view(np.uint64)).all()
        grid = x.reshape(2, -1, 5)[:, ::2]
        assert function(grid).shape == grid.shape
        assert (function(grid).view(np.uint64) == whole.reshape(2, -1, 5)[:, ::2].view(np.uint64)).all()
        assert function(np.zeros((0, 3))).shape == (0, 3)
        assert isinstance(function(np.float64(1.0)), np.float64)
        assert function(x.astype(">f8")).tobytes() == whole.tobytes()


def test_other_dtypes_are_refused() -> None:
    for wrong in (np.float32(1.0), np.float16([1.0]), 1, [1]):
        with pytest.raises(TypeError, match="take float64; convert with"):
            f64.exp(wrong)


def test_mills_nodes_are_those_of_mpfr() -> None:
    hi, lo = float64_cores._mills_nodes()
    with gmpy2.context(precision=400):
        for j in (0, 1, 100, 333, 640):
            y = mpfr(j) / 16
            value = (
                gmpy2.exp(y * y / 2) * gmpy2.sqrt(gmpy2.const_pi() / 2) * gmpy2.erfc(y / gmpy2.sqrt(mpfr(2)))
            )
            series = [value, y * value - 1]
            for n in range(1, hi.shape[1] - 1):
                series.append((y * series[n] + series[n - 1]) / (n + 1))
            for n, exact in enumerate(series):
                assert hi[j, n] == float(exact)
                assert lo[j, n] == float(exact - mpfr(float(hi[j, n])))


def test_constants_are_those_of_mpfr() -> None:
    def parts(value: gmpy2.mpfr, count: int) -> tuple[float, ...]:
        found = []
        for _ in range(count):
            found.append(float(value))
            value -= mpfr(found[-1])
        return tuple(found)

    def pair(constant: DoubleDouble) -> tuple[float, float]:
        return constant.hi, constant.lo

    with gmpy2.context(precision=500):
        pi = gmpy2.const_pi()
        linear = 2 * gmpy2.sqrt(2 / pi)
        cubic = linear * 44715 / 1000000
        for constant, value in (
            (f64._SQRT_TWO, gmpy2.sqrt(mpfr(2))),
            (f64._TWO_OVER_SQRT_PI, 2 / gmpy2.sqrt(pi)),
            (float64_cores._INVERSE_SQRT_TWO_PI, 1 / gmpy2.sqrt(2 * pi)),
            (float64_activations._LINEAR, linear),
            (float64_activations._CUBIC, cubic),
            (float64_activations._TRIPLE_CUBIC, 3 * cubic),
        ):
            assert pair(constant) == parts(value, 2)
        assert 0 <= 2 / pi * mpfr(2) ** 400 - float64_cores._two_over_pi(400) < 2
        for name, root, taylor in (
            ("silu_derivative", float64_activations._SILU_ROOT, float64_activations._SILU_TAYLOR),
            ("gelu_derivative", float64_activations._GELU_ROOT, float64_activations._GELU_TAYLOR),
            (
                "gelu_tanh_derivative",
                float64_activations._GELU_TANH_ROOT,
                float64_activations._GELU_TANH_TAYLOR,
            ),
        ):
            function = DERIVATIVES[name]
            zero, step = sum(map(mpfr, map(float.fromhex, root))), mpfr(2) ** -120
            for _ in range(4):  # Newton with a difference quotient
                zero -= function(zero) * step / (function(zero + step) - function(zero))
            assert parts(zero, 3) == tuple(map(float.fromhex, root))
            # Taylor coefficients by differences: the next term is h^2 times the coefficient two further on.
            h = mpfr(2) ** -60
            up, down, up2, down2 = (function(zero + k * h) for k in (1, -1, 2, -2))
            first = (8 * (up - down) - (up2 - down2)) / (12 * h)
            second = (16 * (up + down) - (up2 + down2)) / (24 * h * h)
            third = ((up2 - down2) - 2 * (up - down)) / (12 * h**3)
            fourth = ((up2 + down2) - 4 * (up + down)) / (24 * h**4)
            assert pair(taylor[0]) == parts(first, 2)
            assert pair(taylor[1]) == parts(second, 2)
            assert (taylor[2], taylor[3]) == (float(third), float(fourth))
