"""What float16 does to training that practitioners meet: every row of a table has a test, here or beside its layer.

Each test shows the value of float16 and the right one. Sums are sequential: NumPy's own sum of float16 is pairwise and
hides where they stall. Numbers such as pytorch#32137 name the public report of the phenomenon.
"""

from __future__ import annotations

import ast
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fp16sim as fs
from fp16sim import nn, scaling
from fp16sim.autograd import ops
from fp16sim.autograd.backward import gradients
from fp16sim.autograd.policy import Policy, autocast
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn.random import streams
from fp16sim.optim import SGD
from fp16sim.training.step import train_step

HOME = Path(__file__).parent

ROWS = {
    "Adam's eps is 0": "optim/test_adaptive.py::test_adam_without_eps_divides_by_zero",
    "betas round to 1": "optim/test_adaptive.py::test_betas_in_float16",
    "eps of normalise is 0": "test_failures.py::test_normalising_a_zero_vector",
    "eps of LayerNorm is 0": "nn/test_normalization.py::test_layer_norm_with_an_eps_that_float16_does_not_have",
    "square of RMSNorm": "nn/test_normalization.py::test_rms_norm_squares_overflow_from_256",
    "norm": "test_failures.py::test_the_norm_of_nine_hundreds",
    "gradient of the root at 0": "test_failures.py::test_the_slope_of_a_root_whose_operand_underflowed",
    "clip by an infinite norm":
        "optim/test_clipping.py::test_an_infinite_norm_clears_finite_gradients_and_spoils_infinite_ones",
    "clip by a norm that overflowed": "optim/test_clipping.py::test_a_norm_overflows_in_float16",
    "additive mask": "autograd/ops/test_attention.py::test_additive_masks_in_float16",
    "mask of the lowest number": "autograd/ops/test_attention.py::test_additive_masks_in_float16",
    "softmax without the shift": "autograd/ops/test_activations.py::test_softmax_without_the_shift_overflows",
    "logarithm after softmax": "autograd/ops/test_activations.py::test_log_after_softmax_is_minus_infinity",
    "label smoothing by hand": "autograd/ops/test_losses.py::test_label_smoothing_by_hand_is_nan_and_here_it_is_not",
    "one minus a sigmoid": "autograd/ops/test_activations.py::test_sigmoid_of_8_4_is_1",
    "mean": "test_failures.py::test_a_mean_overflows_in_its_sum",
    "mean of 65520": "test_failures.py::test_the_number_of_terms_overflows",
    "mean loss of 65520": "autograd/ops/test_losses.py::test_a_mean_over_65520_divides_by_infinity_in_float16",
    "sum stalls": "test_failures.py::test_sums_stall",
    "gradient of an embedding": "autograd/ops/test_embedding.py::test_a_frequent_row_stalls_in_float16",
    "scores before they are scaled":
        "autograd/ops/test_attention.py::test_scores_overflow_unless_the_query_is_scaled_first",
    "cube of GELU":
        "autograd/ops/test_activations.py::test_gelu_of_operations_overflows_at_41_and_one_function_does_not",
    "all-reduce": "test_failures.py::test_adding_up_ranks",
    "running mean of BatchNorm": "nn/test_normalization.py::test_a_running_mean_stalls_in_float16",
    "sum of squares": "autograd/ops/test_losses.py::test_a_sum_of_squares_stalls_in_float16",
    "weight decay": "optim/test_sgd.py::test_weight_decay_underflows",
    "decoupled weight decay": "optim/test_adaptive.py::test_decoupled_decay_in_float16_is_none",
    "float16 weights": "optim/test_sgd.py::test_small_steps_do_nothing_or_too_much",
    "accumulated gradients": "optim/test_accumulation.py::test_it_stalls_in_float16",
    "default scale": "test_failures.py::test_the_default_scale_is_infinite_in_float16",
    "scale below 1": "test_failures.py::test_a_scale_below_one_takes_gradients_away",
    "scale above float32": "test_failures.py::test_a_scale_above_float32_overflows_every_step",
}  # fmt: skip


@cache
def names_in(path: str) -> set[str]:
    tree = ast.parse((HOME / path).read_text())
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def missing(rows: dict[str, str]) -> list[str]:
    """Name the rows whose test is not there."""
    lost = []
    for row, place in rows.items():
        path, _, name = place.partition("::")
        if not (HOME / path).exists() or name not in names_in(path):
            lost.append(f"{row}: {place}")
    return lost


def test_every_row_has_its_test() -> None:
    assert missing(ROWS) == []
    planted = {"lost": "optim/test_sgd.py::test_that_was_renamed", "moved": "optim/no_file.py::test_x"}
    assert len(missing(ROWS | planted)) == 2


def test_every_failure_shown_here_is_a_row() -> None:
    own = names_in("test_failures.py") - {
        name for name in names_in("test_failures.py") if "every" in name[:10]
    }
    listed = {place.partition("::")[2] for place in ROWS.values() if place.startswith("test_failures.py")}
    assert own == listed


def under(policy: str | Policy, function: Any, values: Any) -> Any:
    """Give a result of float16 values as a list of floats."""
    with autocast(policy):
        return np.asarray(function(Tensor(np.float16(values))).data, np.float64).tolist()


REPAIRED = Policy("float16", reduction="float32")
"""Float16 with sums in float32."""


