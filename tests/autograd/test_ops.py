"""Every operation: its roundings against scalar loops, its gradient against float64 calculus."""

import numpy as np
import pytest

from fp16sim.autograd import ops
from fp16sim.autograd.backward import gradients
from fp16sim.autograd.policy import autocast
from fp16sim.autograd.tensor import Context, Tensor
from fp16sim.emulator import float32_functions

DTYPES = [np.float16, np.float32]


def bits(array):
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def same_bits(a, b):
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    np.testing.assert_array_equal(bits(a), bits(b))


def draw(seed, *shape, dtype=np.float32, spread=1.0):
    return (np.random.default_rng(seed).normal(size=shape) * spread).astype(dtype)


# NumPy's scalar float16 and float32 operators are correctly rounded, so loops over them define each result.


def scalar_matmul(a, b, accumulator):
    out = np.zeros((a.shape[0], b.shape[1]), a.dtype)
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            total = accumulator(0)
            for k in range(a.shape[1]):
                total = accumulator(total + accumulator(accumulator(a[i, k]) * accumulator(b[k, j])))
            out[i, j] = a.dtype.type(total)
    return out


def scalar_sum(values, accumulator):
    total = accumulator(0)
    for value in values:
        total = accumulator(total + accumulator(value))
    return values.dtype.type(total)


@pytest.mark.parametrize(
    ("policy", "dtype", "accumulator"),
    [
        ("float32", np.float32, np.float32),
        ("mixed_float16", np.float16, np.float32),
        ("float16", np.float16, np.float16),
    ],
)
class TestRoundings:
    def test_matmul_and_its_gradients(self, policy, dtype, accumulator):
        a, b, g = draw(1, 3, 9, dtype=dtype), draw(2, 9, 4, dtype=dtype), draw(3, 3, 4, dtype=dtype)
        left, right = Tensor(a, requires_grad=True), Tensor(b, requires_grad=True)
        with autocast(policy):
            product = ops.matmul(left, right)
        product.backward(g)
        same_bits(product.data, scalar_matmul(a, b, accumulator))
        same_bits(left.grad, scalar_matmul(g, b.T, accumulator))
        same_bits(right.grad, scalar_matmul(a.T, g, accumulator))

    def test_bias_gradient_is_a_sequential_sum(self, policy, dtype, accumulator):
        x, bias = draw(4, 40, 3, dtype=dtype), draw(5, 3, dtype=dtype)
        g = draw(6, 40, 3, dtype=dtype)
        parameter = Tensor(bias, requires_grad=True)
        with autocast(policy):
            total = ops.add(Tensor(x), parameter)
        total.backward(g)
        same_bits(total.data, x + bias)
        same_bits(parameter.grad, np.array([scalar_sum(g[:, j], accumulator) for j in range(3)]))

    def test_cross_entropy_step_by_step(self, policy, dtype, accumulator):
        if policy == "mixed_float16":
            dtype = np.float32  # losses compute in float32 there
        z = draw(7, 5, 4, dtype=dtype, spread=3)
        labels = np.array([0, 3, 1, 1, 2])
        logits = Tensor(z, requires_grad=True)
        with autocast(policy):
            loss = ops.cross_entropy(logits, labels)
        loss.backward()
        number = dtype

        def exp(x):
            if dtype is np.float32:
                return float32_functions.exp(np.float32(x))[()]
            return number(np.exp(np.float64(x)))  # far from a rounding boundary on these inputs

        def log(x):
            if dtype is np.float32:
                return float32_functions.log(np.float32(x))[()]
            return number(np.log(np.float64(x)))

        rows, expected = [], np.zeros_like(z)
        for i, label in enumerate(labels):
            shifted = np.array([number(value - z[i].max()) for value in z[i]])
            e = np.array([exp(value) for value in shifted], dtype)
            s = scalar_sum(e, accumulator)
            rows.append(number(log(s) - shifted[label]))
            for j in range(4):
                d = number(number(e[j] / s) - number(j == label))
                expected[i, j] = number(d * number(number(1) / number(5)))
        same_bits(loss.data, np.asarray(number(scalar_sum(np.array(rows, dtype), accumulator) / number(5))))
        same_bits(logits.grad, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_multiply_rounds_the_constant_then_the_product(dtype):
    x = draw(8, 50, dtype=dtype)
    tensor = Tensor(x, requires_grad=True)
    y = tensor * 0.1
    y.backward(x)
    same_bits(y.data, x * dtype(0.1))
    same_bits(tensor.grad, x * dtype(0.1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_relu_is_exact_and_keeps_nan(dtype):
    x = np.array([-1, -0.0, 0.0, 2, np.nan, np.inf, -np.inf], dtype)
    tensor = Tensor(x, requires_grad=True)
    y = ops.relu(tensor)
    y.backward(np.arange(1, 8, dtype=dtype))
    same_bits(y.data[:4], np.array([0, 0, 0, 2], dtype))
    assert np.isnan(y.data[4])
    assert y.data[5] == np.inf
    assert y.data[6] == 0
    assert tensor.grad.tolist() == [0, 0, 0, 4, 5, 6, 0]


def test_relu_gradient_drops_infinities_under_the_mask():
    tensor = Tensor(np.float16([-1, 1]), requires_grad=True)
    ops.relu(tensor).backward(np.float16([np.inf, np.inf]))
    assert tensor.grad.tolist() == [0, np.inf]


def test_cast_rounds_once_and_its_gradient_comes_back():
    tensor = Tensor(np.float32([1 + 2**-11, 70000, 2**-25]), requires_grad=True)
    narrow = ops.cast(tensor, "float16")
    narrow.backward(np.float16([1, 2, 3]))
    assert narrow.data.tolist() == [1, np.inf, 0]
    same_bits(tensor.grad, np.float32([1, 2, 3]))
    assert ops.cast(tensor, np.float32) is tensor


def test_shapes_come_back():
    tensor = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3), requires_grad=True)
    ops.reshape(ops.transpose(tensor), (6,)).backward(np.arange(6, dtype=np.float32))
    assert tensor.grad.tolist() == [[0, 2, 4], [1, 3, 5]]


def test_broadcast_gradients_sum_over_stretched_axes():
    a, b = Tensor(draw(1, 4, 1), requires_grad=True), Tensor(draw(2, 3, 1, 5), requires_grad=True)
    g = draw(3, 3, 4, 5)
    ops.add(a, b).backward(g)
    assert np.allclose(a.grad, g.astype(float).sum(axis=(0, 2))[:, None], rtol=1e-5)
    assert np.allclose(b.grad, g.astype(float).sum(axis=1, keepdims=True), rtol=1e-5)


# ------------------------------------------------------------------ gradients against float64 differences


def network(weight1, bias1, weight2, x, labels):
    """A two-layer network in float64, for central differences."""
    hidden = np.maximum(x @ weight1.T + bias1, 0)
    z = hidden @ weight2.T
    z = z - z.max(axis=1, keepdims=True)
    return (np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(labels)), labels]).mean()


