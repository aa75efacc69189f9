"""The tape across backward passes: what is kept, freed, counted and handed out."""

import gc
import operator
import tracemalloc
import weakref

import numpy as np
import pytest

from fp16sim.autograd import ops
from fp16sim.autograd.backward import gradients, saved_bytes, tape_of
from fp16sim.autograd.policy import autocast
from fp16sim.autograd.tensor import Tensor, no_grad


def weight(*shape, dtype=np.float32, seed=0):
    return Tensor(np.random.default_rng(seed).normal(size=shape).astype(dtype), requires_grad=True)


# ---------------------------------------------------------------------------------------------------- graphs


def test_a_kept_graph_gives_the_same_bits_again():
    x = weight(5, 3)
    loss = ops.logsumexp(ops.exp(x) * x)
    loss.backward(retain_graph=True)
    first = x.grad.copy()
    x.grad = None
    loss.backward(retain_graph=True)
    assert x.grad.tobytes() == first.tobytes()
    loss.backward()
    same = np.float32([a + a for a in first.reshape(-1)]).reshape(first.shape)
    assert x.grad.tobytes() == same.tobytes()


def test_what_another_result_shares_is_freed_with_the_first():
    x = weight(2)
    middle = ops.exp(x)
    left, right = middle * 2.0, middle * 3.0
    left.backward([1.0, 1.0])
    with pytest.raises(
        RuntimeError, match=r"an operation \(exp\) that an earlier backward pass has freed"
    ) as caught:
        right.backward([1.0, 1.0])
    assert "\n" not in str(caught.value)
    assert "retain_graph=True" in str(caught.value)
    with pytest.raises(RuntimeError, match="freed"):
        gradients(right, [x], [1.0, 1.0])
    with pytest.raises(RuntimeError, match="freed"):
        saved_bytes(right)


def test_nothing_is_written_where_a_part_is_freed():
    x, y = weight(2), weight(2, seed=1)
    middle = ops.exp(x)
    middle.backward([1.0, 1.0])
    before = x.grad.copy()
    with pytest.raises(RuntimeError, match="freed"):
        (y * middle).backward([1.0, 1.0])
    assert y.grad is None
    assert x.grad.tobytes() == before.tobytes()


def test_gradients_keep_the_graph():
    x = weight(3)
    y = ops.exp(x)
    gradients(y, [x], np.ones(3))
    y.backward(np.ones(3))
    assert x.grad.tobytes() == y.data.tobytes()


def test_freeing_lets_the_arrays_go():
    x = weight(4)
    middle = ops.exp(x)
    kept = weakref.ref(middle)
    y = ops.sum(ops.exp(middle))
    del middle
    assert kept() is not None
    y.backward()
    gc.collect()
    assert kept() is None


def test_a_graph_that_no_backward_visits_is_dropped_without_the_collector():
    gc.disable()
    try:
        x = weight(4)
        y = ops.exp(x * 2.0)
        kept = weakref.ref(y)
        del y
        assert kept() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("depth", [5000])
def test_a_deep_graph_needs_no_recursion(depth):
    x = weight(1)
    y = x
    for _ in range(depth):
        y = y + 1.0
    y.backward([1.0])
    assert x.grad.tolist() == [1.0]
    del y  # nor does its end


# ---------------------------------------------------------------------------------------------------- double use


def test_a_node_that_is_used_twice_is_visited_once():
    x = weight(3)
    calls = []
    middle = ops.exp(x)
    middle.register_hook(lambda g: calls.append(g.copy()))
    (middle * middle + middle).backward(np.ones(3))
    assert len(calls) == 1
    # Descending creation order: the sum (1), then the product's two parts, in the order of its parents.
    m = middle.data
    assert calls[0].tobytes() == ((np.float32(1) + m) + m).tobytes()


@pytest.mark.parametrize("operation", [ops.add, ops.subtract, ops.multiply, ops.divide, ops.maximum])
def test_one_tensor_as_both_operands(operation):
    x, a, b = (Tensor(np.float64([1.5, -0.7]), requires_grad=True) for _ in range(3))
    operation(x, x).backward([1.0, 2.0])
    operation(a, b).backward([1.0, 2.0])
    assert x.grad.tobytes() == (a.grad + b.grad).tobytes()


def test_a_chain_of_reuse_doubles_each_time():
    x = Tensor([1.0], requires_grad=True)
    y = x
    for _ in range(20):
        y = y + y
    y.backward([1.0])
    assert x.grad.tolist() == [2.0**20]


# -------------------------------------------------------------------------------------------- what is handed out


