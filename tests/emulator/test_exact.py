"""Values, their one rounding, and conversions: against other programs, then at the ends of formats."""

from __future__ import annotations

import math
import random
import struct
from fractions import Fraction

import numpy as np
import pytest
from fp16sim_oracles import edges, mpfr, softfloat
from fp16sim_oracles.comparison import FORMATS, RULES, difference, f32, f64
from hypothesis import given, settings, strategies as st

from fp16sim.emulator import reference as ref
from fp16sim.emulator.flags import DIVIDE_BY_ZERO, INEXACT, INVALID, OVERFLOW, SUBNORMAL, UNDERFLOW
from fp16sim.emulator.formats import Format, bfloat16, binary16, binary32, binary64, e4m3, e5m2, tf32
from fp16sim.emulator.rounding import MODES, Rounding
from fp16sim.testing.strategies import encodings

SAMPLED = settings(derandomize=True, database=None, deadline=None, max_examples=150)


# Reading encodings.


@pytest.mark.parametrize("fmt", [binary16, e4m3, e5m2, bfloat16], ids=lambda f: f.name)
def test_decode_equals_the_array_dtype(fmt):
    codes = np.arange(0, 2**fmt.width, 1 if fmt.width == 8 else 3).astype(fmt.uint)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        values = codes.view(fmt.dtype).astype(np.float64).tolist()
    for code, value in zip(codes.tolist(), values, strict=True):
        ours = ref.decode(code, fmt)
        if math.isnan(value):
            assert ours.kind == "nan"
        else:
            assert ours.negative == (math.copysign(1, value) < 0)
            if math.isinf(value):
                assert ours.kind == "infinity"
            else:
                assert (ours.kind, ours.number) == ("finite", Fraction(value))


@SAMPLED
@given(encodings(binary64, payloads=True))
def test_decode_reads_binary64(bits):
    value = struct.unpack("d", struct.pack("Q", bits))[0]
    ours = ref.decode(bits, binary64)
    if math.isfinite(value):
        assert (ours.number, ours.negative) == (Fraction(value), math.copysign(1, value) < 0)
    else:
        assert ours.kind == ("nan" if math.isnan(value) else "infinity")


@SAMPLED
@given(
    st.sampled_from([binary16, bfloat16, tf32, e4m3, e5m2, binary32]), st.integers(0), st.sampled_from(MODES)
)
def test_every_value_of_a_format_rounds_to_itself(fmt, code, mode):
    code %= 2**fmt.width
    value = ref.decode(code, fmt)
    bits, flags = ref.round_value(value, fmt, Rounding(mode))
    if value.kind == "nan":
        assert bits == fmt.nan_bits
    else:
        subnormal = 0 < code % fmt.sign_bit < 2**fmt.fraction_bits
        assert (bits, flags) == (code, SUBNORMAL if subnormal else 0)


@pytest.mark.parametrize("bits", [-1, 0x10000])
def test_an_impossible_encoding_is_an_error(bits):
    with pytest.raises(ValueError, match=r"an encoding of binary16 is an integer in \[0, 2\*\*16\)"):
        ref.decode(bits, binary16)


# Conversions against SoftFloat, MPFR and ml_dtypes.


CONVERSIONS = [
    ("binary32", "binary16"),
    ("binary64", "binary16"),
    ("binary64", "binary32"),
    ("binary32", "bfloat16"),
    ("binary16", "binary32"),
    ("bfloat16", "binary32"),
]


def test_conversions_equal_softfloat():
    for source, target in CONVERSIONS:
        rng = random.Random(f"{source} {target}")
        cases = [edges.conversion_input(rng, source, target) for _ in range(250)] + edges.edges(source)
        for bits in cases:
            for (mode, tininess), rule in RULES.items():
                ours = ref.convert(bits, FORMATS[source], FORMATS[target], rule)
                theirs = softfloat.convert(bits, source, target, mode, tininess)
                wrong = difference(ours, theirs, softfloat.FLAGS)
                assert wrong is None, f"{bits:#x} {source} to {target} {mode} {tininess}: {wrong}"


