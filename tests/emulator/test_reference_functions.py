from __future__ import annotations

import time

import gmpy2
import numpy as np
import pytest
from fp16sim_oracles import mpfr, mpfr_functions

from fp16sim.emulator import reference_functions, tables
from fp16sim.emulator.formats import Format, as_format, binary16, binary32, e4m3
from fp16sim.emulator.reference_functions import NAMES, evaluate
from fp16sim.emulator.rounding import MODES, Rounding

EDGES = (
    0,
    1,
    2,
    0x3FF,
    0x400,
    0x3800,
    0x3C00,
    0x3C01,
    0x4000,
    0x4900,
    0x4CC0,
    0x5640,
    0x7BFF,
    0x7C00,
    0x7C01,
    0x7E01,
)
RULES = tuple(
    Rounding(mode, subnormals, inputs, saturate, tininess)
    for mode in MODES
    for subnormals in ("gradual", "flush")
    for inputs in ("keep", "zero")
    for saturate in (False, True)
    for tininess in ("after", "before")
)


def differences(name: str, count: int) -> list[str]:
    """Compare the table with the definition: edges and ``count`` random arguments, each with a random rule."""
    rng = np.random.default_rng([16, *name.encode()])
    both = [e | s for e in EDGES for s in (0, 0x8000)]
    found = []
    for bits in [*both, *rng.integers(0, 65536, count).tolist()]:
        rounding, draw = RULES[rng.integers(len(RULES))], int(rng.integers(2**32))
        want = evaluate(name, bits, binary16, rounding, draw)
        if rounding.mode == "stochastic":
            results, flags = tables.draw(name, rounding, np.uint16([bits]), np.uint32([draw]))
            got = (int(results[0]), int(flags[0]))
        else:
            got = (int(tables.rounded(name, rounding)[bits]), int(tables.flags(name, rounding)[bits]))
        if got != want:
            found.append(f"{name}({bits:#06x}), {rounding}, bits {draw}: table {got}, definition {want}")
    return found


def test_every_table_has_a_definition() -> None:
    assert set(NAMES) == {*tables.FUNCTIONS, "rint"}


@pytest.mark.parametrize("name", tables.FUNCTIONS)
def test_tables_equal_the_definition_on_samples(name: str) -> None:
    assert differences(name, 8) == []


@pytest.mark.slow
def test_tables_equal_the_definition() -> None:
    start = time.perf_counter()
    count = 500
    for name in tables.FUNCTIONS:
        assert differences(name, count) == []
    print(
        f"definition and table: {len(tables.FUNCTIONS)} functions, {count + 2 * len(EDGES)} arguments each, "
        f"{len(RULES)} rules at random, 0 differences, {time.perf_counter() - start:.0f} s"
    )


def test_an_enclosure_that_misses_by_a_little_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = reference_functions._ENCLOSE["sigmoid"]
    monkeypatch.setitem(
        reference_functions._ENCLOSE, "sigmoid", lambda x, bits: right(x, bits) * (1 + 2**-10)
    )
    assert differences("sigmoid", 20)


def encodings(fmt: Format, count: int) -> list[int]:
    """Give encodings that are not NaN: around 1, zeros, ends, and random ones."""
    rng = np.random.default_rng(fmt.width)
    one = fmt.encode(1.0)
    ends = [0, 1, fmt.max_bits, fmt.inf_bits or 0, one, one + 1, one - 1, fmt.encode(2.0), fmt.encode(8.0)]
    chosen = [e | s for e in ends for s in (0, fmt.sign_bit)]
    chosen += rng.integers(0, 2**fmt.width, count).tolist()
    near_one = (
        one + rng.integers(-6, 6, count) * 2**fmt.fraction_bits + rng.integers(0, 2**fmt.fraction_bits, count)
    )
    chosen += near_one.tolist()
    return [int(b) for b in chosen if (int(b) & (fmt.sign_bit - 1)) <= (fmt.inf_bits or fmt.max_bits)]


@pytest.mark.parametrize("name", [n for n in mpfr_functions.NATIVE if n not in ("square", "rsqrt")])
@pytest.mark.parametrize("format_name", ["bfloat16", "e5m2", "tf32", "binary32"])
def test_other_formats_against_mpfr(format_name: str, name: str) -> None:
    fmt = as_format(format_name)
    modes = list(mpfr.MODES)
    for i, bits in enumerate(encodings(fmt, 3)):
        mode = modes[i % 4]
        context = mpfr.context(format_name, mode)
        result = mpfr_functions.NATIVE[name](context, gmpy2.mpfr(mpfr.decode(bits, format_name), 53))
        want = mpfr._finish(result, context, format_name)
        got = evaluate(name, bits, fmt, Rounding(mode))
        assert (got.bits, got.flags & mpfr.FLAGS) == want, (hex(bits), mode)


def test_huge_and_tiny_arguments_of_binary32_need_no_time() -> None:
    largest, smallest = binary32.max_bits, 1
    for name in NAMES:
        for bits in (largest, smallest, largest | binary32.sign_bit, smallest | binary32.sign_bit):
            evaluate(name, bits, binary32, Rounding("to_odd"))
    assert evaluate("exp", largest, binary32).flags == 33
    assert evaluate("sin", smallest, binary32, Rounding("toward_zero")).bits == 0


def test_a_format_without_infinity_overflows_to_nan_or_saturates() -> None:
    eight = e4m3.encode(8.0)
    assert evaluate("exp", eight, e4m3) == (e4m3.nan_bits, 33)
    assert evaluate("exp", eight, e4m3, Rounding(saturate=True)) == (e4m3.max_bits, 33)


def test_flags_and_thresholds_at_a_known_value() -> None:
    # exp(2^-10) is 1 + 2^-10 + 2^-21 + ...: just above the next value after 1, with a fraction of 2^-11 + ...
    bits = int(binary16.encode(2.0**-10))
    threshold = int(tables.entries("exp").fraction[bits])
    assert threshold >> 20 == 2**1
    for draw, result in ((threshold - 1, 0x3C02), (threshold, 0x3C01)):
        assert evaluate("exp", bits, binary16, Rounding("stochastic"), draw) == (result, 32)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown function 'sigmoit': did you mean 'sigmoid'"):
        evaluate("sigmoit", 0, binary16)


def test_a_stochastic_draw_is_asked_for() -> None:
    with pytest.raises(ValueError, match="random_bits=None"):
        evaluate("exp", 0x1F79, binary16, Rounding("stochastic"))
