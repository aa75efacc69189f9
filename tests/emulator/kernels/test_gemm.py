"""Matrix products by micro-kernels against the definition, element by element and bit by bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fp16sim_encodings import STYLES, draw
from hypothesis import given, settings, strategies as st

from fp16sim.emulator import reference_dot
from fp16sim.emulator.backends.specs import rules_of
from fp16sim.emulator.datapath import DATAPATHS
from fp16sim.emulator.formats import Format, binary16, binary32, binary64
from fp16sim.emulator.kernels import blocks, dot, guard
from fp16sim.emulator.kernels.gemm import gemm
from fp16sim.emulator.kernels.microkernel import KINDS, Kind, fastest
from fp16sim.emulator.kernels.simd_half import round_sum

Array = npt.NDArray[Any]

# Kind: datapath, format of the operands.
MEANING = {
    "float32": ("float32", binary16),
    "single": ("float32", binary32),
    "double": ("float64", binary64),
    "float16": ("float16", binary16),
    "float16_fma": ("float16_fma", binary16),
}
HALF_KINDS = ("float16", "float16_fma")
# By names of their own the guarded kinds also run where the processor computes in binary16.
GUARDED_KINDS = tuple(f"{kind} guarded" for kind in HALF_KINDS)
for kind, guarded in zip(HALF_KINDS, GUARDED_KINDS, strict=True):
    KINDS[guarded], MEANING[guarded] = KINDS[kind], MEANING[kind]
NAMES = tuple(MEANING)


def accumulator_of(kind: str) -> np.dtype[Any]:
    return np.dtype(np.float64 if kind == "double" else np.float32)


def product(kind: str, a: Array, b: Array, c: Array | None = None) -> Array:
    out = np.full((a.shape[0], b.shape[1]), 77, accumulator_of(kind))
    gemm(kind, a, b, c, out)
    return out


def same(x: Array, y: Array) -> bool:
    return x.shape == y.shape and x.dtype == y.dtype and x.tobytes() == y.tobytes()


def values(bits: Array, fmt: Format, accumulator: np.dtype[Any]) -> Array:
    """Encodings as the numbers that accumulators hold."""
    numbers = bits.view({16: np.float16, 32: np.float32, 64: np.float64}[fmt.width]).astype(accumulator)
    numbers[np.isnan(numbers)] = np.nan
    return numbers


def operand(bits: Array, fmt: Format) -> Array:
    """Encodings as gemm takes them."""
    return bits if fmt == binary16 else bits.view({32: np.float32, 64: np.float64}[fmt.width])


def check_elements(
    kind: str, shape: tuple[int, int, int], styles: Sequence[str], seed: int, elements: int
) -> int:
    """Compare drawn elements of a drawn product with the definition."""
    rng = np.random.default_rng(seed)
    m, k, n = shape
    path, fmt = DATAPATHS[MEANING[kind][0]], MEANING[kind][1]
    inner = path.start_format
    a, b = draw(rng, fmt, (m, k), styles[0]), draw(rng, fmt, (k, n), styles[1])
    c = draw(rng, inner, (m, n), styles[2]) if styles[2] else None
    start = None if c is None else values(c, inner, accumulator_of(kind))
    got = product(kind, operand(a, fmt), operand(b, fmt), start)
    if not got.size:
        return 0
    for i, j in zip(
        rng.integers(0, m, elements).tolist(), rng.integers(0, n, elements).tolist(), strict=True
    ):
        first = 0 if c is None else int(c[i, j])
        bits = reference_dot.dot(a[i].tolist(), b[:, j].tolist(), first, fmt, path, inner).bits
        want = values(np.array([bits], inner.uint), inner, accumulator_of(kind))
        assert same(got[i : i + 1, j], want), (kind, shape, styles, seed, i, j, got[i, j], want[0])
    return elements


def in_numpy(kind: str, a: Array, b: Array, c: Array | None = None) -> Array:
    """The same sums in NumPy, whose float16 operations round once (24 >= 2 * 11 + 2), as does float64 to float16."""
    dtype = accumulator_of(kind)
    if MEANING[kind][1] == binary16:
        a, b = a.view(np.float16), b.view(np.float16)
    if kind == "float32":
        a, b = a.astype(np.float32), b.astype(np.float32)
    elif kind.startswith("float16_fma"):
        a, b = a.astype(np.float64), b.astype(np.float64)
    total = np.zeros((a.shape[0], b.shape[1]), dtype) if c is None else c.copy()
    total = total.astype(np.float16) if kind.startswith("float16") else total
    with np.errstate(all="ignore"):
        for k in range(a.shape[1]):
            total = (total + a[:, k, None] * b[k]).astype(total.dtype)
    total = total.astype(dtype)
    total[np.isnan(total)] = np.nan
    return total


@pytest.mark.parametrize("kind", NAMES)
@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(
    shape=st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40)),
    styles=st.tuples(st.sampled_from(STYLES), st.sampled_from(STYLES), st.sampled_from(("", "", *STYLES))),
    seed=st.integers(0, 2**16),
)
def test_equals_the_definition(
    kind: str, shape: tuple[int, int, int], styles: tuple[str, ...], seed: int
) -> None:
    check_elements(kind, shape, styles, seed, elements=5)


@pytest.mark.parametrize("kind", NAMES)
def test_equals_the_definition_at_the_edges_of_tiles_and_blocks(kind: str) -> None:
    rows, columns = KINDS[fastest(kind)].rows, KINDS[fastest(kind)].columns
    seed = 0
    for m in (1, rows - 1, rows, rows + 1, 2 * rows + 7, 17 * rows):
        for n in (1, 8, columns - 1, columns, columns + 9):
            for k in (1, 7, 8, 9, 31):
                seed += 1
                check_elements(kind, (m, k, n), ("any", "near_one", ""), seed, elements=1)
    for k in (guard.LONGEST - 1, guard.LONGEST, guard.LONGEST + 1, 2 * guard.LONGEST + 3):
        check_elements(
            kind, (rows + 1, k, columns + 1), ("near_one", "cancelling", "near_one"), k, elements=2
        )


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("shape", [(1600, 3, 40), (20, 3, 1100), (70, 600, 70), (1, 300, 1)])
def test_equals_numpy_over_several_blocks(kind: str, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    rng = np.random.default_rng(m)
    fmt = MEANING[kind][1]
    a = operand(draw(rng, fmt, (m, k), "near_one"), fmt)
    b = operand(draw(rng, fmt, (k, n), "near_one"), fmt)
    assert same(product(kind, a, b), in_numpy(kind, a, b))


@pytest.mark.parametrize("kind", NAMES)
def test_any_strides(kind: str) -> None:
    rng = np.random.default_rng(3)
    fmt = MEANING[kind][1]
    accumulator = accumulator_of(kind)
    for m, k, n in ((5, 3, 4), (30, 50, 70), (64, 64, 64)):
        a = operand(draw(rng, fmt, (m, k), "near_one"), fmt)
        b = operand(draw(rng, fmt, (k, n), "near_one"), fmt)
        c = values(draw(rng, binary16, (m, n), "near_one"), binary16, accumulator)
        want = product(kind, a, b, c)
        records = np.zeros((m, k), [("pad", np.int8), ("x", a.dtype)])
        records["x"] = a
        wide = np.zeros((2 * k, 3 * n), b.dtype)
        wide[::2, ::3] = b
        for left in (a.T.copy().T, a[::-1].copy()[::-1], a[:, ::-1].copy()[:, ::-1], records["x"]):
            left.flags.writeable = False
            assert same(product(kind, left, b, c), want)
        for right in (b.T.copy().T, wide[::2, ::3], b[:, ::-1].copy()[:, ::-1]):
            assert same(product(kind, a, right, c), want)
            assert same(product(kind, a.T.copy().T, right, c.T.copy().T), want)
        row = np.broadcast_to(a[:1], a.shape)
        assert same(product(kind, row, b), product(kind, row.copy(), b))
        inside = np.full((m + 2, n + 2), 7, accumulator)
        gemm(kind, a, b, c, inside[1:-1, 1:-1])
        assert same(inside[1:-1, 1:-1].copy(), want)
        inside[1:-1, 1:-1] = 7
        assert (inside == 7).all()


@pytest.mark.parametrize("kind", NAMES)
def test_parts_computed_apart_and_at_once_are_the_whole(kind: str) -> None:
    rng = np.random.default_rng(4)
    fmt = MEANING[kind][1]
    m, k, n = 100, 300, 90
    a = operand(draw(rng, fmt, (m, k), "near_one"), fmt)
    b = operand(draw(rng, fmt, (k, n), "near_one"), fmt)
    c = values(draw(rng, binary16, (m, n), "any"), binary16, accumulator_of(kind))
    want = product(kind, a, b, c)
    out = np.empty_like(want)

    def part(rows: slice, columns: slice) -> None:
        gemm(kind, a[rows], b[:, columns], c[rows, columns], out[rows, columns])

    edges = [(0, 1), (1, 14), (14, 64), (64, 200)]
    slices = [(slice(*rows), slice(*columns)) for rows in edges for columns in edges]
    for threads in (1, 2, 4):
        out[...] = 7
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda where: part(*where), slices))
        assert same(out, want)


def test_a_row_of_a_batch_equals_the_row_alone() -> None:
    rng = np.random.default_rng(5)
    a, b = draw(rng, binary16, (40, 300), "near_one"), draw(rng, binary16, (300, 50), "near_one")
    for kind in ("float32", *HALF_KINDS, *GUARDED_KINDS):
        whole = product(kind, a, b)
        assert all(same(product(kind, a[i : i + 1], b), whole[i : i + 1]) for i in range(0, 40, 7))


@pytest.mark.parametrize("kind", [kind for kind in NAMES if kind != "double"])
def test_encodings_are_the_accumulators_rounded_once(kind: str) -> None:
    rng = np.random.default_rng(6)
    fmt = MEANING[kind][1]
    for style in STYLES:
        a = operand(draw(rng, fmt, (20, 9), style), fmt)
        b = operand(draw(rng, fmt, (9, 43), "special"), fmt)
        out = np.empty((20, 43), np.uint16)
        gemm(kind, a, b, None, out)
        with np.errstate(over="ignore"):
            want = product(kind, a, b).astype(np.float16)
        want[np.isnan(want)] = np.nan
        assert same(out, want.view(np.uint16))
        assert set(np.unique(out[np.isnan(want)])) <= {0x7E00}


def test_no_products_give_the_accumulator_input() -> None:
    c = np.float32([[-0.0, np.inf, 65504.0]])
    for kind in ("float32", *HALF_KINDS, *GUARDED_KINDS):
        none = np.zeros((1, 0), np.uint16), np.zeros((0, 3), np.uint16)
        assert same(product(kind, *none, c), c)
        assert same(product(kind, *none), np.zeros((1, 3), np.float32))


@pytest.mark.parametrize("kind", ["float32", *HALF_KINDS, *GUARDED_KINDS])
def test_negative_zero_stays_while_all_is_negative_zero(kind: str) -> None:
    k, n = 300, KINDS[kind].columns + 3
    a, b = np.full((2, k), 0x8000, np.uint16), np.full((k, n), 0x3C00, np.uint16)
    a[1, -1] = 0
    c = np.full((2, n), -0.0, np.float32)
    got = product(kind, a, b, c)
    assert np.signbit(got[0]).all()
    assert not np.signbit(got[1]).any()
    assert not np.signbit(product(kind, a, b)).any()


# The guard.


def altered(monkeypatch: pytest.MonkeyPatch, name: str, kind: Kind) -> str:
    """Add a kind for one test. Numba's cache knows it by its name."""
    monkeypatch.setitem(KINDS, name, kind)
    blocks.write_product.cache_clear()
    return name


