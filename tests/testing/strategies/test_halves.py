"""half() and encodings(): every edge in one of twenty draws, simple failing numbers, options that are held."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from fp16sim_draws import draws, rare, shares, smallest

from fp16sim.emulator.formats import Format, bfloat16, binary16, binary32, binary64, e4m3, e5m2, tf32
from fp16sim.testing.strategies import encodings, half
from fp16sim.testing.strategies.halves import limits_of
from fp16sim.testing.strategies.tables import classes, table


def bits(x: np.float16) -> int:
    return int(x.view(np.uint16))


def magnitude(x: np.float16) -> int:
    return bits(x) & 0x7FFF


POWERS = {1 << n for n in range(10)} | set(range(0x400, 0x7C00, 0x400))
EDGES = {
    "0.0": lambda x: bits(x) == 0,
    "-0.0": lambda x: bits(x) == 0x8000,
    "smallest subnormal": lambda x: magnitude(x) == 1,
    "another subnormal": lambda x: 1 < magnitude(x) < 0x400,
    "smallest normal": lambda x: magnitude(x) == 0x400,
    "power of two": lambda x: magnitude(x) in POWERS,
    "beside a power of two": lambda x: {magnitude(x) - 1, magnitude(x) + 1} & POWERS,
    "largest": lambda x: magnitude(x) == 0x7BFF,
    "infinity": lambda x: magnitude(x) == 0x7C00,
    "NaN": lambda x: np.isnan(x),
    "small number of few digits": lambda x: 0.25 <= abs(x) <= 16 and float(x) * 4 % 1 == 0,
    "negative": lambda x: x < 0,
    "positive": lambda x: x > 0,
}


def test_each_edge_is_drawn_in_one_of_twenty() -> None:
    drawn = draws(half())
    assert len(drawn) == 2000
    assert all(type(x) is np.float16 for x in drawn)
    assert rare(shares(drawn, EDGES)) == {}
    assert len({bits(x) for x in drawn}) > 500


def test_a_class_that_is_never_drawn_is_seen() -> None:
    found = rare(shares(draws(half(allow_infinity=False), 500), EDGES))
    assert found == {"infinity": 0.0}


def test_every_encoding_can_be_drawn() -> None:
    every = table(binary16, limits_of(binary16, payloads=True))
    assert np.unique(every.blocks).size == 2**16
    canonical = table(binary16, limits_of(binary16)).blocks
    assert np.unique(canonical[np.isnan(canonical.view(np.float16))]).tolist() == [0x7E00]
    assert np.unique(canonical).size == 2 * 0x7C01 + 1


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (lambda x: True, 0.0),
        (lambda x: 0 < abs(x) < 2.0**-14, 2.0**-24),
        (lambda x: -(2.0**-14) < x < 0, -(2.0**-24)),
        (lambda x: x != 0, 1.0),
        (lambda x: x < 0, -1.0),
        (lambda x: x < -3, -4.0),
        (lambda x: x > 1.7, 2.0),
        (lambda x: x > 1000, 1001.0),
        (lambda x: x > 60000, 60032.0),
        (lambda x: abs(x) >= 65504, 65504.0),
        (lambda x: np.isinf(x), math.inf),
        (lambda x: x == -math.inf, -math.inf),
        (lambda x: x == 0 and np.signbit(x), -0.0),
        (lambda x: np.isfinite(x) and x != np.floor(x), 0.5),
        (lambda x: x != 0 and float(x) ** 2 < 2.0**-25, 2.0**-14),
        (lambda x: abs(abs(float(x)) - 2.0**-14) <= 2.0**-24, 2.0**-14),
        (lambda x: np.isfinite(x) and float(x) ** 2 >= 65520, 256.0),
    ],
)
def test_a_failing_number_is_what_a_human_would_write(condition, expected) -> None:
    assert bits(smallest(half(), condition)) == bits(np.float16(expected))


def test_a_failing_nan_is_the_canonical_one() -> None:
    assert bits(smallest(half(), np.isnan)) == 0x7E00
    assert bits(smallest(half(payloads=True), lambda x: np.isnan(x) and bits(x) != 0x7E00)) == 0x7C01


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({"allow_nan": False}, lambda x: not np.isnan(x)),
        ({"allow_infinity": False}, lambda x: not np.isinf(x)),
        ({"allow_subnormal": False}, lambda x: magnitude(x) == 0 or magnitude(x) >= 0x400),
        ({"min_value": 0.0}, lambda x: x >= 0 and not np.signbit(x)),
        ({"min_value": -0.0}, lambda x: x >= 0),
        ({"max_value": -0.0}, lambda x: x <= 0 and np.signbit(x)),
        ({"min_value": -3.3, "max_value": 1.7}, lambda x: -3.3 <= x <= 1.7),
        ({"min_value": 1000, "max_value": 1e9}, lambda x: 1000 <= x < math.inf),
        ({"max_value": -1e5}, lambda x: x == -math.inf),
        ({"min_value": 2.0**-24, "max_value": 2.0**-24}, lambda x: magnitude(x) == 1),
    ],
    ids=lambda part: str(part) if isinstance(part, dict) else "",
)
def test_only_what_is_allowed_is_drawn(options, allowed) -> None:
    drawn = draws(half(**options), 500)
    assert [x for x in drawn if not allowed(x)] == []


def test_bounds_are_edges() -> None:
    drawn = draws(half(-3.3, 1.7))
    assert min(drawn) == np.float16(-3.299)  # the next is below -3.3
    assert max(drawn) == np.float16(1.699)
    at_the_bounds = {"lowest": lambda x: x == min(drawn), "highest": lambda x: x == max(drawn)}
    assert rare(shares(drawn, at_the_bounds)) == {}


def test_a_range_shrinks_to_its_simplest_number() -> None:
    assert smallest(half(1.3, 9), lambda x: True) == 2
    assert smallest(half(-7, -2.5), lambda x: True) == -3
    assert smallest(half(0.3, 0.4), lambda x: True) == 0.375


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"min_value": 2, "max_value": 1},
            ValueError,
            "min_value=2 and max_value=1 leave no number of binary16",
        ),
        (
            {"min_value": 1.0001, "max_value": 1.0002},
            ValueError,
            "leave no number of binary16; give wider bounds",
        ),
        (
            {"min_value": 1e-6, "max_value": 2e-6, "allow_subnormal": False},
            ValueError,
            "or allow_subnormal=True",
        ),
        ({"min_value": math.nan}, ValueError, "min_value=nan: nothing compares with NaN"),
        ({"max_value": "1"}, TypeError, "max_value='1': a bound is a number"),
        ({"allow_nan": 1}, TypeError, "allow_nan=1: it is allowed or not"),
        ({"allow_subnormal": None}, TypeError, "allow_subnormal=None: it is allowed or not"),
        ({"min_value": 0, "allow_nan": True}, ValueError, "NaN is within no bounds; leave one of them out"),
        (
            {"min_value": 0, "max_value": 1, "allow_infinity": True},
            ValueError,
            "no infinity of binary16 lies from 0",
        ),
    ],
)
def test_impossible_options_are_refused_before_a_draw(options, error, message) -> None:
    with pytest.raises(error, match=message):
        half(**options)


SLOW = [pytest.param(fmt, marks=pytest.mark.slow) for fmt in (binary16, tf32, binary32, e5m2)]


@pytest.mark.parametrize("fmt", [bfloat16, binary64, e4m3, *SLOW], ids=lambda fmt: fmt.name)
def test_each_class_of_a_format_is_drawn_in_one_of_twenty(fmt: Format) -> None:
    drawn = draws(encodings(fmt))
    assert all(type(code) is int and 0 <= code < 2**fmt.width for code in drawn)
    members = {name: set(codes.tolist()) for name, codes in classes(fmt).items() if codes.size}
    if fmt.width > 16:  # the table has few of many subnormal numbers, and draws of any do not use it
        members["subnormal"] = range(1, 1 << fmt.fraction_bits)
        members["any"] = range(fmt.max_bits + 1)
    belongs = {name: lambda code, m=m: code % fmt.sign_bit in m for name, m in members.items()}
    assert rare(shares(drawn, belongs)) == {}


def test_encodings_of_formats_without_infinities_or_subnormals() -> None:
    assert np.unique(table(e4m3, limits_of(e4m3, payloads=True)).blocks).size == 256
    assert 0x7F in draws(encodings(e4m3), 500)
    assert not any(code & 0x7F == 0x7F for code in draws(encodings(e4m3, allow_nan=False), 500))
    flushed = Format("flushed", exponent_bits=4, precision=4, subnormals=False)
    assert all(code & 0x7F == 0 or code & 0x7F >= 8 for code in draws(encodings(flushed), 500))
    with pytest.raises(ValueError, match="no infinity of e4m3"):
        encodings(e4m3, allow_infinity=True)


@pytest.mark.parametrize("fmt", [tf32, binary32, binary64], ids=lambda fmt: fmt.name)
def test_encodings_of_wide_formats_obey_bounds_and_shrink(fmt: Format) -> None:
    def values(codes: list[int]) -> npt.NDArray[np.float64]:
        return fmt.decode(np.array(codes, fmt.uint))

    drawn = values(draws(encodings(fmt, min_value=-2.0, max_value=1.0), 300))
    assert ((drawn >= -2) & (drawn <= 1)).all()
    assert (~np.isin(drawn, (-2, 0, 1))).sum() > 100
    normal = values(draws(encodings(fmt, allow_subnormal=False), 300))
    assert not ((normal != 0) & (abs(normal) < fmt.min_normal)).any()
    assert 3 < fmt.decode(smallest(encodings(fmt), lambda code: fmt.decode(code) > 3)) <= 4
    assert smallest(encodings(fmt), lambda code: 0 < abs(fmt.decode(code)) < fmt.min_normal) == 1
    nans = {code for code in draws(encodings(fmt, payloads=True), 500) if math.isnan(fmt.decode(code))}
    assert len(nans) > 5
