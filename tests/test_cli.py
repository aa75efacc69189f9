"""The command line: what it prints, its exit codes, and that nothing finished is lost."""

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fp16sim_samples import four_runs

import fp16sim
from fp16sim.autograd.policy import Policy
from fp16sim.cli import main
from fp16sim.commands import model_runs, train
from fp16sim.commands.asked_runs import asked_runs, slow_products
from fp16sim.commands.progress import Progress
from fp16sim.emulator.datapath import DATAPATHS
from fp16sim.optim import SGD
from fp16sim.report import html
from fp16sim.report.tables import HEADER, rows, text_table
from fp16sim.scaling.registry import names
from fp16sim.training import comparison, loop, recipes, step
from fp16sim.training.recipes import RECIPES
from fp16sim.training.results import RunResult, RunSpec, results_from_json, results_to_json
from fp16sim.training.saving import read_run


def command(*words: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fp16sim", *words],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace training by made-up results, given one after the other as they would be."""

    def compare_runs(runs: Any, **_: Any) -> Iterator[RunResult]:
        return iter(four_runs()[: len(runs)])

    monkeypatch.setattr(comparison, "compare_runs", compare_runs)


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("fp16sim: ")
    return captured.err


# --- misuse: exit code 2, one line, no traceback


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "use train, compare, scalers, explain; see fp16sim --help"),
        (["trian"], "did you mean 'train'?"),
        (["train", "--scalr", "none"], "did you mean '--scaler'?"),
        (["train", "--scal=none"], "did you mean '--scaler'?"),
        (["train", "more"], "unknown argument 'more'"),
        (["train", "--seed", "x"], "invalid int value: 'x'"),
        (["explain"], "required: number"),
        (["explain", "two"], "'two' is not a number; write one such as 2e-8"),
        (["explain", "1/0"], "is not a number"),
        (["explain", "nan", "--scale", "snan"], "--scale: 'snan' is not a number"),
        (["explain", "1", "--scale", "0"], "a loss scale is positive"),
        (["explain", "1", "--scale", "-8"], "a loss scale is positive"),
        (["explain", "1", "--format", "binry16"], "did you mean 'binary16'?"),
        (["explain", "1e400"], "fp16sim: number: about 2^1328 is beyond float64"),
        (["explain", "1e999999999"], "fp16sim: number=1E+999999999: describe works out"),
        (["explain", "2**99999"], "fp16sim: number: 2**99999 is too large; use an exponent within 1000"),
        (["explain", "-2^-99999"], "is too small; use an exponent within 1000"),
        (["explain", "1", "--scale", "1e400"], "fp16sim: --scale: about 2^1328 is beyond float64"),
        (["explain", "1e300", "--scale", "1e300"], "fp16sim: number * scale: about"),
        (["explain", "1", "--scale", "8", "--scale=16"], "--scale stands twice, 8 and 16: keep one"),
        (["train", "--model", "mlp", "--model", "gru"], "--model stands twice, mlp and gru: keep one"),
        (["train", "--seed", "1", "--seed", "1"], "--seed stands twice, 1 and 1: keep one"),
        (["scalers", "oo", "--window", "2", "--window", "3"], "--window stands twice, 2 and 3: keep one"),
    ],
)
def test_misuse_is_one_line_and_exit_code_2(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert says in one_line(capsys)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--scaler", "statik"], "did you mean 'static'?"),
        (["--scaler", "static,scal=8"], "did you mean 'scale'?"),
        (["--scaler", "static,scale=big"], "write a number"),
        (["--scaler", "static,scale=-8"], "scale="),
        (["--scaler", "static,scale=2**99999"], "scale='2**99999': too large, beyond float64"),
        (
            ["--scaler", "none", "--scaler", "static", "--scaler", " none"],
            "--scaler none stands twice: keep one",
        ),
        (["--epochs", "0"], "epochs=0"),
        (["--seed", "-1"], "--seed -1"),
    ],
)
def test_a_scaler_or_an_epoch_that_cannot_be_is_noticed_before_training(
    words: list[str],
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(comparison, "fit_steps", lambda *_, **__: pytest.fail("it trains"))
    assert main(["train", "--out", str(tmp_path / "run"), *words]) == 2
    assert says in one_line(capsys)


def test_a_missing_parent_says_how_to_make_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--out", str(tmp_path / "no" / "run")]) == 2
    assert f"mkdir -p {tmp_path / 'no'}" in one_line(capsys)
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_cannot_be_written_is_noticed_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "compare_runs", lambda *_, **__: pytest.fail("it trains"))
    (tmp_path / "file").write_text("mine")
    assert main(["train", "--out", str(tmp_path / "file" / "run")]) == 2
    assert str(tmp_path / "file") in one_line(capsys)
    assert main(["train", "--out", str(tmp_path / "file")]) == 2
    assert "is a file" in one_line(capsys)

    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    assert main(["train", "--out", str(tmp_path / "run")]) == 1
    assert "cannot be written (Permission denied)" in one_line(capsys)


