from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpfr

from fp16sim.emulator import activation_functions, elementary, one_argument
from fp16sim.emulator.double_double import DoubleDouble
from fp16sim.emulator.one_argument import FUNCTIONS

BITS = 300
POSITIVE = np.arange(1, 0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + gmpy2.exp(-x))


def _gelu_tanh(x: Any) -> Any:
    return x * _sigmoid(2 * gmpy2.sqrt(2 / gmpy2.const_pi()) * (x + x**3 * 44715 / 1000000))


# Where a function is clipped (it then differs from its limit by less than matters) it is not compared.
ORACLES: dict[str, tuple[Callable[[Any], Any], float, float]] = {
    "sqrt": (gmpy2.sqrt, 0, 1e5), "rsqrt": (lambda x: 1 / gmpy2.sqrt(x), 0, 1e5),
    "reciprocal": (lambda x: 1 / x, 0, 1e5), "cbrt": (gmpy2.cbrt, 0, 1e5), "exp": (gmpy2.exp, -45, 12),
    "exp2": (gmpy2.exp2, -60, 17), "expm1": (gmpy2.expm1, -45, 12), "log": (gmpy2.log, 0, 1e5),
    "log2": (gmpy2.log2, 0, 1e5), "log10": (gmpy2.log10, 0, 1e5), "log1p": (gmpy2.log1p, -1, 1e5),
    "sin": (gmpy2.sin, 0, 1e5), "cos": (gmpy2.cos, 0, 1e5), "tan": (gmpy2.tan, 0, 1e5),
    "atan": (gmpy2.atan, 0, 1e5), "sinh": (gmpy2.sinh, 0, 12.5), "cosh": (gmpy2.cosh, 0, 12.5),
    "tanh": (gmpy2.tanh, 0, 20), "sigmoid": (_sigmoid, -45, 40),
    "softplus": (lambda x: gmpy2.log1p(gmpy2.exp(x)), -45, 45), "silu": (lambda x: x * _sigmoid(x), -50, 40),
    "erf": (gmpy2.erf, 0, 5.75), "gelu_tanh": (_gelu_tanh, -8, 8),
    "gelu": (lambda x: x * gmpy2.erfc(-x / gmpy2.sqrt(mpfr(2))) / 2, -9.25, 9.25),
}  # fmt: skip


def worst_error(name: str, step: int) -> tuple[float, int]:
    """Give the largest error over max(|value|, 2^-14), and how many arguments were looked at."""
    function, low, high = ORACLES[name]
    x = np.concatenate([POSITIVE, -POSITIVE])
    chosen = x[(x > low) & (x < high)][::step]
    got = FUNCTIONS[name].evaluate(chosen)
    floor = mpfr(2) ** -14 if name == "gelu" else mpfr(2) ** -1000
    worst = 0.0
    with gmpy2.context(precision=BITS):
        for value, hi, lo in zip(chosen.tolist(), got.hi.tolist(), got.lo.tolist(), strict=True):
            exact = function(mpfr(value))
            error = abs(mpfr(hi) + mpfr(lo) - exact)
            worst = max(worst, float(error / max(abs(exact), floor)))
    return worst, chosen.size


def test_every_function_that_needs_a_series_is_compared() -> None:
    assert set(FUNCTIONS) - set(ORACLES) == {"square", "logb"}


@pytest.mark.parametrize("name", ORACLES)
def test_double_double_errors_against_mpfr(name: str) -> None:
    assert worst_error(name, step=61)[0] < FUNCTIONS[name].error


@pytest.mark.slow
def test_double_double_errors_against_mpfr_on_every_argument() -> None:
    start = time.perf_counter()
    total = 0
    for name in ORACLES:
        worst, count = worst_error(name, step=1)
        total += count
        print(f"{name}: {count} arguments, largest error 2^{np.log2(worst):.1f}")
        assert worst < FUNCTIONS[name].error
    print(f"{len(ORACLES)} functions, {total} arguments, {time.perf_counter() - start:.0f} s")


def test_a_coefficient_that_is_off_in_its_last_bits_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = elementary._inverse_factorial(3)
    wrong = DoubleDouble(right.hi, right.lo * (1 + 2.0**-20))
    original = elementary._inverse_factorial
    monkeypatch.setattr(elementary, "_inverse_factorial", lambda n: wrong if n == 3 else original(n))
    assert worst_error("exp", 61)[0] > FUNCTIONS["exp"].error


def double_double(value: Any) -> tuple[float, float]:
    high = float(value)
    return high, float(value - mpfr(high))


def test_constants_are_those_of_mpfr() -> None:
    with gmpy2.context(precision=BITS):
        pi, ln2 = gmpy2.const_pi(), gmpy2.const_log2()
        for constant, value in (
            (elementary.LN2, ln2),
            (elementary.HALF_PI, pi / 2),
            (one_argument._INVERSE_LN2, 1 / ln2),
            (one_argument._INVERSE_LN10, 1 / gmpy2.log(mpfr(10))),
            (activation_functions._TWO_OVER_SQRT_PI, 2 / gmpy2.sqrt(pi)),
            (activation_functions._SQRT_TWO_OVER_PI, gmpy2.sqrt(2 / pi)),
            (activation_functions._GELU_CUBIC, mpfr(44715) / 1000000),
        ):
            assert (constant.hi, constant.lo) == double_double(value)
        assert float(1 / ln2) == elementary._INVERSE_LN2
        assert float(2 / pi) == elementary._TWO_OVER_PI
        # Pieces: short enough that multiples are exact, and together the constant.
        for pieces, bits, value in (
            (elementary._LN2_PIECES, 40, ln2),
            (elementary._HALF_PI_PIECES, 36, pi / 2),
        ):
            for piece in pieces:
                numerator, _ = piece.as_integer_ratio()
                assert numerator.bit_length() - (numerator & -numerator).bit_length() < bits
            assert abs(sum(map(mpfr, pieces)) - value) <= mpfr(2) ** -(bits * len(pieces) - 2)


def test_no_argument_is_closer_to_a_multiple_of_half_pi_than_stated() -> None:
    with gmpy2.context(precision=BITS):
        half_pi = gmpy2.const_pi() / 2
        large = [mpfr(float(x)) for x in POSITIVE if x > 0.5]
        assert min(abs(x - gmpy2.rint(x / half_pi) * half_pi) for x in large) > 2.0**-21


def test_no_function_of_libm_or_numpy_touches_data() -> None:
    folder = Path(elementary.__file__).parent
    names = "exp|exp2|expm1|log|log2|log10|log1p|sin|cos|tan|tanh|sinh|cosh|arctan|power|cbrt|hypot"
    forbidden = re.compile(rf"\b(?:np|numpy|math)\.(?:{names})\b")
    modules = [
        "double_double",
        "elementary",
        "activation_functions",
        "one_argument",
        "table_entries",
        "tables",
    ]
    for path in (
        *(folder / f"{module}.py" for module in modules),
        *sorted(folder.glob("float*_*.py")),
        *sorted((folder / "kernels").glob("*.py")),
    ):
        assert not forbidden.findall(path.read_text()), path
    assert forbidden.search("np.exp(x)")
