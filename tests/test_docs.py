"""What docs/testing.md tells a newcomer to do is done, in an empty folder, and shows what the page shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "testing.md"
TEXT = PAGE.read_text("utf-8")
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", TEXT, re.DOTALL))
COMMANDS = re.findall(r"```console\n\$ (.*?)\n(.*?)```", TEXT, re.DOTALL)


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    program, *arguments = shlex.split(command)
    module = {"fp16sim": "fp16sim", "pytest": "pytest"}[program]
    environment = os.environ | {"COLUMNS": "100", "PYTHONHASHSEED": "0"}
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(("command", "shown"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_a_command_prints_what_the_page_shows(command: str, shown: str, folder: Path) -> None:
    done = run(command, folder)
    assert done.stderr == ""
    assert done.returncode == ("FAILED" in shown)
    assert done.stdout == shown


def test_the_files_pass_in_pytest(folder: Path) -> None:
    done = run("pytest -q test_my_scaler.py test_any_order.py test_halves.py", folder)
    assert done.returncode == 0, done.stdout
    assert re.search(r"\d+ passed", done.stdout)
    (line,) = re.findall(r"(?m)^pytest --fp16sim-scaler .*$", TEXT)
    done = run(f"{line} -q", folder)
    assert done.returncode == 0, done.stdout


def test_the_page_names_every_trait_and_public_name() -> None:
    from fp16sim import testing
    from fp16sim.testing.case import TRAITS

    assert [trait for trait in TRAITS if not re.search(rf"`{trait}[=`]", TEXT)] == []
    said = {
        "Chain",
        "Driver",
        "Fault",
        "NotApplicable",
        "Report",
        "Verdict",
        "BackendCheckError",
        "backend_checks",
    }
    assert [name for name in testing.__all__ if name not in TEXT and name not in said] == []
    assert [name for name in re.findall(r"\]\(([^)#]+)\)", TEXT) if not (PAGE.parent / name).exists()] == []
