"""Colossal-AI's rule: the divisor of a growth step, bounds that 0 switches off, the counters that are not saved."""

import numpy as np
import pytest

from fp16sim import scaling
from fp16sim.scaling import ColossalAIScaler, Observation, unscale

OVERFLOW, FINITE = Observation(overflow=True), Observation()


def walk(scaler, history):
    scales = []
    for letter in history:
        scaler, decision = scaler.update(OVERFLOW if letter == "o" else FINITE)
        assert (decision.apply, decision.divide_by) == (letter == ".", scaler.scale)
        scales.append(scaler.scale)
    return scaler, scales


def test_recorded_trace():
    assert walk(ColossalAIScaler(growth_interval=2), "oo...o.")[1] == [
        65536,
        32768,
        32768,
        65536,
        65536,
        65536,
        65536,
    ]


def test_a_growth_step_applies_half_of_the_gradient():
    scaler, applied = ColossalAIScaler(initial_scale=4.0, growth_interval=2), []
    for _ in range(4):
        gradient = np.float32([scaler.scale])
        scaler, decision = scaler.update(FINITE)
        applied.append(unscale(gradient, decision).item())
    assert applied == [1, 0.5, 1, 0.5]


def test_hysteresis_counts_overflows_since_the_last_growth():
    assert walk(ColossalAIScaler(), "o.o.o")[1] == [65536, 65536, 32768, 32768, 16384]
    for hysteresis in (0, 1):
        assert walk(ColossalAIScaler(hysteresis=hysteresis), "oo")[1] == [32768, 16384]


def test_bounds_and_zero_for_none():
    top = ColossalAIScaler(initial_scale=2.0**31, growth_interval=1)
    assert walk(top, "...")[1] == [2.0**32] * 3
    bottom = {"initial_scale": 2.0, "hysteresis": 1}
    assert walk(ColossalAIScaler(**bottom), "ooo")[1] == [1, 1, 1]
    for none in (0, None, 0.0):
        assert walk(ColossalAIScaler(min_scale=none, **bottom), "ooo")[1] == [1, 0.5, 0.25]
        assert walk(ColossalAIScaler(min_scale=none, **bottom), "o" * 152)[1][-2:] == [0, 0]
        free = ColossalAIScaler(initial_scale=2.0**127, growth_interval=1, max_scale=none)
        assert walk(free, "..")[1] == [np.inf, np.inf]


@pytest.mark.parametrize("interval", [0, -1])
def test_an_interval_below_one_never_grows(interval):
    assert set(walk(ColossalAIScaler(growth_interval=interval), "." * 50)[1]) == {65536}


def test_json_holds_everything_and_the_framework_loses_both_counters():
    history, fresh = "o..o...o.oo.......ooo...", ColossalAIScaler(growth_interval=3)
    whole = walk(fresh, history)[1]
    lost = 0
    for cut in range(len(history)):
        scaler, _ = walk(fresh, history[:cut])
        assert walk(scaling.from_json(scaler.to_json()), history[cut:])[1] == whole[cut:]
        restored = fresh.load_framework_state(scaler.framework_state())
        assert (restored.scale, restored.growth_step, restored.hysteresis_step) == (scaler.scale, 0, 0)
        lost += walk(restored, history[cut:])[1] != whole[cut:]
    assert lost > 0
    # the one that loads keeps its own counters, interval and bounds
    used, _ = walk(ColossalAIScaler(growth_interval=7), "o.")
    assert used.load_framework_state(fresh.framework_state()) == used


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"initial_scale": 0.0}, "above 0"),
        ({"initial_scale": 2.0, "min_scale": 4.0}, "min_scale=4.0: it must be above 0 and not above"),
        ({"min_scale": -1.0}, "min_scale=-1.0"),
        ({"initial_scale": 2.0, "max_scale": 1.0}, "max_scale=1.0: it must be not below"),
        ({"growth_factor": 1.0}, "above 1"),
        ({"backoff_factor": 1.0}, "below 1"),
        ({"hysteresis": -1}, "above -1"),
        ({"growth_interval": 1.5}, "an integer"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        ColossalAIScaler(**options)
    with pytest.raises(ValueError, match=r"scale=-1\.0"):
        ColossalAIScaler().load_framework_state({**ColossalAIScaler().framework_state(), "scale": -1.0})
