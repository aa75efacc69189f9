"""Normalisation: its roundings and gradients against scalar loops, what it refuses."""

import numpy as np
import pytest
from fp16sim_steps import EACH_FORMAT, drawn, same_bits

from fp16sim.autograd import ops
from fp16sim.autograd.backward import gradients, saved_bytes, tape_of
from fp16sim.autograd.gradcheck import gradcheck
from fp16sim.autograd.policy import Policy, autocast
from fp16sim.autograd.tensor import Tensor

EPS = 0.01


def root(s, variance, eps):
    return s.divide(s.number(1.0), s.sqrt(s.add(variance, s.number(eps))))


def standardised(s, terms, eps, centred=True):
    """Give n of some numbers, and r."""
    if centred:
        mean = s.mean(terms)
        terms = [s.subtract(x, mean) for x in terms]
    r = root(s, s.mean([s.multiply(d, d) for d in terms]), eps)
    return [s.multiply(d, r) for d in terms], r


def back(s, h, n, r, centred=True):
    """Give the gradient of the numbers from that of n."""
    c = s.mean([s.multiply(a, b) for a, b in zip(h, n, strict=True)])
    level = [s.subtract(a, s.mean(h)) for a in h] if centred else h
    return [s.multiply(s.subtract(a, s.multiply(b, c)), r) for a, b in zip(level, n, strict=True)]


def array(values, like):
    return np.array(values, like.dtype).reshape(like.shape)


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("s", EACH_FORMAT)
def test_over_the_last_axes(s, centred, odd):
    x, w, b = drawn(1, (3, 2, 5), s.dtype, odd), drawn(2, (2, 5), s.dtype), drawn(3, (2, 5), s.dtype)
    w[0, 0], b[0, 0] = -0.0, -0.0
    tensors = [Tensor(a, requires_grad=True) for a in ((x, w, b) if centred else (x, w))]
    with autocast(s.policy):
        if centred:
            y = ops.layer_norm(tensors[0], (2, 5), *tensors[1:], eps=EPS)
        else:
            y = ops.rms_norm(tensors[0], (2, 5), tensors[1], eps=EPS)
    g = drawn(4, y.shape, s.dtype, odd)
    result, to_x, n = [], [], []
    for row, grad in zip(x.reshape(3, 10), g.reshape(3, 10), strict=True):
        normal, r = standardised(s, list(row), EPS, centred)
        n.append(normal)
        scaled = [s.multiply(a, c) for a, c in zip(normal, w.reshape(-1), strict=True)]
        result += [s.add(a, c) for a, c in zip(scaled, b.reshape(-1), strict=True)] if centred else scaled
        h = [s.multiply(a, c) for a, c in zip(grad, w.reshape(-1), strict=True)]
        to_x += back(s, h, normal, r, centred)
    same_bits(y.data, array(result, x))
    columns = list(zip(*g.reshape(3, 10), strict=True))
    to_w = [s.sum(map(s.multiply, a, c)) for a, c in zip(columns, zip(*n, strict=True), strict=True)]
    expected = [array(to_x, x), array(to_w, w), array([s.sum(a) for a in columns], w)]
    for found, right in zip(gradients(y, tensors, g), expected, strict=False):
        same_bits(found, right)


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("s", EACH_FORMAT)
def test_over_groups(s, odd):
    x, w, b = drawn(1, (2, 4, 3), s.dtype, odd), drawn(2, (4,), s.dtype), drawn(3, (4,), s.dtype)
    tensors = [Tensor(a, requires_grad=True) for a in (x, w, b)]
    with autocast(s.policy):
        y = ops.group_norm(tensors[0], 2, *tensors[1:], eps=EPS)
    g = drawn(4, y.shape, s.dtype, odd)
    n, h, to_x, result = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    for index in np.ndindex(x.shape):
        h[index] = s.multiply(g[index], w[index[1]])
    for i, k in np.ndindex(2, 2):
        part = np.s_[i, 2 * k : 2 * k + 2]
        normal, r = standardised(s, list(x[part].reshape(-1)), EPS)
        n[part] = array(normal, x[part])
        to_x[part] = array(back(s, list(h[part].reshape(-1)), normal, r), x[part])
    for index in np.ndindex(x.shape):
        result[index] = s.add(s.multiply(n[index], w[index[1]]), b[index[1]])
    same_bits(y.data, result)
    found = gradients(y, tensors, g)
    same_bits(found[0], to_x)
    channels = [(list(g[:, c].reshape(-1)), list(n[:, c].reshape(-1))) for c in range(4)]
    same_bits(found[1], array([s.sum(map(s.multiply, a, m)) for a, m in channels], w))
    same_bits(found[2], array([s.sum(a) for a, _ in channels], b))


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("shape", [(3, 2, 2), (5, 2)])
@pytest.mark.parametrize("s", EACH_FORMAT)
def test_over_the_batch(s, shape, odd):
    x, w, b = drawn(1, shape, s.dtype, odd), drawn(2, (2,), s.dtype), drawn(3, (2,), s.dtype)
    tensors = [Tensor(a, requires_grad=True) for a in (x, w, b)]
    seen = []
    with autocast(s.policy):
        y = ops.batch_norm(*tensors, eps=EPS, observe=lambda *parts: seen.append(parts))
    g = drawn(4, y.shape, s.dtype, odd)
    result, to_x, to_w, to_b = np.zeros_like(x), np.zeros_like(x), [], []
    count = x.size // 2
    for c in range(2):
        terms, grad = list(x[:, c].reshape(-1)), list(g[:, c].reshape(-1))
        n, r = standardised(s, terms, EPS)
        result[:, c] = array([s.add(s.multiply(a, w[c]), b[c]) for a in n], x[:, c])
        total, along = s.sum(grad), s.sum(map(s.multiply, grad, n))
        a, u, f = s.divide(total, s.number(count)), s.divide(along, s.number(count)), s.multiply(r, w[c])
        level = [s.subtract(v, a) for v in grad]
        tilted = [s.subtract(v, s.multiply(m, u)) for v, m in zip(level, n, strict=True)]
        to_x[:, c] = array([s.multiply(v, f) for v in tilted], x[:, c])
        to_w.append(along)
        to_b.append(total)
        mean = s.mean(terms)
        squares = [s.multiply(d, d) for d in (s.subtract(v, mean) for v in terms)]
        same_bits(seen[0][0][c], mean)
        same_bits(seen[0][1][c], s.mean(squares))
    assert seen[0][2] == count
    same_bits(y.data, result)
    for found, right in zip(gradients(y, tensors, g), (to_x, array(to_w, w), array(to_b, b)), strict=True):
        same_bits(found, right)


