"""Adaptive loss scaling: the formula of its source, its bounds, and the share of products that underflow."""

import math

import numpy as np
import pytest

from fp16sim import scaling
from fp16sim.nn.random import normals
from fp16sim.scaling import Moments, Observation, TensorScaler, TensorStatistics, moments
from fp16sim.scaling.adaptive import underflow_threshold

WIDE = {"scale_upper_bound": 2.0**60, "accum_upper_bound": 2.0**60}
U_MIN = float(np.float32(6.0e-8))


def statistics(gradient, weight, carried=1.0):
    return TensorStatistics(moments(gradient), carried, moments(weight), weight.shape[1], weight.shape[0])


def drawn(shape, seed, deviation):
    return (normals(seed, math.prod(shape), 0) * deviation).reshape(shape).astype(np.float32)


@pytest.mark.parametrize("share", [1e-6, 1e-3, 0.01, 0.5, 0.9, 0.999])
def test_the_threshold_is_the_quantile_of_a_normal_number(share):
    threshold = underflow_threshold(share)
    assert math.erf(threshold / math.sqrt(2)) == pytest.approx(share, rel=1e-12)  # erf of another library


def test_few_products_underflow_at_the_scale_and_more_at_an_eighth_of_it():
    gradient, weight = drawn((512, 64), 1, 2.0**-26), drawn((64, 64), 2, 2.0**-3)
    scaler = scaling.make("adaptive", **WIDE)
    scale = scaler.scale_for("0", statistics(gradient, weight))
    assert math.frexp(scale)[0] == 0.5
    products = gradient.astype(np.float64) @ weight.astype(np.float64)

    def lost(factor):
        return float((np.abs(products * factor) < U_MIN).mean())

    # The source takes half of the terms for zero, behind a ReLU (sqrt(F/2)), and the factor is floored: the share is
    # between n_uf / sqrt(2) and twice that.
    assert 0.5e-3 < lost(scale) < 1.6e-3
    assert lost(scale / 8) > 3e-3
    assert lost(1.0) > 0.5


def test_the_formula_written_out():
    g, w = Moments(0.75, 0.125, 0.25), Moments(2.0, -0.5, 0.25)
    for options in (
        {"u_min": 2.0**10},
        {"u_min": 2.0**-4, "n_uf_threshold": 0.1},
        {"u_max": 2.0**9, "u_min": 1.0},
    ):
        scaler = scaling.make("adaptive", power_of_two=False, use_bound=False, **options)
        threshold = math.sqrt(2) * _inverse_erf(scaler.n_uf_threshold)
        sigma = math.sqrt((0.25**2 + 0.125**2) * (0.25**2 + 0.5**2)) * math.sqrt(32 / 2)
        expected = min(max(scaler.u_min / (threshold * sigma), 1.0), scaler.u_max / 32 / (0.75 * 2.0))
        found = scaler.scale_for("0", TensorStatistics(g, 4.0, w, fan_in=8, fan_out=32)) / 4.0
        assert found == pytest.approx(expected, rel=1e-6)  # u_min and u_max are float32 values
        floored = scaling.make("adaptive", use_bound=False, **options)
        scale = floored.scale_for("0", TensorStatistics(g, 4.0, w, fan_in=8, fan_out=32)) / 4.0
        assert scale == 2.0 ** math.floor(math.log2(expected))


def _inverse_erf(share):
    low, high = 0.0, 6.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erf(middle) < share else (low, middle)
    return low


def test_bounds_of_a_layer_and_of_all_layers_so_far():
    tiny = Moments(2.0**-40, 0.0, 2.0**-42)
    weight = Moments(1.0, 0.0, 0.5)
    scaler = scaling.make("adaptive")
    found = [
        scaler.scale_for("0", TensorStatistics(tiny, c, weight, 8, 8))
        for c in (1.0, 16.0, 256.0, 1024.0, 4096.0)
    ]
    assert found == [16.0, 256.0, 1024.0, 1024.0, 1024.0]  # 16 a layer, 1024 together; above it comes down
    assert (
        scaling.make("adaptive", use_bound=False).scale_for("0", TensorStatistics(tiny, 1.0, weight, 8, 8))
        > 2.0**20
    )


def test_no_overflow_of_the_products():
    large = Moments(65504.0, 0.0, 1.0)
    scaler = scaling.make("adaptive", **WIDE)
    assert scaler.scale_for("0", TensorStatistics(large, 1.0, Moments(4.0, 0.0, 1.0), 8, 8)) == 2.0**-5


def test_gradients_that_are_zero_or_not_finite_change_nothing():
    scaler = scaling.make("adaptive", **WIDE)
    for values in (Moments(0.0, 0.0, 0.0), Moments(1.0, 1.0, 0.0), Moments(math.inf, math.nan, math.nan)):
        assert scaler.scale_for("0", TensorStatistics(values, 8.0)) == 8.0
    assert (
        scaler.scale_for("0", TensorStatistics(Moments(2.0**-30, 0.0, 2.0**-32), 1.0)) > 1.0
    )  # without a weight


def test_the_step_is_divided_by_the_scales_that_it_had():
    scaler = scaling.make("adaptive", init_scale=8.0)
    assert isinstance(scaler, TensorScaler)
    same, decision = scaler.update(Observation(scales={"a": 16.0, "b": 32.0}))
    assert same is scaler
    assert (decision.apply, decision.divide_by) == (True, {"a": 16.0, "b": 32.0})
    assert scaler.update(Observation(overflow={"a": True}))[1].apply is False
    assert scaler.update(Observation())[1].divide_by == 8.0
    assert scaling.from_json(scaler.to_json()) == scaler
    assert scaler.load_framework_state(scaler.framework_state()) is scaler


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_uf_threshold": 0}, "above 0"),
        ({"n_uf_threshold": 1}, "below 1"),
        ({"init_scale": math.inf}, "a finite number"),
        ({"u_min": 1e6}, "pass u_min below u_max"),
        ({"power_of_two": 2}, "pass 1 or 0"),
        ({"n_uf": 1e-3}, "unknown option 'n_uf' .*: n_uf_threshold=0.001"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        scaling.make("adaptive", **options)
