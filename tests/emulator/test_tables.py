from __future__ import annotations

import itertools
import subprocess
import sys
import time
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from fp16sim_oracles import mpfr_functions as oracle

from fp16sim.emulator import table_entries, tables
from fp16sim.emulator.exact import Value, power_of_two, round_value
from fp16sim.emulator.formats import binary16
from fp16sim.emulator.one_argument import FUNCTIONS
from fp16sim.emulator.rounding import MODES, Rounding
from fp16sim.emulator.table_digests import DIGESTS
from fp16sim.emulator.table_entries import Entries, entries

DETERMINISTIC = MODES[:6]
SAMPLED = 29


def differences(name: str, step: int, table: Entries | None = None) -> list[str]:
    """Compare entries, results and flags of a function with MPFR; give what differs, in words."""
    rows, bits = oracle.rows(name, step), oracle.encodings(step)
    found = []

    def compare(what: str, got: np.ndarray, want: np.ndarray) -> None:
        wrong = np.flatnonzero(got != want)
        if wrong.size:
            i = wrong[0]
            found.append(
                f"{name} {what}: {wrong.size} differ, first {bits[i]:#06x}: {got[i]}, MPFR {want[i]}"
            )

    mine = (table or entries(name))[bits]
    for field in ("lower", "fraction", "rest", "overflow", "flags"):
        compare(field, getattr(mine, field), rows[field])
    for tininess in ("after", "before"):
        want_flags = oracle.all_flags(rows, tininess)
        for mode, want in oracle.all_modes(rows).items():
            rounding = Rounding(mode, tininess=tininess)
            if table is None:
                got, got_flags = tables.rounded(name, rounding)[bits], tables.flags(name, rounding)[bits]
            else:
                got, got_flags = tables._round(mine, rounding)
            compare(f"{mode} result", got, want)
            compare(f"{mode} flags, tininess {tininess}", got_flags, want_flags[mode])
    return found


def test_the_oracle_has_every_function_and_mode() -> None:
    assert set(oracle.NAMES) == set(FUNCTIONS) == set(DIGESTS)
    assert set(oracle.all_modes(oracle.rows("logb", 4096))) == set(DETERMINISTIC)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_sampled_arguments_against_mpfr(name: str) -> None:
    assert differences(name, SAMPLED) == []


@pytest.mark.slow
def test_every_argument_against_mpfr() -> None:
    start = time.perf_counter()
    for name in FUNCTIONS:
        assert differences(name, 1) == []
    print(
        f"{len(FUNCTIONS)} functions, 65536 arguments, {len(DETERMINISTIC)} modes, flags with tininess after and "
        f"before, stochastic thresholds: 0 differences from MPFR, {time.perf_counter() - start:.0f} s"
    )


@pytest.mark.parametrize("field", ["lower", "fraction", "rest"])
def test_one_flipped_bit_is_caught(field: str) -> None:
    right = entries("tanh")
    array = getattr(right, field).copy()
    array[SAMPLED * 1000] ^= 1
    planted = replace(right, **{field: array})
    assert len(differences("tanh", SAMPLED, planted)) >= 1
    assert planted.digest() != right.digest()
    with pytest.raises(RuntimeError, match=r"the table of tanh has digest .* not IEEE 754's"):
        table_entries.check_digest("tanh", planted)


def test_a_value_too_close_to_call_is_an_error() -> None:
    doubtful = replace(FUNCTIONS["tanh"], error=2.0**-40)
    with pytest.raises(AssertionError, match=r"tanh of encoding 0x.* too close"):
        table_entries.make_entries(doubtful, "tanh")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_digests(name: str) -> None:
    made = table_entries.make_entries(FUNCTIONS[name], name)
    assert made.digest() == DIGESTS[name]


def exact_value(code: int, fraction: int, rest: int, overflow: bool) -> Fraction:
    """Give a value that an entry describes; of what is left beyond 33 bits, half a unit."""
    if overflow:
        return Fraction(70000)
    spacing = power_of_two(max(code >> 10, 1) - 25)
    units = 2 * fraction + (rest >> 1) + Fraction(rest & 1, 2)
    return Fraction(binary16.decode(code)) + units * spacing / 2**33