def test_integers_equal_softfloat():
    rng = random.Random("integers")
    whole = [rng.randint(-(2**k), 2**k) for k in range(1, 63) for _ in range(4)]
    whole += [0, 2**64 - 1, 2**63, -(2**63), 65504, 65519, 65520, -65520, 2049, 2051, 2**24 + 1]
    for n in whole:
        for target in (binary16, binary32):
            for mode in softfloat.MODES:
                ours = ref.convert_integer(n, target, Rounding(mode))
                assert (
                    difference(ours, softfloat.convert_integer(n, target.name, mode), softfloat.FLAGS) is None
                )
    ranges = {
        "int32": (-(2**31), 2**31 - 1),
        "int64": (-(2**63), 2**63 - 1),
        "uint32": (0, 2**32 - 1),
        "uint64": (0, 2**64 - 1),
    }
    for fmt in (binary16, binary32):
        cases = [edges.encoding(rng, fmt.name) for _ in range(300)] + edges.edges(fmt.name)
        cases += [fmt.encode(v) for v in (0.5, -0.5, 0.75, 1.5, 2.5, -2.5, 2.0**15, -(2.0**15))]
        if fmt is binary32:
            cases += [f32(v) for v in (2.0**31, -(2.0**31), 2.0**32, 2.0**63, -(2.0**63), 2.0**64, -1.0)]
        for bits in cases:
            for dtype, (low, high) in ranges.items():
                for mode in softfloat.MODES:
                    n, flags = ref.to_integer(bits, fmt, low, high, mode)
                    theirs, their_flags = softfloat.to_integer(bits, fmt.name, dtype, mode)
                    case = f"{bits:#x} {fmt.name} {dtype} {mode}"
                    assert flags == their_flags, case
                    if theirs is None:
                        value = fmt.decode(bits)
                        assert n == (0 if math.isnan(value) else low if value < 0 else high), case
                    else:
                        assert n == theirs, case


@pytest.mark.parametrize("target", ["binary16", "bfloat16", "tf32", "e5m2", "binary32"])
def test_conversions_equal_mpfr(target):
    rng = random.Random(target)
    for source in ("binary64", "binary32"):
        for _ in range(400):
            bits = edges.conversion_input(rng, source, target)
            if math.isnan(mpfr.decode(bits, source)):
                continue
            for mode in mpfr.MODES:
                ours = ref.convert(bits, FORMATS[source], FORMATS[target], Rounding(mode))
                theirs = mpfr.convert(bits, source, target, mode)
                assert difference(ours, theirs, mpfr.FLAGS) is None, (hex(bits), source, mode)


def test_e4m3_and_e5m2_equal_ml_dtypes_from_every_seventh_binary16():
    codes = np.unique(np.r_[np.arange(0, 2**16, 7), edges.edges("binary16")]).astype(np.uint16)
    exact = codes.view(np.float16).astype(np.float32)
    for fmt in (e4m3, e5m2):
        with np.errstate(invalid="ignore"):  # signalling NaNs
            theirs = exact.astype(fmt.dtype).view(np.uint8).tolist()
        for code, their in zip(codes.tolist(), theirs, strict=True):
            nan = their % 0x80 > (fmt.inf_bits or fmt.max_bits)
            assert ref.convert(code, binary16, fmt).bits == (fmt.nan_bits if nan else their), hex(code)


# Stochastic rounding.


def grid(code: int, fmt: Format) -> Fraction:
    """The value of a nonnegative code; what follows the largest finite one counts as 2^(emax+1)."""
    return Fraction(2) ** (fmt.emax + 1) if code > fmt.max_bits else Fraction(fmt.decode(code))


@pytest.mark.parametrize("fmt", [binary16, bfloat16, e4m3, e5m2], ids=lambda f: f.name)
def test_stochastic_threshold_is_the_floor_of_the_exact_fraction(fmt):
    rng = random.Random(f"stochastic {fmt.name}")
    inexact = 0
    for _ in range(400):
        code = rng.choice(
            (rng.randrange(fmt.max_bits + 1), rng.randrange(2**fmt.fraction_bits), fmt.max_bits)
        )
        low, high = grid(code, fmt), grid(code + 1, fmt)
        part = rng.choice(
            (Fraction(rng.getrandbits(60), 2**60), Fraction(rng.getrandbits(5), 32), Fraction(1, 3))
        )
        part = rng.choice((part, Fraction(1, 2**33), 1 - Fraction(1, 2**40)))
        magnitude, threshold = low + (high - low) * part, math.floor(part * 2**32)
        for sign in (1, -1):
            value = ref.Value.of(sign * magnitude)
            signed = fmt.sign_bit if value.negative else 0
            rule = Rounding("stochastic")
            if part == 0:  # exact: draws nothing
                assert ref.round_value(value, fmt, rule).bits == (signed | code if code else 0)
                continue
            inexact += 1
            down = ref.round_value(value, fmt, rule, threshold)
            assert down.bits == signed | code
            assert down.flags & INEXACT
            assert not down.flags & OVERFLOW
            if threshold:
                up = ref.round_value(value, fmt, rule, threshold - 1)
                if code == fmt.max_bits:
                    beyond = fmt.nan_bits if fmt.inf_bits is None else signed | fmt.inf_bits
                    assert up == (beyond, OVERFLOW | INEXACT)
                else:
                    assert up.bits == signed | (code + 1)
    assert inexact > 300


