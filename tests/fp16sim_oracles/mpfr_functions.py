"""Functions of one binary16 argument by MPFR (gmpy2): where the value lies on the grid, and its roundings.

Functions that MPFR has are evaluated by it directly in four modes, at 11 bits with binary16's exponents, and at 200
bits toward zero, which together with MPFR's inexact flag decides every comparison. Composites (sigmoid, softplus,
silu, gelu, gelu_tanh) are evaluated at 400 bits, and must agree at 200. Arguments are clipped where such a function
is within 2^-140 of a limit that it never reaches, so that the limit is not mistaken for the value.

Nothing of the package is imported.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import gmpy2
import numpy as np
import numpy.typing as npt
from gmpy2 import mpfr

from fp16sim_oracles.mpfr import DIVIDE_BY_ZERO, INEXACT, INVALID, MODES, OVERFLOW, context, decode, encode

NAN, INF, MAX = 0x7E00, 0x7C00, 0x7BFF
BITS_BELOW = 33  # of the fraction

NATIVE: dict[str, Callable[[Any, Any], Any]] = {
    "sqrt": lambda c, x: c.sqrt(x),
    "rsqrt": lambda c, x: c.rec_sqrt(x),
    "reciprocal": lambda c, x: c.div(mpfr(1), x),
    "cbrt": lambda c, x: c.cbrt(x),
    "square": lambda c, x: c.mul(x, x),  # c.square rounds subnormal results twice
    "exp": lambda c, x: c.exp(x),
    "exp2": lambda c, x: c.exp2(x),
    "expm1": lambda c, x: c.expm1(x),
    "log": lambda c, x: c.log(x),
    "log2": lambda c, x: c.log2(x),
    "log10": lambda c, x: c.log10(x),
    "log1p": lambda c, x: c.log1p(x),
    "sin": lambda c, x: c.sin(x),
    "cos": lambda c, x: c.cos(x),
    "tan": lambda c, x: c.tan(x),
    "atan": lambda c, x: c.atan(x),
    "sinh": lambda c, x: c.sinh(x),
    "cosh": lambda c, x: c.cosh(x),
    "tanh": lambda c, x: c.tanh(x),
    "erf": lambda c, x: c.erf(x),
}


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + gmpy2.exp(-max(min(x, mpfr(100)), mpfr(-1000))))


def _softplus(x: Any) -> Any:
    return max(x, mpfr(0)) + gmpy2.log1p(gmpy2.exp(-min(abs(x), mpfr(100))))


def _gelu(x: Any) -> Any:
    y = max(min(x, mpfr(14)), mpfr(-100))
    return max(x, mpfr(-100)) * (gmpy2.erfc(-y / gmpy2.sqrt(mpfr(2))) / 2)


def _gelu_tanh(x: Any) -> Any:
    y = max(min(x, mpfr(10)), mpfr(-30))
    inner = gmpy2.sqrt(2 / gmpy2.const_pi()) * (y + mpfr(44715) / 1000000 * y**3)
    # 1 + tanh(z) written without cancellation.
    return max(x, mpfr(-30)) / (1 + gmpy2.exp(-2 * inner))


COMPOSITES: dict[str, tuple[Callable[[Any], Any], int, int]] = {  # with the values at +inf and -inf
    "sigmoid": (_sigmoid, 0x3C00, 0x0000),
    "softplus": (_softplus, INF, 0x0000),
    "silu": (lambda x: max(x, mpfr(-1000)) * _sigmoid(x), INF, 0x8000),
    "gelu": (_gelu, INF, 0x8000),
    "gelu_tanh": (_gelu_tanh, INF, 0x8000),
}

NAMES = (*NATIVE, "logb", *COMPOSITES)

ROW = np.dtype(
    [
        ("lower", "u2"),
        ("fraction", "u4"),
        ("rest", "u1"),
        ("overflow", "?"),
        ("flags", "u1"),
        ("results", "u2", 4),  # in the order of `mpfr.MODES`
        ("raised", "u1", 4),  # overflow, invalid, divide_by_zero, inexact as MPFR raised them
        ("tiny", "?", 4),  # nonzero, and below 2^-14 when rounded to 11 bits without end of exponents
        ("below", "?"),  # nonzero, and below 2^-14
        ("nearly", "?"),  # at least 2^-14 - 2^-26, where ties away reach 2^-14
    ]
)

_WIDE = {mode: gmpy2.context(precision=11, round=MODES[mode]) for mode in MODES}
_NARROW = {mode: context("binary16", mode) for mode in MODES}
_PRECISE = gmpy2.context(precision=200, round=gmpy2.RoundToZero)


def _at(function: Callable[[Any], Any], x: float, precision: int) -> Any:
    with gmpy2.context(precision=precision):
        return function(mpfr(x))


def _grid(value: Any, inexact: bool) -> tuple[int, bool, int]:
    """Give floor(|value| / spacing * 2^33), whether anything is left, and the exponent of the spacing times 2^10."""
    if value == 0:
        assert not inexact
        return 0, False, -14
    mantissa, exponent = map(int, value.as_mantissa_exp())
    mantissa = abs(mantissa)
    top = max(mantissa.bit_length() + exponent - 1, -14)
    shift = exponent - (top - 10 - BITS_BELOW)
    if shift >= 0:
        return mantissa << shift, inexact, top
    return mantissa >> -shift, inexact or mantissa & ((1 << -shift) - 1) != 0, top


def _flags(c: Any) -> int:
    return c.overflow * OVERFLOW | c.invalid * INVALID | c.divzero * DIVIDE_BY_ZERO | c.inexact * INEXACT


def evaluate(name: str, bits: int) -> tuple[Any, ...]:
    """Give the row of one encoding."""
    x = decode(bits)
    code = bits & 0x7FFF
    if code > INF:
        invalid = INVALID if code & 0x200 == 0 else 0
        return NAN, 0, 0, False, invalid, [NAN] * 4, [invalid] * 4, [False] * 4, False, False
    argument = mpfr(x, 53)
    if name in NATIVE:
        _PRECISE.clear_flags()
        value = NATIVE[name](_PRECISE, argument)
        inexact, special = _PRECISE.inexact, _PRECISE.invalid * INVALID | _PRECISE.divzero * DIVIDE_BY_ZERO
    elif name == "logb":
        inexact, special = False, DIVIDE_BY_ZERO if code == 0 else 0
        value = (
            mpfr("inf") if code == INF else mpfr("-inf") if code == 0 else mpfr(gmpy2.get_exp(argument) - 1)
        )
    else:
        function, at_inf, at_minus_inf = COMPOSITES[name]
        inexact, special = False, 0
        if code == INF:
            value = mpfr(decode(at_minus_inf if bits >> 15 else at_inf))
        else:
            value = _at(function, x, 400)
            short = _at(function, x, 200)
            assert _grid(value, False) == _grid(short, False), (
                f"{name} of {bits:#06x}: 200 and 400 bits disagree"
            )
            if value == 0:
                value = mpfr(x)  # silu and gelu: a zero of the argument's sign
    if name == "rsqrt" and bits == 0x8000:
        value = mpfr("-inf")  # IEEE 754-2019 clause 9.2.1; MPFR gives +inf
    results, raised, tiny = [], [], []
    for mode in MODES:
        c = _NARROW[mode]
        c.clear_flags()
        native = name in NATIVE and not (name == "rsqrt" and code == 0)
        rounded = NATIVE[name](c, argument) if native else c.plus(value)
        results.append(encode(float(rounded)))
        raised.append(_flags(c) | (0 if native else special))
        wide = NATIVE[name](_WIDE[mode], argument) if native else _WIDE[mode].plus(value)
        tiny.append(bool(wide != 0 and abs(wide) < 2.0**-14))
    if not gmpy2.is_finite(value):
        bits = encode(float(value))
        return bits, 0, 0, False, special, results, raised, [False] * 4, False, False
    sign = 0x8000 if gmpy2.is_signed(value) else 0
    units, left, top = _grid(value, inexact)
    below = bool(value != 0 and abs(value) < 2.0**-14)
    nearly = units >= (1 << 43) - (1 << 31) or top > -14
    if top > 15:
        return MAX | sign, 0, 0, True, special, results, raised, tiny, below, nearly
    lower = ((top + 14) << 10) + (units >> BITS_BELOW)
    return (
        lower | sign,
        units >> 1 & 0xFFFFFFFF,
        (units & 1) << 1 | left,
        False,
        special,
        results,
        raised,
        tiny,
        below,
        nearly,
    )


@functools.cache
def rows(name: str, step: int) -> npt.NDArray[Any]:
    """Give the rows of every ``step``-th encoding, and with step > 1 of those at edges as well."""
    chosen = encodings(step)
    return np.array([evaluate(name, int(b)) for b in chosen], dtype=ROW)


def encodings(step: int) -> npt.NDArray[np.uint16]:
    """Give every ``step``-th encoding and, with step > 1, those near powers of two, of two to e and of ten."""
    if step == 1:
        return np.arange(65536, dtype=np.uint16)
    near = np.array([0, 1, 2, 3, 0x3FE, 0x3FF, *range(0x400, 0x8000, 0x400), 0x7C01, 0x7DFF, 0x7E00, 0x7FFF])
    known = np.array([0x4900, 0x5640, 0x63D0, 0x70E2, 0x1F79, 0x1D78, 0x5CB0, 0x3E48, 0x498B, 0x498C, 0xCBFF])
    around = np.concatenate([near + d for d in (-1, 0, 1)]) & 0x7FFF
    return np.unique(np.concatenate([np.arange(0, 65536, step), around, around | 0x8000, known])).astype(
        np.uint16
    )


def all_modes(row: npt.NDArray[Any]) -> dict[str, npt.NDArray[np.uint16]]:
    """Give the results in six modes: MPFR's four, to_odd from toward_zero, nearest_away from the fraction."""
    results = {mode: row["results"][:, i] for i, mode in enumerate(MODES)}
    truncated = results["toward_zero"]
    inexact = (row["raised"][:, list(MODES).index("toward_zero")] & INEXACT) != 0
    number = (truncated & 0x7FFF) <= MAX
    results["to_odd"] = np.where(number & inexact, truncated | 1, truncated).astype(np.uint16)
    away = number & ((row["fraction"] >= 2**31) | row["overflow"])
    results["nearest_away"] = (truncated + away).astype(np.uint16)
    return results


def all_flags(row: npt.NDArray[Any], tininess: str) -> dict[str, npt.NDArray[np.uint8]]:
    """Give the flags in six modes, gradual underflow: MPFR's, and underflow from its roundings to 11 bits."""
    flags = {}
    zero = list(MODES).index("toward_zero")
    for mode, result in all_modes(row).items():
        at = list(MODES).index(mode) if mode in MODES else zero
        raised = row["raised"][:, at].astype(np.int64)
        if mode == "nearest_away":  # overflow is that of the result, or of what truncation overflows
            raised |= np.where(
                ((result & 0x7FFF) == INF) & (row["lower"] & 0x7FFF == MAX), OVERFLOW | INEXACT, 0
            )
        tiny = row["below"] & ~row["nearly"] if mode == "nearest_away" else row["tiny"][:, at]
        if mode == "to_odd" or tininess == "before":
            tiny = row["below"]
        raised |= np.where(tiny & (raised & INEXACT != 0), 2, 0)
        code = result & 0x7FFF
        raised |= np.where((code > 0) & (code < 0x400), 4, 0)
        flags[mode] = raised.astype(np.uint8)
    return flags
