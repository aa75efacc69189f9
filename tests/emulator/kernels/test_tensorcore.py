"""Tensor cores in SIMD against the definition, the integer loop, and results read off real cards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fp16sim_encodings import STYLES, draw

from fp16sim.emulator import reference_dot
from fp16sim.emulator.backends.specs import rules_of
from fp16sim.emulator.datapath import DATAPATHS, Datapath
from fp16sim.emulator.formats import Format, bfloat16, binary16, binary32
from fp16sim.emulator.kernels import dot, tensorcore
from fp16sim.emulator.kernels.tensorcore_tile import COLUMNS, core_of

VECTORS = Path(__file__).parents[2] / "data" / "tensor_core_vectors.npz"
PRESETS = [path for path in DATAPATHS.values() if path.is_tensor_core and binary16 in path.inputs]
# One preset for each kernel; the others share them.
DISTINCT = ["v100", "a100", "h100", "v100:float16", "a100:float16", "h100:float16", "h100_wgmma:float16"]

Array = npt.NDArray[Any]


def fast(a: Array, b: Array, c: Array | None, path: Datapath, out_format: Format | None = None) -> Array:
    result = out_format or path.start_format
    out = np.full((len(a), b.shape[1]), 77, result.uint)
    tensorcore.multiply(a, b, c, out, rules_of(path, binary16, result))
    return out


def loop(a: Array, b: Array, c: Array | None, path: Datapath, out_format: Format | None = None) -> Array:
    result = out_format or path.start_format
    out = np.empty((len(a), b.shape[1]), result.uint)
    dot.dot_products(a, b, c, out, rules_of(path, binary16, result))
    return out


def definition(a: Array, b: Array, c: Array, path: Datapath, out_format: Format) -> Array:
    rows = [
        reference_dot.dot(a[i].tolist(), b[:, j].tolist(), int(c[i, j]), binary16, path, out_format).bits
        for i, j in np.ndindex(c.shape)
    ]
    return np.array(rows, out_format.uint).reshape(c.shape)


def operands(
    rng: np.random.Generator, path: Datapath, m: int, k: int, n: int, finite: bool = False
) -> tuple[Array, Array, Array]:
    a, b, c = (STYLES[rng.integers(len(STYLES))] for _ in range(3))
    return (
        draw(rng, binary16, (m, k), a, finite),
        draw(rng, binary16, (k, n), b, finite),
        draw(rng, path.start_format, (m, n), c, finite),
    )


def test_every_preset_on_binary16_has_a_kernel() -> None:
    names = {path.name: tensorcore.core_name(rules_of(path, binary16, path.start_format)) for path in PRESETS}
    assert all(names.values())
    assert {names[name] for name in DISTINCT} == set(names.values())
    assert not core_of(names["a100"]).is_wide
    assert core_of(names["h100"]).is_wide  # 16 products of 2^27 do not fit 32 bits


@pytest.mark.parametrize(
    "path",
    [
        DATAPATHS["float32"],
        replace(DATAPATHS["a100"], fraction_bits=22),
        replace(DATAPATHS["a100"], block=5),
        replace(DATAPATHS["h100"], fraction_bits=26),
        replace(DATAPATHS["a100"], block_rounding="nearest_even"),
        replace(DATAPATHS["a100:float16"], normalized_accumulator=True),
        replace(DATAPATHS["a100:float16"], keep_negative_zero=True),
    ],
    ids=lambda path: path.name,
)
def test_what_the_tiles_do_not_do_has_none(path: Datapath) -> None:
    rules = rules_of(path, binary16, path.start_format)
    assert tensorcore.core_name(rules) == ""
    one = np.zeros((1, 1), np.uint16)
    with pytest.raises(ValueError, match="no tile"):
        tensorcore.multiply(one, one, None, np.zeros((1, 1), path.start_format.uint), rules)


def test_other_operands_have_none() -> None:
    assert tensorcore.core_name(rules_of(DATAPATHS["a100"], bfloat16, binary32)) == ""


@pytest.mark.parametrize("name", DISTINCT)
def test_equals_the_definition(name: str) -> None:
    path = DATAPATHS[name]
    rng = np.random.default_rng(len(name))
    for k in (0, 1, 3, path.block, path.block + 1, 3 * path.block - 1, 40):
        a, b, c = operands(rng, path, 3, k, 4, finite=k % 2 == 0)
        for out_format in {path.start_format, binary16}:
            assert np.array_equal(fast(a, b, c, path, out_format), definition(a, b, c, path, out_format))


@pytest.mark.parametrize("name", DISTINCT)
def test_equals_the_integer_loop(name: str) -> None:
    path = DATAPATHS[name]
    rng = np.random.default_rng(len(name))
    for trial in range(25):
        m, k, n = (int(x) for x in rng.integers(1, 2 * COLUMNS + 3, 3))
        a, b, c = operands(rng, path, m, k, n, finite=trial % 3 > 0)
        a, b = (np.asfortranarray(x) if rng.random() < 0.4 else x for x in (a, b))
        start = None if trial % 4 == 0 else c[::-1, ::-1]
        for out_format in {path.start_format, binary16}:
            assert np.array_equal(fast(a, b, start, path, out_format), loop(a, b, start, path, out_format)), (
                trial,
                m,
                k,
                n,
            )


@pytest.mark.parametrize(
    "path",
    [
        replace(DATAPATHS["v100"], name="close to 2^32", fraction_bits=27),
        replace(DATAPATHS["v100:float16"], name="close to 2^32, half", fraction_bits=27, zero_exponent=-14),
        replace(DATAPATHS["a100:float16"], name="zeros do not align", zero_exponent=None),
    ],
    ids=lambda path: path.name,
)
def test_cores_that_are_nobodys(path: Datapath) -> None:
    rng = np.random.default_rng(4)
    assert tensorcore.core_name(rules_of(path, binary16, path.start_format))
    for trial in range(20):
        a, b, c = operands(rng, path, 33, int(rng.integers(0, 50)), 40, finite=True)
        if trial % 2:  # the largest significands: sums as large as they get
            a, b = 0x3FFF - (a & 3) | (a & 0x8000), 0x3FFF - (b & 3)
        assert np.array_equal(fast(a, b, c, path), loop(a, b, c, path))


@pytest.mark.slow
@pytest.mark.parametrize("name", DISTINCT)
def test_equals_the_integer_loop_on_a_million(name: str) -> None:
    path = DATAPATHS[name]
    rng = np.random.default_rng(0)
    start, done = time.perf_counter(), 0
    while done < 1_000_000:
        a, b, c = operands(rng, path, 200, int(rng.integers(0, 41)), 200, finite=rng.random() < 0.7)
        assert np.array_equal(fast(a, b, c, path), loop(a, b, c, path))
        done += c.size
    print(f"{name}: {done} dot products of 0 to 40 terms, {time.perf_counter() - start:.0f} s")


@pytest.mark.parametrize("name", ["v100", "a100", "h100"])
def test_blocks_of_the_result_and_of_k_do_not_show(name: str) -> None:
    path = DATAPATHS[name]
    rng = np.random.default_rng(1)
    a, b = (draw(rng, binary16, shape, "near_one") for shape in ((1030, 600), (600, 530)))
    c = draw(rng, binary32, (1030, 530), "near_one")
    whole = fast(a, b, c, path)
    some = np.array([0, 7, 127, 128, 1023, 1024, 1029])
    others = np.array([0, 31, 32, 511, 512, 529])
    assert np.array_equal(
        whole[np.ix_(some, others)], loop(a[some], b[:, others], c[np.ix_(some, others)], path)
    )
    assert np.array_equal(whole[300:301], fast(a[300:301], b, c[300:301], path))
    half_way = fast(a[:, :320], b[:320], c, path)
    assert np.array_equal(whole, fast(a[:, 320:], b[320:], half_way, path))


@pytest.mark.parametrize("name", ["v100", "a100", "h100"])
def test_tiny_accumulators(name: str) -> None:
    """Products that are zero leave c alone; the smallest product lies 2^101 times above the smallest c."""
    path = DATAPATHS[name]
    values = np.array(
        [2.0**-149, -(2.0**-149), 2.0**-126, 2.0**-60, -(2.0**-49), 2.0**-24 + 2.0**-47], np.float32
    )
    c = np.repeat(values.view(np.uint32)[:, np.newaxis], 8, axis=1)
    tiny, one, minus = 1, 0x3C00, 0xBC00
    b = np.full((16, 8), one, np.uint16)
    for first, second in (
        (0, 0),
        (0x8000, 0),
        (tiny, tiny | 0x8000),
        (one, minus),
        (tiny, 0),
        (0x0400, 0x8001),
    ):
        a = np.zeros((6, 16), np.uint16)
        a[:, 1], a[:, 2] = first, second
        for right in (b, np.where(np.arange(8) < 4, tiny, b).astype(np.uint16)):
            got = fast(a, right, c, path)
            assert np.array_equal(got, definition(a, right, c, path, binary32)), (first, second)
            if not (first | second) & 0x7FFF:
                assert np.array_equal(got, c)


@pytest.mark.parametrize("name", DISTINCT)
def test_zeros_keep_the_signs_that_the_datapath_says(name: str) -> None:
    for keep in (False, True):
        path = replace(DATAPATHS[name], keep_negative_zero=keep)
        if not tensorcore.core_name(rules_of(path, binary16, path.start_format)):
            continue
        for product, start in ((0x8000, 0x8000), (0, 0x8000), (0x8000, 0)):
            a, b = np.full((2, 16), product, np.uint16), np.full((16, 3), 0x3C00, np.uint16)
            c = np.full((2, 3), path.start_format.sign_bit if start else 0, path.start_format.uint)
            assert np.array_equal(fast(a, b, c, path), definition(a, b, c, path, path.start_format))
            assert np.array_equal(fast(a[:, :0], b[:0], c, path), c)


def test_sums_beyond_32_bits_keep_their_sign() -> None:
    path = DATAPATHS["h100"]
    a, b = np.full((3, 32), 0x3FFF, np.uint16), np.full((32, 5), 0x3FFF, np.uint16)
    a[1] |= 0x8000
    a[2, ::2] |= 0x8000
    c = np.tile(np.array([1.9, -1.9, 0, 100, -64], np.float32).view(np.uint32), (3, 1))
    assert np.array_equal(fast(a, b, c, path), definition(a, b, c, path, binary32))


def test_overflow_of_binary16_stays_infinite() -> None:
    path = DATAPATHS["a100:float16"]
    a, b = np.zeros((2, 24), np.uint16), np.full((24, 3), 0x7BFF, np.uint16)
    a[0, 3], a[1, 3], a[:, 17] = 0x4000, 0xC000, 0x3C00  # +-131008 in the first block, 65504 in the third
    c = np.array([[0, 0x7BFF, 0xFC00], [0, 0x7C00, 0xFC00]], np.uint16)
    assert np.array_equal(fast(a, b, c, path), definition(a, b, c, path, binary16))
    assert fast(a, b, None, path).tolist() == [[0x7C00] * 3, [0xFC00] * 3]


@pytest.mark.parametrize("name", ["a100", "h100:float16"])
def test_infinities_and_nan_stay_in_their_rows_and_columns(name: str) -> None:
    path = DATAPATHS[name]
    rng = np.random.default_rng(2)
    a, b = (draw(rng, binary16, shape, "near_one") for shape in ((40, 33), (33, 70)))
    clean = fast(a, b, None, path)
    a[3, 5], a[9, 1], b[2, 60], b[2, 11] = 0x7C00, 0xFE00, 0xFC00, 0x7D00
    got = fast(a, b, None, path)
    assert np.array_equal(got, loop(a, b, None, path))
    rows, columns = np.delete(np.arange(40), [3, 9]), np.delete(np.arange(70), [60, 11])
    assert np.array_equal(got[np.ix_(rows, columns)], clean[np.ix_(rows, columns)])
    assert (got[9] == path.nan_bits).all()


@pytest.mark.parametrize("name", ["v100", "h100", "a100:float16"])
def test_scattered_infinities_decide_as_the_loop_says(name: str) -> None:
    """Against zeros, against each other, against accumulators that are infinite, NaN, or close to overflow."""
    path = DATAPATHS[name]
    largest, infinity = path.start_format.max_bits, path.start_format.inf_bits
    starts = np.array([0, 1, largest, infinity, path.start_format.nan_bits], path.start_format.uint)
    rng = np.random.default_rng(5)
    for trial in range(12):
        a, b = (
            draw(rng, binary16, shape, ("near_one", "large")[trial % 2], True)
            for shape in ((30, 37), (37, 41))
        )
        for x in (a, b):
            x[rng.random(x.shape) < 0.01] = 0
            x[rng.random(x.shape) < 0.005] = 0x7C00
            x[rng.random(x.shape) < 0.005] = 0xFC00
            x[rng.random(x.shape) < 0.001] = 0x7E00
        c = rng.choice(starts, (30, 41), p=[0.96, 0.01, 0.01, 0.01, 0.01])
        c |= (rng.integers(0, 2, c.shape) * path.start_format.sign_bit).astype(c.dtype)
        assert np.array_equal(fast(a, b, c, path), loop(a, b, c, path))
        assert np.array_equal(fast(a, b, None, path), loop(a, b, None, path))


def on_the_diagonal(a: Array, b: Array, c: Array, path: Datapath) -> Array:
    """Compute row dot products as diagonals of products of 40 rows each."""
    out = np.empty(c.shape, c.dtype)
    for first in range(0, len(a), 40):
        part = slice(first, first + 40)
        start = np.zeros((len(a[part]),) * 2, c.dtype)
        np.fill_diagonal(start, c[part])
        out[part] = fast(a[part], b[part].T, start, path).diagonal()
    return out


@pytest.mark.parametrize("card", ["V100", "A100", "H100"])
def test_hardware_results(card: str) -> None:
    """12,000 results of three cards and two formats; a fraction bit too many or too few shows."""
    with np.load(VECTORS) as vectors:
        a, b, c, single, half = (vectors[f"{card}_{name}"] for name in ("a", "b", "c", "d32", "d16"))
    a, b, c, single, half = (x.view(f"u{x.itemsize}") for x in (a, b, c, single, half))
    path, half_path = DATAPATHS[card.lower()], DATAPATHS[f"{card.lower()}:float16"]
    assert len(a) == 2000
    assert np.count_nonzero(on_the_diagonal(a, b, c, path) != single) == 0
    rounded = c.view(np.float32).astype(np.float16).view(np.uint16)
    assert np.count_nonzero(on_the_diagonal(a, b, rounded, half_path) != half) == 0
    bits = path.fraction_bits
    assert bits is not None
    planted = replace(path, fraction_bits=bits + 1 if card == "V100" else bits - 1)
    assert np.count_nonzero(on_the_diagonal(a, b, c, planted) != single) > 100


ELSEWHERE = """
import json, re, sys
import numpy as np
from fp16sim.emulator.backends.specs import rules_of
from fp16sim.emulator.datapath import DATAPATHS
from fp16sim.emulator.formats import binary16
from fp16sim.emulator.kernels import tensorcore, tensorcore_tile


