"""Pooling: choices, roundings and gradients against scalar loops, what it refuses."""

import numpy as np
import pytest
from fp16sim_steps import EACH_FORMAT, drawn, same_bits

from fp16sim.autograd import ops
from fp16sim.autograd.backward import gradients, saved_bytes
from fp16sim.autograd.gradcheck import gradcheck
from fp16sim.autograd.policy import Policy, autocast
from fp16sim.autograd.tensor import Tensor

GEOMETRIES = [
    # kernel, stride, padding, dilation
    ((2, 2), (2, 2), (0, 0), (1, 1)),
    ((3, 3), (2, 2), (1, 1), (1, 1)),
    ((3, 2), (1, 1), (1, 0), (1, 2)),
    ((2, 3), (1, 3), (0, 1), (3, 1)),
    ((1, 1), (2, 3), (0, 0), (1, 1)),
    ((2, 3), (3, 2), (1, 2), (2, 2)),
]


def windows(size, kernel, stride, padding, dilation):
    """Give for each window, in C order, its places: indices of the input, or None for padding."""
    output = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True)
    ]
    found = {}
    for o in np.ndindex(*output):
        places = []
        for k in np.ndindex(*kernel):
            at = tuple(
                i * s + j * d - p for i, s, j, d, p in zip(o, stride, k, dilation, padding, strict=True)
            )
            places.append(at if all(0 <= i < n for i, n in zip(at, size, strict=True)) else None)
        found[o] = places
    return found


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("s", EACH_FORMAT)
def test_max_pool(s, geometry):
    x = drawn(1, (2, 1, 7, 6), s.dtype, odd=True)
    x[0, 0, 2:5] = np.array([0.0, -0.0, 2.0, 2.0, -np.inf, 0.0], s.dtype)  # many that are equal
    x[1, 0, :2, :3] = -np.inf
    tensor = Tensor(x, requires_grad=True)
    table = windows(x.shape[2:], *geometry)
    with autocast(s.policy):
        y = ops.max_pool(tensor, *geometry)
    g = drawn(2, y.shape, s.dtype, odd=True)
    expected, parts = np.zeros(y.shape, s.dtype), {index: [] for index in np.ndindex(x.shape)}
    for n in range(2):
        for o, places in table.items():
            chosen = None
            for at in places:
                if at is None:
                    continue
                new, old = x[(n, 0, *at)], None if chosen is None else x[(n, 0, *chosen)]
                if chosen is None or (not np.isnan(old) and (np.isnan(new) or new > old)):
                    chosen = at
            expected[(n, 0, *o)] = -np.inf if chosen is None else x[(n, 0, *chosen)]
            if chosen is not None:
                parts[(n, 0, *chosen)].append(g[(n, 0, *o)])
    same_bits(y.data, expected)
    right = np.array([s.sum(parts[index]) for index in np.ndindex(x.shape)], s.dtype).reshape(x.shape)
    same_bits(gradients(y, [tensor], g)[0], right)


@pytest.mark.parametrize("geometry", [g for g in GEOMETRIES if g[3] == (1, 1)])
@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("s", EACH_FORMAT)
def test_avg_pool(s, odd, geometry):
    x = drawn(1, (2, 2, 5, 6), s.dtype, odd)
    tensor, zero = Tensor(x, requires_grad=True), s.number(0.0)
    with autocast(s.policy):
        y = ops.avg_pool(tensor, *geometry[:3])
    g = drawn(2, y.shape, s.dtype, odd)
    count = s.number(float(np.prod(geometry[0])))
    expected, parts = np.zeros(y.shape, s.dtype), {index: [] for index in np.ndindex(x.shape)}
    for lead in np.ndindex(2, 2):
        for o, places in windows(x.shape[2:], *geometry).items():
            expected[lead + o] = s.mean([zero if at is None else x[lead + at] for at in places])
            for at in places:
                if at is not None:
                    parts[lead + at].append(s.divide(g[lead + o], count))
    same_bits(y.data, expected)
    right = np.array([s.sum(parts[index]) for index in np.ndindex(x.shape)], s.dtype).reshape(x.shape)
    same_bits(gradients(y, [tensor], g)[0], right)


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("s", EACH_FORMAT)
def test_adaptive_avg_pool(s, odd):
    x = drawn(1, (2, 3, 3, 4), s.dtype, odd)
    tensor = Tensor(x, requires_grad=True)
    with autocast(s.policy):
        y = ops.adaptive_avg_pool(tensor)
    same_bits(y.data[:, :, 0, 0], np.array([[s.mean(list(c.reshape(-1))) for c in n] for n in x], s.dtype))
    g = drawn(2, y.shape, s.dtype, odd)
    part = np.array([s.divide(v, s.number(12.0)) for v in g.reshape(-1)], s.dtype).reshape(g.shape)
    same_bits(gradients(y, [tensor], g)[0], np.broadcast_to(part, x.shape))


