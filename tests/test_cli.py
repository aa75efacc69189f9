"""The command line: what it prints, its exit codes, and that nothing finished is lost."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fp16sim_samples import four_runs

import fp16sim
from fp16sim.cli import main
from fp16sim.commands.progress import Progress
from fp16sim.report import html
from fp16sim.report.tables import HEADER, rows, text_table
from fp16sim.training import comparison, loop, step
from fp16sim.training.results import RunResult, RunSpec, results_from_json, results_to_json


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


def test_that_earlier_results_are_replaced_is_said(
    quick: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "--out", str(tmp_path), "--no-report"]
    assert main(words) == 0
    assert "replacing" not in capsys.readouterr().err
    assert main(words) == 0
    assert capsys.readouterr().err.startswith(f"replacing the results in {tmp_path}, once the first run is ")


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
