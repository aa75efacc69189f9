"""The tape: order of gradient sums, hooks, what is recorded, and the float32 walk back."""

import copy
import gc
import math
import operator
import pickle

import ml_dtypes
import numpy as np
import pytest

from fp16sim.autograd import ops
from fp16sim.autograd.backward import gradients
from fp16sim.autograd.policy import autocast
from fp16sim.autograd.tensor import Tensor, no_grad


def half(*values):
    return np.float16(values)


def test_gradients_meet_in_descending_creation_order_with_a_rounding_each():
    # 2048 + 1 + 1 depends on the order in binary16: (2048 + 1) + 1 = 2048, 2048 + (1 + 1) = 2050.
    for factors, expected in (((1, 1, 2048), 2048), ((2048, 1, 1), 2050)):
        x = Tensor(half(1), requires_grad=True)
        parts = [x * factor for factor in factors]  # parts[-1] is created last, so it comes back first
        first = ops.add(parts[0], parts[1])
        ops.add(first, parts[2]).backward(half(1))
        order = list(reversed(factors))
        total = np.float16(order[0])
        for factor in order[1:]:
            total = np.float16(total + np.float16(factor))
        assert x.grad[0] == total == expected


def test_the_order_of_use_in_later_operations_does_not_matter():
    """The parts meet by their own creation order, whichever way they are combined."""
    grads = []
    for combination in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        x = Tensor(half(1), requires_grad=True)
        parts = [x * factor for factor in (1, 1, 2048)]
        chosen = [parts[i] for i in combination]
        ops.add(ops.add(chosen[0], chosen[1]), chosen[2]).backward(half(1))
        grads.append(float(x.grad[0]))
    assert grads == [2048.0] * 3


def test_a_tensor_used_twice_by_one_operation():
    x = Tensor([3.0], requires_grad=True)
    ops.add(x, x).backward([1.0])
    assert x.grad.tolist() == [2]


def test_grad_accumulates_over_calls():
    x = Tensor([1.0], requires_grad=True)
    for _ in range(3):
        (x * 2).backward([1.0])
    assert x.grad.tolist() == [6]


def test_no_grad_records_nothing():
    x = Tensor([1.0], requires_grad=True)
    with no_grad():
        y = x * 2
    assert y.node is None
    assert not y.requires_grad
    assert (x * 2).requires_grad
    with pytest.raises(ValueError, match="requires_grad=True"):
        y.backward()


def test_hooks_see_complete_gradients_and_may_replace_them():
    x = Tensor([1.0], requires_grad=True)
    y = x * 2
    seen = []
    y.register_hook(lambda gradient: seen.append(gradient.tolist()))
    y.register_hook(lambda gradient: gradient * np.float32(10))
    remove = x.register_hook(lambda gradient: seen.append(gradient.tolist()))
    ops.add(y, y).backward([1.0], retain_graph=True)
    assert seen == [[2], [40]]
    remove()
    remove()
    ops.add(y, y).backward([1.0])
    assert seen == [[2], [40], [2]]
    assert x.grad.tolist() == [80]


def test_a_hook_keeps_shape_and_dtype():
    x = Tensor([1.0], requires_grad=True)
    x.register_hook(lambda gradient: gradient.astype(np.float64))
    with pytest.raises(ValueError, match="same shape and dtype"):
        (x * 2).backward([1.0])
    with pytest.raises(ValueError, match="requires_grad=True"):
        Tensor([1.0]).register_hook(lambda gradient: None)


def test_gradients_leave_grad_alone_and_give_none_for_strangers():
    x, y = Tensor([1.0], requires_grad=True), Tensor([1.0], requires_grad=True)
    middle = x * 2
    found = gradients(middle * 3, [x, middle, y], [1.0])
    assert [None if g is None else g.tolist() for g in found] == [[6], [3], None]
    assert x.grad is None


def test_pruning_changes_no_bit():
    rng = np.random.default_rng(0)
    x = Tensor(rng.normal(size=(4, 6)).astype(np.float16))
    w = [Tensor(rng.normal(size=(6, 6)).astype(np.float16), requires_grad=True) for _ in range(3)]
    with autocast("mixed_float16"):
        h1 = ops.relu(ops.matmul(x, w[0]))
        h2 = ops.relu(ops.matmul(h1, w[1]))
        out = ops.matmul(h2, w[2])
    seed = rng.normal(size=out.shape).astype(np.float16)
    everything = gradients(out, [*w, h1, h2], seed)
    for tensor, expected in zip([*w, h1, h2], everything, strict=True):
        (alone,) = gradients(out, [tensor], seed)
        assert alone.tobytes() == expected.tobytes()


