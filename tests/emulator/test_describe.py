import dataclasses
import json
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import gmpy2
import ml_dtypes
import numpy as np
import pytest

import fp16sim as fs
from fp16sim.emulator.describe import ZONES, Description, describe
from fp16sim.emulator.formats import Format, bfloat16, binary16, binary32, e4m3, e5m2, tf32

EVERY_FORMAT = (binary16, bfloat16, tf32, binary32, e4m3, e5m2, Format("e3m4", exponent_bits=3, precision=5))


def same(a: float, b: float) -> bool:
    return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


def encoding(description: Description) -> int:
    return int(description.bits.replace(" | ", ""), 2)


@pytest.mark.parametrize("fmt", [binary16, e4m3, e5m2, EVERY_FORMAT[-1]], ids=lambda fmt: fmt.name)
def test_a_value_of_the_format_is_stored_as_itself_between_its_neighbours(fmt: Format) -> None:
    every = np.arange(2**fmt.width)
    values = fmt.decode(every)
    ordered = np.unique(values[~np.isnan(values)])
    step = 1 if fmt.width == 8 else 61
    edges = [
        0,
        1,
        2,
        1023,
        1024,
        1025,
        fmt.max_bits,
        fmt.max_bits + 1,
        fmt.sign_bit,
        fmt.sign_bit | fmt.max_bits,
    ]
    for bits in sorted({*every[::step].tolist(), *(bit for bit in edges if bit < 2**fmt.width)}):
        seen = describe(values[bits], fmt)
        assert same(seen.stored, values[bits])
        if math.isnan(seen.stored):
            assert encoding(seen) == fmt.nan_bits
            assert seen.zone == "nan"
            continue
        assert encoding(seen) == bits
        assert seen.error == 0
        place = int(np.searchsorted(ordered, seen.stored))
        below = ordered[place - 1] if place else math.nan
        above = ordered[place + 1] if place + 1 < ordered.size else math.nan
        assert math.isnan(below) if math.isnan(seen.below) else seen.below == below
        assert math.isnan(above) if math.isnan(seen.above) else seen.above == above
        if math.isfinite(seen.stored) and math.isfinite(seen.above) and seen.stored >= 0:
            assert seen.ulp == seen.above - seen.stored


def stratified(fmt: Format) -> list[float]:
    """Values of the format, ties between them, and numbers a hair on either side of a tie."""
    bits = np.concatenate([np.arange(9), np.arange(fmt.max_bits - 4, fmt.max_bits)])
    bits = np.concatenate([bits, np.linspace(0, fmt.max_bits - 1, 300).astype(np.int64)])
    low, high = fmt.decode(bits), fmt.decode(bits + 1)
    middle = low + (high - low) / 2
    edge = fmt.max_finite * (1 + 2.0**-fmt.precision)
    numbers = np.concatenate(
        [low, middle, np.nextafter(middle, 0), np.nextafter(middle, np.inf), [edge, 2 * edge]]
    )
    return [float(sign * number) for number in np.unique(numbers) for sign in (1, -1)]


@pytest.mark.parametrize("fmt", [binary16, binary32], ids=lambda fmt: fmt.name)
def test_the_stored_value_is_mpfr_s(fmt: Format) -> None:
    for number in stratified(fmt):
        with gmpy2.context(gmpy2.ieee(fmt.width)):
            assert same(describe(number, fmt).stored, float(gmpy2.mpfr(number))), number


@pytest.mark.parametrize(
    ("fmt", "dtype"),
    [(bfloat16, ml_dtypes.bfloat16), (e4m3, ml_dtypes.float8_e4m3fn), (e5m2, ml_dtypes.float8_e5m2)],
)
def test_the_stored_value_is_that_of_ml_dtypes_from_float32(fmt: Format, dtype: type) -> None:
    with np.errstate(over="ignore"):
        for number in np.float32(stratified(fmt)):
            assert same(describe(number, fmt).stored, float(dtype(number))), number


