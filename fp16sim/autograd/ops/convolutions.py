"""Convolutions: accumulated as the policy says, forward by `convolution` and backward by `gradients`."""

from __future__ import annotations

from typing import Any

import numpy as np

from fp16sim.autograd.arithmetic import Arithmetic, Array
from fp16sim.autograd.operation import Op, run
from fp16sim.autograd.ops.products import need_same_dtype
from fp16sim.autograd.tensor import Context, Tensor, need_tensor
from fp16sim.emulator.convolution import Padding, Steps

__all__ = ["convolution"]

Saved = tuple[Any, ...]
Parts = tuple[Array | None, ...]


def _convolution(
    arithmetic: Arithmetic, x: Array, weight: Array, bias: Array | None = None, **steps: Any
) -> tuple[Array, Saved]:
    name = f"conv{weight.ndim - 2}d"
    result = arithmetic.convolve(name, x, weight, **steps)
    if bias is not None:
        result = arithmetic.add(result, bias.reshape(-1, *(1,) * (weight.ndim - 2)))
    return result, (x, weight, steps)


def _convolution_gradient(context: Context, gradient: Array) -> Parts:
    x, weight, steps = context.saved
    arithmetic, needs = context.arithmetic, context.needs
    name = f"conv{weight.ndim - 2}d"
    gradient = np.ascontiguousarray(gradient)
    parts: list[Array | None] = [None] * len(needs)
    if needs[0]:
        parts[0] = arithmetic.convolve(f"{name}_input", x.shape, weight, gradient, **steps)
    if needs[1]:
        parts[1] = arithmetic.convolve(f"{name}_weight", x, weight.shape, gradient, **steps)
    if len(needs) > 2 and needs[2]:
        channels = gradient.ndim - weight.ndim + 1  # 1, or 0 where there is no batch axis
        parts[2] = arithmetic.sum(gradient, tuple(i for i in range(gradient.ndim) if i != channels))
    return tuple(parts)


_CONVOLUTION = Op("convolution", _convolution, _convolution_gradient)


def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Steps = 1,
    padding: Padding = 0,
    dilation: Steps = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve (correlate) in one, two or three dimensions, as many as the weight has kernel axes.

    Parameters
    ----------
    x : Tensor, shape (batch, channels, *spatial), or (channels, *spatial) for one example
    weight : Tensor, shape (outputs, channels / groups, *kernel)
    bias : Tensor, shape (outputs,), optional
    stride, dilation : int or tuple of int
        Steps from window to window, and from tap to tap.
    padding : int, tuple of int, "valid" or "same"
        Zeros on both sides of each axis; ``"same"``, with stride 1 only, keeps the size, an odd zero goes last.
    groups : int
        Into how many groups the channels fall.

    Returns
    -------
    Tensor, shape (batch, outputs, *places)

    Raises
    ------
    ValueError, TypeError
        On shapes, steps or formats that do not fit.

    Notes
    -----
    Each element is one dot product over (channel of the group, kernel axes), from +0, in that order, rounded once;
    its sum with the bias is rounded once more. Padding takes part as +0.

    Gradients, of which each element is one dot product, rounded once. Input: over (output channel of the group,
    kernel axes), where a stride puts zeros between the entries of G. Weight: over (example, places). Bias: the sum
    of G over (example, places), by the policy's reduction.

    The orders are those of :func:`fp16sim.conv2d`, :func:`fp16sim.conv2d_input` and :func:`fp16sim.conv2d_weight`.

    Examples
    --------
    >>> x, ones = Tensor([[[0.0, 1.0, 2.0, 3.0]]]), Tensor([[[1.0, 1.0]]])
    >>> convolution(x, ones, Tensor([10.0])).data
    array([[[11., 13., 15.]]], dtype=float32)
    """
    need_same_dtype("convolution", x, weight)
    if weight.ndim not in (3, 4, 5):
        raise ValueError(
            f"convolution with a weight of shape {weight.shape}: it has the axes (outputs, channels / groups) and one "
            "to three kernel axes; reshape it"
        )
    if x.ndim not in (weight.ndim - 1, weight.ndim):
        raise ValueError(
            f"convolution of an input of shape {x.shape} with a weight of shape {weight.shape}: the input has the axes "
            f"(batch, channels), or (channels), and {weight.ndim - 2} spatial ones; reshape it"
        )
    steps = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    if bias is None:
        return run(_CONVOLUTION, x, weight, **steps)
    need_tensor(bias)
    if bias.shape != weight.shape[:1]:
        raise ValueError(
            f"convolution with a bias of shape {bias.shape}: the weight {weight.shape} has {weight.shape[0]} output "
            "channels; pass as many"
        )
    need_same_dtype("convolution", weight, bias)
    return run(_CONVOLUTION, x, weight, bias, **steps)
