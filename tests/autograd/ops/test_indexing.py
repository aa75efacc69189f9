"""Parts of tensors and tensors made of parts."""

import numpy as np
import pytest
from fp16sim_steps import BFLOAT16, FLOAT16, FLOAT32, Steps, same_bits
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as arrays

from fp16sim.autograd import ops
from fp16sim.autograd.gradcheck import gradcheck
from fp16sim.autograd.policy import Policy, autocast
from fp16sim.autograd.tensor import Tensor

KEYS = [
    1,
    -1,
    (0, 2),
    slice(1, None),
    (slice(None, None, 2), -1),
    slice(None, None, -1),
    None,
    (..., None, 0),
    ...,
    [0, 1, 1],
    [-1, 1],
    np.array([[1, 0], [1, 1]]),
    (slice(None), [2, 0, 2]),
    ([0, 1, 1], [2, 2, 2]),
    ([0, 1, 1], slice(0, 2), [1, 1, 0]),
    (1, [0, 0]),
    np.arange(24).reshape(2, 3, 4) % 5 == 0,
    np.array([True, False]),
    ([True, False], [1, 1]),
    np.array([], int),
    np.int64(1),
]


def array(dtype, seed=1, shape=(2, 3, 4)):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32).astype(dtype)


@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16, FLOAT32], ids=str)
def test_values_and_gradients_of_indexing(key, dtype):
    values = array(dtype)
    x = Tensor(values, requires_grad=True)
    y = x[key]
    same_bits(y.data, np.asarray(values[key]))
    g = np.asarray(array(dtype, 2, y.shape))
    y.backward(g)
    # The gradients of each element, in the order of the result, summed in float32 and rounded once.
    places = np.asarray(np.arange(values.size).reshape(values.shape)[key])
    parts = [[] for _ in range(values.size)]
    for place, part in zip(places.reshape(-1), g.reshape(-1), strict=True):
        parts[place].append(part)
    sums = [Steps(dtype).sum(terms, FLOAT32) for terms in parts]
    same_bits(x.grad, np.array(sums, dtype).reshape(values.shape))


def test_an_empty_list_takes_nothing():
    x = Tensor(array(FLOAT16), requires_grad=True)
    y = x[[]]
    assert y.shape == (0, 3, 4)
    y.backward(np.zeros(y.shape))
    same_bits(x.grad, np.zeros(x.shape, np.float16))


@settings(derandomize=True, deadline=None, max_examples=40)
@given(data=st.data(), shape=arrays.array_shapes(max_dims=3, max_side=4))
def test_gradients_equal_differences_over_indices(data, shape):
    key = data.draw(
        st.one_of(
            arrays.basic_indices(shape, allow_newaxis=True),
            arrays.integer_array_indices(shape, result_shape=arrays.array_shapes(max_dims=2, max_side=3)),
        )
    )
    values = np.random.default_rng(3).normal(size=shape)
    x = Tensor(values, requires_grad=True)
    same_bits(x[key].data, np.asarray(values[key]))
    gradcheck(lambda x: x[key], [x])


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("float16", 2048.0), ("mixed_float16", 2050.0), (Policy("mixed_float16", reduction="float16"), 2048.0)],
    ids=str,
)
def test_gradients_of_repeated_indices_accumulate_as_the_reduction_says(policy, expected):
    x = Tensor(np.zeros(3, np.float16), requires_grad=True)
    with autocast(policy):
        y = x[[1, 1, 1, 2]]
    y.backward(np.float16([2048, 1, 1, 5]))
    assert x.grad.tolist() == [0, expected, 5]


def test_order_of_occurrence_decides():
    x = Tensor(np.zeros(1, np.float16), requires_grad=True)
    for seed, expected in (([1, 1, 2048], 2050.0), ([2048, 1, 1], 2048.0)):
        with autocast("float16"):
            y = x[[0, 0, 0]]
        x.grad = None
        y.backward(np.float16(seed))
        assert x.grad.tolist() == [expected]


def test_an_index_array_is_copied():
    key = np.array([0])
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = x[key]
    key[:] = 1
    y.backward([1.0])
    assert x.grad.tolist() == [1, 0]


