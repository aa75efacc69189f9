"""The functions of one argument: what each is at zeros and infinities, where it is defined, when it is exact.

A row of `FUNCTIONS` holds the mathematics that a series cannot know. Encodings here are binary16.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fp16sim.emulator import activation_functions as activations, elementary
from fp16sim.emulator.double_double import DoubleDouble

__all__ = ["FUNCTIONS", "OneArgument"]

Array = npt.NDArray[np.float64]

ZERO, MINUS_ZERO, ONE, MINUS_ONE, HALF = 0x0000, 0x8000, 0x3C00, 0xBC00, 0x3800
INF, MINUS_INF, NAN = 0x7C00, 0xFC00, 0x7E00
_SIGNED_ZEROS = (ZERO, MINUS_ZERO)


@dataclass(frozen=True)
class OneArgument:
    """A function of one binary16 argument.

    Parameters
    ----------
    evaluate : callable
        float64 array of arguments to DoubleDouble. Arguments are in the domain, not 0 unless ``at_zero`` is
        None, finite unless ``at_infinity`` is None, and positive where there is a ``parity``.
    at_infinity : tuple of int, optional
        Exact results at +infinity and -infinity, encodings; NaN means that the operation is invalid. None:
        evaluated.
    at_zero : tuple of int, optional
        Exact results at +0 and -0. None: evaluated. Infinite results raise divide_by_zero (poles).
    parity : {"", "odd", "even"}
        f(-x) = -f(x), or f(x).
    lowest : float
        Arguments below it are invalid; at -1 (log1p) there is a pole.
    exact : callable, optional
        float64 array of arguments to the results that are exact dyadic rationals, NaN where they are not.
        None: no result is, by the theorem of Lindemann and Weierstrass or that of Gelfond and Schneider.
    error : float
        Bound on the relative error of ``evaluate``; absolute, over 2^-14, where the result is below that.
    """

    evaluate: Callable[[Array], DoubleDouble]
    at_infinity: tuple[int, int] | None
    at_zero: tuple[int, int] | None = None
    parity: str = ""
    lowest: float = -np.inf
    exact: Callable[[Array], Array] | None = None
    error: float = 2.0**-96


def _plain(x: Array) -> DoubleDouble:
    return DoubleDouble(x, np.zeros_like(x))


def _only(condition: npt.NDArray[np.bool_], value: Array) -> Array:
    return np.where(condition, value, np.nan)


def _few_bits(root: Array) -> Array:
    """Cut to binary16: a root that is exact has few bits, and its powers are exact in float64."""
    return root.astype(np.float16).astype(np.float64)


_INVERSE_LN2 = DoubleDouble(float.fromhex("0x1.71547652b82fep+0"), float.fromhex("0x1.777d0ffda0d24p-56"))
_INVERSE_LN10 = DoubleDouble(float.fromhex("0x1.bcb7b1526e50ep-2"), float.fromhex("0x1.95355baaafad3p-57"))


def _exp2(x: Array) -> DoubleDouble:
    return elementary.exp(elementary.LN2 * np.clip(x, -60.0, 17.0))


def _atan(x: Array) -> DoubleDouble:
    infinite = np.isinf(x)
    half_pi = DoubleDouble(
        *(np.full_like(x, part) for part in (elementary.HALF_PI.hi, elementary.HALF_PI.lo))
    )
    return DoubleDouble.where(infinite, half_pi, elementary.atan(np.where(infinite, 1.0, x)))


def _exact_exp2(x: Array) -> Array:
    clipped = np.clip(x, -60.0, 17.0)
    return _only(np.rint(x) == x, elementary.power_of_two(np.rint(clipped)))


def _exact_log2(x: Array) -> Array:
    fraction, exponent = np.frexp(x)
    return _only(fraction == 0.5, exponent - 1.0)


def _exact_log10(x: Array) -> Array:
    power = np.searchsorted([1.0, 10.0, 100.0, 1000.0, 10000.0], x).astype(np.float64)
    return _only(np.isin(x, [1.0, 10.0, 100.0, 1000.0, 10000.0]), power)


def _exact_sqrt(x: Array) -> Array:
    root = _few_bits(np.sqrt(x))
    return _only(root * root == x, root)


def _exact_rsqrt(x: Array) -> Array:
    fraction, exponent = np.frexp(x)
    return _only((fraction == 0.5) & (exponent % 2 == 1), 1.0 / np.sqrt(x))


def _exact_cbrt(x: Array) -> Array:
    root = _few_bits(elementary.cbrt(x).hi)
    return _only(root * root * root == x, root)


def _exact_reciprocal(x: Array) -> Array:
    return _only(np.frexp(x)[0] == 0.5, 1.0 / x)


def _exponent(x: Array) -> Array:
    return np.asarray(np.frexp(np.abs(x))[1] - 1.0)


FUNCTIONS: dict[str, OneArgument] = {
    # roots and powers
    "sqrt": OneArgument(elementary.sqrt, (INF, NAN), at_zero=_SIGNED_ZEROS, lowest=0.0, exact=_exact_sqrt),
    "rsqrt": OneArgument(
        elementary.rsqrt, (ZERO, NAN), at_zero=(INF, MINUS_INF), lowest=0.0, exact=_exact_rsqrt
    ),
    "reciprocal": OneArgument(
        elementary.reciprocal,
        (ZERO, MINUS_ZERO),
        at_zero=(INF, MINUS_INF),
        parity="odd",
        exact=_exact_reciprocal,
    ),
    "cbrt": OneArgument(
        elementary.cbrt, (INF, MINUS_INF), at_zero=_SIGNED_ZEROS, parity="odd", exact=_exact_cbrt
    ),
    "square": OneArgument(
        lambda x: _plain(x * x), (INF, INF), at_zero=(ZERO, ZERO), parity="even", exact=lambda x: x * x
    ),
    "logb": OneArgument(
        lambda x: _plain(_exponent(x)),
        (INF, INF),
        at_zero=(MINUS_INF, MINUS_INF),
        parity="even",
        exact=_exponent,
    ),
    # exponentials
    "exp": OneArgument(
        lambda x: elementary.exp(_plain(np.clip(x, -45.0, 12.0))), (INF, ZERO), at_zero=(ONE, ONE)
    ),
    "exp2": OneArgument(_exp2, (INF, ZERO), at_zero=(ONE, ONE), exact=_exact_exp2),
    "expm1": OneArgument(
        lambda x: elementary.expm1(_plain(np.clip(x, -45.0, 12.0))), (INF, MINUS_ONE), at_zero=_SIGNED_ZEROS
    ),
    # logarithms
    "log": OneArgument(
        elementary.log,
        (INF, NAN),
        at_zero=(MINUS_INF, MINUS_INF),
        lowest=0.0,
        exact=lambda x: _only(x == 1, 0 * x),
    ),
    "log2": OneArgument(
        lambda x: elementary.log(x) * _INVERSE_LN2,
        (INF, NAN),
        at_zero=(MINUS_INF, MINUS_INF),
        lowest=0.0,
        exact=_exact_log2,
    ),
    "log10": OneArgument(
        lambda x: elementary.log(x) * _INVERSE_LN10,
        (INF, NAN),
        at_zero=(MINUS_INF, MINUS_INF),
        lowest=0.0,
        exact=_exact_log10,
    ),
    "log1p": OneArgument(
        lambda x: elementary.log1p(_plain(x)), (INF, NAN), at_zero=_SIGNED_ZEROS, lowest=-1.0
    ),
    # circular and hyperbolic functions
    "sin": OneArgument(elementary.sin, (NAN, NAN), at_zero=_SIGNED_ZEROS, parity="odd"),
    "cos": OneArgument(elementary.cos, (NAN, NAN), at_zero=(ONE, ONE), parity="even"),
    "tan": OneArgument(elementary.tan, (NAN, NAN), at_zero=_SIGNED_ZEROS, parity="odd"),
    "atan": OneArgument(_atan, None, at_zero=_SIGNED_ZEROS, parity="odd"),
    "sinh": OneArgument(activations.sinh, (INF, MINUS_INF), at_zero=_SIGNED_ZEROS, parity="odd"),
    "cosh": OneArgument(activations.cosh, (INF, INF), at_zero=(ONE, ONE), parity="even"),
    "tanh": OneArgument(activations.tanh, (ONE, MINUS_ONE), at_zero=_SIGNED_ZEROS, parity="odd"),
    # activations; at -infinity gelu and silu are at their limit, a zero reached from below
    "sigmoid": OneArgument(activations.sigmoid, (ONE, ZERO), at_zero=(HALF, HALF)),
    "softplus": OneArgument(activations.softplus, (INF, ZERO)),
    "silu": OneArgument(activations.silu, (INF, MINUS_ZERO), at_zero=_SIGNED_ZEROS),
    "erf": OneArgument(activations.erf, (ONE, MINUS_ONE), at_zero=_SIGNED_ZEROS, parity="odd"),
    "gelu": OneArgument(activations.gelu, (INF, MINUS_ZERO), at_zero=_SIGNED_ZEROS, error=2.0**-84),
    "gelu_tanh": OneArgument(activations.gelu_tanh, (INF, MINUS_ZERO), at_zero=_SIGNED_ZEROS),
}
"""Every function by name."""