def test_wide_gradients_keep_what_float16_flushes():
    x = Tensor(half(1), requires_grad=True)
    y = x * 2.0**-10
    z = y * 2.0**-14
    w = z * 2.0**-2
    (narrow,) = gradients(w, [x], half(1))
    (wide,) = gradients(w, [x], half(1), wide=True)
    assert narrow.tolist() == [0]
    assert wide.dtype == np.float32
    assert wide.tolist() == [2.0**-26]


def test_wide_gradients_equal_float32_ones_on_float32_tensors():
    rng = np.random.default_rng(1)
    w = Tensor(rng.normal(size=(5, 3)).astype(np.float32), requires_grad=True)
    loss = ops.cross_entropy(ops.matmul(Tensor(rng.normal(size=(4, 5)).astype(np.float32)), w), [0, 1, 2, 0])
    assert gradients(loss, [w])[0].tobytes() == gradients(loss, [w], wide=True)[0].tobytes()


def test_no_warning_and_no_cycle_on_overflow():
    x = Tensor(np.float32([3e38]), requires_grad=True)
    (x * 3e38).backward([3e38])
    assert x.grad.tolist() == [np.inf]
    del x
    gc.collect()
    assert not gc.garbage


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (np.float64([0.1]), np.float64),
        ([0.1], np.float32),
        (0.1, np.float32),
        (ml_dtypes.bfloat16(1), ml_dtypes.bfloat16),
        (np.arange(2), np.float32),
        ([1, 2], np.float32),
        (True, np.float32),
        (np.float16([1]), np.float16),
    ],
)
def test_dtypes(data, dtype):
    assert Tensor(data).dtype == dtype


@pytest.mark.parametrize("data", [1j, ["a"], [object()]])
def test_only_real_numbers(data):
    with pytest.raises(TypeError, match="real numbers"):
        Tensor(data)


def test_backward_checks_its_gradient():
    y = Tensor([1.0, 2.0], requires_grad=True) * 2
    with pytest.raises(ValueError, match="pass gradient="):
        y.backward()
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        y.backward([1, 2, 3])


def test_a_tensor_is_no_numpy_array():
    for take in (np.asarray, np.linalg.norm):
        with pytest.raises(TypeError, match=r"pass tensor\.data"):
            take(Tensor([1.0]))
    with pytest.raises(TypeError, match=r"x\.detach\(\)"):
        Tensor(Tensor([1.0]))
    for compute in (np.exp, np.sum):
        with pytest.raises(TypeError, match="Tensor"):
            compute(Tensor([1.0]))


def test_numpy_numbers_are_constants_on_either_side():
    x = Tensor([1.5], requires_grad=True)
    for product in (np.float64(2.0) * x, x * np.float32(2.0), 2 * x):
        assert isinstance(product, Tensor)
        assert product.data.tolist() == [3.0]


def test_an_operand_that_is_no_tensor_is_refused():
    x, array = Tensor([[1.0]]), np.ones((1, 1), np.float32)
    for compute in (lambda: x + array, lambda: array + x, lambda: x @ array, lambda: array @ x):
        with pytest.raises(TypeError, match=r"a ndarray: .* pass fs\.Tensor\(x\)"):
            compute()
    with pytest.raises(TypeError, match="is a list: "):
        ops.cast([1.0], "float16")


def test_nothing_changes_in_place():
    x = Tensor([1.0, 2.0])
    for change in (
        lambda: operator.iadd(x, 1.0),
        lambda: operator.imul(x, 2.0),
        lambda: operator.setitem(x, 0, 5.0),
    ):
        with pytest.raises(TypeError, match=r"does not change in place.*write x = x \+ y"):
            change()
    with pytest.raises(ValueError, match="read-only"):
        x.data[0] = 5.0
    assert x.data.tolist() == [1, 2]


