"""The jit wrapper: a cache that goes stale with any kernel source, no contraction, no call that nobody has."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fp16sim.emulator.kernels.jit import HAS_HALF_CONVERSION, jit

PACKAGE = Path(__file__).parents[3] / "fp16sim"

INSPECT = """
import json, re, warnings
import numpy as np
import fp16sim as fs
from fp16sim.emulator.kernels import accumulate, brain, conversion, half, loops, native, order
from fp16sim.emulator.reductions import index_sum

warnings.simplefilter("ignore")
x = np.float32([1.0, 2.0])
for mode in ("nearest_even", "toward_zero", "to_odd", "stochastic"):
    fs.round_to(x, rounding=mode, seed=0)
    fs.round_to(x.astype(float), rounding=mode, seed=0)
h = x.astype(np.float16)
fs.add(h, h); fs.subtract(h, h); fs.multiply(h, h); fs.divide(h, h); fs.fma(h, h, h); fs.exp(h)
fs.round_to(h, "binary32"); fs.matmul(h[:, None], h[None], "float16"); fs.matmul(x[:, None], x[None])
b = fs.round_to(x, "bfloat16")
for each, path, outs in (
    (h, "float16", ("binary16",)), (h, "float32", ("binary16", "binary32")), (b, "float32", ("bfloat16", "binary32")),
    (x, "float32", ("binary32",)), (x.astype(float), "float64", (None,)),
):
    for out in outs:
        fs.sum(each, datapath=path, out_format=out)
    fs.cumsum(each, datapath=path); index_sum(each, [0, 1], 2, path)
for each in (b, x):
    fs.add(each, each); fs.subtract(each, each); fs.multiply(each, each); fs.divide(each, each)