@pytest.mark.parametrize("kind", GUARDED_KINDS)
def test_the_guard_does_not_show_in_the_bits(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    full = KINDS[kind].full_range
    assert full is not None
    careful = altered(monkeypatch, f"{kind} careful", replace(KINDS[kind], step=full))
    reckless = altered(monkeypatch, f"{kind} reckless", replace(KINDS[kind], full_range=None))
    rng = np.random.default_rng(7)
    caught = 0
    for style in STYLES:
        for start in ("", "near_one", "large", "zeros"):
            a, b = draw(rng, binary16, (9, 400), style), draw(rng, binary16, (400, 70), "near_one")
            c = values(draw(rng, binary16, (9, 70), start), binary16, np.dtype(np.float32)) if start else None
            got = product(kind, a, b, c)
            assert same(got, product(careful, a, b, c))
            caught += not same(got, product(reckless, a, b, c))
    assert caught >= 4  # without the guard, infinities and NaN go wrong


def test_a_planted_fault_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    half = KINDS["float16"]

    def unrounded_product(a: Any, b: Any, accumulator: Any) -> Any:
        return round_sum(accumulator + a * b)

    name = altered(monkeypatch, "planted: product not rounded", replace(half, step=unrounded_product))
    monkeypatch.setitem(MEANING, name, MEANING["float16"])
    with pytest.raises(AssertionError):
        check_elements(name, (20, 40, 40), ("near_one", "near_one", ""), 0, elements=20)
    check_elements("float16", (20, 40, 40), ("near_one", "near_one", ""), 0, elements=20)


def worst_case(c: float, a: float, b: float, count: int) -> float:
    """The largest sum before rounding that `count` steps reach, in binary16."""
    total, most = np.float16(c), 0.0
    term = np.float16(np.float64(a) * b)
    for _ in range(count):
        exact = float(total) + float(term)
        most = max(most, exact)
        total = np.float16(exact)
        if np.isinf(total):
            return np.inf
    return most


def test_what_the_guard_admits_does_not_overflow() -> None:
    rng = np.random.default_rng(8)
    admitted = 0
    with np.errstate(over="ignore"):
        for _ in range(2000):
            count = int(rng.integers(1, guard.LONGEST + 1))
            c = float(np.float16(rng.uniform(0, 65504) * rng.choice([0, 0.5, 1])))
            a = float(np.float16(2.0 ** rng.uniform(-8, 8)))
            b = float(np.float16(rng.uniform(0.6, 1.1) * (65504 - c) / count / a))
            if guard.is_safe(np.float32(c), np.float32(a), np.float32(b), count):
                admitted += 1
                assert worst_case(c, a, b, count) < 65520
    assert 300 < admitted < 1700
    one = np.float32(1)
    assert guard.is_safe(one * 0, one * 3.5, one * 3.5, guard.LONGEST)
    for bad in (np.float32(np.inf), np.float32(np.nan)):
        assert not guard.is_safe(bad, one, one, 1)
        assert not guard.is_safe(one, bad, one, 1)
        assert not guard.is_safe(one, bad, one * 0, 1)


# What the compiled code is.

INSPECT = """
import hashlib, json, re, sys
import numpy as np
from fp16sim.emulator.kernels import blocks
from fp16sim.emulator.kernels.gemm import gemm
from fp16sim.emulator.kernels.simd import HAS_FMA

rng = np.random.Generator(np.random.PCG64(1))
digest, calls, fused = {}, set(), {}
for kind in sys.argv[1:]:
    a, b = (rng.integers(0, 65536, s, dtype=np.uint16) for s in ((19, 300), (300, 45)))
    a[:9] = (a[:9] & 0x83ff) | 0x3800  # rows near 1, for the guard to admit
    b[:, :32] = (b[:, :32] & 0x83ff) | 0x3800
    if kind == "single":
        a, b = a.astype(np.float32), b.astype(np.float32)
    out = np.empty((19, 45), np.uint16)
    gemm(kind, a, b, None, out)
    digest[kind] = hashlib.sha256(out.tobytes()).hexdigest()
    assembly = "".join(blocks.product_of(kind, out.dtype).multiply.inspect_asm().values())
    calls |= set(re.findall(r"__\\w*hf\\w*|\\bfmaf?@\\w+", assembly))
    fused[kind] = len(re.findall(r"\\bvfn?m(?:add|sub)\\w*", assembly))
print(json.dumps({"digest": digest, "calls": sorted(calls), "fused": fused, "fma": HAS_FMA}))
"""


def inspect(*kinds: str, **environment: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", INSPECT, *kinds],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_a_generic_processor_calls_no_library_and_gives_the_same_bits(tmp_path: Path) -> None:
    kinds = ("float32", "float16", "float16_fma")
    host = inspect(*kinds, "single", NUMBA_CACHE_DIR=str(tmp_path / "host"))
    generic = inspect(*kinds, NUMBA_CPU_NAME="generic", NUMBA_CACHE_DIR=str(tmp_path / "generic"))
    assert host["calls"] == generic["calls"] == []
    assert all(host["digest"][kind] == generic["digest"][kind] for kind in kinds)
    assert host["fused"]["single"] == 0  # its products are rounded
    if host["fma"] and os.uname().machine == "x86_64":
        assert host["fused"]["float32"] > 0
        assert not generic["fma"]
        assert sum(generic["fused"].values()) == 0


# Bad input.


def test_bad_input_is_refused() -> None:
    a, b = np.zeros((2, 3), np.uint16), np.zeros((3, 4), np.uint16)
    out = np.zeros((2, 4), np.float32)
    with pytest.raises(ValueError, match=r"unknown kind 'float17': .*float16"):
        gemm("float17", a, b, None, out)
    with pytest.raises(ValueError, match=r"shapes \(2, 3\), \(2, 3\) and out \(2, 4\)"):
        gemm("float32", a, a, None, out)
    with pytest.raises(ValueError, match="shapes"):
        gemm("float32", a, b, None, out[:1])
    with pytest.raises(ValueError, match="shapes"):
        gemm("float32", a[0], b, None, out)
    with pytest.raises(TypeError, match="operands are float32 and uint16: kind 'float32' takes uint16"):
        gemm("float32", a.astype(np.float32), b, None, out)
    with pytest.raises(TypeError, match="out is int64: kind 'float16' gives float32 or"):
        gemm("float16", a, b, None, out.astype(np.int64))
    with pytest.raises(TypeError, match="out is uint16: kind 'double' gives float64"):
        gemm("double", a.astype(float), b.astype(float), None, out.astype(np.uint16))
    with pytest.raises(TypeError, match=r"c is float64 of shape \(2, 4\)"):
        gemm("float32", a, b, out.astype(float), out)
    with pytest.raises(TypeError, match=r"c is float32 of shape \(1, 4\)"):
        gemm("float32", a, b, out[:1], out)
    with pytest.raises(ValueError, match="a row must be writeable"):
        gemm("float32", a, b, None, np.zeros((4, 2), np.float32).T)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="a row must be writeable"):
        gemm("float32", a, b, None, out)


# At length.


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in NAMES if kind != "double"])
def test_a_million_products_equal_the_integer_loops(kind: str) -> None:
    """The integer loops are held to the definition in test_dot.py."""
    path, fmt = DATAPATHS[MEANING[kind][0]], MEANING[kind][1]
    inner = path.start_format
    rules = rules_of(path, fmt, inner)
    counts = np.zeros(dot.SWAMPED + 1, np.int64)
    start, done, seed = time.perf_counter(), 0, 0
    while done < 1_000_000:
        rng = np.random.default_rng(seed)
        styles = [STYLES[i] for i in rng.integers(0, len(STYLES), 3)]
        seed += 1
        m, n, k = int(rng.integers(1, 120)), int(rng.integers(1, 120)), int(rng.integers(0, 41))
        a, b = draw(rng, fmt, (m, k), styles[0]), draw(rng, fmt, (k, n), styles[1])
        c = draw(rng, inner, (m, n), styles[2]) if seed % 2 else np.zeros((m, n), inner.uint)
        want = np.empty_like(c)
        dot.dot_loop(a, b, c, want, counts, rules)
        got = product(kind, operand(a, fmt), operand(b, fmt), values(c, inner, np.dtype(np.float32)))
        assert same(got, values(want, inner, np.dtype(np.float32))), (kind, styles, m, k, n, seed)
        done += m * n
    print(f"\n{kind}: {done} dot products of up to 40 terms, {time.perf_counter() - start:.0f} s")


