"""Layers that normalise: over the batch, over an example, over groups of channels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fp16sim.autograd import ops
from fp16sim.autograd.arithmetic import Arithmetic, Array
from fp16sim.autograd.checkpoint import remembered
from fp16sim.autograd.ops.elementwise import is_number
from fp16sim.autograd.tensor import Tensor, need_tensor
from fp16sim.emulator.programs import program_of
from fp16sim.nn.initial import need_widths
from fp16sim.nn.module import Module

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "LayerNorm", "RMSNorm"]


def _parameter(shape: tuple[int, ...], value: float, wanted: bool) -> Tensor | None:
    return Tensor(np.full(shape, value, np.float32), requires_grad=True) if wanted else None


def _need_eps(eps: float) -> float:
    if not is_number(eps) or isinstance(eps, bool) or not 0 <= eps < math.inf:
        raise ValueError(
            f"eps={eps!r}: it is added to a variance, finite and not negative; pass such as 1e-5"
        )
    return float(eps)


class _BatchNorm(Module):
    state = ("num_batches_tracked",)
    dimensions: tuple[int, ...] = ()
    shapes = ""

    running_mean: Array | None
    running_var: Array | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        need_widths(num_features=num_features)
        if momentum is not None and not (is_number(momentum) and 0 <= momentum <= 1):
            raise ValueError(
                f"momentum={momentum!r}: it is the weight of the newest batch; pass a number from 0 to 1, or None for "
                "the mean over all batches"
            )
        self.num_features, self.eps, self.momentum = num_features, _need_eps(eps), momentum
        self.track_running_stats = track_running_stats
        self.weight = _parameter((num_features,), 1.0, affine)
        self.bias = _parameter((num_features,), 0.0, affine)
        self.running_mean = self.running_var = None
        if track_running_stats:
            self.running_mean = np.zeros(num_features, np.float32)
            self.running_var = np.ones(num_features, np.float32)
            self.num_batches_tracked = 0

    def __repr__(self) -> str:
        parts = [f"{self.num_features}"]
        if self.eps != 1e-5:
            parts.append(f"eps={self.eps}")
        if self.momentum != 0.1:
            parts.append(f"momentum={self.momentum}")
        if self.weight is None:
            parts.append("affine=False")
        if not self.track_running_stats:
            parts.append("track_running_stats=False")
        return f"{type(self).__name__}({', '.join(parts)})"

    def forward(self, x: Tensor) -> Tensor:
        """Map a batch to the same shape."""
        need_tensor(x)
        if x.ndim not in self.dimensions or x.shape[1] != self.num_features:
            raise ValueError(
                f"an input of shape {x.shape} for a {type(self).__name__} of {self.num_features} channels: pass "
                f"{self.shapes.format(self.num_features)}"
            )
        if not self.training and self.running_mean is not None and self.running_var is not None:
            statistics = self.running_mean, self.running_var
            return ops.batch_norm(x, self.weight, self.bias, statistics, self.eps)
        observe = self._observe if self.training and self.running_mean is not None else None
        return ops.batch_norm(x, self.weight, self.bias, None, self.eps, observe)

    def _observe(self, mean: Array, variance: Array, count: int) -> None:
        remembered(lambda: self._update(mean, variance, count))

    def _update(self, mean: Array, variance: Array, count: int) -> None:
        self.num_batches_tracked += 1
        share = 1.0 / self.num_batches_tracked if self.momentum is None else self.momentum
        assert self.running_mean is not None
        assert self.running_var is not None
        self.running_mean = _moved(self.running_mean, mean, share)
        self.running_var = _moved(self.running_var, variance, share, count / (count - 1))


def _moved(running: Array, batch: Array, share: float, factor: float | None = None) -> Array:
    """Give ``(1 - share) running + share (batch factor)``: each number and each operation rounded to its format."""
    arithmetic = Arithmetic()
    numbers = (1.0 - share, share) if factor is None else (1.0 - share, share, factor)
    operands = running, arithmetic.cast(batch, running.dtype)
    return arithmetic.perform(_MOVED[len(numbers)], *operands, constants=numbers)[0]


_MOVED = {
    2: program_of(lambda running, batch, kept, share: (running * kept + batch * share,), 2, 2),
    3: program_of(
        lambda running, batch, kept, share, factor: (running * kept + batch * factor * share,), 2, 3
    ),
}


class BatchNorm2d(_BatchNorm):
    """Normalise each channel over the batch, and by running statistics after ``model.eval()``.

    Parameters
    ----------
    num_features : int
        Number of channels.
    eps : float
        Added to the variance, rounded to the format of the operation first.
    momentum : float or None
        Weight of the newest batch in the running statistics; None: the mean over all batches.
    affine : bool
        Whether to scale by a weight and add a bias.
    track_running_stats : bool
        Whether there are running statistics; without them every batch is normalised by its own.

    Attributes
    ----------
    weight, bias : Tensor, shape (num_features,), float32, or None
        Ones and zeros.
    running_mean, running_var : array, shape (num_features,), float32, or None
        Zeros and ones at first.
    num_batches_tracked : int

    Notes
    -----
    The roundings are those of :func:`fp16sim.autograd.ops.batch_norm`.

    Each forward pass in training, recorded or not, moves the running statistics once, in their own format (float32;
    float16 after ``model.to("float16")``): the batch's statistic converted to it; for the variance its product with
    N / (N - 1), of which N is the number of values of a channel; (1 - momentum) running; momentum batch; their sum.
    The constants N / (N - 1), 1 - momentum, momentum and 1 / num_batches_tracked are rounded to the format from
    float64.

    Source: ``torch.nn.BatchNorm2d``, torch 2.13.

    Examples
    --------
    >>> layer = BatchNorm2d(3)
    >>> layer
    BatchNorm2d(3)
    >>> x = Tensor(np.arange(24.0, dtype=np.float32).reshape(2, 3, 2, 2))
    >>> y = layer(x)
    >>> layer.running_mean[:2], layer.num_batches_tracked
    (array([0.75, 1.15], dtype=float32), 1)
    >>> layer.eval()(x).shape
    (2, 3, 2, 2)
    """

    dimensions, shapes = (4,), "(batch, {}, height, width)"


class BatchNorm1d(_BatchNorm):
    """Normalise each channel over the batch: as :class:`BatchNorm2d`, for (batch, channels) and with a width.

    >>> BatchNorm1d(1, eps=0.0)(Tensor([[1.0], [3.0]])).data.ravel()
    array([-1.,  1.], dtype=float32)
    """

    dimensions, shapes = (2, 3), "(batch, {0}), or (batch, {0}, width)"


class BatchNorm3d(_BatchNorm):
    """Normalise each channel over the batch: as :class:`BatchNorm2d`, for (batch, channels, depth, height, width).

    >>> BatchNorm3d(1, eps=0.0)(Tensor([[[[[1.0, 3.0]]]]])).data.ravel()
    array([-1.,  1.], dtype=float32)
    """

    dimensions, shapes = (5,), "(batch, {}, depth, height, width)"


class LayerNorm(Module):
    """Normalise over the last axes of each example.

    Parameters
    ----------
    normalized_shape : int or tuple of int
        Sizes of the last axes.
    eps : float
        Added to the variance, rounded to the format of the operation first.
    elementwise_affine, bias : bool
        Whether to scale by a weight, and whether to add a bias then.

    Attributes
    ----------
    weight, bias : Tensor, shape normalized_shape, float32, or None
        Ones and zeros.

    Notes
    -----
    The roundings are those of :func:`fp16sim.autograd.ops.layer_norm`.

    Examples
    --------
    >>> LayerNorm(2, eps=0.0)(Tensor([[1.0, 3.0]])).data
    array([[-1.,  1.]], dtype=float32)
    >>> LayerNorm((3, 4), bias=False)
    LayerNorm((3, 4), bias=False)
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
    ) -> None:
        self.normalized_shape, self.eps = _sizes(normalized_shape), _need_eps(eps)
        self.weight = _parameter(self.normalized_shape, 1.0, elementwise_affine)
        self.bias = _parameter(self.normalized_shape, 0.0, elementwise_affine and bias)

    def __repr__(self) -> str:
        parts = [_shown(self.normalized_shape)]
        if self.eps != 1e-5:
            parts.append(f"eps={self.eps}")
        if self.weight is None:
            parts.append("elementwise_affine=False")
        elif self.bias is None:
            parts.append("bias=False")
        return f"LayerNorm({', '.join(parts)})"

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., *normalized_shape) to the same shape."""
        return ops.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(Module):
    """Divide by the root of the mean square over the last axes.

    Parameters
    ----------
    normalized_shape : int or tuple of int
        Sizes of the last axes.
    eps : float, optional
        Added to the mean square. Default: the distance from 1 to the next number of the format of the operation.
    elementwise_affine : bool
        Whether to scale by a weight.

    Attributes
    ----------
    weight : Tensor, shape normalized_shape, float32, or None
        Ones.

    Notes
    -----
    The roundings are those of :func:`fp16sim.autograd.ops.rms_norm`.

    Examples
    --------
    >>> RMSNorm(4, eps=0.0)(Tensor([[3.0, 3.0, 3.0, -3.0]])).data
    array([[ 1.,  1.,  1., -1.]], dtype=float32)
    """

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float | None = None, elementwise_affine: bool = True
    ) -> None:
        self.normalized_shape, self.eps = _sizes(normalized_shape), None if eps is None else _need_eps(eps)
        self.weight = _parameter(self.normalized_shape, 1.0, elementwise_affine)

    def __repr__(self) -> str:
        parts = [_shown(self.normalized_shape)]
        if self.eps is not None:
            parts.append(f"eps={self.eps}")
        if self.weight is None:
            parts.append("elementwise_affine=False")
        return f"RMSNorm({', '.join(parts)})"

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., *normalized_shape) to the same shape."""
        return ops.rms_norm(x, self.normalized_shape, self.weight, self.eps)


