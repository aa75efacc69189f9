"""Hypothesis is an extra: the rest imports without it, and the strategies say what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

BLOCKED = "import sys; sys.modules['hypothesis'] = None; "


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BLOCKED + program], capture_output=True, text=True, check=False
    )


def test_the_package_imports_without_hypothesis() -> None:
    found = run("import fp16sim, fp16sim.testing; print(fp16sim.testing.__name__)")
    assert (found.returncode, found.stdout) == (0, "fp16sim.testing\n"), found.stderr


@pytest.mark.parametrize(
    "program",
    [
        "import fp16sim.testing.strategies",
        "import fp16sim as fs; fs.testing.strategies.half()",
        "from fp16sim.testing.strategies.halves import half",
    ],
)
def test_strategies_name_the_extra(program: str) -> None:
    found = run(program)
    assert found.returncode == 1
    assert found.stderr.splitlines()[-1] == (
        "ImportError: fp16sim.testing.strategies needs Hypothesis, which is not installed: "
        "pip install 'fp16sim[testing]', or in a clone pip install -e '.[testing]'"
    )
