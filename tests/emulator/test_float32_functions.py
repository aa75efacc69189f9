from __future__ import annotations

import math
import time
from typing import Any

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpfr

from fp16sim.emulator import float32_functions as f32
from fp16sim.emulator.float32_functions import FLOAT32_FUNCTIONS

ULP_BOUND = {**dict.fromkeys(FLOAT32_FUNCTIONS, 0.500001), "pow": 0.50001}
RELATIVE_BOUND = {**dict.fromkeys(FLOAT32_FUNCTIONS, 2.0**-43), "pow": 2.0**-40}
MAX = float(np.finfo(np.float32).max)


def arguments(name: str, count: int) -> np.ndarray:
    """Stratified: all encodings alike, values of everyday size, and what is hard for this function."""
    rng = np.random.default_rng(32)
    part = count // 4
    anything = rng.integers(0, 2**32, part, dtype=np.uint32).view(np.float32)
    anything = np.where(np.isfinite(anything), anything, np.float32(1))
    usual = (rng.standard_normal(part) * 3).astype(np.float32)
    edges = {"exp": (-104.5, 89.0), "tanh": (-9.5, 9.5), "erf": (-4.1, 4.1), "log": (0.5, 2.0)}
    low, high = edges.get(name, (-200.0, 200.0))
    spread = (low + (high - low) * rng.random(part)).astype(np.float32)
    near_one = (1 + rng.standard_normal(part) * 2.0 ** rng.integers(-23, 0, part)).astype(np.float32)
    # Close to multiples of pi/2, from small to huge: the float32 nearest to each.
    with gmpy2.context(precision=400):
        half_pi = gmpy2.const_pi() / 2
        multiples = [float(half_pi * int(k)) for k in 2.0 ** (rng.random(part) * 100)]
    x = np.concatenate(
        [anything, usual, spread, near_one, np.float32(multiples) if name in ("sin", "cos") else usual]
    )
    return np.abs(x[x != 0]) if name == "log" else x


def exact_value(name: str, x: float, y: float | None = None) -> Any:
    return mpfr(x) ** mpfr(y) if y is not None else getattr(gmpy2, name)(mpfr(x))


def ulps(got: float, exact: Any) -> float:
    """Give the error in units in the last place of float32, 0 for a rightful infinity."""
    if abs(exact) >= MAX + 2.0**103:
        assert got == math.copysign(math.inf, exact)
        return 0.0
    exponent = max(gmpy2.get_exp(exact) - 24, -149) if exact else -149
    return float(abs(mpfr(got) - exact) / mpfr(2) ** exponent)


def worst(name: str, x: np.ndarray, y: np.ndarray | None = None) -> float:
    function = getattr(f32, name)
    got = function(x) if y is None else function(x, y)
    assert got.dtype == np.float32
    with gmpy2.context(precision=120):
        others = [None] * x.size if y is None else y.tolist()
        return max(
            ulps(g, exact_value(name, v, w)) for g, v, w in zip(got.tolist(), x.tolist(), others, strict=True)
        )


