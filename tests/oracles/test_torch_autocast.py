"""The flavour ``"torch_cpu"`` held to ``torch.autocast("cpu", dtype=torch.float16)`` of torch 2.13.

The format of every result is the same, operation by operation and layer by layer, and so is the history of the loss
scale.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fp16sim import nn
from fp16sim.autograd import ops
from fp16sim.autograd.backward import gradients
from fp16sim.autograd.policy import Policy, autocast
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn import Module, capture_outputs
from fp16sim.nn.random import streams
from fp16sim.optim import SGD
from fp16sim.training.data import Batches, digits
from fp16sim.training.fit import fit
from fp16sim.training.models import mlp

pytestmark = pytest.mark.oracle

POLICY = Policy("mixed_float16", flavour="torch_cpu")
LABELS = np.array([0, 1, 2, 3])
W, B = np.ones((8, 8), np.float32), np.ones(8, np.float32)

UNARY = (
    "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "erf", "tanh", "sigmoid", "relu"
)  # fmt: skip

Both = tuple[Callable[..., Any], Callable[..., Any]]


def functional(torch: Any) -> dict[str, Both]:
    """Ours and torch's, of an input (4, 8) that is above zero and of the same values in float32."""
    F = torch.nn.functional
    w, b = torch.from_numpy(W), torch.from_numpy(B)
    one = {name: (getattr(ops, name), getattr(torch, name)) for name in UNARY}
    return {name: (lambda x, y, f=f: f(x), lambda x, y, g=g: g(x)) for name, (f, g) in one.items()} | {
        "matmul": (lambda x, y: x @ Tensor(W), lambda x, y: x @ w),
        "linear": (lambda x, y: ops.linear(x, Tensor(W), Tensor(B)), lambda x, y: F.linear(x, w, b)),
        "negative": (lambda x, y: -x, lambda x, y: -x),
        "absolute": (lambda x, y: abs(x), lambda x, y: abs(x)),
        "power": (lambda x, y: x**2, lambda x, y: x**2),
        "add": (lambda x, y: x + y, lambda x, y: x + y),
        "subtract": (lambda x, y: x - y, lambda x, y: x - y),
        "multiply": (lambda x, y: x * y, lambda x, y: x * y),
        "divide": (lambda x, y: x / y, lambda x, y: x / y),
        "by a number": (lambda x, y: 2.5 * x + 1, lambda x, y: 2.5 * x + 1),
        "maximum": (lambda x, y: ops.maximum(x, y), lambda x, y: torch.maximum(x, y)),
        "where": (
            lambda x, y: ops.where(np.arange(8) > 3, x, y),
            lambda x, y: torch.where(torch.arange(8) > 3, x, y),
        ),
        "concatenate": (lambda x, y: ops.concatenate([x, y]), lambda x, y: torch.cat([x, y])),
        "stack": (lambda x, y: ops.stack([x, y]), lambda x, y: torch.stack([x, y])),
        "gelu": (lambda x, y: ops.gelu(x), lambda x, y: F.gelu(x)),
        "silu": (lambda x, y: ops.silu(x), lambda x, y: F.silu(x)),
        "softplus": (lambda x, y: ops.softplus(x), lambda x, y: F.softplus(x)),
        "softmax": (lambda x, y: ops.softmax(x, -1), lambda x, y: x.softmax(-1)),
        "log_softmax": (lambda x, y: ops.log_softmax(x, -1), lambda x, y: x.log_softmax(-1)),
        "sum": (lambda x, y: x.sum(), lambda x, y: x.sum()),
        "mean": (lambda x, y: x.mean(), lambda x, y: x.mean()),
        "variance": (lambda x, y: ops.variance(x), lambda x, y: x.var()),
        "cumsum": (lambda x, y: ops.cumsum(x, 0), lambda x, y: x.cumsum(0)),
        "norm": (lambda x, y: ops.norm(x), lambda x, y: x.norm()),
        "logsumexp": (lambda x, y: ops.logsumexp(x, 0), lambda x, y: x.logsumexp(0)),
        "layer_norm": (
            lambda x, y: ops.layer_norm(x, (8,), Tensor(W[0]), Tensor(B)),
            lambda x, y: F.layer_norm(x, (8,), b, b),
        ),
        "cross_entropy": (
            lambda x, y: ops.cross_entropy(x, LABELS),
            lambda x, y: F.cross_entropy(x, torch.from_numpy(LABELS)),
        ),
        "nll_loss": (
            lambda x, y: ops.nll_loss(x, LABELS),
            lambda x, y: F.nll_loss(x, torch.from_numpy(LABELS)),
        ),
        "mse_loss": (lambda x, y: ops.mse_loss(x, y), lambda x, y: F.mse_loss(x, y)),
        "embedding": (
            lambda x, y: ops.embedding(LABELS, x),
            lambda x, y: F.embedding(torch.from_numpy(LABELS), x),
        ),
        "reshape": (lambda x, y: x.reshape(8, 4), lambda x, y: x.reshape(8, 4)),
        "getitem": (lambda x, y: x[1:], lambda x, y: x[1:]),
    }


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_every_operation_gives_the_same_format(torch: Any, dtype: str) -> None:
    values = np.linspace(0.1, 3.0, 32).reshape(4, 8).astype(dtype)
    wide = values.astype(np.float32)
    differing = {}
    for name, (ours, theirs) in functional(torch).items():
        with autocast(POLICY):
            found = str(ours(Tensor(values), Tensor(wide)).dtype)
        with torch.autocast("cpu", dtype=torch.float16), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = str(theirs(torch.from_numpy(values), torch.from_numpy(wide)).dtype)
        if f"torch.{found}" != expected:
            differing[name] = (found, expected)
    assert differing == {}


