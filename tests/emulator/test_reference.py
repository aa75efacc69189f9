"""The operations of the reference against SoftFloat and MPFR, bits and flags; then what neither knows."""

from __future__ import annotations

import math
import random
import time
from fractions import Fraction
from functools import cache

import gmpy2
import pytest
from fp16sim_oracles import edges, mpfr, softfloat
from fp16sim_oracles.comparison import FORMATS, RULES, difference, f64
from hypothesis import given, settings, strategies as st

from fp16sim.emulator import reference as ref
from fp16sim.emulator.flags import DIVIDE_BY_ZERO, INEXACT, INVALID, OVERFLOW, SUBNORMAL, UNDERFLOW
from fp16sim.emulator.formats import Format, bfloat16, binary16, binary32, e5m2
from fp16sim.emulator.rounding import Rounding
from fp16sim.testing.strategies import encodings

SAMPLED = settings(derandomize=True, database=None, deadline=None, max_examples=150)


# The checker itself.


def test_the_comparison_notices_a_wrong_bit_and_a_wrong_flag():
    right = ref.add(0x3C00, 0x1000, binary16)
    theirs = softfloat.compute("add", "binary16", 0x3C00, 0x1000)
    assert difference(right, theirs, softfloat.FLAGS) is None
    assert "bits" in difference((right.bits ^ 1, right.flags), theirs, softfloat.FLAGS)
    for flag in (OVERFLOW, UNDERFLOW, INVALID, DIVIDE_BY_ZERO, INEXACT):
        assert "flags" in difference((right.bits, right.flags ^ flag), theirs, softfloat.FLAGS)


AWAY, BEFORE = Rounding("nearest_away"), Rounding(tininess="before")


@pytest.mark.parametrize(
    ("operation", "planted"),
    # Only products come so close below 2^emin that the tininess rules part, and no quotient or root is a tie.
    [("add", AWAY), ("multiply", AWAY), ("multiply", BEFORE), ("fma", AWAY), ("fma", BEFORE)]
    + [(operation, Rounding("toward_zero")) for operation in ("divide", "sqrt")],
)
def test_the_sample_finds_a_wrong_rule(operation, planted):
    found = 0
    for bits in sample(operation, "binary16", 1500):
        ours = ref.OPERATIONS[operation](*bits, binary16, planted)
        theirs = softfloat.compute(operation, "binary16", *bits)
        found += difference(ours, theirs, softfloat.FLAGS) is not None
    assert found


# SoftFloat.


@cache
def sample(operation: str, fmt: str, count: int) -> list[tuple[int, ...]]:
    rng = random.Random(f"{operation} {fmt}")
    arity = ref.ARITY[operation]
    cases = [edges.operands(rng, fmt, arity) for _ in range(count)]
    if arity == 1:
        cases += [(bits,) for bits in edges.edges(fmt)]
    elif arity == 2 and count >= 300:
        some = edges.edges(fmt)[:: 2 if fmt == "binary16" else 5]
        cases += [(a, b) for a in some for b in some]
    return cases


def against_softfloat(operation: str, fmt: str, cases) -> int:
    compared = 0
    gives_numbers = operation not in ("equal", "less", "less_equal")
    for bits in cases:
        for (mode, tininess), rule in RULES.items():
            ours = ref.OPERATIONS[operation](*bits, FORMATS[fmt], rule)
            theirs = softfloat.compute(operation, fmt, *bits, mode=mode, tininess=tininess)
            wrong = difference(ours, theirs, softfloat.FLAGS)
            assert wrong is None, f"{operation}{tuple(map(hex, bits))} {fmt} {mode} {tininess}: {wrong}"
            magnitude = ours.bits % FORMATS[fmt].sign_bit
            subnormal = gives_numbers and 0 < magnitude < 2 ** FORMATS[fmt].fraction_bits
            assert subnormal == bool(ours.flags & SUBNORMAL)
            compared += 1
    return compared


@pytest.mark.parametrize("fmt", ["binary16", "binary32"])
@pytest.mark.parametrize("operation", softfloat.OPERATIONS)
def test_softfloat(operation, fmt):
    against_softfloat(operation, fmt, sample(operation, fmt, 300))


@pytest.mark.slow
@pytest.mark.parametrize("fmt", ["binary16", "binary32"])
@pytest.mark.parametrize("operation", softfloat.OPERATIONS)
def test_softfloat_many(operation, fmt):
    start = time.process_time()
    compared = against_softfloat(operation, fmt, sample(operation, fmt, 10_000))
    print(
        f"{operation} {fmt}: {compared} results equal SoftFloat's, {time.process_time() - start:.0f} s of CPU"
    )


