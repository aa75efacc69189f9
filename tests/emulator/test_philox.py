"""Philox 4x32-10 against the known answers that Random123 ships (its file kat_vectors)."""

import numpy as np
import pytest

from fp16sim.emulator.philox import philox4x32

KNOWN = [
    ([0, 0, 0, 0], (0, 0), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, (0xFFFFFFFF,) * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        (0xA4093822, 0x299F31D0),
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_known_answers(counter, key, expected):
    assert philox4x32(counter, key).tolist() == expected


def scalar_philox(counter, key):
    """The generator in Python integers, word by word."""
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        p, q = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (q >> 32) ^ c1 ^ k0, q & 0xFFFFFFFF, (p >> 32) ^ c3 ^ k1, p & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return [c0, c1, c2, c3]


def test_arrays_equal_the_scalar_definition():
    counters = np.random.default_rng(0).integers(0, 2**32, (5, 7, 4))
    found = philox4x32(counters, (0xDEADBEEF, 0xFFFFFFF0))
    assert found.dtype == np.uint32
    expected = [scalar_philox([int(w) for w in c], (0xDEADBEEF, 0xFFFFFFF0)) for c in counters.reshape(-1, 4)]
    assert found.reshape(-1, 4).tolist() == expected


def test_a_counter_has_four_words():
    with pytest.raises(ValueError, match="four words"):
        philox4x32([1, 2, 3], (0, 0))
