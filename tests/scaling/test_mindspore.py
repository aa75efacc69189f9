"""MindSpore's three rules; traces recorded from MindSpore 2.10.0 itself are replayed in test_golden_traces.py."""

import json
import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from fp16sim_scaler_traces import FINITE, OVERFLOW, walk

from fp16sim import scaling
from fp16sim.scaling import (
    MindSporeAmpScaler,
    MindSporeCellScaler,
    MindSporeManagerScaler,
    observe,
    unscale,
)
from fp16sim.scaling.numbers import float32

RECORDED = Path(__file__).parents[1] / "golden" / "scalers" / "mindspore_manager.json"
walk = partial(walk, divisor=float32)
KINDS = [MindSporeManagerScaler, MindSporeAmpScaler, MindSporeCellScaler]


def at(kind, scale, **options):
    return kind(**{kind.initial: scale, **options})


@pytest.mark.parametrize("kind", KINDS)
def test_recorded_trace(kind):
    _, scales = walk(kind(scale_window=2), "oo...o.")
    assert scales == [2.0**23, 2.0**22, 2.0**22, 2.0**23, 2.0**23, 2.0**22, 2.0**22]


@pytest.mark.parametrize("kind", KINDS)
def test_windows_are_exact_and_the_floor_is_one(kind):
    assert walk(at(kind, 1.0, scale_window=3), "." * 7)[1] == [1, 1, 2, 2, 2, 4, 4]
    assert walk(at(kind, 2.0), "ooo")[1] == [1, 1, 1]


def test_the_thousand_and_first_overflow_in_a_row_stops_the_manager():
    scaler, _ = walk(MindSporeManagerScaler(), "o" * 1000)
    following, decision = scaler.update(OVERFLOW)
    assert "1001 overflows in a row" in decision.stop
    assert (following.iteration, following.last_overflow, following.bad_steps) == (1001, 1001, 1001)
    assert walk(scaler, ".")[0].bad_steps == 0


def test_the_manager_takes_a_factor_below_one():
    assert walk(MindSporeManagerScaler(4.0, 0.5, 1), "o.")[1] == [8, 4]


def test_the_manager_keeps_binary64_and_multiplies_by_the_reciprocal():
    assert walk(MindSporeManagerScaler(100.0, 7.0), "o")[1] == [100.0 * (1 / 7.0)]
    assert 100.0 * (1 / 7.0) != 100.0 / 7.0


def test_the_others_keep_float32():
    quotient, reciprocal = np.float32(100) / np.float32(7), np.float32(100) * (np.float32(1) / np.float32(7))
    assert walk(MindSporeAmpScaler(100.0, 7), "o")[1] == [float(quotient)]
    assert walk(MindSporeCellScaler(100.0, 7.0), "o")[1] == [float(reciprocal)]
    assert quotient != reciprocal


def test_growth_to_infinity():
    for kind, last in zip(KINDS, (2.0**129, 2.0**127, math.inf), strict=True):
        assert walk(at(kind, 2.0**127, scale_window=1), "..")[1][-1] == last
    scaler, _ = walk(MindSporeAmpScaler(2.0**127, scale_window=2), "..")
    assert (scaler.scale, scaler.counter) == (2.0**127, 0)  # not taken, but the counter starts again
    infinite, _ = walk(at(MindSporeCellScaler, 2.0**127, scale_window=1), ".")
    assert walk(infinite, "ooo")[1] == [math.inf] * 3


@pytest.mark.parametrize("window", [0, -2, 1])
def test_a_window_below_one_grows_at_each_step_of_the_cell(window):
    assert walk(MindSporeCellScaler(1.0, scale_window=window), "..o.")[1] == [2, 4, 2, 4]


def test_the_cell_raises_a_scale_below_one():
    assert walk(MindSporeCellScaler(0.25), "o")[1] == [1]
    assert walk(MindSporeCellScaler(0.0), "o")[1] == [1]


def test_the_cell_takes_a_factor_of_zero():
    scaler = MindSporeCellScaler(4.0, scale_factor=0.0, scale_window=2)
    assert walk(scaler, "o")[1] == [math.inf]
    assert walk(scaler, "..o")[1] == [4, 0, 1]
    assert observe(walk(scaler, "..")[0], [np.float32([0.0])]).overflow  # 0 * inf


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_unscaled_in_their_own_format(kind):
    for exponent, expected in ((24, 2.0**-14), (25, 0.0)):  # the reciprocal 2^-25 is 0 in float16
        _, decision = at(kind, 2.0**exponent).update(FINITE)
        assert unscale(np.float16([1024.0]), decision).tolist() == [expected]
        assert unscale(np.float32([1024.0]), decision).tolist() == [2.0 ** (10 - exponent)]
    lost = observe(at(kind, 2.0**25), [np.float16([np.inf])])
    assert lost.overflow  # inf * 0 is NaN


def test_overflow_is_looked_for_after_unscaling():
    assert observe(MindSporeCellScaler(2.0**-130), [np.float32([1.0])]).overflow
    assert not observe(MindSporeCellScaler(2.0**-100), [np.float32([1.0])]).overflow


@pytest.mark.parametrize("kind", KINDS)
def test_states(kind):
    history, fresh = "o..o...o.oo.......ooo...", kind(scale_window=3)
    whole = walk(fresh, history)[1]
    for cut in range(len(history)):
        scaler, _ = walk(fresh, history[:cut])
        assert walk(scaling.from_json(scaler.to_json()), history[cut:])[1] == whole[cut:]
        restored = fresh.load_framework_state(scaler.framework_state())
        if kind is MindSporeManagerScaler:
            assert (scaler.framework_state(), restored) == ({}, fresh)
        else:
            assert restored == scaler
    with pytest.raises(ValueError, match="unknown entry 'x'"):
        fresh.load_framework_state({"x": 1})


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (MindSporeManagerScaler, {"init_loss_scale": 0.5}, "1 or more"),
        (MindSporeManagerScaler, {"scale_factor": 0}, "above 0"),
        (MindSporeManagerScaler, {"scale_window": 0}, "above 0"),
        (MindSporeAmpScaler, {"scale_value": 0.5}, "1 or more"),
        (MindSporeAmpScaler, {"scale_factor": 1.5}, "an integer"),
        (MindSporeAmpScaler, {"scale_window": 0}, "above 0"),
        (MindSporeCellScaler, {"loss_scale_value": "8"}, "a finite number"),
        (MindSporeCellScaler, {"scale_window": 1.5}, "an integer"),
    ],
)
def test_refusals(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(**options)


def test_what_the_manager_keeps_in_memory():
    """Recorded though MindSpore does not save it."""
    for case in json.loads(RECORDED.read_text())["cases"]:
        scaler, _ = walk(MindSporeManagerScaler(**case["options"]), case["history"].replace("n", "o"))
        found = (scaler.scale, scaler.iteration, scaler.last_overflow, scaler.bad_steps)
        kept = case["state"]
        assert found == (kept["loss_scale"], kept["cur_iter"], kept["last_overflow_iter"], kept["bad_step"])
