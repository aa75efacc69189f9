"""Arithmetic in formats of up to 24 bits of precision and 8 of exponent, by signs of exact sums; for tests.

Every question about a result ("is it below this value, this midpoint, this stochastic threshold?") is the
sign of a sum of a few terms ``m * 2^e``: |a b + c| - t, |a| - t |b|, |a| - t^2. The sign is found by adding
the terms into one long fixed-point integer, so nothing is ever rounded, shifted out or kept as a sticky bit.
A float64 result serves as the first guess of where to look and cannot make the answer wrong. Nothing is
imported from the package under test; the method differs from that of `fp16sim_oracles.integer`, too.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from fp16sim_oracles.integer import MODES, flat

jit = njit(nogil=True, cache=True)
"""The kernels call nothing outside this file, so that numba's cache, which watches one file, cannot go stale."""

EVEN, AWAY, ZERO, UP, DOWN, ODD, STOCHASTIC = range(7)
OVERFLOW, UNDERFLOW, SUBNORMAL, INVALID, DIVIDE_BY_ZERO, INEXACT = 1, 2, 4, 8, 16, 32
OPERATIONS = ("add", "subtract", "multiply", "divide", "fma", "sqrt", "convert")
ADD, SUBTRACT, MULTIPLY, DIVIDE, FMA, SQRT, CONVERT = range(7)
FLAGS_AT = 32  # a kernel returns bits | flags << 32


class Spec(NamedTuple):
    """A format, as integers."""

    exponent_bits: int
    precision: int
    emax: int
    infinities: bool
    nan: int

    @property
    def max_code(self) -> int:
        """The encoding of the largest finite value."""
        code = ((self.emax + 2 ** (self.exponent_bits - 1)) << (self.precision - 1)) - 1
        return code - 1 if code == self.nan else code

    @property
    def inf_code(self) -> int:
        """The encoding of infinity; of no number where there is none."""
        return self.max_code + 1 if self.infinities else self.nan

    @property
    def dtype(self) -> np.dtype[Any]:
        """The integers that hold an encoding."""
        width = self.exponent_bits + self.precision
        return np.dtype(np.uint8 if width <= 8 else np.uint16 if width <= 16 else np.uint32)


FORMATS = {
    "binary16": Spec(5, 11, 15, True, 0x7E00),
    "bfloat16": Spec(8, 8, 127, True, 0x7FC0),
    "tf32": Spec(8, 11, 127, True, 0x3FE00),
    "binary32": Spec(8, 24, 127, True, 0x7FC00000),
    "e4m3": Spec(4, 4, 8, False, 0x7F),
    "e5m2": Spec(5, 3, 15, True, 0x7E),
}


@jit
def _put(limbs: Any, base: int, negative: bool, m: int, e: int) -> None:
    """Add +-m * 2^e to a number held as limbs of 32 bits whose lowest bit is worth 2^base. m < 2^63."""
    at = (e - base) >> 5
    shift = (e - base) & 31
    for half in range(2):
        part = np.uint64((m >> (32 * half)) & 0xFFFFFFFF) << np.uint64(shift)
        low = np.int64(part & np.uint64(0xFFFFFFFF))
        high = np.int64(part >> np.uint64(32))
        limbs[at + half] += -low if negative else low
        limbs[at + half + 1] += -high if negative else high


@jit
def _sign(terms: Any, count: int, limbs: Any) -> int:
    """Give the sign of the sum of ``count`` rows (sign, m, e) of ``terms``: -1, 0 or 1."""
    base = 1 << 20
    top = -base
    for i in range(count):
        if terms[i, 1]:
            base = min(base, terms[i, 2])
            top = max(top, terms[i, 2])
    if top < base:
        return 0
    used = ((top - base) >> 5) + 4
    limbs[:used] = 0
    for i in range(count):
        if terms[i, 1]:
            _put(limbs, base, terms[i, 0] < 0, terms[i, 1], terms[i, 2])
    carry = 0
    nonzero = False
    for i in range(used):
        total = limbs[i] + carry
        carry = total >> 32
        nonzero = nonzero or (total & 0xFFFFFFFF) != 0
    if carry < 0:
        return -1
    return 1 if nonzero or carry > 0 else 0


