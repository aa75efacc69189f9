"""Arithmetic on each element: roundings against scalars, broadcasting, constants, casts."""

import itertools

import numpy as np
import pytest
from fp16sim_steps import BFLOAT16, FLOAT16, FLOAT32, NARROW_AND_SINGLE, Steps, interesting, same_bits
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as shapes

from fp16sim.autograd import ops
from fp16sim.autograd.gradcheck import gradcheck
from fp16sim.autograd.policy import Policy, autocast
from fp16sim.autograd.tensor import Tensor

STEPS = {
    "add": (lambda m, a, b: m.add(a, b), lambda m, a, b, g: (g, g)),
    "subtract": (lambda m, a, b: m.subtract(a, b), lambda m, a, b, g: (g, m.negative(g))),
    "multiply": (lambda m, a, b: m.multiply(a, b), lambda m, a, b, g: (m.multiply(g, b), m.multiply(g, a))),
    "divide": (
        lambda m, a, b: m.divide(a, b),
        lambda m, a, b, g: (m.divide(g, b), m.negative(m.multiply(m.divide(g, b), m.divide(a, b)))),
    ),
}


@pytest.mark.parametrize("dtype", NARROW_AND_SINGLE, ids=str)
@pytest.mark.parametrize("name", STEPS)
def test_every_step_is_rounded_as_the_docstring_says(name, dtype):
    forward, backward = STEPS[name]
    m, values = Steps(dtype), interesting(dtype, 1, 5)
    a, b = (np.array(column, dtype) for column in zip(*itertools.product(values, repeat=2), strict=True))
    g = np.resize(interesting(dtype, 2, 3), a.shape)
    left, right = Tensor(a, requires_grad=True), Tensor(b, requires_grad=True)
    result = getattr(ops, name)(left, right)
    result.backward(g)
    with np.errstate(all="ignore"):
        same_bits(result.data, np.array([forward(m, *row) for row in zip(a, b, strict=True)], dtype))
        slopes = [backward(m, *row) for row in zip(a, b, g, strict=True)]
    same_bits(left.grad, np.array([first for first, _ in slopes], dtype))
    same_bits(right.grad, np.array([second for _, second in slopes], dtype))


@pytest.mark.parametrize("name", STEPS)
@settings(derandomize=True, deadline=None, max_examples=15)
@given(
    broadcast=shapes.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3),
    seed=st.integers(0, 99),
)
def test_gradients_equal_differences_over_shapes(name, broadcast, seed):
    rng = np.random.default_rng(seed)
    operands = [
        Tensor(rng.uniform(0.5, 2.0, shape) * rng.choice([-1.0, 1.0], shape), requires_grad=True)
        for shape in broadcast.input_shapes
    ]
    gradcheck(getattr(ops, name), operands)


@pytest.mark.parametrize(
    ("policy", "dtype", "accumulator"),
    [
        ("float32", FLOAT32, FLOAT32),
        ("mixed_float16", FLOAT16, FLOAT32),
        ("float16", FLOAT16, FLOAT16),
        ("mixed_bfloat16", BFLOAT16, FLOAT32),
        (Policy("mixed_float16", reduction="float16"), FLOAT16, FLOAT16),
    ],
    ids=str,
)
def test_gradients_of_broadcasting_are_sums_in_order(policy, dtype, accumulator):
    rng = np.random.default_rng(3)
    a, b, g = (
        rng.normal(size=shape).astype(np.float32).astype(dtype) for shape in ((4, 1), (3, 1, 5), (3, 4, 5))
    )
    left, right, m = Tensor(a, requires_grad=True), Tensor(b, requires_grad=True), Steps(dtype)
    with autocast(policy):
        result = ops.multiply(left, right)
    result.backward(g)
    products = [[[m.multiply(g[i, j, k], b[i, 0, k]) for k in range(5)] for j in range(4)] for i in range(3)]
    sums = [[m.sum([products[i][j][k] for i in range(3) for k in range(5)], accumulator)] for j in range(4)]
    same_bits(left.grad, np.array(sums, dtype))
    products = [[[m.multiply(g[i, j, k], a[j, 0]) for k in range(5)] for j in range(4)] for i in range(3)]
    sums = [[[m.sum([products[i][j][k] for j in range(4)], accumulator) for k in range(5)]] for i in range(3)]
    same_bits(right.grad, np.array(sums, dtype))