def test_stochastic_overflows_always_from_two_to_the_emax_plus_one():
    rule = Rounding("stochastic")
    for magnitude in (65536, 65537, 10**9):
        assert ref.convert_integer(-magnitude, binary16, rule) == (0xFC00, OVERFLOW | INEXACT)
    # Without infinity the next grid point above 448 is 512 (480 is a NaN): 464 lies a quarter of the way up.
    assert ref.convert_integer(464, e4m3, rule, 2**30 - 1) == (0x7F, OVERFLOW | INEXACT)
    assert ref.convert_integer(464, e4m3, rule, 2**30) == (0x7E, INEXACT)
    assert ref.convert_integer(512, e4m3, rule) == (0x7F, OVERFLOW | INEXACT)


def test_stochastic_without_bits_is_an_error():
    with pytest.raises(ValueError, match="random_bits=None"):
        ref.add(0x3C00, 1, binary16, Rounding("stochastic"))


# Ends of formats.


@pytest.mark.parametrize(
    ("value", "mode", "bits", "flags"),
    [
        (448, "nearest_even", 0x7E, 0),
        (464, "nearest_even", 0x7E, INEXACT),
        (464, "nearest_away", 0x7F, OVERFLOW | INEXACT),
        (Fraction(464) + Fraction(1, 2**40), "nearest_even", 0x7F, OVERFLOW | INEXACT),
        (-480, "nearest_even", 0x7F, OVERFLOW | INEXACT),
        (463, "toward_zero", 0x7E, INEXACT),
        (480, "toward_zero", 0x7E, OVERFLOW | INEXACT),
        (449, "toward_positive", 0x7F, OVERFLOW | INEXACT),
        (-449, "toward_positive", 0xFE, INEXACT),
        (-480, "toward_positive", 0xFE, OVERFLOW | INEXACT),
        (449, "to_odd", 0x7E, OVERFLOW | INEXACT),  # unbounded it is 480
        (10**6, "to_odd", 0x7E, OVERFLOW | INEXACT),
    ],
)
def test_e4m3_overflow(value, mode, bits, flags):
    assert ref.round_value(ref.Value.of(Fraction(value)), e4m3, Rounding(mode)) == (bits, flags)


def test_e5m2_overflow():
    halfway = Fraction(57344 + 4096)
    assert ref.round_value(ref.Value.of(halfway - 1), e5m2) == (0x7B, INEXACT)
    assert ref.round_value(ref.Value.of(halfway), e5m2) == (0x7C, OVERFLOW | INEXACT)


def test_saturation():
    rule = Rounding(saturate=True)
    assert ref.convert_integer(65520, binary16, rule) == (0x7BFF, OVERFLOW | INEXACT)
    assert ref.convert(0xFC00, binary16, binary16, rule) == (0xFBFF, OVERFLOW | INEXACT)
    assert ref.divide(0xBC00, 0x0000, binary16, rule) == (0xFBFF, DIVIDE_BY_ZERO | OVERFLOW | INEXACT)
    assert ref.convert(0x7C00, binary16, e4m3, rule) == (0x7E, OVERFLOW | INEXACT)
    assert ref.convert(0xFE00, binary16, e4m3, rule) == (0x7F, 0)
    assert ref.nextafter(0x7BFF, 0x7C00, binary16, rule) == (0x7BFF, OVERFLOW | INEXACT)
    assert ref.minimum(0x7C00, 0x7C00, binary16, rule) == (0x7BFF, OVERFLOW | INEXACT)
    for mode in MODES:
        bits = ref.convert_integer(10**6, binary16, Rounding(mode, saturate=True), 0).bits
        assert bits == 0x7BFF


def test_infinities_in_a_format_that_has_none():
    assert ref.convert(0xFC00, binary16, e4m3) == (0x7F, OVERFLOW | INEXACT)
    assert ref.divide(0x38, 0x80, e4m3) == (0x7F, DIVIDE_BY_ZERO | OVERFLOW | INEXACT)
    assert ref.logb(0x00, e4m3) == (0x7F, DIVIDE_BY_ZERO | OVERFLOW | INEXACT)


