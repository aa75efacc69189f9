"""The numba kernels equal the definition: bits, flags and counts, for every operation, mode, rule and format."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fp16sim.emulator.backends import is_fast
from fp16sim.emulator.backends.base import Backend, Outcome
from fp16sim.emulator.backends.cpu import CpuBackend
from fp16sim.emulator.datapath import DATAPATHS
from fp16sim.emulator.formats import Format, bfloat16, binary16, binary32, binary64, e4m3, e5m2, tf32
from fp16sim.emulator.kernels import integer
from fp16sim.emulator.kernels.operations import OPERATIONS
from fp16sim.emulator.one_argument import FUNCTIONS
from fp16sim.emulator.random_bits import key_of
from fp16sim.emulator.rounding import MODES, Rounding

REFERENCE, CPU = Backend(), CpuBackend()
FORMATS = (
    binary16,
    bfloat16,
    tf32,
    binary32,
    e4m3,
    e5m2,
    Format("small_emax", 4, 6, emax=5),
    Format("no_subnormals", 3, 5, subnormals=False),
    Format("no_infinity", 5, 4, infinities=False),
    Format("two_bits", 2, 2),
    Format("all_ones_nan", 4, 4, nan="all_ones"),
)
RULES = (
    {},
    {"tininess": "before"},
    {"subnormals": "flush"},
    {"subnormals": "flush", "tininess": "before", "saturate": True},
    {"inputs": "zero", "saturate": True},
)
ARITY = {"fma": 3, "sqrt": 1, "rint": 1, "logb": 1}
SIZE = 40


def encodings(rng: np.random.Generator, fmt: Format, size: int) -> np.ndarray:
    """Draw encodings: any, near the edges, around one (cancellation), subnormal; with either sign."""
    mask = fmt.sign_bit - 1
    one = fmt.bias << fmt.fraction_bits
    edges = [0, 1, fmt.max_bits, fmt.max_bits - 1, fmt.nan_bits, fmt.inf_bits or 0, one, one + 1, one - 1]
    edges += [
        1 << fmt.fraction_bits,
        (1 << fmt.fraction_bits) - 1,
        fmt.nan_bits ^ 3 << max(fmt.precision - 3, 0),
    ]
    strata = [
        rng.integers(0, fmt.sign_bit, size),
        rng.choice(np.array(edges) & mask, size),
        np.clip(one + rng.integers(-3 << fmt.fraction_bits, 3 << fmt.fraction_bits, size), 0, mask),
        rng.integers(0, 2 << fmt.fraction_bits, size),
    ]
    sign = rng.integers(0, 2, size) << (fmt.width - 1)
    return (np.choose(rng.integers(0, 4, size), strata) | sign).astype(fmt.uint)


def small(bits: np.ndarray, fmt: Format) -> np.ndarray:
    """Clip to [-4, 4], NaN to 0."""
    values = bits.view(np.float64) if fmt == binary64 else fmt.decode(bits)
    values = np.nan_to_num(np.clip(values, -4, 4))
    return values.view(np.uint64) if fmt == binary64 else fmt.encode(values).astype(fmt.uint)


def draws_for(rng: np.random.Generator, mode: str, size: int) -> np.ndarray | None:
    return rng.integers(0, 2**32, size, dtype=np.uint32) if mode == "stochastic" else None


def differences(expected: Outcome, *others: Outcome) -> int:
    """Count the elements whose bits or (where both have them) flags differ."""
    wrong = np.zeros(expected.bits.shape, bool)
    for other in others:
        wrong |= expected.bits != other.bits
        if expected.flags is not None and other.flags is not None:
            wrong |= expected.flags != other.flags
    return int(wrong.sum())


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("mode", MODES)
def test_operations_equal_the_reference(fmt: Format, mode: str) -> None:
    rng = np.random.Generator(np.random.PCG64([MODES.index(mode), FORMATS.index(fmt)]))
    for options in RULES:
        rule = Rounding(mode, **options)
        for operation in OPERATIONS:
            operands = [encodings(rng, fmt, SIZE) for _ in range(ARITY.get(operation, 2))]
            if operation == "ldexp":
                operands[1] = rng.integers(-40, 40, SIZE)
            draws = draws_for(rng, mode, SIZE)
            expected = REFERENCE.elementwise(operation, operands, fmt, rule, draws, "flags")
            flagged = CPU.elementwise(operation, operands, fmt, rule, draws, "flags")
            plain = CPU.elementwise(operation, operands, fmt, rule, draws)
            assert differences(expected, flagged, plain) == 0, (operation, rule)
            assert np.array_equal(expected.counts, flagged.counts), (operation, rule)


@pytest.mark.parametrize("operation", ["add", "subtract", "multiply", "divide", "sqrt"])
def test_operations_of_binary64_equal_the_reference(operation: str) -> None:
    rng = np.random.Generator(np.random.PCG64(64))
    operands = [encodings(rng, binary64, 400) for _ in range(ARITY.get(operation, 2))]
    for rule in (Rounding(), Rounding("toward_zero")):
        expected = REFERENCE.elementwise(operation, operands, binary64, rule, None, "flags")
        flagged = CPU.elementwise(operation, operands, binary64, rule, None, "flags")
        assert differences(expected, flagged, CPU.elementwise(operation, operands, binary64, rule)) == 0
        assert np.array_equal(expected.counts, flagged.counts)


def test_conversions_to_binary64_are_exact() -> None:
    rng = np.random.Generator(np.random.PCG64(65))
    for source in (binary16, bfloat16, binary32):
        bits = encodings(rng, source, 200)
        got = CPU.convert(bits, source, binary64, Rounding()).bits
        assert got.dtype == np.uint64
        assert np.array_equal(got.view(np.float64), source.decode(bits), equal_nan=True)
        assert (
            differences(
                REFERENCE.convert(bits, source, binary64, Rounding(), None, "flags"),
                CPU.convert(bits, source, binary64, Rounding(), None, "flags"),
            )
            == 0
        )


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("mode", MODES)
def test_conversions_equal_the_reference(fmt: Format, mode: str) -> None:
    rng = np.random.Generator(np.random.PCG64([MODES.index(mode), FORMATS.index(fmt), 1]))
    low, high = fmt.emin - fmt.precision - 3, fmt.emax + 3
    for options in RULES:
        rule = Rounding(mode, **options)
        values = np.ldexp(rng.random(SIZE) - 0.5, rng.integers(low, high, SIZE))
        ends = fmt.decode(encodings(rng, fmt, SIZE // 2))
        values[::2] = np.where(np.isfinite(ends), ends, 0.0)
        values[::4] *= 1 + np.ldexp(1.0, -rng.integers(1, 53, SIZE // 4))  # just off a value or a tie
        sources = [(binary64, values.view(np.uint64))]
        sources += [(source, encodings(rng, source, SIZE)) for source in (binary32, binary16, e5m2)]
        for source, bits in sources:
            draws = draws_for(rng, mode, SIZE)
            expected = REFERENCE.convert(bits, source, fmt, rule, draws, "flags")
            flagged = CPU.convert(bits, source, fmt, rule, draws, "flags")
            plain = CPU.convert(bits, source, fmt, rule, draws)
            assert differences(expected, flagged, plain) == 0, (source.name, rule)
            if mode == "stochastic":
                key = key_of(7, 3)
                expected = REFERENCE.convert(bits, source, fmt, rule, key)
                assert differences(expected, CPU.convert(bits, source, fmt, rule, key)) == 0, source.name
                assert differences(expected, CPU.convert(bits, source, fmt, rule, key, "counts")) == 0
        whole = np.concatenate([rng.integers(-(2**63), 2**63 - 1, 8), rng.integers(-70000, 70000, 8)])
        whole = np.concatenate([whole, [0, -(2**63), 2**63 - 1, 2**62, 2**62 + 1, 2**62 + 3]])
        draws = draws_for(rng, mode, whole.size)
        for integers in (whole, (whole.astype(np.uint64) << np.uint64(1)) | np.uint64(1)):
            expected = REFERENCE.convert_integers(integers, fmt, rule, draws, "flags")
            assert differences(expected, CPU.convert_integers(integers, fmt, rule, draws, "flags")) == 0, rule


def test_the_comparison_notices_a_wrong_bit_and_a_wrong_flag() -> None:
    bits = np.array([0x3C00, 0x7BFF], np.uint16)
    good = CPU.elementwise("add", (bits, bits), binary16, Rounding(), None, "flags")
    assert good.flags is not None
    assert differences(good, good) == 0
    assert differences(good, good._replace(bits=good.bits ^ np.uint16(1))) == 2
    assert differences(good, good._replace(flags=good.flags ^ np.array([0, 4], np.uint8))) == 1


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_functions_equal_their_definition_and_count_the_same(name: str) -> None:
    rng = np.random.Generator(np.random.PCG64(sorted(FUNCTIONS).index(name)))
    bits = encodings(rng, binary16, 12)
    for rule in (Rounding(), Rounding("toward_positive"), Rounding("stochastic")):
        draws = draws_for(rng, rule.mode, bits.size)
        expected = REFERENCE.function(name, bits, rule, draws, "flags")
        flagged = CPU.function(name, bits, rule, draws, "flags")
        assert differences(expected, flagged, CPU.function(name, bits, rule, draws)) == 0, rule
        assert np.array_equal(expected.counts, flagged.counts)


@pytest.mark.parametrize("shape", [(0, 3, 2), (2, 0, 3), (1, 1, 1), (3, 17, 5), (2, 40, 9)])
@pytest.mark.parametrize("fmt, path, out_format", [
    (binary16, "float32", binary16),
    (binary16, "float32", binary32),
    (binary16, "float16", binary16),
    (binary16, "float16", binary32),
    (binary32, "float32", binary32),
    (binary32, "float32", binary16),
    (binary16, "float16_fma", binary16),
    (binary64, "float64", binary64),
    (bfloat16, "float32:fused", binary32),
    (binary16, "pairwise", binary16),
    (binary16, "exact", binary16),
])  # fmt: skip
def test_dot_products_and_sums_equal_the_reference(
    shape: tuple[int, int, int], fmt: Format, path: str, out_format: Format
) -> None:
    m, k, n = shape
    datapath = DATAPATHS[path]
    rng = np.random.Generator(np.random.PCG64([m, k, n]))
    for finite in (True, False):
        a, b = (
            encodings(rng, fmt, size).reshape(size_shape)
            for size, size_shape in ((m * k, (1, m, k)), (k * n, (1, k, n)))
        )
        c = encodings(rng, datapath.start_format, m * n).reshape(1, m, n)
        if finite:  # small values, or infinities and NaN would win everywhere
            a, b = (small(x, fmt) for x in (a, b))
            c = np.zeros_like(c)
        expected = REFERENCE.matmul(a, b, c, fmt, datapath, out_format, "counts")
        counted = CPU.matmul(a, b, c, fmt, datapath, out_format, "counts")
        assert differences(expected, counted, CPU.matmul(a, b, c, fmt, datapath, out_format)) == 0
        assert np.array_equal(expected.counts, counted.counts)
        for cube in (a.reshape(m, k, 1), a.reshape(1, k, m)):
            for method in ("sum", "cumulative_sum", "sum_of_squares"):
                expected = getattr(REFERENCE, method)(cube, fmt, datapath, out_format, "counts")
                counted = getattr(CPU, method)(cube, fmt, datapath, out_format, "counts")
                plain = getattr(CPU, method)(cube, fmt, datapath, out_format)
                assert differences(expected, counted, plain) == 0, method
                assert np.array_equal(expected.counts, counted.counts), method


def test_kernels_know_the_modes_by_their_places() -> None:
    for place, mode in enumerate(MODES):
        assert getattr(integer, mode.upper()) == place


def test_formats_and_datapaths_are_found_by_value_and_told_apart_under_one_name() -> None:
    path = DATAPATHS["float16"]
    for this, equal, other in (
        (binary16, Format("binary16", 5, 11), Format("binary16", 4, 5)),
        (path, replace(path), replace(path, order="pairwise")),
    ):
        assert {this: 1}[equal] == 1  # type: ignore[index]
        assert hash(this) == hash(equal)
        assert other not in {this: 1}


def test_which_datapaths_have_a_kernel_of_their_own():
    for datapath in ("float16", "float32", "v100", "a100", "h100"):
        assert is_fast(datapath, "binary16")
    for datapath, operands in (
        ("exact", "binary16"),
        ("a100", "bfloat16"),
        ("h100", bfloat16),
        ("a100", tf32),
    ):
        assert not is_fast(DATAPATHS[datapath], operands)
    assert is_fast("float64", binary64)
    with pytest.raises(TypeError, match="it takes binary16 or bfloat16"):
        is_fast("h100", "binary32")
