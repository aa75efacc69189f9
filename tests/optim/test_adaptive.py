"""Adam, AdamW and RMSprop: every rounding in its documented order, against scalars by the definition."""

import math

import numpy as np
import pytest
from fp16sim_steps import FLOAT16, FLOAT32, NARROW_AND_SINGLE, Steps, same_bits

from fp16sim.autograd.tensor import Tensor
from fp16sim.optim import Adam, AdamW, RMSprop

COUNT, STEPS = 6, 4


def product(base, count):
    value = 1.0
    for _ in range(count):
        value *= base
    return value


def decayed_gradient(m, w, g, decay):
    return m.add(g, m.multiply(m.number(decay), w)) if decay else g


def average(m, a, g, decay):
    c, difference = m.number(1.0 - decay), m.subtract(g, a)
    if c < 0.5:
        return m.add(a, m.multiply(c, difference))
    return m.subtract(g, m.multiply(difference, m.subtract(m.number(1.0), c)))


def average_of_squares(m, v, g, decay):
    square = m.multiply(m.multiply(m.number(1.0 - decay), g), g)
    return m.add(m.multiply(m.number(decay), v), square)


def adam(m, w, gradients, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, apart=False):
    a = v = m.number(0.0)
    for t, g in enumerate(gradients, 1):
        g = m.rounded(g)
        if apart:
            w = m.multiply(m.number(1.0 - lr * weight_decay), w)
        else:
            g = decayed_gradient(m, w, g, weight_decay)
        a, v = average(m, a, g, betas[0]), average_of_squares(m, v, g, betas[1])
        correction = m.number(math.sqrt(1.0 - product(betas[1], t)))
        d = m.add(m.divide(m.sqrt(v), correction), m.number(eps))
        size = m.number(lr / (1.0 - product(betas[0], t)))
        w = m.subtract(w, m.divide(m.multiply(size, a), d))
        yield w, a, v


def rmsprop(m, w, gradients, lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0.0, momentum=0.0, centered=False):
    a = v = b = m.number(0.0)
    for g in gradients:
        g = decayed_gradient(m, w, m.rounded(g), weight_decay)
        v = average_of_squares(m, v, g, alpha)
        inner = v
        if centered:
            a = average(m, a, g, alpha)
            inner = m.subtract(v, m.multiply(a, a))
        d = m.add(m.sqrt(inner), m.number(eps))
        if momentum:
            b = m.add(m.multiply(m.number(momentum), b), m.divide(g, d))
            w = m.subtract(w, m.multiply(m.number(lr), b))
        else:
            w = m.subtract(w, m.divide(m.multiply(m.number(lr), g), d))
        yield w, a if centered else None, v


CASES = [
    (Adam, adam, {"lr": 0.01}),
    (Adam, adam, {"lr": 0.3, "betas": (0.5, 0.75), "eps": 1e-3, "weight_decay": 0.1}),
    (Adam, adam, {"betas": (0.0, 0.0)}),
    (AdamW, adam, {"lr": 0.01, "weight_decay": 0.5}),
    (AdamW, adam, {"lr": 0.01, "weight_decay": 0.0, "betas": (0.3, 0.9)}),
    (RMSprop, rmsprop, {}),
    (RMSprop, rmsprop, {"alpha": 0.4, "centered": True, "weight_decay": 0.1}),
    (RMSprop, rmsprop, {"lr": 0.1, "alpha": 0.9, "eps": 1e-3, "momentum": 0.9, "centered": True}),
]


@pytest.mark.parametrize("dtype", NARROW_AND_SINGLE, ids=str)
@pytest.mark.parametrize("case", range(len(CASES)))
def test_every_step_against_scalars(case, dtype):
    kind, walk, options = CASES[case]
    rng = np.random.default_rng(case)
    start = rng.normal(size=COUNT).astype(np.float32).astype(dtype)
    gradients = (rng.normal(size=(STEPS, COUNT)) * 2.0 ** rng.integers(-9, 3, COUNT)).astype(np.float32)
    gradients[:, 0] = 0.0
    gradients[1, 1] = np.inf
    more = {"apart": True} if kind is AdamW else {}
    paths = [list(walk(Steps(dtype), start[i], gradients[:, i], **options, **more)) for i in range(COUNT)]
    parameter = Tensor(start.copy(), requires_grad=True)
    optimizer = kind([parameter], **options)
    for t in range(STEPS):
        optimizer.step([gradients[t]])
        w, a, v = zip(*(path[t] for path in paths), strict=True)
        same_bits(parameter.data, np.array(w, dtype))
        same_bits(optimizer.second[0], np.array(v, dtype))
        if a[0] is not None:
            same_bits(optimizer.first[0], np.array(a, dtype))


def test_a_wrong_order_is_noticed():
    """v from R(g g) R(1 - b2), as the paper writes it, is another number."""
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(1, 50)).astype(np.float32)
    optimizer = Adam([Tensor(np.zeros(50, np.float32), requires_grad=True)])
    optimizer.step(gradients)
    other = np.float32(1.0 - 0.999) * (gradients[0] * gradients[0])
    assert not np.array_equal(optimizer.second[0], other)
    np.testing.assert_array_almost_equal_nulp(optimizer.second[0], other, 2)


