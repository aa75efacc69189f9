"""The multilayer perceptron; its recipe stands in `fp16sim.training.recipes`."""

from __future__ import annotations

from itertools import pairwise

from fp16sim.nn import Linear, ReLU, Sequential
from fp16sim.nn.random import streams

__all__ = ["mlp"]


def mlp(inputs: int = 64, hidden: int = 64, layers: int = 6, outputs: int = 10, seed: int = 0) -> Sequential:
    """Make a multilayer perceptron: `layers` times Linear and ReLU, then Linear.

    The defaults are the digit classifier 64 - 6 x 64 - 10. Layer ``i`` draws its weights from stream ``i``.

    >>> sum(parameter.data.size for parameter in mlp().parameters())
    25610
    """
    widths = [inputs, *[hidden] * layers]
    with streams(seed):
        modules: list[Linear | ReLU] = []
        for wide, narrow in pairwise(widths):
            modules += [Linear(wide, narrow), ReLU()]
        return Sequential(*modules, Linear(widths[-1], outputs))