def test_every_gradient_has_memory_of_its_own():
    a, b, c = weight(2, 2), weight(2, 2, seed=1), weight(2, 2, seed=2)
    seed = np.ones((2, 2), np.float32)
    (a + b - c.T).backward(seed)
    arrays = [seed, a.grad, b.grad, c.grad]
    for i, first in enumerate(arrays):
        assert first.flags.writeable
        for second in arrays[i + 1 :]:
            assert not np.shares_memory(first, second)
    a.grad *= 2
    assert b.grad.tolist() == seed.tolist() == [[1, 1], [1, 1]]


def test_the_gradient_of_a_sum_can_be_written_to():
    x = weight(3)
    ops.sum(x).backward()
    x.grad[0] = 5
    assert x.grad.tolist() == [5, 1, 1]


def test_a_first_gradient_is_a_copy_of_what_comes_later():
    x = weight(2)
    seed = np.float32([1, 2])
    (x + 0.0).backward(seed)
    seed[:] = 7
    (x + 0.0).backward(seed)
    assert x.grad.tolist() == [8, 9]


# ---------------------------------------------------------------------------------------------------- versions


@pytest.mark.parametrize(
    ("function", "needed"),
    [
        (lambda x: x * x, True),
        (lambda x: x / 2.0, True),
        (ops.log, True),
        (lambda x: x[0:1].T * 2.0, False),
        (ops.exp, False),  # its gradient needs the result alone
        (ops.sum, False),
        (lambda x: ops.getitem(x, [0, 0]), False),
        (lambda x: ops.reshape(x, (1, 2)) * ops.reshape(x, (1, 2)), False),  # see below
    ],
)
def test_replaced_data_is_refused_where_it_is_needed(function, needed):
    x = weight(2)
    y = function(x)
    expected = gradients(y, [x], np.ones(y.shape))[0]
    x.data = np.float32([5.0, 6.0])
    if needed:
        with pytest.raises(RuntimeError, match=r"shape \(2,\) was changed after .*: run backward first"):
            y.backward(np.ones(y.shape))
    else:  # the old array is still there: the tape holds it, and a view of it belongs to no tensor that changed
        y.backward(np.ones(y.shape))
        assert x.grad.tobytes() == expected.tobytes()


def test_in_place_operators_are_refused_and_change_nothing():
    x = weight(2)
    y = x * x
    for change in (operator.isub, operator.itruediv, operator.imatmul, operator.ipow):
        with pytest.raises(TypeError, match="does not change in place"):
            change(x, 2.0)
    with pytest.raises(ValueError, match="read-only"):
        x.data += 1
    y.backward(np.ones(2))
    assert x.grad.tobytes() == (x.data + x.data).tobytes()


# ---------------------------------------------------------------------------------------------------- bytes


def network(dtype):
    """A deep network of one format and the arrays it holds at the end of a forward pass."""
    x = Tensor(np.random.default_rng(3).normal(size=(64, 256)).astype(dtype))
    layers = [weight(256, 256, dtype=dtype, seed=i) for i in range(6)]
    biases = [weight(256, dtype=dtype, seed=i) for i in range(6)]

    def forward():
        y = x
        for w, b in zip(layers, biases, strict=True):
            y = ops.relu(ops.linear(y, w, b)) * 0.1
        return ops.mean(y)

    return forward


def test_half_precision_holds_half_the_bytes():
    single, half = (saved_bytes(network(dtype)()) for dtype in (np.float32, np.float16))
    assert single == 2 * half > 0


def test_half_precision_takes_half_the_memory():
    """As `tracemalloc` sees NumPy's allocations; the small objects of the tape are less than 5%."""
    held = {}
    for dtype in (np.float32, np.float16):
        forward = network(dtype)
        forward()  # tables and kernels are loaded
        gc.collect()
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            loss = forward()
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        held[dtype] = after - before
        assert held[dtype] >= saved_bytes(loss)
    assert held[np.float16] == pytest.approx(held[np.float32] / 2, rel=0.05)


def test_mixed_precision_holds_half():
    """Weights are float32 leaves, which are there anyway; neither they nor their float16 copies count."""

    def held(policy):
        y = Tensor(np.ones((256, 64), np.float32))
        with autocast(policy):
            for i in range(2):
                y = ops.relu(ops.linear(y, weight(64, 64, seed=i)))
            return saved_bytes(ops.mean(y))

    assert held("float32") == 2 * held("mixed_float16") > 0


def test_arrays_that_share_memory_count_once():
    x = weight(10)
    y = ops.exp(x)
    assert saved_bytes(y) == 40
    z = ops.exp(y)  # keeps its result
    assert saved_bytes(z) == 80
    assert saved_bytes(z * z.reshape(10)) == 80  # keeps the same one again, and a view of it


def test_no_tape_without_recording():
    x = weight(2)
    with no_grad():
        y = ops.exp(x)
    assert y.is_leaf
    assert not y.requires_grad
    z = Tensor([1.0]) * 2.0
    assert z.is_leaf
    assert len(tape_of(ops.exp(x) * z)) == 3
