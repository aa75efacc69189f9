"""Sums and what is built on them: each step against scalars, gradients against differences, float16's traps."""

import numpy as np
import pytest
from fp16sim_steps import BFLOAT16, FLOAT16, FLOAT32, NARROW_AND_SINGLE, Steps, same_bits

from fp16sim.autograd import ops
from fp16sim.autograd.gradcheck import gradcheck
from fp16sim.autograd.policy import Policy, autocast
from fp16sim.autograd.tensor import Tensor

BRAIN = Policy(
    "float16",
    compute="bfloat16",
    parameters="bfloat16",
    wide="bfloat16",
    matmul="float32",
    reduction="float32",
)
# Policies whose operations all compute in one format; that format; the accumulator.
WAYS = [
    ("float32", FLOAT32, FLOAT32),
    ("float16", FLOAT16, FLOAT16),
    (Policy("float16", reduction="float32"), FLOAT16, FLOAT32),
    (BRAIN, BFLOAT16, FLOAT32),
]


def draw(seed, shape, dtype):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32).astype(dtype)


def run(policy, function, values, g):
    x = Tensor(values, requires_grad=True)
    with autocast(policy):
        y = function(x)
    y.backward(g)
    return y.data, x.grad


@pytest.mark.parametrize(("policy", "dtype", "accumulator"), WAYS, ids=str)
class TestSteps:
    def test_sum_and_mean(self, policy, dtype, accumulator):
        m, x, g = Steps(dtype), draw(1, (2, 7, 3), dtype), draw(2, (2, 3), dtype)
        found, slopes = run(policy, lambda x: x.sum(1), x, g)
        expected = [[m.sum(x[i, :, k], accumulator) for k in range(3)] for i in range(2)]
        same_bits(found, np.array(expected, dtype))
        same_bits(np.array(slopes), np.broadcast_to(g[:, None], x.shape).copy())
        found, slopes = run(policy, lambda x: x.mean(1), x, g)
        expected = [[m.mean(x[i, :, k], accumulator) for k in range(3)] for i in range(2)]
        same_bits(found, np.array(expected, dtype))
        quotients = np.array([[m.divide(v, m.number(7)) for v in row] for row in g], dtype)
        same_bits(np.array(slopes), np.broadcast_to(quotients[:, None], x.shape).copy())

    @pytest.mark.parametrize("correction", [0, 1])
    def test_variance(self, policy, dtype, accumulator, correction):
        m, x, g = Steps(dtype), draw(3, (2, 6), dtype), draw(4, (2,), dtype)
        found, slopes = run(policy, lambda x: ops.variance(x, 1, correction), x, g)
        for i in range(2):
            centre = m.mean(x[i], accumulator)
            differences = [m.subtract(v, centre) for v in x[i]]
            total = m.sum([m.multiply(d, d) for d in differences], accumulator)
            same_bits(found[i], m.divide(total, m.number(6 - correction)))
            factor = m.multiply(m.number(2 / (6 - correction)), g[i])
            same_bits(slopes[i], np.array([m.multiply(factor, d) for d in differences], dtype))

    def test_norm(self, policy, dtype, accumulator):
        m, x, g = Steps(dtype), draw(5, (2, 6), dtype), draw(6, (2,), dtype)
        found, slopes = run(policy, lambda x: ops.norm(x, 1), x, g)
        inner = Steps(accumulator)
        for i in range(2):
            squares = [inner.multiply(inner.dtype.type(v), inner.dtype.type(v)) for v in x[i]]
            root = inner.sqrt(inner.sum(squares, accumulator))
            root = m.rounded(root) if inner.dtype != m.dtype else root
            same_bits(found[i], root)
            same_bits(slopes[i], np.array([m.multiply(g[i], m.divide(v, root)) for v in x[i]], dtype))

    def test_cumsum(self, policy, dtype, accumulator):
        m, x, g = Steps(dtype), draw(7, (5, 2), dtype), draw(8, (5, 2), dtype)
        found, slopes = run(policy, lambda x: ops.cumsum(x, 0), x, g)
        expected = [[m.sum(x[: i + 1, j], accumulator) for j in range(2)] for i in range(5)]
        same_bits(found, np.array(expected, dtype))
        expected = [[m.sum(g[i:, j][::-1], accumulator) for j in range(2)] for i in range(5)]
        same_bits(slopes, np.array(expected, dtype))

    def test_logsumexp(self, policy, dtype, accumulator):
        m, x, g = Steps(dtype), draw(9, (2, 6), dtype), draw(10, (2,), dtype)
        x[1, 2] = -np.inf
        found, slopes = run(policy, lambda x: ops.logsumexp(x, -1), x, g)
        for i in range(2):
            largest = x[i][np.argmax(np.float32(x[i]))]
            terms = [m.function("exp", m.subtract(v, largest)) for v in x[i]]
            expected = m.add(m.function("log", m.sum(terms, accumulator)), largest)
            same_bits(found[i], expected)
            shares = [m.function("exp", m.subtract(v, expected)) for v in x[i]]
            same_bits(slopes[i], np.array([m.multiply(g[i], s) for s in shares], dtype))