def test_nan_is_canonical_and_a_signalling_one_invalid():
    for bits in (0x7C01, 0xFC01, 0x7DFF, 0xFDFF):
        assert ref.convert(bits, binary16, bfloat16) == (0x7FC0, INVALID)
        assert ref.add(bits, 0x3C00, binary16) == (0x7E00, INVALID)
        assert ref.sqrt(bits, binary16) == ref.nextafter(0, bits, binary16) == (0x7E00, INVALID)
    for bits in (0x7E00, 0xFE01, 0xFFFF):
        assert ref.convert(bits, binary16, e4m3) == (0x7F, 0)
        assert ref.multiply(0x3C00, bits, binary16) == ref.logb(bits, binary16) == (0x7E00, 0)
    for bits in (0x7F, 0xFF):  # the NaN of e4m3 is quiet
        assert ref.add(bits, 0x38, e4m3) == (0x7F, 0)
    for a, b in ((0x0000, 0x7C00), (0xFC00, 0x8000)):
        assert ref.fma(a, b, 0x7E00, binary16) == (0x7E00, INVALID)
    assert ref.fma(0x7E00, 0x7C00, 0x0000, binary16) == (0x7E00, 0)


def test_every_encoding_beyond_the_largest_value_is_a_quiet_nan_where_only_all_ones_is_one():
    few = Format("few", exponent_bits=4, precision=4, emax=6, infinities=False, nan="all_ones")
    for bits in range(few.max_bits + 1, 0x80):
        assert ref.convert(bits, few, few) == (0x7F, 0)
    signalling = Format("signalling", exponent_bits=4, precision=4, infinities=False)
    assert ref.convert(0x7B, signalling, signalling) == (0x7C, INVALID)
    assert ref.convert(0x7D, signalling, signalling) == (0x7C, 0)


@pytest.mark.parametrize("mode", MODES)
def test_flush_replaces_tiny_results_by_zeros_of_their_sign(mode):
    rule = Rounding(mode, "flush")
    for bits in (0x0001, 0x03FF, 0x8001, 0x83FF):
        assert ref.convert(bits, binary16, binary16, rule, 0) == (bits & 0x8000, UNDERFLOW | INEXACT)
        assert ref.minimum(bits, bits, binary16, rule) == (bits & 0x8000, UNDERFLOW | INEXACT)
    assert ref.convert(0x0400, binary16, binary16, rule) == (0x0400, 0)
    assert ref.convert(0x8000, binary16, binary16, rule) == (0x8000, 0)
    assert ref.round_value(ref.Value.of(Fraction(-1, 10**30)), binary16, rule, 0).bits == 0x8000
    no_subnormals = Format("no subnormals", exponent_bits=5, precision=11, subnormals=False)
    assert ref.convert(0x03FF, binary16, no_subnormals, Rounding(mode)) == (0, UNDERFLOW | INEXACT)
    assert ref.multiply(0x03FF, 0x4000, no_subnormals, Rounding(mode)) == (0, 0)  # it decodes as zero


def test_tininess_decides_underflow_and_flush_just_below_the_smallest_normal():
    # 2^-14 - 2^-26 is the tie between 2^-14 - 2^-25 and 2^-14 at unbounded exponent: it goes up, so it is not
    # tiny after rounding. Delivered, both give 2^-14. A little less is tiny by both rules.
    tie = Fraction(1, 2**14) - Fraction(1, 2**26)
    less = tie - Fraction(1, 2**40)
    before, after = Rounding(tininess="before"), Rounding(tininess="after")
    assert ref.round_value(ref.Value.of(tie), binary16, after) == (0x0400, INEXACT)
    assert ref.round_value(ref.Value.of(tie), binary16, before) == (0x0400, INEXACT | UNDERFLOW)
    assert ref.round_value(ref.Value.of(less), binary16, after) == (0x0400, INEXACT | UNDERFLOW)
    flush_after, flush_before = Rounding(subnormals="flush"), Rounding(subnormals="flush", tininess="before")
    assert ref.round_value(ref.Value.of(tie), binary16, flush_after) == (0x0400, INEXACT)
    assert ref.round_value(ref.Value.of(tie), binary16, flush_before) == (0, INEXACT | UNDERFLOW)
    assert ref.round_value(ref.Value.of(less), binary16, flush_after) == (0, INEXACT | UNDERFLOW)


