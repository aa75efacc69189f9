"""Loss layers are the operations, in the policy's wide format."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fp16sim import nn
from fp16sim.autograd import ops
from fp16sim.autograd.policy import autocast
from fp16sim.autograd.tensor import Tensor
from fp16sim.optim import SGD
from fp16sim.training.fit import fit

LABELS = np.array([0, -100, 2])
TARGETS = np.random.default_rng(1).uniform(size=(3, 4))
LOSSES: list[tuple[nn.Module, Any, Any]] = [
    (nn.CrossEntropyLoss(), lambda x: ops.cross_entropy(x, LABELS), LABELS),
    (nn.CrossEntropyLoss(0.1, 2, "sum"), lambda x: ops.cross_entropy(x, [0, 1, 2], 0.1, 2, "sum"), [0, 1, 2]),
    (nn.NLLLoss(reduction="none"), lambda x: ops.nll_loss(x, LABELS, reduction="none"), LABELS),
    (nn.NLLLoss(ignore_index=1), lambda x: ops.nll_loss(x, [0, 1, 2], 1), [0, 1, 2]),
    (nn.MSELoss(), lambda x: ops.mse_loss(x, TARGETS), TARGETS),
    (nn.MSELoss("sum"), lambda x: ops.mse_loss(x, TARGETS, "sum"), TARGETS),
    (nn.BCEWithLogitsLoss(), lambda x: ops.bce_with_logits(x, TARGETS), TARGETS),
    (nn.BCEWithLogitsLoss("none"), lambda x: ops.bce_with_logits(x, TARGETS, "none"), TARGETS),
]


@pytest.mark.parametrize(("layer", "function", "targets"), LOSSES)
@pytest.mark.parametrize(
    ("policy", "dtype"), [("mixed_float16", np.float32), ("float16", np.float16), ("float32", np.float32)]
)
def test_layers_are_the_operations(layer: Any, function: Any, targets: Any, policy: str, dtype: Any) -> None:
    x = Tensor(np.random.default_rng(0).normal(size=(3, 4)).astype(np.float16))
    with autocast(policy):
        loss, expected = layer(x, targets), function(x)
    assert loss.dtype == dtype
    assert loss.data.tobytes() == expected.data.tobytes()
    with pytest.raises(TypeError, match=r"pass fs.Tensor\(x\)"):
        layer(np.ones((3, 4)), targets)


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), nn.NLLLoss()])
def test_labels_in_a_tensor_are_refused_with_what_to_pass(loss):
    with pytest.raises(
        TypeError, match=r"labels in a float32 tensor: .*pass a list or an array, such as \[2, 0\]"
    ):
        loss(Tensor([[0.0, 1.0]]), Tensor([1]))
    loss(Tensor([[0.0, 1.0]]), [1])


def test_integer_inputs_in_fit_are_explained():
    model = nn.Linear(2, 2)
    rate = {"optimizer": SGD(model.parameters(), lr=0.5), "steps": 1}
    images = np.array([[1, 2]])
    with pytest.raises(TypeError, match=r"array of int64: .*pass x\.astype\(np\.float32\) to fit"):
        fit(model, [(images, [1])], **rate)
    fit(model, [(images.astype(np.float32), [1])], **rate)
