"""Operands where arithmetic goes wrong: subnormals, ties, cancellation, overflow, signed zeros, NaNs.

One encoding at a time, for tests of slow code, drawn from a `random.Random`; Hypothesis has
`fp16sim.testing.strategies.encodings`.
Formats are IEEE 754 interchange formats.
"""

from __future__ import annotations

import random

FORMATS = {  # exponent bits, precision
    "binary16": (5, 11),
    "bfloat16": (8, 8),
    "tf32": (8, 11),
    "binary32": (8, 24),
    "binary64": (11, 53),
    "e5m2": (5, 3),
}


def edges(fmt: str) -> list[int]:
    """List the encodings at the ends of things, of both signs; NaNs quiet and signalling."""
    exponent_bits, precision = FORMATS[fmt]
    trailing = precision - 1
    one = (2 ** (exponent_bits - 1) - 1) << trailing
    infinity = (2**exponent_bits - 1) << trailing
    normal = 1 << trailing
    ends = (0, normal, one, infinity)
    positive = {e + d for e in ends for d in (-2, -1, 0, 1, 2) if e + d >= 0}
    positive |= {normal >> 1, (normal >> 1) + 1, one + normal, one + 3 * normal // 2, one - normal}
    positive |= {infinity - normal, infinity + (normal >> 1), infinity + (normal >> 1) + 1, 2 * normal}
    positive = {p for p in positive if p < infinity + normal}
    sign = 1 << (exponent_bits + trailing)
    return sorted(positive | {sign | p for p in positive})


def encoding(rng: random.Random, fmt: str) -> int:
    """Draw an encoding, evenly from: all, edges, subnormals, near overflow, near 1, few significant bits."""
    exponent_bits, precision = FORMATS[fmt]
    trailing = precision - 1
    sign = rng.getrandbits(1) << (exponent_bits + trailing)
    top = 2**exponent_bits - 2
    kind = rng.randrange(6)
    if kind == 0:
        return rng.getrandbits(exponent_bits + precision)
    if kind == 1:
        return rng.choice(edges(fmt))
    if kind == 2:
        return sign | rng.getrandbits(trailing)
    if kind == 3:
        return sign | rng.randint(top - 2, top) << trailing | rng.getrandbits(trailing)
    if kind == 4:
        spread = rng.randint(-precision - 2, precision + 2)
        field = max(0, min(top, 2 ** (exponent_bits - 1) - 1 + spread))
        return sign | field << trailing | rng.getrandbits(trailing)
    few = 1 << rng.randrange(trailing) | 1 << rng.randrange(trailing)
    return sign | rng.randint(0, top) << trailing | few


def operands(rng: random.Random, fmt: str, arity: int) -> tuple[int, ...]:
    """Draw operands; every other one is related to the last: a neighbour, an opposite, a half ulp of it."""
    exponent_bits, precision = FORMATS[fmt]
    width = exponent_bits + precision
    drawn = [encoding(rng, fmt)]
    for _ in range(arity - 1):
        if rng.getrandbits(1):
            drawn.append(encoding(rng, fmt))
        else:
            exponents = rng.choice((0, 0, 1, precision - 1, precision, precision + 1)) << (precision - 1)
            sign = rng.getrandbits(1) << (width - 1)
            drawn.append(((drawn[-1] ^ sign) + rng.randint(-2, 2) - exponents) % 2**width)
    return tuple(drawn)


def conversion_input(rng: random.Random, source: str, target: str) -> int:
    """Draw an encoding of `source`; half of them lie at or beside a value of `target` or a tie."""
    if rng.getrandbits(1):
        return encoding(rng, source)
    (source_bits, source_precision), (target_bits, target_precision) = FORMATS[source], FORMATS[target]
    sign, code = divmod(encoding(rng, target), 2 ** (target_bits + target_precision - 1))
    field, trailing = divmod(code, 2 ** (target_precision - 1))
    if field == 0 and trailing:  # a subnormal, normalised
        shift = target_precision - trailing.bit_length()
        field, trailing = 1 - shift, (trailing << shift) - 2 ** (target_precision - 1)
    extra = source_precision - target_precision
    field += 2 ** (source_bits - 1) - 2 ** (target_bits - 1)
    if extra < 0 or not 0 <= field < 2**source_bits:
        return encoding(rng, source)
    # The tie of a subnormal lies higher up, so any bit may be one.
    tie = rng.choice((0, 1 << max(extra - 1, 0), 1 << rng.randrange(source_precision - 1)))
    bits = (field << (source_precision - 1) | trailing << extra) + tie + rng.choice((-1, 0, 0, 1))
    magnitude = max(0, bits) % 2 ** (source_bits + source_precision - 1)
    return sign << (source_bits + source_precision - 1) | magnitude