def test_another_flavour_differs_and_the_comparison_sees_it() -> None:
    with autocast(Policy("mixed_float16", flavour="torch")):
        assert ops.softmax(Tensor(W, dtype="float16"), -1).dtype == np.float32  # torch's list for CUDA
    with autocast(POLICY):
        assert ops.softmax(Tensor(W, dtype="float16"), -1).dtype == np.float16


# --- layers ---


class Residual(Module):
    """A block with an addition in it, which the layers' outputs do not show."""

    def __init__(self) -> None:
        self.norm = nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, 2)
        self.up, self.gelu, self.down = nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm(x))
        return x + self.down(self.gelu(self.up(x)))


def residual(torch: Any) -> Any:
    class Their(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.LayerNorm(16)
            self.attention = torch.nn.MultiheadAttention(16, 2, batch_first=True)
            self.up, self.gelu, self.down = torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 16)

        def forward(self, x: Any) -> Any:
            y = self.norm(x)
            x = x + self.attention(y, y, y, need_weights=False)[0]
            return x + self.down(self.gelu(self.up(x)))

    return Their()


def networks(torch: Any) -> dict[str, tuple[Module, Any, tuple[int, ...]]]:
    """Ours and torch's, and the shape of the input."""
    t = torch.nn
    with streams(0):
        return {
            "perceptron": (
                nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 10)),
                t.Sequential(t.Linear(8, 16), t.ReLU(), t.Linear(16, 10)),
                (4, 8),
            ),
            "convolutions": (
                nn.Sequential(
                    nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
                    nn.Conv2d(4, 4, 3), nn.GroupNorm(2, 4), nn.SiLU(), nn.AdaptiveAvgPool2d(1),
                    nn.Flatten(), nn.Linear(4, 10),
                ),
                t.Sequential(
                    t.Conv2d(1, 4, 3, padding=1), t.BatchNorm2d(4), t.ReLU(), t.MaxPool2d(2),
                    t.Conv2d(4, 4, 3), t.GroupNorm(2, 4), t.SiLU(), t.AdaptiveAvgPool2d(1),
                    t.Flatten(), t.Linear(4, 10),
                ),
                (4, 1, 8, 8),
            ),
            "transformer": (Residual(), residual(torch), (2, 5, 16)),
        }  # fmt: skip


