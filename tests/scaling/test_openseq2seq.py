"""OpenSeq2Seq's rules: backoff between its bounds, and logmax beside its own formula in binary64."""

import math

import numpy as np
import pytest
from fp16sim_scaler_traces import FINITE, walk

from fp16sim import scaling
from fp16sim.scaling import (
    Observation,
    OpenSeq2SeqBackoffScaler,
    OpenSeq2SeqLogMaxScaler,
    observe,
)


def feed(scaler, *peaks):
    scales = []
    for amax in peaks:
        scaler, decision = scaler.update(Observation(overflow=math.isinf(amax), amax=amax))
        assert decision.apply is math.isfinite(amax)
        scales.append(scaler.scale)
    return scaler, scales


def by_definition(peaks, beta1=0.99, beta2=0.999, deviations=3.09, low=1.0, high=2.0**14):
    """Give the scales of logmax in binary64, where the model rounds every operation to float32."""
    fast = slow = square = 0.0
    scales = []
    for step, amax in enumerate(peaks, 1):
        x = 2.0**16 if math.isinf(amax) else math.log2(amax)
        fast = beta1 * fast + (1 - beta1) * x
        slow = beta2 * slow + (1 - beta2) * x
        square = beta2 * square + (1 - beta2) * x * x
        mean, correction = fast / (1 - beta1**step), 1 - beta2**step
        sigma = math.sqrt(max(square / correction - (slow / correction) ** 2, 0.0))
        scales.append(min(max(2.0 ** max(16 - (sigma * deviations + mean), -1000), low), high))
    return scales


class TestBackoff:
    def test_trace(self):
        scaler, scales = walk(OpenSeq2SeqBackoffScaler(step_window=2), "oo...o.")
        assert scales == [8192, 4096, 4096, 8192, 8192, 4096, 4096]
        assert (scaler.iteration, scaler.last_overflow) == (7, 5)

    def test_it_starts_at_the_top_and_stays_between_the_bounds(self):
        scaler = OpenSeq2SeqBackoffScaler(scale_max=8.0, scale_min=3.0, step_window=1)
        assert scaler.scale == 8
        assert walk(scaler, "..ooo.")[1] == [8, 8, 4, 3, 3, 6]
        assert walk(OpenSeq2SeqBackoffScaler(scale_max=2.0, scale_min=4.0), "o")[1] == [4]

    def test_windows(self):
        bottom = OpenSeq2SeqBackoffScaler(scale_max=64.0, scale=1.0, step_window=3)
        assert walk(bottom, "." * 7)[1] == [1, 1, 2, 2, 2, 4, 4]
        scaler = OpenSeq2SeqBackoffScaler(step_window=0)
        assert walk(scaler, "o")[1] == [8192]
        following, decision = scaler.update(FINITE)
        assert (following, decision.stop) == (scaler, "step_window is 0: integer division by zero")

    def test_overflow_is_looked_for_after_unscaling(self):
        low = OpenSeq2SeqBackoffScaler(scale_max=2.0**-10, scale_min=0.0)
        assert observe(low, [np.float32([2.0**119])]).overflow
        assert not observe(low, [np.float32([2.0**117])]).overflow

    def test_states(self):
        history, fresh = "o..o...o.oo.......ooo...", OpenSeq2SeqBackoffScaler(step_window=3)
        for cut in range(len(history)):
            scaler, _ = walk(fresh, history[:cut])
            assert scaling.from_json(scaler.to_json()) == scaler
            assert fresh.load_framework_state(scaler.framework_state()) == scaler

    @pytest.mark.parametrize("options", [{"scale_max": 0.0}, {"step_factor": 0.0}])
    def test_refusals(self, options):
        with pytest.raises(ValueError, match="another number than 0"):
            OpenSeq2SeqBackoffScaler(**options)


class TestLogMax:
    def test_the_formula(self):
        rng = np.random.default_rng(7)
        peaks = [2.0**x for x in rng.normal(6.0, 1.0, 60)]
        found = feed(OpenSeq2SeqLogMaxScaler(), *peaks)[1]
        # 1 - beta2^t is about t/1000, known to 2^-24: square and mean^2, both about 36, are off by 6e-5/t relative,
        # their difference by 4e-3/t, the exponent by three times half of that. From the tenth step on it is below 1e-3.
        np.testing.assert_allclose(found[10:], by_definition(peaks)[10:], rtol=1e-3)
        assert len(set(found)) > 50  # the bounds were not what agreed

    def test_two_to_the_sixteenth_is_taken_for_a_logarithm(self):
        scaler, scales = feed(OpenSeq2SeqLogMaxScaler(), 1.0, math.inf)
        assert scales[1] == 1
        assert (
            32000 < scaler.x_hat / (1 - scaler.b1_correction) < 33500
        )  # mean of 0 and 65536, not of 0 and 16

    @pytest.mark.slow
    def test_one_overflow_pins_the_scale_at_its_minimum(self):
        scaler, _ = feed(OpenSeq2SeqLogMaxScaler(), math.inf)
        steps = 1
        while scaler.scale == 1:
            scaler, _ = feed(scaler, 2.0**-10)
            steps += 1
        assert steps == 11_010  # the scale of so many steps is 1

    def test_a_zero_gradient_is_the_end(self):
        scaler, scales = feed(OpenSeq2SeqLogMaxScaler(), 8.0, 0.0, 8.0, math.inf, 8.0)
        assert scales[0] > 8000
        assert all(math.isnan(scale) for scale in scales[1:])
        assert math.isnan(scaling.from_json(scaler.to_json()).scale)

    def test_the_peak_is_of_the_unscaled_gradients(self):
        scaler = OpenSeq2SeqLogMaxScaler(scale=3.0)
        found = observe(scaler, [np.float32([10.0, -20.0]), None])
        assert found.amax == float(np.float32(20) * np.float32(1 / 3))
        assert found.amax != 20 / 3
        assert observe(scaler, []).amax == 0
        assert observe(scaler, [np.float16([np.nan])]).overflow

    def test_a_finite_step_needs_its_peak(self):
        with pytest.raises(ValueError, match=r"pass Observation\(amax=\.\.\.\)"):
            OpenSeq2SeqLogMaxScaler().update(FINITE)
        by_group = OpenSeq2SeqLogMaxScaler().update(Observation(amax={"a": 1.0, "b": 8.0}))[0]
        assert by_group == feed(OpenSeq2SeqLogMaxScaler(), 8.0)[0]

    def test_states(self):
        scaler, _ = feed(OpenSeq2SeqLogMaxScaler(), 8.0, 2.0, math.inf, 4.0)
        assert scaling.from_json(scaler.to_json()) == scaler
        assert OpenSeq2SeqLogMaxScaler().load_framework_state(scaler.framework_state()) == scaler
        with pytest.raises(ValueError, match="without 'x_hat'"):
            OpenSeq2SeqLogMaxScaler().load_framework_state({"iteration": 0, "scale": 1.0})