fs.round_to(h, "bfloat16"); fs.round_to(b, "binary16"); fs.round_to(b, "binary32")
backend = fs.use_backend("cpu").__enter__()
backend.elementwise("sqrt", [h.view(np.uint16)], fs.binary16, fs.Rounding())
backend.elementwise("sqrt", [b.view(np.uint16)], fs.bfloat16, fs.Rounding())
backend.elementwise("sqrt", [x.view(np.uint32)], fs.binary32, fs.Rounding())
backend.relu(h.view(np.uint16), fs.binary16); backend.maximum_of(h.view(np.uint16).reshape(1, 2, 1), fs.binary16)
modules = (accumulate, brain, conversion, half, loops, native, order)
found = [k for m in modules for k in vars(m).values()]
found += [k for group in found if isinstance(group, dict) for k in group.values()]
kernels = list({id(k): k for k in found if hasattr(k, "inspect_asm")}.values())
assembly = [text for k in kernels for text in k.inspect_asm().values()]
calls = {name for text in assembly for name in re.findall(r"__\\w*hf\\w*", text)}
fused = sum(len(re.findall(r"\\bvfn?m(?:add|sub)\\w*", text)) for text in assembly)
print(json.dumps({"calls": sorted(calls), "fused": fused, "kernels": len(assembly), "half": half.HAS_HALF_CONVERSION}))
"""


def run(code: str, folder: Path, **environment: str) -> str:
    env = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache"), **environment}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("processor", ["host", "generic"])
def test_assembly_contracts_nothing_and_calls_no_half_conversion(tmp_path: Path, processor: str) -> None:
    environment = {} if processor == "host" else {"NUMBA_CPU_NAME": "generic"}
    seen = json.loads(run(INSPECT, tmp_path, **environment))
    assert seen["kernels"] > 60
    assert seen["calls"] == []
    assert seen["fused"] == 0
    if processor == "generic" and os.uname().machine == "x86_64":
        assert not seen["half"]


def test_the_check_for_half_calls_would_see_one() -> None:
    assert re.findall(r"__\w*hf\w*", "callq\t__truncsfhf2@PLT") == ["__truncsfhf2"]


def test_the_cache_goes_stale_when_a_helper_in_another_file_changes(tmp_path: Path) -> None:
    copy = tmp_path / "fp16sim"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    code = (
        "import sys; sys.path.insert(0, sys.argv[1] if len(sys.argv) > 1 else '.')\n"
        "import numpy as np, fp16sim\n"
        "from fp16sim.emulator.kernels.loops import fill_random\n"
        "out = np.empty(1, np.uint32); fill_random(5, 3, out)\n"
        "hits = sum(fill_random.stats.cache_hits.values())\n"
        "print(fp16sim.__file__.startswith(sys.path[0]), hits, int(out[0]))"
    )

    def observe() -> list[str]:
        env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        command = [sys.executable, "-c", code, str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
        return done.stdout.split()

    cold, warm = observe(), observe()
    assert cold[:2] == ["True", "0"]
    assert warm == ["True", "1", cold[2]]
    helper = copy / "emulator" / "kernels" / "hashing.py"
    helper.write_text(helper.read_text().replace("0x21F0AAAD", "0x21F0AAAF"))
    changed = observe()
    assert changed[:2] == ["True", "0"]
    assert changed[2] != cold[2]


def test_compiled_variants_are_kept_in_files_named_after_what_is_in_them(tmp_path: Path) -> None:
    # One factory, two closures and two types: whatever is compiled first, each variant has its own file. Numbers, as
    # numba gives them, are chosen twice by processes that compile at once, and a variant is loaded for another.
    code = (
        "import sys, numpy as np\n"
        "from fp16sim.emulator.kernels.half import NARROW\n"
        "from fp16sim.emulator.kernels.jit import jit\n"
        "for mode in sys.argv[1]:\n"
        "    out = np.empty(1, np.uint16)\n"
        "    NARROW[int(mode), False](np.uint32([0x3F801000]), out)\n"
        "    print(int(out[0]))\n"
    )

    def observe(folder: Path, modes: str) -> tuple[list[str], set[str]]:
        env = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
        done = subprocess.run(
            [sys.executable, "-c", code, modes], capture_output=True, text=True, env=env, check=True
        )
        return done.stdout.split(), {path.name for path in folder.rglob("half.make_narrow*.nbc")}

    values, files = observe(tmp_path / "a", "03")  # the lower neighbour of a tie, and the upper one
    assert values == ["15360", "15361"]
    assert len(files) == 2
    assert observe(tmp_path / "b", "30") == (values[::-1], files)
    for index in (tmp_path / "b").rglob("*.nbi"):  # as if another process had written it last, without these
        index.unlink()
    assert observe(tmp_path / "b", "0") == (values[:1], files)
    assert observe(tmp_path / "b", "3") == (values[1:], files)


def test_compilation_is_announced_once(tmp_path: Path) -> None:
    code = (
        "import numpy as np, fp16sim as fs\n"
        "from fp16sim.emulator.backends import compilations\n"
        "with compilations(print):\n"
        "    fs.round_to(np.float32([1]))\n"
        "    fs.round_to(np.float32([2]))\n"
    )
    assert run(code, tmp_path).split() == ["narrow_single"]
    assert run(code, tmp_path) == ""  # from the cache


def test_division_by_zero_is_ieee() -> None:
    @jit
    def quotient(a, b):
        return a / b

    with np.errstate(divide="ignore"):
        assert quotient(np.float32(1), np.float32(0)) == np.inf


def test_the_portable_conversions_equal_the_instructions() -> None:
    from fp16sim.emulator.kernels import half

    if not HAS_HALF_CONVERSION:
        pytest.skip("this processor has no half conversion instruction to compare with")

    @jit
    def portable(a, narrow, wide):
        for i in range(narrow.size):
            narrow[i] = half.narrow_portable(a[i])
            wide[i] = half.widen_portable(narrow[i])

    rng = np.random.Generator(np.random.PCG64(1))
    words = rng.integers(0, 2**32, 1_000_000, dtype=np.uint32)
    words[:65536] = np.arange(65536, dtype=np.uint32) << np.uint32(13)
    words[65536:131072] = (np.arange(65536, dtype=np.uint32) << np.uint32(12)) + np.uint32(0x38000000 - 2**26)
    a = words.view(np.float32)
    narrow, wide = np.empty(a.size, np.uint16), np.empty(a.size, np.float32)
    portable(a, narrow, wide)
    expected, expected_wide = np.empty_like(narrow), np.empty_like(wide)
    half.narrow_single(words, expected)
    half.widen_half(expected, expected_wide)
    assert np.array_equal(narrow, expected)
    assert np.array_equal(wide.view(np.uint32), expected_wide.view(np.uint32))
