"""Conversions, half arithmetic and products of matrices held to torch 2.13 on a CPU.

Bits are compared wherever torch rounds what this package rounds. Where it sums in another order, the
tolerance says why it is what it is, and something planted shows that it is tight enough to notice a fault.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from fp16sim_oracles import strata

import fp16sim as fs
from fp16sim.emulator.formats import as_format
from fp16sim.nn.random import normals, uniform_integers

pytestmark = pytest.mark.oracle

MILLION = 1 << 20
U = 2.0**-24
"""Half an ulp of float32, relative: what one rounding may change."""
DTYPES = {"binary16": "float16", "bfloat16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}


def bits_of(torch: Any, tensor: Any) -> Any:
    """Give the encodings of a tensor of 1, 2 or 4 bytes an element."""
    size = tensor.element_size()
    signed = tensor.contiguous().view({1: torch.int8, 2: torch.int16, 4: torch.int32}[size])
    return signed.numpy().view(f"u{size}")


def different(ours: Any, theirs: Any, fmt: str) -> Any:
    """Mark the encodings that differ, NaN being equal to NaN."""
    form = as_format(fmt)
    largest = form.max_bits if form.inf_bits is None else form.inf_bits
    nan = [bits & (form.sign_bit - 1) > largest for bits in (ours, theirs)]
    return (ours != theirs) & ~(nan[0] & nan[1])


def report(wrong: Any, ours: Any, theirs: Any, *operands: Any) -> list[str]:
    """Describe the first few that differ."""
    return [
        f"{', '.join(float(x[i]).hex() for x in operands)}: {ours[i]:#x}, not {theirs[i]:#x}"
        for i in np.flatnonzero(wrong)[:5]
    ]


def rounded(x: Any, fmt: str, **options: Any) -> Any:
    """Give the encodings that `round_to` gives."""
    return np.asarray(fs.round_to(x, fmt, **options)).view(as_format(fmt).uint)


# --- conversions ---


@pytest.mark.parametrize("fmt", DTYPES)
def test_conversion_from_float32(torch: Any, fmt: str) -> None:
    """Bit for bit. torch's float8_e4m3fn saturates: what overflows, infinities too, becomes +-448, not NaN."""
    x = strata.sources(fmt, "binary32", MILLION, 41).view(np.float32)
    theirs = bits_of(torch, torch.from_numpy(x).to(getattr(torch, DTYPES[fmt])))
    ours = rounded(x, fmt, saturate=fmt == "e4m3")
    wrong = different(ours, theirs, fmt)
    assert not wrong.any(), report(wrong, ours, theirs, x)
    away = rounded(x, fmt, rounding="nearest_away", saturate=fmt == "e4m3")
    assert different(away, theirs, fmt).mean() > 0.01  # ties are among them, and seen


@pytest.mark.parametrize("fmt", ["binary16", "bfloat16"])
def test_conversion_from_float64_is_rounded_twice_by_torch(torch: Any, fmt: str) -> None:
    """torch goes through float32: every difference is explained by that, and there are many."""
    x = strata.sources(fmt, "binary64", MILLION, 42).view(np.float64)
    theirs = bits_of(torch, torch.from_numpy(x).to(getattr(torch, DTYPES[fmt])))
    twice = rounded(fs.round_to(x, "binary32"), fmt)
    wrong = different(twice, theirs, fmt)
    assert not wrong.any(), report(wrong, twice, theirs, x)
    assert different(rounded(x, fmt), theirs, fmt).mean() > 0.01


def test_one_value_that_torch_rounds_twice(torch: Any) -> None:
    x = 1 + 2**-11 + 2**-40  # above the tie, onto which rounding to float32 puts it
    assert torch.tensor(x, dtype=torch.float64).half().item() == 1.0
    assert float(fs.round_to(x)) == 1 + 2**-10


# --- arithmetic ---


@pytest.mark.parametrize(
    ("name", "theirs"), [("add", "add"), ("subtract", "sub"), ("multiply", "mul"), ("divide", "div")]
)
def test_half_arithmetic(torch: Any, name: str, theirs: str) -> None:
    """torch computes in float32 and rounds again: harmless, since 24 >= 2 * 11 + 2 (Figueroa 1995)."""
    a, b = (column.view(np.float16) for column in strata.operands(name, "binary16", MILLION, 43)[:2])
    found = bits_of(torch, getattr(torch, theirs)(torch.from_numpy(a), torch.from_numpy(b)))
    ours = getattr(fs, name)(a, b).view(np.uint16)
    wrong = different(ours, found, "binary16")
    assert not wrong.any(), report(wrong, ours, found, a, b)
    assert different(ours ^ np.uint16(1), found, "binary16").mean() > 0.8  # the rest are NaNs


def test_half_square_roots(torch: Any) -> None:
    x = np.arange(2**16, dtype=np.uint16).view(np.float16)
    theirs = bits_of(torch, torch.sqrt(torch.from_numpy(x)))
    ours = fs.sqrt(x).view(np.uint16)
    wrong = different(ours, theirs, "binary16")
    assert not wrong.any(), report(wrong, ours, theirs, x)


# --- products of matrices ---


def drawn(seed: int, *shape: int) -> Any:
    return normals(seed, math.prod(shape)).reshape(shape)


def beyond_reordering(a: Any, b: Any, ours: Any, theirs: Any) -> float:
    """Give the largest difference of two half products as a share of what the order of summation explains.

    Each sum of k exact products in float32 is within (k - 1) u sum |a b| of the true one, in any order; each
    is rounded to half once, which adds half an ulp of half to each, one in all.
    """
    a, b, ours, theirs = (np.asarray(m).astype(np.float64) for m in (a, b, ours, theirs))
    magnitude = np.abs(a) @ np.abs(b)
    ulp = np.spacing(np.maximum(np.abs(ours), np.abs(theirs)).astype(np.float16)).astype(np.float64)
    return float(np.max(np.abs(ours - theirs) / (2 * a.shape[1] * U * magnitude + ulp)))


@pytest.mark.parametrize("k", [1, 7, 64, 333, 4096])
def test_half_matmul(torch: Any, k: int) -> None:
    a, b = drawn(1, 37, k).astype(np.float16), drawn(2, k, 29).astype(np.float16)
    theirs = (torch.from_numpy(a) @ torch.from_numpy(b)).numpy()
    assert beyond_reordering(a, b, fs.matmul(a, b), theirs) <= 1
    if k > 7:  # an accumulator of half is noticed
        assert beyond_reordering(a, b, fs.matmul(a, b, "float16"), theirs) > 1


@pytest.mark.parametrize("k", [1, 64, 333])
def test_half_matmul_of_small_integers_is_exact(torch: Any, k: int) -> None:
    """Every partial sum is an integer below 2^24, so that no order of summation rounds."""
    a, b = ((uniform_integers(s, 37 * k).astype(np.int64) % 17 - 8).astype(np.float16) for s in (3, 4))
    a, b = a.reshape(37, k), b.reshape(k, 37)
    theirs = bits_of(torch, torch.from_numpy(a) @ torch.from_numpy(b))
    assert np.array_equal(fs.matmul(a, b).view(np.uint16), theirs)