def test_normalising_a_zero_vector() -> None:
    """pytorch#32137: 1e-12 is 0 in float16, and 0 / 0 is NaN; right is 0."""

    def normalise(x: Tensor) -> Tensor:
        return x / ops.maximum(ops.norm(x), 1e-12)

    assert np.isnan(under("float16", normalise, [0.0, 0.0])).all()
    assert under("mixed_float16", normalise, [0.0, 0.0]) == [0.0, 0.0]
    assert under("float16", normalise, [3.0, 4.0]) == [0.60009765625, 0.7998046875]


def test_the_norm_of_nine_hundreds() -> None:
    """Nine squares of 10000 are beyond 65504; right is 300."""
    assert under("float16", ops.norm, np.full((3, 3), 100)) == math.inf
    assert under(REPAIRED, ops.norm, np.full((3, 3), 100)) == 300.0


@pytest.mark.parametrize(
    ("policy", "value", "slope"),
    [("float16", 2.0**-13, math.inf), ("float32", 2.0**-13, 1.0), ("float16", 0.0, math.nan)],
)
def test_the_slope_of_a_root_whose_operand_underflowed(policy: str, value: float, slope: float) -> None:
    """The square of 2^-13 is 0 in float16, where the root's slope is infinite; right is 1. Times 0 it is NaN."""
    x = Tensor(np.array([value], policy), requires_grad=True)
    with autocast(policy):
        (found,) = gradients(ops.sqrt(x * x).sum(), [x])
    assert found is not None
    np.testing.assert_array_equal(found, [slope])


def test_a_mean_overflows_in_its_sum() -> None:
    """pytorch#44350: 40000 three times is beyond 65504; right is 40000."""
    assert under("float16", ops.mean, [40000] * 3) == math.inf
    assert under(REPAIRED, ops.mean, [40000] * 3) == 40000.0
    assert under("mixed_float16", ops.mean, [40000] * 3) == 40000.0


def test_the_number_of_terms_overflows() -> None:
    """From 65520 on the number of terms is infinite in float16, and the mean of ones 0; right is 1."""
    assert under("float16", ops.mean, np.ones(65519)) > 0
    assert under("float16", ops.mean, np.ones(65520)) == 0.0
    assert under(REPAIRED, ops.mean, np.ones(65520)) == 1.0
    with autocast("float16"):
        terms = Tensor(np.float16([1.0])) * 65520
    assert terms.item() == math.inf


def test_sums_stall() -> None:
    """4096 ones stop at 2048, and 10,000 times .1 at 256, where adding it is less than half an ulp."""
    assert under("float16", ops.sum, np.ones(4096)) == 2048.0
    assert under(REPAIRED, ops.sum, np.ones(4096)) == 4096.0
    assert under("float16", ops.sum, np.full(10_000, 0.1)) == 256.0
    assert under("mixed_float16", ops.sum, np.full(10_000, 0.1)) == pytest.approx(999.755859375, rel=1e-5)


def test_adding_up_ranks() -> None:
    """Gradients of 100 from 1024 ranks: their sum is infinite, divided first they add up to 107.1; right is 100."""
    gradients_of_ranks = np.full(1024, 100, np.float16)
    total = fs.sum(gradients_of_ranks, datapath="float16")
    assert fs.divide(total, np.float16(1024)) == math.inf
    parts = fs.divide(gradients_of_ranks, np.float16(1024))
    assert float(fs.sum(parts, datapath="float16")) == 107.125
    assert float(fs.divide(fs.sum(gradients_of_ranks, out_format="binary32"), np.float32(1024))) == 100.0


# ------------------------------------------------------------------------------------------- scales


def stepped(policy: str, scale: float) -> tuple[Any, Any]:
    """Take a step under a scale, and give its record and how far the weights moved."""
    with streams(0):
        model = nn.Linear(2, 2).to(Policy(policy).parameters)
    before = model.weight.data.astype(np.float64)
    taken = train_step(
        1,
        model,
        nn.CrossEntropyLoss(),
        (np.float32([[1.0, 2.0]]), np.array([0])),
        policy=Policy(policy),
        scaler=scaling.StaticScaler(scale),
        optimizer=SGD(model.parameters(), lr=2.0**-3),
        measure=False,
    )
    return taken.step, model.weight.data.astype(np.float64) - before


def test_the_default_scale_is_infinite_in_float16() -> None:
    """65536, with which torch's scaler begins, rounds to infinity: the first step of float16 overflows."""
    assert scaling.make("torch").scale == 65536.0
    step, moved = stepped("float16", 65536.0)
    assert (step.overflow, step.applied, moved.any()) == (True, False, False)
    for policy, scale in (("mixed_float16", 32768.0), ("float16", 16384.0)):
        step, moved = stepped(policy, scale)
        assert (step.overflow, step.applied, moved.any()) == (False, True, True)


def test_a_scale_below_one_takes_gradients_away() -> None:
    """keras#16100, pytorch#40497: a scale that has fallen under 2^-24 leaves no gradient; at 1 they are there."""
    step, moved = stepped("mixed_float16", 2.0**-30)
    assert (step.applied, moved.any()) == (True, False)
    _, right = stepped("mixed_float16", 1.0)
    assert right.all()
    _, coarse = stepped("mixed_float16", 2.0**-20)  # a few bits are left
    assert coarse == pytest.approx(right, rel=0.5)
    assert (coarse != right).any()


def test_a_scale_above_float32_overflows_every_step() -> None:
    """pytorch#98828: from 2^128 on the scale is infinite in float32, whatever the gradients are."""
    step, moved = stepped("float32", 2.0**128)
    assert (step.overflow, step.applied, moved.any()) == (True, False, False)
    step, moved = stepped("float32", 2.0**100)
    assert (step.overflow, step.applied, moved.all()) == (False, True, True)