@pytest.mark.parametrize("out", ["", " "])
def test_an_empty_output_is_refused(
    out: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(comparison, "compare_runs", lambda *_, **__: pytest.fail("it trains"))
    assert main(["train", "--out", out]) == 2
    assert f"--out {out!r}: results go into a folder; name one" in one_line(capsys)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["results.json", "report.html", "loss.png"])
def test_a_folder_where_a_file_is_written_is_noticed_before_training(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "compare_runs", lambda *_, **__: pytest.fail("it trains"))
    (tmp_path / name).mkdir()
    assert main(["train", "--out", str(tmp_path)]) == 2
    assert f"{name} is a folder: a file is written there; name another folder" in one_line(capsys)


@pytest.mark.parametrize("resume", [[], ["--resume"]])
def test_a_folder_where_the_state_is_written_is_noticed_before_training(
    resume: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "float32-none" / "state.npz").mkdir(parents=True)
    words = ["train", "--model", "mlp", "--policy", "float32", "--scaler", "none", "--out", str(tmp_path)]
    assert main([*words, *resume]) == 2
    assert "state.npz is a folder: a file is written there; remove it, or name another" in one_line(capsys)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
def test_an_output_that_is_full_is_one_line(tmp_path: Path) -> None:
    assert "/dev/full is a file: results go into a folder" in (
        command("train", "--out", "/dev/full", cwd=tmp_path).stderr
    )
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "fp16sim", "explain", "1"],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "standard output cannot be written (No space left on device): " in done.stderr


def test_the_installed_command_has_these_codes_too(tmp_path: Path) -> None:
    wrong = command("train", "--out", "no/run", cwd=tmp_path)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.count("\n") == 1
    version = command("--version", cwd=tmp_path)
    assert (version.returncode, version.stdout) == (0, f"fp16sim {fp16sim.__version__}\n")


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "fp16sim.cli", "explain", "1"]
    with subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--model", "mpl"], "unknown model 'mpl': did you mean 'mlp'?"),
        (["--model", "mlp", "--policy", "floatt16"], "did you mean 'float16'?"),
        (["--model", "mlp", "--scaler", "torhc"], "did you mean 'torch'?"),
        (["--model", "mlp", "--scaler", "static,scal=8"], "did you mean 'scale'?"),
        (["--model", "mlp", "--datapath", "h10"], "did you mean 'h100'?"),
        (["--model", "mlp", "--policy", "float32", "--datapath", "h100"], "it takes binary16 or bfloat16"),
        (["--model", "mlp", "--datapath", "h100", "--policy", "float32"], "it takes binary16 or bfloat16"),
        (
            ["--model", "mlp", "--datapath", "h100", "--datapath", "a100"],
            "--datapath h100 and --datapath a100 for one",
        ),
        (
            ["--model", "mlp", "--datapath", "h100", "--policy", "float16", "--datapath", "a100"],
            "--datapath h100: every policy has one of its own; leave this one out",
        ),
        (
            ["--model", "mlp", "--policy", "float16", "--policy", "float16"],
            "'float16 torch' is asked for twice",
        ),
        (
            ["--model", "mlp", "--scaler", "none", "--policy", "float16", "--scaler", "none"],
            "--scaler none stands twice for float16: keep one",
        ),
        (["--reduction", "exact"], "--reduction goes with --model"),
        (["--model", "mlp", "--steps", "0"], "--steps 0: it counts steps; choose 1 or more"),
        (["--model", "mlp", "--save-every", "-1"], "--save-every -1"),
        (["--model", "mlp", "--lr", "nan"], "--lr nan: a learning rate is finite and not negative"),
        (["--model", "mlp", "--lr", "1e400"], "--lr: 1e400 is too large, beyond float64; try 0.05"),
        (["--model", "mlp", "--lr", "fast"], "--lr: 'fast' is not a number; write one such as 0.05"),
        (["--model", "mlp", "--lr", "0.1", "--lr", "0.2"], "--lr stands twice, 0.1 and 0.2: keep one"),
        (["--model", "mlp", "--seed", "-1"], "--seed -1"),
        (["--model", "mlp", "--epochs", "3"], "--epochs goes without --model: leave one of them out"),
        (["--model", "mlp", "--no-report"], "--no-report goes without --model"),
        (
            ["--model", "mlp", "--resume"],
            "holds no saved run (mixed_float16-torch); name its folder, or begin without",
        ),
        (["--steps", "3"], "--steps goes with --model: name a model, or leave --steps out"),
        (["--steps", "0"], "--steps goes with --model"),
        (["--policy", "float16"], "--policy goes with --model"),
        (["--save-every", "3"], "--save-every goes with --model"),
        (["--resume"], "--resume goes with --model"),
        (["--model", "mlp", "--polcy", "float16"], "did you mean '--policy'?"),
    ],
)
def test_what_a_model_cannot_be_trained_with_is_noticed_before_training(
    words: list[str],
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(step, "train_step", lambda *_, **__: pytest.fail("it trains"))
    monkeypatch.setattr(loop, "train_step", lambda *_, **__: pytest.fail("it trains"))
    assert main(["train", "--out", str(tmp_path / "run"), *words]) == 2
    assert says in one_line(capsys)
    assert list(tmp_path.iterdir()) == []


# --- explain


def test_explain_prints_the_description(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "2e-8", "--scale", "1024"]) == 0
    printed = capsys.readouterr().out
    for word in ("flushed", "subnormal", "0 | 00000 | 0000000000", "recovered", "2^-24"):
        assert word in printed


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("-2e-3", -0.0020008087158203125),
        ("-.5", -0.5),
        ("-inf", float("-inf")),
        ("2^-24", 2.0**-24),
        ("-2**-24", -(2.0**-24)),
        ("0x1p-24", 2.0**-24),
        # float64 would read 2^-25, which is stored as zero.
        ("-0x1.00000000000001p-25", -(2.0**-24)),
        ("-0x0p0", -0.0),
        ("1/3", 0.333251953125),
        ("-0", -0.0),
        # Exactly as written: float64 would read 65520, which overflows.
        ("65519.9999999999999999999", 65504.0),
    ],
)
def test_explain_reads_numbers_exactly(text: str, stored: float, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", text, "--json"]) == 0
    fields = json.loads(capsys.readouterr().out)
    assert str(float(fields["stored"])) == str(stored)


def test_explain_recovers_something_only_where_it_scaled(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "1e-8", "--json"]) == 0
    fields = json.loads(capsys.readouterr().out)
    assert (fields["scaled"], fields["recovered"], fields["recovered_error"]) == (None, None, None)
    assert main(["explain", "1e-8", "--scale", "8", "--json"]) == 0
    fields = json.loads(capsys.readouterr().out)
    assert (fields["recovered"], fields["scaled"]["recovered"]) == (2.0**-27, None)