@pytest.mark.parametrize("fmt", EVERY_FORMAT, ids=lambda fmt: fmt.name)
def test_the_stored_value_is_that_of_round_to(fmt: Format) -> None:
    numbers = [*stratified(fmt), 0.0, -0.0, math.inf, -math.inf, math.nan]
    fast = fs.round_to(np.array(numbers), fmt)
    assert all(
        same(describe(number, fmt).stored, float(got)) for number, got in zip(numbers, fast, strict=True)
    )


def test_a_wrong_rounding_would_be_noticed() -> None:
    numbers = stratified(binary16)
    with np.errstate(over="ignore"):
        twice = [float(np.float16(np.float32(number))) for number in numbers]
    assert any(not same(describe(number).stored, wrong) for number, wrong in zip(numbers, twice, strict=True))


@pytest.mark.parametrize(
    ("number", "zone", "stored"),
    [
        (1.0, "normal", 1.0),
        (2.0**-14, "normal", 2.0**-14),
        (Fraction(2047, 2) * Fraction(1, 2**24), "normal", 2.0**-14),
        (1023 * 2.0**-24, "subnormal", 1023 * 2.0**-24),
        (2.0**-24, "subnormal", 2.0**-24),
        (math.nextafter(2.0**-25, 1), "subnormal", 2.0**-24),
        (2.0**-25, "flushed", 0.0),
        (-1e-300, "flushed", -0.0),
        (0, "zero", 0.0),
        (-0.0, "zero", -0.0),
        (65519.99, "normal", 65504.0),
        (Fraction(65520) - Fraction(1, 10**30), "normal", 65504.0),
        (65520, "overflow", math.inf),
        (Decimal("1e308"), "overflow", math.inf),
        (Decimal("-Infinity"), "infinity", -math.inf),
        (Decimal("NaN"), "nan", math.nan),
        (-1e300, "overflow", -math.inf),
        (math.inf, "infinity", math.inf),
        (-math.inf, "infinity", -math.inf),
        (math.nan, "nan", math.nan),
    ],
)
def test_zones_of_binary16(number: float | Fraction, zone: str, stored: float) -> None:
    seen = describe(number)
    assert seen.zone == zone
    assert same(seen.stored, stored)
    assert zone in ZONES


def test_a_format_without_infinity_overflows_to_nan() -> None:
    for number in (465.0, math.inf):
        seen = describe(number, "e4m3")
        assert seen.zone == "overflow"
        assert math.isnan(seen.stored)
        assert math.isnan(seen.below)
    assert describe(464.0, "e4m3").stored == 448.0
    assert math.isnan(describe(448.0, "e4m3").above)


def test_a_format_without_subnormals_flushes_what_is_tiny_after_rounding() -> None:
    fmt = Format("flushing", exponent_bits=5, precision=11, subnormals=False)
    tie = Fraction(fmt.min_normal) * (1 - Fraction(1, 2**12))
    assert describe(tie, fmt).stored == fmt.min_normal
    below = describe(tie - Fraction(1, 2**80), fmt)
    assert (below.zone, below.stored, below.ulp) == ("flushed", 0.0, fmt.min_normal)
    assert describe(fmt.min_normal, fmt).below == 0.0
    assert describe(0.0, fmt).above == fmt.min_normal


def test_scaling_saves_a_number_that_is_flushed() -> None:
    seen = describe(2e-8, scale=1024)
    assert (seen.zone, seen.stored) == ("flushed", 0.0)
    assert seen.scaled is not None
    assert seen.scaled.zone == "subnormal"
    assert seen.recovered == float(np.float16(2e-8 * 1024)) / 1024
    expected = abs(Fraction(seen.recovered) - Fraction(2e-8)) / Fraction(2e-8)
    assert seen.recovered_error == float(expected)
    assert "2.0023435354232788e-08" in str(seen)


