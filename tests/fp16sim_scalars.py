"""Rounded arithmetic one number at a time, by public functions of scalars: what whole operations are held to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import fp16sim as fs

__all__ = ["SCALARS", "Scalars", "drawn", "same_bits"]


@dataclass(frozen=True)
class Scalars:
    """Numbers of one dtype, and sums in another."""

    policy: fs.Policy
    dtype: Any
    accumulator: Any

    def number(self, value: float) -> Any:
        """Round a number to the dtype."""
        return np.float64(value).astype(np.float32).astype(self.dtype)

    def add(self, a: Any, b: Any) -> Any:
        return fs.add(a, b)

    def subtract(self, a: Any, b: Any) -> Any:
        return fs.subtract(a, b)

    def multiply(self, a: Any, b: Any) -> Any:
        return fs.multiply(a, b)

    def divide(self, a: Any, b: Any) -> Any:
        return fs.divide(a, b)

    def sqrt(self, a: Any) -> Any:
        return fs.sqrt(a)

    def total(self, terms: Iterable[Any]) -> Any:
        """Add from +0 in order, in the accumulator's dtype."""
        total = self.accumulator(0)
        for term in terms:
            total = fs.add(total, self.accumulator(term))
        return total

    def narrowed(self, value: Any) -> Any:
        return canonical(np.asarray(value).astype(self.dtype))[()]

    def sum(self, terms: Iterable[Any]) -> Any:
        return self.narrowed(self.total(terms))

    def mean(self, terms: list[Any]) -> Any:
        return self.narrowed(fs.divide(self.total(terms), self.accumulator(len(terms))))

    def dot(self, pairs: Iterable[tuple[Any, Any]]) -> Any:
        """Add products, which are rounded to the accumulator's dtype too (of narrower numbers they are exact)."""
        wide = self.accumulator
        return self.sum(fs.multiply(wide(a), wide(b)) for a, b in pairs)


def canonical(array: Any) -> Any:
    return np.where(np.isnan(array), array.dtype.type(np.nan), array)


SCALARS = [
    Scalars(fs.Policy("float32"), np.float32, np.float32),
    Scalars(fs.Policy("float16"), np.float16, np.float16),
    Scalars(fs.Policy("float16", matmul="float32", reduction="float32"), np.float16, np.float32),
    Scalars(
        fs.Policy("mixed_bfloat16", parameters="bfloat16", wide="bfloat16"), ml_dtypes.bfloat16, np.float32
    ),
]
"""Every format with the accumulators of its policies."""


def drawn(seed: int, shape: tuple[int, ...], dtype: Any, odd: bool = False, spread: float = 1.0) -> Any:
    """Draw numbers; if `odd`, the last ones are zeros of both signs, a subnormal, an infinity and a NaN."""
    values = np.random.default_rng(seed).normal(scale=spread, size=shape).astype(np.float32).astype(dtype)
    if odd:
        last = np.array([0.0, -0.0, np.nextafter(dtype(0), dtype(1)), -np.inf, np.nan], dtype)
        values.reshape(-1)[-len(last) :] = last
    return values


def same_bits(a: Any, b: Any) -> None:
    """Assert that dtype, shape and every bit agree."""
    b = np.asarray(b)
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    kind = f"u{a.dtype.itemsize}"
    np.testing.assert_array_equal(np.ascontiguousarray(a).view(kind), np.ascontiguousarray(b).view(kind))