@pytest.mark.parametrize("dtype", NARROW_AND_SINGLE, ids=str)
def test_extremes_share_the_gradient_among_equals(dtype):
    m = Steps(dtype)
    x = np.array([[3, 1, 3, 3], [-2, 5, -2, 0], [1, np.nan, 2, 0], [-0.0, 0.0, -1, -0.0]]).astype(dtype)
    g = np.full(4, m.number(0.1))
    tensor = Tensor(x, requires_grad=True)
    y = ops.amax(tensor, 1)
    y.backward(g)
    same_bits(y.data, np.array([3, 5, np.nan, 0.0]).astype(dtype))
    third, tenth, zero, nan = m.divide(g[0], m.number(3)), g[0], m.number(0.0), m.number(np.nan)
    expected = [
        [third, zero, third, third],
        [zero, tenth, zero, zero],
        [nan] * 4,
        [third, third, zero, third],
    ]
    same_bits(tensor.grad, np.array(expected, dtype))
    tensor.grad = None
    y = ops.amin(tensor, 1, keepdims=True)
    y.backward(g[:, None])
    same_bits(y.data, np.array([[1], [-2], [np.nan], [-1]]).astype(dtype))
    half = m.divide(tenth, m.number(2))
    expected = [[zero, tenth, zero, zero], [half, zero, half, zero], [nan] * 4, [zero, zero, tenth, zero]]
    same_bits(tensor.grad, np.array(expected, dtype))


def test_signs_of_zeros_do_not_depend_on_the_place():
    for zeros in ([0.0, -0.0], [-0.0, 0.0]):
        x = Tensor(np.float32(zeros))
        same_bits(ops.amax(x).data, np.asarray(np.float32(0.0)))
        same_bits(ops.amin(x).data, np.asarray(np.float32(-0.0)))


@pytest.mark.parametrize("dtype", NARROW_AND_SINGLE, ids=str)
def test_places_of_extremes(dtype):
    x = Tensor(np.array([[1, 3, 3], [2, np.nan, 5]]).astype(dtype))
    assert ops.argmax(x, 1).tolist() == [1, 1]
    assert ops.argmin(x, -1).tolist() == [0, 1]
    assert int(ops.argmax(x)) == 4
    assert ops.argmax(x, 0).tolist() == [1, 1, 1]
    assert isinstance(ops.argmax(x), np.ndarray)


def test_gradients_equal_differences():
    x = Tensor(np.random.default_rng(11).normal(size=(3, 4, 2)), requires_grad=True)
    for function in (ops.sum, ops.mean, ops.variance, ops.norm, ops.logsumexp, ops.amax, ops.amin):
        for axis in (None, 0, -1, (0, 2)):
            gradcheck(lambda x, f=function, a=axis: f(x, a), [x])
            gradcheck(lambda x, f=function, a=axis: f(x, a, keepdims=True), [x])
    gradcheck(lambda x: ops.variance(x, 1, correction=0), [x])
    gradcheck(lambda x: ops.cumsum(x, 1), [x])