@pytest.mark.parametrize("mode", MODES)
def test_flush_never_leaves_a_subnormal(mode):
    rng = random.Random(mode)
    for _ in range(300):
        magnitude = Fraction(1, 2**14) - Fraction(rng.getrandbits(rng.randint(1, 40)), 2**64)
        value = ref.Value.of(magnitude * rng.choice((1, -1)))
        bits, flags = ref.round_value(value, binary16, Rounding(mode, "flush"), rng.getrandbits(32))
        assert bits & 0x7FFF in (0, 0x0400)
        assert not flags & SUBNORMAL


def test_inputs_zero_reads_subnormals_as_zeros_of_their_sign_and_raises_nothing():
    rule = Rounding(inputs="zero")
    assert ref.add(0x8001, 0x8000, binary16, rule) == (0x8000, 0)
    assert ref.multiply(0x03FF, 0x7C00, binary16, rule) == (0x7E00, INVALID)
    assert ref.divide(0x3C00, 0x8001, binary16, rule) == (0xFC00, DIVIDE_BY_ZERO)
    assert ref.subtract(0x0401, 0x0400, binary16, rule) == (0x0001, SUBNORMAL)
    assert ref.equal(0x0001, 0x8001, binary16, rule) == (1, 0)
    assert ref.sqrt(0x8001, binary16, rule) == (0x8000, 0)
    assert ref.convert(f32(1e-40), binary32, bfloat16, rule) == (0, 0)
    assert ref.convert(f64(5e-324), binary64, binary16, Rounding("toward_positive", inputs="zero")) == (0, 0)


def test_subnormal_flag_says_what_was_delivered():
    assert ref.convert(0x0001, binary16, binary16) == (0x0001, SUBNORMAL)
    assert ref.convert(0x0400, binary16, binary16) == (0x0400, 0)
    assert ref.multiply(0x0401, 0x3BFF, binary16).flags & SUBNORMAL == 0  # rounds to 2^-14
    assert ref.multiply(0x0001, 0x3800, binary16) == (0, UNDERFLOW | INEXACT)


# Bugs that other programs had.


@pytest.mark.parametrize(
    ("report", "source", "bits", "target", "expected"),
    [
        ("numpy#12721", binary32, 0x33000001, binary16, 0x0001),
        ("numpy#22704", binary32, 0x34200000, binary16, 0x0002),
        ("numpy#22704", binary32, 0x34200001, binary16, 0x0003),
        ("numpy#22704", binary32, 0x34600000, binary16, 0x0004),
        ("numpy#22704", binary32, 0x40001000, binary16, 0x4000),
        ("half-rs#151", binary64, f64(1 + 2**-11 + 2**-22), binary16, 0x3C01),
        ("twice rounded", binary64, f64(1 + 2**-11 + 2**-40), binary16, 0x3C01),
        ("float16#952", binary64, f64(2**-25) + 1, binary16, 0x0001),
        ("iree#20163, h5py#819", binary32, f32(0.49990), binary16, 0x3800),
        ("ml_dtypes#401", binary64, f64(1 + 2**-8 + 2**-40), bfloat16, bfloat16.encode(1.0078125)),
        ("ml_dtypes#401", binary64, f64(-431.99999999999994), e4m3, e4m3.encode(-416.0)),
        ("QPyTorch#48", binary32, f32(3.0), Format("8/23", 8, 24), 0x40400000),
        ("QPyTorch#23: ties to even", binary32, f32(1 + 2**-11), binary16, 0x3C00),
        ("pychop: overflow wraps", binary32, f32(65536.0), binary16, 0x7C00),
        ("pychop: overflow wraps", binary32, f32(131071.0), binary16, 0x7C00),
        ("minus zero lost", binary32, 0x80000000, binary16, 0x8000),
        ("minus zero lost", binary32, 0x80000001, binary16, 0x8000),
        ("numpy keeps 0x7c01", binary32, 0x7F800001, binary16, 0x7E00),
    ],
)
def test_conversions_that_others_got_wrong(report, source, bits, target, expected):
    assert ref.convert(bits, source, target).bits == expected, report


def test_hipdnn_11325_nan_stays_nan_and_subnormals_stay():
    for low in (1, 0x1FFF, 0x2000, 0x3FFFFF, 0x400000, 0x7FFFFF):
        for sign in (0, 1 << 31):
            assert ref.convert(sign | 0x7F800000 | low, binary32, binary16).bits == 0x7E00
    for code in (1, 2, 0x155, 0x3FF):
        assert ref.convert(f32(code * 2.0**-24), binary32, binary16) == (code, SUBNORMAL)
