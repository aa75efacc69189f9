"""The tensor cores held to MMA-Sim (Microsoft), the program of arXiv 2511.10909, bit for bit.

``pip install --no-deps mmasim==2.1.1``: of its own needs it takes torch only for what is used here. MMA-Sim has an
exponent for exactly zero terms as this package has, but for float16 accumulators its releases disagree on it; so the
arithmetic is compared under several, by giving both programs the same one.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fp16sim_oracles import edges

import fp16sim as fs
from fp16sim.emulator.datapath import DATAPATHS, Datapath, as_datapath
from fp16sim.emulator.formats import Format, binary16, binary32, tf32
from fp16sim.emulator.reference_dot import dot

pytestmark = pytest.mark.oracle

COUNT = 400
CORES = [name for name, path in DATAPATHS.items() if path.is_tensor_core]
_TORCH = {
    "binary16": "float16",
    "bfloat16": "bfloat16",
    "binary32": "float32",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
}


@pytest.fixture(scope="session")
def fdpa(torch: Any) -> Any:
    return pytest.importorskip(
        "mmasim.arithmetic.fdpa",
        reason="MMA-Sim is not installed: pip install --no-deps mmasim==2.1.1",
        exc_type=ImportError,
    )


def encoding(rng: random.Random, fmt: Format) -> int:
    """Draw an encoding of any format, the edges often; those without a strata of their own by their leading bits."""
    if fmt.name in edges.FORMATS:
        return edges.encoding(rng, fmt.name)
    if fmt.width < 16:
        return rng.getrandbits(fmt.width)
    return edges.encoding(rng, "binary32") >> (32 - fmt.width)


def drawn(rng: random.Random, fmt: Format, shape: tuple[int, int]) -> npt.NDArray[Any]:
    """Rows of encodings: some of anything, some finite, some mostly zero, some within a few powers of two."""
    rows = []
    for place in range(shape[0]):
        row = np.array([encoding(rng, fmt) for _ in range(shape[1])], np.int64)
        magnitude = row & (fmt.sign_bit - 1)
        if place % 4:
            row = np.where(magnitude > fmt.max_bits, row & fmt.sign_bit, row)
        if place % 4 == 2:
            row = np.where([rng.random() < 0.6 for _ in row], row & fmt.sign_bit, row)
        if place % 4 == 3:
            top = rng.randrange(fmt.max_bits >> fmt.fraction_bits)
            row = (row & fmt.sign_bit) | (row & (1 << fmt.fraction_bits) - 1) | top << fmt.fraction_bits
        rows.append(row)
    return np.array(rows).reshape(shape).astype(fmt.uint)


def tensor(torch: Any, bits: npt.NDArray[Any], fmt: Format) -> Any:
    """Give encodings as a torch tensor; carried formats as float32."""
    if fmt.is_carried:
        bits, fmt = bits.astype(np.uint32) << (32 - fmt.width), binary32
    words = {1: np.uint8, 2: np.int16, 4: np.int32}[bits.dtype.itemsize]
    return torch.from_numpy(bits.view(words).copy()).view(getattr(torch, _TORCH[fmt.name]))


def theirs(torch: Any, fdpa: Any, path: Datapath, fmt: Format, a: Any, b: Any, c: Any) -> list[int]:
    accumulator = path.accumulator
    assert accumulator is not None
    rule = {"binary16": "RNE-FP16", "binary32": "RZ-FP32", "e8m13": "RZ-E8M13"}[accumulator.name]
    zero = -999 if path.zero_exponent is None else path.zero_exponent
    operation = fdpa.MMA_T_FDPA(path.fraction_bits, rule, path.block, zero, fmt.name, fmt.name)
    result = operation.dpa(tensor(torch, a, fmt), tensor(torch, b, fmt), tensor(torch, c, accumulator))
    words = (torch.int16, np.uint16) if accumulator == binary16 else (torch.int32, np.uint32)
    return result.view(words[0]).numpy().view(words[1]).tolist()


def compare(torch: Any, fdpa: Any, path: Datapath, fmt: Format, blocks: int, count: int) -> None:
    rng = random.Random(f"{path.name} {fmt.name} {path.zero_exponent} {blocks}")
    target = path.result_format(fmt)
    a, b = (drawn(rng, fmt, (count, blocks * path.block)) for _ in range(2))
    c = drawn(rng, path.start_format, (count, 1))[:, 0]
    expected = theirs(torch, fdpa, path, fmt, a, b, c)
    for row, right in enumerate(expected):
        ours = dot(a[row].tolist(), b[row].tolist(), int(c[row]), fmt, path, target).bits
        assert ours == right, (
            path,
            fmt.name,
            a[row].tolist(),
            b[row].tolist(),
            hex(c[row]),
            hex(ours),
            hex(right),
        )


@pytest.mark.parametrize("name", CORES)
def test_a_block_equals_mma_sim(torch: Any, fdpa: Any, name: str) -> None:
    for fmt in as_datapath(name).inputs:
        compare(torch, fdpa, as_datapath(name), fmt, 1, COUNT)


@pytest.mark.parametrize("name", CORES)
def test_a_chain_of_blocks_equals_mma_sim(torch: Any, fdpa: Any, name: str) -> None:
    for fmt in as_datapath(name).inputs:
        compare(torch, fdpa, as_datapath(name), fmt, 3, COUNT // 4)


@pytest.mark.parametrize("exponent", [-19, -20, -21, -22, -133, None])
def test_float16_accumulators_under_every_exponent_of_zero(
    torch: Any, fdpa: Any, exponent: int | None
) -> None:
    for name in ("v100:float16", "a100:float16", "h100:float16"):
        compare(torch, fdpa, replace(as_datapath(name), zero_exponent=exponent), binary16, 1, COUNT)


def test_matmul_equals_mma_sim(torch: Any, fdpa: Any) -> None:
    rng = random.Random("matmul")
    for name in CORES:
        path = as_datapath(name)
        fmt = path.inputs[0]
        if fmt == tf32:  # a carrier: the test above has it
            continue
        a, b = (drawn(rng, fmt, (48, 2 * path.block)) for _ in range(2))
        got = fs.matmul(a.view(fmt.dtype), b.T.view(fmt.dtype), path)
        left = np.repeat(a, len(b), axis=0)
        right = np.tile(b, (len(a), 1))
        start = np.zeros(len(left), path.start_format.uint)
        expected = theirs(torch, fdpa, path, fmt, left, right, start)
        target = path.result_format(fmt)
        assert got.view(target.uint).reshape(-1).tolist() == expected, name


def test_a_planted_fault_is_seen(torch: Any, fdpa: Any) -> None:
    path = as_datapath("a100")
    rng = random.Random("planted")
    a, b = (drawn(rng, binary16, (COUNT, 8)) for _ in range(2))
    c = np.zeros(COUNT, np.uint32)
    expected = theirs(torch, fdpa, replace(path, fraction_bits=23), binary16, a, b, c)
    ours = [dot(x.tolist(), y.tolist(), 0, binary16, path, binary32).bits for x, y in zip(a, b, strict=True)]
    assert sum(x != y for x, y in zip(ours, expected, strict=True)) > COUNT // 20
