"""Inputs on which other programs were reported, or found, to be wrong: here they are right.

Each test names the report. The wrong result that was seen stands in the comment beside the right one.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fp16sim as fs
from fp16sim.emulator.arithmetic import raised_flags
from fp16sim.emulator.flags import INVALID


def half(bits: int) -> Any:
    return np.uint16(bits).view(np.float16)


def single(bits: int) -> Any:
    return np.uint32(bits).view(np.float32)


def bits(x: Any) -> int:
    assert x.dtype == np.float16
    return int(x.view(np.uint16))


# --- conversions ---


def test_numpy_12721_float32_just_above_half_the_smallest_subnormal() -> None:
    assert bits(fs.round_to(single(0x33000001))) == 0x0001  # 0
    assert bits(fs.round_to(single(0x33000000))) == 0x0000  # the tie itself
    assert bits(fs.round_to(single(0xB3000001))) == 0x8001


@pytest.mark.parametrize(
    ("source", "right"),
    [(0x34200000, 0x0002), (0x34200001, 0x0003), (0x34600000, 0x0004), (0x40001000, 0x4000)],
)
def test_numpy_22704_ties_among_subnormals(source: int, right: int) -> None:
    assert bits(fs.round_to(single(source))) == right


def test_half_rs_151_float64_rounded_once() -> None:
    assert bits(fs.round_to(1 + 2.0**-11 + 2.0**-22)) == 0x3C01  # 0x3c00


def test_float64_is_not_rounded_through_float32() -> None:
    assert bits(fs.round_to(1 + 2.0**-11 + 2.0**-40)) == 0x3C01  # 0x3c00 by torch and jax
    assert bits(fs.round_to(1 + 3 * 2.0**-11 - 2.0**-40)) == 0x3C01  # 0x3c02


def test_float16_952_the_next_float64_above_half_the_smallest_subnormal() -> None:
    above = np.float64(2.0**-25 * (1 + 2.0**-52))
    assert float(fs.round_to(above)) == 2.0**-24  # 0
    assert float(fs.round_to(np.float64(2.0**-25))) == 0.0


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_iree_20163_h5py_819_the_carry_into_the_exponent(kind: Any) -> None:
    assert bits(fs.round_to(kind(0.49990))) == 0x3800  # 0x3400


def test_ml_dtypes_401_double_rounding_from_float64() -> None:
    rounded = fs.round_to(np.float64(1 + 2.0**-8 + 2.0**-40), "bfloat16")
    assert (rounded.dtype, float(rounded)) == (ml_dtypes.bfloat16, 1.0078125)  # 1.0
    rounded = fs.round_to(np.float64(-431.99999999999994), "e4m3")
    assert (rounded.dtype, float(rounded)) == (ml_dtypes.float8_e4m3fn, -416.0)  # -448


def test_hipdnn_11325_nan_stays_nan_and_subnormals_stay() -> None:
    # The 16,382 float32 NaNs whose first ten fraction bits are zero: a truncated fraction says infinity.
    fractions = np.arange(1, 1 << 13, dtype=np.uint32)
    nans = np.concatenate([fractions | np.uint32(0x7F800000), fractions | np.uint32(0xFF800000)])
    assert nans.size == 16_382
    assert set(fs.round_to(nans.view(np.float32)).view(np.uint16).tolist()) == {0x7E00}  # inf
    every = np.concatenate([np.arange(1, 0x400), np.arange(0x8001, 0x8400)]).astype(np.uint16)
    subnormals = every.view(np.float16)
    assert (fs.round_to(subnormals.astype(np.float32)).view(np.uint16) == every).all()  # 0
    assert (fs.round_to(subnormals.astype(np.float64)).view(np.uint16) == every).all()


def test_qpytorch_48_a_value_of_the_format_keeps_its_sign() -> None:
    assert float(fs.round_to(np.float32(3.0), "binary32")) == 3.0  # -3.0
    assert float(fs.round_to(np.float64(3.0), fs.Format("8/23", exponent_bits=8, precision=24))) == 3.0


def test_qpytorch_23_nearest_means_ties_to_even() -> None:
    assert bits(fs.round_to(1 + 2.0**-11)) == 0x3C00  # 0x3c01: away
    assert bits(fs.round_to(1 + 3 * 2.0**-11)) == 0x3C02
    assert bits(fs.round_to(1 + 2.0**-11, rounding="nearest_away")) == 0x3C01


def test_a_signalling_nan_becomes_the_quiet_one() -> None:
    assert bits(fs.round_to(single(0x7F800001))) == 0x7E00  # 0x7c01 by numpy
    with fs.count_events() as events:
        fs.round_to(single(0x7F800001))
    assert events.invalid == 1


# --- operations ---


def test_numpy_15977_nextafter_of_infinity() -> None:
    assert float(fs.nextafter(np.float16(np.inf), np.float16(0))) == 65504.0  # NaN
    assert float(fs.nextafter(np.float16(-np.inf), np.float16(0))) == -65504.0
    assert float(fs.nextafter(np.float16(65504), np.float16(np.inf))) == np.inf


def test_apytypes_406_toward_positive_carries() -> None:
    a = half(1 << 15 | 1 << 10 | 1023)
    b = half(1 << 15 | 26 << 10 | 80)
    assert bits(fs.multiply(a, b, rounding="toward_positive")) == 13 << 10 | 80  # m79
    assert bits(fs.multiply(a, b, rounding="toward_zero")) == 13 << 10 | 79


def test_pytorch_63482_a_small_quotient_of_halves() -> None:
    # 3388 / 524288: the divisor is beyond binary16, its reciprocal is a subnormal, the quotient is normal.
    right = np.float16(0.0065)
    assert abs(float(right) - 3388 / 524288) < 2.0**-14
    quotient = fs.round_to(np.float64(3388) / 524288)
    for result in (
        fs.multiply(np.float16(3388), 1 / 524288),
        fs.ldexp(np.float16(3388), -19),
        fs.divide(np.float16(3388 / 16), np.float16(524288 / 16)),
    ):
        assert float(result) == float(quotient) != 0.0
    with pytest.raises(
        ValueError, match=r"524288\.0 is beyond binary16, whose largest finite value is 65504"
    ):
        fs.divide(np.float16(3388), 524288.0)  # not 0, as it were with an infinite divisor


def test_fma_rounds_once() -> None:
    assert bits(fs.fma(half(0x520B), half(0x00E9), half(0x2FF6))) == 0x3001  # 0x3000 through float32


@pytest.mark.parametrize(
    ("name", "x", "right"),
    [("exp", 0x1F79, 0x3C07), ("log", 0x1D78, 0xC53B), ("sin", 0x5CB0, 0xBBFF)],
)
def test_functions_that_float32_gets_wrong(name: str, x: int, right: int) -> None:
    assert bits(getattr(fs, name)(half(x))) == right


# --- what whole programs get wrong ---


def test_negative_zero_is_kept() -> None:
    minus = np.float16(-0.0)
    for result in (
        fs.round_to(np.float32(-0.0)),
        fs.round_to(np.float64(-1e-300)),
        fs.add(minus, minus),
        fs.subtract(minus, np.float16(0.0)),
        fs.multiply(minus, np.float16(3.0)),
        fs.divide(minus, np.float16(3.0)),
        fs.fma(minus, np.float16(3.0), minus),
        fs.sqrt(minus),
        fs.rint(np.float16(-0.25)),
    ):
        assert bits(result) == 0x8000


def test_overflow_does_not_wrap() -> None:
    wide = np.arange(65536, 131072, 32).astype(np.float32)
    assert set(fs.round_to(wide).view(np.uint16).tolist()) == {0x7C00}  # 0 by pychop
    assert set(fs.round_to(-wide, saturate=True).view(np.uint16).tolist()) == {0xFBFF}


def test_infinities_and_nan_go_through() -> None:
    x = np.array([np.inf, -np.inf, np.nan], np.float32)
    for fmt in ("binary16", "bfloat16", "tf32", "e5m2"):
        rounded = fs.round_to(x, fmt).astype(np.float32)
        assert (np.isinf(rounded[:2])).all(), fmt
        assert rounded[0] > 0 > rounded[1], fmt
        assert np.isnan(rounded[2]), fmt
    assert np.isnan(fs.round_to(x, "e4m3").astype(np.float32)).all()


def test_flags_are_there() -> None:
    signalling = np.array([0x7C01], np.uint16).view(np.float16)
    assert raised_flags("add", signalling, signalling).tolist() == [INVALID]
    with fs.count_events() as events:
        fs.divide(np.float16(1), np.float16(0))
        fs.multiply(np.float16(60000), np.float16(2))
        fs.multiply(np.float16(2.0**-14), np.float16(0.3))
    assert (events.divide_by_zero, events.overflow, events.underflow) == (1, 1, 1)
    assert (events.inexact, events.subnormal, events.invalid) == (2, 1, 0)
