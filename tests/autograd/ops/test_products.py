"""Products of matrices and their gradients: sums over k in order, in the accumulator that the policy names."""

import numpy as np
import pytest
from fp16sim_steps import BFLOAT16, FLOAT16, FLOAT32, Steps, same_bits

from fp16sim.autograd import ops
from fp16sim.autograd.gradcheck import gradcheck
from fp16sim.autograd.policy import Policy, autocast
from fp16sim.autograd.tensor import Tensor

POLICIES = [
    ("float32", FLOAT32, FLOAT32),
    ("mixed_float16", FLOAT16, FLOAT32),
    ("float16", FLOAT16, FLOAT16),
    ("mixed_bfloat16", BFLOAT16, FLOAT32),
]


def draw(seed, shape, dtype):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32).astype(dtype)


def product(a, b, accumulator):
    """Element by element: each product rounded to the accumulator's format, each sum too, the result once more."""
    inner, outer = Steps(accumulator), Steps(a.dtype)
    result = np.zeros((a.shape[0], b.shape[1]), a.dtype)
    for i, j in np.ndindex(result.shape):
        terms = [
            inner.multiply(inner.dtype.type(x), inner.dtype.type(y))
            for x, y in zip(a[i], b[:, j], strict=True)
        ]
        result[i, j] = (
            outer.rounded(inner.sum(terms, accumulator))
            if a.dtype != accumulator
            else inner.sum(terms, accumulator)
        )
    return result


@pytest.mark.parametrize(("policy", "dtype", "accumulator"), POLICIES, ids=str)
def test_matmul_and_its_gradients(policy, dtype, accumulator):
    a, b, g = draw(1, (3, 7), dtype), draw(2, (7, 2), dtype), draw(3, (3, 2), dtype)
    left, right = Tensor(a, requires_grad=True), Tensor(b, requires_grad=True)
    with autocast(policy):
        result = left @ right
    result.backward(g)
    same_bits(result.data, product(a, b, accumulator))
    same_bits(left.grad, product(g, b.T, accumulator))
    same_bits(right.grad, product(a.T, g, accumulator))


@pytest.mark.parametrize(("policy", "dtype", "accumulator"), POLICIES, ids=str)
def test_linear_and_its_gradients(policy, dtype, accumulator):
    x, w, b, g = (draw(i, s, dtype) for i, s in enumerate([(2, 3, 5), (4, 5), (4,), (2, 3, 4)]))
    inputs, weight, bias = (Tensor(array, requires_grad=True) for array in (x, w, b))
    with autocast(policy):
        result = ops.linear(inputs, weight, bias)
    result.backward(g)
    m, rows, gradients = Steps(dtype), x.reshape(6, 5), g.reshape(6, 4)
    plain = product(rows, w.T, accumulator)
    expected = [[m.add(plain[i, j], b[j]) for j in range(4)] for i in range(6)]
    same_bits(result.data, np.array(expected, dtype).reshape(2, 3, 4))
    same_bits(inputs.grad, product(gradients, w, accumulator).reshape(2, 3, 5))
    same_bits(weight.grad, product(gradients.T, rows, accumulator))
    same_bits(bias.grad, np.array([m.sum(gradients[:, j], accumulator) for j in range(4)], dtype))


def test_gradients_may_accumulate_on_another_datapath():
    a, b = np.ones((1, 2), np.float16), np.ones((2, 1), np.float16)
    g = np.float16([[1.0]])
    wide = Policy("mixed_float16", matmul="float32", gradients="float16")
    big = Tensor(np.float16([[2048.0], [1.0], [1.0]]), requires_grad=True)
    row = Tensor(np.ones((1, 3), np.float16), requires_grad=True)
    with autocast(wide):
        y = row @ big  # 2050 in float32
        z = big @ Tensor(a)  # its gradient for big is a product over two columns
    assert y.data.tolist() == [[2050.0]]
    z.backward(np.float16([[2048, 1], [1, 1], [1, 1]]))
    assert big.grad.tolist() == [[2048.0], [2.0], [2.0]]
    assert (Tensor(a) @ Tensor(b)).data.tolist() == [[2.0]]
    assert g.dtype == np.float16


def test_gradients_equal_differences():
    rng = np.random.default_rng(4)

    def T(*shape):
        return Tensor(rng.normal(size=shape), requires_grad=True)

    gradcheck(ops.matmul, [T(3, 4), T(4, 2)])
    gradcheck(ops.matmul, [T(2, 1, 3, 4), T(5, 4, 2)])
    gradcheck(ops.matmul, [T(3, 4), T(2, 4, 2)])
    gradcheck(ops.linear, [T(2, 3, 4), T(5, 4), T(5)])
    gradcheck(ops.linear, [T(4), T(5, 4)])


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda a: ops.matmul(a, Tensor([1.0, 2.0])), ValueError, "reshape first"),
        (lambda a: ops.matmul(a, a.T.cast("float16")), TypeError, "a product has one format"),
        (lambda a: ops.matmul(a, a), ValueError, r"matmul of shapes \(1, 2\) and \(1, 2\)"),
        (lambda a: ops.matmul(a.reshape(2, 1, 1), Tensor(np.ones((3, 1, 1)))), TypeError, "convert one"),
        (lambda a: ops.linear(a, Tensor([[1.0]])), ValueError, r"pass \(..., inputs\)"),
        (lambda a: a @ a.data, TypeError, r"pass fs\.Tensor"),
    ],
)
def test_refusals(call, kind, message):
    with pytest.raises(kind, match=message) as caught:
        call(Tensor([[1.0, 2.0]]))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("shape", [(1,), (4,), (2, 3), ()])
def test_a_bias_has_one_number_for_each_output(shape):
    """One that broadcasts otherwise would be added too, and (2, 3) would make the result larger."""
    x, weight = (Tensor(np.ones(size, np.float32)) for size in ((1, 5), (3, 5)))
    with pytest.raises(ValueError, match="linear with a bias of shape"):
        ops.linear(x, weight, Tensor(np.ones(shape, np.float32)))


@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(2, 0, 3), (0, 5, 3), (2, 5, 0), (0, 0, 0)])
def test_linear_of_nothing(rows, inputs, outputs):
    x, weight, bias = (
        Tensor(np.ones(shape, np.float16), requires_grad=True)
        for shape in ((rows, inputs), (outputs, inputs), (outputs,))
    )
    y = ops.linear(x, weight, bias)
    y.backward(np.ones(y.shape))
    assert y.data.tolist() == [[1.0] * outputs] * rows
    assert (x.grad == outputs).all()
    assert (weight.grad == rows).all()
    assert bias.grad.tolist() == [rows] * outputs