def test_data_that_the_tape_needs_may_not_be_replaced_before_backward():
    x, w = Tensor([[1.0, 2.0]], requires_grad=True), Tensor([[3.0], [4.0]], requires_grad=True)
    y = x @ w
    w.data = np.float32([[5.0], [6.0]])
    with pytest.raises(
        RuntimeError, match=r"shape \(2, 1\) was changed after matmul used it.*backward first"
    ):
        y.backward()
    y = x + 1.0  # whose gradient needs no values
    x.data = np.float32([[0.0, 0.0]])
    y.backward([[1.0, 1.0]])
    assert x.grad.tolist() == [[1, 1]]


def test_a_second_backward_pass_needs_the_graph():
    x = Tensor([2.0], requires_grad=True)
    y = x * x
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [8]
    with pytest.raises(RuntimeError, match=r"multiply.*retain_graph=True"):
        y.backward()
    with pytest.raises(RuntimeError, match="freed"):
        (y + 1.0).backward()


def test_a_read_only_array_is_copied_and_a_writable_one_is_not():
    array = np.ones(3, np.float16)
    assert np.shares_memory(Tensor(array).data, array)
    array.flags.writeable = False
    assert not np.shares_memory(Tensor(array).data, array)


def test_a_dtype_that_is_asked_for_is_rounded_to_once():
    x = Tensor([1 + 2.0**-11 + 2.0**-30], dtype="float16")  # over float32 it would be a tie, and 1
    assert x.data.tolist() == [1 + 2.0**-10]
    with pytest.raises(ValueError, match="did you mean 'bfloat16'"):
        Tensor([1.0], dtype="bfloat61")


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_is_another_tensor_to_the_tape(duplicate):
    """Of one number, the two would share their gradients, and their conversions in a block of autocast."""
    first = Tensor([1.0, 2.0], requires_grad=True)
    second = duplicate(first)
    first.data, second.data = np.float32([3, 3]), np.float32([5, 5])
    with autocast("float16"):
        one, other = (ops.matmul(x.reshape(1, 2), Tensor([[1.0], [1.0]])) for x in (first, second))
    assert (one.item(), other.item()) == (6, 10)
    (first * 2.0 + second * 3.0).backward([1.0, 1.0])
    assert (first.grad.tolist(), second.grad.tolist()) == ([2, 2], [3, 3])


def test_a_copy_has_gradient_and_format_and_no_result_is_copied():
    x = Tensor(np.ones(2, ml_dtypes.bfloat16), requires_grad=True)
    (x * 2.0).backward([1.0, 1.0])
    again = copy.deepcopy(x)
    assert (again.dtype, again.requires_grad) == (x.dtype, True)
    assert again.grad.tolist() == [2, 2]
    assert again.grad is not x.grad
    with pytest.raises(TypeError, match="would lose its tape: copy"):
        copy.deepcopy(x * 2.0)


def test_a_hook_cannot_change_the_gradients_of_others():
    x, z = (Tensor([1.0], requires_grad=True) for _ in range(2))
    x.register_hook(lambda gradient: np.multiply(gradient, 2, out=gradient))
    with pytest.raises(ValueError, match="read-only"):
        (x + z).backward([1.0])
    y = Tensor([1.0, 2.0], requires_grad=True)
    y.register_hook(lambda gradient: gradient[::-1])
    y.register_hook(lambda gradient: gradient)
    (y * 1.0).backward([3.0, 4.0])
    y.grad += 1  # an array of its own
    assert y.grad.tolist() == [5, 4]
    y.register_hook(lambda gradient: gradient.tolist())
    with pytest.raises(TypeError, match="a hook gave a list: return an array, or None"):
        (y * 1.0).backward([3.0, 4.0])


@pytest.mark.parametrize("grad", [np.float64([1, 1]), np.float16([1, 1, 1, 1]), np.float32([1]), [1.0, 1.0]])
def test_a_grad_that_does_not_fit_is_not_added_to(grad):
    x = Tensor([1.0, 2.0], requires_grad=True)
    x.grad = grad
    with pytest.raises(
        ValueError, match=r"a gradient that is float32 of shape \(2,\) for a tensor whose grad is"
    ):
        (x * 2.0).backward([1.0, 1.0])