@pytest.mark.parametrize("name", ["perceptron", "convolutions", "transformer"])
def test_every_layer_gives_the_same_format(torch: Any, name: str) -> None:
    model, theirs, shape = networks(torch)[name]
    values = np.linspace(-1, 1, int(np.prod(shape))).reshape(shape).astype(np.float32)
    # Inside attention torch has no modules for the projections: its parts are left out.
    with autocast(POLICY), capture_outputs() as captured:
        result = model(Tensor(values))
    names = {id(module): key for key, module in model.named_modules()}
    found = {names[id(module)]: f"torch.{output.dtype}" for module, output in captured}
    expected: dict[str, str] = {}
    for key, module in theirs.named_modules():
        module.register_forward_hook(
            lambda _m, _i, output, key=key: expected.__setitem__(
                key, str((output[0] if isinstance(output, tuple) else output).dtype)
            )
        )
    with torch.autocast("cpu", dtype=torch.float16):
        theirs(torch.from_numpy(values))
    shared = {key: found[key] for key in found if key in expected}
    assert len(shared) >= 4
    assert shared == {key: expected[key] for key in shared}
    # Parameters are float32 and so are their gradients.
    total = result.sum()
    assert {g.dtype for g in gradients(total, model.parameters()) if g is not None} == {np.dtype(np.float32)}


# --- the loss scale ---


STEPS = 120


def their_history(torch: Any, model: Module, rate: float) -> tuple[list[float], list[float]]:
    """Train torch's copy of a perceptron and give the scale of each step, and the loss."""
    layers: list[Any] = []
    parameters = model.parameters()
    for weight, bias in zip(parameters[::2], parameters[1::2], strict=True):
        layer = torch.nn.Linear(*weight.shape[::-1])
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(weight.numpy()))
            layer.bias.copy_(torch.from_numpy(bias.numpy()))
        layers += [layer, torch.nn.ReLU()]
    theirs = torch.nn.Sequential(*layers[:-1])
    optimizer = torch.optim.SGD(theirs.parameters(), lr=rate, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**30, growth_interval=8)
    scales, losses = [], []
    for _, (x, y) in zip(range(STEPS), Batches(digits()[0], 64), strict=False):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(theirs(torch.from_numpy(x)), torch.from_numpy(y))
        scales.append(scaler.get_scale())
        losses.append(loss.item())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return scales, losses


def our_history(model: Module, rate: float, interval: int = 8) -> tuple[list[float], list[float]]:
    run = fit(
        model,
        Batches(digits()[0], 64),
        policy=POLICY,
        scaler=f"torch,init_scale=2**30,growth_interval={interval}",
        optimizer=SGD(model.parameters(), lr=rate, momentum=0.9),
        steps=STEPS,
        measure=False,
    )
    return [step.scale for step in run.history], [step.loss for step in run.history]


def test_the_scale_takes_the_same_way_over_the_same_gradients(torch: Any) -> None:
    """With a rate of 0 both meet the same weights in every step.

    Whether a gradient overflows is then the same unless it lies within the difference of two summation orders, about
    2^-11, of 65520, and none of these does.
    """
    scales, losses = their_history(torch, mlp(layers=2), 0.0)
    ours, our_losses = our_history(mlp(layers=2), 0.0)
    assert ours == scales
    assert len(set(scales)) > 10  # down from 2^30, and then up against the ceiling again and again
    # Five products of binary16 values, 2^-11 a rounding.
    assert np.abs(np.subtract(our_losses, losses)).max() < 5 * 2.0**-11 * max(losses)
    assert our_history(mlp(layers=2), 0.0, interval=9)[0] != scales


def test_the_scale_takes_nearly_the_same_way_in_training(torch: Any) -> None:
    """Roundings in another order move the weights apart, by percents of a gradient once the loss is small.

    A scale that grows and falls by factors of 2 then differs now and then, by a factor or two.
    """
    scales, losses = their_history(torch, mlp(layers=2), 0.05)
    ours, our_losses = our_history(mlp(layers=2), 0.05)
    ratios = np.log2(np.divide(ours, scales))
    assert ratios[:30].tolist() == [0.0] * 30
    assert np.abs(ratios).max() <= 2
    assert np.median(ratios) == 0
    assert np.abs(np.subtract(our_losses, losses)).max() < 0.05 * max(losses)