def test_half_precision_traps():
    """Rows of the table of failures: what float16 gives, what accumulation in float32 repairs."""

    def narrow(function, values):
        with autocast("float16"):
            return function(Tensor(np.float16(values))).item()

    def repaired(function, values):
        with autocast(Policy("float16", reduction="float32")):
            return function(Tensor(np.float16(values))).item()

    for function, values, stalled, right in (
        (ops.sum, np.ones(4096), 2048, 4096),
        (ops.sum, np.full(10_000, 0.1), 256, 1000),
        (ops.mean, [40000] * 3, np.inf, 40000),
        (ops.norm, np.full(9, 100), np.inf, 300),
    ):
        assert narrow(function, values) == stalled
        assert repaired(function, values) == right
    with autocast("float16"):
        x = Tensor(np.float16([0.0, 0.0]), requires_grad=True)
        y = x / ops.norm(x)  # normalise without eps
    assert np.isnan(y.data).all()


def test_norm_of_zeros_has_no_slope():
    x = Tensor(np.zeros(3, np.float16), requires_grad=True)
    ops.norm(x).backward()
    same_bits(x.grad, np.zeros(3, np.float16))


def test_logsumexp_of_infinities():
    x = Tensor(np.float32([[-np.inf, -np.inf], [np.inf, 0.0], [1000.0, -1000.0]]))
    assert ops.logsumexp(x, 1).data.tolist() == [-np.inf, np.inf, 1000.0]


def test_policies_know_the_names():
    x = Tensor(np.float16([0.5, 1.0]))
    with autocast("mixed_float16"):
        for function in (ops.sum, ops.norm, ops.logsumexp, lambda x: ops.cumsum(x, 0)):
            assert function(x).dtype == np.float32
        for function in (ops.mean, ops.variance, ops.amax):
            assert function(x).dtype == np.float16
    # Variance computes in float32 inside: 256^2 is beyond float16, the variance is not.
    with autocast("mixed_float16"):
        assert ops.variance(Tensor(np.float16([-300.0, 300.0, 0, 0, 0, 0, 0, 0, 0]))).item() == 22496.0
    with autocast("float16"):
        assert ops.variance(Tensor(np.float16([-300.0, 300.0, 0, 0, 0, 0, 0, 0, 0]))).item() == np.inf


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: x.sum(2), r"sum over axis 2 of a tensor of shape \(2, 3\)"),
        (lambda x: x.mean((0, 0)), "name axes that it has, each once"),
        (lambda x: ops.variance(x[:, :1], 1), "variance of 1 terms with correction=1"),
        (lambda x: ops.cumsum(x, 2), "cumsum with axis 2"),
        (lambda x: ops.amax(x[:0], 0), "amax of no elements"),
        (lambda x: ops.logsumexp(x[:0]), "logsumexp of no elements"),
        (lambda x: ops.argmax(x, 2), "argmax with axis 2"),
        (lambda x: ops.argmin(x[:0]), "argmin of no elements"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message) as caught:
        call(Tensor(np.zeros((2, 3), np.float32)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["sum", "mean", "amax", "amin", "variance", "norm", "logsumexp"])
@pytest.mark.parametrize("axis", ["a", 0.5, True, [0], (0, 1.0)])
def test_an_axis_is_an_integer(name, axis):
    with pytest.raises(ValueError, match=r"over axis .* of a tensor of shape"):
        getattr(ops, name)(Tensor([[1.0, 2.0]]), axis)


@pytest.mark.parametrize("name", ["amax", "amin", "logsumexp", "sum", "mean", "norm"])
def test_no_rows_give_no_results(name):
    x = Tensor(np.zeros((0, 3), np.float16), requires_grad=True)
    y = getattr(ops, name)(x, 1)
    y.backward(np.zeros(0))
    assert (y.shape, x.grad.shape) == ((0,), (0, 3))
