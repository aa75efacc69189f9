"""Encodings that backends get wrong: signed zeros, subnormals, ties, cancellation, swamping, infinities, NaN.

Inputs are drawn from tables of them. Tables are made by a fixed hash, and draws by a fixed sequence: every run on
every machine has the same inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from typing import TypeVar

import numpy as np

from fp16sim.emulator.formats import Format
from fp16sim.emulator.random_bits import key_of, random_bits

__all__ = [
    "KEYS",
    "STYLES",
    "Draw",
    "Partner",
    "different",
    "encodings",
    "far",
    "integers",
    "one",
    "partners",
    "random_words",
    "resolved",
    "simple",
    "sources",
    "styled",
]

T = TypeVar("T")

STYLES = ("moderate", "cancelling", "swamping", "edges", "zeros")
"""Kinds of vectors: few bits near one; few magnitudes; far exponents, all finite; anything; signed zeros."""

KEYS = (None, None, 0, key_of(7, 3), 2**64 - 1)
"""Keys of stochastic rounding; None where each element has bits of its own."""

Partner = int | Callable[[int, Format], int]
_RANDOM = 250


class Draw:
    """Draws from tables, each entry as often: the same for the same number.

    >>> draw = Draw(3)
    >>> [draw("abc") for _ in range(5)]
    ['a', 'b', 'b', 'b', 'b']
    """

    def __init__(self, number: int) -> None:
        self._uniform = Random(number).random  # the one method that gives the same in every version of Python

    def __call__(self, table: Sequence[T]) -> T:
        """Draw an entry."""
        return table[int(self._uniform() * len(table))]


@cache
def partners(fmt: Format) -> list[Partner]:
    """List second operands: encodings, and as often rules that make one of the first, see `resolved`."""
    table = encodings(fmt)
    return [*table, *[*_RELATIONS] * (len(table) // len(_RELATIONS))]


def resolved(first: int, partner: Partner, fmt: Format) -> int:
    """Give the second operand that goes with the first."""
    return partner(first, fmt) if callable(partner) else partner


@cache
def integers(unsigned: bool) -> list[int]:
    """List 64-bit integers: small, around powers of two, at the ends, any."""
    table = list(range(10))
    for power in (3, 4, 5, 8, 9, 11, 12, 16, 24, 25, 31, 32, 53, 62, 63):
        table += [(1 << power) + near for near in (-2, -1, 0, 1, 2, 3)]
        if power < 62:  # not far from ties of wide formats
            table += [(3 << power) - 1, (3 << power) + 1]
    table += [65503, 65504, 65519, 65520, 65521, 65536]
    table += [_hash(1, i) << 32 >> (i % 64) for i in range(100)]
    low, high = (0, 2**64 - 1) if unsigned else (-(2**63), 2**63 - 1)
    if not unsigned:
        table = [sign * n for n in table for sign in (1, -1)] + [low]
    return [n for n in dict.fromkeys([*table, high, high - 1]) if low <= n <= high]


@cache
def random_words() -> tuple[int, ...]:
    """List 32-bit words that decide which way an element is rounded."""
    near_half = (2**31 + n for n in (-1, 0, 1))
    return (0, 2**32 - 1, *near_half, 2**30, 3 << 30, 1, *(_hash(2, i) for i in range(12)))


@cache
def encodings(fmt: Format) -> list[int]:
    """List encodings: edges, several times; subnormals, numbers near one or with few bits, any; with either sign."""
    one, step, mask = fmt.bias << fmt.fraction_bits, 1 << fmt.fraction_bits, fmt.sign_bit - 1
    edges = [0, one, 1, 2, 3, one + step, one + 1, one - 1, one + 2, one + 3, step, step - 1, step + 1]
    edges += [one + step // 2, one - step, step // 2, fmt.max_bits, fmt.max_bits - 1, fmt.max_bits - step]
    edges += [one + fmt.precision * step, one - fmt.precision * step, one - fmt.precision * step + 1]
    edges += [] if fmt.inf_bits is None else [fmt.inf_bits]
    edges += [fmt.nan_bits, mask]  # the last is a NaN with a payload, in most formats
    if fmt.nan == "ieee" and fmt.precision > 2:
        edges.append(fmt.max_bits + 2)  # a signalling one
    found = [n | sign for n in edges if 0 <= n <= mask for sign in (0, fmt.sign_bit)]
    for i in range(_RANDOM):
        word, sign = _hash(3, i), fmt.sign_bit * (i & 1)
        wide = word | _hash(4, i) << 32
        stratum = i // 2 % 5
        if stratum == 0:
            bits = wide & mask
        elif stratum == 1:  # subnormal, or nearly
            bits = wide % (2 * step)
        elif stratum == 2:
            bits = one - 3 * step + wide % (6 * step)
        elif stratum == 3:  # few bits, any exponent
            bits = (wide % (fmt.max_bits // step + 1)) * step + (word >> 8) % 4 * step // 4
        else:  # few bits near one
            bits = one + (wide % 9 - 4) * step + (word >> 8) % 8 * step // 8
        found.append(min(max(bits, 0), mask) | sign)
    # What goes wrong most often comes often.
    special = [n for n in (0, one, 1, fmt.max_bits, fmt.inf_bits, fmt.nan_bits, step, mask) if n is not None]
    twice = found[: len(found) - _RANDOM] * 2
    return [*dict.fromkeys(found), *twice, *([n | sign for n in special for sign in (0, fmt.sign_bit)] * 6)]


@cache
def styled(fmt: Format, style: str) -> list[int]:
    """List the encodings of a vector of one of `STYLES`."""
    one, step, sign = fmt.bias << fmt.fraction_bits, 1 << fmt.fraction_bits, fmt.sign_bit
    if style == "edges":
        return encodings(fmt)
    if style == "zeros":
        return [*(0, sign) * 5, one | sign]
    if style == "moderate":
        near = [one + n * step + part * step // 4 for n in (0, 1, -1, 2, -2, 3) for part in range(4)]
        chosen = [0, *near, *(one - 2 * step + _hash(5, i) % (4 * step) for i in range(60))]
    elif style == "cancelling":
        chosen = [one, one + 1, one + step, 0, 1, one - 10 * step, one + 2 * step - 1, one + step + 1]
    else:
        top = fmt.max_bits // step
        chosen = [one, *(i * step + _hash(6, i) % step for i in range(0, top, max(1, top // 40)))]
        chosen += [one + n * step for n in range(-2 * fmt.precision, 2 * fmt.precision)]
        chosen += [one - fmt.precision * step + near for near in (0, 1, -1)]
    kept = [n for n in chosen if 0 <= n <= fmt.max_bits]
    return [n | s for n in dict.fromkeys(kept) for s in (0, sign)]


@cache
def sources(source: Format, target: Format) -> list[int]:
    """List encodings of the source: half of them at and beside values of the target and the ties between them."""
    if target.precision > 24:  # it holds all values of the others
        return encodings(source)
    found: list[int] = list(encodings(source)[:40])
    with np.errstate(all="ignore"):
        ends = np.array([n for n in encodings(target) if n & (target.sign_bit - 1) < target.max_bits])
        low, high = target.decode(ends), target.decode(ends + 1)
        ties = np.append(low + (high - low) / 2, [target.max_finite * s for s in (1.0, -1.0)])
        edge = np.ldexp(1.0, target.emax + 1) - target.max_finite
        limits = np.array([target.max_finite + edge / 2, target.max_finite + edge])
        tiny = target.min_subnormal * np.array([0.5, 0.25, 0.75, 1.5])
        values = np.concatenate([low, ties, limits, -limits, tiny, -tiny])
    # A value is one of the source's if it is a whole number of units in the last place there.
    unit = np.maximum(np.frexp(values)[1] - 1, source.emin) - source.fraction_bits
    scaled = np.ldexp(values, np.where(np.isfinite(values), -unit, 0))
    held = (np.abs(values) <= source.max_finite) & (scaled == np.rint(scaled))
    if not source.subnormals:
        held &= (np.abs(values) >= source.min_normal) | (values == 0)
    for bits in source.encode(values[held]).tolist():
        found += [bits + near for near in (0, 1, -1) if 0 <= bits + near < 2 * source.sign_bit]
    return list(dict.fromkeys([*found, *encodings(source)]))


def _half_ulp(first: int, fmt: Format) -> int:
    """Give half a unit in the last place of the first, or the smallest number."""
    field = (first & (fmt.sign_bit - 1)) >> fmt.fraction_bits
    if field > fmt.precision:
        return (field - fmt.precision) << fmt.fraction_bits
    return 1 << max(0, field - 2)  # 2^(field - precision - bias) in units of the smallest subnormal


_RELATIONS: tuple[Partner, ...] = (
    lambda first, fmt: first ^ fmt.sign_bit,
    lambda first, fmt: first,
    lambda first, fmt: first ^ fmt.sign_bit ^ 1,
    lambda first, fmt: first ^ 1,
    lambda first, fmt: _half_ulp(first, fmt),
    lambda first, fmt: _half_ulp(first, fmt) | fmt.sign_bit,
    lambda first, fmt: _half_ulp(first, fmt) | first & fmt.sign_bit,
    lambda first, fmt: _half_ulp(first, fmt) + 1,
    lambda first, fmt: _half_ulp(first, fmt) + (1 << fmt.fraction_bits - 1),
)
"""Second operands that cancel, equal, tie with, or nearly tie with the first."""


def _hash(stream: int, index: int) -> int:
    return random_bits(key_of(stream), index)


def different(fmt: Format) -> list[int]:
    """List the entries of `encodings`, each once."""
    return list(dict.fromkeys(encodings(fmt)))


def one(fmt: Format) -> int:
    """Give the encoding of 1."""
    return fmt.bias << fmt.fraction_bits


def simple(fmt: Format, index: int) -> int:
    """Give a number near one, the same for the same index."""
    return _picked(fmt, "moderate", index)


def far(fmt: Format, index: int) -> int:
    """Give a number of any exponent, the same for the same index."""
    return _picked(fmt, "swamping", index)


def _picked(fmt: Format, style: str, index: int) -> int:
    table = styled(fmt, style)
    return table[_hash(7, index) % len(table)]