def test_a_result_keeps_its_shape_and_format():
    y = Tensor([1.0, 2.0], requires_grad=True) * 2.0
    for other in (np.float32([1]), np.float16([1, 2])):
        with pytest.raises(ValueError, match=r"for the result of an operation, float32 of shape \(2,\)"):
            y.data = other
    y.data = np.float32([5, 6])
    assert y.data.tolist() == [5, 6]


def test_masks_and_wider_floats_are_not_dropped_silently():
    with pytest.raises(TypeError, match="masked array: tensors have no mask"):
        Tensor(np.ma.array([1.0, 2.0], mask=[False, True]))
    if np.dtype(np.longdouble).itemsize > 8:
        with pytest.raises(TypeError, match="tensors hold real numbers; pass float16 or float32"):
            Tensor(np.ones(2, np.longdouble))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_large_integers_are_rounded_once(dtype):
    """Through binary64, 2^60 + 2^36 + 1 would be a tie of binary32, and go to the other neighbour."""
    ties = [2**60 + 2**36, 2**62 + 2**54, 2**60 + 3 * 2**36]
    numbers = [sign * (tie + step) for tie in ties for step in (-1, 0, 1) for sign in (-1, 1)]
    numbers += [2**63 - 1, -(2**63), 2**53 + 1, 0]
    digits = {"bfloat16": 8, "float32": 24, "float64": 53}[dtype]
    found = Tensor(np.array(numbers, np.int64), dtype=dtype).data.astype(np.float64)
    assert found.tolist() == [nearest(number, digits) for number in numbers]
    top = Tensor(np.array([2**64 - 1, 2**63 + 1], np.uint64), dtype=dtype).data.astype(np.float64)
    assert top.tolist() == [2.0**64, 2.0**63]


def nearest(number, digits):
    """Round an integer to a number of binary digits, ties to even, in integers."""
    shift = max(abs(number).bit_length() - digits, 0)
    whole, rest = divmod(abs(number), 1 << shift)
    up = 2 * rest > (1 << shift) or (2 * rest == (1 << shift) and whole % 2)
    return math.copysign((whole + bool(up)) << shift, number)


def test_the_item_of_several_is_refused():
    with pytest.raises(ValueError, match=r"item\(\) of a tensor of shape \(2,\): it takes one element"):
        Tensor([1.0, 2.0]).item()


@pytest.mark.parametrize("dtype", [None, 3, np.int32, "float8", object()])
def test_a_dtype_is_one_of_four(dtype):
    """To NumPy None is float64, to which a model would have been converted."""
    with pytest.raises(ValueError, match="tensors have one of these"):
        Tensor([1.0]).cast(dtype)


@pytest.mark.parametrize(
    "compare",
    [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.contains],
)
@pytest.mark.parametrize("other", [Tensor([1.0]), 1.0, np.float32(1), None])
def test_comparisons_are_refused(compare, other):
    with pytest.raises(TypeError, match=r"compare x\.data"):
        compare(Tensor([1.0]), other)


def test_comparisons_from_the_right_are_refused():
    with pytest.raises(TypeError, match=r"compare x\.data"):
        np.float32(1) == Tensor([1.0])  # noqa: B015
    with pytest.raises(TypeError, match=r"compare x\.data"):
        Tensor([1.0]) in [Tensor([1.0])]  # noqa: B015


def test_tensors_are_keys_by_identity():
    first, second = Tensor([1.0]), Tensor([1.0])
    places = {first: 0, second: 1}
    assert (places[first], places[second]) == (0, 1)
    assert first in [first, second]  # a list asks for identity first


@pytest.mark.parametrize("flag", ["no", None, 1, np.array([True, False])])
def test_requires_grad_is_true_or_false(flag):
    with pytest.raises(TypeError, match=r"requires_grad=.*pass True or False"):
        Tensor([1.0], requires_grad=flag)


def test_requires_grad_may_be_numpys():
    assert Tensor([1.0], requires_grad=np.bool_(True)).requires_grad is True


def test_a_hook_is_a_function():
    with pytest.raises(TypeError, match="a hook that is a NoneType: pass a function"):
        Tensor([1.0], requires_grad=True).register_hook(None)


def test_ragged_lists_are_refused():
    with pytest.raises(ValueError, match=r"a list whose parts have different lengths.*pad"):
        Tensor([[1.0, 2.0], [3.0]])
