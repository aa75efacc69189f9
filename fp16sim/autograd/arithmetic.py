"""The arithmetic that operations and their gradients are written in.

Every function takes arrays of one dtype and rounds its result to that dtype once. Binary16 goes through the
emulator. Binary32 add, subtract, multiply and divide are NumPy's, which IEEE 754 fixes; products of matrices,
sums and transcendental functions are the emulator's again, so that their order and their bits are fixed as
well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.emulator import (
    arithmetic as binary16,
    float32_functions,
    functions,
    matmul as products,
    reductions,
)

__all__ = ["Arithmetic", "Array", "round_array"]

Array = npt.NDArray[Any]
_FLOAT16 = np.dtype(np.float16)
_FLOAT32 = np.dtype(np.float32)


def round_array(array: Array, dtype: npt.DTypeLike) -> Array:
    """Convert float16 or float32 to one another: widening is exact, narrowing rounds once to nearest even."""
    target = np.dtype(dtype)
    if array.dtype == target:
        return array
    if target == _FLOAT32 and array.dtype == _FLOAT16:
        return array.astype(np.float32)
    return np.asarray(binary16.round_to(array, target.name))


@dataclass(frozen=True)
class Arithmetic:
    """How an operation accumulates; the dtype of its operands says where it rounds.

    Parameters
    ----------
    matmul_datapath, reduction_datapath : {"float32", "float16"}
        Format of the accumulators, for float16 operands. Float32 operands accumulate in float32.
    wide : bool
        True in a backward pass that stores everything in float32: then :meth:`cast` does not narrow.
    """

    matmul_datapath: str = "float32"
    reduction_datapath: str = "float32"
    wide: bool = False

    def add(self, a: Array, b: Array) -> Array:
        """Add, rounded once."""
        return np.asarray(a + b if a.dtype == _FLOAT32 else binary16.add(a, b))

    def subtract(self, a: Array, b: Array) -> Array:
        """Subtract, rounded once."""
        return np.asarray(a - b if a.dtype == _FLOAT32 else binary16.subtract(a, b))

    def multiply(self, a: Array, b: Array) -> Array:
        """Multiply, rounded once."""
        return np.asarray(a * b if a.dtype == _FLOAT32 else binary16.multiply(a, b))

    def divide(self, a: Array, b: Array) -> Array:
        """Divide, rounded once."""
        return np.asarray(a / b if a.dtype == _FLOAT32 else binary16.divide(a, b))

    def exp(self, a: Array) -> Array:
        """Exponential: correctly rounded in binary16, the fixed sequence of float32_functions in binary32."""
        return np.asarray(float32_functions.exp(a) if a.dtype == _FLOAT32 else functions.exp(a))

    def log(self, a: Array) -> Array:
        """Natural logarithm, as :meth:`exp`."""
        return np.asarray(float32_functions.log(a) if a.dtype == _FLOAT32 else functions.log(a))

    def matmul(self, a: Array, b: Array) -> Array:
        """Multiply (m, k) and (k, n): accumulated in increasing k from +0, rounded to the dtype once."""
        datapath = "float32" if a.dtype == _FLOAT32 else self.matmul_datapath
        return np.asarray(products.matmul(a, b, datapath))

    def sum(self, a: Array, axis: int | None = None) -> Array:
        """Sum in increasing C-order index from +0, accumulated by the datapath, rounded to the dtype once."""
        datapath = "float32" if a.dtype == _FLOAT32 else self.reduction_datapath
        return np.asarray(reductions.sum(a, axis, datapath))

    def cast(self, a: Array, dtype: npt.DTypeLike) -> Array:
        """Convert as :func:`round_array`; a wide backward pass widens and never narrows."""
        return round_array(a, _FLOAT32 if self.wide else dtype)

    def sum_to(self, a: Array, shape: tuple[int, ...]) -> Array:
        """Undo broadcasting to `shape`: sum over each axis that it added or stretched, outermost first."""
        while a.ndim > len(shape):
            a = self.sum(a, 0)
        for axis, size in enumerate(shape):
            if size == 1 and a.shape[axis] != 1:
                a = np.expand_dims(self.sum(a, axis), axis)
        return a