def wrong(name):
    a, b, c, expected = (cases[f"{name}_{part}"] for part in "abcd")
    path, out = DATAPATHS[name], np.empty_like(expected)
    tensorcore.multiply(a, b, c, out, rules_of(path, binary16, path.start_format))
    return int(np.count_nonzero(out != expected))


cases = np.load(sys.argv[1])
*names, last = sys.argv[2:]
seen = {name: wrong(name) for name in names}
kernels = [
    tensorcore.product_of(tensorcore.core_name(rules_of(path, binary16, path.start_format)), out)
    for path in map(DATAPATHS.get, names)
    for out in ["uint16" if path.start_format == binary16 else "float32"]
]
assembly = [text for kernel in kernels for text in kernel.inspect_asm().values()]
calls = sorted({call for text in assembly for call in re.findall(r"__\\w*hf\\w*", text)})


def single_block(core, products, field, total):  # without the way out for blocks of zeros
    exponent = (field << 23).maximum(total.bits() & (0xFF << 23))
    whole, sign = tensorcore_tile.cut_and_sum(core, products, total, exponent)
    return tensorcore_tile.to_single(core, whole, sign, exponent, odd=False)


tensorcore_tile.single_block = single_block
print(json.dumps({"wrong": seen, "calls": calls, "kernels": len(assembly), "planted": wrong(last)}))
"""


def test_a_generic_processor_gives_the_same_bits_and_a_planted_fault_shows(tmp_path: Path) -> None:
    """In a process of its own, with a cache of its own: no call of a half conversion that nobody has is left."""
    names = ["v100", "a100:float16", "h100", "h100:float16"]
    rng = np.random.default_rng(3)
    cases = {}
    for name in (*names, "a100"):
        path = DATAPATHS[name]
        a, b = draw(rng, binary16, (90, 50), "subnormal"), draw(rng, binary16, (50, 40), "any", finite=True)
        a[:30] = 0
        c = draw(rng, path.start_format, (90, 40), "subnormal")
        a[60:] = draw(rng, binary16, (30, 50), "near_one")
        c[60:] = draw(rng, path.start_format, (30, 40), "zeros", finite=True)
        cases |= {f"{name}_{part}": x for part, x in zip("abcd", (a, b, c, fast(a, b, c, path)), strict=True)}
    np.savez(tmp_path / "cases.npz", **cases)  # type: ignore[arg-type]
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(tmp_path / "cases.npz"), *names, "a100"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "NUMBA_CPU_NAME": "generic"},
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen.pop("planted") > 100
    assert seen == {"wrong": dict.fromkeys(names, 0), "calls": [], "kernels": len(names)}