def test_explain_needs_neither_numba_nor_matplotlib(tmp_path: Path) -> None:
    code = (
        "import sys; from fp16sim.cli import main; assert main(['explain', '2e-8']) == 0;"
        "print(sorted({'numba', 'matplotlib', 'tqdm'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


# --- train


def test_train_writes_results_page_and_pictures(
    quick: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--out", str(tmp_path / "run")]) == 0
    captured = capsys.readouterr()
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "histogram.png",
        "loss.png",
        "report.html",
        "results.json",
        "scale.png",
    ]
    text = (tmp_path / "run" / "results.json").read_text()
    assert text == results_to_json(results_from_json(text)) == results_to_json(four_runs())
    for word in (
        "float16 unscaled",
        "10.6%",
        "2^-17",
        "SSD",
        "report.html",
        "skipped steps",
        "one image is 0.25%",
    ):
        assert word in captured.out
    assert captured.err.splitlines()[0] == "1 of 4  float32: 97.0% correct"


def test_an_earlier_report_does_not_stay_beside_new_results(
    quick: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "--out", str(tmp_path), "--quiet"]
    (tmp_path / "mine.png").write_text("mine")
    assert main(words) == 0
    assert (tmp_path / "scale.png").exists()
    assert main([*words, "--scaler", "none"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "histogram.png", "loss.png", "mine.png", "report.html", "results.json",
    ]  # fmt: skip
    assert main([*words, "--no-report"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.png", "results.json"]


def test_a_comparison_without_results_leaves_the_earlier_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "report.html").write_text("earlier")

    def compare_runs(*_: Any, **__: Any) -> Iterator[RunResult]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(comparison, "compare_runs", compare_runs)
    assert main(["train", "--out", str(tmp_path)]) == 1
    assert (tmp_path / "report.html").read_text() == "earlier"


def test_quiet_prints_the_table_only(
    quick: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["train", "--out", str(tmp_path / "run"), "--quiet"]) == 0
    captured = capsys.readouterr()
    assert captured.out == text_table(HEADER, rows(four_runs())) + "\n"
    assert captured.err == ""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["train", "--out", str(tmp_path / "run"), "--quiet"]) == 0
    again = capsys.readouterr()
    assert again.out == captured.out
    assert again.err.startswith("fp16sim: No report.html: pictures need matplotlib")


def test_ctrl_c_is_answered_before_the_report_is_drawn(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def compare_runs(*_: Any, **__: Any) -> Iterator[RunResult]:
        yield from four_runs()[:2]
        raise KeyboardInterrupt

    def write_report(*_: Any) -> Path:
        assert capsys.readouterr().err.endswith("interrupted; writing what is finished ...\n")
        return tmp_path

    monkeypatch.setattr(comparison, "compare_runs", compare_runs)
    monkeypatch.setattr(html, "write_report", write_report)
    assert main(["train", "--out", str(tmp_path / "run")]) == 1


def test_the_default_folder_makes_runs_itself(
    quick: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--no-report", "--quiet"]) == 0
    assert [path.name for path in (tmp_path / "runs" / "digits").iterdir()] == ["results.json"]
    assert capsys.readouterr().err == ""


def test_train_prints_strict_json(quick: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--out", str(tmp_path / "run"), "--json"]) == 0
    fields = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert fields["complete"] is True
    assert fields["report"] == str(tmp_path / "run" / "report.html")
    assert [run["name"] for run in fields["runs"]] == [result.name for result in four_runs()]
    assert set(fields["runs"][0]) >= {"accuracy", "shares", "final_scale", "skipped", "digest"}


def test_scalers_that_are_asked_for_are_compared_with_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[RunSpec] = []

    def compare_runs(runs: Any, **_: Any) -> Iterator[RunResult]:
        asked.extend(runs)
        return iter(four_runs()[: len(runs)])

    monkeypatch.setattr(comparison, "compare_runs", compare_runs)
    words = ["--scaler", "static, scale=16", "--scaler", "none"]
    assert main(["train", "--out", str(tmp_path / "run"), "--no-report", "--quiet", *words]) == 0
    assert [(spec.policy, spec.scaler) for spec in asked] == [
        ("float32", "none"),
        ("mixed_float16", "static,scale=16"),
        ("mixed_float16", "none"),
    ]
    assert asked[2].name == "float16 unscaled"


def test_ctrl_c_keeps_the_runs_that_are_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def compare_runs(*_: Any, **__: Any) -> Iterator[RunResult]:
        yield from four_runs()[:2]
        raise KeyboardInterrupt

    monkeypatch.setattr(comparison, "compare_runs", compare_runs)
    assert main(["train", "--out", str(tmp_path / "run"), "--quiet"]) == 1
    captured = capsys.readouterr()
    first, last = captured.err.splitlines()
    assert first == "interrupted; writing what is finished ..."
    assert "interrupted: 2 of 4 runs are finished and kept" in last
    kept = results_from_json((tmp_path / "run" / "results.json").read_text())
    assert [result.name for result in kept] == ["float32", "float16 unscaled"]
    assert "Interrupted" in (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "float16 unscaled" in captured.out


def test_ctrl_c_before_the_first_run_is_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def compare_runs(*_: Any, **__: Any) -> Iterator[RunResult]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(comparison, "compare_runs", compare_runs)
    assert main(["train", "--out", str(tmp_path / "run")]) == 1
    assert "interrupted; no run was finished" in one_line(capsys)
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT is a POSIX signal")
def test_a_real_ctrl_c_in_the_second_run(tmp_path: Path) -> None:
    # The process sends itself SIGINT at the third step of its second run: no clock takes part.
    code = """
import os, signal, sys
from fp16sim.cli import main
from fp16sim.commands import train

signal.signal(signal.SIGINT, signal.default_int_handler)
class Interrupting(train.Progress):
    def step(self, name, step, steps):
        if name == "static 8" and step.step == 3:
            os.kill(os.getpid(), signal.SIGINT)
train.Progress = Interrupting
sys.exit(main(["train", "--out", "run", "--epochs", "1", "--scaler", "static,scale=8", "--quiet"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 2, done.stderr
    assert done.stderr.startswith(
        "interrupted; writing what is finished ...\nfp16sim: interrupted: 1 of 2 runs"
    )
    assert [r.name for r in results_from_json((tmp_path / "run" / "results.json").read_text())] == ["float32"]
    assert (tmp_path / "run" / "report.html").exists()


def test_a_run_that_fails_keeps_the_ones_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def compare_runs(*_: Any, **__: Any) -> Iterator[RunResult]:
        yield from four_runs()[:1]
        raise FloatingPointError("minimum loss scale\nreached")

    monkeypatch.setattr(comparison, "compare_runs", compare_runs)
    assert main(["train", "--out", str(tmp_path / "run"), "--quiet", "--no-report"]) == 1
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "minimum loss scale reached: 1 of 4 runs are finished" in captured.err
    assert len(results_from_json((tmp_path / "run" / "results.json").read_text())) == 1


def test_without_the_report_extra_there_is_a_table_and_a_line_that_names_it(
    quick: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] in ("matplotlib", "tqdm")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert main(["train", "--out", str(tmp_path / "run")]) == 0
    captured = capsys.readouterr()
    assert captured.out.count("pip install 'fp16sim[report]', or in a clone pip install -e '.[report]'") == 1
    assert captured.out.splitlines()[-1].startswith("No report.html:")
    assert "float16 dynamic" in captured.out
    assert "4 of 4  float16 dynamic: 97.0% correct" in captured.err
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["results.json"]


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tqdm")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    progress = Progress(1)
    result = four_runs()[0]
    for taken in result.history:
        progress.step("float32", taken, 40)
    progress.finished(result.name, "97.0% correct")
    progress.close()
    printed = capsys.readouterr().err
    assert "float32" in printed
    assert "/40" in printed
    assert "1 of 1" not in printed


# --- train --model, compare

MLP = ["train", "--model", "mlp", "--steps", "6", "--quiet"]


def table(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """Give the printed table as cells; two blanks or more part them."""
    captured = capsys.readouterr()
    assert captured.err == ""
    lines = [line for line in captured.out.splitlines() if line]
    return [re.split(r" {2,}", line) for line in (lines[0], *lines[2:])]


def test_a_model_is_trained_and_its_runs_are_compared_in_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--policy", "float32", "--policy", "mixed_float16", "--scaler", "torch, init_scale=2**30"]
    words += ["--scaler", "static,scale=8", "--policy", "float16"]
    assert main([*MLP, "--out", str(tmp_path / "run"), *words]) == 0
    header, *rows = table(capsys)
    assert header == ["run", "steps", "applied", "skipped", "final loss", "accuracy", "final scale", "digest"]
    assert [row[0] for row in rows] == [
        "float32 none",
        "mixed_float16 torch,init_scale=2**30",
        "mixed_float16 static,scale=8",
        "float16 torch",
    ]
    assert [row[1:4] for row in rows[:3:2]] == [["6", "6", "0"]] * 2
    assert rows[0][6] == "-"
    assert int(rows[1][3]) > 2
    assert len({row[7] for row in rows}) == 4
    data = json.loads((tmp_path / "run" / "results.json").read_text(), parse_constant=pytest.fail)
    assert (data["model"], data["complete"], data["seed"], data["steps"]) == ("mlp", True, 0, 6)
    for run, row in zip(data["runs"], rows, strict=True):
        saved = read_run(run["folder"])
        assert saved.digest == run["digest"]
        assert run["digest"].startswith(row[7])
        assert (len(saved.history), saved.history[-1].loss) == (6, run["loss"])
        assert run["applied"] + run["skipped"] == run["steps"] == 6


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], ["mixed_float16 torch"]),
        (
            ["--scaler", "static,scale=8", "--scaler", "none"],
            ["mixed_float16 static,scale=8", "mixed_float16 none"],
        ),
        (["--policy", "float64", "--policy", "mixed_bfloat16"], ["float64 none", "mixed_bfloat16 none"]),
        (["--scaler", "none", "--policy", "float16"], ["float16 none"]),
        (
            ["--policy", "float32", "--scaler", "static,scale=2", "--policy", "mixed_float16"],
            ["float32 static,scale=2", "mixed_float16 torch"],
        ),
    ],
)
def test_a_scaler_belongs_to_the_policy_before_it(words: list[str], expected: list[str]) -> None:
    parser = argparse.ArgumentParser()
    train.add_arguments(parser)
    assert [run.name for run in asked_runs(parser.parse_args(words).order)] == expected


TWICE = ["--policy", "mixed_float16", "--policy", "float16"]
CORES = ["--policy", "mixed_float16", "--datapath", "a100", "--policy", "mixed_float16", "--datapath", "h100"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--policy", "float32", *CORES[:4]], ["float32 none", "mixed_float16 a100 torch"]),
        (["--datapath", "h100", "--scaler", "none"], ["mixed_float16 h100 none"]),
        # Before any policy: for all that take it, but not in place of their own.
        (
            ["--datapath", "h100", "--policy", "float32", *TWICE, "--datapath", "a100"],
            ["float32 none", "mixed_float16 h100 torch", "float16 a100 torch"],
        ),
        (CORES, ["mixed_float16 a100 torch", "mixed_float16 h100 torch"]),
        (
            ["--policy", "float16", "--reduction", "float32", "--gradients", "exact", "--policy", "float64"],
            ["float16 gradients=exact reduction=float32 torch", "float64 none"],
        ),
    ],
)
def test_a_datapath_belongs_to_the_policy_before_it(words: list[str], expected: list[str]) -> None:
    parser = argparse.ArgumentParser()
    train.add_arguments(parser)
    runs = asked_runs(parser.parse_args(words).order)
    assert [run.name for run in runs] == expected
    for run in runs:
        typed = dict.fromkeys(run.name.split()[1:-1])
        assert run.policy.matmul in (*typed, run.policy.reduction, "float16", "float32", "float64")
        for text in typed:
            field, _, path = text.rpartition("=")
            assert getattr(run.policy, field or "matmul") == path
            assert field or run.policy.convolution == path


def test_operands_without_a_fast_kernel_are_named() -> None:
    def slow(policy: str, **datapaths: str) -> str:
        return slow_products(Policy(policy, **datapaths))  # type: ignore[arg-type]

    assert slow("mixed_float16", matmul="a100") == slow("float64") == slow("mixed_bfloat16") == ""
    assert slow("mixed_bfloat16", matmul="h100") == "bfloat16 operands on h100"
    assert slow("float16", gradients="exact") == "binary16 operands on exact"
    assert slow("float16", convolution="exact") == "binary16 operands on exact"
    assert slow("float16", reduction="exact") == ""


def test_what_takes_long_is_said_before_it_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any, **__: Any) -> Any:
        raise RuntimeError("begun")

    monkeypatch.setattr(loop, "train_step", stop)
    words = ["train", "--model", "mlp", "--policy", "mixed_bfloat16", "--datapath", "a100"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 1
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith(
        "no fast kernel multiplies bfloat16 operands on a100: products take hundreds of times"
    )
    assert last == "fp16sim: mixed_bfloat16 a100 none: begun"


def test_a_run_that_takes_long_gives_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter(range(0, 99, 4))
    monkeypatch.setattr("fp16sim.commands.progress.monotonic", lambda: next(seconds))
    taken = four_runs()[0].history[0]
    shown = Progress(1)
    for number in range(1, 9):
        shown.step("float32 none", replace(taken, step=number), 8)
    assert capsys.readouterr().err.splitlines() == ["float32 none: step 3 of 8", "float32 none: step 6 of 8"]
    quiet = Progress(1, quiet=True)
    for number in range(1, 9):
        quiet.step("float32 none", replace(taken, step=number), 8)
    assert capsys.readouterr().err == ""


def test_what_a_run_replaces_and_what_stays_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "--model", "mlp", "--steps", "2", "--out", str(tmp_path), "--policy"]
    assert main([*words, "float32"]) == 0
    assert len(capsys.readouterr().err.splitlines()) == 1
    digest = read_run(tmp_path / "float32-none").digest[:12]
    assert main([*words, "float32"]) == 0
    first, *_ = capsys.readouterr().err.splitlines()
    assert first == f"replacing the finished run of 2 steps, digest {digest}, in {tmp_path / 'float32-none'}"
    assert main([*words, "float64"]) == 0
    first, *_ = capsys.readouterr().err.splitlines()
    assert first == f"{tmp_path} keeps other runs too, which results.json will not list: float32-none"
    (tmp_path / "float64-none" / "state.npz").write_bytes(b"broken")
    assert main([*words, "float64"]) == 0
    assert f"replacing the damaged state in {tmp_path / 'float64-none'}" in capsys.readouterr().err
    assert main([*words, "float64", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_the_rate_the_datapath_and_the_seed_change_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digests = []
    for words in ([], [], ["--lr", "0.01"], ["--datapath", "a100"], ["--seed", "1"], ["--measure"]):
        assert main([*MLP, "--out", str(tmp_path / "run"), *words]) == 0
        digests.append(table(capsys)[1][-1])
    assert digests[0] == digests[1]
    assert len(set(digests)) == 5


def test_a_schedule_keeps_its_shape_at_another_rate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rates: list[float] = []

    class Recording(SGD):
        def step(self, gradients: Any = None) -> None:
            rates.append(self.lr)
            super().step(gradients)

    recipe = replace(
        RECIPES["mlp"],
        optimizer=lambda model: Recording(model.parameters(), lr=0.5),
        schedule=lambda applied: 0.5 / (1 + applied),
    )
    monkeypatch.setattr(recipes, "RECIPE", recipe)
    words = [*MLP[:3], "--policy", "float32", "--steps", "3", "--out", str(tmp_path / "run"), "--quiet"]
    assert main(words) == 0
    assert main([*words, "--lr", "0.25"]) == 0
    assert rates == [0.5, 0.25, 0.5 / 3, 0.25, 0.125, 0.5 / 3 / 2]


def test_strict_json_of_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--out", str(tmp_path / "run"), "--lr", "1e30", "--policy", "float32", "--json"]
    assert main([*MLP, *words]) == 0
    data = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert data["runs"][0]["loss"] == "NaN"
    assert data == json.loads((tmp_path / "run" / "results.json").read_text())


def test_the_default_folder_of_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--model", "mlp", "--steps", "1"]) == 0
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*.*")) == [
        "runs/mlp/mixed_float16-torch/state.npz",
        "runs/mlp/results.json",
    ]
    assert "Results: runs/mlp/results.json, states beside it" in capsys.readouterr().out


def test_all_names_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    expected = {
        "models": list(RECIPES),
        "policies": ["float32", "float16", "mixed_float16", "mixed_bfloat16", "float64"],
        "scalers": names(),
        "datapaths": [name for name in DATAPATHS if not re.search("tf32|fp8", name)],
    }
    assert main(["train", "--list", "--json"]) == 0
    data = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert {kind: [each["name"] for each in found] for kind, found in data.items()} == expected
    assert next(each for each in data["scalers"] if each["name"] == "static")["options"] == {"scale": 1024.0}
    assert next(each for each in data["datapaths"] if each["name"] == "h100")["takes"] == [
        "binary16",
        "bfloat16",
    ]
    for policy in expected["policies"]:
        Policy(policy)

    assert main(["train", "--list"]) == 0
    sections = capsys.readouterr().out.split("\n\n")
    for section, words in zip(sections, expected.values(), strict=True):
        title, *lines = section.splitlines()
        assert title.endswith(":")
        assert [line.split()[0] for line in lines if line[2] != " "] == words
        assert max(map(len, lines)) <= 110
    assert "264 steps, measured by accuracy" in sections[0]
    assert re.search(r"^  torch  +init_scale=65536.0, growth_factor=2.0,", sections[2], re.MULTILINE)


# The process sends itself a signal at a step of its second run: no clock takes part.
INTERRUPTING = """
import os, signal, sys
from fp16sim.cli import main
from fp16sim.commands import model_runs

signal.signal(signal.SIGINT, signal.default_int_handler)
class Interrupting(model_runs.Progress):
    def step(self, name, step, steps):
        if name.startswith("mixed_float16") and step.step == 4:
            os.kill(os.getpid(), signal.{signal})
model_runs.Progress = Interrupting
sys.exit(main(sys.argv[1:]))
"""
TWO_RUNS = [
    "--policy",
    "float32",
    "--policy",
    "mixed_float16",
    "--scaler",
    "torch,init_scale=2**24",
    "--out",
    "run",
]


@pytest.mark.skipif(sys.platform == "win32", reason="these signals are POSIX's")
@pytest.mark.parametrize("name", ["SIGINT", "SIGKILL"])
def test_an_interrupted_and_a_killed_command_go_on_with_the_same_bits(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*MLP, *TWO_RUNS, "--save-every", "3"]
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTING.replace("{signal}", name), *words],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    monkeypatch.chdir(tmp_path)
    folder = Path("run") / "mixed_float16-torch,init_scale=2^24"
    if name == "SIGINT":
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.count("\n") == 1
        _, again = done.stderr.rstrip("\n").split("go on with fp16sim ")
        assert f"fp16sim: interrupted: step 4 of 6 is saved in {folder}; " in done.stderr
        resuming = shlex.split(again)
        assert resuming == ["train", "--model", "mlp", *TWO_RUNS[:6], "--steps", "6", "--save-every", "3", "--out",
                            "run", "--resume"]  # fmt: skip
    else:
        assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGKILL, "", "")
        resuming = [*words, "--resume"]
    taken = 4 if name == "SIGINT" else 3
    assert len(read_run(folder).history) == taken

    assert main(words) == 2
    assert f"{folder} was saved at step" in one_line(capsys)
    assert main(["compare", "run", "run"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"float32-none: the same bits: 6 steps, digest \S+", first)
    assert re.fullmatch(rf"\S+2\^24: the same bits: {taken} of 6 steps, digest \S+", second)

    assert main([*resuming, *(["--quiet"] if "--quiet" not in resuming else [])]) == 0
    resumed = table(capsys)
    assert main([*MLP, *TWO_RUNS[:-1], "whole"]) == 0
    assert table(capsys) == resumed
    assert main(["compare", "run", "whole"]) == 0
    assert capsys.readouterr().out.count("the same bits: 6 steps, digest ") == 2


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT is a POSIX signal")
def test_a_run_that_was_not_begun_leaves_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupting(Progress):
        def step(self, name: str, step: Any, steps: int) -> None:
            if name.startswith("mixed_float16") and step.step == 2:
                os.kill(os.getpid(), signal.SIGINT)

    out = tmp_path / "run"
    policies = [word for name in ("float32", "mixed_float16", "float16") for word in ("--policy", name)]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(model_runs, "Progress", Interrupting)
            assert main([*MLP, *policies, "--out", str(out)]) == 1
    finally:
        signal.signal(signal.SIGINT, before)
    assert sorted(path.name for path in out.iterdir()) == [
        "float32-none",
        "mixed_float16-torch",
        "results.json",
    ]
    capsys.readouterr()
    whole = str(tmp_path / "whole")
    assert main([*MLP, "--policy", "mixed_float16", "--out", whole]) == 0
    capsys.readouterr()
    assert main(["compare", str(out / "mixed_float16-torch"), whole]) == 1
    assert capsys.readouterr().out == (
        "mixed_float16-torch: the same for 2 steps, but one has 2 steps and the other 6 "
        "(not finished: 2 of 6 steps, and 6 steps)\n"
    )


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT is a POSIX signal")
def test_ctrl_c_after_the_results_are_printed_changes_nothing(tmp_path: Path) -> None:
    # The process sends itself SIGINT while it ends.
    code = """
import atexit, os, signal, sys
from fp16sim.cli import main

signal.signal(signal.SIGINT, signal.default_int_handler)
atexit.register(os.kill, os.getpid(), signal.SIGINT)
sys.exit(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", code, "explain", "1"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("1.0 in binary16")


def test_progress_of_a_model_goes_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "--model", "mlp", "--steps", "2", "--out", str(tmp_path / "run")]
    assert main(words) == 0
    assert re.fullmatch(r"1 of 1  mixed_float16 torch: .*% correct", capsys.readouterr().err.splitlines()[-1])
    assert main([*words[:-3], "3", *words[-2:], "--resume"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "mixed_float16 torch: going on from step 2 of 3"


def test_other_settings_are_refused_on_resumption(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*MLP[:3], "--quiet", "--out", str(tmp_path)]
    assert main([*words, "--steps", "6"]) == 0
    capsys.readouterr()
    for more, says in (
        (["--lr", "0.01"], "was saved with optimizer lr 0.05, and now it is 0.01"),
        (["--datapath", "a100"], "holds no saved run (mixed_float16-a100-torch)"),
        (["--seed", "1"], "batch 5 of the data is not what the run in"),
        (["--steps", "5"], "was saved at step 6, and steps=5"),
        (["--seed", "1", "--steps", "5"], "the same data in the same order (the same seed)"),
    ):
        assert main([*words, "--resume", *more]) == 2
        assert says in one_line(capsys)


def test_a_run_that_fails_keeps_the_runs_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(number: int, *arguments: Any, policy: Any, **options: Any) -> Any:
        if policy.name == "float16":
            raise RuntimeError("the scaler stopped at step 1: the scale is\nat its floor")
        return step.train_step(number, *arguments, policy=policy, **options)

    monkeypatch.setattr(loop, "train_step", failing)
    words = ["--policy", "float32", "--policy", "float16", "--out", str(tmp_path / "run")]
    assert main([*MLP, *words]) == 1
    captured = capsys.readouterr()
    assert captured.out.splitlines()[2].startswith("float32 none")
    assert captured.err.count("\n") == 1
    assert (
        "float16 torch: the scaler stopped at step 1: the scale is at its floor: 1 of 2 runs" in captured.err
    )
    data = json.loads((tmp_path / "run" / "results.json").read_text())
    assert (data["complete"], len(data["runs"])) == (False, 1)


def test_runs_that_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    assert main([*MLP, "--policy", "float32", "--policy", "float16", "--out", one]) == 0
    assert main([*MLP, "--policy", "float32", "--lr", "0.01", "--out", other]) == 0
    capsys.readouterr()
    assert main(["compare", one, other]) == 1
    second, first = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"float32-none: first difference at step 2: loss \S+ and \S+", first)
    assert second == f"float16-torch: not in {other}"
    assert main(["compare", f"{one}/float16-torch", other, "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert (data["same"], data["runs"][0]["step"]) == (False, 1)
    assert main(["compare", f"{one}/float32-none", one]) == 1  # by name: only one of the two is in both
    assert "float16-torch: not in" in capsys.readouterr().out
    assert main(["compare", f"{one}/float32-none", f"{one}/float32-none"]) == 0


def test_what_cannot_be_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(tmp_path)]) == 2
    assert "required: DIR" in one_line(capsys)
    assert main(["compare", str(tmp_path / "no"), str(tmp_path)]) == 2
    assert f"{tmp_path / 'no'} is no folder: name what fp16sim train --model wrote" in one_line(capsys)
    assert main(["compare", str(tmp_path), str(tmp_path)]) == 2
    assert "holds no saved run" in one_line(capsys)
    (tmp_path / "state.npz").write_bytes(b"broken")
    assert main(["compare", str(tmp_path), str(tmp_path)]) == 1
    assert "is no whole saved run" in one_line(capsys)