@pytest.mark.parametrize("s", EACH_FORMAT)
def test_by_given_statistics(s):
    x, w, b = drawn(1, (3, 2, 4), s.dtype, True), drawn(2, (2,), s.dtype), drawn(3, (2,), s.dtype)
    mean, variance = np.float32([0.3, -1.7]), np.float32([0.9, 2.3])
    tensors = [Tensor(a, requires_grad=True) for a in (x, w, b)]
    with autocast(s.policy):
        y = ops.batch_norm(*tensors, statistics=(mean, variance), eps=EPS)
    g = drawn(4, y.shape, s.dtype)
    n, result, to_x = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    for index in np.ndindex(x.shape):
        c = index[1]
        r = root(s, s.number(variance[c]), EPS)
        n[index] = s.multiply(s.subtract(x[index], s.number(mean[c])), r)
        result[index] = s.add(s.multiply(n[index], w[c]), b[c])
        to_x[index] = s.multiply(g[index], s.multiply(r, w[c]))
    same_bits(y.data, result)
    found = gradients(y, tensors, g)
    same_bits(found[0], to_x)
    along = [s.sum(map(s.multiply, g[:, c].reshape(-1), n[:, c].reshape(-1))) for c in range(2)]
    same_bits(found[1], array(along, w))
    same_bits(found[2], array([s.sum(g[:, c].reshape(-1)) for c in range(2)], b))


def leaf(seed, *shape):
    return Tensor(np.random.default_rng(seed).normal(1, 1, size=shape), requires_grad=True)


def test_gradients_in_float64():
    x, w, b = leaf(0, 3, 4, 2), leaf(1, 4), leaf(2, 4)
    gradcheck(lambda x, w, b: ops.batch_norm(x, w, b), [x, w, b])
    gradcheck(lambda x: ops.batch_norm(x), [x])
    gradcheck(lambda x, w: ops.batch_norm(x, w, statistics=(np.ones(4), np.full(4, 2.0))), [x, w])
    gradcheck(lambda x, w, b: ops.group_norm(x, 2, w, b), [x, w, b])
    gradcheck(lambda x, b: ops.group_norm(x, 1, None, b), [x, b])
    w, b = leaf(1, 4, 2), leaf(2, 4, 2)
    gradcheck(lambda x, w, b: ops.layer_norm(x, (4, 2), w, b), [x, w, b])
    gradcheck(lambda x: ops.layer_norm(x, 2, eps=0.1), [x])
    gradcheck(lambda x, w: ops.rms_norm(x, (4, 2), w), [x, w])


