"""binary16 arithmetic by exact comparison, for tests: the routine that every fast kernel is held to.

A binary16 value is an integer count of 2^-24, below 2^40. The exact result of an operation is therefore a
mixed number ``whole + num/den`` of such units, and 64-bit integers hold all three. The result is found by
comparing that number with the neighbouring binary16 values and with the midpoint between them: no significand
is ever shifted into place, no sticky bit kept. Nothing is imported from the package under test.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

jit = njit(nogil=True, cache=True)
"""The kernels call nothing outside this file, so that numba's cache, which watches one file, cannot go stale."""


def compiled(signature: str) -> Any:
    """Compile for one signature only: numba would compile anew for each combination of constant arguments."""
    return njit(signature, nogil=True, cache=True)


MODES = (
    "nearest_even",
    "nearest_away",
    "toward_zero",
    "toward_positive",
    "toward_negative",
    "to_odd",
    "stochastic",
)
EVEN, AWAY, ZERO, UP, DOWN, ODD, STOCHASTIC = range(7)
OVERFLOW, UNDERFLOW, SUBNORMAL, INVALID, DIVIDE_BY_ZERO, INEXACT = 1, 2, 4, 8, 16, 32
BINARY_OPERATIONS = ("add", "subtract", "multiply", "divide")
OPERATIONS = ("from_float32", "from_float64", *BINARY_OPERATIONS, "fma", "sqrt")

SIGN, INFINITY, LARGEST, NAN = 0x8000, 0x7C00, 0x7BFF, 0x7E00
BEYOND = 1 << 40  # 2^16 in units of 2^-24: where infinity would be if it were a number
FLAGS_AT = 16  # a kernel returns bits | flags << 16


@jit
def _grid(code: int) -> int:
    """Give the value of a positive encoding, in units of 2^-24; 0x7c00 stands for 2^16."""
    field = code >> 10
    return ((code & 1023) | 1024) << (field - 1) if field else code


@compiled("int64(int64)")
def _floor_code(whole: int) -> int:
    """Find the largest encoding whose value is at most ``whole`` (below 2^40)."""
    # A guess from the float64 exponent; the two comparisons alone decide.
    code = whole
    if whole >= 1024:
        code = (np.float64(whole).view(np.int64) >> 42) - ((1023 + 9) << 10)
    while _grid(code) > whole:
        code -= 1
    while _grid(code + 1) <= whole:
        code += 1
    return code


@jit
def _scaled(num: int, den: int) -> int:
    """Give floor(num * 2^32 / den) for 0 <= num < den <= 2^62."""
    if num < 1 << 31:
        return (num << 32) // den
    quotient = 0
    for _ in range(32):
        num *= 2
        quotient *= 2
        if num >= den:
            num -= den
            quotient += 1
    return quotient


@compiled("boolean(int64, int64, int64, int64, boolean, boolean, int64, int64)")
def _goes_up(
    rest: int, num: int, den: int, gap: int, odd: bool, negative: bool, mode: int, draw: int
) -> bool:
    """Say whether a value ``rest + num/den`` above its lower neighbour rounds away from zero.

    ``gap`` is the distance of the neighbours, ``odd`` whether the lower one is odd.
    """
    if rest == 0 and num == 0:
        return False
    if mode == ZERO:
        return False
    if mode == UP:
        return not negative
    if mode == DOWN:
        return negative
    if mode == ODD:
        return not odd
    if mode == STOCHASTIC:
        # floor(fraction * 2^32): a floor inside a floor changes nothing when the outer divisor is an integer.
        return draw < ((rest << 32) + _scaled(num, den)) // gap
    # Twice the distance from the lower neighbour against the gap: 2 rest + 2 num/den <=> gap; 2 num/den < 2.
    missing = gap - 2 * rest
    if missing >= 2:
        return False
    if missing == 1:
        if 2 * num != den:
            return 2 * num > den
    elif missing < 0 or num > 0:
        return True
    return odd or mode == AWAY


