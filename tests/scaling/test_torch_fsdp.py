"""FSDP's rule on a CPU. Traces recorded from torch itself are replayed in test_golden_traces.py."""

import math

import numpy as np
from fp16sim_scaler_walks import check_refusals, check_states, decisions, walk

from fp16sim import scaling
from fp16sim.autograd.tensor import Tensor
from fp16sim.scaling import TorchFsdpScaler, TorchScaler, scale_loss, unscale


def test_trace():
    scales = walk(TorchFsdpScaler(growth_interval=2), "oo...o.")[1]
    assert scales == [32768, 16384, 16384, 32768, 32768, 16384, 16384]


def test_growth_to_infinity_is_taken_and_is_final():
    scaler, scales = walk(TorchFsdpScaler(init_scale=2.0**127, growth_interval=1), ".")
    assert scales == [math.inf]
    assert walk(scaler, "o.oo")[1] == [math.inf] * 4
    assert walk(TorchScaler(init_scale=2.0**127, growth_interval=1), ".")[1] == [2.0**127]


def test_the_factor_is_rounded_to_float32():
    ours = walk(TorchFsdpScaler(init_scale=1.3, backoff_factor=0.3), "o")[1]
    assert ours == [float(np.float32(1.3) * np.float32(0.3))]
    assert ours != walk(TorchScaler(init_scale=1.3, backoff_factor=0.3), "o")[1]


def test_float16_gradients_are_rounded_back():
    """At 65536 a true 5e-8 becomes 2^-24, and 2e-8 is lost."""
    (decision,) = decisions(TorchFsdpScaler(), ".")
    found = unscale(np.float16([5e-8 * 65536, 2e-8 * 65536]), decision)
    assert found.dtype == np.float16
    assert found.tolist() == [2.0**-24, 0.0]


def test_the_loss_is_rounded_back():
    for shape in ((), (1,)):
        loss = Tensor(np.full(shape, 0.5, np.float16))
        assert scale_loss(TorchFsdpScaler(), loss).data.tolist() == np.full(shape, 32768).tolist()
        assert scale_loss(TorchFsdpScaler(), loss + loss).data.max() == math.inf
        assert scale_loss(TorchFsdpScaler(), loss).dtype == np.float16


def test_states_and_refusals():
    check_states(TorchFsdpScaler(growth_interval=3, growth_factor=1.5))
    check_refusals(TorchFsdpScaler(), {"growth_factor": 1}, {"backoff_factor": 1}, {"growth_interval": 2.5})
    assert isinstance(scaling.from_json(TorchFsdpScaler().to_json()), TorchFsdpScaler)
