"""`fp16sim scalers --check`: verdicts, JSON, exit codes, and misuse in one line."""

import json
import sys

import pytest

from fp16sim.cli import main
from fp16sim.testing import checking, watchdog
from fp16sim.testing.checks import CHECKS
from fp16sim.testing.checks.check import Check

PICKED = ("scale_stays_above_zero", "overflow_never_raises_the_scale")
TINY = "torch,init_scale=2**-149,growth_interval=3"
MINE = """
from dataclasses import dataclass, replace

from fp16sim.scaling import Decision


@dataclass(frozen=True)
class Mine:
    scale: float = 1024.0
    FLOOR = 1.0

    def update(self, observation):
        print("a scaler that talks")
        if observation.overflowed:
            return replace(self, scale=max(self.scale / 2, self.FLOOR)), Decision(False, self.scale)
        return replace(self, scale=min(self.scale * 2, 2.0**20)), Decision(True, self.scale)


class Sinking(Mine):
    FLOOR = 0.0


class Stuck(Mine):
    def update(self, observation):
        while observation.overflowed:
            pass
        return super().update(observation)


def broken():
    return 1 / 0


instance = Mine()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A user's folder, and three checks, so that runs are short."""

    def claimed(case):
        """Only with a claim."""

    kept = tuple(check for check in CHECKS if check.name in PICKED)
    monkeypatch.setattr(checking, "CHECKS", (*kept, Check("exact_window", 9, claimed, "interval")))
    monkeypatch.setattr(watchdog, "FIRST_LOOKS", 8)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("COLUMNS", "90")
    (tmp_path / "scalers_of_a_user.py").write_text(MINE)
    (tmp_path / "does_not_import.py").write_text("\nimport scalers_of_a_user\n\nscalers_of_a_user.none\n")
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith(("scalers_of_a_user", "does_not_import", "fp16sim_checks_")):
            del sys.modules[name]


def checked(capsys, *words, code):
    assert main(["scalers", "--check", *words]) == code
    return capsys.readouterr()


def test_a_condemned_scaler_of_the_package(capsys):
    captured = checked(capsys, TINY, code=1)
    assert captured.out.splitlines() == [
        'FAILED                5  scale_stays_above_zero',
        '                         "o": the scale went from 2^-149 to 0; give it a floor',
        "                         rule: The scale never becomes zero or negative.",
        "passed                7  overflow_never_raises_the_scale",
        "",
        f"{TINY}: 1 of 2 checks failed: 1 passed",
        "1 more check runs for traits that you claim: interval=N (--traits)",
    ]  # fmt: skip
    assert captured.err == ""


def test_a_healthy_one_of_ones_own_whose_prints_are_no_verdicts(capsys):
    captured = checked(capsys, "scalers_of_a_user:Mine", "--traits", "interval=1", code=0)
    assert captured.out.splitlines() == [
        "passed                5  scale_stays_above_zero",
        "passed                7  overflow_never_raises_the_scale",
        "passed                9  exact_window",
        "",
        "scalers_of_a_user:Mine: no failure in 3 checks: 3 passed",
    ]
    assert set(captured.err.splitlines()) == {"a scaler that talks"}


def test_expected_failures(capsys):
    words = ("scalers_of_a_user.py:Sinking", "--expect", "scale_stays_above_zero=no floor = no safety")
    assert "(expected: no floor = no safety)" in " ".join(checked(capsys, *words, code=0).out.split())
    words = ("scalers_of_a_user.py:Mine", "--expect", "scale_stays_above_zero=why")
    out = checked(capsys, *words, code=1).out
    assert "PASSED UNEXPECTEDLY   5" in out
    assert "take it out of --expect" in " ".join(out.split())


def test_only_what_is_asked_for_runs(capsys):
    words = ("scalers_of_a_user:Sinking", "--expect", "scale_stays_above_zero=no floor")
    out = checked(capsys, *words, "--only", "overflow_never_raises_the_scale", code=0).out
    assert out.splitlines() == [
        "passed                7  overflow_never_raises_the_scale",
        "",
        "scalers_of_a_user:Sinking: no failure in 1 check: 1 passed",
    ]
    both = ("--only", PICKED[1], "--only", PICKED[0])
    for only in (both, ("--only", ", ".join(PICKED))):
        data = json.loads(checked(capsys, *words, *only, "--json", code=0).out)
        assert [each["check"] for each in data["checks"]] == [*PICKED]


