"""The public operations as NumPy's users expect them: shapes, dtypes, out=, odd arrays, and clear refusals."""

from __future__ import annotations

import inspect
import re

import ml_dtypes
import numpy as np
import pytest

import fp16sim as fs
from fp16sim.emulator import arithmetic, functions
from fp16sim.emulator.rounding import MODES

HALVES = np.arange(65536, dtype=np.uint16).view(np.float16)
TWO = ("add", "subtract", "multiply", "divide", "ieee_remainder", "minimum", "maximum", "nextafter")
ONE = (*functions.__all__, "rint", "logb")


def bits(x: np.ndarray) -> np.ndarray:
    return np.asarray(x).view(np.uint16)


@pytest.mark.parametrize("name", TWO)
def test_two_argument_operations_broadcast_and_take_any_layout(name: str) -> None:
    operation = getattr(fs, name)
    a, b = HALVES[::97].copy(), HALVES[5::97][: HALVES[::97].size].copy()
    b = np.resize(b, a.shape)
    expected = bits(operation(a, b))
    grid = operation(a[:50, np.newaxis], b[np.newaxis, :60])
    assert grid.shape == (50, 60)
    assert np.array_equal(bits(np.diagonal(grid)), expected[:50])
    strided = np.repeat(a, 2)[::2]
    assert np.array_equal(bits(operation(strided, b)), expected)
    assert np.array_equal(bits(operation(a[::-1], b[::-1]))[::-1], expected)
    swapped = a.astype(">f2")
    finite = ~np.isnan(a)  # byte swapping is NumPy's, which may touch NaN payloads
    assert np.array_equal(bits(operation(swapped, b))[finite], expected[finite])
    assert operation(a[:0], b[:0]).shape == (0,)
    assert operation(a[:0, np.newaxis], b[np.newaxis, :3]).shape == (0, 3)
    scalar = operation(a[7], b[7])
    assert isinstance(scalar, np.float16)
    assert bits(scalar) == expected[7]
    assert isinstance(operation(np.array(a[7]), np.array(b[7])), np.float16)


@pytest.mark.parametrize("name", ONE)
def test_one_argument_operations_take_any_layout(name: str) -> None:
    operation = getattr(fs, name)
    expected = bits(operation(HALVES))
    assert np.array_equal(bits(operation(HALVES.reshape(256, 256).T)).T.reshape(-1), expected)
    assert np.array_equal(bits(operation(HALVES[::-3]))[::-1], expected[::-1][::3][::-1])
    assert operation(HALVES[:0]).shape == (0,)
    assert isinstance(operation(HALVES[5]), np.float16)
    assert isinstance(operation(1), np.float16)
    assert operation([1, 2]).dtype == np.float16


def test_out_takes_the_result_and_may_be_an_operand() -> None:
    a = HALVES[1000:1010].copy()
    expected = bits(fs.add(a, a))
    out = np.empty_like(a)
    assert fs.add(a, a, out=out) is out
    assert np.array_equal(bits(out), expected)
    assert fs.add(a, a, out=a) is a
    assert np.array_equal(bits(a), expected)
    spread = np.zeros(20, np.float16)[::2]
    fs.exp(HALVES[:10], out=spread)
    assert np.array_equal(bits(spread.copy()), bits(fs.exp(HALVES[:10])))
    swapped = np.zeros(3, ">f2")
    fs.round_to([1.0, 2.0, 3.0], out=swapped)
    assert swapped.tolist() == [1, 2, 3]


