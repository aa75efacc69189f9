"""Checkpointing: the same bits with and without, values that must not be drawn twice, nesting, hooks, policies."""

import gc
import weakref

import numpy as np
import pytest

from fp16sim.autograd import ops
from fp16sim.autograd.backward import gradients, saved_bytes
from fp16sim.autograd.checkpoint import checkpoint, remembered
from fp16sim.autograd.policy import Policy, autocast, current_policy
from fp16sim.autograd.tensor import Tensor, no_grad
from fp16sim.nn import Linear, Module
from fp16sim.nn.random import manual_seed
from fp16sim.optim import SGD
from fp16sim.training.fit import fit


def tensor(*shape, seed=0, dtype=np.float32, requires_grad=True):
    values = np.random.default_rng(seed).normal(size=shape).astype(dtype)
    return Tensor(values, requires_grad=requires_grad)


class Network:
    """Two blocks of two layers; each block may be checkpointed."""

    def __init__(self, policy="float32", dtype=np.float32):
        self.policy = policy
        self.x = tensor(8, 6, seed=1, dtype=dtype)
        self.weights = [tensor(6, 6, seed=2 + i, dtype=dtype) for i in range(4)]
        self.biases = [tensor(6, seed=6 + i, dtype=dtype) for i in range(4)]
        self.runs = 0

    def layer(self, x, i):
        return ops.relu(ops.linear(x, self.weights[i], self.biases[i]))

    def block(self, first):
        def run(x):
            self.runs += 1
            return self.layer(self.layer(x, first), first + 1)

        return run

    def loss(self, checkpointed, x=None):
        x = self.x if x is None else x
        with autocast(self.policy):
            for first in (0, 2):
                x = checkpoint(self.block(first), x) if checkpointed else self.block(first)(x)
            return ops.cross_entropy(x, [0, 1, 2, 3, 4, 5, 0, 1])

    def parameters(self):
        return [self.x, *self.weights, *self.biases]

    def gradients(self, checkpointed):
        loss = self.loss(checkpointed)
        for parameter in self.parameters():
            parameter.grad = None
        loss.backward()
        return [loss.data.tobytes(), *(parameter.grad.tobytes() for parameter in self.parameters())]


POLICIES = [
    "float32",
    "float16",
    "mixed_float16",
    "mixed_bfloat16",
    Policy("mixed_float16", matmul="h100", gradients="float16"),
    Policy("mixed_float16", flavour="keras"),
]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_the_same_bits_with_and_without(policy):
    network = Network(policy, np.float16 if policy == "float16" else np.float32)
    assert network.gradients(True) == network.gradients(False)


def test_a_block_runs_again_once():
    network = Network()
    loss = network.loss(True)
    assert network.runs == 2
    loss.backward()
    assert network.runs == 4


def test_without_recording_nothing_is_kept_and_nothing_runs_again():
    network = Network()
    with no_grad():
        loss = network.loss(True)
    assert loss.is_leaf
    assert loss.data.tobytes() == network.loss(False).data.tobytes()
    frozen = checkpoint(lambda x: x * 2.0, Tensor([1.0]))
    assert not frozen.requires_grad
    assert frozen.is_leaf


def test_fewer_bytes_are_held():
    network = Network()
    assert saved_bytes(network.loss(True)) < saved_bytes(network.loss(False)) / 2


def test_the_arrays_inside_a_block_are_let_go():
    kept = []

    def block(x):
        inner = ops.exp(x)
        kept.append(weakref.ref(inner))
        return ops.exp(inner)

    y = checkpoint(block, tensor(3))
    gc.collect()
    assert kept[0]() is None
    y.backward(np.ones(3))
    assert len(kept) == 2


# ---------------------------------------------------------------------------------------------------- remembered


class Dropout:
    """Masks that come from a counter, as a layer's do."""

    def __init__(self):
        self.counter = 0
        self.masks = []

    def next_counter(self):
        self.counter += 1
        return self.counter

    def __call__(self, x):
        count = remembered(self.next_counter)
        mask = np.random.default_rng(count).random(x.shape) < 0.5
        self.masks.append(mask)
        return ops.where(mask, x, 0.0) * 2.0


