"""Every row of the table of operations: a gradient for each parent, each alone as with the others, right to 1e-6.

A row without an example here fails, and so does a checker that lets a wrong gradient pass: one is planted in every row,
for every parent.
"""

import importlib
import pkgutil
from dataclasses import replace

import numpy as np
import pytest

from fp16sim.autograd import ops
from fp16sim.autograd.backward import tape_of
from fp16sim.autograd.gradcheck import gradcheck
from fp16sim.autograd.operation import Op
from fp16sim.autograd.tensor import Context, Node, Tensor

LABELS = np.array([2, 0, 1])
MASK = np.array([[True, False, True, True], [False, True, True, False], [True] * 4])
SIGNS = Tensor(np.random.default_rng(0).choice([-1.0, 1.0], (3, 4)))


def recurrent():
    return importlib.import_module("fp16sim.autograd.ops.recurrent")


# A function and the shapes of its inputs, for every row.
EXAMPLES = {
    "absolute": (ops.absolute, (3, 4)),
    "adaptive_avg_pool": (lambda x: ops.adaptive_avg_pool(x, 2), (2, 3, 4, 5)),
    "add": (ops.add, (3, 4), (4,)),
    "amax": (lambda x: ops.amax(x, 1), (3, 4)),
    "amin": (lambda x: ops.amin(x, 1), (3, 4)),
    "avg_pool": (lambda x: ops.avg_pool(x, (2, 2), 1), (1, 2, 4, 5)),
    "batch_norm": (ops.batch_norm, (5, 3), (3,), (3,)),
    "bce_with_logits": (lambda x: ops.bce_with_logits(x, np.float64(MASK)), (3, 4)),
    "broadcast_to": (lambda x: ops.broadcast_to(x, (2, 3, 4)), (3, 1)),
    "clip": (lambda x: ops.clip(x, 0.9, 1.6), (3, 4)),
    "concatenate": (lambda a, b: ops.concatenate([a, b], 1), (3, 1), (3, 2)),
    "convolution": (lambda x, w, b: ops.convolution(x, w, b, padding=1), (1, 2, 4, 4), (3, 2, 3, 3), (3,)),
    "cos": (ops.cos, (3, 4)),
    "cross_entropy": (lambda x: ops.cross_entropy(x, LABELS, label_smoothing=0.1), (3, 4)),
    "cumsum": (lambda x: ops.cumsum(x, 1), (3, 4)),
    "divide": (ops.divide, (3, 4), (3, 1)),
    "dropout": (lambda x: ops.dropout(x, MASK, 0.25), (3, 4)),
    "embedding": (lambda w: ops.embedding([0, 2, 2], w), (3, 4)),
    "erf": (ops.erf, (3, 4)),
    "exp": (ops.exp, (3, 4)),
    "expm1": (ops.expm1, (3, 4)),
    "flip": (lambda x: ops.flip(x, 1), (3, 4)),
    "gelu": (ops.gelu, (3, 4)),
    "gelu_tanh": (lambda x: ops.gelu(x, "tanh"), (3, 4)),
    "getitem": (lambda x: x[1:, [0, 0, 2]], (3, 4)),
    "group_norm": (lambda x, w, b: ops.group_norm(x, 2, w, b), (3, 4, 2), (4,), (4,)),
    "gru": (lambda g, w, b, h: recurrent().gru(g, w, b, h), (2, 1, 6), (6, 2), (6,), (1, 2)),
    "lstm": (
        lambda g, w, b, h, c: recurrent().lstm(g, w, b, h, c),
        (2, 1, 8),
        (8, 2),
        (8,),
        (1, 2),
        (1, 2),
    ),
    "layer_norm": (lambda x, w, b: ops.layer_norm(x, 4, w, b), (3, 4), (4,), (4,)),
    "leaky_relu": (lambda x: ops.leaky_relu(x * SIGNS, 0.1), (3, 4)),
    "linear": (ops.linear, (3, 4), (5, 4), (5,)),
    "log": (ops.log, (3, 4)),
    "log1p": (ops.log1p, (3, 4)),
    "log_softmax": (ops.log_softmax, (3, 4)),
    "logsumexp": (lambda x: ops.logsumexp(x, 1), (3, 4)),
    "mask_scores": (lambda x: ops.softmax(ops.mask_scores(x, MASK)), (3, 4)),
    "matmul": (ops.matmul, (3, 4), (4, 2)),
    "max_pool": (lambda x: ops.max_pool(x, (2, 2), 1), (1, 2, 4, 5)),
    "maximum": (ops.maximum, (3, 4), (4,)),
    "mean": (lambda x: ops.mean(x, 1), (3, 4)),
    "merge_heads": (ops.merge_heads, (2, 2, 3, 4)),
    "minimum": (ops.minimum, (3, 4), (4,)),
    "mse_loss": (ops.mse_loss, (3, 4), (3, 4)),
    "mse_loss_of_numbers": (lambda x: ops.mse_loss(x, np.float64(MASK)), (3, 4)),
    "multiply": (ops.multiply, (3, 4), (3, 1)),
    "negative": (ops.negative, (3, 4)),
    "nll_loss": (lambda x: ops.nll_loss(ops.log_softmax(x), LABELS), (3, 4)),
    "norm": (lambda x: ops.norm(x, 1), (3, 4)),
    "pad": (lambda x: ops.pad(x, [(1, 0), (0, 2)]), (3, 4)),
    "power": (lambda x: x**-1.7, (3, 4)),
    "reciprocal": (ops.reciprocal, (3, 4)),
    "relu": (lambda x: ops.relu(x * SIGNS), (3, 4)),
    "reshape": (lambda x: ops.reshape(x, (2, 6)), (3, 4)),
    "rms_norm": (lambda x, w: ops.rms_norm(x, 4, w), (3, 4), (4,)),
    "rsqrt": (ops.rsqrt, (3, 4)),
    "scale": (lambda x: x * 3.0, (3, 4)),
    "sigmoid": (ops.sigmoid, (3, 4)),
    "silu": (ops.silu, (3, 4)),
    "sin": (ops.sin, (3, 4)),
    "softmax": (ops.softmax, (3, 4)),
    "softplus": (ops.softplus, (3, 4)),
    "split_heads": (lambda x: ops.split_heads(x, 2), (2, 3, 4)),
    "sqrt": (ops.sqrt, (3, 4)),
    "square": (ops.square, (3, 4)),
    "stack": (lambda a, b: ops.stack([a, b], 1), (3, 4), (3, 4)),
    "subtract": (ops.subtract, (3, 4), (4,)),
    "sum": (lambda x: ops.sum(x, 1), (3, 4)),
    "tanh": (ops.tanh, (3, 4)),
    "transpose": (lambda x: ops.transpose(x, (1, 0)), (3, 4)),
    "variance": (lambda x: ops.variance(x, 1), (3, 4)),
    "where": (lambda a, b: ops.where(MASK, a, b), (3, 4), (4,)),
}