def test_mixed_policies_compute_in_float32_and_round_back():
    x = np.random.default_rng(0).normal(3, 1, (4, 3, 5)).astype(np.float16)
    w, b = (np.random.default_rng(i).normal(size=3).astype(np.float32) for i in (1, 2))
    half = [Tensor(a, requires_grad=True) for a in (x, w, b)]
    full = [Tensor(a.astype(np.float32), requires_grad=True) for a in (x, w, b)]
    with autocast("mixed_float16"):
        y = ops.batch_norm(*half)
    z = ops.batch_norm(*full)
    same_bits(y.data, z.data.astype(np.float16))
    g = np.random.default_rng(3).normal(size=x.shape).astype(np.float16)
    mine, theirs = gradients(y, half, g), gradients(z, full, g)
    same_bits(mine[0], theirs[0].astype(np.float16))
    same_bits(mine[1], theirs[1])
    same_bits(mine[2], theirs[2])


@pytest.mark.parametrize("flavour", ["torch", "torch_cpu", "keras"])
@pytest.mark.parametrize("name", ["batch_norm", "rms_norm"])
def test_float16_activations_are_kept_in_float16(flavour, name):
    def kept(policy, dtype):
        source = Tensor(np.zeros((8, 16, 10), dtype), requires_grad=True)
        with autocast(policy):
            x = source * 2.0
            y = ops.batch_norm(x) if name == "batch_norm" else ops.rms_norm(x, (16, 10))
        assert {tensor.dtype for tensor in tape_of(y)} == {np.dtype(dtype)}  # nothing else is held either
        return saved_bytes(y)

    elements, statistics = 8 * 16 * 10, 200
    assert kept(Policy("mixed_float16", flavour=flavour), np.float16) <= 2 * elements + statistics
    assert kept("float16", np.float16) <= 2 * elements + statistics
    assert kept("float32", np.float32) >= 4 * elements


def test_a_wide_backward_pass_takes_the_rounded_forward():
    x = np.random.default_rng(0).normal(3, 1, (4, 6)).astype(np.float16)
    tensor = Tensor(x, requires_grad=True)
    with autocast("float16"):
        y = ops.layer_norm(tensor, 6)
    wide = gradients(y, [tensor], np.ones(x.shape) / 3 * np.arange(6), wide=True)[0]
    assert wide.dtype == np.float32
    # With the rounded n, m and r, in float32:
    s = EACH_FORMAT[1]
    g = (np.ones(x.shape) / 3 * np.arange(6)).astype(np.float32)
    for row, grad, found in zip(x, g, wide, strict=True):
        n, r = standardised(s, list(row), 1e-5)
        right = back(EACH_FORMAT[0], list(grad), [np.float32(a) for a in n], np.float32(r))
        same_bits(found, np.array(right, np.float32))


ONES = {n: Tensor(np.ones(n, np.float32)) for n in (2, 3)}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: ops.layer_norm(x, 4), r"layer_norm over \(4,\) of a tensor of shape \(2, 3\)"),
        (lambda x: ops.layer_norm(x, ()), r"layer_norm over \(\)"),
        (lambda x: ops.layer_norm(x, 3, ONES[2]), r"with a weight of shape \(2,\): pass one alike"),
        (lambda x: ops.rms_norm(x, (1, 3)), r"rms_norm over \(1, 3\) of a tensor of shape \(2, 3\)"),
        (lambda x: ops.layer_norm(x, 3, eps=-1.0), "eps=-1.0.*from 0 on"),
        (lambda x: ops.rms_norm(x, 3, eps=float("nan")), "eps=nan.*from 0 on"),
        (lambda x: ops.group_norm(x, 2), "3 channels in 2 groups.*choose a divisor"),
        (lambda x: ops.group_norm(x, 3, ONES[2]), r"3 channels with a weight of shape \(2,\)"),
        (lambda x: ops.batch_norm(x, ONES[3], ONES[2]), r"3 channels with a bias of shape \(2,\)"),
        (lambda x: ops.batch_norm(x, statistics=(np.ones(3), np.ones(1))), r"by statistics of shapes"),
        (lambda x: ops.batch_norm(x[0]), r"batch_norm of shape \(3,\): pass \(batch, channels\)"),
        (lambda x: ops.batch_norm(x[:1]), r"shape \(1, 3\): a single value of each channel has no variance"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call(Tensor(np.ones((2, 3), np.float32)))
