"""The functions of `emulator/float32_functions.py` as compiled loops: the same float64 operations in the same order.

Bodies are free of branches, so that the loops become vector code; a choice between two values is a select. Where the
definition calls rint, frexp or ldexp, the bits of float64 give the same: adding 1.5 * 2^52 rounds to an integer (to
even) and leaves it in the low bits. Polynomials are unrolled. NaN is chosen among integers, where no optimiser
may prefer another payload.

Every loop takes contiguous float32 arrays and leaves float32 encodings in a uint32 array of the same size.
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from fp16sim.emulator.kernels import float32_constants as c
from fp16sim.emulator.kernels.half import bits_of_single
from fp16sim.emulator.kernels.jit import jit

__all__ = ["FLOAT32_LOOPS", "cos_loop", "pow_loop", "sin_loop"]

_NAN = np.uint32(0x7FC00000)
_SIGN = np.uint32(0x80000000)
_MAGNITUDE = np.uint32(0x7FFFFFFF)
_BLOCK = 256
_INTEGER = 1.5 * 2.0**52  # what is added to it loses its fraction, and the low bits are the integer
_INTEGER_BITS = 0x4338000000000000
_ONE_BITS = 1023 << 52
_SQRT_HALF_BITS = int(np.float64(c.SQRT_HALF).view(np.int64))
_FRACTION = (1 << 52) - 1
_INFINITY = math.inf


@intrinsic
def _bits(typing, x):
    """float64 -> int64, the same bits."""
    return types.int64(types.float64), lambda context, b, signature, args: b.bitcast(args[0], ir.IntType(64))


@intrinsic
def _double(typing, x):
    """int64 -> float64, the same bits."""
    return types.float64(types.int64), lambda context, b, signature, args: b.bitcast(args[0], ir.DoubleType())


@intrinsic
def _choose(typing, condition, first, second):
    """Take one of two float64 without a branch."""
    signature = types.float64(types.boolean, types.float64, types.float64)

    def generate(context, b, signature, args):
        as_bit = context.cast(b, args[0], signature.args[0], types.boolean)
        return b.select(b.icmp_unsigned("!=", as_bit, ir.Constant(as_bit.type, 0)), args[1], args[2])

    return signature, generate


def _polynomial(coefficients):
    """Make a polynomial in float64, highest coefficient first, unrolled; each product and sum is rounded."""

    @intrinsic
    def evaluate(typing, x):
        def generate(context, b, signature, args):
            total = ir.Constant(ir.DoubleType(), coefficients[0])
            for coefficient in coefficients[1:]:
                total = b.fadd(b.fmul(total, args[0]), ir.Constant(ir.DoubleType(), coefficient))
            return total

        return types.float64(types.float64), generate

    return evaluate


_expm1_series = _polynomial(c.EXPM1)
_atanh_series = _polynomial(c.ATANH)
_sin_series = _polynomial(c.SIN)
_cos_series = _polynomial(c.COS)
_erf_series = _polynomial(c.ERF)
_mills_series = _polynomial(c.MILLS)
_gelu_slope = _polynomial(c.GELU_SLOPE)
_gelu_tanh_slope = _polynomial(c.GELU_TANH_SLOPE)
_silu_slope = _polynomial(c.SILU_SLOPE)
_LARGE = c.SQRT_TWO - 1.0
_TRIPLE_CUBIC = 3.0 * c.GELU_CUBIC


@jit
def _clip(x, low, high):
    """Keep x within bounds; a NaN becomes one of them, and the store puts it back."""
    x = _choose(x > low, x, low)
    return _choose(x < high, x, high)


@jit
def _store(x, result):
    """Round to a float32 encoding; the canonical NaN where x or the result is one."""
    rounded = np.float32(result)
    return _NAN if (x != x) | (rounded != rounded) else bits_of_single(rounded)


@jit
def _store_with_sign(x, result):
    """The same for a result that has the sign of the argument."""
    rounded = np.float32(result)
    sign = np.uint32(bits_of_single(x) & _SIGN)
    magnitude = np.uint32(bits_of_single(rounded) & _MAGNITUDE)
    return _NAN if (x != x) | (rounded != rounded) else np.uint32(sign | magnitude)


@jit
def _scale_and_series(x):
    """2^k and expm1(x - k ln 2)."""
    t = x * c.INVERSE_LN2 + _INTEGER
    k = t - _INTEGER
    r = (x - k * c.LN2_HIGH) - k * c.LN2_LOW
    return _double((_bits(t) << 52) + _ONE_BITS), _expm1_series(r) * r


@jit
def _exp(x):
    scale, p = _scale_and_series(x)
    return scale * (1.0 + p)


@jit
def _expm1(x):
    scale, p = _scale_and_series(x)
    return scale * p + (scale - 1.0)


@jit
def _exponent_and_fraction(u):
    """Give k, as float64, and m in [sqrt(1/2), sqrt(2)) with u = m 2^k, for normal u."""
    k = (_bits(u) - _SQRT_HALF_BITS) >> 52
    return _double(k + _INTEGER_BITS) - _INTEGER, _double(_bits(u) - (k << 52))


@jit
def _log_of_parts(k, above, m):
    z = above / (m + 1.0)
    series = 2.0 * z * _atanh_series(z * z)
    return k * c.LN2_HIGH + (k * c.LN2_LOW + series)


@jit
def _log(x):
    k, m = _exponent_and_fraction(x)
    return _log_of_parts(k, m - 1.0, m)


@jit
def _mills(y):
    inverse = 1.0 / (y + 5.0)
    return _mills_series((y - 5.0) * inverse) * inverse


@jit
def exp_loop(a, out):
    """Exponential."""
    for i in range(a.size):
        x = a[i]
        out[i] = _store(x, _exp(_clip(np.float64(x), -200.0, 200.0)))


@jit
def expm1_loop(a, out):
    """exp(x) - 1."""
    for i in range(a.size):
        x = a[i]
        out[i] = _store_with_sign(x, _expm1(_clip(np.float64(x), -200.0, 200.0)))


@jit
def log_loop(a, out):
    """Natural logarithm."""
    for i in range(a.size):
        x = np.float64(a[i])
        usual = (x > 0.0) & (x < _INFINITY)
        result = _log(_choose(usual, x, 1.0))
        result = _choose(x == 0.0, -_INFINITY, result)
        result = _choose(x == _INFINITY, _INFINITY, result)
        bits = _store(a[i], result)
        out[i] = _NAN if x < 0.0 else bits


@jit
def log1p_loop(a, out):
    """log(1 + x)."""
    for i in range(a.size):
        x = np.float64(a[i])
        inner = _choose((x > -1.0) & (x < _INFINITY), x, 0.0)
        k, m = _exponent_and_fraction(1.0 + inner)
        result = _log_of_parts(k, _choose(k == 0.0, inner, m - 1.0), m)
        result = _choose(x == -1.0, -_INFINITY, result)
        result = _choose(x == _INFINITY, _INFINITY, result)
        bits = _store_with_sign(a[i], result)
        out[i] = _NAN if x < -1.0 else bits


@jit
def tanh_loop(a, out):
    """Hyperbolic tangent."""
    for i in range(a.size):
        x = a[i]
        grown = _expm1(2.0 * _clip(abs(np.float64(x)), 0.0, 20.0))
        out[i] = _store_with_sign(x, grown / (grown + 2.0))


@jit
def erf_loop(a, out):
    """Error function."""
    for i in range(a.size):
        x = a[i]
        u = _clip(abs(np.float64(x)), 0.0, 4.0)
        square = u * u
        near = u * _erf_series(square)
        far = 1.0 - 2.0 * (_exp(-square) * _mills(u * c.SQRT_TWO))
        out[i] = _store_with_sign(x, _choose(u <= 0.5, near, far))


@jit
def sigmoid_loop(a, out):
    """1/(1 + exp(-x))."""
    for i in range(a.size):
        x = a[i]
        out[i] = _store(x, 1.0 / (1.0 + _exp(-_clip(np.float64(x), -200.0, 200.0))))


@jit
def silu_loop(a, out):
    """x/(1 + exp(-x))."""
    for i in range(a.size):
        x = np.float64(a[i])
        above = _choose(x > -200.0, x, -200.0)
        out[i] = _store(a[i], above / (1.0 + _exp(-_clip(x, -200.0, 200.0))))


@jit
def softplus_loop(a, out):
    """log(1 + exp(x))."""
    for i in range(a.size):
        x = np.float64(a[i])
        e = _exp(-_clip(abs(x), 0.0, 200.0))
        large = e > _LARGE
        z = _choose(large, e - 1.0, e) / (e + _choose(large, 3.0, 2.0))
        logarithm = _choose(large, c.LN2, 0.0) + 2.0 * z * _atanh_series(z * z)
        out[i] = _store(a[i], _choose(x > 0.0, x, 0.0) + logarithm)


@jit
def _normal_tail(y):
    e = _exp(-0.5 * (y * y))
    return e, e * _mills(y)


@jit
def gelu_loop(a, out):
    """x Phi(x)."""
    for i in range(a.size):
        x = np.float64(a[i])
        _, tail = _normal_tail(_clip(abs(x), 0.0, 15.0))
        above = _choose(x > -15.0, x, -15.0)
        out[i] = _store(a[i], above * _choose(x < 0.0, tail, 1.0 - tail))


@jit
def gelu_tanh_loop(a, out):
    """x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))."""
    for i in range(a.size):
        x = np.float64(a[i])
        inner = _clip(x, -11.0, 11.0)
        argument = inner * (c.GELU_LINEAR + c.GELU_CUBIC * (inner * inner))
        above = _choose(x > -11.0, x, -11.0)
        out[i] = _store(a[i], above / (1.0 + _exp(-argument)))


@jit
def _distance_if_near(x, root, rest):
    distance = (x - root) - rest
    near = abs(distance) < c.NEAR_ROOT
    return near, _choose(near, distance, 0.0)


_SILU_ROOT, _SILU_REST = c.SILU_ROOT
_GELU_ROOT, _GELU_REST = c.GELU_ROOT
_GELU_TANH_ROOT, _GELU_TANH_REST = c.GELU_TANH_ROOT


@jit
def silu_derivative_loop(a, out):
    """The derivative of x/(1 + exp(-x))."""
    for i in range(a.size):
        x = np.float64(a[i])
        inner = _clip(x, -120.0, 120.0)
        e = _exp(-inner)
        s = 1.0 / (1.0 + e)
        usual = s * (1.0 + inner * (e * s))
        near, distance = _distance_if_near(x, _SILU_ROOT, _SILU_REST)
        out[i] = _store(a[i], _choose(near, distance * _silu_slope(distance), usual))


@jit
def gelu_derivative_loop(a, out):
    """The derivative of x Phi(x)."""
    for i in range(a.size):
        x = np.float64(a[i])
        y = _clip(abs(x), 0.0, 15.0)
        e, tail = _normal_tail(y)
        excess = (e * c.INVERSE_SQRT_TWO_PI) * y - tail
        usual = _choose(x < 0.0, -excess, 1.0 + excess)
        near, distance = _distance_if_near(x, _GELU_ROOT, _GELU_REST)
        out[i] = _store(a[i], _choose(near, distance * _gelu_slope(distance), usual))


@jit
def gelu_tanh_derivative_loop(a, out):
    """The derivative of gelu's tanh form."""
    for i in range(a.size):
        x = np.float64(a[i])
        inner = _clip(x, -11.0, 11.0)
        square = inner * inner
        e = _exp(-(inner * (c.GELU_LINEAR + c.GELU_CUBIC * square)))
        s = 1.0 / (1.0 + e)
        slope = inner * (c.GELU_LINEAR + _TRIPLE_CUBIC * square)
        usual = s * (1.0 + slope * (e * s))
        near, distance = _distance_if_near(x, _GELU_TANH_ROOT, _GELU_TANH_REST)
        out[i] = _store(a[i], _choose(near, distance * _gelu_tanh_slope(distance), usual))


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
            row = (np.int64(bits_of_single(a[start + i]) & _MAGNITUDE) >> 23) - 126
            row = min(max(row, 0), 128)
            pieces[0, i] = table[row, 0]
            pieces[1, i] = table[row, 1]
            pieces[2, i] = table[row, 2]
            pieces[3, i] = table[row, 3]
        for i in range(count):
            x = abs(np.float64(a[start + i]))
            usual = x < _INFINITY
            x = _choose(usual, x, 0.0)
            small = x <= 0.75
            significand = _double(
                (_bits(_choose(small, 1.0, x)) & _FRACTION) | (1046 << 52)
            )  # in [2^23, 2^24)
            first = significand * pieces[0, i]
            first = first - 4.0 * math.floor(first / 4.0)
            second = significand * pieces[1, i]
            t = (first + second) + _INTEGER
            whole = t - _INTEGER
            rest = ((first - whole) + second) + (significand * pieces[2, i] + significand * pieces[3, i])
            quadrant = _bits(_choose(small, _INTEGER, t)) + ahead
            angle = _choose(small, x, rest * c.HALF_PI)
            square = angle * angle
            sine = angle * _sin_series(square)
            cosine = _cos_series(square)
            value = _choose((quadrant & 1) != 0, cosine, sine)
            value = _choose((quadrant & 2) != 0, -value, value)
            out[start + i] = bits_of_single(np.float32(value)) if usual else _NAN


