"""Losses: the rounded steps against scalar loops, gradients against calculus, and what float16 makes of them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from fp16sim_steps import FLOAT32, Steps, same_bits

import fp16sim as fs
from fp16sim.autograd import ops
from fp16sim.autograd.backward import gradients
from fp16sim.autograd.gradcheck import gradcheck
from fp16sim.autograd.policy import autocast
from fp16sim.autograd.tensor import Tensor

BFLOAT16 = ml_dtypes.bfloat16
DTYPES = [np.float16, BFLOAT16, np.float32]


def draw(seed: int, *shape: int, dtype: Any = np.float32, spread: float = 1.0) -> Any:
    return (np.random.default_rng(seed).normal(size=shape) * spread).astype(dtype)


def found(loss: Any, x: Any, g: Any = None, **options: Any) -> tuple[Any, Any]:
    tensor = Tensor(x, requires_grad=True)
    result = loss(tensor, **options)
    result.backward(g)
    return result.data, tensor.grad


# ---------------------------------------------------------------------------------------------------- cross-entropy


def scalar_cross_entropy(
    s: Steps, x: Any, labels: Any, smoothing: float, ignored: Any, reduction: str, g: Any
) -> tuple[Any, Any]:
    """Write the loss of (batch, classes) as its docstring does."""
    classes = x.shape[1]
    first, cold = s.number(1 - smoothing), s.number(smoothing / classes)
    rows: list[Any] = []
    gradient = np.zeros_like(x)
    count = sum(label != ignored for label in labels)
    for i, label in enumerate(labels):
        if label == ignored:
            rows.append(s.number(0.0))
            continue
        z = [s.subtract(v, x[i].max()) for v in x[i]]
        e = [s.function("exp", v) for v in z]
        total = s.sum(e)
        logarithm = s.function("log", total)
        row = s.subtract(logarithm, z[label])
        if smoothing:
            others = s.sum([s.subtract(logarithm, v) for v in z])
            row = s.add(s.multiply(row, first), s.multiply(others, cold))
        rows.append(row)
        q = s.divide(g, s.number(count)) if reduction == "mean" else g if reduction == "sum" else g[i]
        for j in range(classes):
            t = s.number(float(j == label))
            if smoothing:
                t = s.add(first, cold) if j == label else cold
            gradient[i, j] = s.multiply(s.subtract(s.divide(e[j], total), t), q)
    if reduction == "none":
        return np.array(rows, s.dtype), gradient
    result = s.sum(rows)
    return np.asarray(s.divide(result, s.number(count)) if reduction == "mean" else result), gradient


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_step_by_step(dtype: Any, smoothing: float, reduction: str) -> None:
    x, s = draw(1, 6, 5, dtype=dtype, spread=3), Steps(dtype, FLOAT32)
    labels = np.array([0, 3, -1, 4, 2, -1])
    g = draw(2, 6, dtype=dtype) if reduction == "none" else s.number(1.5)
    loss, gradient = found(
        ops.cross_entropy,
        x,
        g,
        labels=labels,
        label_smoothing=smoothing,
        ignore_index=-1,
        reduction=reduction,
    )
    expected = scalar_cross_entropy(s, x, labels, smoothing, -1, reduction, g)
    same_bits(loss, expected[0])
    same_bits(gradient, expected[1])


@pytest.mark.parametrize("policy", ["float32", "float16", "mixed_float16"])
def test_the_default_arguments_are_the_plain_loss(policy: str) -> None:
    """Bits of the plain loss of earlier versions, written as it was."""
    dtype = np.float16 if policy == "float16" else np.float32
    x, labels = draw(3, 40, 10, dtype=dtype, spread=2), np.arange(40) % 10
    with autocast(policy):
        tensor = Tensor(x, requires_grad=True)
        loss = ops.cross_entropy(tensor, labels)
    loss.backward()
    a = fs.Policy(policy).forward
    rows = np.arange(40)
    shifted = a.subtract(x, np.max(x, axis=1, keepdims=True))
    e = a.function("exp", shifted)
    sums = a.sum(e, 1)
    losses = a.subtract(a.function("log", sums), shifted[rows, labels])
    count = a.constant(40, x)
    same_bits(loss.data, a.divide(a.sum(losses), count))
    p = a.divide(e, sums[:, None])
    hot = np.zeros_like(p)
    hot[rows, labels] = 1
    one = np.ones((), dtype)
    assert tensor.grad is not None
    same_bits(tensor.grad, a.multiply(a.subtract(p, hot), a.divide(one, count)))


@pytest.mark.parametrize("loss", [ops.cross_entropy, ops.nll_loss])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_classes_on_the_second_axis_of_many(loss: Any, reduction: str) -> None:
    x = draw(4, 2, 3, 4, 5, dtype=np.float16)
    labels = np.arange(40).reshape(2, 4, 5) % 3
    labels[1, 2, 3] = -100
    flat = np.ascontiguousarray(np.moveaxis(x, 1, -1)).reshape(40, 3)
    g = draw(5, 2, 4, 5, dtype=np.float16) if reduction == "none" else np.float16(1)
    value, gradient = found(loss, x, g, labels=labels, reduction=reduction)
    flat_value, flat_gradient = found(
        loss,
        flat,
        g.reshape(-1) if reduction == "none" else g,
        labels=labels.reshape(-1),
        reduction=reduction,
    )
    same_bits(value.reshape(flat_value.shape), flat_value)
    same_bits(np.moveaxis(gradient, 1, -1).reshape(40, 3), flat_gradient)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_nll_step_by_step(dtype: Any, reduction: str) -> None:
    x, s, labels = draw(6, 5, 4, dtype=dtype), Steps(dtype, FLOAT32), np.array([1, 7, 0, 3, 3])
    g = draw(7, 5, dtype=dtype) if reduction == "none" else s.number(0.3)
    loss, gradient = found(ops.nll_loss, x, g, labels=labels, ignore_index=7, reduction=reduction)
    rows = [s.number(0.0) if k == 7 else -x[i, k] for i, k in enumerate(labels)]
    expected = np.zeros_like(x)
    for i, k in enumerate(labels):
        if k != 7:
            q = g[i] if reduction == "none" else g if reduction == "sum" else s.divide(g, s.number(4))
            expected[i, k] = -q
    total: Any = np.array(rows, dtype)
    if reduction != "none":
        total = np.asarray(s.sum(rows))
    if reduction == "mean":
        total = np.asarray(s.divide(total[()], s.number(4)))
    same_bits(loss, total)
    same_bits(gradient, expected)


@pytest.mark.parametrize("loss", [ops.cross_entropy, ops.nll_loss])
def test_nothing_but_ignored_labels_is_nan_without_a_gradient(loss: Any) -> None:
    value, gradient = found(loss, np.float32([[1, 2], [3, np.inf]]), labels=[-100, -100])
    assert np.isnan(value)
    assert not gradient.any()
    total, _ = found(loss, np.float32([[1, 2], [3, np.inf]]), labels=[-100, -100], reduction="sum")
    assert total == 0


def test_an_ignored_row_may_hold_anything() -> None:
    x = np.float16([[1, 2], [np.nan, np.inf]])
    loss, gradient = found(ops.cross_entropy, x, labels=[0, -100])
    assert np.isfinite(loss)
    assert not gradient[1].any()


# ---------------------------------------------------------------------------------------------------- elements


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_mse_and_bce_step_by_step(dtype: Any, reduction: str) -> None:
    s = Steps(dtype, FLOAT32)
    x, t = draw(8, 7, dtype=dtype, spread=4), np.random.default_rng(9).uniform(size=7)
    x[:2] = 0.0, -0.0
    g = draw(10, 7, dtype=dtype) if reduction == "none" else s.number(0.7)
    t = t.astype(dtype)
    q = [v if reduction != "mean" else s.divide(v, s.number(7)) for v in np.broadcast_to(g, 7)]
    one, two = s.number(1.0), s.number(2.0)

    def reduced(rows: list[Any]) -> Any:
        return (
            np.array(rows, dtype)
            if reduction == "none"
            else np.asarray(s.sum(rows) if reduction == "sum" else s.mean(rows))
        )

    difference = [s.subtract(a, b) for a, b in zip(x, t, strict=True)]
    slopes = [s.multiply(d, s.multiply(w, two)) for d, w in zip(difference, q, strict=True)]
    for targets in (t, Tensor(t, requires_grad=True)):
        loss, gradient = found(ops.mse_loss, x, g, targets=targets, reduction=reduction)
        same_bits(loss, reduced([s.multiply(d, d) for d in difference]))
        same_bits(gradient, np.array(slopes, dtype))
        if isinstance(targets, Tensor):
            assert targets.grad is not None
            same_bits(targets.grad, -np.array(slopes, dtype))

    def row(a: Any, b: Any) -> Any:
        straight = s.subtract(a if a > 0 else s.number(0.0), s.multiply(a, b))
        return s.add(straight, s.function("log1p", s.function("exp", s.multiply(-one, abs(a)))))

    slopes = [s.multiply(s.subtract(s.function("sigmoid", a), b), w) for a, b, w in zip(x, t, q, strict=True)]
    for targets in (t, Tensor(t, requires_grad=True)):
        loss, gradient = found(ops.bce_with_logits, x, g, targets=targets, reduction=reduction)
        same_bits(loss, reduced([row(a, b) for a, b in zip(x, t, strict=True)]))
        same_bits(gradient, np.array(slopes, dtype))
        if isinstance(targets, Tensor):
            assert targets.grad is not None
            same_bits(targets.grad, np.array([-s.multiply(a, w) for a, w in zip(x, q, strict=True)], dtype))


def test_targets_are_rounded_once_to_the_format_of_the_loss() -> None:
    x = Tensor(np.float16([0.0, 0.0]))
    assert ops.mse_loss(x, [0.1, 0.1], "none").data[0] == np.float16(0.1) * np.float16(0.1)
    with autocast("mixed_float16"):
        loss = ops.mse_loss(x, [0.1, 0.1], "none")
    same_bits(loss.data, np.float32([0.1, 0.1]) * np.float32(0.1))
    with autocast("mixed_float16"):
        assert ops.bce_with_logits(x, [True, False]).dtype == np.float32


def test_gradients_in_float64() -> None:
    x = Tensor(draw(11, 3, 4, 2, dtype=np.float64), requires_grad=True)
    t = Tensor(np.random.default_rng(12).uniform(size=(3, 4, 2)), requires_grad=True)
    labels = np.array([[0, 3], [-100, 1], [2, 2]])
    for reduction in ("mean", "sum", "none"):
        for smoothing in (0.0, 0.2):
            gradcheck(lambda x, a=smoothing, r=reduction: ops.cross_entropy(x, labels, a, reduction=r), [x])
        gradcheck(lambda x, r=reduction: ops.nll_loss(x, labels, reduction=r), [x])
        gradcheck(lambda x, t, r=reduction: ops.mse_loss(x, t, r), [x, t])
        gradcheck(lambda x, t, r=reduction: ops.bce_with_logits(x, t, r), [x, t])


def test_a_wide_backward_pass_gives_float32() -> None:
    x = Tensor(draw(13, 4, 3, dtype=np.float16), requires_grad=True)
    y = Tensor(draw(14, 4, 3, dtype=np.float16))
    for loss in (
        ops.cross_entropy(x, [0, 1, 2, 0], 0.1),
        ops.nll_loss(x, [0, 1, 2, 0]),
        ops.mse_loss(x, y),
        ops.mse_loss(x, y.data),
        ops.bce_with_logits(x, y),
        ops.bce_with_logits(x, y.data),
    ):
        (gradient,) = gradients(loss, [x], wide=True)
        assert gradient is not None
        assert gradient.dtype == np.float32


# ---------------------------------------------------------------------------------------------------- failures


def test_a_sum_of_squares_stalls_in_float16() -> None:
    x, zeros = Tensor(np.full(8192, 3, np.float16)), np.zeros(8192)
    with autocast("float16"):
        # From 16384 on 9 counts as 16, from 32768 (NumPy writes 3.277e+04) on as 0.
        stalled = ops.mse_loss(x, zeros, "sum")
    assert stalled.item() == 32768.0
    with autocast("mixed_float16"):
        assert ops.mse_loss(x, zeros, "sum").item() == 73728.0
        assert ops.mse_loss(x, zeros).item() == 9.0


def test_a_mean_over_65520_divides_by_infinity_in_float16() -> None:
    x = Tensor(np.ones(65520, np.float16))
    with autocast("float16"):
        assert ops.mse_loss(x, np.zeros(65520)).item() == 0.0
    with autocast("mixed_float16"):
        assert ops.mse_loss(x, np.zeros(65520)).item() == 1.0


def test_label_smoothing_by_hand_is_nan_and_here_it_is_not() -> None:
    x = Tensor(np.float16([[0, 0, 20]]))
    with autocast("float16"):
        p = ops.softmax(x)
        by_hand = ops.multiply(ops.log(p), Tensor(np.float16([[0, 0, 1]])))
        assert np.isnan(by_hand.data).tolist() == [[True, True, False]]
        loss = ops.cross_entropy(x, [2], label_smoothing=0.1)
    # Right: .1/3 of (20 + 20) = 1.3333.
    assert loss.item() == pytest.approx(4 / 3, rel=2e-3)


def test_binary_cross_entropy_of_a_sure_wrong_answer() -> None:
    x = Tensor(np.float16([8.4]), requires_grad=True)
    with autocast("float16"):
        by_hand = -ops.log(1.0 - ops.sigmoid(x))
        assert by_hand.item() == np.inf
        loss = ops.bce_with_logits(x, [0.0])
    assert loss.item() == np.float16(8.4)  # right: 8.4002
    loss.backward()
    assert x.grad is not None
    assert x.grad.item() == 1.0  # right: .99977


# ---------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda x: ops.cross_entropy(x, [0, 3]), ValueError, r"label 3 at position \(1,\): .* 0 to 2"),
        (lambda x: ops.cross_entropy(x, [-1, 0]), ValueError, r"label -1 at position \(0,\)"),
        (lambda x: ops.cross_entropy(x, [0.0, 1.0]), ValueError, "float64: labels must be integers"),
        (lambda x: ops.cross_entropy(x, [0]), ValueError, r"logits \(2, 3\) and labels \(1,\)"),
        (lambda x: ops.cross_entropy(x, [0, 1], 2.0), ValueError, "label_smoothing=2.0: a share"),
        (lambda x: ops.cross_entropy(x, [0, 1], reduction="avg"), ValueError, "reduction='avg'"),
        (lambda x: ops.nll_loss(x, [0, 9]), ValueError, r"label 9 at position \(1,\)"),
        (lambda x: ops.nll_loss(x, [0, 1], reduction="means"), ValueError, "did you mean 'mean'"),
        (lambda x: ops.mse_loss(x, np.zeros((3, 2))), ValueError, r"\(2, 3\) with targets of shape \(3, 2\)"),
        (lambda x: ops.mse_loss(x, [[0, 1, 2], [3, np.nan, 5]]), ValueError, r"nan at position \(1, 1\)"),
        (lambda x: ops.bce_with_logits(x, np.full((2, 3), np.inf)), ValueError, r"inf at position \(0, 0\)"),
        (lambda x: ops.bce_with_logits(np.ones(3), x), TypeError, "pass fs.Tensor"),
        (lambda x: ops.mse_loss(Tensor(np.zeros((0, 3))), np.zeros((0, 3))), ValueError, "not empty"),
    ],
)
def test_refusals(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call(Tensor(np.zeros((2, 3), np.float32)))


@pytest.mark.parametrize("ignored", [0.5, -100.0, None, True])
def test_ignore_index_is_an_integer(ignored: Any) -> None:
    for loss in (ops.cross_entropy, ops.nll_loss):
        with pytest.raises(TypeError, match=r"with ignore_index=.*labels are integers"):
            loss(Tensor([[1.0, 2.0]]), np.array([1]), ignore_index=ignored)
