"""Streams of random numbers: exact integers, quantiles against the standard library, and independence."""

from math import log, ulp
from statistics import NormalDist

import numpy as np
import pytest

from fp16sim.emulator.philox import philox4x32
from fp16sim.nn import random


def test_integers_are_the_top_bits_of_philox_words():
    seed, layer, step = 0x123456789ABCDEF0, 3, 9
    expected = [
        int(word) >> 8
        for index in range(3)
        for word in philox4x32([index, 0, layer, step], (0x9ABCDEF0, 0x12345678))
    ]
    assert random.uniform_integers(seed, 10, layer, step).tolist() == expected[:10]


def test_streams_differ_and_prefixes_agree():
    base = random.uniform_integers(0, 100)
    assert base[:37].tolist() == random.uniform_integers(0, 37).tolist()
    for other in ({"seed": 1}, {"seed": 2**32}, {"layer": 1}, {"step": 1}):
        stream = random.uniform_integers(**{"seed": 0, "count": 100, **other})
        assert (stream != base).sum() > 95


def test_normals_are_the_quantiles_of_their_uniforms():
    count = 20_000
    uniforms = random.uniform_integers(5, count)
    exact = NormalDist()
    found = random.normals(5, count)
    worst = max(
        abs(float(x) - exact.inv_cdf((int(k) + 0.5) / 2**24)) for k, x in zip(uniforms, found, strict=True)
    )
    assert worst < 1e-14  # the same algorithm, with another logarithm in the tails


def test_extreme_uniforms_stay_in_reach(monkeypatch):
    extremes = np.array([0, 1, 2**23 - 1, 2**23, 2**24 - 2, 2**24 - 1], np.uint32)
    monkeypatch.setattr(random, "uniform_integers", lambda *_: extremes)
    found = random.normals(0, 6)
    expected = [NormalDist().inv_cdf((int(k) + 0.5) / 2**24) for k in extremes]
    assert np.allclose(found, expected, rtol=0, atol=1e-14)
    assert np.abs(found).max() < 5.42


def test_moments():
    sample = random.normals(11, 200_000)
    # Standard errors: 1/sqrt(n) = .0022, sqrt(2/n) = .0032, sqrt(15/n) = .0087, sqrt(96/n) = .022.
    assert abs(sample.mean()) < 0.009
    assert abs((sample**2).mean() - 1) < 0.013
    assert abs((sample**3).mean()) < 0.035
    assert abs((sample**4).mean() - 3) < 0.09


def test_logarithm_is_close():
    x = np.exp2(np.random.default_rng(1).uniform(-30, 3, 5000))
    found = random._log(x)
    worst = max(abs(float(a) - log(float(b))) / ulp(log(float(b))) for a, b in zip(found, x, strict=True))
    assert worst <= 4


def test_permutation_moves_everything_once():
    order = random.permutation(3, 1000, step=2)
    assert sorted(order.tolist()) == list(range(1000))
    assert (order != np.arange(1000)).sum() > 950
    assert order.tolist() != random.permutation(3, 1000, step=3).tolist()


@pytest.mark.parametrize("bad", [{"seed": -1}, {"seed": 2**64}, {"layer": 2**32}, {"step": 1.5}])
def test_stream_numbers_are_checked(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        random.uniform_integers(**{"seed": 0, "count": 1, **bad})
