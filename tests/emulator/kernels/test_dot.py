"""The integer loops of dot products against the definition: bits, flags and swamped additions."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fp16sim_encodings import STYLES, draw

from fp16sim.emulator import reference_dot
from fp16sim.emulator.backends.base import count_flags
from fp16sim.emulator.backends.specs import rules_of
from fp16sim.emulator.datapath import DATAPATHS, Datapath
from fp16sim.emulator.formats import Format, bfloat16, binary16, binary32, binary64, e4m3, e5m2, tf32
from fp16sim.emulator.kernels import dot

OTHERS = (
    Datapath("blocked", binary16, order="blocked", block=5),
    Datapath("blocked fused", binary32, order="blocked", block=3, fused=True, inputs=(binary16, binary32)),
    Datapath("split", binary16, order="split_k", splits=3),
    Datapath("pairwise half", binary16, order="pairwise"),
    Datapath("pairwise single", binary32, order="pairwise", inputs=(binary32, e4m3)),
    Datapath("kahan single", binary32, compensated=True, inputs=(binary16, binary32)),
    Datapath("fused single", binary32, fused=True, inputs=(binary32, tf32, bfloat16)),
    Datapath("fused tf32", tf32, fused=True, inputs=(e4m3, e5m2, tf32)),
    Datapath("keeps -0", binary32, block=4, fraction_bits=24, keep_negative_zero=True),
    Datapath(
        "normalized", binary16, block=8, fraction_bits=24, zero_exponent=-20, normalized_accumulator=True
    ),
    Datapath("few bits", binary32, block=4, fraction_bits=3, block_rounding="toward_zero"),
    Datapath("many bits", binary16, block=2, fraction_bits=59),
    Datapath("nearest", binary32, block=16, fraction_bits=25, inputs=(binary16, bfloat16, e5m2)),
    Datapath("single core", binary32, block=4, fraction_bits=40, inputs=(binary32,)),
)
PATHS = tuple(path for path in (*DATAPATHS.values(), *OTHERS) if path.accumulator != binary64)
CASES = [(path, fmt) for path in PATHS for fmt in path.inputs]

Array = npt.NDArray[Any]


def run(
    a: Array, b: Array, c: Array, path: Datapath, fmt: Format, out_format: Format
) -> tuple[Array, list[int]]:
    out = np.empty(c.shape, out_format.uint)
    counts = dot.dot_products(a, b if b.shape[1] else None, c, out, rules_of(path, fmt, out_format))
    return out, counts.tolist()


def expect(
    a: Array, b: Array, c: Array, path: Datapath, fmt: Format, out_format: Format
) -> tuple[Array, list[int]]:
    rows = [
        reference_dot.dot(a[i].tolist(), b[:, j].tolist(), int(c[i, j]), fmt, path, out_format)
        if b.shape[1]
        else reference_dot.accumulate(a[i].tolist(), fmt, path, out_format)
        for i, j in np.ndindex(c.shape)
    ]
    flags = np.array([flag for row in rows for flag in row.flags], np.uint8)
    bits = np.array([row.bits for row in rows], out_format.uint).reshape(c.shape)
    return bits, [*count_flags(flags).tolist(), sum(row.swamped for row in rows)]


def compare(rng: np.random.Generator, path: Datapath, fmt: Format, size: int, depth: int) -> int:
    """Compare a drawn product, or a sum, and give the number of its elements."""
    styles = [STYLES[rng.integers(len(STYLES))] for _ in range(3)]
    c_format = path.start_format
    a = draw(rng, fmt, (size, depth), styles[0])
    b = draw(rng, fmt, (depth, size), styles[1])
    c = draw(rng, c_format, (size, size), styles[2])
    if rng.random() < 0.4:
        c[...] = 0
    if rng.random() < 0.2:
        b, c = b[:0, :0], np.zeros((size, 1), c_format.uint)
    out_format = (path.result_format(fmt), binary16, binary32, bfloat16)[rng.integers(4)]
    got, counts = run(a, b, c, path, fmt, out_format)
    want, expected = expect(a, b, c, path, fmt, out_format)
    where = (path.name, fmt.name, out_format.name, styles)
    assert np.array_equal(got, want), (where, got[got != want][0], want[got != want][0])
    assert counts == expected, where
    return c.size


@pytest.mark.parametrize(("path", "fmt"), CASES, ids=lambda x: x.name)
def test_equals_the_definition(path: Datapath, fmt: Format) -> None:
    rng = np.random.default_rng(len(path.name) * 100 + fmt.width)
    for depth in (0, 1, 2, 3, 4, 7, 8, 9, 16, 17, 33, 40):
        compare(rng, path, fmt, 3, depth)


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        (DATAPATHS["a100"], {"fraction_bits": 23}),
        (DATAPATHS["a100"], {"block": 4}),
        (DATAPATHS["a100:float16"], {"fraction_bits": 11}),
        (DATAPATHS["float16"], {"products": None, "fused": True}),
        (DATAPATHS["float16"], {"order": "split_k", "splits": 2}),
        (OTHERS[0], {"block": 6}),
        (OTHERS[3], {"order": "sequential"}),
    ],
)
def test_planted_faults_show(path: Datapath, fault: dict[str, Any]) -> None:
    rng = np.random.default_rng(6)
    a = draw(rng, binary16, (20, 40), "any", finite=True) & 0xBFFF  # below 2: no overflow hides anything
    b = draw(rng, binary16, (40, 20), "subnormal")
    c = np.zeros((20, 20), path.start_format.uint)
    faulty = replace(path, **fault)
    got, counts = run(a, b, c, faulty, binary16, path.start_format)
    want, expected = expect(a, b, c, path, binary16, path.start_format)
    assert np.count_nonzero(got != want) > 0
    assert counts != expected
    assert run(a, b, c, path, binary16, path.start_format)[1] == expected


@pytest.mark.slow
@pytest.mark.parametrize(("path", "fmt"), CASES, ids=lambda x: x.name)
def test_equals_the_definition_on_many(path: Datapath, fmt: Format) -> None:
    rng = np.random.default_rng(0)
    start, done = time.perf_counter(), 0
    while done < 5000:
        done += compare(rng, path, fmt, 6, int(rng.integers(0, 41)))
    print(f"{path.name} on {fmt.name}: {done} dot products, {time.perf_counter() - start:.1f} s")
