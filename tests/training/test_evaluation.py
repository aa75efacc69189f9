"""Accuracy and loss on batches that are not trained on, in evaluation mode."""

import math

import numpy as np
import pytest

from fp16sim.autograd.policy import current_policy
from fp16sim.autograd.tensor import Tensor, is_recording
from fp16sim.nn import Module, ReLU, Sequential
from fp16sim.training.evaluation import accuracy_on, evaluating, loss_on


class Looking(Module):
    """Gives its input back and notes how it was called."""

    def __init__(self):
        self.part = ReLU()
        self.notes = []

    def forward(self, x, *_):
        self.notes.append((self.training, self.part.training, is_recording(), current_policy().name))
        return x


SCORES = np.float32([[1, 2, 0], [2, 1, 0], [0, math.nan, 3], [3, 1, 2]])
LABELS = np.array([1, 1, 2, 0])


def test_accuracy_counts_over_batches_and_nan_is_never_correct():
    batches = [(SCORES[:3], LABELS[:3]), (SCORES[3:], LABELS[3:])]
    assert accuracy_on(Looking(), batches, "float32") == 2 / 4


def test_labels_may_have_several_axes():
    batches = [((SCORES.reshape(2, 2, 3), np.array([2, 2])), LABELS.reshape(2, 2))]
    assert accuracy_on(Looking(), batches, "float32") == 2 / 4


def test_a_loss_is_weighted_by_the_number_of_targets():
    model = Looking()

    def first(output, targets):
        return output.sum() * 0.0 + float(targets[0])

    batches = [
        (np.zeros((1, 1), np.float32), np.array([4.0])),
        (np.zeros((3, 1), np.float32), np.array([8.0, 0, 0])),
    ]
    assert loss_on(model, batches, "float32", first) == (4 + 3 * 8) / 4
    assert math.isnan(loss_on(model, [(SCORES[2:3], LABELS[2:3])], "float32"))
    assert loss_on(model, [(np.zeros((2, 4), np.float32), [0, 1])], "float32") == pytest.approx(math.log(4))


def test_the_mode_the_tape_and_the_policy():
    model = Looking()
    accuracy_on(model, [(SCORES, LABELS)], "mixed_float16")
    assert model.notes == [(False, False, False, "mixed_float16")]
    assert (model.training, model.part.training, is_recording()) == (True, True, True)


def test_every_part_has_its_mode_back_even_after_an_error():
    model = Sequential(Looking(), Looking())
    model.modules[1].eval()
    with pytest.raises(ZeroDivisionError), evaluating(model, "float32"):
        raise ZeroDivisionError
    assert [module.training for _, module in model.named_modules()] == [True, True, True, False, False]


def test_no_batch_is_refused():
    for function in (accuracy_on, loss_on):
        with pytest.raises(ValueError, match="no batch to evaluate on"):
            function(Looking(), [], "float32")


def test_a_tensor_is_an_input_too():
    assert accuracy_on(Looking(), [(Tensor(SCORES), LABELS)], "float32") == 2 / 4
