"""fairscale's layer-wise rule against traces recorded from the package, its edges, and its state."""

import json
from pathlib import Path

import pytest

from fp16sim import scaling
from fp16sim.scaling import FairscaleLayerwiseScaler, Observation

LAYERS = "abc"
GOLDEN = json.loads((Path(__file__).parents[1] / "golden/layers/fairscale_layerwise.json").read_text())


def observed(letters):
    overflow = {layer: letter != "." for layer, letter in zip(LAYERS, letters, strict=False)}
    return Observation(overflow=overflow, nan="n" in letters)


def differences(case, scaler):
    """Count the steps of a recorded case in which a scale, a divisor or the decision is another."""
    found = 0
    for letters, (scales, divisors, applied) in zip(case["history"], case["steps"], strict=True):
        following, decision = scaler.update(observed(letters))
        same = [scaler.scale[layer] for layer in LAYERS] == scales and decision.apply == bool(applied)
        for layer, divisor in zip(LAYERS, divisors, strict=True):
            same &= divisor is None or decision.divide_by[layer] == divisor
        found += not same
        scaler = following
    return found


def test_recorded_traces_are_replayed_without_a_difference():
    assert len(GOLDEN["cases"]) == 200
    for case in GOLDEN["cases"]:
        assert differences(case, scaling.make("fairscale_layerwise", **case["options"])) == 0, case["options"]


def test_a_wrong_window_is_caught():
    wrong = [
        {**case["options"], "growth_interval": case["options"]["growth_interval"] + 1}
        for case in GOLDEN["cases"]
    ]
    found = [
        differences(case, scaling.make("fairscale_layerwise", **options))
        for case, options in zip(GOLDEN["cases"], wrong, strict=True)
    ]
    assert sum(found) > 500


def test_the_trace_of_the_table_for_one_layer_while_the_other_is_finite():
    scaler = scaling.make("fairscale_layerwise", layer_scale_dict={"a": 65536.0, "b": 4.0}, growth_interval=2)
    scales, applied = [], []
    for letter in "oo...o.":
        scaler, decision = scaler.update(observed(letter + "."))
        scales.append(scaler.scale["a"])
        applied.append(decision.apply)
    assert scales == [32768, 16384, 16384, 32768, 32768, 16384, 16384]
    assert applied == [letter == "." for letter in "oo...o."]  # an overflow in one layer skips all
    assert scaler.scale["b"] == 32.0  # which grew on every second step all the same


def test_a_layer_that_overflowed_is_not_unscaled_in_the_next_step():
    scaler = scaling.make("fairscale_layerwise", layer_scale_dict={"a": 8.0, "b": 8.0})
    divisors = []
    for letters in ("o.", "..", ".."):
        scaler, decision = scaler.update(observed(letters))
        divisors.append((decision.divide_by["a"], decision.divide_by["b"]))
    assert divisors == [(8.0, 8.0), (1.0, 8.0), (4.0, 8.0)]


def test_without_layers_every_step_is_applied():
    scaler, decision = FairscaleLayerwiseScaler().update(observed("o"))
    assert (decision.apply, decision.divide_by["a"]) == (True, 1.0)
    assert scaler == FairscaleLayerwiseScaler()


def test_scales_are_clipped_when_they_move():
    scaler = scaling.make(
        "fairscale_layerwise",
        layer_scale_dict={"a": 2.0, "b": 64.0},
        min_scale=8.0,
        max_scale=32.0,
        growth_interval=1,
    )
    scaler, _ = scaler.update(observed("o."))
    assert dict(scaler.scale) == {"a": 8.0, "b": 32.0}  # raised by an overflow, lowered by growth


def test_an_initial_scale_for_layers_without_a_name():
    scaler = scaling.parse("fairscale_layerwise,init_scale=2**10,growth_interval=1")
    assert scaler.scale["anything"] == 1024.0
    scaler, decision = scaler.update(observed(".o"))
    assert dict(scaler.scale) == {"a": 2048.0, "b": 512.0}
    assert decision.divide_by["c"] == 1024.0


@pytest.mark.parametrize("cut", range(6))
def test_the_whole_state_is_saved_by_us_and_nothing_by_fairscale(cut):
    history = [".o", "..", "o.", "..", "..", ".n"]
    scaler = scaling.make("fairscale_layerwise", layer_scale_dict={"a": 8.0, "b": 2.0}, growth_interval=2)
    start = scaler
    for letters in history[:cut]:
        scaler, _ = scaler.update(observed(letters))
    restored = scaling.from_json(scaler.to_json())
    assert restored == scaler
    for letters in history[cut:]:
        scaler, first = scaler.update(observed(letters))
        restored, second = restored.update(observed(letters))
        assert (restored, first.apply, dict(first.divide_by)) == (
            scaler,
            second.apply,
            dict(second.divide_by),
        )
    assert scaler.framework_state() == {}
    assert scaler.load_framework_state({}) == start
    with pytest.raises(ValueError, match="fairscale saves nothing"):
        scaler.load_framework_state({"scale": 1.0})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer_scale_dict": 8.0}, "a scale for each layer by its name"),
        ({"layer_scale_dict": {"a": "x"}}, r"layer_scale_dict\['a'\]='x': it must be a finite number"),
        ({"growth_factor": 1.0}, "above 1"),
        ({"backoff_factor": 1.0}, "below 1"),
        ({"growth_interval": 2.5}, "an integer"),
        ({"init_scale": 0.0}, "above 0"),
        ({"scale": 8.0}, "unknown option 'scale'"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        scaling.make("fairscale_layerwise", **options)


def test_one_answer_for_all_layers_means_each():
    scaler = scaling.make("fairscale_layerwise", layer_scale_dict={"a": 8.0, "b": 2.0})
    scaler, decision = scaler.update(Observation(overflow=True))
    assert (dict(scaler.scale), decision.apply) == ({"a": 4.0, "b": 1.0}, False)
    with pytest.raises(ValueError, match="observe the gradients first"):
        scaler.update(Observation(checked=False))


def test_a_minimum_above_the_maximum_wins():
    scaler = scaling.make("fairscale_layerwise", layer_scale_dict={"a": 4.0}, min_scale=16.0, max_scale=8.0)
    following, _ = scaler.update(Observation(overflow={"a": True}))
    assert following.scale["a"] == 16.0
