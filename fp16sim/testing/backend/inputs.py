"""Encodings that backends get wrong: signed zeros, subnormals, ties, cancellation, swamping, infinities, NaN.

An encoding is drawn from a table of its format that begins with the simplest numbers, so that what Hypothesis shrinks
ends there. Tables are made by a fixed hash: every run on every machine draws the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fp16sim.emulator.formats import Format
from fp16sim.emulator.random_bits import key_of, random_bits

__all__ = [
    "STYLES",
    "Draw",
    "chosen",
    "composed",
    "encodings",
    "far",
    "integers",
    "keys",
    "one",
    "partners",
    "resolved",
    "simple",
    "sources",
    "styled",
    "table",
]

STYLES = ("moderate", "cancelling", "swamping", "edges", "zeros")
"""Kinds of vectors: few bits near one; few magnitudes; far exponents, all finite; anything; signed zeros."""

Partner = int | Callable[[int, Format], int]
_RANDOM = 250

Draw = Callable[[Any], Any]
"""Draws from a strategy of Hypothesis."""


def composed(build: Callable[[Draw], Any]) -> Any:
    """Make a strategy of what a function draws: one for a whole search, as to make one takes long."""
    from hypothesis import strategies as st

    def drawn(draw: Draw) -> Any:
        return build(draw)

    return st.composite(drawn)()


def chosen(choices: tuple[Any, ...]) -> Any:
    """Draw one of some; what is shrunk ends at the first."""
    return _sampled(choices, tuple(map(type, choices)))  # by their types too: False equals 0


@cache
def _sampled(choices: tuple[Any, ...], _: tuple[type, ...]) -> Any:
    from hypothesis import strategies as st

    return st.sampled_from(choices)


@cache
def encodings(fmt: Format) -> Any:
    """Draw one encoding: of an edge, a subnormal, a number near one or with few bits, or any."""
    from hypothesis import strategies as st

    return st.sampled_from(_table(fmt))


@cache
def partners(fmt: Format) -> Any:
    """Draw a second operand: an encoding, or a rule that makes one of the first, see `resolved`."""
    from hypothesis import strategies as st

    table = _table(fmt)
    rules: list[Partner] = [*_RELATIONS] * (len(table) // len(_RELATIONS))
    return st.sampled_from([*table, *rules])


def resolved(first: int, partner: Partner, fmt: Format) -> int:
    """Give the second operand that goes with the first."""
    return partner(first, fmt) if callable(partner) else partner


@cache
def styled(fmt: Format, style: str) -> Any:
    """Draw an encoding of a vector of one of `STYLES`."""
    from hypothesis import strategies as st

    return st.sampled_from(_style(fmt, style))


@cache
def sources(source: Format, target: Format) -> Any:
    """Draw what to convert: encodings of the source, half of them values of the target, ties, and what lies beside."""
    from hypothesis import strategies as st

    return st.sampled_from(_around(source, target))


@cache
def integers(unsigned: bool) -> Any:
    """Draw 64-bit integers: small, around powers of two, at the ends, any."""
    from hypothesis import strategies as st

    table = list(range(10))
    for power in (3, 4, 5, 8, 9, 11, 12, 16, 24, 25, 31, 32, 53, 62, 63):
        table += [(1 << power) + near for near in (-2, -1, 0, 1, 2, 3)]
        table += (
            [(3 << power) - 1, (3 << power) + 1] if power < 62 else []
        )  # not far from ties of wide formats
    table += [65503, 65504, 65519, 65520, 65521, 65536]
    table += [_hash(1, i) << 32 >> (i % 64) for i in range(100)]
    low, high = (0, 2**64 - 1) if unsigned else (-(2**63), 2**63 - 1)
    if not unsigned:
        table = [sign * n for n in table for sign in (1, -1)] + [low]
    return st.sampled_from([n for n in dict.fromkeys([*table, high, high - 1]) if low <= n <= high])


def keys() -> Any:
    """Draw the key of stochastic rounding; None where each element has bits of its own."""
    return chosen((None, None, 0, key_of(7, 3), 2**64 - 1))


def words_drawn() -> Any:
    """Draw the 32 bits of one element."""
    return chosen(_bits())


@cache
def _bits() -> tuple[int, ...]:
    near_half = (2**31 + n for n in (-1, 0, 1))
    return (0, 2**32 - 1, *near_half, 2**30, 3 << 30, 1, *(_hash(2, i) for i in range(12)))


@cache
def _table(fmt: Format) -> list[int]:
    """List the encodings to draw, the simplest first; with either sign."""
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
def _style(fmt: Format, style: str) -> list[int]:
    one, step, sign = fmt.bias << fmt.fraction_bits, 1 << fmt.fraction_bits, fmt.sign_bit
    if style == "edges":
        return _table(fmt)
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
def _around(source: Format, target: Format) -> list[int]:
    """List encodings of the source at and beside values of the target and the ties between them."""
    if target.precision > 24:  # it holds all values of the others
        return _table(source)
    found: list[int] = list(_table(source)[:40])
    with np.errstate(all="ignore"):
        ends = np.array([n for n in _table(target) if n & (target.sign_bit - 1) < target.max_bits])
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
    return list(dict.fromkeys([*found, *_table(source)]))


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


def table(fmt: Format) -> list[int]:
    """List the encodings that `encodings` draws, each once."""
    return list(dict.fromkeys(_table(fmt)))


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
    table = _style(fmt, style)
    return table[_hash(7, index) % len(table)]
