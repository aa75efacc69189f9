"""Hyperbolic functions and the activations of neural networks in double-double, built on `elementary`.

All take float64 arrays of binary16 values. Where a function has reached its limit to far below what binary16
(and 33 bits beyond it) can tell, the argument is clipped: the value stays on the right side of the limit
and at a distance that double-double holds.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fp16sim.emulator.double_double import DoubleDouble
from fp16sim.emulator.elementary import constant, exp, expm1, log1p

__all__ = ["cosh", "erf", "gelu", "gelu_tanh", "sigmoid", "silu", "sinh", "softplus", "tanh"]

Array = npt.NDArray[np.float64]

_TWO_OVER_SQRT_PI = DoubleDouble(
    float.fromhex("0x1.20dd750429b6dp+0"), float.fromhex("0x1.1ae3a914fed80p-56")
)
_SQRT_TWO_OVER_PI = DoubleDouble(
    float.fromhex("0x1.9884533d43651p-1"), float.fromhex("-0x1.cbc0d30ebfd15p-55")
)
_GELU_CUBIC = constant(44715, 1000000)


def _exact(x: Array) -> DoubleDouble:
    return DoubleDouble(x, np.zeros_like(x))


def tanh(x: Array) -> DoubleDouble:
    """Hyperbolic tangent of values above 0; 1 - tanh(20) is 2^-56.7.

    >>> tanh(np.array([0.5, 65504.0])).hi
    array([0.46211716, 1.        ])
    """
    grown = expm1(_exact(2.0 * np.minimum(x, 20.0)))
    return grown / (grown + 2.0)


def sinh(x: Array) -> DoubleDouble:
    """Hyperbolic sine of values above 0; sinh(12.5) is beyond 2^16.

    >>> sinh(np.array([1.0])).hi
    array([1.17520119])
    """
    grown = expm1(_exact(np.minimum(x, 12.5)))
    return (grown + grown / (grown + 1.0)).scaled(0.5)


def cosh(x: Array) -> DoubleDouble:
    """Hyperbolic cosine of values above 0, as 1 + expm1(x)^2 / (2 exp(x)); cosh(12.5) is beyond 2^16.

    >>> cosh(np.array([1.0])).hi
    array([1.54308063])
    """
    grown = expm1(_exact(np.minimum(x, 12.5)))
    return (grown * grown / (grown + 1.0)).scaled(0.5) + 1.0


def _logistic(x: DoubleDouble) -> DoubleDouble:
    """1/(1 + exp(-x)) for a double-double below 100 in magnitude."""
    positive = x.hi > 0
    t = exp(DoubleDouble.where(positive, -x, x))  # at most 1
    one = DoubleDouble(np.ones_like(x.hi), np.zeros_like(x.hi))
    return DoubleDouble.where(positive, one, t) / (t + 1.0)


def sigmoid(x: Array) -> DoubleDouble:
    """1/(1 + exp(-x)); at -45 it is 2^-65, at 40 it is 1 - 2^-57.7.

    >>> sigmoid(np.array([0.0, 1.0])).hi
    array([0.5       , 0.73105858])
    """
    return _logistic(_exact(np.clip(x, -45.0, 40.0)))


def silu(x: Array) -> DoubleDouble:
    """x sigmoid(x); at -50 it is 2^-66.5, and from 40 on it is x(1 - 2^-57.7).

    >>> silu(np.array([1.0])).hi
    array([0.73105858])
    """
    return sigmoid_product(np.maximum(x, -50.0), _exact(np.clip(x, -50.0, 40.0)))


def sigmoid_product(x: Array, argument: DoubleDouble) -> DoubleDouble:
    """x / (1 + exp(-argument)): what silu and the tanh form of gelu have in common.

    >>> sigmoid_product(np.array([1.0]), DoubleDouble(np.array([1.0]), np.array([0.0]))).hi
    array([0.73105858])
    """
    return _logistic(argument) * x


def gelu_tanh(x: Array) -> DoubleDouble:
    """x/2 (1 + tanh z), z = sqrt(2/pi) (x + 0.044715 x^3), which is x sigmoid(2z); limits at -8 and 8.

    >>> gelu_tanh(np.array([1.0])).hi
    array([0.84119199])
    """
    inner = np.clip(x, -8.0, 8.0)
    cube = inner * inner * inner  # exact: 33 bits
    z = (_GELU_CUBIC * cube + inner) * _SQRT_TWO_OVER_PI
    return sigmoid_product(np.maximum(x, -8.0), z.scaled(2.0))


def softplus(x: Array) -> DoubleDouble:
    """log(1 + exp(x)), as max(x, 0) + log1p(exp(-|x|)); at -45 it is 2^-65.

    >>> softplus(np.array([0.0, 1.0])).hi
    array([0.69314718, 1.31326169])
    """
    return log1p(exp(_exact(-np.minimum(np.abs(x), 45.0)))) + np.maximum(x, 0.0)


_ERF_BUCKETS = (
    (2.0**-20, 6),
    (2.0**-8, 12),
    (0.25, 21),
    (1.0, 28),
    (4.0, 42),
    (12.0, 68),
    (32.0, 118),
    (90.0, 230),
)
"""Below the first number, the second many terms of the series leave less than 2^-106 of it."""


def _erf_series(w: Array) -> DoubleDouble:
    """1 + w/3 (1 + w/5 (1 + w/7 (...))) for 0 < w < 90: every term is positive, so nothing cancels."""
    hi, lo = np.empty_like(w), np.empty_like(w)
    done = 0.0
    for limit, terms in _ERF_BUCKETS:
        chosen = (w >= done) & (w < limit)
        done = limit
        part, back = np.unique(w[chosen], return_inverse=True)  # clipped and mirrored arguments only once
        total = _exact(np.ones_like(part))
        for odd in range(2 * terms + 1, 1, -2) if part.size else ():
            total = total * part / float(odd) + 1.0
        hi[chosen], lo[chosen] = total.hi[back], total.lo[back]
    return DoubleDouble(hi, lo)


def erf(x: Array) -> DoubleDouble:
    """Error function of values above 0: 2/sqrt(pi) x exp(-x^2) series(2x^2); 1 - erf(5.75) is 2^-51.

    >>> erf(np.array([1.0])).hi
    array([0.84270079])
    """
    u = np.minimum(x, 5.75)
    square = u * u  # exact: 22 bits
    return exp(_exact(-square)) * _erf_series(2.0 * square) * (_TWO_OVER_SQRT_PI * u)


def gelu(x: Array) -> DoubleDouble:
    """x Phi(x), Phi = (1 + erf(x/sqrt 2))/2; the error is 2^-98 absolute; limits at -9.25 and 9.25.

    The square root never enters: erf(x/sqrt 2) = sqrt(2/pi) x exp(-x^2/2) series(x^2).

    >>> gelu(np.array([1.0, -1.0])).hi
    array([ 0.84134475, -0.15865525])
    """
    u = np.minimum(np.abs(x), 9.25)
    square = u * u
    error_function = exp(_exact(-0.5 * square)) * _erf_series(square) * (_SQRT_TWO_OVER_PI * u)
    doubled = DoubleDouble.where(x < 0, -error_function, error_function) + 1.0
    return doubled * (0.5 * np.maximum(x, -9.25))
