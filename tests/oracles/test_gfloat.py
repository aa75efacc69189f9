"""Rounding held to gfloat (Graphcore), which shares no code with this package: values, not flags.

gfloat works in float64: it scales by powers of two and takes floors, all exact, so nothing here has a
tolerance. Each format is compared in the five directions of IEEE 754 and in stochastic rounding, with and
without saturation; flush to zero is put together from gfloat's rounding without subnormals.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

import numpy as np
import pytest
from fp16sim_oracles import strata

import fp16sim as fs
from fp16sim.emulator.formats import Format, as_format

pytestmark = pytest.mark.oracle

COUNT = 30_000
MODES = {
    "nearest_even": "TiesToEven",
    "nearest_away": "TiesToAway",
    "toward_zero": "TowardZero",
    "toward_positive": "TowardPositive",
    "toward_negative": "TowardNegative",
}
NAMES = {
    "binary16": "binary16",
    "bfloat16": "bfloat16",
    "binary32": "binary32",
    "e4m3": "ocp_e4m3",
    "e5m2": "ocp_e5m2",
}
E3M4 = Format("e3m4", exponent_bits=3, precision=5)
"""A format of one's own, with infinities and NaNs as IEEE 754 has them."""
FORMATS: tuple[Any, ...] = (*NAMES, "tf32", E3M4)

every_format = pytest.mark.parametrize(
    "fmt", FORMATS, ids=lambda fmt: fmt if isinstance(fmt, str) else fmt.name
)
every_mode = pytest.mark.parametrize("mode", MODES)


def description(gfloat: Any, fmt: Any) -> Any:
    """Give gfloat's description of a format; of one that it does not name, from three integers."""
    if fmt in NAMES:
        return getattr(importlib.import_module("gfloat.formats"), f"format_info_{NAMES[fmt]}")
    ours = as_format(fmt)
    return gfloat.FormatInfo(
        ours.name,
        k=ours.width,
        precision=ours.precision,
        bias=ours.bias,
        is_signed=True,
        domain=gfloat.Domain.Extended,
        has_nz=True,
        num_high_nans=2**ours.fraction_bits - 1,
        has_subnormals=True,
        is_twos_complement=False,
    )


def values(fmt: Any) -> Any:
    """Give float64 values at the edges of a format: strata, or every value, midpoint and what is next to them."""
    if isinstance(fmt, str):
        return strata.sources(fmt, "binary64", COUNT, 31).view(np.float64)
    code = np.arange(fmt.max_bits + 1)
    steps = np.append(fmt.decode(code), 2.0 ** (fmt.emax + 1))
    x = np.concatenate([steps, (steps[1:] + steps[:-1]) / 2, fmt.max_finite * np.array([1.5, 2.0])])
    x = np.concatenate(
        [x, np.nextafter(x, 0.0), np.nextafter(x, np.inf), fmt.min_normal * 0.999 / (1 + code)]
    )
    return np.concatenate([x, -x, [np.inf, -np.inf, np.nan]])


def differences(ours: Any, theirs: Any, x: Any) -> list[str]:
    """Describe the first few values that differ, NaN being equal to NaN and -0 not to +0."""
    ours, theirs = np.asarray(ours).astype(np.float64), np.asarray(theirs, np.float64)
    wrong = ours.view(np.uint64) != theirs.view(np.uint64)
    wrong &= ~(np.isnan(ours) & np.isnan(theirs))
    return [f"{x[i].hex()}: {ours[i].hex()}, not {theirs[i].hex()}" for i in np.flatnonzero(wrong)[:5]]


@every_format
@every_mode
@pytest.mark.parametrize("saturate", [False, True])
def test_rounding(gfloat: Any, fmt: Any, mode: str, saturate: bool) -> None:
    x = values(fmt)
    theirs = gfloat.round_ndarray(
        description(gfloat, fmt), x, getattr(gfloat.RoundMode, MODES[mode]), saturate
    )
    assert not differences(fs.round_to(x, fmt, rounding=mode, saturate=saturate), theirs, x)


@every_format
@every_mode
@pytest.mark.parametrize("tininess", ["after", "before"])
def test_flush_to_zero(gfloat: Any, fmt: Any, mode: str, tininess: str) -> None:
    """Without subnormals gfloat rounds to an unbounded exponent, which is what tininess is judged by."""
    x = values(fmt)
    unbounded = dataclasses.replace(description(gfloat, fmt), has_subnormals=False)
    theirs = gfloat.round_ndarray(unbounded, x, getattr(gfloat.RoundMode, MODES[mode]))
    tiny = np.abs(theirs if tininess == "after" else x) < as_format(fmt).min_normal
    assert np.count_nonzero(tiny & (x != 0)) > len(x) // 100
    theirs = np.where(tiny, np.copysign(0.0, x), theirs)
    assert not differences(
        fs.round_to(x, fmt, rounding=mode, subnormals="flush", tininess=tininess), theirs, x
    )


@every_format
@pytest.mark.parametrize("saturate", [False, True])
def test_stochastic(gfloat: Any, fmt: Any, saturate: bool) -> None:
    """The same draws give the same values.

    Here bits < floor(fraction * 2^32) rounds away; there fraction + srbits / 2^32 >= 1 does ("fastest").
    With srbits = 2^32 - 1 - bits the two say the same.
    """
    x = values(fmt)
    if fmt == "e4m3" and not saturate:
        # Beyond 448 gfloat rounds on a grid whose next value would be 480, the encoding of NaN; here the
        # upper neighbour of the largest finite value is a power of two, 512, in every format.
        x = x[(np.abs(x) <= 448) | (np.abs(x) >= 512)]
    bits = strata.random_bits(len(x), 32)
    theirs = gfloat.round_ndarray(
        description(gfloat, fmt),
        x,
        gfloat.RoundMode.StochasticFastest,
        saturate,
        0xFFFFFFFF - bits.astype(np.int64),
        32,
    )
    ours = fs.round_to(x, fmt, rounding="stochastic", random_bits=bits, saturate=saturate)
    assert not differences(ours, theirs, x)
    assert differences(fs.round_to(x, fmt, saturate=saturate), theirs, x)


def test_a_wrong_mode_a_wrong_sign_and_a_wrong_bit_are_noticed(gfloat: Any) -> None:
    x = values("binary16")
    theirs = gfloat.round_ndarray(description(gfloat, "binary16"), x)
    for mode in list(MODES)[1:]:
        assert differences(fs.round_to(x, "binary16", rounding=mode), theirs, x), mode
    assert differences(fs.round_to(x, "binary16", subnormals="flush"), theirs, x)
    right = fs.round_to(x, "binary16")
    for place, bit in ((np.flatnonzero(right == 0)[0], 0x8000), (np.flatnonzero(np.abs(right) > 1)[0], 1)):
        wrong = right.copy()
        wrong.view(np.uint16)[place] ^= bit
        assert len(differences(wrong, theirs, x)) == 1
