"""Programs: the compiled loop equals the definition, one operation after the other, in every format."""

from __future__ import annotations

import numpy as np
import pytest

from fp16sim.autograd.arithmetic import DTYPES, Arithmetic
from fp16sim.emulator.backends import use_backend
from fp16sim.emulator.backends.base import Backend
from fp16sim.emulator.backends.cpu import CpuBackend
from fp16sim.emulator.events import count_events
from fp16sim.emulator.formats import Format, bfloat16, binary16, binary32, binary64
from fp16sim.emulator.programs import Program, Symbol, pattern_of, program_of

REFERENCE, CPU = Backend(), CpuBackend()


def rule(a: Symbol, b: Symbol, c: Symbol, d: Symbol, one: Symbol, rate: Symbol) -> tuple[Symbol, ...]:
    first = a * rate + b
    second = (c - d) / (first * first + one).sqrt()
    return second, first, a - second * rate


PROGRAM = program_of(rule, 4, 2)


def encodings(fmt: Format, size: int, seed: int) -> np.ndarray:
    """Draw any encodings, infinities, zeros, subnormal numbers and NaNs with payloads among them."""
    rng = np.random.Generator(np.random.PCG64(seed))
    bits = rng.integers(0, 1 << 63, size, dtype=np.uint64) << np.uint64(1) | np.uint64(1)
    if fmt == binary64:
        return np.where(rng.random(size) < 0.5, bits, rng.standard_normal(size).view(np.uint64))
    some = bits >> np.uint64(64 - fmt.width)
    near = (fmt.bias << fmt.fraction_bits) + rng.integers(
        -3 << fmt.fraction_bits, 3 << fmt.fraction_bits, size
    )
    mixed = np.where(rng.random(size) < 0.5, some, near.astype(np.uint64)).astype(fmt.uint)
    mixed[:4] = np.array([0, fmt.sign_bit, fmt.inf_bits, 1], fmt.uint)[:size]
    return mixed


@pytest.mark.parametrize("fmt", [binary16, bfloat16, binary32, binary64], ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("shape", [(3, 5, 7), (1, 1, 1), (2, 1, 300), (5, 120, 1)])
def test_the_loop_equals_the_definition(fmt: Format, shape: tuple[int, ...]) -> None:
    size = int(np.prod(shape))
    shapes = [shape, (shape[1], 1), shape[2:], ()]
    patterns = np.array([pattern_of(each, shape) for each in shapes])
    operands = [encodings(fmt, int(np.prod(each)), seed) for seed, each in enumerate(shapes)]
    constants = np.resize(encodings(fmt, 9, 9)[5:], 2)
    expected, _ = REFERENCE.perform(PROGRAM, operands, patterns, constants, size, fmt)
    given, counted = CPU.perform(PROGRAM, operands, patterns, constants, size, fmt)
    assert counted == []
    for a, b in zip(expected, given, strict=True):
        assert np.array_equal(a, b)


def test_patterns_are_those_of_broadcasting() -> None:
    for whole in [(2, 3, 4), (1, 3, 1), (0, 3), ()]:
        for shape in [
            (),
            (4,),
            (3, 1),
            (2, 1, 1),
            (3, 4),
            (2, 3, 4),
            (1, 1, 4),
            (1,),
            (3, 1),
            (1, 3, 1),
            (0, 3),
        ]:
            operand = np.arange(np.prod(shape, dtype=int)).reshape(shape)
            try:
                expected = np.broadcast_to(operand, whole).reshape(-1)
            except ValueError:
                continue
            pattern = pattern_of(shape, whole)
            assert pattern is not None
            repeat, length = pattern
            flat = operand.reshape(-1)
            assert length == flat.size
            assert [flat[i // repeat % length] for i in range(expected.size)] == expected.tolist()
    assert pattern_of((2, 1, 4), (2, 3, 4)) is None


def test_operands_of_other_lengths_than_their_patterns_are_refused() -> None:
    bits = np.zeros(4, np.uint32)
    program = program_of(lambda a, b: (a + b,), 2)
    with pytest.raises(ValueError, match="lengths"):
        CPU.perform(program, [bits, bits], np.array([[1, 4], [1, 8]]), bits[:0], 8, binary32)


def test_a_rule_gives_what_its_steps_make() -> None:
    with pytest.raises(ValueError, match="operand"):
        program_of(lambda a: (a,), 1)
    assert isinstance(PROGRAM, Program)
    assert PROGRAM.values == 4 + 2 + len(PROGRAM.steps)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("second", [(9,), (4, 1), (3, 1, 9), ()])
def test_arithmetic_performs_a_program_as_its_operations_and_counts_the_same(
    dtype: str, second: tuple[int, ...]
) -> None:
    rng = np.random.Generator(np.random.PCG64(3))
    r = Arithmetic()
    a, b = (rng.standard_normal(shape).astype(DTYPES[dtype]) for shape in ((3, 4, 9), second))
    program = program_of(lambda a, b, eps: ((a * b + eps).sqrt(), a / b), 2, 1)
    with np.errstate(all="ignore"):
        root = r.sqrt(r.add(r.multiply(a, b), r.constant(0.1, a)))
        expected = [root, r.divide(a, b)]
    for backend in ("cpu", "reference"):
        with use_backend(backend):
            given = r.perform(program, a, b, constants=(0.1,))
        for one, other in zip(given, expected, strict=True):
            assert one.shape == (3, 4, 9)
            assert one.tobytes() == other.tobytes()
    with count_events() as together, np.errstate(all="ignore"):
        r.perform(program, a, b, constants=(0.1,))
    with count_events() as apart, np.errstate(all="ignore"):
        r.divide(a, b)
        r.sqrt(r.add(r.multiply(a, b), r.constant(0.1, a)))
    assert (together.inexact, together.invalid) == (apart.inexact, apart.invalid)
    assert together.inexact > 0


def test_a_rule_of_one_element_is_looked_up_with_the_same_bits() -> None:
    def squared(r: Arithmetic, a: np.ndarray) -> np.ndarray:
        return r.add(r.multiply(a, a), r.constant(0.3, a))

    for dtype in (DTYPES["float16"], DTYPES["bfloat16"], DTYPES["float32"]):
        a = np.arange(1 << 16, dtype=np.uint32).astype(f"u{dtype.itemsize}").view(dtype).reshape(256, 256)
        r = Arithmetic()
        with np.errstate(all="ignore"):
            expected = squared(r, a)
            few = r.tabulated("rule of a test", squared, a[:2, ::2])
            all_ = r.tabulated("rule of a test", squared, a.T)
        assert few.tobytes() == expected[:2, ::2].tobytes()
        assert all_.tobytes() == expected.T.tobytes()
        with use_backend("reference"):
            assert r.tabulated("rule of a test", squared, a[3, :5]).tobytes() == expected[3, :5].tobytes()
