"""Both rules of apex, from its source: apex does not install by pip, so no recorded traces."""

import math

import numpy as np
import pytest
from fp16sim_scaler_walks import check_refusals, check_states, decisions, walk

from fp16sim.autograd.tensor import Tensor
from fp16sim.scaling import ApexFp16UtilsScaler, ApexScaler, observe, scale_loss

BOTH = pytest.mark.parametrize("kind", [ApexScaler, ApexFp16UtilsScaler])


def test_traces():
    scales = walk(ApexScaler(scale_window=2), "oo...o.")[1]
    assert scales == [32768, 16384, 16384, 32768, 32768, 16384, 16384]
    scales = walk(ApexFp16UtilsScaler(scale_window=2), "oo...o.")[1]
    assert scales == [2.0**k for k in (31, 30, 30, 31, 31, 30, 30)]


@BOTH
def test_windows_are_exact(kind):
    scales = walk(kind(init_scale=8.0, scale_window=3), "." * 9 + "o" + "..." * 2)[1]
    assert scales == [8, 8, 16, 16, 16, 32, 32, 32, 64, 32, 32, 32, 64, 64, 64, 128]


def test_the_scale_falls_to_zero_and_then_apex_divides_by_it():
    scaler, scales = walk(ApexScaler(), "o" * 1091)
    assert scales[-2:] == [2.0**-1074, 0.0]
    for letter in ".o":
        following, decision = scaler, decisions(scaler, letter)[0]
        assert (decision.apply, following) == (False, scaler)
        assert "ZeroDivisionError" in decision.stop


@pytest.mark.parametrize("minimum", [None, 0.0])
def test_a_minimum_of_zero_is_none(minimum):
    assert walk(ApexScaler(init_scale=1.0, min_loss_scale=minimum), "oo")[1] == [0.5, 0.25]


def test_bounds():
    assert walk(ApexScaler(init_scale=4.0, min_loss_scale=3.0), "oo")[1] == [3, 3]
    assert walk(ApexScaler(init_scale=1.0, min_loss_scale=4.0), "o")[1] == [4]  # an overflow that raises it
    assert walk(ApexScaler(init_scale=2.0**23, scale_window=1), "...")[1] == [2.0**24] * 3
    assert ApexScaler(init_scale=2.0**32).scale == 2.0**24
    loaded = ApexScaler(scale_window=1).load_framework_state({"loss_scale": 2.0**32, "unskipped": 0})
    assert walk(loaded, ".")[1] == [2.0**24]  # a growth that lowers it
    assert walk(ApexScaler(init_scale=8.0, scale_window=0), "o..o")[1] == [8, 8, 8, 8]
    assert walk(ApexScaler(init_scale=8.0, scale_factor=10.0, scale_window=1), ".o")[1] == [16, 8]


def test_bounds_of_fp16_utils():
    assert walk(ApexFp16UtilsScaler(init_scale=0.25), "o")[1] == [1.0]
    assert walk(ApexFp16UtilsScaler(init_scale=2.0**1023, scale_window=1), ".")[1] == [math.inf]
    assert walk(ApexFp16UtilsScaler(init_scale=9.0, scale_factor=3.0), "ooo")[1] == [3, 1, 1]
    assert "ZeroDivisionError" in decisions(ApexFp16UtilsScaler(scale_window=0), "o.")[1].stop
    assert "ZeroDivisionError" in decisions(ApexFp16UtilsScaler(scale_factor=0), "o")[0].stop


@BOTH
def test_sums_are_tested_and_losses_are_scaled_in_float32(kind):
    assert observe(kind(), [np.float32([3e38, 3e38])]).overflow
    assert not observe(kind(), [np.float32([3e38])]).overflow
    assert scale_loss(kind(), Tensor(np.float16(1))).item() == kind().scale


@BOTH
def test_states_and_refusals(kind):
    check_states(kind(scale_window=3))
    check_refusals(kind(), {"init_scale": "8"}, {"scale_window": 2.5}, {"scale_factor": None})


def test_what_apex_saves():
    assert ApexScaler().framework_state() == {"loss_scale": 65536.0, "unskipped": 0}
    kept = ApexScaler(scale_window=7).load_framework_state({"loss_scale": 8.0, "unskipped": 3})
    assert (kept.scale, kept.unskipped, kept.scale_window) == (8.0, 3, 7)
    assert set(ApexFp16UtilsScaler().framework_state()) == {
        "cur_scale",
        "cur_iter",
        "last_overflow_iter",
        "scale_factor",
        "scale_window",
    }
