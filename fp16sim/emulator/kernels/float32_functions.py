"""The functions of `emulator/float32_functions.py` as compiled loops: the same float64 operations in the same order.

Bodies are free of branches, so that the loops become vector code; a choice between two values is a select.
Every loop takes contiguous float32 arrays and leaves float32 encodings in a uint32 array of the same size.
"""

from __future__ import annotations

import numpy as np

from fp16sim.emulator.kernels import float32_constants as c
from fp16sim.emulator.kernels.float32_cores import (
    INFINITY,
    INTEGER,
    MAGNITUDE,
    NAN,
    SIGN,
    atanh_series,
    bits_of,
    choose,
    clip,
    distance_if_near,
    double_of,
    exp,
    expm1,
    exponent_and_fraction,
    log,
    log_of_parts,
    mills,
    normal_tail,
    polynomial,
    power_of_halves,
    store,
    store_with_sign,
)
from fp16sim.emulator.kernels.half import bits_of_single
from fp16sim.emulator.kernels.jit import jit

__all__ = ["FLOAT32_LOOPS", "cos_loop", "pow_loop", "sin_loop"]

_FRACTION = (1 << 52) - 1
_BLOCK = 256
_LARGE = c.SQRT_TWO - 1.0
_TRIPLE_CUBIC = 3.0 * c.GELU_CUBIC
_sin_series = polynomial(c.SIN)
_cos_series = polynomial(c.COS)
_erf_series = polynomial(c.ERF)
_gelu_slope = polynomial(c.GELU_SLOPE)
_gelu_tanh_slope = polynomial(c.GELU_TANH_SLOPE)
_silu_slope = polynomial(c.SILU_SLOPE)


@jit
def exp_loop(a, out):
    """Exponential."""
    for i in range(a.size):
        x = a[i]
        out[i] = store(x, exp(clip(np.float64(x), -200.0, 200.0)))


@jit
def expm1_loop(a, out):
    """exp(x) - 1."""
    for i in range(a.size):
        x = a[i]
        out[i] = store_with_sign(x, expm1(clip(np.float64(x), -200.0, 200.0)))


@jit
def log_loop(a, out):
    """Natural logarithm."""
    for i in range(a.size):
        x = np.float64(a[i])
        usual = (x > 0.0) & (x < INFINITY)
        result = log(choose(usual, x, 1.0))
        result = choose(x == 0.0, -INFINITY, result)
        result = choose(x == INFINITY, INFINITY, result)
        bits = store(a[i], result)
        out[i] = NAN if x < 0.0 else bits


@jit
def log1p_loop(a, out):
    """log(1 + x)."""
    for i in range(a.size):
        x = np.float64(a[i])
        inner = choose((x > -1.0) & (x < INFINITY), x, 0.0)
        k, m = exponent_and_fraction(1.0 + inner)
        result = log_of_parts(k, choose(k == 0.0, inner, m - 1.0), m)
        result = choose(x == -1.0, -INFINITY, result)
        result = choose(x == INFINITY, INFINITY, result)
        bits = store_with_sign(a[i], result)
        out[i] = NAN if x < -1.0 else bits


@jit
def tanh_loop(a, out):
    """Hyperbolic tangent."""
    for i in range(a.size):
        x = a[i]
        grown = expm1(2.0 * clip(abs(np.float64(x)), 0.0, 20.0))
        out[i] = store_with_sign(x, grown / (grown + 2.0))


@jit
def erf_loop(a, out):
    """Error function."""
    for i in range(a.size):
        x = a[i]
        u = clip(abs(np.float64(x)), 0.0, 4.0)
        square = u * u
        near = u * _erf_series(square)
        far = 1.0 - 2.0 * (exp(-square) * mills(u * c.SQRT_TWO))
        out[i] = store_with_sign(x, choose(u <= 0.5, near, far))


@jit
def sigmoid_loop(a, out):
    """1/(1 + exp(-x))."""
    for i in range(a.size):
        x = a[i]
        out[i] = store(x, 1.0 / (1.0 + exp(-clip(np.float64(x), -200.0, 200.0))))