@pytest.mark.parametrize("tininess", ["after", "before"])
@pytest.mark.parametrize("mode", MODES)
def test_rounding_of_entries_is_the_definition(mode: str, tininess: str) -> None:
    """Every kind of entry: ends of the range, ties, fractions one unit off, whatever flush and saturation say."""
    quarter = 2**30
    lower, fraction, rest = (
        array.ravel()
        for array in np.meshgrid(
            np.uint16([0, 1, 0x3FE, 0x3FF, 0x400, 0x401, 0x3C00, 0x7BFE, 0x7BFF]),
            np.uint32([0, 1, *(n * quarter + d for n in (2, 3) for d in (-1, 0, 1)), 2**32 - 1]),
            np.uint8([0, 1, 2, 3]),
        )
    )
    overflow = np.zeros(lower.size, bool)
    overflow[-1] = True
    lower[-1], fraction[-1], rest[-1] = 0x7BFF, 0, 0
    entry = list(zip(lower.tolist(), fraction.tolist(), rest.tolist(), overflow.tolist(), strict=True))
    values = [exact_value(*e) for e in entry]
    none = np.zeros(lower.size, np.uint8)
    draws = (0, 1, quarter, 2**31, 2**32 - 1) if mode == "stochastic" else (None,)
    for sign, subnormals, saturate, draw in itertools.product(
        (0, 0x8000), ("gradual", "flush"), (False, True), draws
    ):
        table = Entries(lower | np.uint16(sign), fraction, rest, overflow, none)
        rounding = Rounding(mode, subnormals, "keep", saturate, tininess)
        bits = None if draw is None else np.full(lower.size, draw, np.uint32)
        results, raised = tables._round(table, rounding, bits)
        for e, value, result, flag in zip(entry, values, results.tolist(), raised.tolist(), strict=True):
            want = round_value(Value("finite", sign != 0, value), binary16, rounding, draw)
            assert (result, flag) == want, (e, rounding, draw)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_stochastic_thresholds_are_those_of_mpfr(name: str) -> None:
    rows, bits = oracle.rows(name, SAMPLED), oracle.encodings(SAMPLED)
    rounding = Rounding("stochastic")
    results = oracle.all_modes(rows)
    toward = results["toward_zero"]
    number = (toward & 0x7FFF) <= 0x7BFF
    away = np.where(toward & 0x8000, results["toward_negative"], results["toward_positive"])
    # Of negative zero results and overflows: MPFR's toward_zero stops at the largest, stochastic does not.
    away = np.where(rows["overflow"], (toward & 0x8000) | 0x7C00, away)
    at = rows["fraction"]
    below, _ = tables.draw(name, rounding, bits, np.maximum(at, 1) - np.uint32(1))
    above, _ = tables.draw(name, rounding, bits, at)
    chosen = number & (at > 0)
    assert (below[chosen] == away[chosen]).all()
    chosen = number & ~rows["overflow"]
    assert (above[chosen] == toward[chosen]).all()
    assert (below[rows["overflow"]] == away[rows["overflow"]]).all()
    # A threshold one too low is seen.
    assert not chosen.any() or name in ("square", "logb") or (below[chosen] != toward[chosen]).any()


@pytest.mark.parametrize("subnormals", ["gradual", "flush"])
@pytest.mark.parametrize("tininess", ["after", "before"])
def test_draws_are_the_rounding_of_entries(tininess: str, subnormals: str) -> None:
    """At and beside both thresholds: of rounding up, and (just below 2^-14) of doing so to a finer grid."""
    last_steps = 0
    for name in FUNCTIONS:
        near = np.flatnonzero(entries(name).lower & 0x7FFF == 0x3FF)
        last_steps += near.size
        bits = np.concatenate([near, np.arange(0, 65536, 257)]).astype(np.uint16)
        fraction = entries(name).fraction[bits].astype(np.int64)
        for at in (fraction, 2 * fraction - 2**32):
            for offset in (-1, 0, 1):
                random_bits = np.clip(at + offset, 0, 2**32 - 1).astype(np.uint32)
                for inputs in ("keep", "zero"):
                    rounding = Rounding("stochastic", subnormals, inputs, False, tininess)
                    got = tables.draw(name, rounding, bits, random_bits)
                    want = tables._round(
                        entries(name)[tables._operand(bits, rounding)], rounding, random_bits
                    )
                    assert (got[0] == want[0]).all(), name
                    assert (got[1] == want[1]).all(), name
    assert last_steps > 30


