"""Building blocks of `float32_functions`: the float64 sequences of `emulator/float32_cores.py`, without branches.

Where the definition calls rint, frexp or ldexp, the bits of float64 give the same: adding 1.5 * 2^52 rounds to an
integer (to even) and leaves it in the low bits. Polynomials are unrolled. NaN is chosen among integers, where no
optimiser may prefer another payload.
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

__all__ = [
    "INFINITY",
    "INTEGER",
    "MAGNITUDE",
    "NAN",
    "SIGN",
    "atanh_series",
    "bits_of",
    "choose",
    "clip",
    "distance_if_near",
    "double_of",
    "exp",
    "expm1",
    "exponent_and_fraction",
    "log",
    "log_of_parts",
    "mills",
    "normal_tail",
    "polynomial",
    "power_of_halves",
    "store",
    "store_with_sign",
]

NAN = np.uint32(0x7FC00000)
SIGN = np.uint32(0x80000000)
MAGNITUDE = np.uint32(0x7FFFFFFF)
INFINITY = math.inf
INTEGER = 1.5 * 2.0**52  # what is added to it loses its fraction, and the low bits are the integer
_INTEGER_BITS = 0x4338000000000000
_ONE_BITS = 1023 << 52
_SQRT_HALF_BITS = int(np.float64(c.SQRT_HALF).view(np.int64))


@intrinsic
def bits_of(typing, x):
    """float64 -> int64, the same bits."""
    return types.int64(types.float64), lambda context, b, signature, args: b.bitcast(args[0], ir.IntType(64))


@intrinsic
def double_of(typing, x):
    """int64 -> float64, the same bits."""
    return types.float64(types.int64), lambda context, b, signature, args: b.bitcast(args[0], ir.DoubleType())


@intrinsic
def choose(typing, condition, first, second):
    """Take one of two float64 without a branch."""
    signature = types.float64(types.boolean, types.float64, types.float64)

    def generate(context, b, signature, args):
        as_bit = context.cast(b, args[0], signature.args[0], types.boolean)
        return b.select(b.icmp_unsigned("!=", as_bit, ir.Constant(as_bit.type, 0)), args[1], args[2])

    return signature, generate


def polynomial(coefficients):
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


_expm1_series = polynomial(c.EXPM1)
atanh_series = polynomial(c.ATANH)
_mills_series = polynomial(c.MILLS)


@jit
def clip(x, low, high):
    """Keep x within bounds; a NaN becomes one of them, and the store puts it back."""
    x = choose(x > low, x, low)
    return choose(x < high, x, high)


@jit
def store(x, result):
    """Round to a float32 encoding; the canonical NaN where x or the result is one."""
    rounded = np.float32(result)
    return NAN if (x != x) | (rounded != rounded) else bits_of_single(rounded)


@jit
def store_with_sign(x, result):
    """The same for a result that has the sign of the argument."""
    rounded = np.float32(result)
    sign = np.uint32(bits_of_single(x) & SIGN)
    magnitude = np.uint32(bits_of_single(rounded) & MAGNITUDE)
    return NAN if (x != x) | (rounded != rounded) else np.uint32(sign | magnitude)


@jit
def _scale_and_series(x):
    """2^k and expm1(x - k ln 2)."""
    t = x * c.INVERSE_LN2 + INTEGER
    k = t - INTEGER
    r = (x - k * c.LN2_HIGH) - k * c.LN2_LOW
    return double_of((bits_of(t) << 52) + _ONE_BITS), _expm1_series(r) * r


@jit
def exp(x):
    """Exponential, |x| < 700."""
    scale, p = _scale_and_series(x)
    return scale * (1.0 + p)


@jit
def expm1(x):
    """exp(x) - 1, |x| < 700."""
    scale, p = _scale_and_series(x)
    return scale * p + (scale - 1.0)


@jit
def exponent_and_fraction(u):
    """Give k, as float64, and m in [sqrt(1/2), sqrt(2)) with u = m 2^k, for normal u."""
    k = (bits_of(u) - _SQRT_HALF_BITS) >> 52
    return double_of(k + _INTEGER_BITS) - INTEGER, double_of(bits_of(u) - (k << 52))


@jit
def log_of_parts(k, above, m):
    """k ln 2 + log(m), given m - 1."""
    z = above / (m + 1.0)
    series = 2.0 * z * atanh_series(z * z)
    return k * c.LN2_HIGH + (k * c.LN2_LOW + series)


@jit
def log(x):
    """Natural logarithm of positive, normal, finite x."""
    k, m = exponent_and_fraction(x)
    return log_of_parts(k, m - 1.0, m)


@jit
def mills(y):
    """exp(y^2/2) Phi(-y) for y from 0 to 15."""
    inverse = 1.0 / (y + 5.0)
    return _mills_series((y - 5.0) * inverse) * inverse


@jit
def normal_tail(y):
    """exp(-y^2/2) and Phi(-y) for y from 0 to 15."""
    e = exp(-0.5 * (y * y))
    return e, e * mills(y)


@jit
def distance_if_near(x, root, rest):
    """Whether x is near a root given by two numbers, and the distance if it is, else 0."""
    distance = (x - root) - rest
    near = abs(distance) < c.NEAR_ROOT
    return near, choose(near, distance, 0.0)


@jit
def power_of_halves(base, power):
    """base^power for multiples of 1/2 up to 32, by square and multiply."""
    twice = bits_of(abs(2.0 * power) + INTEGER) & 127
    root = (twice & 1) != 0
    square = choose(root, math.sqrt(base), base)
    count = twice >> (1 - (twice & 1))
    result = 1.0
    for bit in range(6):
        result = choose(((count >> bit) & 1) != 0, result * square, result)
        square = square * square
    return choose(power < 0.0, 1.0 / result, result)