@jit
def silu_loop(a, out):
    """x/(1 + exp(-x))."""
    for i in range(a.size):
        x = np.float64(a[i])
        above = choose(x > -200.0, x, -200.0)
        out[i] = store(a[i], above / (1.0 + exp(-clip(x, -200.0, 200.0))))


@jit
def softplus_loop(a, out):
    """log(1 + exp(x))."""
    for i in range(a.size):
        x = np.float64(a[i])
        e = exp(-clip(abs(x), 0.0, 200.0))
        large = e > _LARGE
        z = choose(large, e - 1.0, e) / (e + choose(large, 3.0, 2.0))
        logarithm = choose(large, c.LN2, 0.0) + 2.0 * z * atanh_series(z * z)
        out[i] = store(a[i], choose(x > 0.0, x, 0.0) + logarithm)


@jit
def gelu_loop(a, out):
    """x Phi(x)."""
    for i in range(a.size):
        x = np.float64(a[i])
        _, tail = normal_tail(clip(abs(x), 0.0, 15.0))
        above = choose(x > -15.0, x, -15.0)
        out[i] = store(a[i], above * choose(x < 0.0, tail, 1.0 - tail))


@jit
def gelu_tanh_loop(a, out):
    """x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))."""
    for i in range(a.size):
        x = np.float64(a[i])
        inner = clip(x, -11.0, 11.0)
        argument = inner * (c.GELU_LINEAR + c.GELU_CUBIC * (inner * inner))
        above = choose(x > -11.0, x, -11.0)
        out[i] = store(a[i], above / (1.0 + exp(-argument)))


_SILU_ROOT, _SILU_REST = c.SILU_ROOT
_GELU_ROOT, _GELU_REST = c.GELU_ROOT
_GELU_TANH_ROOT, _GELU_TANH_REST = c.GELU_TANH_ROOT


@jit
def silu_derivative_loop(a, out):
    """The derivative of x/(1 + exp(-x))."""
    for i in range(a.size):
        x = np.float64(a[i])
        inner = clip(x, -120.0, 120.0)
        e = exp(-inner)
        s = 1.0 / (1.0 + e)
        usual = s * (1.0 + inner * (e * s))
        near, distance = distance_if_near(x, _SILU_ROOT, _SILU_REST)
        out[i] = store(a[i], choose(near, distance * _silu_slope(distance), usual))


@jit
def gelu_derivative_loop(a, out):
    """The derivative of x Phi(x)."""
    for i in range(a.size):
        x = np.float64(a[i])
        y = clip(abs(x), 0.0, 15.0)
        e, tail = normal_tail(y)
        excess = (e * c.INVERSE_SQRT_TWO_PI) * y - tail
        usual = choose(x < 0.0, -excess, 1.0 + excess)
        near, distance = distance_if_near(x, _GELU_ROOT, _GELU_REST)
        out[i] = store(a[i], choose(near, distance * _gelu_slope(distance), usual))


@jit
def gelu_tanh_derivative_loop(a, out):
    """The derivative of gelu's tanh form."""
    for i in range(a.size):
        x = np.float64(a[i])
        inner = clip(x, -11.0, 11.0)
        square = inner * inner
        e = exp(-(inner * (c.GELU_LINEAR + c.GELU_CUBIC * square)))
        s = 1.0 / (1.0 + e)
        slope = inner * (c.GELU_LINEAR + _TRIPLE_CUBIC * square)
        usual = s * (1.0 + slope * (e * s))
        near, distance = distance_if_near(x, _GELU_TANH_ROOT, _GELU_TANH_REST)
        out[i] = store(a[i], choose(near, distance * _gelu_tanh_slope(distance), usual))


