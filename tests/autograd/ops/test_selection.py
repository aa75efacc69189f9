"""Choosing among values: ties, NaN and signs of zero; gradients as torch has them."""

import itertools

import numpy as np
import pytest
from fp16sim_steps import NARROW_AND_SINGLE, Steps, interesting, same_bits

from fp16sim.autograd import ops
from fp16sim.autograd.gradcheck import gradcheck
from fp16sim.autograd.tensor import Tensor


def larger(a, b):
    """IEEE 754-2019 maximum, one pair at a time."""
    if np.isnan(a) or np.isnan(b):
        return a.dtype.type(np.nan)
    if a == b:
        return b if np.signbit(a) else a
    return a if a > b else b


@pytest.mark.parametrize("dtype", NARROW_AND_SINGLE, ids=str)
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_each_pair(name, dtype):
    m, values = Steps(dtype), interesting(dtype, 1, 4)
    g = m.number(0.1) if dtype != np.float16 else np.float16(3 * 2.0**-24)  # half of it is rounded: 2 * 2^-24
    half = m.multiply(g, m.number(0.5))
    pairs = list(itertools.product(values, repeat=2))
    a, b = (Tensor(np.array(column, dtype), requires_grad=True) for column in zip(*pairs, strict=True))
    result = getattr(ops, name)(a, b)
    result.backward(np.full(a.shape, g))
    zero = m.number(0.0)
    with np.errstate(invalid="ignore"):
        if name == "maximum":
            expected = [larger(*pair) for pair in pairs]
        else:
            expected = [value if np.isnan(value := larger(-x, -y)) else -value for x, y in pairs]
        first = [half if x == y else zero if (x < y if name == "maximum" else x > y) else g for x, y in pairs]
        second = [
            half if x == y else zero if (x > y if name == "maximum" else x < y) else g for x, y in pairs
        ]
    same_bits(result.data, np.array(expected, dtype))
    same_bits(a.grad, np.array(first, dtype))
    same_bits(b.grad, np.array(second, dtype))


@pytest.mark.parametrize("dtype", NARROW_AND_SINGLE, ids=str)
def test_absolute(dtype):
    values = interesting(dtype, 2, 6)
    x = Tensor(values, requires_grad=True)
    y = abs(x)
    y.backward(np.full(values.shape, dtype.type(3)))
    kind = f"u{dtype.itemsize}"
    mask = np.array((1 << (8 * dtype.itemsize - 1)) - 1, kind)
    np.testing.assert_array_equal(y.data.view(kind), values.view(kind) & mask)
    with np.errstate(invalid="ignore"):
        slopes = np.float32([3 if v > 0 else -3 if v < 0 else 0 for v in values]).astype(dtype)
    same_bits(x.grad, slopes)


@pytest.mark.parametrize("dtype", NARROW_AND_SINGLE, ids=str)
def test_clip_rounds_its_bounds_and_keeps_nan(dtype):
    values = interesting(dtype, 3, 6)
    m = Steps(dtype)
    low, high = m.number(-0.1), m.number(0.7)
    values = np.append(values, np.array([low, high], dtype))
    x = Tensor(values, requires_grad=True)
    y = ops.clip(x, -0.1, 0.7)
    y.backward(np.ones(values.shape, dtype))
    with np.errstate(invalid="ignore"):
        same_bits(y.data, np.array([low if v < low else high if v > high else v for v in values], dtype))
        same_bits(x.grad, np.array([low <= v <= high for v in values]).astype(dtype))


def test_clip_with_one_bound():
    x = Tensor([-np.inf, -1.0, 0.5, np.inf])
    assert ops.clip(x, 0.0).data.tolist() == [0.0, 0.0, 0.5, np.inf]
    assert ops.clip(x, high=0.0).data.tolist() == [-np.inf, -1.0, 0.0, 0.0]


def test_where_copies_its_condition():
    condition = np.array([True, False])
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = ops.where(condition, x, -1.0)
    condition[:] = False
    assert y.data.tolist() == [1.0, -1.0]
    y.backward(np.float32([np.inf, np.inf]))
    same_bits(x.grad, np.float32([np.inf, 0.0]))  # no infinity times 0 where it was not taken


def test_where_broadcasts_all_three():
    a, b = Tensor([[1.0], [2.0]], requires_grad=True), Tensor([10.0, 20.0, 30.0], requires_grad=True)
    y = ops.where([True, False, True], a, b)
    assert y.data.tolist() == [[1, 20, 1], [2, 20, 2]]
    y.backward(np.ones((2, 3)))
    assert a.grad.tolist() == [[2], [2]]
    assert b.grad.tolist() == [0, 2, 0]


def test_gradients_equal_differences():
    rng = np.random.default_rng(4)
    a, b = (Tensor(rng.normal(size=shape), requires_grad=True) for shape in ((3, 4), (4,)))
    gradcheck(ops.maximum, [a, b])
    gradcheck(ops.minimum, [a, b])
    gradcheck(lambda x: ops.maximum(x, 0.25), [a])
    gradcheck(ops.absolute, [a])
    gradcheck(lambda x: ops.clip(x, -0.5, 0.5), [a])
    gradcheck(lambda x, y: ops.where(a.data > 0, x, y), [a, b])


def test_a_wide_walk_back_compares_with_the_rounded_bound():
    """0.1 in float16 is above 0.1: a value equal to the bound lies inside it in float32 too."""
    from fp16sim.autograd.backward import gradients

    x = Tensor(np.float16([0.1]), requires_grad=True)
    (found,) = gradients(ops.clip(x, high=0.1), [x], wide=True)
    assert found.tolist() == [1.0]


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda x: ops.clip(x), ValueError, "pass low, high or both"),
        (lambda x: ops.clip(x, 2.0, 1.0), ValueError, "low <= high"),
        (lambda x: ops.clip(x, float("nan")), ValueError, "low <= high"),
        (lambda x: ops.clip(x, x), TypeError, "clip with a Tensor as bound: pass numbers"),
        (lambda x: ops.where(x, x, x), TypeError, r"x\.data > 0"),
        (lambda x: ops.where([1, 0], x, x), TypeError, "condition of int64"),
        (lambda x: ops.where([True] * 3, x, x), ValueError, r"where of shapes \(3,\), \(2,\) and \(2,\)"),
        (lambda x: ops.maximum(x, Tensor([1.0] * 3)), ValueError, "do not broadcast"),
    ],
)
def test_refusals(call, kind, message):
    with pytest.raises(kind, match=message) as caught:
        call(Tensor([1.0, 2.0]))
    assert "\n" not in str(caught.value)
