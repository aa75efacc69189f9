"""Dropout as an operation: factors rounded once, products rounded once."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fp16sim.autograd import ops
from fp16sim.autograd.policy import autocast
from fp16sim.autograd.tensor import Tensor

MASK = np.array([True, True, False, False, False, True])


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_kept_values_are_scaled_and_the_others_multiplied_by_zero(dtype: Any) -> None:
    x = np.array([1.0, -3.0, 2.0, -2.0, np.inf, 0.1], dtype)
    g = np.array([0.3, 0.7, 1.0, -1.0, 1.0, np.inf], dtype)
    factor = np.float64(1 / (1 - 0.3)).astype(dtype)
    tensor = Tensor(x, requires_grad=True)
    y = ops.dropout(tensor, MASK, 0.3)
    y.backward(g)
    for found, operand in ((y.data, x), (tensor.grad, g)):
        with np.errstate(invalid="ignore"):
            # NumPy's products of these dtypes are correctly rounded.
            expected = operand * np.where(MASK, factor, dtype(0))
        assert found is not None
        assert found.dtype == dtype
        assert np.array_equal(found, expected, equal_nan=True)
        assert np.array_equal(np.signbit(found[:4]), np.signbit(expected[:4]))
    assert np.isnan(y.data[4])  # a dropped infinity, as in torch


def test_dropout_may_push_a_value_beyond_float16() -> None:
    """T5: 6.27e4 out of a layer, divided by .9."""
    with autocast("mixed_float16"):
        assert ops.dropout(Tensor(np.float16([6.27e4])), np.array([True]), 0.1).item() == np.inf
    right = ops.dropout(Tensor(np.float32([6.27e4])), np.array([True]), 0.1)
    assert right.item() == pytest.approx(69666.67)


def test_everything_dropped() -> None:
    assert ops.dropout(Tensor([1.0, 2.0]), np.array([False, False]), 1.0).data.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda x: ops.dropout(x, MASK[:2], 0.5), ValueError, r"shape \(6,\) with a mask bool of \(2,\)"),
        (lambda x: ops.dropout(x, np.ones(6), 0.5), ValueError, "a mask float64"),
        (lambda x: ops.dropout(x, [True] * 6, 0.5), ValueError, "a mask list: pass a bool array"),
        (lambda x: ops.dropout(x, MASK, 1.5), ValueError, "p=1.5: the share"),
        (lambda x: ops.dropout(x, MASK, float("nan")), ValueError, "p=nan"),
        (lambda x: ops.dropout(x.data, MASK, 0.5), TypeError, "pass fs.Tensor"),
    ],
)
def test_refusals(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call(Tensor(np.zeros(6, np.float32)))