def test_known_values() -> None:
    nearest = Rounding()
    known = (("exp", 0x1F79, 0x3C07), ("log", 0x1D78, 0xC53B), ("sin", 0x5CB0, 0xBBFF))
    for name, argument, result in known:
        assert tables.rounded(name, nearest)[argument] == result


def test_nan_zeros_and_poles() -> None:
    nearest = Rounding()
    for name in FUNCTIONS:
        result, raised = tables.rounded(name, nearest), tables.flags(name, nearest)
        nans = np.r_[0x7C01:0x8000, 0xFC01:0x10000]
        assert (result[nans] == 0x7E00).all()
        assert (raised[nans] == np.where(nans & 0x200, 0, 8)).all()
    for name in (
        "sin",
        "tan",
        "tanh",
        "sinh",
        "atan",
        "erf",
        "expm1",
        "log1p",
        "cbrt",
        "gelu",
        "silu",
        "sqrt",
    ):
        assert tables.rounded(name, nearest)[[0, 0x8000]].tolist() == [0, 0x8000]
    poles = {
        "log": 0xFC00,
        "log2": 0xFC00,
        "log10": 0xFC00,
        "logb": 0xFC00,
        "reciprocal": 0xFC00,
        "rsqrt": 0xFC00,
    }
    for name, at_minus_zero in poles.items():
        assert tables.rounded(name, nearest)[0x8000] == at_minus_zero
        assert tables.flags(name, nearest)[0x8000] == 16
    assert (tables.rounded("log1p", nearest)[0xBC00], tables.flags("log1p", nearest)[0xBC00]) == (0xFC00, 16)
    # At the limits that they reach from below.
    for name in ("gelu", "gelu_tanh", "silu"):
        assert (tables.rounded(name, nearest)[0xFC00], tables.flags(name, nearest)[0xFC00]) == (0x8000, 0)
    # An infinite result that saturates overflows.
    saturating = Rounding(saturate=True)
    assert (tables.rounded("exp", saturating)[0x7C00], tables.flags("exp", saturating)[0x7C00]) == (
        0x7BFF,
        33,
    )
    assert (tables.rounded("log", saturating)[0], tables.flags("log", saturating)[0]) == (0xFBFF, 16 + 33)


def test_subnormal_arguments_are_read_as_zeros_where_asked() -> None:
    for name in FUNCTIONS:
        kept, zeroed = (tables.rounded(name, Rounding(inputs=inputs)) for inputs in ("keep", "zero"))
        assert (zeroed[1:0x400] == kept[0]).all()
        assert (zeroed[0x8001:0x8400] == kept[0x8000]).all()
        others = np.r_[0x400:0x8001, 0x8400:0x10000]
        assert (zeroed[others] == kept[others]).all()
    drawn, _ = tables.draw("rsqrt", Rounding("stochastic", inputs="zero"), np.uint16([5]), np.uint32([0]))
    assert drawn[0] == 0x7C00


def test_tables_are_kept_and_cannot_be_changed() -> None:
    rounding = Rounding("toward_zero")
    assert tables.rounded("exp", rounding) is tables.rounded("exp", Rounding("toward_zero"))
    assert entries("exp") is entries("exp")
    for array in (tables.rounded("exp", rounding), tables.flags("exp", rounding), entries("exp").lower):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_importing_makes_no_table_and_loads_no_numba() -> None:
    code = (
        "import sys; from fp16sim.emulator import tables, table_entries; "
        "assert table_entries.entries.cache_info().currsize == 0; assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_errors_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="unknown function 'sigmoit': did you mean 'sigmoid'"):
        tables.rounded("sigmoit", Rounding())
    with pytest.raises(ValueError, match=r"use draw\("):
        tables.rounded("tanh", Rounding("stochastic"))
    with pytest.raises(ValueError, match="draws nothing"):
        tables.draw("tanh", Rounding(), np.uint16([0]), np.uint32([0]))
