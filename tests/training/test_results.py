"""Results as plain data: every bit comes back from JSON, and strict JSON at that."""

import json
import math

import pytest

from fp16sim.recording.histogram import Histogram, Shares
from fp16sim.training.results import RunResult, Step, results_from_json, results_to_json


def result(loss=0.1, final_scale=2.0**40):
    histogram = Histogram()
    histogram.add([1.0, 0.0, 3e-8])
    steps = (
        Step(1, 1 / 3, 2.0**40, False, True, 0.1, 0.2, 0.7),
        Step(2, loss, 2.0**39, True, False, math.nan, 0.0, 1.0),
    )
    return RunResult(
        "a", "float32", "none", steps, 0.97, Shares(0.1, 0.2, 0.7), final_scale, 1, "ab", histogram
    )


def same(a, b):
    return repr(a) == repr(b)  # NaN equals NaN here, and floats print every bit


@pytest.mark.parametrize("loss", [0.1, math.nan, math.inf, -math.inf, 5e-324])
def test_round_trip(loss):
    before = result(loss)
    text = before.to_json()
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert same(RunResult.from_json(text), before)
    assert same(results_from_json(results_to_json([before, before])), [before, before])


def test_types_come_back():
    step = RunResult.from_json(result().to_json()).history[0]
    assert [type(value) for value in vars(step).values()] == [
        int,
        float,
        float,
        bool,
        bool,
        float,
        float,
        float,
    ]


@pytest.mark.parametrize("missing", ["history", "digest", "histogram", "shares"])
def test_what_is_not_a_result(missing):
    data = result().to_dict()
    del data[missing]
    with pytest.raises(ValueError, match="not a run result"):
        RunResult.from_dict(data)


def test_columns_of_unequal_length():
    data = result().to_dict()
    data["history"]["loss"].pop()
    with pytest.raises(ValueError, match="not a run result"):
        RunResult.from_dict(data)
