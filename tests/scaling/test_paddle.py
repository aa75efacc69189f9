"""Paddle's rule. Traces recorded from paddle are replayed in test_golden_traces.py."""

import math

import numpy as np
import pytest
from fp16sim_scaler_walks import check_refusals, check_states, decisions, walk

from fp16sim.scaling import PaddleScaler, observe, unscale


def test_traces():
    scales = walk(PaddleScaler(incr_every_n_steps=2), "oo...o.")[1]
    assert scales == [32768, 16384, 16384, 32768, 32768, 16384, 16384]
    twice = PaddleScaler(incr_every_n_steps=2, decr_every_n_nan_or_inf=2)
    assert walk(twice, "oo...o.")[1] == [65536, 32768, 32768, 65536, 65536, 65536, 65536]


def test_overflows_that_are_not_in_a_row_never_shrink():
    assert walk(PaddleScaler(decr_every_n_nan_or_inf=2), "o." * 20)[1] == [65536] * 40
    assert walk(PaddleScaler(decr_every_n_nan_or_inf=0), "o" * 20)[1] == [65536] * 20


def test_no_bounds():
    scaler, scales = walk(PaddleScaler(init_loss_scaling=2.0**127, incr_every_n_steps=1), ".")
    assert scales == [math.inf]
    assert walk(scaler, "oo")[1] == [math.inf] * 2
    assert walk(PaddleScaler(init_loss_scaling=2.0**-149), "o")[1] == [0.0]
    assert walk(PaddleScaler(decr_ratio=0.0), "o.")[1] == [0.0, 0.0]


def test_ratios_are_rounded_to_float32():
    scales = walk(PaddleScaler(init_loss_scaling=1000.0, decr_ratio=0.1), "oo")[1]
    first = np.float32(1000) * np.float32(0.1)
    assert scales == [float(first), float(first * np.float32(0.1))]


def test_unscaled_gradients_in_their_own_format_are_tested():
    (decision,) = decisions(PaddleScaler(init_loss_scaling=0.25), ".")
    found = unscale(np.float16([16376, 2.0**-24]), decision)
    assert (found.dtype, found.tolist()) == (np.float16, [65504, 2.0**-22])
    assert observe(PaddleScaler(init_loss_scaling=0.25), [np.float16([16384])]).overflow  # 65536 in float16
    assert not observe(PaddleScaler(init_loss_scaling=0.25), [np.float32([16384])]).overflow


def test_states_and_refusals():
    check_states(PaddleScaler(incr_every_n_steps=3, decr_every_n_nan_or_inf=2))
    check_refusals(
        PaddleScaler(),
        {"incr_ratio": 1.0},
        {"decr_ratio": 1.0},
        {"incr_ratio": math.nan},
        {"decr_ratio": "a"},
    )
    check_refusals(PaddleScaler(), {"incr_every_n_steps": 1.5}, {"decr_every_n_nan_or_inf": None})
    state = PaddleScaler().framework_state()
    assert PaddleScaler().load_framework_state({**state, "scale": np.float32([8.0])}).scale == 8.0
    with pytest.raises(ValueError, match="use a static scaler"):
        PaddleScaler().load_framework_state({**state, "use_dynamic_loss_scaling": False})
