"""Philox 4x32-10: random bits as a function of a key and a counter, the same on every machine.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011; the constants are
those of the authors' Random123 library. (`numpy.random.Philox` is the 4x64 generator: other numbers.)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["philox4x32"]

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def philox4x32(counter: npt.ArrayLike, key: tuple[int, int]) -> npt.NDArray[np.uint32]:
    """Encrypt counters of four 32-bit words in ten rounds.

    Parameters
    ----------
    counter : array of integers below 2^32, shape (..., 4)
        Each distinct counter gives four independent words.
    key : two integers below 2^32

    Returns
    -------
    uint32 array, shape (..., 4)

    Examples
    --------
    >>> [hex(word) for word in philox4x32([0, 0, 0, 0], (0, 0))]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    words = np.asarray(counter).astype(np.uint64)
    if words.ndim == 0 or words.shape[-1] != 4:
        raise ValueError(
            f"a counter of shape {words.shape}: Philox 4x32 takes four words along the last axis"
        )
    # A product of two 32-bit words fits 64 bits, so nothing below ever wraps by accident.
    c0, c1, c2, c3 = (words[..., position] & _LOW for position in range(4))
    for turn in range(10):
        k0, k1 = (
            np.uint64((start + turn * step) & 0xFFFFFFFF) for start, step in zip(key, _WEYL, strict=True)
        )
        first, second = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            (second >> _HALF) ^ c1 ^ k0,
            second & _LOW,
            (first >> _HALF) ^ c3 ^ k1,
            first & _LOW,
        )
    return np.stack([c0, c1, c2, c3], axis=-1).astype(np.uint32)