@pytest.mark.slow
def test_steps_on_every_exponent_and_tie() -> None:
    """One step of the guarded float16 kernels on 10^8 stratified operands against NumPy's float16."""
    rng = np.random.default_rng(9)
    start, done = time.perf_counter(), 0
    while done < 100_000_000:
        m = n = 1000
        a, b = (
            draw(rng, binary16, (m, 1), "any", finite=True),
            draw(rng, binary16, (1, n), "any", finite=True),
        )
        c = values(draw(rng, binary16, (m, n), "any", finite=True), binary16, np.dtype(np.float32))
        for kind in (*HALF_KINDS, *GUARDED_KINDS):
            assert same(product(kind, a, b, c), in_numpy(kind, a, b, c))
            done += m * n
    print(f"\n{done} steps, {time.perf_counter() - start:.0f} s")


@pytest.mark.parametrize("kind", ["float32", "single", "double", "float16"])
def test_a_batch_is_its_matrices_one_after_another(kind: str) -> None:
    rng = np.random.Generator(np.random.PCG64(77))
    dtype = {"single": np.float32, "double": np.float64}.get(kind, np.float16)
    values = rng.standard_normal((3, 5, 7)).astype(dtype), rng.standard_normal((3, 9, 7)).astype(dtype)
    a, b = (x.view(np.uint16) if dtype == np.float16 else x for x in values)
    start = rng.standard_normal((3, 5, 9)).astype(np.float64 if kind == "double" else np.float32)
    together, apart = np.empty_like(start), np.empty_like(start)
    for c in (None, start.astype(np.float16).astype(start.dtype)):
        gemm(kind, a, b.swapaxes(1, 2), c, together)
        for i in range(3):
            gemm(kind, a[i], b[i].T, None if c is None else c[i], apart[i])
        assert together.tobytes() == apart.tobytes()
    gemm(kind, np.broadcast_to(a[:1], a.shape), b.swapaxes(1, 2), None, together)
    gemm(kind, a[0], b[2].T, None, apart[2])
    assert together[2].tobytes() == apart[2].tobytes()
    with pytest.raises(ValueError, match="shapes"):
        gemm(kind, a[:2], b.swapaxes(1, 2), None, together)
