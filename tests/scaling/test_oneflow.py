"""OneFlow's rule, from its source: it was not run."""

import math

import numpy as np
import pytest
from fp16sim_scaler_walks import check_refusals, check_states, walk

from fp16sim.scaling import OneflowScaler

LARGEST = float(np.finfo(np.float32).max)


def test_the_rule():
    scales = walk(OneflowScaler(growth_interval=2), "oo...o.")[1]
    assert scales == [32768, 16384, 16384, 32768, 32768, 16384, 16384]
    assert walk(OneflowScaler(growth_interval=0), "..")[1] == [2.0**17, 2.0**18]


def test_clamps():
    assert walk(OneflowScaler(init_scale=0.25), "o")[1] == [1.0]
    assert walk(OneflowScaler(init_scale=2.0**127, growth_interval=1), "..o")[1] == [
        LARGEST,
        LARGEST,
        LARGEST / 2,
    ]
    assert walk(OneflowScaler(init_scale=math.inf, growth_interval=1), "o.")[1] == [math.inf, LARGEST]


def test_the_factor_is_rounded_to_float32_and_the_product_once():
    scaler = OneflowScaler(init_scale=1000.0, growth_factor=1.1, backoff_factor=1 / 1.1, growth_interval=1)
    assert walk(scaler, ".")[1] == [float(np.float32(1000 * float(np.float32(1.1))))]


@pytest.mark.parametrize(("growth", "backoff"), [(2.0, 0.25), (3.0, 0.3), (0.0, 0.5)])
def test_only_the_reciprocal_as_backoff(growth, backoff):
    with pytest.raises(ValueError, match=r"backoff_factor=.*1/growth_factor"):
        OneflowScaler(growth_factor=growth, backoff_factor=backoff)


def test_states_and_refusals():
    check_states(OneflowScaler(growth_interval=3))
    check_refusals(OneflowScaler(), {"init_scale": "8"}, {"growth_interval": 2.5})
