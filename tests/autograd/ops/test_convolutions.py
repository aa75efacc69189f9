"""Convolution: its roundings and gradients against scalar loops, what it refuses."""

import numpy as np
import pytest
from fp16sim_steps import EACH_FORMAT, drawn, same_bits

from fp16sim.autograd import ops
from fp16sim.autograd.backward import gradients, saved_bytes
from fp16sim.autograd.gradcheck import gradcheck
from fp16sim.autograd.policy import Policy, autocast
from fp16sim.autograd.tensor import Tensor

STEPS = {"stride": 2, "padding": 1, "dilation": 1, "groups": 2}


def taps(x_shape, w_shape, stride, padding, dilation, groups):
    """Yield (output index, input index or None for padding, weight index) in the order of the sum."""
    n, _, length = x_shape
    outputs, share, kernel = w_shape
    places = (length + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    for i, o, p in np.ndindex(n, outputs, places):
        for c, k in np.ndindex(share, kernel):
            at = p * stride + k * dilation - padding
            channel = o // (outputs // groups) * share + c
            yield (i, o, p), ((i, channel, at) if 0 <= at < length else None), (o, c, k)


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("s", EACH_FORMAT)
def test_every_rounding_in_one_dimension(s, odd):
    x, w, b = (
        drawn(1, (2, 4, 5), s.dtype, odd),
        drawn(2, (4, 2, 3), s.dtype, odd, 0.5),
        drawn(3, (4,), s.dtype),
    )
    w[np.isnan(w)] = 1  # the infinity stays, and over padding gives NaN
    zero = s.number(0.0)
    tensors = [Tensor(a, requires_grad=True) for a in (x, w, b)]
    with autocast(s.policy):
        y = ops.convolution(*tensors, **STEPS)
    g = drawn(4, y.shape, s.dtype, odd)
    g[np.isnan(g)] = 2

    table = list(taps(x.shape, w.shape, **STEPS))
    expected = np.zeros(y.shape, s.dtype)
    for index in np.ndindex(y.shape):
        product = s.dot((zero if at is None else x[at], w[k]) for o, at, k in table if o == index)
        expected[index] = s.add(product, b[index[1]])
    same_bits(y.data, expected)

    # Weight: over (example, places), padding as +0.
    to_w = np.zeros(w.shape, s.dtype)
    for index in np.ndindex(w.shape):
        to_w[index] = s.dot((zero if at is None else x[at], g[o]) for o, at, k in table if k == index)
    # Input: over (output channel of the group, tap); where no window lies, +0 takes the place of G.
    to_x = np.zeros(x.shape, s.dtype)
    pairs = {(at, k): g[o] for o, at, k in table if at is not None}
    for index in np.ndindex(x.shape):
        group = index[1] // 2
        terms = [
            (pairs.get((index, (o, index[1] % 2, k)), zero), w[o, index[1] % 2, k])
            for o in range(2 * group, 2 * group + 2)
            for k in range(3)
        ]
        to_x[index] = s.dot(terms)
    to_b = np.array([s.sum(g[:, o].reshape(-1)) for o in range(4)], s.dtype)
    for found, right in zip(gradients(y, tensors, g), (to_x, to_w, to_b), strict=True):
        same_bits(found, right)


@pytest.mark.parametrize("shape", [(2, 4, 5), (4, 5)])
def test_gradients_in_float64(shape):
    rng = np.random.default_rng(0)
    x, w, b = (Tensor(rng.normal(size=s), requires_grad=True) for s in (shape, (4, 2, 3), (4,)))
    gradcheck(lambda x, w, b: ops.convolution(x, w, b, **STEPS), [x, w, b])


def test_gradients_in_float64_in_more_dimensions():
    rng = np.random.default_rng(0)
    x, w = (Tensor(rng.normal(size=s), requires_grad=True) for s in ((1, 2, 3, 4), (3, 2, 2, 3)))
    gradcheck(lambda x, w: ops.convolution(x, w, padding="same"), [x, w])
    x, w = (Tensor(rng.normal(size=s), requires_grad=True) for s in ((1, 1, 3, 2, 3), (2, 1, 2, 2, 1)))
    gradcheck(lambda x, w: ops.convolution(x, w, dilation=(2, 1, 1)), [x, w])


def test_forward_and_backward_have_datapaths_of_their_own():
    x, w = (Tensor(np.ones((1, 4096, 1), np.float16), requires_grad=True) for _ in range(2))
    for forward, backward in (("float16", "float32"), ("float32", "float16")):
        with autocast(Policy("float16", convolution=forward, gradients=backward)):
            y = ops.convolution(x, w)  # sums 4096 ones
            v = Tensor(np.ones((4096, 1, 1), np.float16))
            z = ops.convolution(Tensor(np.ones((1, 1, 1), np.float16), requires_grad=True), v)
        sums = {"float16": 2048, "float32": 4096}
        assert y.item() == sums[forward]
        to_input = gradients(z, [z.node.parents[0]], np.ones(z.shape))[0]  # sums over 4096 output channels
        assert to_input.item() == sums[backward]


def test_a_weight_gradient_stalls_in_float16():
    x = Tensor(np.ones((1, 1, 4096), np.float16))
    w = Tensor(np.ones((1, 1, 1), np.float16), requires_grad=True)
    found = {}
    for accumulator in ("float16", "float32"):
        with autocast(Policy("float16", gradients=accumulator)):
            found[accumulator] = gradients(ops.convolution(x, w), [w], np.ones(x.shape))[0].item()
    assert found == {"float16": 2048, "float32": 4096}


def test_mixed_policies_round_weight_and_bias_once():
    rng = np.random.default_rng(0)
    x, w, b = (
        Tensor(rng.normal(size=s).astype(np.float32), requires_grad=True)
        for s in ((2, 3, 6), (4, 3, 3), (4,))
    )
    with autocast("mixed_float16"):
        y = ops.convolution(x, w, b)
    half = [Tensor(a.data.astype(np.float16), requires_grad=True) for a in (x, w, b)]
    with autocast(Policy("float16", matmul="float32", reduction="float32")):
        z = ops.convolution(*half)
    same_bits(y.data, z.data)
    pairs = gradients(y, [x, w, b], np.ones(y.shape)), gradients(z, half, np.ones(z.shape))
    for wide, narrow in zip(*pairs, strict=True):
        same_bits(wide, narrow.astype(np.float32))
    assert saved_bytes(y) == 0  # rounded leaves and nothing else


@pytest.mark.parametrize(
    ("shapes", "options", "error", "message"),
    [
        (((1, 2, 5), (3, 2)), {}, ValueError, r"weight of shape \(3, 2\).*reshape it"),
        (((5,), (3, 2, 1)), {}, ValueError, r"input of shape \(5,\) with a weight of shape \(3, 2, 1\)"),
        (((1, 2, 5, 5, 5), (3, 2, 1)), {}, ValueError, "and 1 spatial ones"),
        (
            ((1, 3, 5), (3, 2, 1)),
            {},
            ValueError,
            "input with 3 channels.*reshape the weight or change groups",
        ),
        (
            ((1, 2, 5), (3, 2, 1), (2,)),
            {},
            ValueError,
            r"bias of shape \(2,\).*3 output channels; pass as many",
        ),
        (((1, 2, 2), (3, 2, 3)), {}, ValueError, "smaller than the kernel.*pad more"),
        (((1, 2, 5), (3, 2, 1)), {"stride": 0}, ValueError, "stride=.*at least 1"),
        (((1, 2, 5), (3, 2, 1)), {"padding": "sane"}, ValueError, "did you mean 'same'"),
        (((1, 2, 5), (3, 2, 1)), {"padding": (1, 1)}, ValueError, "one for each of 1 spatial axes"),
    ],
)
def test_refusals(shapes, options, error, message):
    x, w, *b = (Tensor(np.ones(shape, np.float32)) for shape in shapes)
    with pytest.raises(error, match=message):
        ops.convolution(x, w, *b, **options)


def test_formats_that_do_not_meet():
    x, w = Tensor(np.ones((1, 1, 3), np.float16)), Tensor(np.ones((1, 1, 2), np.float32))
    with pytest.raises(TypeError, match=r"convolution of float16 and float32.*convert one"):
        ops.convolution(x, w)
    with pytest.raises(TypeError, match=r"convolution of float32 and float16"):
        ops.convolution(x.cast("float32"), w, Tensor(np.ones(1, np.float16)))
