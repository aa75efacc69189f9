"""Pooling layers: the largest element or the mean of each window."""

from __future__ import annotations

from collections.abc import Sequence

from fp16sim.autograd import ops
from fp16sim.autograd.tensor import Tensor, need_tensor
from fp16sim.emulator.convolution import Steps
from fp16sim.nn.convolution import sizes
from fp16sim.nn.module import Module

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
]


class _Pool(Module):
    dimensions = 0

    def __init__(self, kernel_size: Steps, stride: Steps | None = None, padding: Steps = 0) -> None:
        self.kernel_size = sizes("kernel_size", kernel_size, self.dimensions)
        self.stride = self.kernel_size if stride is None else sizes("stride", stride, self.dimensions)
        self.padding = sizes("padding", padding, self.dimensions, 0)

    def __repr__(self) -> str:
        parts = [f"kernel_size={self.kernel_size}, stride={self.stride}"]
        if any(self.padding):
            parts.append(f"padding={self.padding}")
        return f"{type(self).__name__}({', '.join(parts)})"

    def _check(self, x: Tensor) -> None:
        _check_axes(self, x, self.dimensions)


def _check_axes(layer: Module, x: Tensor, dimensions: int) -> None:
    need_tensor(x)
    if x.ndim - dimensions not in (1, 2):
        spatial = ", ".join(("depth", "height", "width")[3 - dimensions :])
        raise ValueError(
            f"an input of shape {x.shape} for {type(layer).__name__}: pass (batch, channels, {spatial})"
        )


class _MaxPool(_Pool):
    def __init__(
        self,
        kernel_size: Steps,
        stride: Steps | None = None,
        padding: Steps = 0,
        dilation: Steps = 1,
        *,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__(kernel_size, stride, padding)
        self.dilation = sizes("dilation", dilation, self.dimensions)
        _refuse_ceil_mode(ceil_mode)

    def __repr__(self) -> str:
        plain = super().__repr__()
        return plain if max(self.dilation) == 1 else f"{plain[:-1]}, dilation={self.dilation})"

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, channels, *spatial) to (batch, channels, *places); the batch axis may be lacking."""
        self._check(x)
        return ops.max_pool(x, self.kernel_size, self.stride, self.padding, self.dilation)


class _AvgPool(_Pool):
    def __init__(
        self,
        kernel_size: Steps,
        stride: Steps | None = None,
        padding: Steps = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(kernel_size, stride, padding)
        _refuse_ceil_mode(ceil_mode)
        if not count_include_pad:
            raise ValueError(
                "count_include_pad=False: means here count the zeros of the padding; pool without padding"
            )

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, channels, *spatial) to (batch, channels, *places); the batch axis may be lacking."""
        self._check(x)
        return ops.avg_pool(x, self.kernel_size, self.stride, self.padding)


class _AdaptiveAvgPool(Module):
    dimensions = 0

    def __init__(self, output_size: int | Sequence[int]) -> None:
        entries = tuple(output_size) if isinstance(output_size, (tuple, list)) else (output_size,)
        if any(n != 1 for n in entries) or len(entries) not in (1, self.dimensions):
            raise ValueError(
                f"output_size={output_size!r}: this layer takes the mean over all places; pass 1, or use "
                f"AvgPool{self.dimensions}d with a kernel_size"
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(1)"

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, channels, *spatial) to (batch, channels, 1, ...); the batch axis may be lacking."""
        _check_axes(self, x, self.dimensions)
        return ops.adaptive_avg_pool(x, self.dimensions)


def _refuse_ceil_mode(ceil_mode: bool) -> None:
    if ceil_mode:
        raise ValueError(
            "ceil_mode=True: only windows that fit in whole are taken here; pad the input instead"
        )


class MaxPool2d(_MaxPool):
    """The largest element of each window in 2-d, exactly: :func:`fp16sim.autograd.ops.max_pool`.

    Parameters
    ----------
    kernel_size, stride, dilation : int or tuple of int
        Size of a window, step from window to window (default: `kernel_size`), and step within one.
    padding : int or tuple of int
        Elements on both sides that are never chosen, at most half a window.
    ceil_mode : bool
        False: only windows that fit in whole.

    Examples
    --------
    >>> MaxPool2d(2)(Tensor([[[[1.0, 2.0], [4.0, 3.0]]]])).data
    array([[[[4.]]]], dtype=float32)
    """

    dimensions = 2


class MaxPool1d(_MaxPool):
    """The largest element of each window in 1-d, as :class:`MaxPool2d`.

    >>> MaxPool1d(2)(Tensor([[[1.0, 2.0, 4.0, 3.0]]])).data
    array([[[2., 4.]]], dtype=float32)
    """

    dimensions = 1


class MaxPool3d(_MaxPool):
    """The largest element of each window in 3-d, as :class:`MaxPool2d`.

    >>> MaxPool3d((1, 2, 2))(Tensor([[[[[1.0, 2.0], [4.0, 3.0]]]]])).data
    array([[[[[4.]]]]], dtype=float32)
    """

    dimensions = 3


class AvgPool2d(_AvgPool):
    """The mean of each window in 2-d: :func:`fp16sim.autograd.ops.avg_pool`.

    Parameters
    ----------
    kernel_size, stride : int or tuple of int
        Size of a window, and step from window to window (default: `kernel_size`).
    padding : int or tuple of int
        Zeros on both sides, at most half a window.
    ceil_mode, count_include_pad : bool
        False and True: only windows that fit in whole, and the zeros count.

    Examples
    --------
    >>> AvgPool2d(2)(Tensor([[[[1.0, 2.0], [4.0, 3.0]]]])).data
    array([[[[2.5]]]], dtype=float32)
    """

    dimensions = 2


class AvgPool1d(_AvgPool):
    """The mean of each window in 1-d, as :class:`AvgPool2d`.

    >>> AvgPool1d(2)(Tensor([[[1.0, 2.0, 4.0, 3.0]]])).data
    array([[[1.5, 3.5]]], dtype=float32)
    """

    dimensions = 1


class AvgPool3d(_AvgPool):
    """The mean of each window in 3-d, as :class:`AvgPool2d`.

    >>> AvgPool3d((1, 2, 2))(Tensor([[[[[1.0, 2.0], [4.0, 3.0]]]]])).data
    array([[[[[2.5]]]]], dtype=float32)
    """

    dimensions = 3


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """The mean over all places: :func:`fp16sim.autograd.ops.adaptive_avg_pool`.

    Parameters
    ----------
    output_size : int or tuple of int
        1, or 1 for each axis: other sizes are not offered.

    Examples
    --------
    >>> AdaptiveAvgPool2d(1)(Tensor([[[[1.0, 2.0], [4.0, 3.0]]]])).data
    array([[[[2.5]]]], dtype=float32)
    """

    dimensions = 2


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """The mean over all places in 1-d, as :class:`AdaptiveAvgPool2d`.

    >>> AdaptiveAvgPool1d(1)(Tensor([[[1.0, 2.0, 4.0, 3.0]]])).data
    array([[[2.5]]], dtype=float32)
    """

    dimensions = 1


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """The mean over all places in 3-d, as :class:`AdaptiveAvgPool2d`.

    >>> AdaptiveAvgPool3d(1)(Tensor([[[[[1.0, 2.0], [4.0, 3.0]]]]])).data
    array([[[[[2.5]]]]], dtype=float32)
    """

    dimensions = 3