def test_a_repetition_finds_the_counters_of_the_first_pass():
    dropout = Dropout()
    w = tensor(20)

    def block(x):
        return dropout(ops.exp(dropout(x)) * w)

    x = tensor(20, seed=1)
    y = checkpoint(block, x)
    assert dropout.counter == 2
    dropout.counter = 100  # other batches come in between
    y.backward(np.ones(20))
    assert dropout.counter == 100
    first, second = dropout.masks[:2], dropout.masks[2:]
    assert all((a == b).all() for a, b in zip(first, second, strict=True))
    # Without checkpointing the same masks give the same bits.
    found = [x.grad.tobytes(), w.grad.tobytes()]
    x.grad = w.grad = None
    dropout.counter = 0
    block(x).backward(np.ones(20))
    assert [x.grad.tobytes(), w.grad.tobytes()] == found


def test_statistics_are_updated_once():
    updates = []

    def block(x):
        mean = remembered(lambda: updates.append(1) or float(x.data.flat[0]))
        return ops.exp(x - mean)

    y = checkpoint(block, tensor(3))
    gradients(y, [y], np.ones(3))
    y.backward(np.ones(3), retain_graph=True)
    y.backward(np.ones(3))
    assert updates == [1]


def test_outside_of_a_block_a_value_is_computed_each_time():
    calls = []
    for _ in range(2):
        remembered(lambda: calls.append(1))
    assert len(calls) == 2
    with no_grad():
        checkpoint(lambda x: remembered(lambda: calls.append(1)) or x, Tensor([1.0]))
    assert len(calls) == 3


# ---------------------------------------------------------------------------------------------------- nesting


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_blocks_nest(policy):
    network, dropout = Network(policy), Dropout()

    def inner(x):
        return dropout(network.block(0)(x))

    def outer(x, use):
        h = dropout(use(inner, x))
        return dropout(network.block(2)(h))

    def plain(function, *inputs):
        return function(*inputs)

    results = []
    for around, inside in (
        (plain, plain),
        (checkpoint, plain),
        (plain, checkpoint),
        (checkpoint, checkpoint),
    ):
        dropout.counter = 0
        for parameter in network.parameters():
            parameter.grad = None
        with autocast(policy):
            loss = ops.mean(around(lambda x, use=inside: outer(x, use), network.x))
        assert dropout.counter == 3
        loss.backward()
        assert dropout.counter == 3
        results.append([loss.data.tobytes(), *(p.grad.tobytes() for p in network.parameters())])
    assert results[1:] == results[:1] * 3


# ---------------------------------------------------------------------------------------------------- hooks


def test_hooks_of_parameters_and_inputs_run_once():
    x, w = tensor(3), tensor(3, seed=1)
    seen = {"x": [], "w": [], "inside": [], "result": []}
    x.register_hook(lambda g: seen["x"].append(g.copy()))
    w.register_hook(lambda g: seen["w"].append(g.copy()))

    def block(x):
        inner = x * w
        inner.register_hook(lambda g: seen["inside"].append(g.copy()))
        return ops.exp(inner)

    y = checkpoint(block, x)
    y.register_hook(lambda g: seen["result"].append(g.copy()))
    y.backward(np.ones(3))
    assert {name: len(calls) for name, calls in seen.items()} == dict.fromkeys(seen, 1)
    assert seen["x"][0].tobytes() == x.grad.tobytes()
    assert seen["w"][0].tobytes() == w.grad.tobytes()


def test_a_hook_that_replaces_a_gradient_acts_once():
    w, x = tensor(3), tensor(3, seed=1)
    w.register_hook(lambda g: g * np.float32(2))
    plain = ops.exp(x * w)
    plain.backward(np.ones(3))
    expected = w.grad.copy()
    w.grad = x.grad = None
    checkpoint(lambda x: ops.exp(x * w), x).backward(np.ones(3))
    assert w.grad.tobytes() == expected.tobytes()


def test_a_parameter_that_is_used_in_two_blocks_gets_both_parts():
    w = tensor(3)
    x = tensor(3, seed=1)

    def block(x):
        return ops.exp(x * w)

    block(block(x)).backward(np.ones(3))
    expected = [x.grad.tobytes(), w.grad.tobytes()]
    x.grad = w.grad = None
    checkpoint(block, checkpoint(block, x)).backward(np.ones(3))
    assert [x.grad.tobytes(), w.grad.tobytes()] == expected


# ---------------------------------------------------------------------------------------------------- policies


def test_the_policy_of_the_first_pass_holds_in_the_repetition():
    found = []

    def block(x):
        found.append(current_policy().name)
        return x @ x

    x = tensor(4, 4)
    with autocast("mixed_float16"):
        y = checkpoint(block, x)
    assert y.dtype == np.float16
    with autocast("float32"):
        y.backward(np.ones((4, 4)))
    assert found == ["mixed_float16"] * 2
    with autocast("mixed_float16"):
        z = x @ x
    expected = gradients(z, [x], np.ones((4, 4)))[0]
    assert x.grad.tobytes() == expected.tobytes()


