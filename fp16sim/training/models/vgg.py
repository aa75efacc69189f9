"""A small VGG: pairs of 3 x 3 convolutions, each followed by max pooling."""

from __future__ import annotations

from fp16sim.autograd.policy import Policy
from fp16sim.nn import Conv2d, Flatten, Linear, MaxPool2d, Module, ReLU, Sequential
from fp16sim.nn.random import streams
from fp16sim.optim import SGD, cosine
from fp16sim.training.data import Batches, digits
from fp16sim.training.evaluation import accuracy_on
from fp16sim.training.recipes import Recipe

__all__ = ["RECIPE", "vgg"]

WIDTHS = (32, 64)
"""Channels of each pair of convolutions."""

STEPS = 220  # 10 epochs


def vgg(seed: int = 0) -> Sequential:
    """Make the network for (batch, 1, 8, 8) images in 10 classes.

    Twice: convolution, ReLU, convolution, ReLU, max pooling over 2 x 2; then a linear layer on the 64 x 2 x 2 numbers
    that are left. There is no batch normalisation, as in the paper. Convolution ``i`` draws its weights from stream
    ``i``, the linear layer from the next.

    Source: Simonyan and Zisserman, arXiv 1409.1556.

    Examples
    --------
    >>> model = vgg()
    >>> sum(parameter.size for parameter in model.parameters())
    67562
    >>> model.modules[0], model.modules[1]
    (Conv2d(1, 32, kernel_size=(3, 3), padding=(1, 1)), ReLU())
    """
    modules: list[Module] = []
    channels = 1
    with streams(seed):
        for width in WIDTHS:
            modules += [Conv2d(channels, width, 3, padding=1), ReLU()]
            modules += [Conv2d(width, width, 3, padding=1), ReLU(), MaxPool2d(2)]
            channels = width
        return Sequential(*modules, Flatten(), Linear(channels * 2 * 2, 10))


def evaluate(model: Module, policy: Policy) -> float:
    """Give the accuracy on the 397 test images."""
    test = digits(channels=True)[1]
    return accuracy_on(model, [(test.images, test.labels)], policy)


RECIPE = Recipe(
    name="vgg",
    summary="VGG of four 3 x 3 convolutions, 32 and 64 channels, handwritten digits",
    build=vgg,
    data=lambda seed: Batches(digits(channels=True)[0], 64, seed),
    optimizer=lambda model: SGD(model.parameters(), lr=0.02, momentum=0.9),
    schedule=cosine(0.02, STEPS),
    steps=STEPS,
    evaluate=evaluate,
)