class GroupNorm(Module):
    """Normalise over each group of channels of each example.

    Parameters
    ----------
    num_groups, num_channels : int
        The first divides the second.
    eps : float
        Added to the variance, rounded to the format of the operation first.
    affine : bool
        Whether to scale by a weight and add a bias.

    Attributes
    ----------
    weight, bias : Tensor, shape (num_channels,), float32, or None
        Ones and zeros.

    Notes
    -----
    The roundings are those of :func:`fp16sim.autograd.ops.group_norm`.

    Examples
    --------
    >>> GroupNorm(2, 4, eps=0.0)(Tensor([[[1.0], [3.0], [5.0], [9.0]]])).data.ravel()
    array([-1.,  1., -1.,  1.], dtype=float32)
    """

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True) -> None:
        need_widths(num_groups=num_groups, num_channels=num_channels)
        if num_channels % num_groups:
            raise ValueError(
                f"num_groups={num_groups} and num_channels={num_channels}: the groups are equal; choose a divisor"
            )
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, _need_eps(eps)
        self.weight = _parameter((num_channels,), 1.0, affine)
        self.bias = _parameter((num_channels,), 0.0, affine)

    def __repr__(self) -> str:
        parts = [f"{self.num_groups}, {self.num_channels}"]
        if self.eps != 1e-5:
            parts.append(f"eps={self.eps}")
        if self.weight is None:
            parts.append("affine=False")
        return f"GroupNorm({', '.join(parts)})"

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, num_channels, *spatial) to the same shape."""
        need_tensor(x)
        if x.ndim < 2 or x.shape[1] != self.num_channels:
            raise ValueError(
                f"an input of shape {x.shape} for a GroupNorm of {self.num_channels} channels: pass "
                f"(batch, {self.num_channels}) and any spatial axes"
            )
        return ops.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


def _sizes(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    entries = tuple(normalized_shape) if isinstance(normalized_shape, Sequence) else (normalized_shape,)
    for n in entries:
        need_widths(normalized_shape=n)
    if not entries:
        raise ValueError("normalized_shape=(): name at least one axis to normalise over")
    return entries


def _shown(shape: tuple[int, ...]) -> str:
    return str(shape[0] if len(shape) == 1 else shape)
