"""The compiled loops of the float32 functions equal the definition, bit by bit, NaN included."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from fp16sim_oracles.real_functions import POWER_SPECIAL, SPECIAL, arguments, power_arguments

from fp16sim.emulator import float32_functions as f32, float64_functions as f64
from fp16sim.emulator.backends.base import Backend
from fp16sim.emulator.backends.cpu import CpuBackend
from fp16sim.emulator.float32_functions import FLOAT32_FUNCTIONS
from fp16sim.emulator.kernels import float32_constants as c, float32_functions as kernels

NAMES = [*FLOAT32_FUNCTIONS, "pow"]
REFERENCE, CPU = Backend(), CpuBackend()
Array = npt.NDArray[np.float32]


def edges(name: str) -> Array:
    """Collect both ends of every range that a definition or a kernel tells apart, with their neighbours."""
    limits = [
        0.0,
        0.5,
        0.75,
        1.0,
        2.0,
        4.0,
        11.0,
        15.0,
        20.0,
        88.72284,
        103.97208,
        104.0,
        120.0,
        200.0,
        np.inf,
    ]
    limits += [c.SQRT_HALF, c.SQRT_TWO, c.SQRT_TWO - 1, c.HALF_PI, c.NEAR_ROOT, 2.0**-126, 2.0**-149, 3.4e38]
    limits += [
        abs(root[0]) + d
        for root in (c.GELU_ROOT, c.GELU_TANH_ROOT, c.SILU_ROOT)
        for d in (-0.0625, 0, 0.0625)
    ]
    limits += [abs(argument) for argument, _ in SPECIAL.get(name, ())]
    bits = np.float32(limits).view(np.uint32).astype(np.int64)
    near = np.clip(bits[:, None] + np.arange(-3, 4), 0, 0x7FC00000).ravel()
    nan = [0x7F800001, 0x7FA00000, 0x7FC00000, 0x7FFFFFFF]
    both = np.concatenate([near, nan]).astype(np.uint32)
    return np.concatenate([both, both | np.uint32(0x80000000)]).view(np.float32)


def operands(name: str, count: int) -> tuple[Array, ...]:
    if name == "pow":
        x, y = power_arguments(np.float32, 5 * count)
        x[1::4] *= np.float32(-1)
        special = np.float32([row[:2] for row in POWER_SPECIAL])
        grid = np.stack(np.meshgrid(edges("pow")[::3], edges("pow")[::5]), -1).reshape(-1, 2)
        pairs = np.concatenate([special, grid, np.stack([x, y], 1)])
        return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
    rng = np.random.default_rng(8)
    anything = rng.integers(0, 2**32, count, dtype=np.uint32).view(np.float32)
    return (np.concatenate([edges(name), anything, arguments(name, np.float32, count)]),)


def differences(got: Array, want: Array) -> npt.NDArray[np.intp]:
    assert got.dtype == want.dtype == np.float32
    return np.flatnonzero(got.view(np.uint32) != want.view(np.uint32))


@pytest.mark.parametrize("name", NAMES)
def test_kernels_equal_the_definition(name: str) -> None:
    given = operands(name, 20_000)
    got = CPU.real_function(name, *given)
    want = getattr(f32, name)(*given)
    wrong = differences(got, want)
    assert wrong.size == 0, [(x[wrong[0]], got[wrong[0]], want[wrong[0]]) for x in given]
    assert given[0].size > 100_000
    nan = np.isnan(got)
    assert (got.view(np.uint32)[nan] == 0x7FC00000).all()
    assert nan.sum() >= 8


def test_a_single_wrong_bit_is_seen() -> None:
    want = f32.exp(arguments("exp", np.float32, 10))
    got = want.copy()
    got.view(np.uint32)[7] ^= 1
    assert differences(got, want).tolist() == [7]
    assert differences(np.float32([-0.0]), np.float32([0.0])).size == 1


@pytest.mark.parametrize("name", NAMES)
def test_any_length_and_alignment(name: str) -> None:
    """The vector part of a loop and its remainder give the same bits."""
    whole = tuple(x[-600:] for x in operands(name, 400))
    want = getattr(f32, name)(*whole)
    for start, size in [
        (0, 0),
        (3, 1),
        (1, 2),
        (5, 3),
        (2, 7),
        (7, 8),
        (0, 15),
        (1, 31),
        (9, 67),
        (1, 257),
        (3, 513),
    ]:
        got = CPU.real_function(name, *(x[start : start + size] for x in whole))
        assert got.shape == (size,)
        assert differences(got, want[start : start + size]).size == 0


@pytest.mark.parametrize("name", NAMES)
def test_both_backends_take_both_types(name: str) -> None:
    given = tuple(x[-50:] for x in operands(name, 40))
    assert differences(REFERENCE.real_function(name, *given), CPU.real_function(name, *given)).size == 0
    with np.errstate(all="ignore"):
        double = tuple(x.astype(np.float64) for x in given)
    want = getattr(f64, name)(*double)
    for backend in (REFERENCE, CPU):
        assert backend.real_function(name, *double).tobytes() == want.tobytes()


@pytest.mark.parametrize("backend", [REFERENCE, CPU])
def test_what_backends_refuse(backend: Backend) -> None:
    one = np.float32([1.0])
    with pytest.raises(ValueError, match=r"unknown function 'gleu' of float32 values: did you mean 'gelu'\?"):
        backend.real_function("gleu", one)
    with pytest.raises(ValueError, match="unknown function 'logistic' of float64 values"):
        backend.real_function("logistic", np.array([1.0]))
    with pytest.raises(TypeError, match="float16"):
        backend.real_function("exp", np.float16([1.0]))


def test_every_function_has_a_loop_and_a_float64_twin() -> None:
    assert {*kernels.FLOAT32_LOOPS, "sin", "cos"} == set(FLOAT32_FUNCTIONS) == set(f64.FLOAT64_FUNCTIONS)
    assert set(SPECIAL) == set(FLOAT32_FUNCTIONS)


INSPECT = """
import json, re
import numpy as np
from fp16sim.emulator.backends.cpu import CpuBackend
from fp16sim.emulator.float32_functions import FLOAT32_FUNCTIONS
from fp16sim.emulator.kernels import float32_functions as kernels