def test_a_tensor_is_iterated_along_its_first_axis():
    x = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    first, second = x
    (first * second).backward([1.0, 1.0])
    assert x.grad.tolist() == [[3, 4], [1, 2]]


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16, FLOAT32], ids=str)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_joining(dtype, axis):
    parts = [array(dtype, seed, (2, 3)) for seed in range(3)]
    for function, theirs in ((ops.concatenate, np.concatenate), (ops.stack, np.stack)):
        tensors = [Tensor(part, requires_grad=True) for part in parts]
        joined = function(tensors, axis)
        same_bits(joined.data, theirs(parts, axis))
        joined.backward(joined.data.copy())
        for tensor, part in zip(tensors, parts, strict=True):
            same_bits(tensor.grad, part)


def test_joining_parts_of_different_lengths_and_formats():
    a, b = (
        Tensor(np.float16([[1.0]]), requires_grad=True),
        Tensor(np.float32([[2.0, 3.0]]), requires_grad=True),
    )
    joined = ops.concatenate([a, b], 1)
    assert joined.dtype == np.float32
    joined.backward(np.float32([[1 + 2**-12, 2, 3]]))
    same_bits(a.grad, np.float16([[1]]))
    same_bits(b.grad, np.float32([[2, 3]]))


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16, FLOAT32], ids=str)
def test_padding(dtype):
    values = array(dtype, 4, (2, 3))
    x = Tensor(values, requires_grad=True)
    y = ops.pad(x, [(1, 0), (0, 2)], 0.1)
    expected = np.full((3, 5), Steps(dtype).number(0.1))
    expected[1:, :3] = values
    same_bits(y.data, expected)
    y.backward(y.data.copy())
    same_bits(x.grad, values)


def test_gradients_equal_differences():
    rng = np.random.default_rng(5)
    a, b = (Tensor(rng.normal(size=(2, 3)), requires_grad=True) for _ in range(2))
    gradcheck(lambda a, b: ops.concatenate([a, b, a], 1), [a, b])
    gradcheck(lambda a, b: ops.stack([a, b, a], 1), [a, b])
    gradcheck(lambda a: ops.pad(a, [(1, 2), (0, 1)], 3.0), [a])


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda x: x[2], IndexError, r"an index into a tensor of shape \(2, 3\): index 2 is out of bounds"),
        (lambda x: x[[0, -3]], IndexError, "out of bounds"),
        (lambda x: x[0, 0, 0], IndexError, "too many indices"),
        (lambda x: x[0.5], TypeError, "an index that is a float: pass integers"),
        (lambda x: x[True], TypeError, "an index that is a bool"),
        (lambda x: x[[0.5]], TypeError, "an array of float64"),
        (lambda x: x[Tensor([1.0])], TypeError, "an index that is a Tensor"),
        (lambda x: x["a"], TypeError, "an index that is a str"),
        (lambda x: ops.concatenate([x, Tensor([[1.0]])]), ValueError, r"\(2, 3\) and \(1, 1\) along axis 0"),
        (lambda x: ops.concatenate([x, Tensor([1.0])]), ValueError, "all other lengths must be equal"),
        (lambda x: ops.concatenate(x), ValueError, "pass a list of tensors"),
        (lambda x: ops.concatenate([]), ValueError, "no tensors"),
        (lambda x: ops.concatenate([x, x], 2), ValueError, "concatenate with axis 2"),
        (lambda x: ops.concatenate([x, x.data]), TypeError, r"pass fs\.Tensor"),
        (lambda x: ops.stack([x, Tensor([1.0])]), ValueError, "all must be equal"),
        (lambda x: ops.stack([x, x], 3), ValueError, "stack with axis 3"),
        (lambda x: ops.pad(x, [(1, 1)]), ValueError, "for each of its 2 axes"),
        (lambda x: ops.pad(x, [(1, 1), (0, -1)]), ValueError, "neither negative"),
        (lambda x: ops.pad(x, [(0, 0), (0, 0)], "edge"), TypeError, "pad with a str"),
    ],
)
def test_refusals(call, kind, message):
    with pytest.raises(kind, match=message) as caught:
        call(Tensor(np.zeros((2, 3), np.float32)))
    assert "\n" not in str(caught.value)
