"""Encodings drawn to hurt: subnormals, ties, cancellation, the overflow edge, infinities, NaN, signed zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.emulator.formats import Format

STYLES = ("any", "near_one", "subnormal", "large", "special", "cancelling", "zeros")


def draw(
    rng: np.random.Generator, fmt: Format, shape: tuple[int, ...], style: str, finite: bool = False
) -> npt.NDArray[Any]:
    """Draw encodings of a format in one of `STYLES`, without infinities and NaN if they must be finite."""
    one = (0 - fmt.emin + 1) << fmt.fraction_bits
    step = 1 << fmt.fraction_bits
    signs = rng.integers(0, 2, shape).astype(fmt.uint) * np.array(fmt.sign_bit, fmt.uint)
    if style == "near_one":
        bits = np.clip(rng.integers(one - 3 * step, one + 3 * step, shape), 0, fmt.max_bits)
    elif style == "subnormal":
        bits = rng.integers(0, 2 * step, shape)
    elif style == "large":
        bits = rng.integers(fmt.max_bits - 4 * step, fmt.max_bits + 1, shape)
    elif style == "zeros":
        bits = np.where(rng.random(shape) < 0.8, 0, rng.integers(0, fmt.max_bits + 1, shape))
    elif style == "special":
        pool = [0, 1, 2, step - 1, step, one - 1, one, one + 1, fmt.max_bits - 1, fmt.max_bits]
        pool += [] if finite else [fmt.nan_bits, fmt.sign_bit - 1]
        pool += [] if finite or fmt.inf_bits is None else [fmt.inf_bits, fmt.inf_bits + 1]
        bits = rng.choice(np.array(pool), shape)
    elif style == "cancelling":  # few magnitudes, so that signed sums of products vanish
        bits = rng.choice(
            np.array([one, one + 1, one + step, 1, one - 10 * step if one > 10 * step else 2]), shape
        )
    else:
        bits = rng.integers(0, fmt.sign_bit, shape)
        if finite:
            bits = np.minimum(bits, fmt.max_bits)
    return np.asarray(bits).astype(fmt.uint) | signs
