"""The checks as parameters of a test of pytest."""

import re
import subprocess
import sys

import pytest

from fp16sim import scaling
from fp16sim.testing import parametrize, parametrize_scalers
from fp16sim.testing.checking import claimed_checks

TESTS = """
import pytest
from fp16sim import scaling
from fp16sim.testing import parametrize_scalers


def tiny():
    return scaling.make("torch", init_scale=2.0**-149, growth_interval=3)


def careful():
    return scaling.make("robust", growth_interval=3)


@parametrize_scalers(
    [tiny, careful],
    expected_failures={
        "tiny": {"scale_stays_above_zero": "no floor", "overflow_never_raises_the_scale": "it passes"}
    },
)
def test_scaler(make, check):
    check(make)


def absent():
    pytest.importorskip("no_such_framework")


@parametrize_scalers({"absent": absent})
def test_absent(make, check):
    check(make)


@parametrize_scalers([tiny])
def test_tiny(make, check):
    check(make)
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("users")
    (folder / "test_users.py").write_text(TESTS)
    chosen = "stays_above_zero or never_raises or after_a_stop"
    words = [
        "-rA",
        "-p",
        "no:cacheprovider",
        "-k",
        chosen,
        "--color=no",
        "-o",
        "console_output_style=classic",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", *words],
        cwd=folder,
        env={"PATH": "", "COLUMNS": "200", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    ("test", "status"),
    [
        ("test_scaler[tiny-scale_stays_above_zero]", "XFAIL"),
        ("test_scaler[tiny-overflow_never_raises_the_scale]", "FAILED"),
        ("test_scaler[tiny-goes_on_after_a_stop]", "SKIPPED"),
        ("test_scaler[careful-scale_stays_above_zero]", "PASSED"),
        ("test_scaler[careful-overflow_never_raises_the_scale]", "PASSED"),
        ("test_scaler[careful-goes_on_after_a_stop]", "PASSED"),
        ("test_absent[absent-scale_stays_above_zero]", "SKIPPED"),
        ("test_tiny[tiny-scale_stays_above_zero]", "FAILED"),
    ],
)
def test_each_scaler_and_check_is_a_test(printed, test, status):
    assert re.search(rf"^test_users.py::{re.escape(test)} {status}", printed, re.MULTILINE)


def test_reasons_are_shown(printed):
    assert "no floor" in printed
    assert "[XPASS(strict)] it passes" in printed
    assert "could not import 'no_such_framework'" in printed
    assert re.search(r"SKIPPED \[\d\] .*it never stops", printed)


def test_a_failure_shows_the_test_and_the_message_and_nothing_between(printed):
    at = printed.index("__ test_tiny[tiny-scale_stays_above_zero] __")
    block = printed[at : printed.index("=====", at)]
    assert 'Fault: "o": the scale went from 2^-149 to 0' in block
    assert re.search(r"\nE +rule: The scale never becomes zero or negative\.\n", block)
    assert "check(make)" in block
    assert "hypothesis" not in block.lower()
    assert "fp16sim/testing" not in block.replace("fp16sim/testing/checks/check.py:", "", 1)


def ids(mark):
    return [parameter.id for parameter in mark.args[1]]


def robust():
    return scaling.make("robust")


def test_ids_are_the_names_and_the_checks():
    names = [check.name for check in claimed_checks()]
    mark = parametrize_scalers([robust, lambda: robust(), "torch,init_scale=8"]).mark
    assert ids(mark) == [
        f"{name}-{check}" for name in ("robust", "scaler1", "torch,init_scale=8") for check in names
    ]
    assert ids(parametrize_scalers({"mine": robust}).mark) == [f"mine-{check}" for check in names]


def test_a_trait_adds_checks_that_know_of_it():
    mark = parametrize_scalers([robust], traits=["power_of_two", {"interval": 7}]).mark
    added = [each for each in mark.args[1] if each.values[1].check.trait == "interval"]
    assert added
    assert all(each.values[1].traits == {"power_of_two": True, "interval": 7} for each in added)
    assert [each.values[1].name for each in mark.args[1]] == [
        check.name for check in claimed_checks(["power_of_two", {"interval": 7}])
    ]


def test_a_call_may_claim_more():
    mark = parametrize_scalers([robust], traits=["power_of_two"]).mark
    check = next(
        each.values[1] for each in mark.args[1] if each.values[1].name == "makes_a_new_scaler_each_time"
    )
    seen = []
    claimed = parametrize.ClaimedCheck(lambda make, traits: seen.append(traits), check.traits)
    claimed(robust, traits=["interval=3"])
    claimed(robust)
    assert seen == [{"power_of_two": True, "interval": 3}, {"power_of_two": True}]


@pytest.mark.parametrize(
    ("arguments", "kind", "says"),
    [
        ([robust], TypeError, "is one factory: pass a list of them"),
        (["torch"], TypeError, "'torch' is one factory: pass a list of them"),
        ([[robust()]], TypeError, "a RobustScaler is no factory: pass a function"),
        ([[robust, robust]], ValueError, "two factories are called 'robust': pass a mapping"),
        ([[]], ValueError, "no factories: pass at least one"),
        ([["trch"]], ValueError, "did you mean 'torch'?"),
        ([[robust], ["power_of_too"]], ValueError, "did you mean 'power_of_two'?"),
        ([[robust], [], {"scale_stays_finit": "x"}], ValueError, "did you mean 'scale_stays_finite'?"),
        (
            [[robust], [], {"b": {"scale_stays_finite": "x"}}],
            ValueError,
            "no factory is called 'b': use one of",
        ),
        ([[robust], [], {"robust": {"scale_stays_finite": ""}}], ValueError, "say why in words"),
        ([5], TypeError, "factories=5: pass a list of functions, or classes, that make a scaler"),
        ([None], TypeError, "factories=None: pass a list of functions"),
        ([[robust], [], "x"], TypeError, "expected_failures is a str: pass a mapping of check to reason"),
        ([[robust], [], []], TypeError, "expected_failures is a list: pass a mapping of check to reason"),
        ([[robust], [], {"robust": "x"}], TypeError, "expected_failures['robust'] is a str: pass a mapping"),
    ],
)
def test_a_mistake_is_refused_while_tests_are_collected(arguments, kind, says):
    given = dict(zip(("factories", "traits", "expected_failures"), arguments, strict=False))
    with pytest.raises(kind, match=re.escape(says)):
        parametrize_scalers(given.pop("factories"), **given)


def test_without_pytest_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pytest", None)
    with pytest.raises(ImportError, match=re.escape("pip install 'fp16sim[testing]'")):
        parametrize._pytest()
