"""Unit scaling: the factors, and what the scaler decides."""

import math

import pytest

from fp16sim import scaling
from fp16sim.scaling import Decision, LayerFactors, Moments, Observation, TensorScaler, TensorStatistics
from fp16sim.scaling.unit import cross_entropy_scale

TENSOR = TensorStatistics(Moments(1.0, 0.0, 1.0), fan_in=100, fan_out=25, batch=16)


def test_factors_of_layers():
    scaler = scaling.make("unit")
    assert isinstance(scaler, TensorScaler)
    assert scaler.layer_factors("weight", TENSOR) == LayerFactors(0.1, 0.2, 0.25)
    assert scaler.layer_factors("vector", TENSOR) == LayerFactors(1.0, 1.0, 0.25)
    assert scaler.layer_factors("ReLU", TENSOR) == LayerFactors(math.sqrt(2), math.sqrt(2), 1.0)
    assert scaler.layer_factors("Flatten", TENSOR) is None
    names = ("0:output", "a.b:input_gradient", "0:weight_gradient")
    assert [scaler.scale_for(name, TENSOR) for name in names] == [0.1, 0.2, 0.25]
    with pytest.raises(
        ValueError, match="'0': name a layer and one of output, input_gradient, weight_gradient"
    ):
        scaler.scale_for("0", TENSOR)


def test_factors_of_activations_are_root_mean_squares_of_a_normal_number():
    step = 1e-4
    points = [k * step for k in range(-80000, 80001)]
    density = [math.exp(-x * x / 2) / math.sqrt(2 * math.pi) * step for x in points]

    def measured(function):
        return math.sqrt(sum(function(x) ** 2 * p for x, p in zip(points, density, strict=True)))

    scaler = scaling.make("unit")
    relu, tanh = (scaler.layer_factors(kind, TENSOR) for kind in ("ReLU", "Tanh"))
    assert 1 / measured(lambda x: max(x, 0.0)) == pytest.approx(relu.output, rel=1e-3)
    assert 1 / measured(lambda x: float(x > 0)) == pytest.approx(relu.input_gradient, rel=1e-3)
    assert 1 / measured(math.tanh) == pytest.approx(tanh.output, rel=1e-3)
    assert 1 / measured(lambda x: 1 - math.tanh(x) ** 2) == pytest.approx(tanh.input_gradient, rel=1e-3)


def test_every_step_is_applied_and_nothing_is_divided_out():
    scaler = scaling.make("unit", loss_scale=cross_entropy_scale(64, 10))
    assert scaler.scale == 64 * 10 / 3
    for overflow in (False, True):
        assert scaler.update(Observation(overflow=overflow)) == (scaler, Decision(True, 1.0))
    assert scaling.from_json(scaler.to_json()) == scaler
    assert scaler.load_framework_state(scaler.framework_state()) is scaler
    with pytest.raises(ValueError, match="unit scaling saves nothing"):
        scaler.load_framework_state({"scale": 1.0})
    with pytest.raises(ValueError, match="above 0"):
        scaling.make("unit", loss_scale=0)
