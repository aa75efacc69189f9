"""Megatron's rule; traces recorded from megatron-core 0.16.1 itself are replayed in test_golden_traces.py."""

import numpy as np
import pytest
from fp16sim_scaler_traces import walk

from fp16sim import scaling
from fp16sim.autograd.tensor import Tensor
from fp16sim.scaling import MegatronScaler, scale_loss


def test_recorded_trace():
    _, scales = walk(MegatronScaler(growth_interval=2), "oo...o.")
    assert scales == [2.0**32, 2.0**31, 2.0**31, 2.0**32, 2.0**32, 2.0**32, 2.0**32]


def test_hysteresis_is_refilled_by_growth_only():
    """Documented as overflows in a row, but `o.o.` backs off at the second one, and at each after it."""
    _, scales = walk(MegatronScaler(initial_scale=16.0), "o.o.o.o.")
    assert scales == [16, 16, 8, 8, 4, 4, 2, 2]


def test_bounds():
    assert walk(MegatronScaler(initial_scale=4.0, min_scale=3.0, hysteresis=1), "oo")[1] == [3, 3]
    scaler, scales = walk(MegatronScaler(initial_scale=2.0**127, growth_interval=1, hysteresis=1), "..")
    assert scales == [np.inf, np.inf]
    assert walk(scaler, "ooo")[1] == [np.inf] * 3  # no overflow leads back


def test_products_are_float32():
    scaler = MegatronScaler(initial_scale=1.1, growth_factor=1.3, growth_interval=1)
    assert walk(scaler, ".")[1] == [float(np.float32(1.1) * np.float32(1.3))]
    assert np.float32(1.1) * np.float32(1.3) != np.float32(float(np.float32(1.1)) * 1.3)


def test_every_loss_is_scaled_in_float32():
    scaled = scale_loss(MegatronScaler(), Tensor(np.float16(1)))
    assert (scaled.dtype, scaled.item()) == (np.float32, 2.0**32)


def test_states_restore_the_rest_of_a_history():
    history, fresh = "o..o...o.oo.......ooo...", MegatronScaler(growth_interval=3)
    whole = walk(fresh, history)[1]
    for cut in range(len(history)):
        scaler, _ = walk(fresh, history[:cut])
        assert scaling.from_json(scaler.to_json()) == scaler
        assert walk(fresh.load_framework_state(scaler.framework_state()), history[cut:])[1] == whole[cut:]
    assert scaler.framework_state().keys() == {"scale", "growth_tracker", "hysteresis_tracker"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"initial_scale": 0.0}, "0 < min_scale <= initial_scale"),
        ({"initial_scale": float("nan")}, "0 < min_scale <= initial_scale"),
        ({"initial_scale": 2.0, "min_scale": 4.0}, "min_scale=4.0 with initial_scale=2.0"),
        ({"min_scale": 0.0}, "0 < min_scale"),
        ({"growth_factor": 1.0}, "above 1"),
        ({"backoff_factor": 1.0}, "below 1"),
        ({"backoff_factor": 0.0}, "above 0"),
        ({"growth_interval": 0}, "above 0"),
        ({"hysteresis": 0}, "above 0"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        MegatronScaler(**options)
    with pytest.raises(ValueError, match="did you mean 'growth_tracker'"):
        MegatronScaler().load_framework_state({"growth_trackr": 0})
