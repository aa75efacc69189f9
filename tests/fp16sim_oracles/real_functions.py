"""MPFR (gmpy2) for functions of float32 and float64 values: what is exact, and how far a result is from it.

Nothing of the package is imported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import gmpy2
import numpy as np
import numpy.typing as npt
from gmpy2 import mpfr

INF, NAN = math.inf, math.nan


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + gmpy2.exp(-x))


def _normal(x: Any) -> Any:
    return gmpy2.erfc(-x / gmpy2.sqrt(mpfr(2))) / 2


def _linear() -> Any:
    return 2 * gmpy2.sqrt(2 / gmpy2.const_pi())


def _tanh_form(x: Any) -> Any:
    return _linear() * (x + mpfr(44715) / 1000000 * x**3)


def _silu_derivative(x: Any) -> Any:
    return _sigmoid(x) * (1 + x * _sigmoid(-x))


def _gelu_derivative(x: Any) -> Any:
    return _normal(x) + x * gmpy2.exp(-x * x / 2) / gmpy2.sqrt(2 * gmpy2.const_pi())


def _gelu_tanh_derivative(x: Any) -> Any:
    w = _tanh_form(x)
    return _sigmoid(w) * (1 + x * _linear() * (1 + 3 * mpfr(44715) / 1000000 * x**2) * _sigmoid(-w))


EXACT: dict[str, Callable[[Any], Any]] = {
    "exp": gmpy2.exp,
    "expm1": gmpy2.expm1,
    "log": gmpy2.log,
    "log1p": gmpy2.log1p,
    "tanh": gmpy2.tanh,
    "erf": gmpy2.erf,
    "sin": gmpy2.sin,
    "cos": gmpy2.cos,
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "softplus": lambda x: gmpy2.log1p(gmpy2.exp(x)),
    "gelu": lambda x: x * _normal(x),
    "gelu_tanh": lambda x: x * _sigmoid(_tanh_form(x)),
    "silu_derivative": _silu_derivative,
    "gelu_derivative": _gelu_derivative,
    "gelu_tanh_derivative": _gelu_tanh_derivative,
}
DERIVATIVES = {"silu_derivative": _silu_derivative, "gelu_derivative": _gelu_derivative}
DERIVATIVES["gelu_tanh_derivative"] = _gelu_tanh_derivative
ROOTS = {"silu_derivative": -1.2784645427610737, "gelu_derivative": -0.7517915246935645}
ROOTS["gelu_tanh_derivative"] = -0.7524614220710163
SATURATING = ("sigmoid", "silu", "softplus", "gelu", "gelu_tanh", *DERIVATIVES)
"""Their arguments are cut at 10^4 here: beyond it they are x, 0 or 1 to more bits than anyone asks for."""


def exact_value(name: str, x: float, y: float | None = None) -> Any:
    """Evaluate at the precision of the current context."""
    if y is not None:
        return mpfr(x) ** mpfr(y)
    if name in SATURATING and abs(x) > 1e4:
        limit = max(x, 0.0) if name in ("silu", "softplus", "gelu", "gelu_tanh") else float(x > 0)
        return mpfr(limit)
    return EXACT[name](mpfr(x))


def ulps(got: float, exact: Any, dtype: Any) -> float:
    """Give the error in units in the last place of a dtype, 0 for a rightful infinity."""
    info = np.finfo(dtype)
    precision, lowest = info.nmant + 1, int(info.minexp) - info.nmant
    largest = mpfr(float(info.max))
    if abs(exact) >= largest + mpfr(2) ** (int(info.maxexp) - precision - 1):
        assert got == math.copysign(math.inf, exact), (got, exact)
        return 0.0
    exponent = max(gmpy2.get_exp(exact) - precision, lowest) if exact else lowest
    return float(abs(mpfr(got) - exact) / mpfr(2) ** exponent)


def _strata(name: str, dtype: Any, count: int, rng: np.random.Generator) -> Iterator[npt.NDArray[Any]]:
    word = np.uint32 if dtype == np.float32 else np.uint64
    yield rng.integers(0, int(np.iinfo(word).max), count, dtype=word, endpoint=True).view(dtype)
    yield rng.standard_normal(count) * 3
    reach = 104.5 if dtype == np.float32 else 746.0
    edges = {
        "exp": (-reach, 0.86 * reach), "expm1": (-reach, 0.86 * reach), "tanh": (-23, 23), "erf": (-6.5, 6.5),
        "log": (0.5, 2.0), "log1p": (-0.5, 1.0), "gelu": (-40, 10), "gelu_derivative": (-40, 10),
        "gelu_tanh": (-24, 10), "gelu_tanh_derivative": (-24, 10),
    }  # fmt: skip
    low, high = edges.get(name, (-reach, 0.3 * reach))
    yield low + (high - low) * rng.random(count)
    digits = np.finfo(dtype).nmant
    centre = ROOTS.get(name, 1.0)
    small = rng.standard_normal(count) * 2.0 ** rng.integers(-digits, 0, count)
    yield centre + small
    yield small * 2.0 ** rng.integers(-40, 1, count)
    if name in ("sin", "cos"):
        # Close to multiples of pi/2, from small to huge: the nearest to each.
        with gmpy2.context(precision=1200):
            half_pi = gmpy2.const_pi() / 2
            most = 100 if dtype == np.float32 else 1000
            yield np.array([float(half_pi * int(k)) for k in 2.0 ** (rng.random(count) * most)])


def arguments(name: str, dtype: Any, count: int, seed: int = 32) -> npt.NDArray[Any]:
    """Draw finite arguments in strata: all encodings alike, everyday values, and what is hard for this function."""
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        x = np.concatenate([part.astype(dtype) for part in _strata(name, dtype, count, rng)])
    x = x[np.isfinite(x)]
    if name == "log":
        return np.abs(x[x != 0])
    return x[x > -1] if name == "log1p" else x


def power_arguments(dtype: Any, count: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Draw bases above 0 and exponents, a half of these multiples of 1/2, and bases near 1 with large exponents."""
    rng = np.random.default_rng(33)
    word = np.uint32 if dtype == np.float32 else np.uint64
    x = np.abs(rng.integers(0, int(np.iinfo(word).max), count, dtype=word, endpoint=True).view(dtype))
    x = np.where(np.isfinite(x) & (x > 0), x, dtype(2.5))
    x[::3] = rng.integers(1, 5000, x[::3].size)
    y = (rng.standard_normal(count) * 3).astype(dtype)
    y[::2] = np.rint(y[::2] * 2) / 2
    x[::5] = 1 + rng.standard_normal(x[::5].size) * 2.0**-12
    y[::5] = rng.standard_normal(y[::5].size) * 2.0**15
    return x, y


