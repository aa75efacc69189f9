"""Delayed scaling: the formula step by step in float32, its edges, what a history does to it, and its state."""

import math

import numpy as np
import pytest

from fp16sim import scaling
from fp16sim.scaling import Moments, Observation, TensorScaler, TensorStatistics

LARGEST = {"E4M3": 448.0, "E5M2": 57344.0, "HYBRID": 57344.0, "binary16": 65504.0}


def formula(largest, amax, margin, old):
    """Write the framework's lines out in NumPy's float32: `_default_sf_compute`."""
    with np.errstate(all="ignore"):
        a = np.float32(amax)
        s = np.float32(np.float32(largest) / a) / np.float32(2.0**margin)
    s = s if a > 0 else np.float32(old)
    s = s if np.isfinite(a) else np.float32(old)
    return float(np.finfo(np.float32).max if np.isinf(s) else s)


def scales(scaler, amaxes, name="x"):
    found = []
    for amax in amaxes:
        scaler, _ = scaler.update(Observation(amax={name: amax}))
        found.append(scaler.scale[name])
    return found


@pytest.mark.parametrize("margin", [0, 3, -2])
@pytest.mark.parametrize("fp8_format", LARGEST)
def test_the_sequence_of_zero_infinity_nan_and_448_by_the_most_recent(fp8_format, margin):
    scaler = scaling.make("delayed", fp8_format=fp8_format, amax_compute_algo="most_recent", margin=margin)
    amaxes, old, expected = [0.0, math.inf, math.nan, 448.0, 0.1, math.nan, 3.0], 1.0, []
    for amax in amaxes:
        old = formula(LARGEST[fp8_format], amax, margin, old)
        expected.append(old)
    assert scales(scaler, amaxes) == expected
    assert expected[:3] == [1.0, 1.0, 1.0]
    assert expected[3] == np.float32(LARGEST[fp8_format] / 448.0) / 2.0**margin


def test_the_same_sequence_by_the_largest_of_a_history_that_keeps_it():
    assert scales(scaling.make("delayed", fp8_format="E4M3"), [0.0, math.inf, math.nan, 448.0]) == [1.0] * 4
    short = scaling.make("delayed", fp8_format="E4M3", amax_history_len=2)
    amaxes = [0.0, math.inf, math.nan, 448.0, 7.0, 3.5, 1.75]
    # maxima: 0, inf, nan, nan, 448, 7, 3.5
    assert scales(short, amaxes) == [1.0, 1.0, 1.0, 1.0, 1.0, 64.0, 128.0]


def test_the_maximum_is_that_of_the_last_steps_only():
    scaler = scaling.make("delayed", fp8_format="E4M3", amax_history_len=3)
    assert scales(scaler, [448.0, 1.75, 3.5, 7.0, 1.75, 1.75, 1.75]) == [
        1.0,
        1.0,
        1.0,
        64.0,
        64.0,
        64.0,
        256.0,
    ]


@pytest.mark.parametrize("amax", [2.0**-149, 2.0**-140, 1e-36, 3.4e38, 0.1, 1 / 3])
def test_roundings_and_extremes_are_those_of_float32(amax):
    for margin in (0, 100, -100):
        scaler = scaling.make("delayed", fp8_format="E5M2", amax_compute_algo="most_recent", margin=margin)
        assert scales(scaler, [amax]) == [formula(57344.0, amax, margin, 1.0)]


def test_each_tensor_has_its_own_history():
    scaler = scaling.make("delayed", fp8_format="E4M3")
    scaler, first = scaler.update(Observation(amax={"x": 448.0, "y": 3.5}))
    scaler, second = scaler.update(Observation(amax={"y": 1.75}))
    assert dict(scaler.scale) == {"x": 1.0, "y": 128.0}
    assert (first.divide_by["y"], second.divide_by["y"]) == (1.0, 128.0)  # what scaled the step
    assert scaler.scale["new"] == 1.0
    assert isinstance(scaler, TensorScaler)
    assert scaler.scale_for("y", TensorStatistics(Moments(9.0, 0.0, 1.0))) == 128.0


def test_an_overflow_skips_the_step_and_keeps_the_scale():
    scaler = scaling.make("delayed", amax_compute_algo="most_recent")
    scaler, _ = scaler.update(Observation(amax={"x": 7.0}))
    following, decision = scaler.update(Observation(overflow={"x": True}, amax={"x": math.inf}))
    assert (decision.apply, following.scale["x"]) == (False, scaler.scale["x"])
    following, decision = scaler.update(Observation(overflow=True))  # without amax: infinite
    assert (decision.apply, following.amax_history["x"]) == (False, (7.0, math.inf))
    assert scaler.update(Observation())[0].amax_history["x"] == (7.0, 0.0)


def test_the_state_survives_with_its_infinities():
    scaler = scaling.make("delayed", amax_history_len=3, margin=1)
    for amax in (math.nan, math.inf, 5.0):
        scaler, _ = scaler.update(Observation(amax={"x": amax, "y": 2.0}))
    restored = scaling.from_json(scaler.to_json())
    assert repr(restored) == repr(scaler)  # NaN does not equal itself
    assert scales(restored, [8.0, 4.0, 2.0]) == scales(scaler, [8.0, 4.0, 2.0])
    loaded = scaling.make("delayed", amax_history_len=3, margin=1).load_framework_state(
        scaler.framework_state()
    )
    assert repr(loaded) == repr(scaler)
    with pytest.raises(ValueError, match="without 'amax_history'"):
        scaler.load_framework_state({"scale": {}})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fp8_format": "E4M"}, "did you mean 'E4M3'"),
        ({"amax_compute_algo": "mean"}, "amax_compute_algo='mean'"),
        ({"amax_history_len": 0}, "above 0"),
        ({"margin": 0.5}, "an integer"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        scaling.make("delayed", **options)
