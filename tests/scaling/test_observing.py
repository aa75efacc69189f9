"""Overflows as frameworks look for them: by a sum, after unscaling; and a loss that is scaled in float32."""

import math

import numpy as np
import pytest

from fp16sim.autograd.tensor import Tensor
from fp16sim.scaling import Decision, unscale
from fp16sim.scaling.observing import in_float32, observe_sums, observe_unscaled


@pytest.mark.parametrize(
    ("gradients", "overflow", "nan", "amax"),
    [
        ([np.float32([3e38, 3e38])], True, False, 1.5e38),  # a false alarm: every element is finite
        ([np.float32([3e38]), np.float32([3e38])], False, False, 1.5e38),  # a sum for each gradient
        ([np.float32([math.inf, 1])], True, False, math.inf),
        ([np.float32([math.inf, -math.inf])], True, False, math.inf),
        ([np.float16([[65504, 65504], [65504, 1]])], False, False, 32752.0),
        ([np.float16([math.nan]), None], True, True, math.inf),
        ([], False, False, 0.0),
        ([np.zeros((0,), np.float32), None], False, False, 0.0),
    ],
)
def test_sums(gradients, overflow, nan, amax):
    found = observe_sums(gradients, 2.0)
    assert (found.overflow, found.nan, found.checked) == (overflow, nan, True)
    assert found.amax == pytest.approx(amax, rel=1e-6)  # 3e38 in float32


def test_unscaled_gradients():
    assert not observe_unscaled([np.float16([1.0]), None], Decision(True, 8.0)).overflow
    assert observe_unscaled([np.float32([1.0])], Decision(True, 2.0**-128)).overflow
    assert observe_unscaled([np.float32([0.0])], Decision(True, 0.0)).nan
    assert observe_unscaled([np.float32([math.inf])], Decision(True, 2.0)).overflow
    # inf/2^200 is infinity times a reciprocal that is 0 in float32
    assert observe_unscaled([np.float32([math.inf])], Decision(True, 2.0**200)).nan
    assert observe_unscaled([np.float32([6.0])], Decision(True, 2.0)).amax == 3.0
    assert observe_unscaled([], Decision(True, 0.0)).overflow is False


def test_a_float16_gradient_through_float32():
    """Rounded to float16 after the product; in float16 the reciprocal itself would be 0."""
    decision = Decision(True, 2.0**25, dtype="float32_then_tensor")
    found = unscale(np.float16([65504, 2.0**-24]), decision)
    assert found.dtype == np.float16
    assert found.tolist() == [float(np.float16(65504 * 2.0**-25)), 0.0]
    assert unscale(np.float16([65504]), Decision(True, 2.0**25, dtype="tensor")).tolist() == [0.0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_a_loss_in_float32(dtype):
    scaled = in_float32(Tensor(np.float32(3)).cast(dtype), 2.0**40)
    assert (scaled.dtype, scaled.item()) == (np.float32, 3 * 2.0**40)


def test_a_float64_loss_stays():
    assert in_float32(Tensor(np.float64(0.1)), 3.0).data.dtype == np.float64