@jit
def _parts(code: int, precision: int, emin: int) -> tuple[int, int]:
    """Write the value of a positive encoding as m * 2^e."""
    field = code >> (precision - 1)
    m = code & ((1 << (precision - 1)) - 1)
    if field:
        return m | 1 << (precision - 1), field + emin - precision
    return m, emin - precision + 1


@jit
def _side(op: int, x: Any, t: int, te: int, terms: Any, limbs: Any) -> int:
    """Give the sign of |result| - t * 2^te.

    ``x`` holds the operation's terms: for divide |a| and |b|, for sqrt |a|, else the summands of |result|.
    """
    terms[0] = x[0]
    high, low = t >> 29, t & ((1 << 29) - 1)  # t < 2^57, so every product below is under 2^59
    if op == DIVIDE:
        m, e = x[1, 1], x[1, 2]
        terms[1, 0], terms[1, 1], terms[1, 2] = -1, high * m, te + 29 + e
        terms[2, 0], terms[2, 1], terms[2, 2] = -1, low * m, te + e
        return _sign(terms, 3, limbs)
    if op == SQRT:
        terms[1, 0], terms[1, 1], terms[1, 2] = -1, high * high, 2 * te + 58
        terms[2, 0], terms[2, 1], terms[2, 2] = -1, 2 * high * low, 2 * te + 29
        terms[3, 0], terms[3, 1], terms[3, 2] = -1, low * low, 2 * te
        return _sign(terms, 4, limbs)
    terms[1] = x[1]
    terms[2, 0], terms[2, 1], terms[2, 2] = -1, t, te
    return _sign(terms, 3, limbs)


@jit
def _goes_up(
    op: int, x: Any, m: int, e: int, gap: int, negative: bool, mode: int, draw: int, terms: Any, limbs: Any
) -> bool:
    """Say whether |result|, inexact and above m 2^e, rounds to (m + gap) 2^e; gap is 1 but in one case."""
    if mode == ZERO:
        return False
    if mode == UP:
        return not negative
    if mode == DOWN:
        return negative
    if mode == ODD:
        return m & 1 == 0
    if mode == STOCHASTIC:
        # draw < floor(fraction * 2^32)  <=>  m + gap (draw + 1) / 2^32 <= |result|
        return _side(op, x, (m << 32) + gap * (draw + 1), e - 32, terms, limbs) >= 0
    side = _side(op, x, 2 * m + 1, e - 1, terms, limbs)
    return side > 0 or (side == 0 and (m & 1 == 1 or mode == AWAY))


@jit
def _settle(
    op: int,
    x: Any,
    guess: float,
    negative: bool,
    mode: int,
    draw: int,
    before: bool,
    f: Any,
    terms: Any,
    limbs: Any,
) -> int:
    """Round a nonzero result. ``guess`` is near its magnitude; ``f`` is the row of the format's integers."""
    precision, emin, emax, max_code, inf_code, nan, sign_bit, infinities = f
    sign = sign_bit if negative else 0
    beyond = (emax - emin + 2) << (precision - 1)  # the encoding that 2^(emax+1) would have
    code = beyond
    if guess < 2.0 ** (emax + 1):
        e = max(math.frexp(guess)[1] - 1, emin)
        code = np.int64(math.ldexp(guess, precision - 1 - e)) + ((e - emin) << (precision - 1))
    m, e = _parts(code, precision, emin)
    side = _side(op, x, m, e, terms, limbs)
    while side < 0:
        code -= 1
        m, e = _parts(code, precision, emin)
        side = _side(op, x, m, e, terms, limbs)
    while side > 0 and code < beyond:
        n, d = _parts(code + 1, precision, emin)
        next_side = _side(op, x, n, d, terms, limbs)
        if next_side < 0:
            break
        code, m, e, side = code + 1, n, d, next_side
    # Now code is the lower neighbour, or the result itself.
    exact = side == 0
    # Stochastic rounding knows no grid point between the largest finite value and 2^(emax+1).
    last_gap = mode == STOCHASTIC and max_code <= code < beyond and not (code == max_code and exact)
    if last_gap:
        code, exact = max_code, False
    below_normal = code < 1 << (precision - 1)
    if code < beyond and not exact:
        m, e = _parts(code, precision, emin)
        gap = (1 << precision) - m if last_gap else 1
        if _goes_up(op, x, m, e, gap, negative, mode, draw, terms, limbs):
            code += 1
    if code <= max_code:
        flags = 0 if exact else INEXACT
        if 0 < code < 1 << (precision - 1):
            flags |= SUBNORMAL
        if not exact and below_normal:
            tiny = True
            last = (1 << precision) - 1  # the last value below 2^emin of this precision
            if not before and _side(op, x, last, emin - precision, terms, limbs) > 0:
                tiny = not _goes_up(op, x, last, emin - precision, 1, negative, mode, draw, terms, limbs)
            if tiny:
                flags |= UNDERFLOW
        return sign | code | flags << FLAGS_AT
    flags = OVERFLOW | INEXACT
    if mode in (ZERO, ODD) or (mode == UP and negative) or (mode == DOWN and not negative):
        return sign | max_code | flags << FLAGS_AT
    return (sign | inf_code if infinities else nan) | flags << FLAGS_AT


