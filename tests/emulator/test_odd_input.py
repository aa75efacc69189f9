"""What careless or odd callers pass: subclasses, numbers beyond 64 bits, signalling NaNs, wrong kinds of options."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fp16sim as fs
from fp16sim.emulator import reductions
from fp16sim.emulator.formats import Format, binary64

HALVES = np.array([1, 2, 3, 4], np.float16)


class _Matrix(np.ndarray):
    """As np.matrix does (which warns of itself): two dimensions whatever it is reshaped to."""

    def reshape(self, *shape: Any, **options: Any) -> Any:
        return super().reshape(1, -1)


@pytest.mark.parametrize("operation", [
    lambda out: fs.add(HALVES.reshape(2, 2), 1.0, out=out),
    lambda out: fs.square(HALVES.reshape(2, 2), out=out),
    lambda out: fs.round_to(HALVES.reshape(2, 2).astype(np.float32), out=out),
])  # fmt: skip
def test_subclasses_take_results_within_their_memory(operation: Callable[[Any], Any]) -> None:
    expected = operation(np.empty((2, 2), np.float16))
    memory = np.full(12, -7, np.float16)  # the middle four are the array's, the rest must stay
    for out in (
        memory[4:8].reshape(2, 2).view(_Matrix),
        np.ma.array(memory[4:8].reshape(2, 2), mask=[[False, True], [False, False]], copy=False),
    ):
        memory[4:8] = 0
        assert operation(out) is out
        assert np.array_equal(memory[4:8].reshape(2, 2), expected)
        assert np.all(memory[:4] == -7)
        assert np.all(memory[8:] == -7)


@pytest.mark.parametrize(
    "dtype, encoding", [(">u2", 0x7C01), (">u4", 0x7F800001), (">u8", 0x7FF0000000000001)]
)
@pytest.mark.parametrize("order", "<>")
def test_signalling_nans_are_counted_and_numpy_does_not_warn(dtype: str, encoding: int, order: str) -> None:
    x = np.array([encoding, encoding], dtype.replace(">", order)).view(dtype.replace(">u", f"{order}f"))
    with fs.count_events() as events:
        assert np.isnan(fs.round_to(x)).all()
    assert events.invalid == 2
    for mode in ("nearest_even", "nearest_away", "toward_zero", "toward_positive", "toward_negative"):
        with fs.count_events() as events:
            assert fs.to_integer(x, "int32", rounding=mode).tolist() == [0, 0]
        assert (events.invalid, events.inexact) == (2, 0)


def test_infinities_compare_where_subnormals_are_read_as_zeros() -> None:
    x = np.array([np.inf, -np.inf, 6e-8, -6e-8, np.nan], np.float16)
    assert fs.less(x, 0.0, inputs="zero").tolist() == [False, True, False, False, False]
    assert fs.equal(x, 0.0, inputs="zero").tolist() == [False, False, True, True, False]


@pytest.mark.parametrize("n", [2**31, 2**63, 2**64, 10**30, 2**9999], ids=int.bit_length)
def test_powers_of_two_may_be_of_any_size(n: int) -> None:
    assert fs.ldexp(HALVES, n).tolist() == [np.inf] * 4
    assert fs.ldexp(HALVES, -n).tolist() == [0.0] * 4
    assert fs.ldexp(-1.0, -n, rounding="toward_negative") == -(2.0**-24)


def test_numpy_booleans_are_options() -> None:
    assert fs.round_to(1e-7, subnormals=np.False_) == 0
    assert fs.round_to(1e-7, subnormals=np.True_) == np.float16(1e-7)
    assert fs.round_to(1e9, saturate=np.True_) == 65504


STOCHASTIC: dict[str, Any] = {"rounding": "stochastic"}


@pytest.mark.parametrize("call, error, message", [
    (lambda: fs.round_to(0.1, **STOCHASTIC, seed=1.5), TypeError, "seed=1.5: it is an integer"),
    (lambda: fs.round_to(0.1, **STOCHASTIC, seed="7"), TypeError, "seed='7': it is an integer"),
    (lambda: fs.round_to(0.1, **STOCHASTIC, seed=np.array([3, 4])), TypeError, "seed=array([3, 4])"),
    (lambda: fs.round_to(0.1, **STOCHASTIC, seed=-1), ValueError, "seed=-1: it has 64 bits; pass an integer in"),
    (lambda: fs.round_to(0.1, **STOCHASTIC, seed=2**64), ValueError, "seed=18446744073709551616: it has 64"),
    (lambda: fs.round_to(0.1, **STOCHASTIC, seed=0, call=0.5), TypeError, "call=0.5: it is an integer"),
    (lambda: fs.exp(0.1, **STOCHASTIC, seed=0, call=None), TypeError, "call=None: it is an integer"),
    (lambda: fs.round_to(0.1, **STOCHASTIC, random_bits=-1), ValueError, "pass integers in [0, 2**32)"),
    (lambda: fs.round_to(0.1, **STOCHASTIC, random_bits=np.array(2**32)), ValueError, "in [0, 2**32)"),
    (lambda: fs.round_to(0.1, **STOCHASTIC, random_bits=0.5), ValueError, "pass integers in [0, 2**32)"),
    (lambda: fs.round_to(1e9, saturate="no"), ValueError, "saturate='no': it is on or off; pass True or False"),
    (lambda: fs.round_to(1e9, saturate=None), ValueError, "saturate=None"),
    (lambda: fs.round_to(2**9999), TypeError, "an integer of 10000 bits: integers have up to 64 bits"),
    (lambda: fs.to_integer(1.5, "int33"), TypeError, "unknown dtype 'int33': did you mean 'int32'?"),
    (lambda: Format("f", 5, 11, emax=10.0), ValueError, "emax=10.0: 5 exponent bits"),  # type: ignore[arg-type]
    (lambda: Format("f", 5, 11, emax=True), ValueError, "emax=True"),
    (lambda: Format("f", 5, 11, emax="3"), ValueError, "emax='3'"),  # type: ignore[arg-type]
    (lambda: Format("f", 5, 11, infinities="no"), ValueError, "infinities='no'"),  # type: ignore[arg-type]
    (lambda: Format("f", 5, 11, subnormals=None), ValueError, "subnormals=None"),  # type: ignore[arg-type]
    (lambda: fs.binary16.encode([1.0, 1e300]), ValueError, "1e+300 is not a value of binary16"),
    (lambda: fs.binary16.encode(0.1), ValueError, "0.1 is not a value of binary16; round it first"),
    (lambda: fs.binary16.encode(1j), TypeError, "values of complex128: the values of a format are real"),
    (lambda: fs.binary16.encode("1"), TypeError, "values of <U1"),
    (lambda: reductions.cumsum(np.ones((2, 3), np.float16), axis=(0, 1)), TypeError, "axis=(0, 1): sums up to"),
    (lambda: fs.sum(np.float16(1), axis=0), ValueError, "axis=0: an array of shape () has 0 axes"),
    (lambda: fs.emulator.events.Events().total("overflows"), ValueError, "did you mean 'overflow'?"),
])  # fmt: skip
def test_wrong_kinds_are_refused_in_one_line(
    call: Callable[[], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=re.escape(message)) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_mean_of_nothing_is_the_canonical_nan(dtype: type) -> None:
    path = "float64" if dtype is np.float64 else "float32"
    mean = reductions.mean(np.ones((2, 0), dtype), 1, path)
    assert mean.tobytes() == np.full(2, np.nan, dtype).tobytes()


@pytest.mark.parametrize(
    "shape, axis, left", [((0,), None, ()), ((2, 0, 3), 1, (2, 3)), ((2, 0, 3), 2, (2, 0))]
)
def test_the_norm_of_nothing_is_zero(shape: tuple[int, ...], axis: int | None, left: tuple[int, ...]) -> None:
    for keepdims in (False, True):
        norm = np.asarray(reductions.norm(np.ones(shape, np.float16), axis, keepdims=keepdims))
        assert norm.ndim == (len(shape) if keepdims else len(left))
        assert np.array_equal(norm.reshape(left), np.zeros(left))


def test_signalling_nans_are_encoded_without_a_warning() -> None:
    for x in (np.uint32(0x7F800001).view(np.float32), np.uint64(0x7FF0000000000001).view(np.float64)):
        assert fs.binary16.encode(np.array([x, 1.0], x.dtype)).tolist() == [0x7E00, 0x3C00]


def test_binary64_encodes_as_the_processor_does() -> None:
    x = np.array([1.1, -1.1, -0.0, 5e-324, -1.7976931348623157e308, np.inf, -np.inf])
    assert np.array_equal(binary64.encode(x), x.view(np.uint64))
    assert binary64.decode(x.view(np.uint64)).tobytes() == x.tobytes()
    assert (binary64.encode(-2.0), binary64.decode(2**64 - 2**52)) == (0xC000000000000000, -np.inf)


def test_formats_of_numpy_integers_are_those_of_python_integers() -> None:
    ours = Format("f", np.int8(8), np.uint8(24), emax=np.int16(100))  # type: ignore[arg-type]
    assert ours == Format("f", 8, 24, emax=100)
    assert (ours.max_bits, ours.width, ours.sign_bit) == (227 * 2**23 + 2**23 - 1, 32, 2**31)
    assert {type(getattr(ours, name)) for name in ("exponent_bits", "precision", "emax")} == {int}


def test_an_unknown_backend_is_refused_at_the_call() -> None:
    with pytest.raises(ValueError, match="unknown backend 'numpyy': use one of 'cpu', 'reference'"):
        fs.use_backend("numpyy")
    with fs.use_backend("reference") as backend:
        assert type(backend).__name__ == "Backend"


def test_the_bits_for_tests_are_not_offered() -> None:
    with pytest.raises(TypeError, match="unknown option 'xyz'") as caught:
        fs.add(1.0, 1.0, xyz=1)  # type: ignore[call-arg]
    assert "random_bits" not in str(caught.value)


def run_without_jit(code: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)


def test_without_numbas_compiler_the_definition_still_computes_and_the_kernels_say_why_not() -> None:
    code = "import fp16sim as fs\nwith fs.use_backend('reference'): print(float(fs.add(2048.0, 1.0)))"
    assert run_without_jit(code).stdout.strip() == "2048.0"
    refused = run_without_jit("import fp16sim as fs\nfs.add(2048.0, 1.0)").stderr.splitlines()[-1]
    assert refused.startswith("ImportError: NUMBA_DISABLE_JIT is set")
