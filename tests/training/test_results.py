"""Results as plain data: every bit comes back from JSON, and strict JSON at that."""

import dataclasses
import json
import math
from types import SimpleNamespace

import pytest

from fp16sim.recording.histogram import Histogram, Shares
from fp16sim.training.results import Run, RunResult, Step, results_from_json, results_to_json


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


# --- a run as it is printed


def run(steps=7, scale=2.0**20):
    history = tuple(
        Step(n, math.nan if n == 3 else 2.0 / n, 2.0 ** (21 - n), n != 3, n == 3, 0.0, 0.0, 1.0)
        for n in range(1, steps + 1)
    )
    return Run(history, "0123456789abcdef", "the model", SimpleNamespace(scale=scale))


def test_a_run_prints_as_a_short_table():
    expected = (
        "steps  applied  skipped  first loss  last loss  final scale        digest\n"
        "-----  -------  -------  ----------  ---------  -----------  ------------\n"
        "7            6        1           2   0.285714         2^20  0123456789ab"
    )
    assert str(run()) == repr(run()) == expected
    assert run(0).__str__().splitlines()[2].split() == ["0", "0", "0", "-", "-", "2^20", "0123456789ab"]
    # Scales of layers: that of the loss in the last step.
    assert str(run(7, {"a": 1.0, "b": 2.0})).split()[-2:] == ["16384", "0123456789ab"]
    assert str(run(0, {"a": 1.0})).split()[-2:] == ["nan", "0123456789ab"]


def test_a_run_shows_as_a_table_in_a_notebook():
    shown = run()._repr_html_()
    assert shown.startswith("<table><thead><tr><th>steps</th>")
    assert "<td>7</td><td>6</td><td>1</td><td>2</td><td>0.285714</td><td>2^20</td>" in shown


@pytest.mark.parametrize(
    ("every", "steps"), [(1, "1234567"), (2, "1357"), (3, "147"), (4, "157"), (7, "17"), (100, "17")]
)
def test_the_table_of_steps_has_every_so_many_and_the_last(every, steps):
    lines = run().table(every=every).splitlines()
    assert lines[0].split() == ["step", "loss", "scale", "applied", "overflow"]
    assert [line.split()[0] for line in lines[2:]] == list(steps)
    if every == 1:
        assert lines[4].split() == ["3", "nan", "2^18", "no", "yes"]


@pytest.mark.parametrize("every", [0, -1, True, 2.0, "2"])
def test_a_table_of_no_steps_is_refused(every):
    with pytest.raises(ValueError, match="the table has every so many steps; pass a positive integer"):
        run().table(every=every)


def test_a_run_stays_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        run().digest = "other"
