"""Scalers by name: spellings, state, and the errors."""

import json
from collections.abc import Mapping

import numpy as np
import pytest

from fp16sim import scaling
from fp16sim.scaling import Observation


def test_names():
    assert {"none", "static", "torch", "apex", "keras3"} <= set(scaling.names())
    assert scaling.names() == sorted(scaling.names())
    for name in scaling.names():
        scale = scaling.make(name).scale
        assert isinstance(scale, Mapping) or scale > 0
        assert isinstance(scaling.make(name), scaling.Scaler)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", scaling.NoScaler()),
        ("static,scale=8", scaling.StaticScaler(8.0)),
        (" static , scale = 2**-3 ", scaling.StaticScaler(0.125)),
        ("static,scale=1e3", scaling.StaticScaler(1000.0)),
        ("torch,init_scale=2^40,growth_interval=30", scaling.TorchScaler(2.0**40, growth_interval=30)),
        ("torch,backoff_factor=.25", scaling.TorchScaler(backoff_factor=0.25)),
        ("delayed,fp8_format=E4M3,margin=2", scaling.DelayedScaler(2, "E4M3")),
        ("adaptive,use_bound=False,power_of_two=true", scaling.AdaptiveScaler(use_bound=False)),
        ("adaptive,use_bound=0", scaling.AdaptiveScaler(use_bound=False)),
    ],
)
def test_parse(text, expected):
    assert scaling.parse(text) == expected
    assert scaling.as_scaler(text) == expected
    assert scaling.as_scaler(expected) is expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("statik", "did you mean 'static'"),
        ("", "unknown scaler ''"),
        ("static,scal=8", r"did you mean 'scale'\? Valid: scale=1024.0"),
        (
            "torch,window=8",
            r"of scaler 'torch': use one of these: init_scale=65536.0, .*, growth_interval=2000$",
        ),
        ("none,scale=8", "takes none"),
        ("static,scale", "key=value"),
        ("static,scale=", "key=value"),
        ("static,scale=big", "write a number"),
        ("static,scale=8,scale=9", "twice"),
        ("static,scale=0", "above 0"),
        ("static,scale=-8", "above 0"),
        ("static,scale=inf", "scale=inf: it must be a finite number above 0"),
        ("static,scale=nan", "scale=nan"),
        ("torch,growth_factor=1", "above 1"),
        ("torch,backoff_factor=1", "below 1"),
        ("torch,growth_interval=2.5", "an integer"),
        ("torch,init_scale=1e39", "init_scale=1e[+]39"),
        ("torch,init_scale=9**9999", "beyond float64; write a finite number"),
        ("static,scale=2**5000", "beyond float64; write a finite number"),
        ("static,scale=1" + "0" * 400, "scale=an integer of 1329 bits: it must be a finite number above 0"),
    ],
)
def test_refusals_are_one_line_with_value_and_remedy(text, message):
    with pytest.raises(ValueError, match=message) as caught:
        scaling.parse(text)
    assert "\n" not in str(caught.value)


def test_numpy_numbers_are_numbers():
    scaler = scaling.make("torch", init_scale=np.float32(8.0), growth_interval=np.int64(3))
    assert scaler == scaling.make("torch", init_scale=8.0, growth_interval=3)
    assert scaling.from_json(scaler.to_json()) == scaler


def walk(scaler, history):
    for overflow in history:
        scaler, _ = scaler.update(Observation(overflow=overflow))
    return scaler


@pytest.mark.parametrize("text", ["none", "static,scale=3", "torch,init_scale=12345.678,growth_interval=3"])
@pytest.mark.parametrize("length", range(8))
def test_state_survives_json_in_the_middle_of_a_history(text, length):
    history = [True, False, False, True, False, False, False, False]
    before = walk(scaling.parse(text), history[:length])
    restored = scaling.from_json(before.to_json())
    assert restored == before
    assert walk(restored, history[length:]) == walk(scaling.parse(text), history)


