"""Both rules of TensorFlow. Traces recorded from the packages are replayed in test_golden_traces.py."""

import math

import numpy as np
import pytest
from fp16sim_scaler_walks import check_refusals, check_states, decisions, walk

from fp16sim import scaling
from fp16sim.autograd.tensor import Tensor
from fp16sim.scaling import Keras2Scaler, TfV1Scaler, observe, scale_loss, unscale

WINDOW = {"tf_v1": "increment_period", "keras2": "dynamic_growth_steps"}
INITIAL = {"tf_v1": "initial_loss_scale", "keras2": "initial_scale"}
BOTH = pytest.mark.parametrize("name", ["tf_v1", "keras2"])


def made(name, window=2, initial=2.0**15):
    return scaling.make(name, **{WINDOW[name]: window, INITIAL[name]: initial})


@BOTH
def test_trace(name):
    assert walk(made(name), "oo...o.")[1] == [16384, 8192, 8192, 16384, 16384, 8192, 8192]


@BOTH
def test_edges(name):
    assert walk(made(name, initial=0.25), "o")[1] == [1.0]  # a backoff that raises the scale
    assert walk(made(name, initial=2.0**127, window=1), "..")[1] == [2.0**127] * 2
    assert walk(made(name, window=0), "..")[1] == [2.0**16, 2.0**17]
    assert walk(made(name, initial=math.inf), "o.o")[1] == [math.inf] * 3
    assert math.isnan(walk(made(name, initial=math.nan), "o")[1][0])


def test_a_multiplier_is_rounded_to_float32():
    scales = walk(TfV1Scaler(initial_loss_scale=1000.0, multiplier=1.1, increment_period=1), ".o")[1]
    grown = np.float32(1000) * np.float32(1.1)
    assert scales == [float(grown), float(grown / np.float32(1.1))]
    assert walk(TfV1Scaler(multiplier=0.5), "o")[1] == [65536.0]


@BOTH
def test_the_unscaled_gradients_are_tested(name):
    scaler = made(name, initial=0.25)
    assert observe(scaler, [np.float32([3e38])]).overflow  # finite until divided by .25
    assert not observe(scaler, [np.float32([3e37])]).overflow


def test_what_a_skip_moves():
    assert [d.advance for d in decisions(Keras2Scaler(), ".o")] == [True, True]
    assert [d.advance for d in decisions(TfV1Scaler(), ".o")] == [None, None]
    assert [d.apply for d in decisions(Keras2Scaler(), ".on")] == [True, False, False]


def test_casts_to_the_format_of_the_tensor():
    assert scale_loss(Keras2Scaler(initial_scale=2.0**16), Tensor(np.float16(0.5))).item() == math.inf
    (decision,) = decisions(Keras2Scaler(initial_scale=2.0**25), ".")
    assert unscale(np.float16([1024]), decision).tolist() == [0.0]
    assert unscale(np.float32([1024]), decision).tolist() == [2.0**-15]


@BOTH
def test_states_and_refusals(name):
    check_states(made(name, window=3))
    check_refusals(made(name), {INITIAL[name]: 1e39}, {INITIAL[name]: "8"}, {WINDOW[name]: 2.5})
    assert made(name).framework_state() == {"current_loss_scale": 32768.0, "good_steps": 0}
