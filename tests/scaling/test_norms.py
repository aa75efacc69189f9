"""The float32 norm that fairseq and guided-diffusion test."""

import math

import numpy as np
import pytest

from fp16sim.scaling.norms import float32_norm, observe_norm


def in_order(values):
    total = np.float32(0)
    for value in values:
        total = np.float32(total + np.float32(value) * np.float32(value))
    return np.sqrt(total)


def test_sums_go_in_order_and_each_step_is_rounded():
    rng = np.random.default_rng(3)
    arrays = [rng.normal(size=(70, 50)).astype(np.float32), None, rng.normal(size=11).astype(np.float16)]
    flat = [x for array in arrays if array is not None for x in array.astype(np.float32).reshape(-1)]
    assert float32_norm(arrays) == in_order(flat)
    assert float32_norm(arrays) != np.float32(math.sqrt(sum(float(x) ** 2 for x in flat)))


@pytest.mark.parametrize(
    ("arrays", "norm"),
    [
        ([], 0.0),
        ([None, np.zeros((0, 3), np.float32)], 0.0),
        ([np.float16([65504.0, -65504.0])], float(in_order([65504.0, 65504.0]))),
        ([np.float32([1e-30])], 0.0),  # the square underflows
        ([np.float32([1.8e19])], float(in_order([1.8e19]))),
        ([np.float32([1.9e19])], math.inf),
        ([np.float32([-np.inf])], math.inf),
    ],
)
def test_norms(arrays, norm):
    assert float(float32_norm(arrays)) == norm


def test_nan():
    assert np.isnan(float32_norm([np.float16([np.nan, 1.0])]))
    found = observe_norm([np.float32([np.nan, 1.0])], math.nan, 2.0)
    assert (found.overflow, found.nan, found.amax) == (True, True, math.inf)
    assert observe_norm([np.float32([-8.0])], 8.0, 2.0).amax == 4
    assert observe_norm([np.float32([-8.0])], 8.0, 0.0).amax == math.inf