@jit
def _infinite(negative: bool, flags: int, f: Any) -> int:
    """Give an infinite result; a format without infinity overflows to NaN."""
    if f[7]:
        return f[4] | (f[6] if negative else 0) | flags << FLAGS_AT
    return f[5] | (flags | OVERFLOW | INEXACT) << FLAGS_AT


@jit
def _operate(
    op: int, a: Any, b: Any, c: Any, mode: int, draws: Any, before: bool, f: Any, g: Any, out: Any
) -> None:
    """Compute elementwise; ``g`` is the format of the operands, ``f`` that of the result."""
    limbs = np.zeros(80, np.int64)
    terms = np.zeros((4, 3), np.int64)
    x = np.zeros((2, 3), np.int64)
    v = np.zeros(3, np.float64)
    s = np.zeros(3, np.int64)  # the operands: negative?
    u = np.zeros(3, np.int64)  # their magnitudes
    precision, emin, inf_code, sign_bit = g[0], g[1], g[4], g[6]
    largest = g[3]
    quiet = 1 << (precision - 2)
    operands = 1 if op in (SQRT, CONVERT) else 3 if op == FMA else 2
    for i in range(a.size):
        draw = np.int64(draws[i]) if mode == STOCHASTIC else 0
        u[0] = np.int64(a[i])
        u[1] = np.int64(b[i]) if operands > 1 else 0
        u[2] = np.int64(c[i]) if operands > 2 else 0
        nan = False
        signaling = False
        for k in range(operands):
            s[k] = 1 if u[k] & sign_bit else 0
            u[k] &= sign_bit - 1
            is_nan = u[k] > largest and not (g[7] and u[k] == inf_code)
            nan = nan or is_nan
            signaling = signaling or (is_nan and u[k] & quiet == 0)
        if op == SUBTRACT:
            s[1] = 1 - s[1]
        ia = g[7] and u[0] == inf_code
        ib = g[7] and operands > 1 and u[1] == inf_code
        ic = g[7] and operands > 2 and u[2] == inf_code
        undefined = op in (MULTIPLY, FMA) and ((ia and u[1] == 0) or (ib and u[0] == 0))
        product = s[0] ^ s[1]
        if not nan:
            if op in (ADD, SUBTRACT):
                undefined = ia and ib and s[0] != s[1]
            elif op == FMA:
                undefined = undefined or ((ia or ib) and ic and s[2] != product)
            elif op == DIVIDE:
                undefined = (ia and ib) or (u[0] == 0 and u[1] == 0)
            elif op == SQRT:
                undefined = s[0] == 1 and u[0] != 0
        if nan or undefined:
            out[i] = f[5] | (INVALID if undefined or signaling else 0) << FLAGS_AT
            continue
        if ia or ib or ic:
            if op in (ADD, SUBTRACT):
                out[i] = _infinite(s[0] == 1 if ia else s[1] == 1, 0, f)
            elif op == FMA:
                out[i] = _infinite(product == 1 if ia or ib else s[2] == 1, 0, f)
            elif op == DIVIDE and ib:
                out[i] = f[6] if product else 0
            elif op in (MULTIPLY, DIVIDE):
                out[i] = _infinite(product == 1, 0, f)
            else:
                out[i] = _infinite(s[0] == 1, 0, f)
            continue
        if op == DIVIDE and u[1] == 0:
            out[i] = _infinite(product == 1, DIVIDE_BY_ZERO, f)
            continue
        x[:] = 0
        for k in range(operands):
            m, e = _parts(u[k], precision, emin)
            v[k] = math.ldexp(float(m), e)
            if k < 2:
                x[k, 0], x[k, 1], x[k, 2] = 1 - 2 * s[k], m, e
        if op in (MULTIPLY, FMA):  # the product becomes the first term
            x[0, 0] *= x[1, 0]
            x[0, 1] *= x[1, 1]
            x[0, 2] += x[1, 2]
            x[1] = 0
            guess = x[0, 0] * (v[0] * v[1])  # exact: at most 48 bits
            if op == FMA:
                m, e = _parts(u[2], precision, emin)
                x[1, 0], x[1, 1], x[1, 2] = 1 - 2 * s[2], m, e
                guess += x[1, 0] * v[2]
        elif op in (ADD, SUBTRACT):
            guess = x[0, 0] * v[0] + x[1, 0] * v[1]
        elif op == DIVIDE:
            x[0, 0], x[1, 0] = 1, 1
            guess = v[0] / v[1]
        elif op == SQRT:
            guess = math.sqrt(v[0])
        else:
            guess = v[0]
        if op in (ADD, SUBTRACT, FMA):
            terms[:2] = x
            side = _sign(terms, 2, limbs)
            if side == 0:
                first = product if op == FMA else s[0]
                second = s[2] if op == FMA else s[1]
                zeros = x[0, 1] == 0 and x[1, 1] == 0 and first == second
                out[i] = f[6] if (zeros and first) or (not zeros and mode == DOWN) else 0
                continue
            negative = side < 0
            if negative:
                x[0, 0], x[1, 0] = -x[0, 0], -x[1, 0]
        else:
            negative = product == 1 if op in (MULTIPLY, DIVIDE) else s[0] == 1
            x[0, 0] = 1
            if x[0, 1] == 0:
                out[i] = f[6] if negative else 0
                continue
        out[i] = _settle(op, x, abs(guess), negative, mode, draw, before, f, terms, limbs)


