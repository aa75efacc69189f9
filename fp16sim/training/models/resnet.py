"""A small ResNet: residual blocks with batch normalisation."""

from __future__ import annotations

from fp16sim.autograd import ops
from fp16sim.autograd.policy import Policy
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn import AdaptiveAvgPool2d, BatchNorm2d, Conv2d, Flatten, Linear, Module, Sequential
from fp16sim.nn.random import streams
from fp16sim.optim import SGD, cosine
from fp16sim.training.data import Batches, digits
from fp16sim.training.evaluation import accuracy_on
from fp16sim.training.recipes import Recipe

__all__ = ["RECIPE", "BasicBlock", "ResNet", "resnet"]

STEPS = 176  # 8 epochs


class BasicBlock(Module):
    """Two 3 x 3 convolutions with batch normalisation, added to their input.

    ``relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x))``. The shortcut is x itself, or a 1 x 1 convolution with batch
    normalisation (`downsample`) where the shape changes.

    Parameters
    ----------
    in_channels, out_channels : int
    stride : int
        Of the first convolution and of the shortcut.

    Examples
    --------
    >>> import numpy as np
    >>> BasicBlock(4, 8, stride=2)(Tensor(np.zeros((2, 4, 8, 8), np.float32))).shape
    (2, 8, 4, 4)
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int = 1) -> None:
        self.conv1 = Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False)
        self.bn1 = BatchNorm2d(out_channels)
        self.conv2 = Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = BatchNorm2d(out_channels)
        self.downsample = (
            None
            if stride == 1 and in_channels == out_channels
            else Sequential(
                Conv2d(in_channels, out_channels, 1, stride, bias=False), BatchNorm2d(out_channels)
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, in_channels, height, width) to (batch, out_channels, height / stride, width / stride)."""
        inner = ops.relu(self.bn1(self.conv1(x)))
        inner = self.bn2(self.conv2(inner))
        return ops.relu(ops.add(inner, x if self.downsample is None else self.downsample(x)))


class ResNet(Module):
    """A convolution, residual blocks, the mean over all places, and a linear layer.

    Parameters
    ----------
    widths : sequence of int
        Channels of each block; the first convolution has those of the first. A block that has more than the one
        before it halves the image.
    channels, classes : int
        Of the images, and how many classes.

    Notes
    -----
    Parts bear torchvision's names. Source: He et al., arXiv 1512.03385, section 4.2 (the network for small images).
    """

    def __init__(self, widths: tuple[int, ...] = (16, 32, 32), channels: int = 1, classes: int = 10) -> None:
        self.conv1 = Conv2d(channels, widths[0], 3, padding=1, bias=False)
        self.bn1 = BatchNorm2d(widths[0])
        before = (widths[0], *widths[:-1])
        self.blocks = Sequential(
            *(BasicBlock(old, new, 1 if old == new else 2) for old, new in zip(before, widths, strict=True))
        )
        self.pool = Sequential(AdaptiveAvgPool2d(1), Flatten())
        self.fc = Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, channels, height, width) to (batch, classes)."""
        x = self.blocks(ops.relu(self.bn1(self.conv1(x))))
        scores: Tensor = self.fc(self.pool(x))
        return scores


def resnet(seed: int = 0) -> ResNet:
    """Make the network for (batch, 1, 8, 8) images in 10 classes: blocks of 16, 32 and 32 channels.

    >>> sum(parameter.size for parameter in resnet().parameters())
    38266
    """
    with streams(seed):
        return ResNet()


def evaluate(model: Module, policy: Policy) -> float:
    """Give the accuracy on the 397 test images, with running statistics."""
    test = digits(channels=True)[1]
    return accuracy_on(model, [(test.images, test.labels)], policy)


RECIPE = Recipe(
    name="resnet",
    summary="ResNet of three blocks with batch normalisation, 16 to 32 channels, handwritten digits",
    build=resnet,
    data=lambda seed: Batches(digits(channels=True)[0], 64, seed),
    optimizer=lambda model: SGD(model.parameters(), lr=0.2, momentum=0.9),
    schedule=cosine(0.2, STEPS),
    steps=STEPS,
    evaluate=evaluate,
)
