"""Same bits everywhere: one workload, the same digests for any number of threads and on a processor without F16C.

The golden digests were made on x86-64 with AVX-512; every other leg must print them too.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
GOLDEN = HERE / "golden" / "workload.json"
NUMPY_FEATURES = "AVX2 FMA3 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"


def digests(*command: str, threads: int = 1, **environment: str) -> dict[str, str]:
    command = (*command, sys.executable, "-W", "ignore", str(HERE / "fp16sim_workload.py"), str(threads))
    env = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(line.split() for line in done.stdout.splitlines())


def golden() -> dict[str, str]:
    loaded: dict[str, str] = json.loads(GOLDEN.read_text())
    return loaded


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_any_number_of_threads(threads: int) -> None:
    assert digests(threads=threads) == golden()


def test_a_generic_processor_and_numpy_without_its_simd(tmp_path: Path) -> None:
    environment = {"NUMBA_CPU_NAME": "generic", "NUMBA_CACHE_DIR": str(tmp_path)}
    import numpy as np

    have = np._core._multiarray_umath.__cpu_features__ if hasattr(np, "_core") else {}
    disabled = [name for name in NUMPY_FEATURES.split() if have.get(name)]
    environment["NPY_DISABLE_CPU_FEATURES"] = " ".join(disabled)
    assert digests(**environment) == golden()


@pytest.mark.slow
def test_an_emulated_nehalem(tmp_path: Path) -> None:
    emulator = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")
    if emulator is None:
        pytest.skip("qemu-x86_64-static is not installed (Debian: qemu-user-static)")
    start = time.monotonic()
    assert digests(emulator, "-cpu", "Nehalem", NUMBA_CACHE_DIR=str(tmp_path)) == golden()
    print(f"\nthe workload under {emulator} -cpu Nehalem: {time.monotonic() - start:.0f} s")


def test_the_comparison_sees_one_changed_digit() -> None:
    changed = golden()
    changed["sum"] = changed["sum"][::-1]
    assert changed != golden()