def test_json_is_one_object_and_nothing_else(capsys):
    captured = checked(capsys, "scalers_of_a_user:Sinking", "--json", "--traits", "interval=2", code=1)
    data = json.loads(captured.out)
    assert (data["scaler"], data["traits"], data["ok"]) == (
        "scalers_of_a_user:Sinking",
        {"interval": 2},
        False,
    )
    assert [each["check"] for each in data["checks"]] == [*PICKED, "exact_window"]
    assert data["checks"][0]["history"].startswith("o{")
    assert data["checks"][0]["what"].endswith("to 0; give it a floor")
    assert data["checks"][0]["says"] == "The scale never becomes zero or negative."
    assert json.loads(checked(capsys, "robust,growth_interval=3", "--json", code=0).out)["ok"] is True


def test_one_that_does_not_return_is_condemned(capsys):
    captured = checked(capsys, "scalers_of_a_user:Stuck", code=1)
    assert captured.out.splitlines()[:3] == [
        "FAILED                5  scale_stays_above_zero",
        '                         "o": Stuck.update does not return within 0.2 s',
        "FAILED                   1 more as scale_stays_above_zero, where Stuck.update does not",
    ]


def test_what_is_not_claimed_is_told_where_nothing_is(capsys, monkeypatch):
    monkeypatch.setattr(checking, "CHECKS", CHECKS)
    only = ("--only", PICKED[0])
    healthy = "robust,growth_interval=3"
    data = json.loads(checked(capsys, healthy, *only, "--json", "--traits", "groups,rechecks", code=0).out)
    assert data["unclaimed"] == ["power_of_two", "interval=N", "hysteresis=N", "any_order", "checked"]
    assert "more checks" not in checked(capsys, healthy, *only, code=0).out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["trch"], "--check: 'trch' is no scaler of this package: did you mean 'torch'?"),
        (["no_such:make"], "no module 'no_such' in"),
        (["no_such.py:make"], "no_such.py: there is no such file"),
        (["scalers_of_a_user:mine"], "scalers_of_a_user has no 'mine': did you mean 'Mine'?"),
        (["scalers_of_a_user:instance"], "a Mine is no factory"),
        (["scalers_of_a_user:broken"], "raised ZeroDivisionError: division by zero ("),
        (["does_not_import:make"], "does_not_import.py, line 4)"),
        (["json:JSONDecoder"], "a JSONDecoder is no scaler"),
        (
            ["torch", "--traits", "intervall=2"],
            "--traits: unknown trait 'intervall': did you mean 'interval'?",
        ),
        (["torch", "--traits", "interval=-3"], "--traits: trait 'interval=-3': "),
        (["torch", "--traits", "interval=x"], "write a whole number, such as interval=2"),
        (["torch", "--expect", "scale_stays_above_zero"], "write check=reason"),
        (
            ["torch", "--expect", "scale_stays_above=x"],
            "--expect: unknown check 'scale_stays_above': did",
        ),
        (["torch", "--expect", "exact_window=x"], "claim the trait 'interval', or take it out"),
        (["torch", "--only", "scale_stays_above"], "--only: unknown check 'scale_stays_above': did you mean"),
        (
            ["torch", "--only", "exact_window"],
            "--only: exact_window does not run: claim the trait 'interval'",
        ),
        (["torch", "--check", "robust"], "--check stands twice"),
        (["torch", "--window", "3"], "--check torch with --window: the checks choose their histories"),
        (["torch", "oo..."], "with a history: the checks choose their histories"),
        (["torch", "--scaler", "robust"], "with --scaler"),
        (["torch", "--plot", "a.png"], "with --plot"),
    ],
)
def test_misuse_is_one_line_and_exit_code_2(words, says, capsys, folder):
    before = sorted(folder.iterdir())
    captured = checked(capsys, *words, code=2)
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert says in captured.err
    assert sorted(folder.iterdir()) == before


def test_claims_without_a_scaler_to_check(capsys):
    assert main(["scalers", "--traits", "groups"]) == 2
    assert "without --check FACTORY" in capsys.readouterr().err


def test_without_hypothesis_the_extra_is_named(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    assert "pip install 'fp16sim[testing]'" in checked(capsys, "torch", code=2).err


def test_histories_are_read_as_the_checks_print_them(capsys):
    words = ["scalers", "--scaler", "torch,growth_interval=3", "--json"]
    assert main([*words, "o{166}."]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["history"] == "o" * 166 + "."
    assert found["scalers"][0]["after"][164:] == [2.0**-149, 0.0, 0.0]
    assert main([*words[:3], "o{166}."]) == 0
    assert "after each step of o{166}., from the initial scale on" in capsys.readouterr().out
    assert main([*words[:3], "(.o){20}"]) == 0
    assert "steps of (.o){20}" in capsys.readouterr().out
    for history, says in (("o{x}.", "braces hold the length"), ("o{9999999}", "at most 1000000")):
        assert main([*words, history]) == 2
        assert says in capsys.readouterr().err
