"""Rounded steps on single numbers by the definition, for tests that walk through an operation as its docstring says.

Nothing here knows of arrays, broadcasting or tapes. Steps run on the definition (`use_backend("reference")`), except
for functions of float32 values, whose definition is the fixed sequence itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

import fp16sim as fs
from fp16sim.emulator import float32_activations, float32_functions
from fp16sim.emulator.backends import use_backend

FLOAT16, BFLOAT16, FLOAT32 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)
NARROW_AND_SINGLE = [FLOAT16, BFLOAT16, FLOAT32]


def same_bits(found: Any, expected: Any) -> None:
    """Assert that dtype, shape and every bit agree."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    kind = f"u{found.dtype.itemsize}"
    np.testing.assert_array_equal(
        np.ascontiguousarray(found).view(kind), np.ascontiguousarray(expected).view(kind)
    )


class Steps:
    """Rounded steps in one format; numbers are NumPy scalars of its dtype.

    Sums accumulate in the format `accumulator`, by default this one. `policy` is one that has both.
    """

    def __init__(self, dtype: Any, accumulator: Any = None, policy: fs.Policy | None = None) -> None:
        self.dtype = np.dtype(dtype)
        self.accumulator = self.dtype if accumulator is None else np.dtype(accumulator)
        self.policy = policy

    def __repr__(self) -> str:
        return f"Steps({self.dtype}, {self.accumulator})"

    def number(self, value: float) -> Any:
        """Round a Python number once."""
        return np.asarray(fs.round_to(np.float64(value), self.dtype))[()]

    def _call(self, function: Any, *operands: Any) -> Any:
        with use_backend("reference"):
            return np.asarray(function(*(np.asarray(x) for x in operands)))[()]

    def add(self, a: Any, b: Any) -> Any:
        return self._call(fs.add, a, b)

    def subtract(self, a: Any, b: Any) -> Any:
        return self._call(fs.subtract, a, b)

    def negative(self, a: Any) -> Any:
        return a if np.isnan(a) else -a

    def multiply(self, a: Any, b: Any) -> Any:
        return self._call(fs.multiply, a, b)

    def divide(self, a: Any, b: Any) -> Any:
        return self._call(fs.divide, a, b)

    def sqrt(self, a: Any) -> Any:
        return self._call(fs.sqrt, a)

    def rounded(self, a: Any) -> Any:
        """Round a number of another format to this one."""
        return a if a.dtype == self.dtype else np.asarray(fs.round_to(np.asarray(a), self.dtype))[()]

    def function(self, name: str, a: Any) -> Any:
        if self.dtype == FLOAT16:
            return self._call(getattr(fs, name), a)
        with np.errstate(all="ignore"):
            home = float32_functions if hasattr(float32_functions, name) else float32_activations
            return self.rounded(np.asarray(getattr(home, name)(np.float32(a)))[()])

    def power(self, a: Any, exponent: float) -> Any:
        with np.errstate(all="ignore"):
            wide = float32_functions.pow(np.asarray(np.float32(a)), np.asarray(exponent, np.float32))
        return self.rounded(np.asarray(wide)[()])

    def sum(self, values: Iterable[Any], accumulator: Any = None) -> Any:
        """Add in order from +0 in the accumulator's format, then round once."""
        return self.rounded(self._total(values, self._inner(accumulator)))

    def mean(self, values: Sequence[Any], accumulator: Any = None) -> Any:
        """Divide the sum by the number of terms, which is rounded, in the accumulator's format, then round once."""
        inner = self._inner(accumulator)
        return self.rounded(inner.divide(self._total(values, inner), inner.number(len(values))))

    def dot(self, pairs: Iterable[tuple[Any, Any]]) -> Any:
        """Add products, which are rounded to the accumulator's format too (of narrower numbers they are exact)."""
        inner = self._inner(None)
        return self.sum(inner.multiply(inner.dtype.type(a), inner.dtype.type(b)) for a, b in pairs)

    def _inner(self, accumulator: Any) -> Steps:
        return Steps(self.accumulator if accumulator is None else accumulator)

    @staticmethod
    def _total(values: Iterable[Any], inner: Steps) -> Any:
        total = inner.number(0.0)
        for value in values:
            total = inner.add(total, inner.dtype.type(value))
        return total


EACH_FORMAT = [
    Steps(FLOAT32, FLOAT32, fs.Policy("float32")),
    Steps(FLOAT16, FLOAT16, fs.Policy("float16")),
    Steps(FLOAT16, FLOAT32, fs.Policy("float16", matmul="float32", reduction="float32")),
    Steps(BFLOAT16, FLOAT32, fs.Policy("mixed_bfloat16", parameters="bfloat16", wide="bfloat16")),
]
"""Every format with the accumulators of its policies."""


def drawn(seed: int, shape: tuple[int, ...], dtype: Any, odd: bool = False, spread: float = 1.0) -> Any:
    """Draw numbers; if `odd`, the last ones are zeros of both signs, a subnormal, an infinity and a NaN."""
    values = np.random.default_rng(seed).normal(scale=spread, size=shape).astype(np.float32).astype(dtype)
    if odd:
        tiny = ml_dtypes.finfo(dtype).smallest_subnormal
        last = np.array([0.0, -0.0, tiny, -np.inf, np.nan], dtype)
        values.reshape(-1)[-len(last) :] = last
    return values


def interesting(dtype: Any, seed: int, count: int) -> Any:
    """Zeros, subnormals, the largest values, infinities, NaN, and drawn values over many binades."""
    info = ml_dtypes.finfo(dtype)
    tiny, largest = float(info.smallest_subnormal), float(info.max)
    special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        2.0,
        -0.5,
        np.inf,
        -np.inf,
        np.nan,
        tiny,
        -tiny,
        3 * tiny,
        largest,
        -largest,
    ]
    rng = np.random.default_rng(seed)
    drawn = rng.normal(size=count) * 2.0 ** rng.integers(-8, 8, count)
    return np.array([*special, *drawn]).astype(np.float32).astype(dtype)
