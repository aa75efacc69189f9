"""Views and rearrangements: the values of NumPy's functions, gradients that come back, refusals."""

import ml_dtypes
import numpy as np
import pytest
from fp16sim_steps import same_bits

from fp16sim.autograd import ops
from fp16sim.autograd.gradcheck import gradcheck
from fp16sim.autograd.tensor import Tensor

CASES = {
    "reshape": (lambda x: ops.reshape(x, (4, 6)), lambda a: a.reshape(4, 6)),
    "reshape_free": (lambda x: x.reshape(-1, 3), lambda a: a.reshape(-1, 3)),
    "flatten": (ops.flatten, lambda a: a.reshape(-1)),
    "flatten_last": (lambda x: ops.flatten(x, 1), lambda a: a.reshape(2, 12)),
    "flatten_first": (lambda x: ops.flatten(x, 0, -2), lambda a: a.reshape(6, 4)),
    "expand": (lambda x: ops.expand_dims(x, 1), lambda a: np.expand_dims(a, 1)),
    "expand_last": (lambda x: ops.expand_dims(x, -1), lambda a: np.expand_dims(a, -1)),
    "squeeze": (lambda x: ops.squeeze(x.reshape(2, 1, 3, 1, 4)), lambda a: a),
    "squeeze_one": (lambda x: ops.squeeze(x.reshape(2, 1, 12), 1), lambda a: a.reshape(2, 12)),
    "squeeze_two": (lambda x: ops.squeeze(x.reshape(1, 24, 1), (0, -1)), lambda a: a.reshape(24)),
    "transpose": (lambda x: x.T, lambda a: a.T),
    "transpose_two": (lambda x: x.transpose(0, 2), lambda a: a.swapaxes(0, 2)),
    "transpose_tuple": (lambda x: x.transpose((1, 2, 0)), lambda a: a.transpose(1, 2, 0)),
    "transpose_order": (lambda x: x.transpose(1, -1, 0), lambda a: a.transpose(1, 2, 0)),
    "swapaxes": (lambda x: ops.swapaxes(x, 0, -1), lambda a: np.swapaxes(a, 0, -1)),
    "broadcast_to": (
        lambda x: ops.broadcast_to(ops.expand_dims(x, 1), (5, 2, 3, 3, 4)),
        lambda a: np.broadcast_to(a[:, None], (5, 2, 3, 3, 4)),
    ),
    "flip": (lambda x: ops.flip(x, 1), lambda a: a[:, ::-1]),
    "flip_two": (lambda x: ops.flip(x, (0, -1)), lambda a: a[::-1, :, ::-1]),
}


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_numpy(name, dtype):
    ours, theirs = CASES[name]
    values = np.arange(-12, 12).astype(dtype).reshape(2, 3, 4)
    values[0, 0, 0], values[1, 1, 1] = np.nan, -0.0
    found = ours(Tensor(values))
    same_bits(found.data, np.ascontiguousarray(theirs(values)))
    assert (found + found).shape == found.shape  # a view that operations take


@pytest.mark.parametrize("name", CASES)
def test_gradients_equal_differences(name):
    x = Tensor(np.random.default_rng(1).normal(size=(2, 3, 4)), requires_grad=True)
    gradcheck(CASES[name][0], [x])


def test_a_repeated_element_gets_a_sum_in_order():
    x = Tensor(np.float16([1.0]), requires_grad=True)
    ops.broadcast_to(x, (3,)).backward(np.float16([2048, 1, 1]))
    assert x.grad.tolist() == [2050]  # accumulated in float32 outside of a policy
    from fp16sim.autograd.policy import autocast

    x.grad = None
    with autocast("float16"):
        y = ops.broadcast_to(x, (3,))
    y.backward(np.float16([2048, 1, 1]))
    assert x.grad.tolist() == [2048]


def test_a_number_has_one_axis_when_flattened():
    assert ops.flatten(Tensor(3.0)).shape == (1,)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: x.reshape(4, 2), r"the 6 elements do not fit"),
        (lambda x: x.reshape(-1, 4), r"reshape of a tensor of shape \(2, 3\) to \(-1, 4\)"),
        (lambda x: x.reshape(-1, -1), "one of them may be -1"),
        (lambda x: x.reshape(-2, -3), "do not fit"),
        (lambda x: x.transpose(0, 2), r"axes are -2 to 1; name one of them"),
        (lambda x: x.permute(0, 0), "name each of its axes once"),
        (lambda x: x.transpose((0, 0)), "name each of its axes once"),
        (lambda x: ops.swapaxes(x, 0, 2), "swapaxes with axis 2"),
        (lambda x: ops.squeeze(x, 0), "its length must be 1"),
        (lambda x: ops.expand_dims(x, 4), "axes are -3 to 2"),
        (lambda x: ops.flip(x, -3), "flip with axis -3"),
        (lambda x: ops.flip(Tensor(1.0), 0), "there are no axes"),
        (lambda x: ops.flatten(x, 1, 0), "name the first first"),
        (lambda x: ops.broadcast_to(x, (3, 3)), "equal or 1 in the tensor"),
        (lambda x: ops.broadcast_to(x, (3,)), r"broadcast_to of a tensor of shape \(2, 3\) to \(3,\)"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message) as caught:
        call(Tensor(np.zeros((2, 3), np.float32)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("shape", [(2.0,), "ab", None, 2.0, [None]])
def test_a_shape_is_made_of_integers(shape):
    x = Tensor([1.0, 2.0])
    for call in (ops.reshape, ops.broadcast_to, Tensor.reshape):
        with pytest.raises(TypeError, match="a shape is a tuple of integers"):
            call(x, shape)
    assert x.reshape(np.int64(2)).shape == (2,)
