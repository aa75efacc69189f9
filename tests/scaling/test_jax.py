"""The rules of jmp and flax. Traces recorded from the packages are replayed in test_golden_traces.py."""

import math

import numpy as np
import pytest
from fp16sim_scaler_walks import check_refusals, check_states, decisions, walk

from fp16sim.autograd.tensor import Tensor
from fp16sim.scaling import FlaxScaler, JmpScaler, observe, scale_loss, unscale

LARGEST = float(np.finfo(np.float32).max)


def test_traces():
    assert walk(JmpScaler(period=2), "oo...o.")[1] == [16384, 8192, 8192, 16384, 16384, 8192, 8192]
    scales = walk(FlaxScaler(growth_interval=2), "oo...o.")[1]
    assert scales == [32768, 16384, 16384, 16384, 32768, 16384, 16384]


def test_flax_grows_one_step_late():
    scales = walk(FlaxScaler(scale=1.0, growth_interval=2), "." * 9)[1]
    assert scales == [1, 1, 2, 2, 2, 4, 4, 4, 8]


def test_ends_of_jmp():
    assert walk(JmpScaler(loss_scale=0.25), "o")[1] == [1.0]  # a backoff that raises the scale
    assert walk(JmpScaler(loss_scale=2.0**127, period=1), "..")[1] == [2.0**127] * 2
    assert walk(JmpScaler(loss_scale=2.0**-126, min_loss_scale=0.0), "o")[1] == [0.0]  # XLA flushes 2^-127
    assert walk(JmpScaler(loss_scale=9.0, factor=3, period=1), ".o")[1] == [27, 9]
    for period in (0, -3):
        assert walk(JmpScaler(period=period), "." * 9)[1] == [32768] * 9
    assert math.isnan(walk(JmpScaler(loss_scale=math.nan), "o")[1][0])


def test_ends_of_flax():
    assert walk(FlaxScaler(scale=2.0**127, growth_interval=0), "..")[1] == [LARGEST, LARGEST]
    assert walk(FlaxScaler(scale=2.0**-126), "oo")[1] == [2.0**-126] * 2
    assert walk(FlaxScaler(scale=2.0**-126, minimum_scale=None), "o")[1] == [0.0]
    assert walk(FlaxScaler(scale=math.inf, growth_interval=0), "oo")[1] == [math.inf] * 2
    assert walk(FlaxScaler(growth_interval=-1), "." * 9)[1] == [65536] * 9


def test_jmp_forgets_its_minimum():
    scaler = JmpScaler(loss_scale=1024.0, min_loss_scale=512.0)
    assert walk(scaler, "oooo")[1] == [512] * 4
    loaded = scaler.load_framework_state(scaler.framework_state())
    assert walk(loaded, "oooo")[1] == [512, 256, 128, 64]


def test_flax_scales_the_first_float16_loss_in_float16():
    scaler, loss = FlaxScaler(), Tensor(np.float16(0.5))
    assert scale_loss(scaler, loss).dtype == np.float16
    assert scale_loss(scaler, loss).item() == math.inf
    following, _ = walk(scaler, "o")
    assert (scale_loss(following, loss).dtype, scale_loss(following, loss).item()) == (np.float32, 16384)


@pytest.mark.parametrize(
    ("scaler", "method"), [(JmpScaler(loss_scale=3.0), "reciprocal"), (FlaxScaler(scale=3.0), "divide")]
)
def test_gradients_are_unscaled_in_float32_and_then_tested(scaler, method):
    (decision,) = decisions(scaler, ".")
    assert decision.method == method
    assert unscale(np.float16([1]), decision).dtype == np.float32
    small = type(scaler)(**{scaler.initial: 0.25})
    assert observe(small, [np.float32([3e38])]).overflow
    assert not observe(small, [np.float32([3e37])]).overflow
    assert observe(type(scaler)(**{scaler.initial: 2.0**-130}), [np.float32([0.0])]).nan  # 0/0 for XLA


@pytest.mark.parametrize("scaler", [JmpScaler(period=3), FlaxScaler(growth_interval=3)])
def test_states(scaler):
    check_states(scaler)


def test_refusals():
    check_refusals(JmpScaler(), {"loss_scale": "8"}, {"period": 2.5}, {"min_loss_scale": 1e39})
    check_refusals(FlaxScaler(), {"scale": 1e39}, {"growth_factor": "2"}, {"growth_interval": None})