def test_overlaps_add_by_increasing_window():
    # 1 comes from the first window, 2^-11 from the two after it: 1 + 2^-11 + 2^-11 is 1 in that order.
    tensor = Tensor(np.float16([[[0, 0, 9, 0, 0]]]), requires_grad=True)
    y = ops.max_pool(tensor, 3, stride=1)
    with autocast("float16"):
        z = ops.max_pool(tensor, 3, stride=1)
    assert gradients(z, [tensor], np.float16([[[1, 2**-11, 2**-11]]]))[0][0, 0, 2] == 1
    assert gradients(z, [tensor], np.float16([[[2**-11, 2**-11, 1]]]))[0][0, 0, 2] == 1 + 2**-10
    assert gradients(y, [tensor], np.float16([[[1, 2**-11, 2**-11]]]))[0][0, 0, 2] == 1 + 2**-10


def test_avg_pool_overflows_where_its_sum_does():
    x = Tensor(np.full((1, 1, 3), 40000, np.float16))
    assert ops.avg_pool(x, 3).item() == 40000
    with autocast("float16"):
        assert ops.avg_pool(x, 3).item() == np.inf


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_gradients_in_float64(geometry):
    x = Tensor(np.random.default_rng(0).normal(size=(1, 2, 5, 6)), requires_grad=True)
    gradcheck(lambda x: ops.max_pool(x, *geometry), [x])
    if geometry[3] == (1, 1):
        gradcheck(lambda x: ops.avg_pool(x, *geometry[:3]), [x])
        gradcheck(lambda x: ops.adaptive_avg_pool(x, 1), [x])


def test_one_and_three_dimensions_and_no_batch():
    x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 2, 2)
    assert ops.max_pool(Tensor(x), (3, 1, 2)).shape == (1, 2, 1, 2, 1)
    assert ops.max_pool(Tensor(x[0]), (3, 1, 2)).data.ravel().tolist() == [9, 11, 21, 23]
    assert ops.avg_pool(Tensor(x.reshape(1, 2, 12)), 5).data.tolist() == [[[2, 7], [14, 19]]]


def test_a_choice_is_kept_in_one_byte():
    x = Tensor(np.zeros((2, 3, 8, 8), np.float16), requires_grad=True)
    assert saved_bytes(ops.max_pool(x, 2)) == 2 * 3 * 4 * 4
    assert saved_bytes(ops.max_pool(Tensor(np.zeros((1, 1, 300)), requires_grad=True), 300)) == 2


@pytest.mark.parametrize(
    ("shape", "arguments", "message"),
    [
        ((4, 4), (2,), r"max_pool with kernel_size=2 of shape \(4, 4\): pass \(batch, channels\)"),
        ((1, 1, 4, 4), ((2,),), "as many as kernel_size has entries"),
        ((1, 1, 4), (5,), "smaller than the kernel.*pad more"),
        ((1, 1, 4), (2.0,), "kernel_size=2.0: pass an integer"),
        ((1, 1, 4), (2, 0), r"stride=\(0,\): every entry must be at least 1"),
        ((1, 1, 4), (2, 1, (1, 1)), "padding.*one for each of 1 spatial axes"),
        ((1, 1, 4), (3, 1, 2), r"padding=2 and windows of \(3,\).*pad less"),
        ((1, 1, 4), (2, 1, 0, 0), r"dilation=\(0,\)"),
    ],
)
def test_refusals(shape, arguments, message):
    with pytest.raises(ValueError, match=message):
        ops.max_pool(Tensor(np.zeros(shape, np.float32)), *arguments)


def test_more_refusals():
    with pytest.raises(ValueError, match="avg_pool with padding=1 and windows of"):
        ops.avg_pool(Tensor(np.zeros((1, 1, 4), np.float32)), 1, 1, 1)
    with pytest.raises(ValueError, match="spatial axes that are not empty"):
        ops.adaptive_avg_pool(Tensor(np.zeros((1, 1, 0), np.float32)), 1)
    with pytest.raises(TypeError, match="layers and operations take tensors"):
        ops.max_pool(np.zeros((1, 1, 4)), 2)


def test_the_policy_says_how_means_accumulate():
    ones = Tensor(np.ones((1, 1, 4096), np.float16))
    for reduction, expected in (("float16", 0.5), ("float32", 1.0)):  # 4096 ones sum to 2048 in float16
        with autocast(Policy("float16", reduction=reduction)):
            assert ops.adaptive_avg_pool(ones, 1).item() == expected
            assert ops.avg_pool(ones, 4096).item() == expected