def test_scaling_can_also_overflow_and_need_not_be_a_power_of_two() -> None:
    seen = describe(100.0, scale=1024)
    assert seen.scaled is not None
    assert (seen.scaled.zone, seen.recovered, seen.recovered_error) == ("overflow", math.inf, math.inf)
    third = describe(1, scale=Fraction(1, 3))
    assert third.scaled is not None
    assert third.scaled.stored == float(np.float16(1 / 3))
    assert third.recovered == 3 * third.scaled.stored


def test_what_float64_cannot_hold_after_unscaling_is_infinite() -> None:
    seen = describe(1e308, scale=1e-307)
    assert seen.scaled is not None
    assert (seen.zone, seen.scaled.zone, seen.recovered) == ("overflow", "normal", 1e308)
    assert describe(1.0, "binary16", Fraction(1, 2**1060)).recovered == 0.0


def test_without_a_scale_nothing_is_scaled() -> None:
    seen = describe(0.1)
    assert seen.scaled is None
    assert seen.recovered == seen.stored == float(np.float16(0.1))
    assert "times" not in str(seen)


@pytest.mark.parametrize(
    "number",
    [
        np.float16(1.5),
        np.float32(1.5),
        np.array([1.5]),
        ml_dtypes.bfloat16(1.5),
        ml_dtypes.float8_e4m3fn(1.5),
        Fraction(3, 2),
        Decimal("1.5"),
    ],
)
def test_every_kind_of_number_is_taken(number: object) -> None:
    assert describe(number) == describe(1.5)


@pytest.mark.parametrize("fmt", EVERY_FORMAT, ids=lambda fmt: fmt.name)
def test_json_and_html_hold_the_same_in_every_format(fmt: Format) -> None:
    for number in (2e-8, 0.0, 1e30, math.nan, -math.inf):
        seen = describe(number, fmt, scale=1024)
        fields = json.loads(seen.to_json(), parse_constant=lambda word: pytest.fail(word))
        assert set(fields) == {field.name for field in dataclasses.fields(seen)}
        assert fields["scaled"]["bits"] == seen.scaled.bits
        assert same(float(fields["stored"]), seen.stored)
        assert seen.bits in seen._repr_html_()
        assert len(seen.bits.replace(" | ", "")) == fmt.width


def test_markup_in_a_format_name_is_escaped() -> None:
    fmt = Format("<b>", exponent_bits=5, precision=11)
    assert "<b>" not in describe(1.0, fmt)._repr_html_()
    assert "&lt;b&gt;" in describe(1.0, fmt)._repr_html_()


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ((1j,), TypeError, "one real number"),
        ((Decimal("1e400"),), ValueError, "beyond float64"),
        (("two",), ValueError, "x: 'two' is not a number; write one such as 2e-8"),
        ((1.0, "binary16", "0"), ValueError, "power of two"),
        (([1.0],), TypeError, "one real number"),
        ((np.ones(2),), TypeError, "single element"),
        ((10**400,), ValueError, "beyond float64"),
        ((Decimal("1e-999999999"),), ValueError, "exponent within 1000"),
        ((1.0, "binry16"), ValueError, "did you mean 'binary16'"),
        ((1.0, "binary16", 0), ValueError, "power of two"),
        ((1.0, "binary16", -2.0), ValueError, "positive and finite"),
        ((1.0, "binary16", math.inf), ValueError, "positive and finite"),
        ((1e300, "binary16", 1e300), ValueError, "beyond float64"),
    ],
)
def test_misuse_is_refused_in_one_line(arguments: tuple, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says) as caught:
        describe(*arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text, number", [
    ("2e-8", Decimal("2e-8")), ("2^-25", 2.0**-25), ("1/3", Fraction(1, 3)), ("-0x1p-24", -(2.0**-24)),
])  # fmt: skip
def test_numbers_may_be_text_as_on_the_command_line(text: str, number: Any) -> None:
    assert describe(text, scale="1024") == describe(number, scale=1024)


def test_a_description_is_shown_as_its_text() -> None:
    assert repr(describe(2e-8)) == str(describe(2e-8))
    assert repr(describe(2e-8)).startswith("2e-08 in binary16\n  bits")
