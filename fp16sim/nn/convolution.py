"""Convolutional layers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fp16sim.autograd import ops
from fp16sim.autograd.tensor import Tensor, need_tensor
from fp16sim.emulator.convolution import Padding, Steps
from fp16sim.emulator.formats import nearest_name
from fp16sim.nn.initial import he_normal, need_widths
from fp16sim.nn.module import Module

__all__ = ["Conv1d", "Conv2d", "Conv3d", "sizes"]


def sizes(name: str, value: Steps, dimensions: int, smallest: int = 1) -> tuple[int, ...]:
    """Give one integer for each spatial axis, none of them under `smallest`.

    >>> sizes("stride", 2, 3)
    (2, 2, 2)
    """
    entries = tuple(value) if isinstance(value, Sequence) else (value,) * dimensions
    whole = all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in entries)
    if not whole or len(entries) != dimensions or min(entries) < smallest:
        raise ValueError(
            f"{name}={value!r}: pass an integer from {smallest} on, or one for each of {dimensions} spatial axes"
        )
    return tuple(int(n) for n in entries)


class _Convolution(Module):
    dimensions = 0

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Steps,
        stride: Steps = 1,
        padding: Padding = 0,
        dilation: Steps = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        need_widths(in_channels=in_channels, out_channels=out_channels, groups=groups)
        if in_channels % groups or out_channels % groups:
            raise ValueError(
                f"in_channels={in_channels}, out_channels={out_channels} and groups={groups}: groups must divide both"
            )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = sizes("kernel_size", kernel_size, self.dimensions)
        self.stride = sizes("stride", stride, self.dimensions)
        self.dilation = sizes("dilation", dilation, self.dimensions)
        self.padding: Padding
        if isinstance(padding, str):
            if padding not in ("valid", "same"):
                raise ValueError(f"unknown padding {padding!r}: {nearest_name(padding, ('valid', 'same'))}")
            if padding == "same" and any(n != 1 for n in self.stride):
                raise ValueError(
                    f"padding='same' with stride={stride}: the size changes; pass the padding as integers"
                )
            self.padding = padding
        else:
            self.padding = sizes("padding", padding, self.dimensions, 0)
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self.weight = Tensor(he_normal(shape, math.prod(shape[1:])), requires_grad=True)
        self.bias = Tensor(np.zeros(out_channels, np.float32), requires_grad=True) if bias else None

    def __repr__(self) -> str:
        ones = (1,) * self.dimensions
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"]
        if self.stride != ones:
            parts.append(f"stride={self.stride}")
        if self.padding not in ((0,) * self.dimensions, "valid"):
            parts.append(f"padding={self.padding!r}")
        if self.dilation != ones:
            parts.append(f"dilation={self.dilation}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        if self.bias is None:
            parts.append("bias=False")
        return f"{type(self).__name__}({', '.join(parts)})"

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, in_channels, *spatial) to (batch, out_channels, *places); the batch axis may be lacking."""
        need_tensor(x)
        lacking = x.ndim - self.dimensions
        if lacking not in (1, 2) or x.shape[lacking - 1] != self.in_channels:
            spatial = ", ".join(("depth", "height", "width")[3 - self.dimensions :])
            raise ValueError(
                f"an input of shape {x.shape} for a {type(self).__name__} of {self.in_channels} channels: pass "
                f"(batch, {self.in_channels}, {spatial})"
            )
        return ops.convolution(
            x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )


class Conv2d(_Convolution):
    """Convolution (correlation) in 2-d.

    Parameters
    ----------
    in_channels, out_channels : int
    kernel_size, stride, dilation : int or tuple of int
        One for each spatial axis.
    padding : int, tuple of int, "valid" or "same"
        Zeros on both sides; ``"same"``, with stride 1 only, keeps the size, an odd zero goes last.
    groups : int
        Each group of output channels sees a group of input channels of its own.
    bias : bool
        Whether to add b.

    Attributes
    ----------
    weight : Tensor, shape (out_channels, in_channels / groups, *kernel_size), float32
        He initialisation: standard normal numbers of the next random stream
        (:func:`fp16sim.nn.random.manual_seed`) times sqrt(2 / fan_in), fan_in = in_channels / groups times the places
        of the kernel, in float64, rounded to float32 once.
    bias : Tensor, shape (out_channels,), float32, or None
        Zeros.

    Raises
    ------
    ValueError
        On sizes that are no positive integers, or groups that do not divide the channels.

    Notes
    -----
    The roundings are those of :func:`fp16sim.autograd.ops.convolution`, in the compute format of the policy.

    Examples
    --------
    >>> layer = Conv2d(3, 8, 3, padding=1, stride=2)
    >>> layer
    Conv2d(3, 8, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1))
    >>> layer(Tensor(np.zeros((2, 3, 8, 8), np.float32))).shape
    (2, 8, 4, 4)
    """

    dimensions = 2


class Conv1d(_Convolution):
    """Convolution in 1-d: as :class:`Conv2d`, for (batch, channels, width).

    >>> Conv1d(3, 8, 5, padding="same")(Tensor(np.zeros((2, 3, 20), np.float32))).shape
    (2, 8, 20)
    """

    dimensions = 1


class Conv3d(_Convolution):
    """Convolution in 3-d: as :class:`Conv2d`, for (batch, channels, depth, height, width).

    >>> Conv3d(3, 6, 2, groups=3)(Tensor(np.zeros((1, 3, 4, 4, 4), np.float32))).shape
    (1, 6, 3, 3, 3)
    """

    dimensions = 3
