"""torch's dynamic rule: traces of the real GradScaler, its edges, and its saved state.

The traces were recorded from torch.amp.GradScaler (torch 2.13); oracles/ compares with a live one where
installed.
"""

import math

import pytest

from fp16sim.scaling import Observation, TorchFsdpScaler, TorchScaler

OVERFLOW, FINITE = Observation(overflow=True), Observation()


def trace(scaler, history):
    scales = []
    for letter in history:
        scaler, decision = scaler.update(OVERFLOW if letter == "o" else FINITE)
        assert decision.apply is (letter != "o")
        scales.append(scaler.scale)
    return scales


def test_recorded_trace():
    found = trace(TorchScaler(growth_interval=2), "oo..." + "o.")
    assert found == [32768, 16384, 16384, 32768, 32768, 16384, 16384]


def test_defaults():
    scaler = TorchScaler()
    assert scaler.framework_state() == {
        "scale": 65536.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 2000,
        "_growth_tracker": 0,
    }
    scales = trace(scaler, "." * 2000)
    assert scales[1998:] == [65536, 131072]


def test_the_decision_divides_by_the_scale_that_multiplied():
    scaler, decision = TorchScaler(growth_interval=1).update(FINITE)
    assert (decision.divide_by, scaler.scale) == (65536, 131072)
    assert (decision.method, decision.dtype, decision.stop) == ("reciprocal", "float32", None)


@pytest.mark.parametrize("interval", [0, -1])
def test_an_interval_below_one_never_grows(interval):
    assert trace(TorchScaler(growth_interval=interval), "." * 50)[-1] == 65536


def test_no_growth_to_infinity_but_the_counter_starts_again():
    scaler = TorchScaler(init_scale=2.0**127, growth_interval=2)
    scaler, _ = scaler.update(FINITE)
    scaler, _ = scaler.update(FINITE)
    assert (scaler.scale, scaler.growth_tracker) == (2.0**127, 0)


def test_no_floor():
    scaler = TorchScaler()
    scales = trace(scaler, "o" * 166)
    assert scales[-2:] == [2.0**-149, 0.0]


def test_the_product_is_taken_in_binary64_and_rounded_to_binary32():
    scaler = TorchScaler(init_scale=1.1, growth_factor=1.1, growth_interval=1)
    assert scaler.scale == 1.10000002384185791015625  # binary32 of 1.1
    scaler, _ = scaler.update(FINITE)
    # 1.10000002384... * 1.1 in binary64 is 1.21000002622...; the nearest binary32 lies 2^-23 apart from the
    # next.
    assert scaler.scale == 1.21000003814697265625


def test_framework_state_restores_the_rest_of_a_history():
    history = "o..o...o.o......."
    whole = trace(TorchScaler(growth_interval=3), history)
    for cut in range(len(history)):
        scaler = TorchScaler(growth_interval=3)
        for letter in history[:cut]:
            scaler, _ = scaler.update(OVERFLOW if letter == "o" else FINITE)
        restored = TorchScaler().load_framework_state(scaler.framework_state())
        assert trace(restored, history[cut:]) == whole[cut:]


def test_bad_framework_states():
    state = TorchScaler().framework_state()
    with pytest.raises(ValueError, match="did you mean '_growth_tracker'"):
        TorchScaler().load_framework_state({**state, "growth_tracker": 3})
    with pytest.raises(ValueError, match="without 'scale'"):
        TorchScaler().load_framework_state({key: state[key] for key in state if key != "scale"})


def test_unchecked_gradients_are_an_error():
    with pytest.raises(ValueError, match="observe the gradients first"):
        TorchScaler().update(Observation(checked=False))


def test_state_is_not_changed_in_place():
    scaler = TorchScaler()
    scaler.update(OVERFLOW)
    assert scaler == TorchScaler()
    assert math.isfinite(scaler.scale)


def test_each_optimizer_skips_by_its_own_gradients():
    for scaler in (TorchScaler(init_scale=8.0), TorchFsdpScaler(init_scale=8.0)):
        following, decision = scaler.update(Observation(overflow={"first": True, "second": False}))
        assert decision.apply == {"first": False, "second": True}
        assert following.scale == 4.0
        following, decision = scaler.update(Observation(overflow={"first": False, "second": False}))
        assert decision.apply == {"first": True, "second": True}
        assert following.growth_tracker == 1
