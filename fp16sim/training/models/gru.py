"""A small recurrent classifier of recordings of speech."""

from __future__ import annotations

import numpy.typing as npt

from fp16sim.autograd import ops
from fp16sim.autograd.policy import Policy
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn import GRU, Linear, Module
from fp16sim.nn.random import streams
from fp16sim.optim import Adam, cosine
from fp16sim.training.data import SequenceBatches, vowels
from fp16sim.training.evaluation import accuracy_on
from fp16sim.training.recipes import Recipe

__all__ = ["RECIPE", "SequenceClassifier", "gru"]

STEPS = 180  # 20 epochs


class SequenceClassifier(Module):
    """A GRU in both directions, whose two last states a linear layer classifies.

    Parameters
    ----------
    inputs, hidden, classes : int
        Numbers in a frame, width of the state of each direction, and how many classes.

    Examples
    --------
    >>> import numpy as np
    >>> SequenceClassifier()(Tensor(np.zeros((2, 5, 12), np.float32)), [5, 3]).shape
    (2, 9)
    """

    def __init__(self, inputs: int = 12, hidden: int = 48, classes: int = 9) -> None:
        self.gru = GRU(inputs, hidden, batch_first=True, bidirectional=True)
        self.fc = Linear(2 * hidden, classes)

    def forward(self, x: Tensor, lengths: npt.ArrayLike | None = None) -> Tensor:
        """Map (batch, time, inputs) to (batch, classes); what stands beyond a sequence's length does not matter."""
        _, last = self.gru(x, lengths=lengths)
        both = ops.swapaxes(last, 0, 1)
        scores: Tensor = self.fc(ops.reshape(both, (both.shape[0], -1)))
        return scores


def gru(seed: int = 0) -> SequenceClassifier:
    """Make the network for recordings of 12 numbers a frame by nine speakers.

    Source: Cho et al., arXiv 1406.1078; Schuster and Paliwal, IEEE Transactions on Signal Processing 45, 1997.

    >>> sum(parameter.size for parameter in gru().parameters())
    18729
    """
    with streams(seed):
        return SequenceClassifier()


def evaluate(model: Module, policy: Policy) -> float:
    """Give the accuracy on the 370 test recordings."""
    test = vowels()[1]
    return accuracy_on(model, [((test.inputs, test.lengths), test.labels)], policy)


RECIPE = Recipe(
    name="gru",
    summary="GRU in both directions, 48 wide, speakers of Japanese vowels",
    build=gru,
    data=lambda seed: SequenceBatches(vowels()[0], 30, seed),
    optimizer=lambda model: Adam(model.parameters(), lr=0.01),
    schedule=cosine(0.01, STEPS),
    clip_norm=1.0,
    steps=STEPS,
    evaluate=evaluate,
)
