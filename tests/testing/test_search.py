"""The search: the smallest input with a fault, the same at every run; what is not deterministic is said to be so."""

import os
import subprocess
import sys

import pytest
from hypothesis import strategies as st
from hypothesis.errors import Flaky

from fp16sim.scaling import parse
from fp16sim.testing.case import case_of
from fp16sim.testing.histories import expanded
from fp16sim.testing.search import search, shortest_run
from fp16sim.testing.strategies.histories import overflow_histories
from fp16sim.testing.walk import Fault, NotApplicable, Walk


def found_by(strategy, examine, examples=100):
    with pytest.raises(Fault) as caught:
        search(strategy, examine, examples)
    return caught.value


def test_it_shrinks_to_the_smallest():
    def examine(history):
        if history.count("o") >= 3 and "n" in history:
            raise Fault(history, "three overflows and a NaN")

    found = found_by(overflow_histories(), examine)
    assert sorted(found.history) == ["n", "o", "o", "o"]
    assert found.what == "three overflows and a NaN"


def test_long_runs_shrink_step_by_step():
    def examine(history):
        if history.count("o") >= 137:
            raise Fault(history, "many")

    runs = st.integers(0, 1000).map(lambda length: "o" * length)
    assert found_by(runs, examine).history == expanded("o{137}")


def test_every_search_sees_the_same():
    def seen():
        drawn = []
        search(overflow_histories(), drawn.append, 50)
        return drawn

    first = seen()
    assert len(first) == 50
    assert first == seen()


def test_a_search_without_a_fault_ends():
    assert search(st.integers(), lambda number: None, 10) is None


def test_the_cause_is_kept():
    def examine(number):
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise Fault("o", "outer") from error

    assert isinstance(found_by(st.integers(), examine).__cause__, KeyError)


def test_a_scaler_that_is_not_deterministic_is_named_as_such():
    calls = []

    def examine(history):
        calls.append(history)
        if len(calls) == 3:
            raise Fault(history, "the third call")

    found = found_by(overflow_histories(), examine)
    assert found.what == "the same history ends otherwise the second time (the first: the third call)"
    assert found.history == calls[2]


def test_a_fault_that_is_another_each_time_is_still_a_fault():
    calls = []

    def examine(history):
        calls.append(history)
        raise Fault(history, f"call {len(calls)}")

    assert found_by(overflow_histories(), examine).history == ""


def test_errors_that_are_no_fault_come_through():
    def not_applicable(number):
        raise NotApplicable("it has no way of saving")

    with pytest.raises(NotApplicable, match="no way of saving"):
        search(st.integers(), not_applicable)

    def broken(number):
        raise ZeroDivisionError("a bug in the check itself")

    with pytest.raises(ZeroDivisionError):
        search(st.integers(), broken)
    calls = []

    def broken_now_and_then(number):
        calls.append(number)
        if len(calls) == 3:
            raise ZeroDivisionError("the third call")

    with pytest.raises(Flaky):
        search(st.integers(), broken_now_and_then)


def test_making_a_fault_smaller_ends_after_so_many_steps():
    """What is left is a fault all the same, and the search says it again at the end."""
    make = case_of(lambda: parse("torch,growth_interval=0"))
    steps = []

    def examine(length):
        walk = make.walk()
        walk.tell_all("o" * 200 + "." * 30_000)
        steps.append(length)
        if length >= 137:
            raise Fault("o" * length, "long")

    begun = Walk.spent()
    found = found_by(st.integers(0, 1000), examine)
    assert len(found.history) == steps[-1] >= 137
    assert Walk.spent() - begun == len(steps) * 30_200
    first = next(place for place, length in enumerate(steps) if length >= 137)
    assert (
        len(steps) - first <= 5
    )  # the first, two that spend the rest, one more on the way, and the one that is said


@pytest.mark.parametrize("shortest", [1, 2, 99, 100])
def test_the_shortest_run(shortest):
    looked = []

    def examine(length):
        looked.append(length)
        if length >= shortest:
            raise Fault("o" * length, "enough")

    with pytest.raises(Fault) as caught:
        shortest_run(examine, 100)
    assert len(caught.value.history) == shortest
    assert len(looked) <= 8
    assert shortest_run(examine, shortest - 1) is None


WITHOUT = """
import sys

sys.modules["hypothesis"] = None
import fp16sim as fs
from fp16sim import scaling


def make():
    return scaling.make("torch")


for enter in (
    lambda: fs.testing.check_scaler(make),
    lambda: dict(fs.testing.scaler_checks())["scale_stays_finite"](make),
    lambda: fs.testing.parametrize_scalers([make]),
    lambda: fs.testing.ScalerMachine,
    lambda: fs.testing.strategies,
):
    try:
        enter()
    except ImportError as error:
        print(type(error).__name__, error)
"""


def test_without_hypothesis_every_entrance_is_one_error_that_names_the_extra():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        f"ImportError {what} needs Hypothesis, which is not installed: pip install 'fp16sim[testing]', or in a clone "
        "pip install -e '.[testing]'"
        for what in (
            "check_scaler",
            "the check scale_stays_finite",
            "parametrize_scalers",
            "fp16sim.testing.ScalerMachine",
            "fp16sim.testing.strategies",
        )
    ]


LEAVES = """
import os

from hypothesis import configuration

import fp16sim as fs
from fp16sim.testing.search import nothing_written

only = ["skip_changes_nothing", "any_order_of_calls"]
fs.testing.check_scaler("robust,growth_interval=3", traits="any_order", only=only)
print(os.listdir("."))
print(configuration.storage_directory("constants").path)
configuration.set_hypothesis_home_dir("mine")
with nothing_written():
    print(configuration.storage_directory("constants").path)
"""


def test_no_folder_is_left_behind_and_where_the_users_own_goes_is_not_touched(tmp_path):
    environment = {
        name: value for name, value in os.environ.items() if name != "HYPOTHESIS_STORAGE_DIRECTORY"
    }
    (tmp_path / "uses.py").write_text(LEAVES)
    done = subprocess.run(
        [sys.executable, "uses.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    before, after, asked = done.stdout.splitlines()
    assert before == "['uses.py']"
    assert after == str(tmp_path / ".hypothesis" / "constants")
    assert asked == os.path.join("mine", "constants")