@jit
def _circular_loop(a, out, table, ahead):
    """Sine of |x| + ahead * pi/2, without the sign of x; `table` as float32_cores.two_over_pi_pieces.

    In blocks: the rows of the table are fetched one by one, then the arithmetic is vector code.
    """
    pieces = np.empty((4, _BLOCK), np.float64)
    for start in range(0, a.size, _BLOCK):
        count = min(_BLOCK, a.size - start)
        for i in range(count):
            # The row is the exponent of x >= 2^-1 as frexp has it, 0 to 128; smaller x and infinities use none.
            row = (np.int64(bits_of_single(a[start + i]) & MAGNITUDE) >> 23) - 126
            row = min(max(row, 0), 128)
            pieces[0, i] = table[row, 0]
            pieces[1, i] = table[row, 1]
            pieces[2, i] = table[row, 2]
            pieces[3, i] = table[row, 3]
        for i in range(count):
            x = abs(np.float64(a[start + i]))
            usual = x < INFINITY
            x = choose(usual, x, 0.0)
            small = x <= 0.75
            significand = double_of(
                (bits_of(choose(small, 1.0, x)) & _FRACTION) | (1046 << 52)
            )  # in [2^23, 2^24)
            first = significand * pieces[0, i]
            first = first - 4.0 * np.floor(first / 4.0)
            second = significand * pieces[1, i]
            t = (first + second) + INTEGER
            whole = t - INTEGER
            rest = ((first - whole) + second) + (significand * pieces[2, i] + significand * pieces[3, i])
            quadrant = bits_of(choose(small, INTEGER, t)) + ahead
            angle = choose(small, x, rest * c.HALF_PI)
            square = angle * angle
            sine = angle * _sin_series(square)
            cosine = _cos_series(square)
            value = choose((quadrant & 1) != 0, cosine, sine)
            value = choose((quadrant & 2) != 0, -value, value)
            out[start + i] = bits_of_single(np.float32(value)) if usual else NAN


@jit
def sin_loop(a, out, table):
    """Sine in radians; NaN for infinities."""
    _circular_loop(a, out, table, 0)
    for i in range(a.size):
        sign = np.uint32(bits_of_single(a[i]) & SIGN)
        out[i] = NAN if out[i] == NAN else np.uint32(out[i] ^ sign)


@jit
def cos_loop(a, out, table):
    """Cosine in radians; NaN for infinities."""
    _circular_loop(a, out, table, 1)


@jit
def pow_loop(a, b, out):
    """x to the power y; the cases as in the definition."""
    for i in range(a.size):
        base = np.float64(a[i])
        power = np.float64(b[i])
        magnitude = abs(base)
        size = abs(power)
        whole = np.floor(power) == power
        half = power / 2.0
        odd = whole & (size < 2.0**53) & (np.floor(half) * 2.0 != power)
        usual = (magnitude > 0.0) & (magnitude < INFINITY) & (size < INFINITY)
        safe_base = choose(usual, magnitude, 1.0)
        safe_power = choose(usual, power, 0.0)
        result = exp(clip(safe_power * log(safe_base), -200.0, 200.0))
        simple = usual & (size <= 32.0) & (np.floor(2.0 * power) == 2.0 * power)
        result = choose(simple, power_of_halves(safe_base, choose(simple, power, 0.0)), result)
        grows = ((magnitude > 1.0) & (power > 0.0)) | ((magnitude < 1.0) & (power < 0.0))
        limit = choose(grows, INFINITY, 0.0)
        result = choose(usual, result, choose(magnitude == 1.0, 1.0, limit))
        bits = bits_of_single(np.float32(result))
        negative = bits_of_single(a[i]) & SIGN
        bits = np.uint32(bits ^ negative) if odd else bits
        invalid = (base != base) | (power != power) | ((base < 0.0) & usual & (not whole))
        bits = NAN if invalid else bits
        out[i] = np.uint32(0x3F800000) if (power == 0.0) | (base == 1.0) else bits


FLOAT32_LOOPS = {
    "exp": exp_loop,
    "expm1": expm1_loop,
    "log": log_loop,
    "log1p": log1p_loop,
    "tanh": tanh_loop,
    "erf": erf_loop,
    "sigmoid": sigmoid_loop,
    "silu": silu_loop,
    "softplus": softplus_loop,
    "gelu": gelu_loop,
    "gelu_tanh": gelu_tanh_loop,
    "silu_derivative": silu_derivative_loop,
    "gelu_derivative": gelu_derivative_loop,
    "gelu_tanh_derivative": gelu_tanh_derivative_loop,
}
"""The loops that take an array and the place of the results; `sin_loop` and `cos_loop` take a table besides."""