@compiled("int64(boolean, int64, int64, int64, int64, int64, boolean)")
def _settle(negative: bool, whole: int, num: int, den: int, mode: int, draw: int, before: bool) -> int:
    """Round the magnitude ``(whole + num/den) * 2^-24``; give the encoding and the flags."""
    sign = SIGN if negative else 0
    if whole == 0 and num == 0:
        return sign
    code = INFINITY
    if whole < BEYOND:
        code = _floor_code(whole)
        low = _grid(code)
        gap = _grid(code + 1) - low
        exact = whole == low and num == 0
        if _goes_up(whole - low, num, den, gap, code & 1 == 1, negative, mode, draw):
            code += 1
        if code < INFINITY:
            flags = 0 if exact else INEXACT
            if 0 < code < 1024:
                flags |= SUBNORMAL
            if whole < 1024 and not exact:
                tiny = True
                # 1023.5 is the last value below 2^-14 of 11 bits; it is odd, and 2^-14 is half a unit on.
                if not before and whole == 1023 and 2 * num >= den:
                    tiny = not _goes_up(0, 2 * num - den, den, 1, True, negative, mode, draw)
                if tiny:
                    flags |= UNDERFLOW
            return sign | code | flags << FLAGS_AT
    # The value, rounded as if the exponent had no end, is 2^16 or more.
    flags = OVERFLOW | INEXACT
    if mode in (ZERO, ODD) or (mode == UP and negative) or (mode == DOWN and not negative):
        return sign | LARGEST | flags << FLAGS_AT
    return sign | INFINITY | flags << FLAGS_AT


@jit
def _is_nan(a: int) -> bool:
    return a & 0x7FFF > INFINITY


@jit
def _is_signaling(a: int) -> bool:
    return _is_nan(a) and a & 0x200 == 0


@jit
def _is_inf(a: int) -> bool:
    return a & 0x7FFF == INFINITY


@jit
def _parts(a: int) -> tuple[int, int]:
    """Write a finite magnitude as significand * 2^exponent, the significand below 2^11."""
    field = a >> 10 & 31
    if field:
        return (a & 1023) | 1024, field - 25
    return a & 1023, -24


@jit
def _nan(invalid: bool) -> int:
    return NAN | (INVALID << FLAGS_AT if invalid else 0)


@jit
def _sum(whole: int, num: int, den: int, both_negative: bool, mode: int, draw: int, before: bool) -> int:
    """Round a signed mixed number ``whole + num/den`` (0 <= num < den); a zero gets the sign of a sum."""
    if whole == 0 and num == 0:
        return SIGN if both_negative or mode == DOWN else 0
    if whole >= 0:
        return _settle(False, whole, num, den, mode, draw, before)
    if num:  # -(whole + num/den) = (-whole - 1) + (den - num)/den
        return _settle(True, -whole - 1, den - num, den, mode, draw, before)
    return _settle(True, -whole, 0, den, mode, draw, before)


@jit
def _add(a: int, b: int, mode: int, draw: int, before: bool) -> int:
    if _is_nan(a) or _is_nan(b):
        return _nan(_is_signaling(a) or _is_signaling(b))
    if _is_inf(a):
        return _nan(True) if _is_inf(b) and a != b else a
    if _is_inf(b):
        return b
    x = _grid(a & 0x7FFF)
    y = _grid(b & 0x7FFF)
    if (x == 0) and (y == 0):
        return SIGN if (a & b & SIGN) or (mode == DOWN and (a | b) & SIGN) else 0
    total = (-x if a & SIGN else x) + (-y if b & SIGN else y)
    return _sum(total, 0, 1, False, mode, draw, before)


