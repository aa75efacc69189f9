"""Chainer's rule; traces recorded from Chainer 7.8.1 itself are replayed in test_golden_traces.py."""

import json
import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from fp16sim_scaler_traces import FINITE, walk

from fp16sim import scaling
from fp16sim.scaling import ChainerScaler, unscale

RECORDED = Path(__file__).parents[1] / "golden" / "scalers" / "chainer.json"
walk = partial(walk, advance=True)  # the optimizer's t counts skipped steps too


def test_recorded_trace():
    _, scales = walk(ChainerScaler(interval=2), "oo...o.")
    root = math.sqrt(2)
    assert scales[:5] == [1, 1, root, root * root, root * root * root]
    assert [round(scale, 4) for scale in scales] == [1, 1, 1.4142, 2.0, 2.8284, 1.4142, 2.0]


def test_it_doubles_at_each_step_before_the_first_overflow_and_stops_at_the_largest_float16():
    scales = walk(ChainerScaler(), "." * 18)[1]
    assert scales == [2.0**k for k in range(1, 16)] + [65504] * 3
    assert walk(ChainerScaler(), "." * 18 + "oo.")[1][-3:] == [32752, 16376, 16376 * 2 ** (1 / 1000)]


def test_an_interval_does_not_exactly_double():
    _, scales = walk(ChainerScaler(interval=3), "o" + "." * 3)
    assert scales[-1] == 2 ** (1 / 3) * 2 ** (1 / 3) * 2 ** (1 / 3) == 2.0
    _, scales = walk(ChainerScaler(interval=2), "o" + "." * 2)
    assert scales[-1] == 2.0000000000000004


@pytest.mark.parametrize("interval", [1, 1.5, 7, 1000, 10**6])
def test_intervals(interval):
    assert walk(ChainerScaler(interval=interval), "o.")[1] == [1, 2 ** (1 / interval)]


def test_gradients_are_divided_in_their_own_format():
    scaler, _ = walk(ChainerScaler(interval=3), "..o.")
    gradient = np.float16([3.0, 0.1])
    found = unscale(gradient, scaler.update(FINITE)[1])
    assert found.dtype == np.float16
    assert found.tobytes() == (gradient / np.float16(scaler.scale)).tobytes()


def test_states():
    scaler, _ = walk(ChainerScaler(interval=2), "..o.")
    assert scaling.from_json(scaler.to_json()) == scaler
    assert scaler.framework_state() == {}
    assert ChainerScaler().load_framework_state({}) == ChainerScaler()
    with pytest.raises(ValueError, match="unknown entry 't'"):
        ChainerScaler().load_framework_state({"t": 3})


@pytest.mark.parametrize("interval", [0, -1, 0.5])
def test_refusals(interval):
    with pytest.raises(ValueError, match="1 or more"):
        ChainerScaler(interval=interval)


def test_what_the_optimizer_keeps_in_memory():
    """Recorded though Chainer does not save it."""
    cases = json.loads(RECORDED.read_text())["cases"]
    for case in cases:
        scaler, _ = walk(ChainerScaler(**case["options"]), case["history"].replace("n", "o"))
        kept = case["state"]
        assert (scaler.scale, scaler.overflowed) == (kept["_loss_scale"], kept["_loss_scaling_isnan_ever"])
        assert len(case["history"]) == kept["t"]
