"""Operands of other formats on float32 accumulators: exact products, each sum rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fp16sim_encodings import STYLES, draw

from fp16sim.emulator import reference_dot
from fp16sim.emulator.backends import Backend, current
from fp16sim.emulator.backends.products import fast_kind
from fp16sim.emulator.datapath import DATAPATHS, Datapath
from fp16sim.emulator.formats import Format, bfloat16, binary16, binary32, e4m3, e5m2, tf32
from fp16sim.emulator.kernels.simd import HAS_FMA

Array = npt.NDArray[Any]
OWN = Format("own", 6, 12, emax=20)
FORMATS = (bfloat16, tf32, e4m3, e5m2, binary32, OWN)
FUSED = Datapath("fused", fused=True, inputs=FORMATS)


def check(a: Array, b: Array, c: Array | None, fmt: Format, out: Format, elements: int = 12) -> None:
    """Compare some elements with the definition."""
    got = current().matmul(a, b, c, fmt, FUSED, out).bits
    rng = np.random.Generator(np.random.PCG64(1))
    for place in rng.integers(0, got.size, min(elements, got.size)):
        i, j, k = np.unravel_index(place, got.shape)
        start = 0 if c is None else int(c[i, j, k])
        right = reference_dot.dot(a[i, j].tolist(), b[i, :, k].tolist(), start, fmt, FUSED, out)
        assert got[i, j, k] == right.bits, (fmt.name, out.name, i, j, k)


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_products_equal_the_definition(fmt: Format) -> None:
    rng = np.random.Generator(np.random.PCG64(fmt.width))
    for first in STYLES:
        for second in STYLES:
            a, b = draw(rng, fmt, (1, 5, 9), first), draw(rng, fmt, (1, 9, 35), second)
            c = draw(rng, binary32, (1, 5, 35), str(rng.choice(STYLES)))
            for out in (fmt, binary32, binary16):
                check(a, b, None, fmt, out, 3)
                check(a, b, c, fmt, out, 3)


def test_products_that_binary32_does_not_hold() -> None:
    def powers(first: int, second: int, start: float) -> float:
        a, b = (np.full((1, 1, 1), (power + 127) << 7, np.uint16) for power in (first, second))
        c = np.full((1, 1, 1), np.float32(start)).view(np.uint32)
        check(a, b, c, bfloat16, binary32)
        return float(current().matmul(a, b, c, bfloat16, FUSED, binary32).bits.view(np.float32)[0, 0, 0])

    # 2^-150 is a tie for binary32 and would round to zero; added to 2^-149 it gives a tie that rounds up.
    assert powers(-75, -75, 2.0**-149) == 2.0**-148
    # 2^128 is beyond it; less the largest value it is not.
    assert powers(64, 64, float(-np.finfo(np.float32).max)) == 2.0**104


@pytest.mark.parametrize("fmt", [bfloat16, e4m3], ids=lambda fmt: fmt.name)
def test_any_strides_batches_and_depth(fmt: Format) -> None:
    rng = np.random.Generator(np.random.PCG64(3))
    a, b = draw(rng, fmt, (2, 40, 300), "near_one"), draw(rng, fmt, (2, 300, 50), "near_one")
    check(a, b, None, fmt, fmt, 30)
    want = current().matmul(a, b, None, fmt, FUSED, fmt).bits
    lefts = (
        a.transpose(0, 2, 1).copy().transpose(0, 2, 1),
        np.repeat(a, 2, axis=2)[:, :, ::2],
        a[:, ::-1].copy()[:, ::-1],
    )
    rights = (b.transpose(0, 2, 1).copy().transpose(0, 2, 1), np.repeat(b, 2, axis=1)[:, ::2], b.copy())
    for left, right in zip(lefts, rights, strict=True):
        assert np.array_equal(current().matmul(left, right, None, fmt, FUSED, fmt).bits, want)
    one = np.broadcast_to(b[:1], b.shape)
    assert np.array_equal(current().matmul(a, one, None, fmt, FUSED, fmt).bits[0], want[0])
    column = np.broadcast_to(b[:, :, :1], b.shape)
    assert np.array_equal(current().matmul(a, column, None, fmt, FUSED, fmt).bits[:, :, 7], want[:, :, 0])


def test_counting_goes_another_way_to_the_same_bits() -> None:
    rng = np.random.Generator(np.random.PCG64(4))
    a, b = draw(rng, bfloat16, (1, 6, 20), "any"), draw(rng, bfloat16, (1, 20, 6), "cancelling")
    plain = current().matmul(a, b, None, bfloat16, FUSED, bfloat16)
    counted = current().matmul(a, b, None, bfloat16, FUSED, bfloat16, "counts")
    defined = Backend().matmul(a, b, None, bfloat16, FUSED, bfloat16, "counts")
    assert np.array_equal(plain.bits, defined.bits)
    assert np.array_equal(counted.bits, defined.bits)
    assert np.array_equal(counted.counts, defined.counts)


def test_rounded_products_would_be_seen() -> None:
    """Binary32 operands have products of 48 bits: rounding them first gives other sums."""
    rng = np.random.Generator(np.random.PCG64(5))
    a, b = draw(rng, binary32, (1, 20, 30), "near_one"), draw(rng, binary32, (1, 30, 20), "near_one")
    fused = current().matmul(a, b, None, binary32, FUSED, binary32).bits
    rounded = current().matmul(a, b, None, binary32, DATAPATHS["float32"], binary32).bits
    assert (fused != rounded).mean() > 0.3


def test_the_fast_kernel_is_chosen_where_it_can_be() -> None:
    expected = "single_fused" if HAS_FMA else ""
    assert {fast_kind(fmt, FUSED) for fmt in FORMATS} == {expected}
    assert fast_kind(bfloat16, DATAPATHS["bfloat16"]) == ""
    assert fast_kind(bfloat16, DATAPATHS["a100"]) == ""
    assert fast_kind(binary16, DATAPATHS["float32"]) == "float32"