x = np.float32([1.0, 2.0])
for name in FLOAT32_FUNCTIONS:
    CpuBackend().real_function(name, x)
CpuBackend().real_function("pow", x, x)
loops = [k for n, k in vars(kernels).items() if n.endswith("_loop")]
assembly = [text for k in loops for text in k.inspect_asm().values()]
fused = sum(len(re.findall(r"\\bvfn?m(?:add|sub)\\w*|\\bfn?m(?:add|sub|la|ls)\\b", text)) for text in assembly)
words = r"\\b(?:exp|expm1|log|log1p|tanh|erf|sin|cos|pow)f?@PLT|\\$(?:exp|log|sin|cos|pow)\\b"
print(json.dumps({"fused": fused, "calls": sum(len(re.findall(words, t)) for t in assembly), "loops": len(assembly)}))
"""


@pytest.mark.slow
def test_nothing_is_contracted_and_libm_is_not_called(tmp_path: Path) -> None:
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", INSPECT], capture_output=True, text=True, env=env, check=True
    )
    seen = json.loads(done.stdout)
    assert seen["loops"] >= 18
    assert (seen["fused"], seen["calls"]) == (0, 0)


@pytest.mark.slow
def test_exp_on_every_float32_where_it_is_not_constant() -> None:
    """All of 2^-26 <= |x| < 128; below, the result is 1 (sampled in the next test), above, 0 or infinity."""
    start = time.perf_counter()
    compared = 0
    for sign in (0, 0x80000000):
        for exponent in range(127 - 26, 127 + 7):
            bits = (np.arange(2**23, dtype=np.uint32) + np.uint32(exponent << 23)) | np.uint32(sign)
            x = bits.view(np.float32)
            assert differences(CPU.real_function("exp", x), f32.exp(x)).size == 0
            compared += x.size
    print(f"exp: {compared} of 2^32 arguments, all equal; {time.perf_counter() - start:.0f} s")
    assert compared == 66 * 2**23


@pytest.mark.slow
def test_a_regular_part_of_all_float32() -> None:
    """Every 307th encoding: 14 million for each function, every exponent and sign."""
    start = time.perf_counter()
    for name in FLOAT32_FUNCTIONS:
        for part in range(16):
            bits = np.arange(part << 28, (part + 1) << 28, 307, dtype=np.int64).astype(np.uint32)
            x = bits.view(np.float32)
            assert differences(CPU.real_function(name, x), FLOAT32_FUNCTIONS[name](x)).size == 0, name
    print(
        f"{len(FLOAT32_FUNCTIONS)} functions, {2**32 // 307} arguments each: {time.perf_counter() - start:.0f} s"
    )


@pytest.mark.slow
def test_many_powers() -> None:
    x, y = operands("pow", 400_000)
    assert differences(CPU.real_function("pow", x, y), f32.pow(x, y)).size == 0
    print(f"pow: {x.size} pairs")
