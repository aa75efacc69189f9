"""Every model beside traces recorded from the real package: the scale used, the scale dividing, applied or not, saved.

The files of tests/golden/scalers are named after the models; the scripts that recorded them are beside them.
"""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from fp16sim import scaling
from fp16sim.scaling import observe
from fp16sim.scaling.numbers import float32

FOLDER = Path(__file__).parents[1] / "golden" / "scalers"
FILES = sorted(FOLDER.glob("*.json"))
GROUPS = ("cases", "odd_cases")
MODELS = {"deepspeed_fused": "deepspeed_unfused", "paddle_amp": "paddle"}  # one rule in two classes
DEFAULTS = {"paddle_amp": {"init_loss_scaling": 2.0**15, "incr_every_n_steps": 1000}}
LOOKS = {"paddle": scaling.StaticScaler(1.0)}  # the CPU's kernel, that was recorded, tests before it unscales
ATTRIBUTES = {"_loss_scale": "scale", "_next_loss_scale": "next_loss_scale", "_unskipped": "unskipped"}
WITHOUT_ARGUMENTS = {
    "deepspeed_fused": {"initial_scale_power": 32},
    "deepspeed_unfused": {"min_loss_scale": 0.25},
}


def number(value):
    return float(value) if isinstance(value, str) else value


def same(ours, theirs):
    return ours == theirs or (isinstance(ours, float) and math.isnan(ours) and math.isnan(theirs))


def delivered(kind, used):
    """Give the scaled gradient of a step whose true gradient is 1, as the recording scripts do."""
    special = {"o": math.inf, "n": math.nan}
    return special.get(kind, used if math.isfinite(used) else 1.0)


def first_difference(scaler, case):
    """Replay a case; describe where the model parts from the package, empty if nowhere."""
    advances, reload = 0, case["options"].get("jit", False)  # jit sees a jmp scaler as its saved leaves
    for index, (kind, step) in enumerate(zip(case["history"], case["steps"], strict=True)):
        if reload:
            scaler = scaler.load_framework_state(scaler.framework_state())
        recorded = scaler.name.startswith("deepspeed")  # a scaled gradient of 1, whatever the scale
        gradient = np.float32([delivered(kind, 1.0 if recorded else float32(float(scaler.scale)))])
        following, decision = scaler.update(observe(LOOKS.get(scaler.name, scaler), [gradient]))
        if step[0] == "raise":
            if decision.stop is None:
                return f"step {index}: no reason to stop, but the package raised {step[1]!r}"
            scaler = following
            continue
        used, divided, applied = number(step[0]), number(step[1]), bool(step[2])
        if scaler.name == "mindspore_manager" and applied:
            divided = float32(divided)  # what the training cell makes of the manager's number
        ours = (float(scaler.scale), decision.divide_by if applied else None, decision.apply)
        for what, a, b in zip(("scale", "divisor", "applied"), ours, (used, divided, applied), strict=True):
            if not same(a, b):
                return f"step {index} of {case['history']!r} with {case['options']}: {what} {a!r}, not {b!r}"
        if decision.stop is not None:
            return f"step {index}: stopped, {decision.stop!r}, but the package went on"
        advances += decision.apply if decision.advance is None else decision.advance
        scaler = following
    for key, value in scaler.framework_state().items():
        if key not in case["state"] or not same(value, number(case["state"][key])):
            return f"state {key!r}: {value!r}, not {case['state'].get(key, 'there')!r}; {case['options']}"
    for key, attribute in ATTRIBUTES.items():  # of mxnet, which saves nothing
        if key in case["state"] and number(case["state"][key]) != getattr(scaler, attribute):
            return f"{key}: {getattr(scaler, attribute)!r}, not {case['state'][key]!r}; {case['options']}"
    for counter in ("iterations", "global_step"):
        if case["state"].get(counter, advances) != advances:
            return f"{counter}: advanced {advances} times, not {case['state'][counter]}"
    return ""


def model(path, options):
    if options.get("no_arguments"):
        options = WITHOUT_ARGUMENTS[path.stem]
    given = {key: number(value) for key, value in options.items() if key != "jit"}
    options = {**DEFAULTS.get(path.stem, {}), **given}
    return scaling.make(name_of(path), **options)


def name_of(path):
    return MODELS.get(path.stem, path.stem)


def never_steps(case):
    """Tell whether the package took the options, but no step: then a model may refuse them."""
    return all(step[0] == "raise" for step in case["steps"])


def test_there_are_traces():
    assert {"torch", "torch_fsdp", "keras3"} <= {path.stem for path in FILES} & set(scaling.names())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_traces(path):
    if name_of(path) not in scaling.names():
        pytest.skip(f"no model is named {path.stem}")
    recorded = json.loads(path.read_text())
    assert len(recorded["cases"]) >= 200
    for group in GROUPS:
        for case in recorded.get(group, []):
            try:
                scaler = model(path, case["options"])
            except ValueError:
                assert never_steps(case)
                continue
            difference = first_difference(scaler, case)
            assert not difference, f"{recorded['package']} {recorded['version']}: {difference}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_refusals(path):
    """What the package refuses, the model refuses."""
    if name_of(path) not in scaling.names():
        pytest.skip(f"no model is named {path.stem}")
    for refused in json.loads(path.read_text()).get("refused", []):
        with pytest.raises((ValueError, TypeError)):
            model(path, refused["options"])


def test_a_wrong_trace_is_noticed():
    """Each kind of planted fault in a recorded trace is found."""
    path = FOLDER / "torch.json"
    case = next(case for case in json.loads(path.read_text())["cases"] if case["steps"][0][2])
    used, divided, applied = case["steps"][0]
    for wrong, what in (
        ([math.nextafter(used, math.inf), divided, applied], "scale"),
        ([used, divided * 2, applied], "divisor"),
        ([used, None, 0], "applied"),
        (["raise", "RuntimeError: no"], "no reason to stop"),
    ):
        steps = [wrong, *case["steps"][1:]]
        assert what in first_difference(model(path, case["options"]), {**case, "steps": steps})
    state = {**case["state"], "_growth_tracker": -7}
    assert "_growth_tracker" in first_difference(model(path, case["options"]), {**case, "state": state})
