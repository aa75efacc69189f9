"""The float32 functions against MPFR, their special values, and that the same bits come out of any array."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import gmpy2
import numpy as np
import pytest
from fp16sim_oracles.real_functions import (
    DERIVATIVES,
    POWER_SPECIAL,
    SPECIAL,
    arguments,
    exact_value,
    power_arguments,
    same_bits,
    ulps,
)
from gmpy2 import mpfr

from fp16sim.emulator import float32_cores, float32_functions as f32
from fp16sim.emulator.float32_functions import FLOAT32_FUNCTIONS
from fp16sim.emulator.kernels import float32_constants as c

ULP_BOUND = {**dict.fromkeys(FLOAT32_FUNCTIONS, 0.500001), "pow": 0.50001}
RELATIVE_BOUND = {**dict.fromkeys(FLOAT32_FUNCTIONS, 2.0**-44), "pow": 2.0**-40}
NAMES = [*FLOAT32_FUNCTIONS, "pow"]


def sample(name: str, count: int) -> tuple[np.ndarray, ...]:
    return power_arguments(np.float32, 4 * count) if name == "pow" else (arguments(name, np.float32, count),)


def worst(name: str, operands: tuple[np.ndarray, ...]) -> float:
    got = getattr(f32, name)(*operands)
    assert got.dtype == np.float32
    with gmpy2.context(precision=160):
        rows = zip(got.tolist(), *(x.tolist() for x in operands), strict=True)
        return max(ulps(g, exact_value(name, *row), np.float32) for g, *row in rows)


@pytest.mark.parametrize("name", NAMES)
def test_sampled_errors_against_mpfr(name: str) -> None:
    assert worst(name, sample(name, 800)) < ULP_BOUND[name]


@pytest.mark.slow
def test_errors_against_mpfr() -> None:
    start = time.perf_counter()
    for name in NAMES:
        operands = sample(name, 20_000)
        error = worst(name, operands)
        print(f"float32 {name}: {operands[0].size} arguments, largest error {error:.8f} ulp")
        assert error < ULP_BOUND[name]
    print(f"{time.perf_counter() - start:.0f} s")


@pytest.mark.parametrize("name", NAMES)
def test_the_value_before_rounding_is_as_close_as_stated(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(float32_cores, "to_float32", lambda result: result)
    operands = sample(name, 800)
    got = getattr(f32, name)(*operands)
    compared = 0
    with gmpy2.context(precision=300):
        for g, *row in zip(got.tolist(), *(x.tolist() for x in operands), strict=True):
            exact = exact_value(name, *row)
            clipped = abs(exact) > 2.0**128 or abs(exact) < 2.0**-149 or (name == "erf" and abs(row[0]) > 4)
            if not clipped:
                compared += 1
                assert abs((mpfr(g) - exact) / exact) < RELATIVE_BOUND[name], (row, g)
    assert compared > 1500


def test_an_error_of_a_hundred_thousandth_of_an_ulp_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = float32_cores.exp
    monkeypatch.setattr(float32_cores, "exp", lambda x: original(x) * (1 + 2.0**-36))
    assert worst("exp", (arguments("exp", np.float32, 5000),)) > ULP_BOUND["exp"]


@pytest.mark.parametrize("name", DERIVATIVES)
def test_the_neighbours_of_the_root_are_right(name: str) -> None:
    root = np.float32(
        {"silu": c.SILU_ROOT, "gelu": c.GELU_ROOT, "gelu_tanh": c.GELU_TANH_ROOT}[name[:-11]][0]
    )
    bits = root.view(np.uint32) + np.arange(-300, 300).astype(np.uint32)
    x = bits.view(np.float32)
    assert np.sign(FLOAT32_FUNCTIONS[name](x[[0, -1]])).tolist() == [1.0, -1.0]
    assert worst(name, (x,)) < ULP_BOUND[name]


@pytest.mark.parametrize("name", FLOAT32_FUNCTIONS)
def test_special_values(name: str) -> None:
    for argument, result in (*SPECIAL[name], (math.nan, math.nan), (-math.nan, math.nan)):
        got = FLOAT32_FUNCTIONS[name](np.float32(argument))
        assert same_bits(got, result, np.float32), (argument, got)
    signalling = np.array([0x7FA00000, 0xFF800001], np.uint32).view(np.float32)
    assert (FLOAT32_FUNCTIONS[name](signalling).view(np.uint32) == 0x7FC00000).all()


def test_pow_special_values_are_those_of_c99() -> None:
    for x, y, want in POWER_SPECIAL:
        got = f32.pow(np.float32(x), np.float32(y))
        assert same_bits(got, want, np.float32), (x, y, got)


def test_results_do_not_depend_on_the_company_and_keep_the_shape() -> None:
    for name, function in FLOAT32_FUNCTIONS.items():
        x = arguments(name, np.float32, 200)[:400]
        whole = function(x)
        alone = np.array([function(v) for v in x])
        assert (whole.view(np.uint32) == alone.view(np.uint32)).all()
        grid = x.reshape(2, -1, 5)[:, ::2]
        assert function(grid).shape == grid.shape
        assert (function(grid).view(np.uint32) == whole.reshape(2, -1, 5)[:, ::2].view(np.uint32)).all()
        assert function(np.zeros((0, 3), np.float32) + np.float32(1)).shape == (0, 3)
        assert isinstance(function(np.float32(1.0)), np.float32)
        assert function(x.astype(">f4")).tobytes() == whole.tobytes()


def test_other_dtypes_are_refused() -> None:
    for wrong in (np.float64(1.0), np.float16([1.0]), [1.0], 1):
        with pytest.raises(TypeError, match="take float32; convert with"):
            f32.exp(wrong)


def test_constants_are_those_of_mpfr() -> None:
    with gmpy2.context(precision=300):
        ln2, pi = gmpy2.const_log2(), gmpy2.const_pi()
        assert float(ln2 - mpfr(c.LN2_HIGH)) == c.LN2_LOW
        assert (float(ln2), float(1 / ln2), float(pi / 2)) == (c.LN2, c.INVERSE_LN2, c.HALF_PI)
        assert (float(gmpy2.sqrt(mpfr(0.5))), float(gmpy2.sqrt(mpfr(2)))) == (c.SQRT_HALF, c.SQRT_TWO)
        assert float(1 / gmpy2.sqrt(2 * pi)) == c.INVERSE_SQRT_TWO_PI
        linear = 2 * gmpy2.sqrt(2 / pi)
        assert float(linear) == c.GELU_LINEAR
        assert float(linear * 44715 / 1000000) == c.GELU_CUBIC
        for exponent in (-24, 0, 57, 104):
            pieces = float32_cores.two_over_pi_pieces()[exponent + 24]
            exact = gmpy2.fmod(mpfr(2) ** exponent * 2 / pi, mpfr(4))
            assert 0 <= exact - sum(map(mpfr, pieces.tolist())) < mpfr(2) ** -110


def interpolated(function: Callable[[Any], Any], low: float, high: float, count: int) -> tuple[float, ...]:
    """Interpolate at Chebyshev nodes (Newton), highest coefficient first, rounded to float64."""
    centre, radius = mpfr(low + high) / 2, mpfr(high - low) / 2
    angle = gmpy2.const_pi() / (2 * count)
    nodes = [centre + radius * gmpy2.cos((2 * i + 1) * angle) for i in range(count)]
    differences = [function(node) for node in nodes]
    for order in range(1, count):
        for i in range(count - 1, order - 1, -1):
            differences[i] = (differences[i] - differences[i - 1]) / (nodes[i] - nodes[i - order])
    polynomial = [differences[-1]]  # lowest coefficient first
    for i in range(count - 2, -1, -1):
        shifted = [mpfr(0), *polynomial]
        for k, coefficient in enumerate(polynomial):
            shifted[k] -= nodes[i] * coefficient
        shifted[0] += differences[i]
        polynomial = shifted
    return tuple(float(coefficient) for coefficient in reversed(polynomial))


def test_coefficients_interpolate_what_they_say() -> None:
    with gmpy2.context(precision=300):

        def mills(t: Any) -> Any:
            y = 5 * (1 + t) / (1 - t)
            return (y + 5) * gmpy2.exp(y * y / 2) * gmpy2.erfc(y / gmpy2.sqrt(mpfr(2))) / 2

        assert interpolated(mills, -1.0, 0.5, len(c.MILLS)) == c.MILLS
        assert (
            interpolated(lambda w: gmpy2.erf(gmpy2.sqrt(w)) / gmpy2.sqrt(w), 0.0, 0.25, len(c.ERF)) == c.ERF
        )
        for name, root, slope in (
            ("silu_derivative", c.SILU_ROOT, c.SILU_SLOPE),
            ("gelu_derivative", c.GELU_ROOT, c.GELU_SLOPE),
            ("gelu_tanh_derivative", c.GELU_TANH_ROOT, c.GELU_TANH_SLOPE),
        ):
            function = DERIVATIVES[name]
            zero, step = mpfr(root[0]), mpfr(2) ** -80
            for _ in range(8):  # Newton with a difference quotient: 2^-53, then 80 bits more each time
                zero -= function(zero) * step / (function(zero + step) - function(zero))
            assert root == (float(zero), float(zero - mpfr(root[0])))

            def quotient(d: Any, function: Any = function, zero: Any = zero) -> Any:
                return function(zero + d) / d

            assert interpolated(quotient, -c.NEAR_ROOT, c.NEAR_ROOT, len(slope)) == slope
