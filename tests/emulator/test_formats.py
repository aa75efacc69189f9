"""Formats against ml_dtypes and NumPy on every encoding, and the formats that are refused."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st

import fp16sim as fs
from fp16sim.emulator.formats import (
    Format,
    as_format,
    bfloat16,
    binary16,
    binary32,
    binary64,
    e4m3,
    e5m2,
    tf32,
)

SMALL = (binary16, bfloat16, e4m3, e5m2)


@pytest.mark.parametrize("fmt", SMALL, ids=lambda fmt: fmt.name)
def test_decode_and_encode_every_encoding(fmt: Format) -> None:
    bits = np.arange(2**fmt.width)
    values = fmt.decode(bits)
    with np.errstate(invalid="ignore"):  # signalling NaN
        theirs = bits.astype(fmt.uint).view(fmt.dtype).astype(np.float64)
    assert np.array_equal(np.isnan(values), np.isnan(theirs))
    real = ~np.isnan(values)
    assert np.array_equal(values[real].view(np.uint64), theirs[real].view(np.uint64))
    assert np.array_equal(fmt.encode(values)[real], bits[real])
    assert set(fmt.encode(values)[~real].tolist()) == {fmt.nan_bits}


@pytest.mark.parametrize("fmt", SMALL, ids=lambda fmt: fmt.name)
def test_limits_agree_with_ml_dtypes(fmt: Format) -> None:
    theirs = ml_dtypes.finfo(fmt.dtype)
    assert fmt.max_finite == float(theirs.max)
    assert fmt.min_normal == float(theirs.smallest_normal)
    assert fmt.min_subnormal == float(theirs.smallest_subnormal)
    assert fmt.epsilon == float(theirs.eps)


def test_tf32_and_binary32_limits() -> None:
    assert (tf32.emin, tf32.emax, tf32.precision, tf32.width) == (-126, 127, 11, 19)
    assert binary32.max_finite == float(np.finfo(np.float32).max)
    assert binary32.min_subnormal == 2.0**-149
    assert tf32.dtype == np.float32


@given(
    st.integers(2, 8), st.integers(2, 24), st.booleans(), st.booleans(), st.sampled_from(["ieee", "all_ones"])
)
def test_any_format_of_ones_own_round_trips(
    exponent_bits: int, precision: int, infinities: bool, subnormals: bool, nan: str
) -> None:
    if infinities and nan == "all_ones" and precision == 2:
        return  # refused: see below
    fmt = Format("own", exponent_bits, precision, infinities=infinities, nan=nan, subnormals=subnormals)
    ends = [
        0,
        1 << fmt.fraction_bits,
        (1 << fmt.fraction_bits) + 1,
        fmt.max_bits,
        fmt.max_bits - 1,
        fmt.nan_bits,
    ]
    if subnormals:
        ends.append(1)
    if fmt.inf_bits is not None:
        ends.append(fmt.inf_bits)
    for bits in ends:
        for signed in (bits, bits | fmt.sign_bit):
            expected = fmt.nan_bits if bits == fmt.nan_bits else signed
            assert fmt.encode(fmt.decode(signed)) == expected
    assert fmt.max_finite < 2.0 ** (fmt.emax + 1)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"precision": 1}, "precision=1: a format has 2 to 24"),
        ({"precision": 25}, "precision=25: a format has 2 to 24"),
        ({"exponent_bits": 1}, "exponent_bits=1: a format has 2 to 8"),
        ({"exponent_bits": 9}, "exponent_bits=9: a format has 2 to 8"),
        ({"precision": 11.0}, "precision=11.0: it counts bits; pass an integer from 2 to 24"),
        ({"exponent_bits": 4.0}, "exponent_bits=4.0: it counts bits; pass an integer from 2 to 8"),
        ({"emax": -15}, "emax=-15: 5 exponent bits .* allow emin=-14 <= emax <= 15"),
        ({"emax": 16}, "emax=16: 5 exponent bits"),
        (
            {"exponent_bits": 8, "infinities": False, "nan": "all_ones", "emax": 128},
            "emax=128: values are carried",
        ),
        ({"nan": "all_one"}, "nan='all_one': did you mean 'all_ones'"),
        ({"precision": 2, "nan": "all_ones"}, "choose nan='ieee', the same encoding"),
    ],
)
def test_impossible_formats_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Format("own", **{"exponent_bits": 5, "precision": 11, **arguments})  # type: ignore[arg-type]


def test_names_aliases_and_dtypes() -> None:
    for spec in ("binary16", "float16", "half", np.float16, np.dtype(">f2"), binary16):
        assert as_format(spec) is binary16
    assert as_format(ml_dtypes.bfloat16) is bfloat16
    assert as_format(np.float32) is binary32
    assert as_format("float8_e4m3fn") is e4m3


@pytest.mark.parametrize(
    "spec, message",
    [
        ("binry16", "unknown format 'binry16': did you mean 'binary16'?"),
        ("zzz", "unknown format 'zzz': use one of 'binary16', 'bfloat16', 'tf32'"),
        (np.float64, "no format for"),
        (np.int8, "no format for"),
        (object(), "no format for"),
        (binary64, "binary64 is a source of conversions only"),
    ],
)
def test_unknown_formats_name_the_nearest(spec: object, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        as_format(spec)


def test_encode_refuses_what_the_format_has_not_and_decode_what_is_no_encoding() -> None:
    with pytest.raises(
        ValueError, match=r"1\.0001.* is not a value of binary16; round it first: fp16sim.round_to"
    ):
        binary16.encode([1.0, 1.0001])
    with pytest.raises(ValueError, match="is not a value of e4m3"):
        e4m3.encode(float("inf"))
    for bits in (65536, -1, 1.0):
        with pytest.raises(ValueError, match=r"an encoding of binary16 is an integer in \[0, 2\*\*16\)"):
            binary16.decode(bits)


def test_zeros_keep_their_signs() -> None:
    for fmt in (*SMALL, tf32, binary32):
        assert fmt.encode([0.0, -0.0]).tolist() == [0, fmt.sign_bit]
        assert np.signbit(fmt.decode([0, fmt.sign_bit])).tolist() == [False, True]


def test_a_format_is_shown_with_its_numbers() -> None:
    assert repr(fs.binary16) == "Format('binary16', exponent_bits=5, precision=11)"


@pytest.mark.parametrize("fmt", [
    *SMALL, tf32, binary32, binary64,
    Format("mine", 4, 4, emax=7, infinities=False, nan="all_ones", subnormals=False),
    Format("e8", 8, 3, infinities=False, nan="all_ones"),
], ids=lambda fmt: fmt.name)  # fmt: skip
def test_what_a_format_shows_makes_it_again(fmt: Format) -> None:
    assert eval(repr(fmt), {"Format": Format}) == fmt


@pytest.mark.parametrize("name, meant", [
    ("bf16", "'bfloat16'"), ("FP16", "'binary16'"), ("fp8", "'e4m3' or 'e5m2'"), ("fp32", "'binary32'"),
])  # fmt: skip
def test_other_names_of_formats_are_understood(name: str, meant: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"unknown format {name!r}: did you mean {meant}?")):
        as_format(name)


def test_no_format_is_not_binary64() -> None:
    with pytest.raises(ValueError, match="no format for None: use one of 'binary16'"):
        as_format(None)


def test_errors_of_own_formats_advise_what_works() -> None:
    e3m2 = Format("e3m2", 3, 3)
    remedy = re.escape("fp16sim.round_to(x, <the Format 'e3m2'>)")
    with pytest.raises(ValueError, match=remedy):
        e3m2.encode(1.1)
    with pytest.raises(ValueError, match=remedy):
        fs.add(np.float32([1.1]), 1.0, format=e3m2)
    with pytest.raises(TypeError, match=remedy):
        fs.add(np.float64([1.1]), 1.0, format=e3m2)
    with pytest.raises(ValueError, match=remedy):
        fs.add(1e9, 1.0, format=e3m2)
    with pytest.raises(ValueError, match="<the Format 'binary16'>"):  # another one of that name
        Format("binary16", 3, 3).encode(1.1)