def test_a_first_step_of_adam_is_the_learning_rate_whatever_the_gradient():
    parameter = Tensor(np.zeros(3, np.float32), requires_grad=True)
    Adam([parameter], lr=0.5).step([np.float32([1e-6, -1.0, 1e6])])
    # v, of squares from 1e-12 to 1e12, is far from both ends of binary32; eps is 1% of 1e-6.
    assert parameter.data == pytest.approx([-0.495, 0.5, -0.5], rel=1e-3)


def test_a_parameter_without_gradient_keeps_its_step_count():
    first, second = (Tensor(np.ones(2, np.float32), requires_grad=True) for _ in range(2))
    optimizer = Adam([first, second])
    g = np.float32([1.0, -2.0])
    optimizer.step([g, None])
    optimizer.step([g, g])
    assert optimizer.steps == [2, 1]
    alone = Tensor(np.ones(2, np.float32), requires_grad=True)
    Adam([alone]).step([g])
    same_bits(second.data, alone.data)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda p: Adam(p), "Adam(1 parameter, lr=0.001, betas=(0.9, 0.999), eps=1e-08)"),
        (
            lambda p: AdamW(p),
            "AdamW(1 parameter, lr=0.001, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.01)",
        ),
        (
            lambda p: RMSprop(p, momentum=0.9, centered=True),
            "RMSprop(1 parameter, lr=0.01, alpha=0.99, eps=1e-08, momentum=0.9, centered=True)",
        ),
    ],
)
def test_what_it_prints_as(make, text):
    assert repr(make([Tensor([1.0], requires_grad=True)])) == text


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (Adam, {"lr": -1.0}, "lr=-1.0: a learning rate"),
        (Adam, {"betas": (0.9, 1.0)}, r"beta2=1.0: .* lies in \[0, 1\)"),
        (Adam, {"betas": (-0.1, 0.9)}, "beta1=-0.1"),
        (AdamW, {"eps": -1e-8}, "eps=-1e-08"),
        (AdamW, {"weight_decay": math.inf}, "weight_decay=inf"),
        (RMSprop, {"alpha": 1.5}, "alpha=1.5"),
        (RMSprop, {"momentum": 1.0}, "momentum=1.0"),
        (RMSprop, {"eps": math.nan}, "eps=nan"),
        (RMSprop, {"weight_decay": -1.0}, "weight_decay=-1.0"),
    ],
)
def test_refusals(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind([Tensor([1.0], requires_grad=True)], **options)


# ------------------------------------------------------------------- what float16 without master weights does to them


def moved(make, gradient, dtype, weight=0.0, steps=1):
    parameter = Tensor(np.array([weight], dtype), requires_grad=True)
    optimizer = make([parameter])
    for _ in range(steps):
        optimizer.step([np.float32([gradient])])
    return parameter.item(), optimizer


def test_adam_without_eps_divides_by_zero():
    """eps 1e-8 is 0 in float16, and so is the square of 1e-4: the step is infinite, and right is the rate."""
    narrow, optimizer = moved(lambda p: Adam(p, lr=1.0), 1e-4, FLOAT16)
    assert optimizer.second[0].tolist() == [0.0]
    assert narrow == -math.inf
    assert moved(lambda p: Adam(p, lr=1.0), 1e-4, FLOAT32)[0] == pytest.approx(-1.0, rel=1e-3)
    # No gradient at all is 0/0. An eps that float16 has does not help v, but bounds the step.
    assert math.isnan(moved(lambda p: Adam(p, lr=1.0), 0.0, FLOAT16)[0])
    assert moved(lambda p: Adam(p, lr=1.0), 0.0, FLOAT32)[0] == 0.0
    assert math.isfinite(moved(lambda p: Adam(p, lr=1.0, eps=1e-4), 1e-4, FLOAT16)[0])


def test_rmsprop_without_eps_divides_by_zero():
    assert moved(lambda p: RMSprop(p, lr=1.0), 1e-4, FLOAT16)[0] == -math.inf
    assert moved(lambda p: RMSprop(p, lr=1.0), 1e-4, FLOAT32)[0] == pytest.approx(-10.0, rel=2e-3)


def test_betas_in_float16():
    """.999 is .99902 and .9999 is 1: with it the average of squares forgets nothing."""
    assert [float(np.float16(beta)) for beta in (0.999, 0.9999)] == [0.9990234375, 1.0]
    after = {}
    for dtype in (FLOAT16, FLOAT32):
        parameter = Tensor(np.zeros(1, dtype), requires_grad=True)
        optimizer = Adam([parameter], betas=(0.9, 0.9999))
        optimizer.step([np.float32([64.0])])
        for _ in range(2000):
            optimizer.step([np.float32([0.0])])
        after[dtype] = float(optimizer.second[0][0])
    assert after[FLOAT16] == pytest.approx(1e-4 * 64.0**2, rel=1e-3)
    assert after[FLOAT32] == pytest.approx(1e-4 * 64.0**2 * 0.9999**2000, rel=1e-3)  # .819 of it


def test_decoupled_decay_in_float16_is_none():
    """1 - 1e-3 1e-2 is 1 in float16."""
    make = lambda p: AdamW(p, lr=1e-3, weight_decay=1e-2, eps=1e-4)  # noqa: E731
    assert moved(make, 0.0, FLOAT16, weight=1.0, steps=1000)[0] == 1.0
    assert moved(make, 0.0, FLOAT32, weight=1.0, steps=1000)[0] == pytest.approx((1 - 1e-5) ** 1000, rel=1e-4)