def test_every_field_is_saved():
    scaler = walk(
        scaling.make("torch", init_scale=8, growth_factor=4, backoff_factor=0.25, growth_interval=9), [0]
    )
    assert json.loads(scaler.to_json()) == {
        "scaler": "torch",
        "init_scale": 8,
        "growth_factor": 4,
        "backoff_factor": 0.25,
        "growth_interval": 9,
        "scale": 8.0,
        "growth_tracker": 1,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "no 'scaler' entry"),
        ('{"scaler": "static"}', "lacks 'scale'"),
        ('{"scaler": "static", "scale": 8, "scal": 9}', "no state 'scal'"),
        ('{"scaler": "stati", "scale": 8}', "did you mean 'static'"),
    ],
)
def test_bad_json(text, message):
    with pytest.raises(ValueError, match=message):
        scaling.from_json(text)


@pytest.mark.parametrize("name", scaling.names())
def test_a_state_with_a_value_of_another_type_is_refused(name):
    """At once, not at the first update."""
    state = json.loads(scaling.make(name).to_json())
    for key in state.keys() - {"scaler", "fp8_format", "amax_compute_algo"}:
        for wrong in ("many", [1, {}], {"a": "b"}):
            with pytest.raises(ValueError, match=rf"^{key}=.* in a state of {name}: its type is ") as caught:
                scaling.from_json(json.dumps({**state, key: wrong}))
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "key", "value"), [
    ("torch", "growth_tracker", 1.0), ("torch", "growth_tracker", True), ("torch", "scale", None),
    ("torch", "scale", 10**400), ("apex", "unskipped", None), ("deepspeed", "consecutive_hysteresis", 2),
    ("delayed", "scales", 1), ("delayed", "amax_history", {"x": [1.0, "o"]}), ("delayed", "fp8_format", 4),
    ("fairscale_layerwise", "growth_trackers", {"0": 0.5}),
])  # fmt: skip
def test_types_of_a_state(name, key, value):
    state = json.loads(scaling.make(name).to_json())
    with pytest.raises(ValueError, match=f"^{key}="):
        scaling.from_json(json.dumps({**state, key: value}))


def test_a_scaler_is_anything_with_scale_and_update():
    class Halving:
        scale = 4.0

        def update(self, observation):
            return self, scaling.Decision(True, 4.0)

    assert isinstance(scaling.as_scaler(Halving()), Halving)
    with pytest.raises(
        TypeError, match=r"^TorchScaler is a class: pass an object of it, such as TorchScaler\(\)$"
    ):
        scaling.as_scaler(scaling.TorchScaler)
    with pytest.raises(TypeError, match=r"1024 is no scaler: pass text such as 'static,scale=1024'"):
        scaling.as_scaler(1024)
    with pytest.raises(TypeError, match=r"a NoneType is no scaler: .* has `scale` and `update`"):
        scaling.as_scaler(None)


@pytest.mark.parametrize("scale", [2**5000, 10**5000, float("inf")], ids=["2**5000", "10**5000", "inf"])
def test_a_scale_is_finite(scale):
    with pytest.raises(ValueError, match="it must be a finite number above 0"):
        scaling.make("static", scale=scale)


@pytest.mark.parametrize(("given", "shown"), [(5, "5"), (None, "None"), (scaling.NoScaler(), "a NoScaler")])
def test_what_is_parsed_is_text(given, shown):
    with pytest.raises(TypeError, match=rf"^parse\({shown}\): a scaler is written as text.*'static,scale="):
        scaling.parse(given)


def test_what_is_restored_is_text():
    with pytest.raises(ValueError, match=r"^not JSON \(.*\): pass what to_json wrote$"):
        scaling.from_json(5)


def test_a_name_that_the_package_lacks_is_told_with_the_nearest():
    with pytest.raises(
        AttributeError, match=r"^fp16sim.scaling has no 'simulat': did you mean 'simulate'\?$"
    ):
        scaling.simulat  # noqa: B018
    with pytest.raises(
        AttributeError, match=r"^fp16sim.scaling has no 'xyzzy': dir\(fp16sim.scaling\) lists the"
    ):
        scaling.xyzzy  # noqa: B018
    assert not hasattr(scaling, "__no_such__")