@SAMPLED
@given(
    st.sampled_from(sorted(softfloat.OPERATIONS)),
    st.lists(encodings("binary16", payloads=True), min_size=3, max_size=3),
    st.sampled_from(sorted(RULES)),
)
def test_softfloat_shrinking(operation, bits, rule):
    bits = bits[: softfloat.OPERATIONS[operation]]
    ours = ref.OPERATIONS[operation](*bits, binary16, RULES[rule])
    theirs = softfloat.compute(operation, "binary16", *bits, mode=rule[0], tininess=rule[1])
    assert difference(ours, theirs, softfloat.FLAGS) is None


# MPFR: the formats that SoftFloat lacks.


@pytest.mark.parametrize("fmt", ["binary16", "bfloat16", "tf32", "binary32", "e5m2"])
def test_mpfr(fmt):
    for operation, arity in mpfr.OPERATIONS.items():
        rng = random.Random(f"{operation} {fmt}")
        cases = [edges.operands(rng, fmt, arity) for _ in range(100 * arity)]
        for bits in cases:
            values = [FORMATS[fmt].decode(b) for b in bits]
            if any(map(math.isnan, values)) or (operation == "rsqrt" and values[0] == 0):
                continue  # MPFR's 1/sqrt(-0) is +inf
            for mode in mpfr.MODES:
                ours = ref.OPERATIONS[operation](*bits, FORMATS[fmt], Rounding(mode))
                theirs = mpfr.compute(operation, *bits, mode=mode, fmt=fmt)
                wrong = difference(ours, theirs, mpfr.FLAGS)
                assert wrong is None, f"{operation}{tuple(map(hex, bits))} {fmt} {mode}: {wrong}"


# What has no oracle: definitions, held one by one.


def test_to_odd_is_toward_zero_with_the_last_bit_set_where_inexact():
    for operation in ("add", "multiply", "divide", "fma", "sqrt", "rsqrt"):
        for bits in sample(operation, "binary16", 150):
            toward_zero = ref.OPERATIONS[operation](*bits, binary16, Rounding("toward_zero"))
            to_odd = ref.OPERATIONS[operation](*bits, binary16, Rounding("to_odd"))
            expected = toward_zero.bits | (1 if toward_zero.flags & INEXACT else 0)
            assert (to_odd.bits, to_odd.flags & ~SUBNORMAL) == (expected, toward_zero.flags & ~SUBNORMAL), (
                bits
            )


@pytest.mark.parametrize("operation", ["sqrt", "rsqrt"])
def test_stochastic_threshold_of_roots(operation):
    rule = Rounding("stochastic")
    checked = 0
    with gmpy2.context(precision=300):
        for (bits,) in sample(operation, "binary16", 300):
            x = binary16.decode(bits)
            if not 0 < x < math.inf:
                continue
            root = gmpy2.sqrt(x) if operation == "sqrt" else gmpy2.rec_sqrt(gmpy2.mpfr(x))
            down = ref.OPERATIONS[operation](bits, binary16, Rounding("toward_zero"))
            low, high = binary16.decode(down.bits), binary16.decode(down.bits + 1)
            threshold = int(gmpy2.floor((root - low) / (high - low) * 2**32))
            if down.flags & INEXACT:
                assert 0 <= threshold < 2**32
                f = ref.OPERATIONS[operation]
                assert f(bits, binary16, rule, threshold).bits == down.bits
                assert f(bits, binary16, rule, max(threshold, 1) - 1).bits == down.bits + (threshold > 0)
                checked += 1
    assert checked > 120


def test_a_root_just_above_a_representable_number_is_not_taken_for_it():
    # No operand of 11 bits comes so close; the definition must not depend on that.
    almost_four = ref.Value.of(ref._root(Fraction(4) + Fraction(1, 2**200), 11))
    assert ref.round_value(almost_four, binary16, Rounding("toward_positive")) == (0x4001, INEXACT)
    assert ref.round_value(almost_four, binary16, Rounding("stochastic"), 0) == (0x4000, INEXACT)


