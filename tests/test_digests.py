"""Same bits everywhere: one workload, and the training of every model, for any number of threads and on processors
without F16C.


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
MODELS = "fp16sim_model_workload.py"
NUMPY_FEATURES = "AVX2 FMA3 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"


def digests(
    *command: str, threads: int = 1, script: str = "fp16sim_workload.py", **environment: str
) -> dict[str, str]:
    command = (*command, sys.executable, "-W", "ignore", str(HERE / script), str(threads))
    env = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(line.split() for line in done.stdout.splitlines())


def golden() -> dict[str, str]:
    loaded: dict[str, str] = json.loads(GOLDEN.read_text())
    return loaded


def golden_models() -> dict[str, str]:
    loaded: dict[str, str] = json.loads((HERE / "golden" / "models.json").read_text())["digests"]
    return loaded


def generic(cache: Path) -> dict[str, str]:
    """Give the environment of a processor without extensions, for numba's kernels and for NumPy's."""
    import numpy as np

    have = np._core._multiarray_umath.__cpu_features__ if hasattr(np, "_core") else {}
    disabled = [name for name in NUMPY_FEATURES.split() if have.get(name)]
    return {
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CACHE_DIR": str(cache),
        "NPY_DISABLE_CPU_FEATURES": " ".join(disabled),
    }


def nehalem() -> tuple[str, ...]:
    emulator = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")
    if emulator is None:
        pytest.skip("qemu-x86_64-static is not installed (Debian: qemu-user-static)")
    return emulator, "-cpu", "Nehalem"


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_any_number_of_threads(threads: int) -> None:
    assert digests(threads=threads) == golden()


def test_a_generic_processor_and_numpy_without_its_simd(tmp_path: Path) -> None:
    assert digests(**generic(tmp_path)) == golden()


@pytest.mark.slow
def test_an_emulated_nehalem(tmp_path: Path) -> None:
    command, start = nehalem(), time.monotonic()
    assert digests(*command, NUMBA_CACHE_DIR=str(tmp_path)) == golden()
    print(f"\nthe workload under {' '.join(command)}: {time.monotonic() - start:.0f} s")


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_training_on_any_number_of_threads(threads: int) -> None:
    """The first 100 steps of every model."""
    assert digests(threads=threads, script=MODELS) == golden_models()


@pytest.mark.slow
def test_training_on_a_generic_processor(tmp_path: Path) -> None:
    start = time.monotonic()
    assert digests(script=MODELS, **generic(tmp_path)) == golden_models()
    print(f"\n100 steps of every model on a generic processor: {time.monotonic() - start:.0f} s")


@pytest.mark.slow
def test_training_on_an_emulated_nehalem(tmp_path: Path) -> None:
    command, start = nehalem(), time.monotonic()
    assert digests(*command, script=MODELS, NUMBA_CACHE_DIR=str(tmp_path)) == golden_models()
    print(f"\n100 steps of every model under {' '.join(command)}: {time.monotonic() - start:.0f} s")


def test_the_comparison_sees_one_changed_digit() -> None:
    changed = golden()
    changed["sum"] = changed["sum"][::-1]
    assert changed != golden()