def rows():
    """Give every row, by the module and the name that hold it."""
    found = {}
    for info in pkgutil.iter_modules(ops.__path__):
        module = importlib.import_module(f"fp16sim.autograd.ops.{info.name}")
        found |= {id(row): (module, name, row) for name, row in vars(module).items() if isinstance(row, Op)}
    return found


ROWS = rows()


def inputs(name):
    rng = np.random.default_rng(1)
    return [Tensor(rng.uniform(0.5, 2.0, shape), requires_grad=True) for shape in EXAMPLES[name][1:]]


def nodes_of(name):
    tape = tape_of(EXAMPLES[name][0](*inputs(name)))
    return [tensor for tensor in tape if isinstance(tensor.node, Node)]


def test_every_row_has_an_example():
    reached = {id(tensor.node.op) for name in EXAMPLES for tensor in nodes_of(name)}
    missing = [f"{module.__name__}.{row}" for key, (module, row, _) in ROWS.items() if key not in reached]
    assert missing == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_gradients_equal_differences(name):
    gradcheck(EXAMPLES[name][0], inputs(name))


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_parent_that_wants_a_gradient_gets_one(name):
    """The products, where it counts, compute no gradient that nobody wants."""
    for tensor in nodes_of(name):
        node = tensor.node
        g = np.ones(tensor.shape)
        for wanted in range(len(node.parents)):
            needs = tuple(i == wanted for i in range(len(node.parents)))
            parts = node.op.gradient(Context(node.context.arithmetic, node.context.saved, needs), g)
            assert len(parts) == len(node.parents)
            assert parts[wanted].shape == node.parents[wanted].shape
            assert parts[wanted].dtype == np.float64
            if node.op.name in ("matmul", "linear", "convolution", "multiply"):
                assert all(part is None for i, part in enumerate(parts) if i != wanted), "work for nobody"


def planted(row, which):
    """Make a row whose gradient for one parent is a thousandth too large."""

    def gradient(context, g):
        parts = list(row.gradient(context, g))
        if parts[which] is not None:
            parts[which] = parts[which] * 1.001
        return tuple(parts)

    return replace(row, gradient=gradient)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_wrong_gradient_is_caught(name, monkeypatch):
    nodes = {id(tensor.node.op): tensor.node.context.needs for tensor in nodes_of(name)}
    for key, needs in nodes.items():
        if key not in ROWS:  # a cast, which is no row of these modules
            continue
        module, place, row = ROWS[key]
        for which in (i for i, needed in enumerate(needs) if needed):
            monkeypatch.setattr(module, place, planted(row, which))
            with pytest.raises(AssertionError, match="the difference quotient"):
                gradcheck(EXAMPLES[name][0], inputs(name))
        monkeypatch.setattr(module, place, row)