SPECIAL: dict[str, tuple[tuple[float, float], ...]] = {
    "exp": ((0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (1000.0, INF), (-1000.0, 0.0)),
    "expm1": ((0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1.0), (1000.0, INF), (-1000.0, -1.0)),
    "log": ((0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF), (-1.0, NAN), (-INF, NAN)),
    "log1p": ((0.0, 0.0), (-0.0, -0.0), (-1.0, -INF), (INF, INF), (-1.5, NAN), (-INF, NAN)),
    "tanh": ((0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (1e-45, 1e-45), (-1e-45, -1e-45)),
    "erf": ((0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (6.0, 1.0)),
    "sin": ((0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (1e-45, 1e-45)),
    "cos": ((0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN)),
    "sigmoid": ((0.0, 0.5), (-0.0, 0.5), (INF, 1.0), (-INF, 0.0), (-1000.0, 0.0), (100.0, 1.0)),
    "silu": ((0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -0.0), (-1000.0, -0.0), (1e30, 1e30)),
    "softplus": ((INF, INF), (-INF, 0.0), (-1000.0, 0.0), (1e30, 1e30)),
    "gelu": ((0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -0.0), (-50.0, -0.0), (1e30, 1e30)),
    "gelu_tanh": ((0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -0.0), (-50.0, -0.0), (1e30, 1e30)),
    "silu_derivative": ((0.0, 0.5), (-0.0, 0.5), (INF, 1.0), (-INF, -0.0), (-1000.0, -0.0)),
    "gelu_derivative": ((0.0, 0.5), (-0.0, 0.5), (INF, 1.0), (-INF, -0.0), (-50.0, -0.0)),
    "gelu_tanh_derivative": ((0.0, 0.5), (-0.0, 0.5), (INF, 1.0), (-INF, -0.0), (-50.0, -0.0)),
}
"""Arguments and results at the edges, the same in float32 and float64; NaN means the positive quiet one."""

POWER_SPECIAL = (
    (0.0, -1.0, INF), (-0.0, -1.0, -INF), (-0.0, -3.0, -INF), (-0.0, -2.0, INF), (0.0, -INF, INF),
    (-0.0, 3.0, -0.0), (-0.0, 2.0, 0.0), (-0.0, 0.5, 0.0), (-1.0, INF, 1.0), (-1.0, -INF, 1.0),
    (1.0, NAN, 1.0), (NAN, 0.0, 1.0), (NAN, -0.0, 1.0), (-2.0, 0.5, NAN), (0.5, -INF, INF),
    (2.0, -INF, 0.0), (0.5, INF, 0.0), (2.0, INF, INF), (-INF, -3.0, -0.0), (-INF, -2.0, 0.0),
    (-INF, 3.0, -INF), (-INF, 2.0, INF), (INF, -1.0, 0.0), (INF, 2.0, INF), (NAN, 1.0, NAN),
    (2.0, NAN, NAN), (-2.0, 3.0, -8.0), (-2.0, 1e30, INF), (4097.0, 2.0, 16785409.0), (2.0, 33.0, 2.0**33),
    (-8.0, -3.0, -(2.0**-9)), (2.0, 1e30, INF), (2.0, -1e30, 0.0), (-3.0, -1e30, 0.0), (9.0, 1.5, 27.0),
)  # fmt: skip
"""Bases, exponents and the powers, as C99 and IEEE 754 have them; float32 rounds the one that it cannot hold."""


def same_bits(got: Any, want: Any, dtype: Any) -> bool:
    """Whether a result is a value of the dtype, with its sign; NaN is the positive quiet one."""
    assert np.asarray(got).dtype == dtype
    return np.asarray(got).tobytes() == np.asarray(want, dtype).tobytes()
