"""Functions of each element: each rounded step against scalars, gradients against differences, refusals."""

import numpy as np
import pytest
from fp16sim_steps import FLOAT16, FLOAT32, NARROW_AND_SINGLE, Steps, interesting, same_bits

from fp16sim.autograd import ops
from fp16sim.autograd.gradcheck import gradcheck
from fp16sim.autograd.policy import autocast
from fp16sim.autograd.tensor import Tensor


def forward_rsqrt(m, x):
    if m.dtype == FLOAT16:
        return m.function("rsqrt", x)
    single = Steps(FLOAT32)
    return m.rounded(single.divide(np.float32(1), single.sqrt(np.float32(x))))


def erf_gradient(m, x, y, g):
    slope = m.function("exp", -m.multiply(x, x))
    return m.multiply(m.multiply(m.number(1.1283791670955126), slope), g)


def power_gradient(exponent):
    return lambda m, x, y, g: m.multiply(g, m.multiply(m.number(exponent), m.power(x, exponent - 1)))


# The steps that the docstrings name: (m, x) -> y and (m, x, y, G) -> gradient.
STEPS = {
    "exp": (lambda m, x: m.function("exp", x), lambda m, x, y, g: m.multiply(g, y)),
    "expm1": (
        lambda m, x: m.function("expm1", x),
        lambda m, x, y, g: m.multiply(g, m.add(y, m.number(1.0))),
    ),
    "log": (lambda m, x: m.function("log", x), lambda m, x, y, g: m.divide(g, x)),
    "log1p": (
        lambda m, x: m.function("log1p", x),
        lambda m, x, y, g: m.divide(g, m.add(x, m.number(1.0))),
    ),
    "sin": (
        lambda m, x: m.function("sin", x),
        lambda m, x, y, g: m.multiply(g, m.function("cos", x)),
    ),
    "cos": (
        lambda m, x: m.function("cos", x),
        lambda m, x, y, g: m.multiply(g, -m.function("sin", x)),
    ),
    "erf": (lambda m, x: m.function("erf", x), erf_gradient),
    "square": (
        lambda m, x: m.multiply(x, x),
        lambda m, x, y, g: m.multiply(g, m.multiply(m.number(2.0), x)),
    ),
    "sqrt": (
        lambda m, x: m.sqrt(x),
        lambda m, x, y, g: m.divide(g, m.multiply(m.number(2.0), y)),
    ),
    "rsqrt": (
        forward_rsqrt,
        lambda m, x, y, g: m.multiply(m.multiply(m.number(-0.5), g), m.power(y, 3.0)),
    ),
    "reciprocal": (
        lambda m, x: m.divide(m.number(1.0), x),
        lambda m, x, y, g: m.multiply(-g, m.multiply(y, y)),
    ),
    "cube": (lambda m, x: m.power(x, 3.0), power_gradient(3.0)),
    "power_0.1": (lambda m, x: m.power(x, 0.1), power_gradient(0.1)),
}


def operation(name):
    if name == "cube":
        return lambda x: x**3
    if name == "power_0.1":
        return lambda x: ops.power(x, 0.1)
    return getattr(ops, name)


@pytest.mark.parametrize("dtype", NARROW_AND_SINGLE, ids=str)
@pytest.mark.parametrize("name", STEPS)
def test_every_step_is_rounded_as_the_docstring_says(name, dtype):
    forward, backward = STEPS[name]
    m, values = Steps(dtype), interesting(dtype, 1, 12)
    with np.errstate(all="ignore"):
        for gradient in (1.0, -3.0, 0.1, np.inf, 2.0**-20, 0.0):
            g = np.full(values.shape, m.number(gradient))
            x = Tensor(values, requires_grad=True)
            y = operation(name)(x)
            y.backward(g)
            expected = np.array([forward(m, value) for value in values], dtype)
            same_bits(y.data, expected)
            slopes = [backward(m, *row) for row in zip(values, expected, g, strict=True)]
            same_bits(x.grad, np.array(slopes, dtype))


@pytest.mark.parametrize("name", STEPS)
def test_gradients_equal_differences(name):
    x = np.random.default_rng(2).uniform(0.3, 3.0, (3, 4))
    gradcheck(operation(name), [Tensor(x, requires_grad=True)])


@pytest.mark.parametrize("name", STEPS)
def test_a_wide_walk_back_takes_the_values_as_they_were(name):
    """The forward pass in float16, gradients in float32: those of float32 formulas at the rounded values."""
    from fp16sim.autograd.backward import gradients

    values = np.float16([0.3, 1.7, 2.9])
    x = Tensor(values, requires_grad=True)
    y = operation(name)(x)
    seed = np.float32([1.0, 0.1, 2.0**-30])
    (found,) = gradients(y, [x], seed, wide=True)
    m, backward = Steps(FLOAT32), STEPS[name][1]
    rows = zip(np.float32(values), np.float32(y.data), seed, strict=True)
    same_bits(found, np.array([backward(m, *row) for row in rows], np.float32))


def test_powers():
    x = Tensor(np.float32([0.0, 2.0, np.nan]), requires_grad=True)
    one = x**0
    one.backward(np.float32([1, 1, 1]))
    assert one.data.tolist() == [1, 1, 1]  # C99: also for NaN
    same_bits(x.grad, np.zeros(3, np.float32))
    assert ops.power(Tensor(np.float16([41.0])), 3).data.tolist() == [np.inf]  # GELU's cube, from 41 on


def test_half_precision_traps():
    """What float16 gives, and the right value from float64."""
    for function, value, narrow, right in (
        (ops.square, 256.0, np.inf, 65536.0),  # RMSNorm's square
        (ops.exp, 11.09375, np.inf, 65758.88),
        (ops.rsqrt, 1e-12, np.inf, 1e6),  # LayerNorm's eps is 0 in float16
    ):
        assert function(Tensor(np.float16([value]))).data.tolist() == [narrow]
        assert function(Tensor(np.float64([value]))).item() == pytest.approx(right, rel=1e-6)
    x = Tensor(np.float16([0.0]), requires_grad=True)
    (ops.sqrt(x) * 0.0).backward([1.0])
    assert np.isnan(x.grad[0])  # 0 / 0: the slope of the root at 0


def test_policies_know_the_names():
    x = Tensor(np.float16([0.5]))
    with autocast("mixed_float16"):
        for name in ("exp", "expm1", "log", "log1p", "rsqrt", "square"):
            assert operation(name)(x).dtype == np.float32, name
        for name in ("sin", "cos", "erf", "sqrt", "reciprocal"):
            assert operation(name)(x).dtype == np.float16, name


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda x: ops.power(x, x), TypeError, r"exponent that is a Tensor: .* exp\(log\(x\) \* y\)"),
        (lambda x: x ** float("nan"), ValueError, "exponent nan: pass a finite number"),
        (lambda x: x ** float("inf"), ValueError, "finite"),
        (lambda x: ops.exp(x.data), TypeError, r"pass fs\.Tensor\(x\)"),
    ],
)
def test_refusals(call, kind, message):
    with pytest.raises(kind, match=message) as caught:
        call(Tensor([1.0]))
    assert "\n" not in str(caught.value)