@pytest.mark.parametrize("dtype", NARROW_AND_SINGLE, ids=str)
def test_numbers_are_rounded_to_the_format_first(dtype):
    m, values = Steps(dtype), interesting(dtype, 4, 10)
    tenth = m.number(0.1)
    for compute, step in (
        (lambda x: x * 0.1, lambda x: m.multiply(x, tenth)),
        (lambda x: 0.1 + x, lambda x: m.add(tenth, x)),
        (lambda x: x - 0.1, lambda x: m.subtract(x, tenth)),
        (lambda x: 0.1 - x, lambda x: m.subtract(tenth, x)),
        (lambda x: x / 0.1, lambda x: m.divide(x, tenth)),
        (lambda x: 0.1 / x, lambda x: m.divide(tenth, x)),
    ):
        same_bits(compute(Tensor(values)).data, np.array([step(value) for value in values], dtype))


def test_zeros_keep_their_signs_as_constants():
    x = Tensor(np.float32([-0.0]))
    same_bits((x + 0.0).data, np.float32([0.0]))
    same_bits((x + -0.0).data, np.float32([-0.0]))
    same_bits((x + 0.0).data, np.float32([0.0]))  # whichever constant was rounded first


def test_operands_of_two_formats_meet_in_the_wider_one():
    half, single, double = (Tensor(np.ones(1, dtype)) for dtype in (np.float16, np.float32, np.float64))
    assert (half + single).dtype == np.float32
    assert (double * half).dtype == np.float64
    with pytest.raises(TypeError, match="neither format holds"):
        half + Tensor(np.ones(1, BFLOAT16))


def test_cast_rounds_once_and_its_gradient_comes_back():
    x = Tensor(np.float32([1 + 2**-11, 70000, 2**-25]), requires_grad=True)
    narrow = ops.cast(x, "float16")
    narrow.backward(np.float16([1, 2, 3]))
    assert narrow.data.tolist() == [1, np.inf, 0]
    same_bits(x.grad, np.float32([1, 2, 3]))
    assert ops.cast(x, np.float32) is x


def test_negative_changes_the_sign_alone():
    values = interesting(np.float16, 5, 3)
    x = Tensor(values, requires_grad=True)
    y = -x
    y.backward(values)
    expected = np.where(np.isnan(values), np.uint16(0x7E00), values.view(np.uint16) ^ np.uint16(0x8000))
    assert np.isnan(values).any()
    for found in (y.data, x.grad):
        np.testing.assert_array_equal(found.view(np.uint16), expected)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda x: ops.add(x, Tensor([1.0, 2, 3])),
            ValueError,
            r"add of shapes \(2,\) and \(3,\): .* reshape one",
        ),
        (lambda x: x * x.data, TypeError, r"multiply of a tensor and a ndarray: .* pass fs\.Tensor\(x\)"),
        (lambda x: ops.add(1.0, 2.0), TypeError, r"pass fs\.Tensor\(x\)"),
        (lambda x: x.cast("flaot16"), ValueError, "did you mean 'float16'"),
    ],
)
def test_refusals(call, kind, message):
    with pytest.raises(kind, match=message) as caught:
        call(Tensor([1.0, 2.0]))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x * 10**400,
        lambda x: 10**400 + x,
        lambda x: x**10**400,
        lambda x: x.clip(low=-(10**400)),
        lambda x: x.clip(high=10**400),
    ],
)
def test_integers_beyond_all_floats_are_refused(use):
    with pytest.raises(ValueError, match=r"with an integer of 1329 bits: .*pass a smaller one"):
        use(Tensor([1.0]))


def test_the_largest_integers_are_taken():
    assert (Tensor(np.float64([1.0])) * 2**1023).data.tolist() == [2.0**1023]