def test_ldexp_equals_softfloat_rounding_of_the_exact_double():
    rng = random.Random("ldexp")
    for _ in range(300):
        bits, n = edges.encoding(rng, "binary16"), rng.choice((rng.randint(-50, 50), rng.randint(-900, 900)))
        x = binary16.decode(bits)
        wide = f64(math.ldexp(x, n)) if math.isfinite(x) else f64(x)  # exact: 11 bits, |exponent| below 1000
        for (mode, tininess), rule in RULES.items():
            ours = ref.ldexp(bits, n, binary16, rule)
            theirs = softfloat.convert(wide, "binary64", "binary16", mode, tininess)
            if not math.isnan(x):
                assert difference(ours, theirs, softfloat.FLAGS) is None, (hex(bits), n, mode)
    assert ref.ldexp(0x3C00, 10**18, binary16) == (0x7C00, OVERFLOW | INEXACT)
    assert ref.ldexp(0xBC00, -(10**18), binary16, Rounding("toward_negative")).bits == 0x8001
    for fmt in (binary16, binary32, e5m2):
        for n in (10**18, -(10**18), 2**fmt.exponent_bits + fmt.precision + 34):
            for bits in (
                1,
                fmt.max_bits,
            ):  # as far as it goes, whatever the operand: the limit changes nothing
                value = ref.Value.of(Fraction(fmt.decode(bits)) * Fraction(2) ** max(-2000, min(n, 2000)))
                for rule in (Rounding("stochastic"), Rounding("toward_positive"), Rounding("to_odd")):
                    assert ref.ldexp(bits, n, fmt, rule, 0) == ref.round_value(value, fmt, rule, 0)
    assert ref.ldexp(0x7C01, 3, binary16) == (0x7E00, INVALID)


def test_logb():
    for bits in range(0, 0x10000, 5):
        x = binary16.decode(bits)
        if math.isfinite(x) and x:
            assert binary16.decode(ref.logb(bits, binary16).bits) == math.frexp(x)[1] - 1
    for bits in (0x0000, 0x8000):
        assert ref.logb(bits, binary16) == (0xFC00, DIVIDE_BY_ZERO)
    assert ref.logb(0xFC00, binary16) == (0x7C00, 0)
    assert ref.logb(0x0001, e5m2) == (e5m2.encode(-16.0), 0)
    assert ref.logb(0x0001, bfloat16) == (bfloat16.encode(-133.0), 0)
    assert ref.logb(0x0001, binary32) == (binary32.encode(-149.0), 0)
    assert ref.logb(e5m2.encode(2.0**-13), e5m2, Rounding("toward_positive")) == (e5m2.encode(-12.0), INEXACT)


def test_rsqrt_of_the_ends():
    assert ref.rsqrt(0x0000, binary16) == (0x7C00, DIVIDE_BY_ZERO)
    assert ref.rsqrt(0x8000, binary16) == (0xFC00, DIVIDE_BY_ZERO)
    assert ref.rsqrt(0x7C00, binary16) == (0x0000, 0)
    assert ref.rsqrt(0xBC00, binary16) == (0x7E00, INVALID)


def test_rint_in_the_modes_of_its_own_and_beyond_the_largest_value():
    assert ref.rint(0x4100, binary16, Rounding("to_odd")) == (0x4200, INEXACT)
    assert ref.rint(0x4080, binary16, Rounding("stochastic"), 2**30 - 1) == (0x4200, INEXACT)  # 2.25 to 3
    assert ref.rint(0x4080, binary16, Rounding("stochastic"), 2**30) == (0x4000, INEXACT)
    small = Format("below two", exponent_bits=3, precision=3, emax=0)
    assert small.max_finite == 1.75
    assert ref.rint(small.max_bits, small) == (small.inf_bits, OVERFLOW | INEXACT)


def test_operations_that_others_got_wrong():
    assert ref.fma(0x520B, 0x00E9, 0x2FF6, binary16).bits == 0x3001  # 0x3000 through float32
    assert ref.nextafter(0x7C00, 0x0000, binary16).bits == 0x7BFF  # numpy#15977: NaN
    # apytypes#406: (s=1, e=1, m=1023) times (s=1, e=26, m=80) toward +inf is (e=13, m=80), not m=79.
    a, b = 1 << 15 | 1 << 10 | 1023, 1 << 15 | 26 << 10 | 80
    assert ref.multiply(a, b, binary16, Rounding("toward_positive")).bits == 13 << 10 | 80
    # pytorch#63482: 3388 / 524288 is .0065, not 0, though the divisor is beyond binary16.
    quotient = ref.round_value(ref.Value.of(Fraction(3388, 524288)), binary16)
    assert binary16.decode(quotient.bits) == 3388 / 524288


def test_every_operation_is_listed_with_its_arity():
    assert set(ref.ARITY) == set(ref.OPERATIONS)
    for name, function in ref.OPERATIONS.items():
        assert getattr(ref, name) is function
        assert function.__code__.co_argcount == ref.ARITY[name] + 3  # fmt, rounding, random_bits