def test_no_policy_in_the_first_pass_is_none_in_the_repetition():
    def block(x):
        return x.cast("float16") @ x.cast("float16") + x  # meets in float32: no policy converts

    x = tensor(2, 2)
    y = checkpoint(block, x)
    with autocast("float16"):
        y.backward(np.ones((2, 2)))
    expected = gradients(block(x), [x], np.ones((2, 2)))[0]
    assert x.grad.tobytes() == expected.tobytes()


@pytest.mark.parametrize("policy", ["float16", "mixed_float16"])
def test_wide_gradients_are_the_same_with_and_without(policy):
    network = Network(policy, np.float16 if policy == "float16" else np.float32)
    tensors = network.parameters()
    plain = gradients(network.loss(False), tensors, wide=True)
    found = gradients(network.loss(True), tensors, wide=True)
    assert {g.dtype for g in found} == {np.dtype(np.float32)}
    assert [g.tobytes() for g in found] == [g.tobytes() for g in plain]


def test_some_gradients_alone():
    network = Network()
    everything = gradients(network.loss(True), network.parameters())
    for parameter, expected in zip(network.parameters(), everything, strict=True):
        assert gradients(network.loss(True), [parameter])[0].tobytes() == expected.tobytes()


# ---------------------------------------------------------------------------------------------------- graphs


def test_a_graph_is_freed_or_kept_as_any_other():
    x = tensor(3)
    y = checkpoint(ops.exp, x)
    y.backward(np.ones(3), retain_graph=True)
    first = x.grad.copy()
    x.grad = None
    y.backward(np.ones(3))
    assert x.grad.tobytes() == first.tobytes()
    with pytest.raises(RuntimeError, match=r"\(checkpoint\).*freed"):
        y.backward(np.ones(3))


def test_replaced_data_is_refused():
    for change in (0, 1):
        x, w = tensor(3), tensor(3, seed=1)
        y = checkpoint(lambda x, w=w: x * w, x)
        (x, w)[change].data = np.zeros(3, np.float32)
        with pytest.raises(RuntimeError, match="was changed after checkpoint used it"):
            y.backward(np.ones(3))


def test_several_inputs_some_without_gradient():
    a, b, c = tensor(3), tensor(3, seed=1, requires_grad=False), tensor(3, seed=2)
    y = checkpoint(lambda a, b, c: a * b + c, a, b, c)
    y.backward(np.ones(3))
    assert a.grad.tobytes() == b.data.tobytes()
    assert b.grad is None
    assert c.grad.tolist() == [1, 1, 1]


def test_an_intermediate_result_as_input():
    x = tensor(3)
    ops.exp(x * 2.0).backward(np.ones(3))
    expected = x.grad.tobytes()
    x.grad = None
    checkpoint(ops.exp, x * 2.0).backward(np.ones(3))
    assert x.grad.tobytes() == expected


def test_refusals():
    with pytest.raises(TypeError, match=r"pass fs\.Tensor"):
        checkpoint(ops.exp, np.ones(3))


@pytest.mark.parametrize("function", [lambda x: (x, x), lambda x: None])
def test_a_block_gives_one_tensor(function):
    with pytest.raises(TypeError, match=r"a checkpointed function gave a .*: it gives one tensor"):
        checkpoint(function, Tensor([1.0], requires_grad=True))


def test_what_is_inside_a_block_is_not_measured_and_weights_are_the_same():
    class Net(Module):
        def __init__(self, block):
            self.first, self.second, self.block = Linear(2, 2), Linear(2, 2), block

        def forward(self, x):
            return self.second(self.block(lambda x: ops.relu(self.first(x)), x))

    def run(block, measure):
        manual_seed(0)
        model, data = Net(block), [(np.float32([[1.0, 2.0], [3.0, -1.0]]), [0, 1])]
        return fit(model, data, optimizer=SGD(model.parameters(), lr=0.5), steps=2, measure=measure)

    def through(part, x):
        return part(x)

    kept, again = run(through, False), run(checkpoint, False)
    assert kept.digest == again.digest
    measured, less = run(through, True), run(checkpoint, True)
    assert measured.digest != less.digest
    for run_ in (again, measured, less):
        for name, array in run_.model.state_dict().items():
            assert array.tobytes() == kept.model.state_dict()[name].tobytes()
