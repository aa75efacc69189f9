"""Keras 3's rule. Traces recorded from keras are replayed in test_golden_traces.py."""

import math

import numpy as np
from fp16sim_scaler_walks import check_refusals, check_states, decisions, walk

from fp16sim.autograd.tensor import Tensor
from fp16sim.scaling import Keras3Scaler, Observation, observe, scale_loss, unscale


def test_trace():
    scales = walk(Keras3Scaler(dynamic_growth_steps=2), "oo...o.")[1]
    assert scales == [16384, 8192, 8192, 16384, 16384, 8192, 8192]


def test_no_bounds():
    scaler, scales = walk(Keras3Scaler(initial_scale=2.0**127, dynamic_growth_steps=1), ".")
    assert scales == [math.inf]
    assert walk(scaler, "oo")[1] == [math.inf] * 2
    assert walk(Keras3Scaler(initial_scale=2.0**-149), "o.")[1] == [0.0, 0.0]


def test_a_nan_is_applied_at_a_scale_of_zero():
    scaler, _ = walk(Keras3Scaler(initial_scale=2.0**-149), "o")
    scaled = np.float32([1.0]) * np.float32(scaler.scale)
    _, decision = scaler.update(observe(scaler, [scaled]))
    assert decision.apply
    assert np.isnan(unscale(scaled, decision)).all()


def test_windows():
    for never in (0, -3):
        assert walk(Keras3Scaler(dynamic_growth_steps=never), "." * 20)[1][-1] == 32768
    assert walk(Keras3Scaler(dynamic_growth_steps=1), "...")[1] == [2.0**16, 2.0**17, 2.0**18]


def test_float32_division():
    (decision,) = decisions(Keras3Scaler(initial_scale=3.0), ".")
    found = unscale(np.float16([1, 7]), decision)
    assert found.tobytes() == (np.float32([1, 7]) / np.float32(3)).tobytes()


def test_the_loss_is_scaled_in_float32():
    scaled = scale_loss(Keras3Scaler(initial_scale=2.0**20), Tensor(np.float16(3)))
    assert (scaled.dtype, scaled.item()) == (np.float32, 3 * 2.0**20)


def test_states_and_refusals():
    check_states(Keras3Scaler(dynamic_growth_steps=3))
    check_refusals(Keras3Scaler(), {"initial_scale": "8"}, {"dynamic_growth_steps": 0.5})
    assert Keras3Scaler().framework_state() == {"step_counter": 0, "dynamic_scale": 32768.0}
    assert Keras3Scaler().update(Observation(overflow={"a": False, "b": True}))[1].apply is False