@jit
def _multiply(a: int, b: int, mode: int, draw: int, before: bool) -> int:
    negative = (a ^ b) & SIGN != 0
    if _is_nan(a) or _is_nan(b):
        return _nan(_is_signaling(a) or _is_signaling(b))
    if _is_inf(a) or _is_inf(b):
        if a & 0x7FFF == 0 or b & 0x7FFF == 0:
            return _nan(True)
        return INFINITY | (SIGN if negative else 0)
    m, e = _parts(a)
    n, f = _parts(b)
    product = m * n
    shift = e + f + 24  # from -24 to 34; the product is below 2^22
    if shift >= 0:
        return _settle(negative, product << shift, 0, 1, mode, draw, before)
    den = 1 << -shift
    return _settle(negative, product // den, product % den, den, mode, draw, before)


@jit
def _divide(a: int, b: int, mode: int, draw: int, before: bool) -> int:
    negative = (a ^ b) & SIGN != 0
    sign = SIGN if negative else 0
    if _is_nan(a) or _is_nan(b):
        return _nan(_is_signaling(a) or _is_signaling(b))
    if _is_inf(a):
        return _nan(True) if _is_inf(b) else INFINITY | sign
    if _is_inf(b):
        return sign
    m, e = _parts(a)
    n, f = _parts(b)
    if n == 0:
        return _nan(True) if m == 0 else INFINITY | sign | DIVIDE_BY_ZERO << FLAGS_AT
    shift = e - f + 24  # from -5 to 53
    if shift > 51:  # a >= 2^14 and b < 2^-13: the quotient is beyond 2^16
        return _settle(negative, BEYOND, 0, 1, mode, draw, before)
    dividend = m << shift if shift >= 0 else m
    divisor = n if shift >= 0 else n << -shift
    return _settle(negative, dividend // divisor, dividend % divisor, divisor, mode, draw, before)


@jit
def _fma(a: int, b: int, c: int, mode: int, draw: int, before: bool) -> int:
    negative = (a ^ b) & SIGN != 0
    undefined = (_is_inf(a) and b & 0x7FFF == 0) or (_is_inf(b) and a & 0x7FFF == 0)
    if _is_nan(a) or _is_nan(b) or _is_nan(c):
        return _nan(undefined or _is_signaling(a) or _is_signaling(b) or _is_signaling(c))
    if undefined:
        return _nan(True)
    if _is_inf(a) or _is_inf(b):
        if _is_inf(c) and negative != (c & SIGN != 0):
            return _nan(True)
        return INFINITY | (SIGN if negative else 0)
    if _is_inf(c):
        return c
    m, e = _parts(a)
    n, f = _parts(b)
    product = m * n
    shift = e + f + 24
    addend = _grid(c & 0x7FFF)
    if product == 0 and addend == 0:
        minus = (1 if negative else 0) + (1 if c & SIGN else 0)
        return SIGN if minus == 2 or (mode == DOWN and minus == 1) else 0
    if c & SIGN:
        addend = -addend
    if shift >= 0:
        total = product << shift
        return _sum(addend + (-total if negative else total), 0, 1, False, mode, draw, before)
    den = 1 << -shift
    if negative:
        product = -product
    return _sum(addend + product // den, product % den, den, False, mode, draw, before)  # // is floor


@jit
def _from_float(sign: int, m: int, e: int, mode: int, draw: int, before: bool) -> int:
    """Round m * 2^e, m < 2^53; where e > -7 the source is normal, so m >= 2^23."""
    shift = e + 24
    if shift >= 17:  # m >= 2^23, hence at least 2^40 units
        return _settle(sign, BEYOND, 0, 1, mode, draw, before)
    if shift >= 0:
        whole = m << shift if m < 1 << 40 else BEYOND
        return _settle(sign, whole, 0, 1, mode, draw, before)
    if shift >= -62:
        den = 1 << -shift
        return _settle(sign, m // den, m % den, den, mode, draw, before)
    # Below 2^53-63: the fraction of a unit is under 2^-9. In units of 2^-62 its floor (not 0) gives the same
    # answers to "zero?", "half?" and floor(fraction * 2^32).
    num = m >> min(-shift - 62, 63)
    if m and not num:
        num = 1
    return _settle(sign, 0, num, 1 << 62, mode, draw, before)


@jit
def _from_float32(a: int, mode: int, draw: int, before: bool) -> int:
    field = a >> 23 & 255
    fraction = a & 0x7FFFFF
    if field == 255:
        if fraction:
            return _nan(fraction & 0x400000 == 0)
        return INFINITY | (a >> 16 & SIGN)
    m = fraction | 0x800000 if field else fraction
    return _from_float(a >> 31 != 0, m, max(field, 1) - 150, mode, draw, before)


@jit
def _from_float64(a: int, mode: int, draw: int, before: bool) -> int:
    field = a >> 52 & 2047
    fraction = a & 0xFFFFFFFFFFFFF
    if field == 2047:
        if fraction:
            return _nan(fraction & 0x8000000000000 == 0)
        return INFINITY | (SIGN if a < 0 else 0)
    m = fraction | 0x10000000000000 if field else fraction
    return _from_float(a < 0, m, max(field, 1) - 1075, mode, draw, before)


@jit
def _convert(double: bool, a: Any, mode: int, draws: Any, before: bool, bits: Any, flags: Any) -> None:
    for i in range(a.size):
        draw = np.int64(draws[i]) if mode == STOCHASTIC else np.int64(0)
        x = np.int64(a[i])
        r = _from_float64(x, mode, draw, before) if double else _from_float32(x, mode, draw, before)
        bits[i] = r & 0xFFFF
        flags[i] = r >> FLAGS_AT


@jit
def _operate(
    op: int, a: Any, b: Any, c: Any, mode: int, draws: Any, before: bool, bits: Any, flags: Any
) -> None:
    for i in range(a.size):
        x = np.int64(a[i])
        y = np.int64(b[i])
        draw = np.int64(draws[i]) if mode == STOCHASTIC else np.int64(0)
        if op == 0:
            r = _add(x, y, mode, draw, before)
        elif op == 1:
            r = _add(x, y if _is_nan(y) else y ^ SIGN, mode, draw, before)
        elif op == 2:
            r = _multiply(x, y, mode, draw, before)
        elif op == 3:
            r = _divide(x, y, mode, draw, before)
        else:
            r = _fma(x, y, np.int64(c[i]), mode, draw, before)
        bits[i] = r & 0xFFFF
        flags[i] = r >> FLAGS_AT


def _sqrt(a: int, mode: int, draw: int, before: bool) -> int:
    """Square root by Python integers: there are only 65,536 arguments."""
    if _is_nan(a):
        return _nan(_is_signaling(a))
    if a & 0x7FFF == 0 or a == INFINITY:
        return a
    if a & SIGN:
        return _nan(True)
    square = _grid(a) << 24  # the root, in units of 2^-24, is sqrt(square)
    # An irrational root is over 2^-34 away from an integer and from a half, so its floor in units of 2^-62 is
    # on the right side of both, and floor(fraction * 2^32) is its head.
    root = math.isqrt(square << 124)
    return _settle(False, root >> 62, root & ((1 << 62) - 1), 1 << 62, mode, draw, before)


def flat(array: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
    """Give an array of exactly this dtype as one contiguous read-only row (one type, so one compilation)."""
    array = np.asarray(array)
    if array.dtype != dtype:
        raise TypeError(f"encodings as {np.dtype(dtype)} expected, not {array.dtype}")
    row = np.ascontiguousarray(np.broadcast_to(array, shape)).reshape(-1).view()
    row.flags.writeable = False
    return row


def compute(
    op: str,
    mode: str,
    a: Any,
    b: Any = None,
    c: Any = None,
    *,
    random_bits: Any = None,
    tininess: str = "after",
) -> tuple[Any, Any]:
    """Compute one operation on arrays of encodings (uint16; uint32 and uint64 for the conversions).

    Returns the encodings (uint16) and the flags (uint8, bits as in this module) of each element.
    """
    shape = np.shape(a)
    code = MODES.index(mode)
    before = {"after": False, "before": True}[tininess]
    draws = flat(np.zeros(1, np.uint32), np.uint32, (1,))
    if code == STOCHASTIC:
        draws = flat(random_bits, np.uint32, shape)
    bits = np.empty(math.prod(shape), np.uint16)
    flags = np.empty(bits.size, np.uint8)
    if op == "from_float32":
        _convert(False, flat(a, np.uint32, shape), code, draws, before, bits, flags)
    elif op == "from_float64":
        _convert(True, flat(a, np.uint64, shape), code, draws, before, bits, flags)
    elif op == "sqrt":
        for i, x in enumerate(flat(a, np.uint16, shape).tolist()):
            r = _sqrt(x, code, int(draws[i]) if code == STOCHASTIC else 0, before)
            bits[i], flags[i] = r & 0xFFFF, r >> FLAGS_AT
    else:
        x, y, z = (flat(v, np.uint16, shape) for v in (a, b, np.uint16(0) if c is None else c))
        _operate((*BINARY_OPERATIONS, "fma").index(op), x, y, z, code, draws, before, bits, flags)
    return bits.reshape(shape), flags.reshape(shape)
