"""Losses and their gradients held to torch 2.13 on a CPU, over many shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fp16sim.autograd import ops
from fp16sim.autograd.tensor import Tensor

pytestmark = pytest.mark.oracle

MANY = settings(derandomize=True, deadline=None, max_examples=40, database=None)
TOLERANCE = {"float64": 1e-12, "float32": 32 * 2.0**-24}
"""Relative to the largest element, the logits among them: sums of up to some 200 terms of one sign in another order,
whose rounding errors are random, and torch's vector functions, which err by up to 4 ulps."""


def worst(ours: Any, theirs: Any, size: float) -> float:
    """Give the largest difference, relative to the largest element or `size`; NaN must meet NaN."""
    a, b = np.asarray(ours, np.float64), theirs.detach().numpy().astype(np.float64)
    assert a.shape == b.shape
    assert np.array_equal(np.isnan(a), np.isnan(b))
    difference = np.abs(np.where(np.isnan(a), 0.0, a) - np.where(np.isnan(b), 0.0, b))
    return float(difference.max() / max(np.nanmax(np.abs(b), initial=size), 1e-300))


@st.composite
def problems(draw: Any) -> dict[str, Any]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    batch, classes = draw(st.integers(1, 6)), draw(st.integers(1, 7))
    rest = draw(st.lists(st.integers(1, 3), max_size=2))
    labels = rng.integers(0, classes, (batch, *rest))
    if draw(st.booleans()):
        labels[rng.random(labels.shape) < 0.3] = -7
    labels.reshape(-1)[0] = 0  # one counts: for none torch's gradient is NaN where ours is 0
    return {
        "x": rng.normal(size=(batch, classes, *rest)) * draw(st.sampled_from([0.1, 1.0, 10.0])),
        "targets": rng.uniform(size=(batch, classes, *rest)),
        "g": rng.normal(size=(batch, classes, *rest)),
        "labels": labels,
        "smoothing": draw(st.sampled_from([0.0, 0.1, 0.9])),
        "reduction": draw(st.sampled_from(["mean", "sum", "none"])),
    }


def compared(torch: Any, ours: Any, theirs: Any, x: Any, g: Any, dtype: str) -> None:
    mine, other = (
        Tensor(x.astype(dtype), requires_grad=True),
        torch.from_numpy(x.astype(dtype)).requires_grad_(),
    )
    loss, expected = ours(mine), theirs(other)
    assert loss.shape == tuple(expected.shape)
    g = g.reshape(-1)[: loss.size].reshape(loss.shape).astype(dtype)
    loss.backward(g)
    expected.backward(torch.from_numpy(g))
    assert loss.dtype == dtype
    assert worst(loss.data, expected, float(np.abs(x).max())) < TOLERANCE[dtype]
    # Probability and target may cancel: the difference is measured by their size, G over the number of elements.
    terms = float(np.abs(g).max()) / (x.size if loss.ndim == 0 else 1)
    assert worst(mine.grad, other.grad, terms) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss", "mse_loss", "bce_with_logits"])
def test_values_and_gradients(torch: Any, name: str, dtype: str) -> None:
    functional = torch.nn.functional

    @MANY
    @given(problems())
    def check(problem: dict[str, Any]) -> None:
        reduction, labels = problem["reduction"], problem["labels"]
        theirs_labels, targets = torch.from_numpy(labels), problem["targets"].astype(dtype)
        theirs_targets = torch.from_numpy(targets.copy())
        pairs: dict[str, tuple[Any, Any]] = {
            "cross_entropy": (
                lambda x: ops.cross_entropy(x, labels, problem["smoothing"], -7, reduction),
                lambda x: functional.cross_entropy(
                    x,
                    theirs_labels,
                    label_smoothing=problem["smoothing"],
                    ignore_index=-7,
                    reduction=reduction,
                ),
            ),
            "nll_loss": (
                lambda x: ops.nll_loss(x, labels, -7, reduction),
                lambda x: functional.nll_loss(x, theirs_labels, ignore_index=-7, reduction=reduction),
            ),
            "mse_loss": (
                lambda x: ops.mse_loss(x, targets, reduction),
                lambda x: functional.mse_loss(x, theirs_targets, reduction=reduction),
            ),
            "bce_with_logits": (
                lambda x: ops.bce_with_logits(x, targets, reduction),
                lambda x: functional.binary_cross_entropy_with_logits(x, theirs_targets, reduction=reduction),
            ),
        }
        compared(torch, *pairs[name], problem["x"], problem["g"], dtype)

    check()


@pytest.mark.parametrize("name", ["mse_loss", "binary_cross_entropy_with_logits"])
def test_gradients_of_targets(torch: Any, name: str) -> None:
    rng = np.random.default_rng(0)
    x, t = rng.normal(size=(3, 4)), rng.uniform(size=(3, 4))
    ours = ops.mse_loss if name == "mse_loss" else ops.bce_with_logits
    mine = [Tensor(v, requires_grad=True) for v in (x, t)]
    others = [torch.from_numpy(v.copy()).requires_grad_() for v in (x, t)]
    ours(*mine).backward()
    getattr(torch.nn.functional, name)(*others).backward()
    for a, b in zip(mine, others, strict=True):
        assert worst(a.grad, b.grad, 0.0) < 1e-12


def test_nothing_but_ignored_labels(torch: Any) -> None:
    x, labels = np.ones((2, 3)), np.array([-100, -100])
    for name in ("cross_entropy", "nll_loss"):
        for reduction in ("mean", "sum", "none"):
            ours = getattr(ops, name)(Tensor(x), labels, reduction=reduction).data
            theirs = getattr(torch.nn.functional, name)(
                torch.from_numpy(x), torch.from_numpy(labels), reduction=reduction
            )
            assert np.array_equal(ours, theirs.numpy(), equal_nan=True)


def test_a_planted_fault_is_noticed(torch: Any) -> None:
    """Smoothing of another share is noticed."""
    x, labels = np.random.default_rng(1).normal(size=(4, 3)), np.array([0, 1, 2, 0])
    with pytest.raises(AssertionError):
        compared(
            torch,
            lambda t: ops.cross_entropy(t, labels, 0.1),
            lambda t: torch.nn.functional.cross_entropy(t, torch.from_numpy(labels), label_smoothing=0.1001),
            x,
            np.ones(1),
            "float64",
        )
