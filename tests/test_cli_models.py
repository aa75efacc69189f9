"""The command line where it trains models: runs that are asked for, saved, resumed and compared."""

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fp16sim_samples import four_runs

from fp16sim.autograd.policy import Policy
from fp16sim.cli import main
from fp16sim.commands import model_runs, train
from fp16sim.commands.asked_runs import asked_runs, slow_products
from fp16sim.commands.progress import Progress
from fp16sim.emulator.datapath import DATAPATHS
from fp16sim.optim import SGD
from fp16sim.scaling.registry import names
from fp16sim.training import loop, recipes, step
from fp16sim.training.recipes import RECIPES
from fp16sim.training.saving import read_run


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("fp16sim: ")
    return captured.err


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
