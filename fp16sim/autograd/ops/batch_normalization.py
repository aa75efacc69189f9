"""Normalisation of each channel over the batch.

Its steps and roundings are those at the head of `normalization_steps.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from fp16sim.autograd.arithmetic import Arithmetic, Array
from fp16sim.autograd.operation import Op
from fp16sim.autograd.ops.normalization_steps import (
    Parts,
    Saved,
    check_channels,
    checked_eps,
    deviation,
    normalised_again,
    over_channels,
    rest_of,
    root_of,
    run_with,
    scaled,
)
from fp16sim.autograd.tensor import Context, Tensor
from fp16sim.emulator.programs import program_of

__all__ = ["batch_norm"]

Observer = Callable[[Array, Array, int], None]


def _batch_norm(
    arithmetic: Arithmetic,
    x: Array,
    *parameters: Array,
    names: tuple[str, ...],
    view: tuple[int, ...],
    eps: float,
    given: tuple[Array, Array] | None,
    observe: Observer | None,
) -> tuple[Array, Saved]:
    each = x.reshape(view)
    if given is None:
        mean = arithmetic.mean(each, rest_of(view), True)
        d, square = deviation(arithmetic, each, mean)
        variance = arithmetic.mean(square, rest_of(view), True)
        if observe is not None:
            observe(mean.reshape(-1), variance.reshape(-1), x.size // view[1])
    else:
        mean, variance = (over_channels(arithmetic.cast(a, x.dtype), view) for a in given)
        d = arithmetic.subtract(each, mean)
    root = root_of(arithmetic, variance, eps)
    stretched = [over_channels(parameter, view) for parameter in parameters]
    (y,) = arithmetic.perform(scaled("weight" in names, "bias" in names), d, root, *stretched)
    weight = parameters[0] if "weight" in names else None
    return y.reshape(x.shape), (x, mean, root, weight, names, view, x.dtype, given is None)


_CENTRED = program_of(lambda g, n, level, along, factor: ((g - level - n * along) * factor,), 5)


def _batch_norm_gradient(context: Context, gradient: Array) -> Parts:
    x, mean, root, weight, names, view, dtype, of_batch = context.saved
    arithmetic, needs = context.arithmetic, dict(zip(names, context.needs[1:], strict=True))
    g = gradient.reshape(view)
    to_x = context.needs[0]
    n = along = total = None
    if needs.get("weight") or (to_x and of_batch):
        n = normalised_again(context, x.reshape(view), mean, root, gradient, dtype)
        along = arithmetic.sum(arithmetic.multiply(g, n), rest_of(view))
    if needs.get("bias") or (to_x and of_batch):
        total = arithmetic.sum(g, rest_of(view))
    part = None
    if to_x:
        factor = root if weight is None else arithmetic.multiply(root, over_channels(weight, view))
        if n is not None and along is not None and total is not None and of_batch:
            count = arithmetic.constant(x.size // view[1], gradient)
            shares = [over_channels(arithmetic.divide(each, count), view) for each in (total, along)]
            (part,) = arithmetic.perform(_CENTRED, g, n, *shares, factor)
        else:
            part = arithmetic.multiply(g, factor)
        part = part.reshape(x.shape)
    own = {"weight": along, "bias": total}
    return part, *(own[name] if needs[name] else None for name in names)


_BATCH_NORM = Op("batch_norm", _batch_norm, _batch_norm_gradient)


def batch_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    statistics: tuple[Array, Array] | None = None,
    eps: float = 1e-5,
    observe: Observer | None = None,
) -> Tensor:
    """Normalise each channel over the batch, or by statistics that are given.

    Parameters
    ----------
    x : Tensor, shape (batch, channels, *spatial)
    weight, bias : Tensor, shape (channels,), optional
    statistics : (array, array), optional
        Mean and variance of each channel, rounded to the format of the operation once. Default: those of the batch.
    eps : float
        Rounded to the format of the operation.
    observe : callable, optional
        Called with the mean and the biased variance of the batch, in the format of the operation, and with the number
        of values of a channel.

    Raises
    ------
    ValueError
        On shapes that do not fit, or a batch with a single value of each channel, which has no variance.

    Notes
    -----
    The steps forward are those of `normalization_steps.py`; means run over (example, places). Gradients, each step
    rounded, with n computed again and M the number of values of a channel, rounded to the format::

        b: s = the sum of G;  w: u = the sum of G n, both over (example, places)
        x: f = r w, or r without a weight; (G - s / M - n (u / M)) f, in this order: a = s / M; c = u / M; G - a;
           q = n c; less q; times f
        x, with statistics that are given: G f

    Source: Ioffe and Szegedy, Batch Normalization, arXiv 1502.03167, algorithm 1; the gradient in the form of torch
    2.13, aten/src/ATen/native/Normalization.cpp (batch_norm_backward_cpu_template).

    Examples
    --------
    >>> batch_norm(Tensor([[1.0], [3.0]]), eps=0.0).data.ravel()
    array([-1.,  1.], dtype=float32)
    """
    check_channels("batch_norm", x, weight=weight, bias=bias)
    channels = x.shape[1]
    if statistics is None and x.size <= channels:
        raise ValueError(
            f"batch_norm of shape {x.shape}: a single value of each channel has no variance; pass a larger batch, or "
            "normalise by running statistics, model.eval()"
        )
    if statistics is not None and any(np.shape(a) != (channels,) for a in statistics):
        raise ValueError(
            f"batch_norm of {channels} channels by statistics of shapes "
            f"{' and '.join(str(np.shape(a)) for a in statistics)}: pass one number for each channel"
        )
    view = (x.shape[0], channels, prod(x.shape[2:])) if x.ndim > 2 else x.shape
    return run_with(
        _BATCH_NORM,
        x,
        weight,
        bias,
        view=view,
        eps=checked_eps("batch_norm", eps),
        given=statistics,
        observe=observe,
    )