def differences(function, arrays, step=1e-6):
    found = []
    for position, array in enumerate(arrays):
        slope = np.zeros_like(array)
        for index in np.ndindex(array.shape):
            values = []
            for sign in (1, -1):
                moved = [item.copy() for item in arrays]
                moved[position][index] += sign * step
                values.append(function(*moved))
            slope[index] = (values[0] - values[1]) / (2 * step)
        found.append(slope)
    return found


def worst_error(gradients_found, expected):
    return max(
        float(np.abs(found.astype(float) - slope).max() / np.abs(slope).max())
        for found, slope in zip(gradients_found, expected, strict=True)
    )


def our_gradients(arrays, x, labels):
    weight1, bias1, weight2 = (Tensor(array.astype(np.float32), requires_grad=True) for array in arrays)
    hidden = ops.relu(ops.add(ops.matmul(Tensor(x.astype(np.float32)), ops.transpose(weight1)), bias1))
    loss = ops.cross_entropy(ops.matmul(hidden, ops.transpose(weight2)), labels)
    return gradients(loss, [weight1, bias1, weight2])


def problem():
    arrays = [draw(10, 6, 5).astype(float), draw(11, 6).astype(float), draw(12, 3, 6).astype(float)]
    x, labels = draw(13, 7, 5).astype(float), np.array([0, 1, 2, 2, 1, 0, 1])
    return arrays, x, labels, differences(lambda *a: network(*a, x, labels), arrays)


def test_gradients_agree_with_central_differences():
    arrays, x, labels, expected = problem()
    assert worst_error(our_gradients(arrays, x, labels), expected) < 1e-5


def test_the_check_catches_a_wrong_gradient(monkeypatch):
    """Plant a rectifier that passes gradients through its mask."""
    arrays, x, labels, expected = problem()
    wrong = ops.Op("relu", ops._RELU.forward, lambda context, gradient: (gradient,))
    monkeypatch.setattr(ops, "_RELU", wrong)
    assert worst_error(our_gradients(arrays, x, labels), expected) > 1e-2


def test_the_table_has_every_operation_with_a_gradient_for_each_parent():
    assert set(ops.OPS) == {
        "add",
        "multiply",
        "matmul",
        "relu",
        "cast",
        "reshape",
        "transpose",
        "cross_entropy",
    }
    for name, op in ops.OPS.items():
        assert op.name == name
    context = Context(ops._arithmetic(), (np.ones((2, 2), np.float32),) * 2, (False, True))
    first, second = ops.OPS["matmul"].gradient(context, np.ones((2, 2), np.float32))
    assert first is None
    assert second.shape == (2, 2)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: ops.add(Tensor([1.0]), Tensor(np.float16([1]))), TypeError, "cast one"),
        (lambda: ops.add(Tensor([1.0, 2]), Tensor([1.0, 2, 3])), ValueError, "do not broadcast"),
        (lambda: ops.matmul(Tensor([[1.0]]), Tensor([1.0])), ValueError, "reshape first"),
        (lambda: ops.matmul(Tensor([[1.0]]), Tensor(np.float16([[1]]))), TypeError, "cast one"),
        (lambda: ops.cast(Tensor([1.0]), "float61"), ValueError, "did you mean 'float16'"),
        (lambda: ops.cross_entropy(Tensor([[1.0, 2]]), [2]), ValueError, "0 to 1"),
        (lambda: ops.cross_entropy(Tensor([[1.0, 2]]), [0, 1]), ValueError, "labels"),
        (lambda: ops.cross_entropy(Tensor([[1.0, 2]]), [0.5]), ValueError, "integers"),
    ],
)
def test_refusals(call, kind, message):
    with pytest.raises(kind, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
