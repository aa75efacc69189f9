"""DeepSpeed's rules: hysteresis, the first window, the divisor of a growth step, the stop at the minimum, saved state.

Traces recorded from DeepSpeed 0.19.8 itself are replayed in test_golden_traces.py.
"""

import json

import numpy as np
import pytest

from fp16sim import scaling
from fp16sim.autograd.tensor import Tensor
from fp16sim.scaling import DeepSpeedScaler, DeepSpeedUnfusedScaler, Observation, observe, scale_loss, unscale

OVERFLOW, FINITE = Observation(overflow=True), Observation()


def walk(scaler, history):
    scales, decisions = [], []
    for letter in history:
        scaler, decision = scaler.update(OVERFLOW if letter == "o" else FINITE)
        assert decision.apply is (letter == ".")
        scales.append(scaler.scale)
        decisions.append(decision)
    return scaler, scales, decisions


@pytest.mark.parametrize(
    ("scaler", "expected"),
    [
        (DeepSpeedScaler(loss_scale_window=2), [65536, 32768, 32768, 32768, 65536, 65536, 65536]),
        (
            DeepSpeedScaler(loss_scale_window=2, hysteresis=1),
            [32768, 16384, 16384, 16384, 32768, 16384, 16384],
        ),
        (DeepSpeedUnfusedScaler(loss_scale_window=2), [32768, 16384, 16384, 16384, 32768, 16384, 16384]),
    ],
)
def test_recorded_trace(scaler, expected):
    assert walk(scaler, "oo...o.")[1] == expected


@pytest.mark.parametrize("kind", [DeepSpeedScaler, DeepSpeedUnfusedScaler])
def test_the_first_growth_takes_one_step_more_than_the_window(kind):
    _, scales, _ = walk(kind(initial_scale_power=0, loss_scale_window=3), "." * 11)
    assert scales == [1, 1, 1, 2, 2, 2, 4, 4, 4, 8, 8]


@pytest.mark.parametrize("kind", [DeepSpeedScaler, DeepSpeedUnfusedScaler])
def test_a_growth_step_applies_half_of_the_gradient(kind):
    """DeepSpeed#8588: initial 4, window 1: the applied gradients are 1, .5, .5, .5 of the true ones."""
    scaler, applied = kind(initial_scale_power=2, loss_scale_window=1), []
    for _ in range(4):
        gradient = np.float32([scaler.scale])
        scaler, decision = scaler.update(FINITE)
        applied.append(unscale(gradient, decision).item())
    assert applied == [1, 0.5, 0.5, 0.5]


def test_hysteresis_is_refilled_by_growth_only():
    scaler, scales, _ = walk(DeepSpeedScaler(loss_scale_window=1000, hysteresis=2), "o.o.o")
    assert scales == [65536, 65536, 32768, 32768, 16384]
    assert scaler.hysteresis_left == 1


def test_consecutive_hysteresis_never_moves_on_alternating_overflows():
    scaler = DeepSpeedScaler(consecutive_hysteresis=True)
    assert set(walk(scaler, "o." * 50)[1]) == {65536}
    assert walk(scaler, "oooo")[1] == [65536, 32768, 16384, 8192]


@pytest.mark.parametrize("hysteresis", [0, -3])
def test_no_hysteresis_never_halves(hysteresis):
    scaler, scales, _ = walk(DeepSpeedScaler(hysteresis=hysteresis), "o" * 8)
    assert set(scales) == {65536}
    assert scaler.hysteresis_left == hysteresis - 8


def test_the_minimum_stops_and_counts_nothing():
    """DeepSpeed#1599 and #1958: since then an overflow that would halve the scale at its minimum is an error."""
    scaler = DeepSpeedScaler(initial_scale_power=1, hysteresis=2)
    scaler, scales, decisions = walk(scaler, "oo")
    assert (scales, [d.stop for d in decisions]) == ([2, 1], [None, None])
    following, decision = scaler.update(OVERFLOW)
    assert following == scaler
    assert (decision.apply, decision.stop) == (
        False,
        "Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
    )


def test_without_the_error_the_minimum_skips_for_ever():
    scaler = DeepSpeedScaler(initial_scale_power=0, hysteresis=1, raise_error_at_min_scale=False)
    _, scales, decisions = walk(scaler, "o" * 20)
    assert set(scales) == {1}
    assert {d.stop for d in decisions} == {None}
    assert set(walk(DeepSpeedUnfusedScaler(initial_scale_power=0), "o" * 20)[1]) == {1}


@pytest.mark.parametrize("kind", [DeepSpeedScaler, DeepSpeedUnfusedScaler])
def test_an_overflow_below_the_minimum_raises_the_scale(kind):
    options = {"hysteresis": 1} if kind is DeepSpeedScaler else {}
    assert walk(kind(initial_scale_power=-1, **options), "o")[1] == [1]
    assert walk(kind(initial_scale_power=3, min_loss_scale=3, **options), "oo")[1] == [4, 3]


def test_defaults_with_and_without_arguments():
    """DeepSpeed#4986: the engine's configuration and an optimizer without arguments begin differently."""
    assert (DeepSpeedScaler().scale, DeepSpeedUnfusedScaler().scale) == (65536, 65536)
    assert DeepSpeedUnfusedScaler(min_loss_scale=0.25).min_loss_scale == 0.25
    assert walk(DeepSpeedUnfusedScaler(initial_scale_power=-1, min_loss_scale=0.25), "oo")[1] == [0.25, 0.25]