@jit
def sin_loop(a, out, table):
    """Sine in radians; NaN for infinities."""
    _circular_loop(a, out, table, 0)
    for i in range(a.size):
        sign = np.uint32(bits_of_single(a[i]) & _SIGN)
        out[i] = _NAN if out[i] == _NAN else np.uint32(out[i] ^ sign)


@jit
def cos_loop(a, out, table):
    """Cosine in radians; NaN for infinities."""
    _circular_loop(a, out, table, 1)


@jit
def _power_of_halves(base, power):
    """base^power for multiples of 1/2 up to 32, by square and multiply."""
    twice = _bits(abs(2.0 * power) + _INTEGER) & 127
    root = (twice & 1) != 0
    square = _choose(root, math.sqrt(base), base)
    count = twice >> (1 - (twice & 1))
    result = 1.0
    for bit in range(6):
        result = _choose(((count >> bit) & 1) != 0, result * square, result)
        square = square * square
    return _choose(power < 0.0, 1.0 / result, result)


@jit
def pow_loop(a, b, out):
    """x to the power y; the cases as in the definition."""
    for i in range(a.size):
        base = np.float64(a[i])
        power = np.float64(b[i])
        magnitude = abs(base)
        size = abs(power)
        whole = math.floor(power) == power
        half = power / 2.0
        odd = whole & (size < 2.0**53) & (math.floor(half) * 2.0 != power)
        usual = (magnitude > 0.0) & (magnitude < _INFINITY) & (size < _INFINITY)
        safe_base = _choose(usual, magnitude, 1.0)
        safe_power = _choose(usual, power, 0.0)
        result = _exp(_clip(safe_power * _log(safe_base), -200.0, 200.0))
        simple = usual & (size <= 32.0) & (math.floor(2.0 * power) == 2.0 * power)
        result = _choose(simple, _power_of_halves(safe_base, _choose(simple, power, 0.0)), result)
        grows = ((magnitude > 1.0) & (power > 0.0)) | ((magnitude < 1.0) & (power < 0.0))
        limit = _choose(grows, _INFINITY, 0.0)
        result = _choose(usual, result, _choose(magnitude == 1.0, 1.0, limit))
        bits = bits_of_single(np.float32(result))
        negative = bits_of_single(a[i]) & _SIGN
        bits = np.uint32(bits ^ negative) if odd else bits
        invalid = (base != base) | (power != power) | ((base < 0.0) & usual & (not whole))
        bits = _NAN if invalid else bits
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
