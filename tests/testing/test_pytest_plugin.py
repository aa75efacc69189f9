"""The plugin of pytest: a scaler is checked by an option, without a file of tests."""

import re
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

SCALER = """
from dataclasses import dataclass, replace

from fp16sim.scaling import Decision


@dataclass(frozen=True)
class Mine:
    scale: float = 2.0**-149

    def update(self, observation):
        factor = 0.5 if observation.overflowed else 2.0
        following = replace(self, scale=min(self.scale * factor, 2.0**20))
        return following, Decision(not observation.overflowed, self.scale)


instance = Mine()
"""
QUICK = ("-k", "stays_above_zero or never_raises or after_a_stop or exact_window")
TINY = "torch,init_scale=2**-149,growth_interval=3"


@pytest.fixture
def run(tmp_path):
    """Run pytest in a user's folder, whose configuration is as strict as this one's."""
    (tmp_path / "mine.py").write_text(SCALER)
    (tmp_path / "test_own.py").write_text("def test_of_ones_own():\n    pass\n")
    (tmp_path / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\naddopts = ["--strict-markers", "--strict-config"]\n'
        'filterwarnings = ["error"]\nxfail_strict = true\n'
    )

    def started(*words, code=0):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-v", "--color=no", "-p", "no:cacheprovider", *words],
            cwd=tmp_path,
            env={"PATH": "", "COLUMNS": "160", "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr
        return done.stdout + done.stderr

    yield started
    assert sorted(each.name for each in tmp_path.iterdir() if each.name != ".hypothesis") == [
        "mine.py",
        "pyproject.toml",
        "test_own.py",
    ]


def outcomes(text):
    found = re.findall(r"^(\S+::\S+) (PASSED|FAILED|SKIPPED|XFAIL|ERROR)", text, re.MULTILINE)
    return {test.replace("::", " "): outcome for test, outcome in found}


def test_every_check_of_every_scaler_is_a_test_and_no_other_runs(run):
    text = run("--fp16sim-scaler", TINY, "--fp16sim-scaler", "mine:Mine", *QUICK, "-rs", code=1)
    assert outcomes(text) == {
        f"{TINY} scale_stays_above_zero": "FAILED",
        f"{TINY} overflow_never_raises_the_scale": "PASSED",
        f"{TINY} goes_on_after_a_stop": "SKIPPED",
        "mine:Mine scale_stays_above_zero": "FAILED",
        "mine:Mine overflow_never_raises_the_scale": "PASSED",
        "mine:Mine goes_on_after_a_stop": "SKIPPED",
    }
    failure = text[text.index("= FAILURES =") : text.index("= short test summary")]
    assert f"__ {TINY}: scale_stays_above_zero __" in failure
    says = r'"o": the scale went from 2\^-149 to 0[^\n]*\nrule: The scale never becomes zero or negative\.\n_'
    assert re.search(rf"scale_stays_above_zero _+\n{says}", failure)
    assert "fp16sim/testing" not in failure
    assert "goes_on_after_a_stop: it never stops" in text


def test_with_a_path_both_run_and_traits_and_expectations_are_read(run):
    text = run(
        "--fp16sim-scaler",
        "./mine.py:Mine",
        "--fp16sim-traits",
        "interval=1,power_of_two",
        "--fp16sim-expect",
        "scale_stays_above_zero=no floor, says the maker",
        *QUICK[:1],
        f"{QUICK[1]} or ones_own",
        "test_own.py",
        "-rx",
    )
    assert outcomes(text)["test_own.py test_of_ones_own"] == "PASSED"
    assert outcomes(text)["./mine.py:Mine scale_stays_above_zero"] == "XFAIL"
    assert outcomes(text)["./mine.py:Mine exact_window"] == "PASSED"
    assert "no floor, says the maker" in text


def test_an_expected_failure_that_passes_is_an_error(run):
    text = run(
        "--fp16sim-scaler", TINY, "--fp16sim-expect", "overflow_never_raises_the_scale=why", "-k", "raises", code=1
    )  # fmt: skip
    assert "[XPASS(strict)] why" in text


def test_ids_that_were_printed_choose_checks(run):
    text = run("--fp16sim-scaler", TINY, "--fp16sim-scaler", "./mine.py:Mine", "-k", "never_raises", code=0)
    printed = re.findall(r"^\S+::\S+", text, re.MULTILINE)
    assert printed == [f"{name}::overflow_never_raises_the_scale" for name in (TINY, "./mine.py:Mine")]
    again = run("--fp16sim-scaler", TINY, "--fp16sim-scaler", "./mine.py:Mine", printed[1], "test_own.py")
    assert outcomes(again) == {
        "test_own.py test_of_ones_own": "PASSED",
        "./mine.py:Mine overflow_never_raises_the_scale": "PASSED",
    }
    assert outcomes(run("--fp16sim-scaler", TINY, *printed[:1])).keys() == {printed[0].replace("::", " ")}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["mine.py:Mine::scale_stays_finite"],
            "is a check of --fp16sim-scaler: put --fp16sim-scaler mine.py:Mine before it",
        ),
        (["--fp16sim-scaler", "torch", "torch::scale_stays"], "unknown check 'scale_stays': did you mean"),
        (["--fp16sim-scaler", "torch", "torch::exact_window"], "exact_window does not run: claim the trait"),
        (["--fp16sim-scaler", "trch"], "did you mean 'torch'?"),
        (["--fp16sim-scaler", "mine:instance"], "mine:instance: a Mine is no factory"),
        (
            ["--fp16sim-scaler", "torch", "--fp16sim-traits", "intervall=2"],
            "--fp16sim-traits: unknown trait 'intervall': did",
        ),
        (["--fp16sim-scaler", "torch", "--fp16sim-expect", "x"], "write check=reason"),
        (["--fp16sim-traits", "groups"], "without --fp16sim-scaler FACTORY"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_runs(run, words, says):
    text = run(*words, code=pytest.ExitCode.USAGE_ERROR)
    (line,) = text.strip().splitlines()
    assert line.startswith("ERROR: ")
    assert says in line


def test_they_are_counted_and_listed(run):
    text = run("--fp16sim-scaler", TINY, "-k", "scale_stays", "--collect-only")
    assert (
        f"<ScalerCollector {TINY}>\n  <CheckItem scale_stays_finite>\n  <CheckItem scale_stays_above_zero>\n"
        in text
    )
    collected, deselected = re.search(r"collected (\d+) items / (\d+) deselected / 2 selected", text).groups()
    assert int(collected) == int(deselected) + 2
    assert f"2/{collected} tests collected" in text


def test_without_hypothesis_it_is_one_usage_error(tmp_path):
    words = ["--fp16sim-scaler", "torch", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
    program = f"""
import sys, pytest

class Without:
    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self):
        sys.modules["hypothesis"] = None

sys.exit(pytest.main({words}, plugins=[Without()]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    says = (
        "ERROR: --fp16sim-scaler needs Hypothesis, which is not installed: pip install 'fp16sim[testing]', or in a "
        "clone pip install -e '.[testing]'"
    )
    assert (done.stdout + done.stderr).strip() == says


def test_without_the_option_it_is_not_there(run):
    assert outcomes(run()) == {"test_own.py test_of_ones_own": "PASSED"}


@pytest.mark.slow
def test_workers_share_the_checks(run):
    pytest.importorskip("xdist")
    text = run("--fp16sim-scaler", TINY, *QUICK, "-n", "2", code=1)
    assert "1 failed, 1 passed, 1 skipped" in text


def test_the_start_of_pytest_loads_nothing_of_the_package_but_the_plugin(tmp_path):
    assert [each.value for each in entry_points(group="pytest11") if each.name == "fp16sim"] == [
        "fp16sim.testing.pytest_plugin"
    ]
    program = (
        "import sys, pytest\n"
        "before = set(sys.modules)\n"
        "import fp16sim.testing.pytest_plugin\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {name for name in loaded if name.startswith("fp16sim")} == {
        "fp16sim",
        "fp16sim.testing",
        "fp16sim.testing.pytest_plugin",
    }
    assert not loaded & {"numpy", "hypothesis", "numba", "ml_dtypes"}
