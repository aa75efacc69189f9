"""Activations: the rounded steps against scalar loops, gradients against calculus, and what float16 makes of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from fp16sim_steps import FLOAT32, Steps, same_bits

import fp16sim as fs
from fp16sim.autograd import ops
from fp16sim.autograd.arithmetic import Arithmetic
from fp16sim.autograd.backward import gradients
from fp16sim.autograd.gradcheck import gradcheck
from fp16sim.autograd.policy import autocast
from fp16sim.autograd.tensor import Tensor

BFLOAT16 = ml_dtypes.bfloat16
NARROW = [np.float16, BFLOAT16]
DTYPES = [*NARROW, np.float32]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": ops.gelu,
    "gelu_tanh": lambda x: ops.gelu(x, "tanh"),
    "silu": ops.silu,
    "tanh": ops.tanh,
    "sigmoid": ops.sigmoid,
    "softplus": ops.softplus,
}


def draw(seed: int, *shape: int, dtype: Any = np.float32, spread: float = 1.0) -> Any:
    return (np.random.default_rng(seed).normal(size=shape) * spread).astype(dtype)


def every_half() -> Any:
    """Give all 65536 encodings, NaN only as the canonical one."""
    values = np.arange(65536, dtype=np.uint16).view(np.float16)
    return np.where(np.isnan(values), np.float16(np.nan), values)


def applied(function: Callable[[Tensor], Tensor], x: Any, g: Any) -> tuple[Any, Any]:
    tensor = Tensor(x, requires_grad=True)
    result = function(tensor)
    result.backward(g)
    return result.data, tensor.grad


# ---------------------------------------------------------------------------------------------------- rectifiers


@pytest.mark.parametrize("dtype", [*DTYPES, np.float64])
def test_relu_keeps_what_is_above_zero_and_nan(dtype: Any) -> None:
    x = np.array([1.0, -1.0, 0.0, -0.0, np.inf, -np.inf, np.nan, 6e-8, -6e-8], dtype)
    g = np.arange(1, 10).astype(dtype)
    y, gradient = applied(ops.relu, x, g)
    same_bits(y, np.array([1.0, 0, 0, 0, np.inf, 0, np.nan, 6e-8, 0], dtype))
    same_bits(gradient, np.array([1, 0, 0, 0, 5, 0, 7, 8, 0], dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("slope", [0.01, 0.0, -0.5])
def test_leaky_relu_step_by_step(dtype: Any, slope: float) -> None:
    x, g = draw(1, 40, dtype=dtype), draw(2, 40, dtype=dtype)
    x[:3] = 0.0, -0.0, 1.0
    y, gradient = applied(lambda t: ops.leaky_relu(t, slope), x, g)
    s = Steps(dtype, FLOAT32)
    factor = s.number(slope)
    same_bits(y, np.array([v if v > 0 else s.multiply(v, factor) for v in x], dtype))
    same_bits(
        gradient, np.array([w if v > 0 else s.multiply(w, factor) for v, w in zip(x, g, strict=True)], dtype)
    )


# ---------------------------------------------------------------------------------------------------- one function


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_forwards_are_one_function_rounded_once(name: str) -> None:
    x = every_half()
    tensor = Tensor(x)
    kwargs = {"approximate": "tanh"} if name == "gelu_tanh" else {}
    same_bits(ACTIVATIONS[name](tensor).data, getattr(fs, name.removesuffix("_tanh"))(x, **kwargs))


def slope(name: str, s: Steps, x: Any, y: Any) -> Any:
    """Write each derivative as its docstring does."""
    one, half = s.number(1.0), s.number(0.5)
    if name == "tanh":
        return s.subtract(one, s.multiply(y, y))
    if name == "sigmoid":
        return s.multiply(y, s.subtract(one, y))
    if name == "softplus":
        return s.function("sigmoid", x)
    if name == "silu":
        part = s.function("sigmoid", x)
        return s.multiply(part, s.add(one, s.multiply(x, s.subtract(one, part))))
    x = s.number(math.copysign(min(abs(float(x)), 16.0), float(x)))
    if name == "gelu":
        h = s.multiply(s.add(one, s.function("erf", s.multiply(x, s.number(math.sqrt(0.5))))), half)
        e = s.multiply(
            s.function("exp", s.multiply(s.multiply(x, x), s.number(-0.5))),
            s.number(1 / math.sqrt(2 * math.pi)),
        )
        return s.add(h, s.multiply(x, e))
    q, b = s.multiply(x, x), s.number(math.sqrt(2 / math.pi))
    t = s.function("tanh", s.multiply(s.multiply(x, b), s.add(one, s.multiply(q, s.number(0.044715)))))
    r = s.multiply(b, s.add(one, s.multiply(q, s.number(0.134145))))
    w = s.multiply(s.multiply(s.multiply(x, half), s.subtract(one, s.multiply(t, t))), r)
    return s.add(s.multiply(s.add(one, t), half), w)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_narrow_gradients_step_by_step(name: str, dtype: Any) -> None:
    x = np.concatenate([draw(3, 60, dtype=dtype, spread=4), np.array([0.0, -0.0, 17, -17, 300, -300], dtype)])
    g = draw(4, len(x), dtype=dtype)
    y, gradient = applied(ACTIVATIONS[name], x, g)
    s = Steps(dtype, FLOAT32)
    expected = [s.multiply(gi, slope(name, s, xi, yi)) for xi, yi, gi in zip(x, y, g, strict=True)]
    same_bits(gradient, np.array(expected, dtype))


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "silu"])
def test_wide_gradients_are_one_function_times_g(name: str) -> None:
    x, g = draw(5, 200, spread=4), draw(6, 200)
    _, gradient = applied(ACTIVATIONS[name], x, g)
    same_bits(gradient, g * Arithmetic().function(f"{name}_derivative", x))


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh"])
@pytest.mark.parametrize("dtype", NARROW)
def test_gelu_slopes_are_near_the_true_ones(name: str, dtype: Any) -> None:
    """Within 4 ulp of 1: of about ten roundings of terms up to 1 few go the same way."""
    x = draw(7, 500, dtype=dtype, spread=3)
    _, gradient = applied(ACTIVATIONS[name], x, np.ones(500, dtype))
    true = Arithmetic().function(f"{name}_derivative", x.astype(np.float32))
    assert np.abs(gradient.astype(np.float32) - true).max() < 4 * float(ml_dtypes.finfo(dtype).eps)


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh"])
def test_gelu_has_a_gradient_everywhere_in_float16(name: str) -> None:
    x = every_half()
    _, gradient = applied(ACTIVATIONS[name], x, np.ones(65536, np.float16))
    assert np.array_equal(np.isnan(gradient), np.isnan(x))
    large = np.abs(x) >= 16
    assert np.array_equal(gradient[large], (x[large] > 0).astype(np.float16))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradients_in_float64(name: str) -> None:
    gradcheck(ACTIVATIONS[name], [Tensor(draw(8, 3, 5, dtype=np.float64), requires_grad=True)])


def test_rectifiers_in_float64() -> None:
    x = Tensor(np.float64([[-2.0, -0.5], [0.5, 3.0]]), requires_grad=True)
    gradcheck(ops.relu, [x])
    gradcheck(lambda t: ops.leaky_relu(t, 0.1), [x])
    gradcheck(lambda t: ops.leaky_relu(t, -0.1), [x])


def test_a_wide_backward_pass_gives_float32() -> None:
    x = Tensor(draw(9, 4, 3, dtype=np.float16), requires_grad=True)
    for function in (*ACTIVATIONS.values(), ops.relu, ops.leaky_relu, ops.softmax, ops.log_softmax):
        (gradient,) = gradients(function(x).sum(), [x], wide=True)
        assert gradient is not None
        assert gradient.dtype == np.float32


# ---------------------------------------------------------------------------------------------------- softmax


def row_softmax(s: Steps, x: Any) -> tuple[Any, Any]:
    shifted = [s.subtract(v, x.max()) for v in x]
    e = [s.function("exp", z) for z in shifted]
    total = s.sum(e)
    y = np.array([s.divide(v, total) for v in e], s.dtype)
    logarithm = s.function("log", total)
    return y, np.array([s.subtract(z, logarithm) for z in shifted], s.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax_and_its_logarithm_step_by_step(dtype: Any) -> None:
    x, g = draw(10, 6, 9, dtype=dtype, spread=3), draw(11, 6, 9, dtype=dtype)
    x[0, :4] = -np.inf
    s = Steps(dtype, FLOAT32)
    y, dy = applied(ops.softmax, x, g)
    z, dz = applied(ops.log_softmax, x, g)
    for i in range(6):
        first, second = row_softmax(s, x[i])
        same_bits(y[i], first)
        same_bits(z[i], second)
        inner = s.sum([s.multiply(a, b) for a, b in zip(g[i], first, strict=True)])
        rows = [s.multiply(b, s.subtract(a, inner)) for a, b in zip(g[i], first, strict=True)]
        same_bits(dy[i], np.array(rows, dtype))
        total = s.sum(g[i])
        rows = [
            s.subtract(a, s.multiply(s.function("exp", b), total)) for a, b in zip(g[i], second, strict=True)
        ]
        same_bits(dz[i], np.array(rows, dtype))


@pytest.mark.parametrize("function", [ops.softmax, ops.log_softmax])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_along_any_axis(function: Any, axis: int) -> None:
    x = draw(12, 4, 3, 5, dtype=np.float16)
    moved = function(Tensor(np.ascontiguousarray(np.moveaxis(x, axis, -1))))
    same_bits(np.moveaxis(function(Tensor(x), axis).data, axis, -1), moved.data)
    with autocast("float64"):
        gradcheck(
            lambda t: function(t, axis), [Tensor(draw(13, 2, 3, 2, dtype=np.float64), requires_grad=True)]
        )


def test_softmax_computes_wide_under_torchs_lists_and_narrow_under_those_of_its_cpu() -> None:
    x = Tensor(np.float16([[1.0, 2.0]]))
    for flavour, dtype in (("torch", np.float32), ("torch_cpu", np.float16), ("keras", np.float16)):
        with autocast(fs.Policy("mixed_float16", flavour=flavour)):
            assert ops.softmax(x).dtype == dtype
            assert ops.log_softmax(x).dtype == dtype


# ---------------------------------------------------------------------------------------------------- failures


def half(*values: float) -> Tensor:
    return Tensor(np.float16(values))


def test_softmax_without_the_shift_overflows() -> None:
    with autocast("float16"):
        assert ops.exp(half(11.09375)).item() == np.inf
        e = ops.exp(half(12, 0, 0))
        assert np.isnan(ops.divide(e, e.sum()).data[0])
        shifted = ops.softmax(half(12, 0, 0))
    # Right: 1 / (1 + 2 exp(-12)) = .99998771, and exp(-12) = 6.14e-6, which is subnormal in float16.
    assert shifted.data.tolist() == [1.0, 6.139278411865234e-06, 6.139278411865234e-06]


def test_log_after_softmax_is_minus_infinity() -> None:
    x = half(0, 0, 20)
    with autocast("float16"):
        p = ops.softmax(x)
        assert p.data.tolist() == [0.0, 0.0, 1.0]
        assert ops.log(p).data.tolist() == [-np.inf, -np.inf, 0.0]
        assert ops.log_softmax(x).data.tolist() == [-20.0, -20.0, 0.0]
        smoothed = ops.multiply(ops.log(p), half(0.0, 0.0, 1.0))
        assert np.isnan(smoothed.data[0])  # 0 * -inf, where a label is smoothed by hand


def test_sigmoid_of_8_4_is_1() -> None:
    p = ops.sigmoid(half(8.4))
    assert p.item() == 1.0
    assert (1.0 - p).item() == 0.0  # 1 - p: 2.2e-4 of float32
    assert ops.sigmoid(Tensor([8.4])).item() == pytest.approx(0.99977518, abs=1e-7)


def test_gelu_of_operations_overflows_at_41_and_one_function_does_not() -> None:
    def composed(x: Tensor) -> Tensor:
        cube = x * x * x
        return 0.5 * x * (1.0 + ops.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * cube)))

    values = np.float16([40.0, 41.0, 256.0])
    assert (half(*values) * half(*values) * half(*values)).data.tolist() == [64000.0, np.inf, np.inf]
    functions: list[tuple[Callable[[Tensor], Tensor], bool]] = [
        (composed, True),
        (ops.gelu, False),
        (lambda x: ops.gelu(x, "tanh"), False),
    ]
    for function, fails in functions:
        y, gradient = applied(function, values, np.ones(3, np.float16))
        assert y.tolist() == values.tolist()  # tanh(inf) = 1 hides the overflow
        # 1 - tanh^2 = 0 hides it in the gradient too while x^2 is finite; from 256 on it is 0 * inf. Right: 1.
        assert gradient[:2].tolist() == [1.0, 1.0]
        assert np.isnan(gradient[2]) if fails else gradient[2] == 1.0


# ---------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda x: ops.gelu(x, "tahn"), ValueError, "approximate='tahn': did you mean 'tanh'"),
        (lambda x: ops.leaky_relu(x, math.inf), ValueError, "negative_slope=inf: it is a finite number"),
        (lambda x: ops.leaky_relu(x, "a"), ValueError, "negative_slope='a'"),
        (lambda x: ops.softmax(x, 2), ValueError, r"softmax over axis 2 of a tensor of shape \(2, 0\)"),
        (lambda x: ops.softmax(x, (0, 1)), TypeError, r"axis \(0, 1\): it runs over one axis"),
        (lambda x: ops.log_softmax(x, 1), ValueError, r"of shape \(2, 0\): it has no element"),
        (lambda x: ops.softmax(np.ones(2)), TypeError, "pass fs.Tensor"),
        (lambda x: ops.tanh(np.ones(2)), TypeError, "pass fs.Tensor"),
    ],
)
def test_refusals(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call(Tensor(np.zeros((2, 0), np.float32)))


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "gelu", "silu", "sigmoid", "softplus", "tanh"])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_a_number_stays_one(name, dtype):
    x = Tensor(np.asarray(1.5, dtype), requires_grad=True)
    y = getattr(ops, name)(x)
    y.backward()
    assert (y.shape, x.grad.shape) == ((), ())