def pow_arguments(count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(33)
    x = np.abs(rng.integers(0, 2**32, count, dtype=np.uint32).view(np.float32))
    x = np.where(np.isfinite(x) & (x > 0), x, np.float32(2.5))
    x[::3] = rng.integers(1, 5000, x[::3].size)
    y = (rng.standard_normal(count) * 3).astype(np.float32)
    y[::2] = np.rint(y[::2] * 2) / 2
    return x, y


@pytest.mark.parametrize("name", FLOAT32_FUNCTIONS)
def test_sampled_errors_against_mpfr(name: str) -> None:
    assert worst(name, arguments(name, 3000)) < ULP_BOUND[name]


def test_sampled_errors_of_pow_against_mpfr() -> None:
    assert worst("pow", *pow_arguments(4000)) < ULP_BOUND["pow"]


@pytest.mark.slow
def test_errors_against_mpfr() -> None:
    start = time.perf_counter()
    for name in FLOAT32_FUNCTIONS:
        x = arguments(name, 100_000)
        error = worst(name, x)
        print(f"float32 {name}: {x.size} arguments, largest error {error:.8f} ulp")
        assert error < ULP_BOUND[name]
    x, y = pow_arguments(100_000)
    error = worst("pow", x, y)
    print(f"float32 pow: {x.size} pairs, largest error {error:.8f} ulp; {time.perf_counter() - start:.0f} s")
    assert error < ULP_BOUND["pow"]


@pytest.mark.parametrize("name", [*FLOAT32_FUNCTIONS, "pow"])
def test_the_value_before_rounding_is_as_close_as_stated(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f32, "_float32", lambda result: result)
    x, y = pow_arguments(3000) if name == "pow" else (arguments(name, 3000), None)
    got = getattr(f32, name)(x) if y is None else f32.pow(x, y)
    compared = 0
    with gmpy2.context(precision=160):
        for i, g in enumerate(got.tolist()):
            exact = exact_value(name, float(x[i]), None if y is None else float(y[i]))
            clipped = abs(exact) > 2.0**140 or abs(exact) < 2.0**-170 or (name == "erf" and abs(x[i]) > 4)
            if not clipped:
                compared += 1
                assert abs((mpfr(g) - exact) / exact) < RELATIVE_BOUND[name], (x[i], g)
    assert compared > 1500


def test_an_error_of_a_hundred_thousandth_of_an_ulp_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = f32._exp
    monkeypatch.setattr(f32, "_exp", lambda x: original(x) * (1 + 2.0**-36))
    assert worst("exp", arguments("exp", 20_000)) > ULP_BOUND["exp"]


SPECIAL = {
    "exp": ((0.0, 1.0), (-0.0, 1.0), (np.inf, np.inf), (-np.inf, 0.0), (89.0, np.inf), (-104.0, 0.0)),
    "log": ((0.0, -np.inf), (-0.0, -np.inf), (1.0, 0.0), (np.inf, np.inf), (-1.0, np.nan), (-np.inf, np.nan)),
    "tanh": ((0.0, 0.0), (-0.0, -0.0), (np.inf, 1.0), (-np.inf, -1.0), (1e-45, 1e-45), (-1e-45, -1e-45)),
    "erf": ((0.0, 0.0), (-0.0, -0.0), (np.inf, 1.0), (-np.inf, -1.0), (5.0, 1.0)),
    "sin": ((0.0, 0.0), (-0.0, -0.0), (np.inf, np.nan), (-np.inf, np.nan), (1e-45, 1e-45)),
    "cos": ((0.0, 1.0), (-0.0, 1.0), (np.inf, np.nan), (-np.inf, np.nan)),
}


@pytest.mark.parametrize("name", FLOAT32_FUNCTIONS)
def test_special_values(name: str) -> None:
    for argument, result in (*SPECIAL[name], (np.nan, np.nan)):
        got = FLOAT32_FUNCTIONS[name](np.float32(argument))
        assert np.float32(result).tobytes() == np.float32(got).tobytes(), (argument, got)


def test_pow_special_values_are_those_of_c99() -> None:
    inf, nan = math.inf, math.nan
    cases = (
        (0.0, -1.0, inf), (-0.0, -1.0, -inf), (-0.0, -3.0, -inf), (-0.0, -2.0, inf), (0.0, -inf, inf),
        (-0.0, 3.0, -0.0), (-0.0, 2.0, 0.0), (-0.0, 0.5, 0.0), (-1.0, inf, 1.0), (-1.0, -inf, 1.0),
        (1.0, nan, 1.0), (nan, 0.0, 1.0), (nan, -0.0, 1.0), (-2.0, 0.5, nan), (0.5, -inf, inf),
        (2.0, -inf, 0.0), (0.5, inf, 0.0), (2.0, inf, inf), (-inf, -3.0, -0.0), (-inf, -2.0, 0.0),
        (-inf, 3.0, -inf), (-inf, 2.0, inf), (inf, -1.0, 0.0), (inf, 2.0, inf), (nan, 1.0, nan),
        (2.0, nan, nan), (-2.0, 3.0, -8.0), (-2.0, 1e30, inf), (4097.0, 2.0, 16785408.0), (2.0, 33.0, 2.0**33),
    )  # fmt: skip
    for x, y, want in cases:
        got = f32.pow(np.float32(x), np.float32(y))
        assert np.float32(want).tobytes() == np.float32(got).tobytes(), (x, y, got)


def test_results_do_not_depend_on_the_company_and_keep_the_shape() -> None:
    for name, function in FLOAT32_FUNCTIONS.items():
        x = arguments(name, 800)[:800]
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
        assert float(ln2 - mpfr(f32._LN2_HIGH)) == f32._LN2_LOW
        assert (float(1 / ln2), float(pi / 2)) == (f32._INVERSE_LN2, f32._HALF_PI)
        assert float(2 / gmpy2.sqrt(pi)) == f32._TWO_OVER_SQRT_PI
        assert float(gmpy2.sqrt(mpfr(0.5))) == f32._SQRT_HALF
        for exponent in (-24, 0, 57, 104):
            pieces = f32._two_over_pi_pieces()[exponent + 24]
            exact = gmpy2.fmod(mpfr(2) ** exponent * 2 / pi, mpfr(4))
            assert 0 <= exact - sum(map(mpfr, pieces.tolist())) < mpfr(2) ** -110
