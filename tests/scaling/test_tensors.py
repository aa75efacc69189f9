"""What a scaler of tensors is told: moments in binary64, in one order."""

import math

import numpy as np
import pytest

from fp16sim.autograd.arithmetic import round_array
from fp16sim.scaling import Moments, Scales, TensorScaler, make, moments


def in_order(values):
    total = 0.0
    for value in values:
        total += value
    return total


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_moments_are_sums_in_order(dtype):
    values = np.random.default_rng(3).standard_normal((7, 9)) * 10
    array = round_array(values, dtype)
    flat = [float(x) for x in array.astype(np.float64).ravel()]
    mean = in_order(flat) / 63
    deviation = math.sqrt(in_order((x - mean) * (x - mean) for x in flat) / 63)
    assert moments(array) == Moments(max(map(abs, flat)), mean, deviation)


def test_moments_of_what_is_empty_or_not_finite():
    assert moments(np.zeros((0, 3), np.float32)) == Moments(0.0, 0.0, 0.0)
    assert moments(np.float16([np.inf, 1])).amax == math.inf
    found = moments(np.float32([np.nan, 1]))
    assert found.amax == math.inf
    assert math.isnan(found.mean)


def test_which_scalers_are_of_tensors():
    assert [isinstance(make(name), TensorScaler) for name in ("torch", "robust")] == [False, False]
    assert [isinstance(make(name), TensorScaler) for name in ("adaptive", "delayed", "unit")] == [True] * 3


def test_scales_give_a_default_and_list_what_is_named():
    scales = Scales({"a": 2.0}, 8.0)
    assert (scales["a"], scales["b"], dict(scales), len(scales)) == (2.0, 8.0, {"a": 2.0}, 1)
    assert repr(scales) == "Scales({'a': 2.0}, 8.0)"
