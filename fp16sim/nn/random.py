"""Random numbers for initialisers and shuffles: a function of (seed, index, layer, step), nothing else.

Every number comes from :func:`fp16sim.emulator.philox.philox4x32` with key = seed and counter = (index,
layer, step). Real numbers are made from them with float64 + - * / and sqrt alone, which IEEE 754 fixes; no
library logarithm is used, since those differ between machines.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
import numpy.typing as npt

from fp16sim.emulator.philox import philox4x32

__all__ = [
    "SHUFFLE",
    "manual_seed",
    "next_stream",
    "normals",
    "permutation",
    "streams",
    "uniform_integers",
    "uniforms",
]

SHUFFLE = 0xFFFFFFFF
"""The layer id of the order of training examples."""

Float64 = npt.NDArray[np.float64]

# Wichura, "Algorithm AS 241: The percentage points of the normal distribution", Applied Statistics 37 (1988),
# function PPND16: numerators and denominators, highest power first.
_CENTRE = (
    (
        2.5090809287301226727e3,
        3.3430575583588128105e4,
        6.7265770927008700853e4,
        4.5921953931549871457e4,
        1.3731693765509461125e4,
        1.9715909503065514427e3,
        1.3314166789178437745e2,
        3.3871328727963666080e0,
    ),
    (
        5.2264952788528545610e3,
        2.8729085735721942674e4,
        3.9307895800092710610e4,
        2.1213794301586595867e4,
        5.3941960214247511077e3,
        6.8718700749205790830e2,
        4.2313330701600911252e1,
        1.0,
    ),
)
_TAIL = (
    (
        7.74545014278341407640e-4,
        2.27238449892691845833e-2,
        2.41780725177450611770e-1,
        1.27045825245236838258e0,
        3.64784832476320460504e0,
        5.76949722146069140550e0,
        4.63033784615654529590e0,
        1.42343711074968357734e0,
    ),
    (
        1.05075007164441684324e-9,
        5.47593808499534494600e-4,
        1.51986665636164571966e-2,
        1.48103976427480074590e-1,
        6.89767334985100004550e-1,
        1.67638483018380384940e0,
        2.05319162663775882187e0,
        1.0,
    ),
)
_LOG2 = 0.6931471805599453


_state: ContextVar[list[int]] = ContextVar("fp16sim_streams")
_PROCESS = [0, 0]


def manual_seed(seed: int) -> None:
    """Let the layers that are made from here on draw from the streams 0, 1, 2, ... of `seed`.

    A process starts with seed 0. Equal code gives equal weights only after a call of this.

    >>> from fp16sim.nn import Linear
    >>> from fp16sim.nn.random import manual_seed
    >>> manual_seed(3)
    >>> first = Linear(2, 2).weight.data
    >>> manual_seed(3)
    >>> bool((first == Linear(2, 2).weight.data).all()), bool((first == Linear(2, 2).weight.data).all())
    (True, False)
    """
    uniform_integers(seed, 0)  # refuses an impossible seed
    _state.get(_PROCESS)[:] = [seed, 0]


@contextmanager
def streams(seed: int) -> Iterator[None]:
    """Let the layers made inside a ``with`` block draw from the streams of `seed`, and leave those outside alone.

    >>> with streams(7):
    ...     print(next_stream(), next_stream())
    (7, 0) (7, 1)
    """
    uniform_integers(seed, 0)
    token = _state.set([seed, 0])
    try:
        yield
    finally:
        _state.reset(token)


def next_stream() -> tuple[int, int]:
    """Take the next stream: a seed and a layer number.

    >>> with streams(7):
    ...     next_stream()
    (7, 0)
    """
    state = _state.get(_PROCESS)
    seed, layer = state
    state[1] += 1
    return seed, layer


def uniforms(seed: int, count: int, layer: int = 0, step: int = 0) -> Float64:
    """Draw numbers uniform over [0, 1) in float64: the integers of :func:`uniform_integers` over 2^24, exactly.

    >>> uniforms(0, 2).tolist()
    [0.3990464210510254, 0.8805201649665833]
    """
    return uniform_integers(seed, count, layer, step).astype(np.float64) * 2.0**-24


def uniform_integers(seed: int, count: int, layer: int = 0, step: int = 0) -> npt.NDArray[np.uint32]:
    """Draw integers uniform over [0, 2^24).

    Parameters
    ----------
    seed : int
        64 bits: the key.
    count : int
        How many. Number ``i`` is word ``i % 4`` of the counter (i // 4, 0, layer, step), its top 24 bits.
    layer, step : int
        32 bits each: streams with different values are independent.

    >>> uniform_integers(0, 3)
    array([ 6694888, 14772677, 12343212], dtype=uint32)
    """
    return _words(seed, count, layer, step) >> np.uint32(8)


def normals(seed: int, count: int, layer: int = 0, step: int = 0) -> Float64:
    """Draw standard normal numbers in float64.

    The integer k of :func:`uniform_integers` becomes the probability (k + 1/2) / 2^24, exactly, and that
    the normal quantile by algorithm AS 241. The largest magnitude is 5.42. With the fixed-term logarithm here
    the quantile is within 1e-14 of the true one.

    Parameters
    ----------
    seed, count, layer, step
        As in :func:`uniform_integers`.

    >>> normals(0, 2).tolist()
    [-0.25581602199224435, 1.177591223411036]
    """
    probability = (uniform_integers(seed, count, layer, step).astype(np.float64) + 0.5) * 2.0**-24
    centred = probability - 0.5
    square = centred * centred
    inner = _ratio(_CENTRE, 0.180625 - square) * centred
    # The smallest probability is 2^-25, where sqrt(-log) is 4.2: the third region of AS 241 (above 5) is not
    # met.
    root = np.sqrt(-_log(np.minimum(probability, 1.0 - probability)))
    outer = _ratio(_TAIL, root - 1.6)
    outer = np.where(centred < 0, -outer, outer)
    return np.where(np.abs(centred) <= 0.425, inner, outer)


def permutation(seed: int, count: int, step: int = 0) -> npt.NDArray[np.int64]:
    """Shuffle the integers below `count`: sort them by 64 random bits each, ties by value.

    >>> permutation(1, 5).tolist()
    [2, 4, 1, 0, 3]
    """
    words = _words(seed, 2 * count, SHUFFLE, step).astype(np.uint64)
    return np.argsort(words[0::2] << np.uint64(32) | words[1::2], kind="stable").astype(np.int64)


def _words(seed: int, count: int, layer: int, step: int) -> npt.NDArray[np.uint32]:
    for name, value, width in (("seed", seed, 64), ("layer", layer, 32), ("step", step, 32)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 0 <= value < 2**width:
            raise ValueError(
                f"{name}={value!r}: random streams are numbered from 0 to 2**{width} - 1; choose one"
            )
    counter = np.zeros((-(-count // 4), 4), np.uint64)
    counter[:, 0] = np.arange(len(counter))
    counter[:, 2], counter[:, 3] = layer, step
    return philox4x32(counter, (int(seed) & 0xFFFFFFFF, int(seed) >> 32)).ravel()[:count]


def _ratio(coefficients: tuple[tuple[float, ...], tuple[float, ...]], x: Float64) -> Float64:
    """Divide two polynomials, each by Horner's rule with every step rounded to float64."""
    values = []
    for polynomial in coefficients:
        value = np.full_like(x, polynomial[0])
        for coefficient in polynomial[1:]:
            value = value * x + coefficient
        values.append(value)
    return np.asarray(values[0] / values[1])


def _log(x: Float64) -> Float64:
    """Give the natural logarithm of positive normal numbers in float64 + - * / alone, within 4 ulp.

    x = m 2^e with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| < .1716: the
    series through s^21 leaves less than 1e-18.
    """
    mantissa, exponent = np.frexp(x)
    low = mantissa < 0.7071067811865476
    mantissa = np.where(low, mantissa * 2, mantissa)
    exponent = exponent - low
    s = (mantissa - 1.0) / (mantissa + 1.0)
    square = s * s
    series = np.full_like(s, 1.0 / 21.0)
    for odd in range(19, 0, -2):
        series = series * square + 1.0 / odd
    return exponent * _LOG2 + 2.0 * s * series