def _row(spec: Spec) -> tuple[int, int, int, int, int, int, int, int]:
    return (
        spec.precision,
        2 - 2 ** (spec.exponent_bits - 1),
        spec.emax,
        spec.max_code,
        spec.inf_code,
        spec.nan,
        -(1 << 63) if spec.precision == 53 else 1 << (spec.exponent_bits + spec.precision - 1),  # as an int64
        int(spec.infinities),
    )


FORMATS_OF_OPERANDS = {**FORMATS, "binary64": Spec(11, 53, 1023, True, 0x7FF8 << 48)}


def compute(
    op: str,
    fmt: str,
    mode: str,
    a: Any,
    b: Any = None,
    c: Any = None,
    *,
    source: str | None = None,
    random_bits: Any = None,
    tininess: str = "after",
) -> tuple[Any, Any]:
    """Compute one operation on arrays of encodings: ``(bits, flags)``.

    ``convert`` takes encodings of ``source`` (binary64 too); the other operations those of ``fmt``.
    """
    shape = np.shape(a)
    code = MODES.index(mode)
    before = {"after": False, "before": True}[tininess]
    draws = flat(np.zeros(1, np.uint32), np.uint32, (1,))
    if code == STOCHASTIC:
        draws = flat(random_bits, np.uint32, shape)
    operands = FORMATS_OF_OPERANDS[source or fmt]
    wide = [flat(np.asarray(0 if v is None else v).astype(np.int64), np.int64, shape) for v in (a, b, c)]
    out = np.empty(math.prod(shape), np.int64)
    _operate(OPERATIONS.index(op), *wide, code, draws, before, _row(FORMATS[fmt]), _row(operands), out)
    bits = (out & 0xFFFFFFFF).astype(FORMATS[fmt].dtype).reshape(shape)
    return bits, (out >> FLAGS_AT).astype(np.uint8).reshape(shape)
