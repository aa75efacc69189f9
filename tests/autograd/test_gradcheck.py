"""The checker of gradients, and faults planted for it."""

import numpy as np
import pytest

from fp16sim.autograd import ops
from fp16sim.autograd.gradcheck import gradcheck
from fp16sim.autograd.operation import Op, run
from fp16sim.autograd.tensor import Tensor


def leaf(*values):
    return Tensor(np.float64(values), requires_grad=True)


def cubed(gradient):
    """x^3 with a gradient of one's own."""
    row = Op(
        "cubed",
        lambda arithmetic, a: (arithmetic.multiply(a, arithmetic.multiply(a, a)), (a,)),
        lambda context, g: (gradient(context, g, context.saved[0]),),
    )
    return lambda x: run(row, x)


def right(context, g, a):
    return g * (3 * a * a)


def test_a_right_gradient_passes():
    gradcheck(cubed(right), [leaf(1.0, -2.0, 0.0)])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda c, g, a: g * (3 * a * a) * (1 + 1e-5),
        lambda c, g, a: g * (3 * a),
        lambda c, g, a: -g * (3 * a * a),
        lambda c, g, a: g[::-1] * (3 * a * a),
        lambda c, g, a: 3 * a * a,
        lambda c, g, a: g * np.where(a < 0, np.nan, 3 * a * a),
        lambda c, g, a: np.zeros_like(g),
    ],
)
def test_a_wrong_gradient_is_caught(wrong):
    with pytest.raises(AssertionError, match="the gradient of input 0 at"):
        gradcheck(cubed(wrong), [leaf(1.0, -2.0, 0.5)])


def test_the_worst_element_is_named():
    def wrong(context, g, a):
        result = right(context, g, a)
        result[0, 1] += 1e-3
        result[1, 0] += 1.0
        return result

    with pytest.raises(AssertionError, match=r"input 0 at \(1, 0\) is .*: 2 of 4 elements differ"):
        gradcheck(cubed(wrong), [Tensor(np.float64([[1, 2], [3, 4]]), requires_grad=True)])


def test_errors_in_two_elements_do_not_cancel():
    """The plain sum of the results would hide these: what is wrong in one is missing in the other."""

    def swapped(context, g, a):
        return g[[1, 0]]

    row = Op("same", lambda arithmetic, a: (a.copy(), (a,)), lambda c, g: (swapped(c, g, c.saved[0]),))
    with pytest.raises(AssertionError, match="2 of 2 elements differ"):
        gradcheck(lambda x: run(row, x), [leaf(1.0, 2.0)])


def test_shape_and_dtype_are_checked():
    with pytest.raises(
        AssertionError, match=r"is float64 of shape \(1, 2\), the input float64 of shape \(2,\)"
    ):
        gradcheck(cubed(lambda c, g, a: right(c, g, a)[None]), [leaf(1.0, 2.0)])
    with pytest.raises(AssertionError, match="is float32 of shape"):
        gradcheck(cubed(lambda c, g, a: right(c, g, a).astype(np.float32)), [leaf(1.0, 2.0)])


def test_a_gradient_that_depends_on_what_else_is_wanted_is_caught():
    row = Op(
        "product",
        lambda arithmetic, a, b: (arithmetic.multiply(a, b), (a, b)),
        lambda c, g: (g * c.saved[1] * (1.0 if c.needs[1] else 2.0), g * c.saved[0]),
    )
    with pytest.raises(AssertionError, match="input 0 changes when it is the only one"):
        gradcheck(lambda a, b: run(row, a, b), [leaf(1.0), leaf(2.0)])


def test_an_input_without_a_part_in_the_result():
    with pytest.raises(AssertionError, match="does not depend on input 1"):
        gradcheck(lambda a, b: a * 2.0, [leaf(1.0), leaf(2.0)])


def test_inputs_that_the_function_finds_elsewhere():
    x, weight = leaf(1.0, 2.0), leaf(3.0)
    gradcheck(lambda *_: x * weight, [x, weight])
    assert x.data.tolist() == [1.0, 2.0]  # as before
    assert x.grad is None


def test_values_come_back_after_an_error():
    x = leaf(1.0)
    calls = []

    def fails(x):
        calls.append(1)
        if len(calls) > 1:
            raise RuntimeError("planted")
        return x * 2.0

    with pytest.raises(RuntimeError, match="planted"):
        gradcheck(fails, [x])
    assert x.data.tolist() == [1.0]


@pytest.mark.parametrize(
    ("function", "inputs", "kind", "message"),
    [
        (ops.exp, [Tensor([1.0], requires_grad=True)], ValueError, "pass float64 leaves"),
        (ops.exp, [Tensor(np.float64([1.0]))], ValueError, "input 0 of gradcheck"),
        (ops.exp, [leaf(1.0) * 2.0], ValueError, "pass float64 leaves"),
        (ops.exp, [np.float64([1.0])], TypeError, r"pass fs\.Tensor"),
        (lambda x: x.cast("float32"), [leaf(1.0)], ValueError, "float32 result"),
        (lambda x: x.data, [leaf(1.0)], TypeError, r"pass fs\.Tensor"),
    ],
)
def test_refusals(function, inputs, kind, message):
    with pytest.raises(kind, match=message) as caught:
        gradcheck(function, inputs)
    assert "\n" not in str(caught.value)
