"""Which modules are measured, under which names, and what the shares count."""

import math

import numpy as np

from fp16sim.autograd.tensor import Tensor
from fp16sim.nn import Linear, Module, ReLU, Sequential
from fp16sim.training.measuring import UNMEASURED, Outputs, has_own_parameters, shares_of


class Frozen(Module):
    def __init__(self):
        self.weight = Tensor([1.0])  # takes no gradient
        self.running = np.zeros(3)


def test_own_parameters_are_those_of_no_part():
    assert has_own_parameters(Linear(2, 2))
    assert not any(map(has_own_parameters, (ReLU(), Sequential(Linear(2, 2)), Frozen())))


def test_names_count_calls_over_passes():
    model = Sequential(Linear(2, 2), ReLU(), Linear(2, 2))
    first, activation, second = model.modules
    x = Tensor([1.0])
    outputs = Outputs({}, {})
    captured = [(first, x), (activation, x), (second, x), (first, x), (model, x)]
    named = outputs.named(model, captured)
    assert list(named) == ["0", "2", "0#2"]
    outputs.gradients.update(dict.fromkeys(named, np.zeros(1)))
    assert list(outputs.named(model, captured)) == ["0#3", "2#2", "0#4"]


def test_a_module_of_another_model_is_left_out():
    model = Sequential(Linear(2, 2))
    assert Outputs({}, {}).named(model, [(Linear(2, 2), Tensor([1.0]))]) == {}


def test_shares_count_narrow_gradients_as_they_are_and_wide_ones_as_binary16_would_store_them():
    narrow = np.float16([0, 0, 1, 2])
    exact = np.float32([0, 1e-9, 1, 2])
    shares = shares_of(Outputs({"a": narrow}, {"a": exact}, {"a": 8.0}))
    assert (shares.zero, shares.flushed, shares.survive) == (0.25, 0.25, 0.5)
    wide = np.float32([0, 2.0**-28, 2.0**-27, 1])
    shares = shares_of(
        Outputs({"a": wide}, {"a": wide}, {"a": 8.0})
    )  # 2^-28 times 8 is 2^-25, the last that vanishes
    assert (shares.zero, shares.flushed, shares.survive) == (0.25, 0.25, 0.5)


def test_nothing_measured_has_no_shares():
    assert shares_of(Outputs({}, {})) is UNMEASURED
    assert all(math.isnan(value) for value in vars(UNMEASURED).values())