@pytest.mark.parametrize("out, message", [
    (np.empty(2, np.float16), "out has float16 and shape (2,), the result float16 and (3,)"),
    (np.empty(3, np.float32), "out has float32 and shape (3,)"),
    ([0, 0, 0], "out=list: pass an array of float16 with shape (3,)"),
])  # fmt: skip
def test_out_that_does_not_fit_is_refused(out: object, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        fs.add(np.ones(3, np.float16), 1.0, out=out)


def test_read_only_out_is_refused() -> None:
    out = np.empty(1, np.float16)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only"):
        fs.add(np.ones(1, np.float16), 1.0, out=out)


def test_formats_and_dtypes_of_results() -> None:
    assert fs.add(1.0, 2.0).dtype == np.float16
    assert fs.add(np.float32(1), 2.0).dtype == np.float32
    for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        x = np.ones(3, dtype)
        assert fs.add(x, 1.0).dtype == dtype
        assert fs.round_to([1.0], dtype).dtype == dtype
    carried = fs.round_to(np.float32([0.1, 0.2]), "tf32")
    total = fs.add(carried, carried, format="tf32")
    assert total.dtype == np.float32
    assert np.array_equal(total, 2 * carried)
    own = fs.Format("e3m4", 3, 5)
    assert fs.multiply(fs.round_to(1.1, own), fs.round_to(1.1, own), format=own) == np.float32(1.25)


def test_python_numbers_follow_the_format_and_alone_are_binary16() -> None:
    assert fs.add(np.float16(1), 2**-11 + 2**-22) == np.float16(1)  # 2^-11 + 2^-22 rounds to 2^-11 first
    assert fs.add(0.1, 0.2) == fs.add(np.float16(0.1), np.float16(0.2))
    assert fs.add([1, 2], [3, 4]).tolist() == [4, 6]
    assert fs.add(True, 1) == 2
    assert fs.round_to(10**18, "binary32") == np.float32(10**18)


def test_integers_round_once() -> None:
    n = 2**60 + 2**36 + 1  # through float64 the last bit is lost, and the tie goes to even
    assert float(fs.round_to(n, "binary32")) == 2.0**60 + 2.0**37
    assert float(fs.round_to(np.uint64(2**64 - 1), "binary32")) == 2.0**64
    assert float(fs.round_to(np.int64(-(2**63)), "bfloat16")) == -(2.0**63)
    assert fs.round_to(np.int8([-5, 7])).tolist() == [-5, 7]
    assert np.isinf(fs.round_to(65520))


@pytest.mark.parametrize("call, error, message", [
    (lambda: fs.round_to(1.0, "binary61"), ValueError, "unknown format 'binary61': did you mean 'binary16'?"),
    (lambda: fs.round_to(1.0, rounding="nearest"), ValueError, "unknown rounding 'nearest': did you mean"),
    (lambda: fs.round_to(1.0, rounding="up"), ValueError, "unknown rounding 'up': use one of 'nearest_even'"),
    (lambda: fs.add(1.0, 2.0, subnormals="flsh"), ValueError, "unknown subnormals 'flsh': did you mean 'flush'?"),
    (lambda: fs.add(1.0, 2.0, inputs="drop"), ValueError, "unknown inputs 'drop': use one of 'keep', 'zero'"),
    (lambda: fs.add(1.0, 2.0, tininess="befor"), ValueError, "unknown tininess 'befor': did you mean 'before'?"),
    (lambda: fs.add(1.0, 2.0, roundng="to_odd"), TypeError, "unknown option 'roundng': did you mean 'rounding'?"),
    (lambda: fs.round_to(1j), TypeError, "complex128 array: fp16sim rounds real numbers"),
    (lambda: fs.round_to(np.array([None])), TypeError, "object array: fp16sim takes float16, bfloat16"),
    (lambda: fs.round_to("1.0"), TypeError, "array: fp16sim takes float16, bfloat16"),
    (lambda: fs.round_to(10**30), TypeError, "integers have up to 64 bits; pass float("),
    (lambda: fs.add(np.float64(1), np.float64(1)), TypeError, "float64 array: an operation takes"),
    (lambda: fs.add(np.ones(2, np.int64), 1.0), TypeError, "int64 array: an operation takes"),
    (lambda: fs.add(np.float16(1), np.float32(1)), TypeError, "binary16 and binary32: the operands"),
    (lambda: fs.add(HALVES[:2], HALVES[:3]), ValueError, "shapes (2,) and (3,) do not broadcast"),
    (lambda: fs.less(HALVES[:2], HALVES[:3]), ValueError, "shapes (2,) and (3,) do not broadcast"),
    (lambda: fs.add(np.float32(0.1), 1.0, format="tf32"), ValueError, "a float32 carrier holds a value"),
    (lambda: fs.add(np.float16(1), 1.0, format="tf32"), TypeError, "float16 array in an operation of tf32"),
    (lambda: fs.ldexp(1.0, 1.5), TypeError, "n is float64: the exponent of a power of two is an integer"),
    (lambda: fs.exp(np.float32(1)), TypeError, "binary32 argument: exp is tabulated for binary16"),
    (lambda: fs.gelu(1.0, approximate="tan"), ValueError, "unknown approximate 'tan': did you mean 'tanh'?"),
    (lambda: fs.to_integer(1.0, "float32"), TypeError, "dtype='float32': choose an integer type"),
    (lambda: fs.to_integer(1.0, rounding="to_odd"), ValueError, "unknown rounding 'to_odd'"),
    (lambda: fs.exp(1.0, format="bfloat16"), TypeError,
     "format='bfloat16': exp is tabulated for binary16 only and takes no format; convert with"),
    (lambda: fs.add(1.0, 1.0, xyz=1), TypeError, "'seed', 'call'"),
    (lambda: fs.round_to(None), TypeError, "None is no number: pass a number, a list of numbers or an array"),
    (lambda: fs.ad, AttributeError, "fp16sim has no 'ad': did you mean 'add'?"),
    (lambda: fs.bf16, AttributeError, "fp16sim has no 'bf16': did you mean 'bfloat16'?"),
    (lambda: fs.fp16, AttributeError, "fp16sim has no 'fp16': did you mean 'binary16'?"),
    (lambda: fs.fp8, AttributeError, "fp16sim has no 'fp8': did you mean 'e4m3' or 'e5m2'?"),
    (lambda: fs.foo, AttributeError, "fp16sim has no 'foo': dir(fp16sim) lists the names"),
])  # fmt: skip
def test_errors_say_the_value_the_rule_and_the_remedy(call, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(np.dtype(np.longdouble).itemsize == 8, reason="longdouble is float64 here")
def test_longdouble_is_refused_since_it_would_round_twice() -> None:
    with pytest.raises(TypeError, match=r"x.astype\(float\) rounds it once before"):
        fs.round_to(np.longdouble(1))


def test_denormals_are_zero_keeps_the_sign_and_raises_nothing() -> None:
    tiny = np.array([0x0001, 0x83FF, 0x0400], np.uint16).view(np.float16)
    with fs.count_events() as events:
        kept = fs.round_to(tiny, inputs="zero")
        sums = fs.add(tiny, np.float16(0), inputs="zero")
    assert kept.view(np.uint16).tolist() == [0x0000, 0x8000, 0x0400]
    assert sums.tolist() == [0, 0, 2**-14]
    assert (events.underflow, events.subnormal, events.inexact) == (0, 0, 0)


def test_flush_replaces_exact_subnormals_too_and_says_so() -> None:
    with fs.count_events() as events:
        result = fs.multiply(np.float16(-(2.0**-10)), np.float16(2.0**-10), subnormals="flush")
    assert bits(result) == 0x8000
    assert (events.underflow, events.inexact, events.subnormal) == (1, 1, 0)
    assert bits(fs.add(2.0**-20, 2.0**-20, subnormals=False)) == 0


def test_tininess_decides_what_is_flushed() -> None:
    # 2^-14 - 2^-26: with 11 bits and any exponent it rounds up to 2^-14, which is not tiny.
    x = 2.0**-14 - 2.0**-26
    assert fs.round_to(x, subnormals="flush") == 2.0**-14
    assert fs.round_to(x, subnormals="flush", tininess="before") == 0


def test_every_mode_at_the_overflow_edge() -> None:
    expected = {
        "nearest_even": np.inf, "nearest_away": np.inf, "toward_zero": 65504, "toward_positive": np.inf,
        "toward_negative": 65504, "to_odd": 65504, "stochastic": np.inf,
    }  # fmt: skip
    for mode in MODES:
        for dtype in (np.float32, np.float64):
            assert fs.round_to(dtype(1e6), rounding=mode, seed=0) == expected[mode], mode
            assert fs.round_to(dtype(-1e6), rounding=mode, seed=0, saturate=True) == -65504
    assert fs.round_to([464.0, 464.01, 1e9], "e4m3").astype(float).tolist()[0] == 448
    assert np.isnan(fs.round_to([464.01, np.inf], "e4m3").astype(float)).all()
    assert fs.round_to([464.01, -np.inf], "e4m3", saturate=True).astype(float).tolist() == [448, -448]


def test_nan_is_canonical_from_every_route() -> None:
    nans32 = np.array([0x7F800001, 0xFFC12345, 0x7FFFFFFF], np.uint32).view(np.float32)
    nans64 = np.array([0x7FF0000000000001, 0xFFF8000000000123], np.uint64).view(np.float64)
    nans16 = np.array([0x7C01, 0xFE00, 0x7FFF], np.uint16).view(np.float16)
    for mode in MODES:
        for x in (nans32, nans64, nans16):
            assert set(bits(fs.round_to(x, rounding=mode, seed=0)).tolist()) == {0x7E00}
    for name in TWO:
        assert set(bits(getattr(fs, name)(nans16, np.float16(1))).tolist()) == {0x7E00}
    for name in ONE:
        assert set(bits(getattr(fs, name)(nans16)).tolist()) == {0x7E00}
    assert set(fs.round_to(nans16, "binary32").view(np.uint32).tolist()) == {0x7FC00000}


def test_comparisons_are_those_of_the_values() -> None:
    a, b = HALVES[::31], HALVES[::-31][: HALVES[::31].size]
    for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
        assert np.array_equal(getattr(fs, name)(a, b), getattr(np, name)(a.astype(float), b.astype(float)))


def test_comparisons_raise_invalid_as_the_standard_says() -> None:
    quiet, signalling = (np.array([word], np.uint16).view(np.float16) for word in (0x7E00, 0x7C01))
    for compare, x, count in ((fs.equal, quiet, 0), (fs.equal, signalling, 1), (fs.less, quiet, 1)):
        with fs.count_events() as events:
            compare(x, np.float16(1))
        assert events.invalid == count


@pytest.mark.parametrize("mode, expected", [
    ("nearest_even", [2, -2, 4, 0, 127, -128, 0]),
    ("nearest_away", [3, -3, 4, 0, 127, -128, 0]),
    ("toward_zero", [2, -2, 3, 0, 127, -128, 0]),
    ("toward_positive", [3, -2, 4, 1, 127, -128, 0]),
    ("toward_negative", [2, -3, 3, 0, 127, -128, 0]),
])  # fmt: skip
def test_to_integer(mode: str, expected: list[int]) -> None:
    x = np.float16([2.5, -2.5, 3.75, 6e-8, 127.9 if mode != "toward_positive" else 127, -np.inf, np.nan])
    with fs.count_events() as events:
        assert fs.to_integer(x, "int8", rounding=mode).tolist() == expected
    assert events.invalid == (3 if "nearest" in mode else 2)
    assert fs.to_integer(2.0**64, "uint64") == 2**64 - 1
    assert fs.to_integer(2.0**63, "int64") == 2**63 - 1
    assert fs.to_integer(-1.0, "uint8") == 0


def test_public_functions_are_documented_with_an_example() -> None:
    for module in (arithmetic, functions):
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isfunction(thing):
                assert ">>> " in (thing.__doc__ or ""), name