def test_growth_has_no_end():
    scaler = DeepSpeedScaler(initial_scale_power=63, loss_scale_window=1)
    _, scales, decisions = walk(scaler, "." * 963)
    assert scales[-3:] == [2.0**1023, np.inf, np.inf]
    assert decisions[-2].divide_by == np.inf


def test_the_loss_is_scaled_in_float32_without_zero():
    assert scale_loss(DeepSpeedUnfusedScaler(), Tensor(np.float16(1))).item() == 65536
    assert scale_loss(DeepSpeedScaler(), Tensor(np.float16(1))).item() == np.inf


@pytest.mark.parametrize("kind", [DeepSpeedScaler, DeepSpeedUnfusedScaler])
def test_states_restore_the_rest_of_a_history(kind):
    history = "o..o...o.oo.......ooo..."
    fresh = kind(loss_scale_window=2)
    whole = walk(fresh, history)[1]
    for cut in range(len(history)):
        scaler, _, _ = walk(fresh, history[:cut])
        assert scaling.from_json(scaler.to_json()) == scaler
        restored = kind().load_framework_state(json.loads(json.dumps(scaler.framework_state())))
        assert walk(restored, history[cut:])[1] == whole[cut:]


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (DeepSpeedScaler, {"loss_scale_window": 0}, "above 0"),
        (DeepSpeedUnfusedScaler, {"loss_scale_window": -1}, "above 0"),
        (DeepSpeedScaler, {"loss_scale_window": 2.5}, "an integer"),
        (DeepSpeedScaler, {"min_loss_scale": 0}, "above 0"),
        (DeepSpeedScaler, {"min_loss_scale": 0.25}, "takes integers; pass such as 1"),
        (DeepSpeedUnfusedScaler, {"min_loss_scale": 0.5}, "takes integers; pass such as 1"),
        (DeepSpeedScaler, {"initial_scale_power": 64}, "below 64"),
        (DeepSpeedScaler, {"initial_scale_power": 1.5}, "an integer"),
        (DeepSpeedScaler, {"hysteresis": 1.5}, "an integer"),
        (DeepSpeedScaler, {"consecutive_hysteresis": 2}, r"it is True or False \(1 or 0\)"),
    ],
)
def test_refusals(kind, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        kind(**options)
    assert "\n" not in str(caught.value)


def test_flags_may_be_numbers_as_text_has_them():
    scaler = scaling.parse("deepspeed,consecutive_hysteresis=1,raise_error_at_min_scale=0")
    assert scaler == DeepSpeedScaler(consecutive_hysteresis=True, raise_error_at_min_scale=False)


def test_bad_framework_states():
    state = DeepSpeedScaler().framework_state()
    with pytest.raises(ValueError, match="without 'cur_scale'"):
        DeepSpeedScaler().load_framework_state({key: state[key] for key in state if key != "cur_scale"})
    with pytest.raises(ValueError, match=r"scale_factor=3\.0"):
        DeepSpeedScaler().load_framework_state({**state, "scale_factor": 3.0})
    static = {**DeepSpeedUnfusedScaler().framework_state(), "dynamic_loss_scale": False}
    with pytest.raises(ValueError, match="a static scale"):
        DeepSpeedUnfusedScaler().load_framework_state(static)


@pytest.mark.parametrize("kind", [DeepSpeedScaler, DeepSpeedUnfusedScaler])
def test_the_norm_is_tested_as_well(kind):
    assert observe(kind(), [np.float32([1.9e19])]).overflow
    assert not observe(kind(), [np.float32([1.8e19])]).overflow
    assert observe(kind(), [None, np.float16([1.0, np.inf])]).overflow
    assert not observe(kind(), [np.float16([65504.0, -65504.0])]).overflow


class TestPublicTraces:
    """Scales that other people's logs show."""

    def test_bloom(self):
        """tr8b-104B, iterations 17060 to 17068: hysteresis takes the first overflow, and none after the finite step."""
        scaler = DeepSpeedScaler(initial_scale_power=12, loss_scale_window=500, hysteresis=2)
        scaler, scales, _ = walk(scaler, "." * 4001)
        assert scales[-2:] == [2.0**19, 2.0**20]
        _, scales, _ = walk(scaler, "..oooo.oo")
        assert [np.log2(scale) for scale in scales] == [20, 20, 20, 19, 18, 17, 17, 16, 15]

    def test_chinese_llama_alpaca(self):
        """Number 534: from 64 down without a finite step between, then the error."""
        scaler, scales, decisions = walk(DeepSpeedScaler(initial_scale_power=6, hysteresis=1), "o" * 6)
        assert scales == [32, 16, 8, 4, 2, 1]
        assert all(decision.stop is None for decision in decisions)
        assert scaler.update(OVERFLOW)[1].stop is not None

    def test_learn_deepspeed(self):
        """Number 1: where 8192 overflows and 4096 does not, the scale goes to and fro for ever."""
        scaler, scales = DeepSpeedScaler(initial_scale_power=12, loss_scale_window=10), []
        for _ in range(200):
            scaler, _ = scaler.update(OVERFLOW if scaler.scale >= 8192 else FINITE)
            scales.append(scaler.scale)
        assert set(scales) == {4096, 8192}
        assert scales[11:39] == [8192, 4096, *[4096] * 10, 8192, 8192, 4096, *[4096] * 10, 8192, 8192, 4096]
