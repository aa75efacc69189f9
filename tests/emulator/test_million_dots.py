"""A million dot products a datapath, through `fs.matmul`, against the definition itself.

Most are short: the definition takes about 30 microseconds a term. One batch in eight is long enough to pass the block
of every tensor core. Longer ones are compared in test_matmul.py, with the integer loops, and those in
kernels/test_dot.py, with the definition.
"""

from __future__ import annotations

import time

import numpy as np
import pytest
from fp16sim_encodings import STYLES, draw

import fp16sim as fs
from fp16sim.emulator.arrays import decoded
from fp16sim.emulator.backends.base import Backend
from fp16sim.emulator.datapath import DATAPATHS

NAMES = [name for name in DATAPATHS if "tf32" not in name and "fp8" not in name and name != "float64"]
SIDE = 50  # of a product: 2,500 dot products


def differences(rng: np.random.Generator, name: str, depth: int, definition: str = "") -> int:
    """Count the elements of a drawn product that differ from the definition of that or another datapath."""
    path = DATAPATHS[definition or name]
    fmt, out_format = path.inputs[0], path.result_format(path.inputs[0])
    styles = [STYLES[rng.integers(len(STYLES))] for _ in range(3)]
    a, b = draw(rng, fmt, (SIDE, depth), styles[0]), draw(rng, fmt, (depth, SIDE), styles[1])
    c = draw(rng, path.start_format, (SIDE, SIDE), styles[2])
    if rng.random() < 0.5:
        c[...] = 0
    ours = fs.matmul(*(decoded(x, fmt) for x in (a, b)), name, c=decoded(c, path.start_format))
    theirs = Backend().matmul(a[np.newaxis], b[np.newaxis], c[np.newaxis], fmt, path, out_format)
    return int(np.count_nonzero(ours.view(out_format.uint) != theirs.bits[0]))


@pytest.mark.parametrize("name", NAMES)
def test_a_batch(name: str) -> None:
    assert differences(np.random.Generator(np.random.PCG64(NAMES.index(name))), name, 3) == 0


def test_the_comparison_sees_another_datapath() -> None:
    rng = np.random.Generator(np.random.PCG64(0))
    assert sum(differences(rng, "a100", 9, definition="v100") for _ in range(3)) > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_million(name: str) -> None:
    rng = np.random.Generator(np.random.PCG64([NAMES.index(name), 1]))
    start, batches = time.monotonic(), 1_000_000 // SIDE**2
    wrong = sum(
        differences(rng, name, int(rng.integers(5, 20) if i % 8 == 0 else rng.integers(1, 4)))
        for i in range(batches)
    )
    done = batches * SIDE**2
    print(
        f"\n{name}: {done:,} dot products, {wrong} differ from the definition, {time.monotonic() - start:.0f} s"
    )
    assert wrong == 0
