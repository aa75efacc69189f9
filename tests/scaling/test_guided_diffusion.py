"""guided-diffusion's rule: the logarithm of the scale as state, the norm that is tested, no bounds."""

import math
from functools import partial

import numpy as np
import pytest
from fp16sim_scaler_traces import FINITE, walk

from fp16sim import scaling
from fp16sim.scaling import GuidedDiffusionScaler, observe

walk = partial(walk, advance=True)  # the loop counts skipped steps too


def test_trace():
    scaler, scales = walk(GuidedDiffusionScaler(), "oo...o.")
    assert [round(scale, 1) for scale in scales] == [
        524288,
        262144,
        262325.8,
        262507.7,
        262689.7,
        131344.8,
        131435.9,
    ]
    assert scaler.lg_loss_scale == 20 - 1 - 1 + 1e-3 + 1e-3 + 1e-3 - 1 + 1e-3


def test_the_logarithm_is_rounded_at_each_step():
    scaler, _ = walk(GuidedDiffusionScaler(initial_lg_loss_scale=0.0), "." * 10)
    assert scaler.lg_loss_scale == 0.010000000000000002


def test_growth_of_zero_or_less():
    assert walk(GuidedDiffusionScaler(3.0, fp16_scale_growth=0.0), "..o")[1] == [8, 8, 4]
    assert walk(GuidedDiffusionScaler(3.0, fp16_scale_growth=-1.0), "..")[1] == [4, 2]


def test_no_bounds():
    scaler, scales = walk(GuidedDiffusionScaler(), "o" * 1095)
    assert scales[-2:] == [2.0**-1074, 0]
    assert observe(scaler, [np.float32([0.0])]).overflow  # 0 / 0
    scaler, _ = walk(GuidedDiffusionScaler(initial_lg_loss_scale=1023.0, fp16_scale_growth=1.0), ".")
    following, decision = scaler.update(FINITE)
    assert scaler.scale == math.inf
    assert following == scaler
    assert decision.stop.startswith("OverflowError: 2 ** 1024.0")


def test_the_norms_of_vectors_and_of_matrices_are_tested():
    scaler = GuidedDiffusionScaler(initial_lg_loss_scale=2.0)
    matrix, vector = np.float32([[1.5e19]]), np.float32([1.5e19])
    assert not observe(scaler, [matrix, vector]).overflow  # each group has a norm of its own
    found = observe(scaler, [vector, vector])
    assert (found.overflow, found.amax) == (True, float(vector[0]) / 4)
    assert observe(scaler, [np.float16([[np.nan]]), None]).nan
    assert not observe(scaler, []).overflow


def test_states():
    history, fresh = "o..o...o.oo.......ooo...", GuidedDiffusionScaler()
    whole = walk(fresh, history)[1]
    for cut in range(len(history)):
        scaler, _ = walk(fresh, history[:cut])
        assert walk(scaling.from_json(scaler.to_json()), history[cut:])[1] == whole[cut:]
    assert scaler.framework_state() == {}
    assert fresh.load_framework_state({}) == fresh  # a restart begins at the initial scale
    with pytest.raises(ValueError, match="a finite number"):
        GuidedDiffusionScaler(fp16_scale_growth="x")
