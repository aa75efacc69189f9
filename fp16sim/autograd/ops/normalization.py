"""Normalisations, every step of them rounded in the format of the operation: float32 under mixed policies.

A mean runs in C order from +0 by the policy's reduction; it is divided in the accumulator's format and rounded to that
of the operation last. With x the elements, w the weight and b the bias, all steps forward are

1. m = mean(x); d = x - m (RMSNorm has neither: d = x)
2. v = mean(d d): squares are rounded, and so is their mean; the number of terms divides it ("biased")
3. r = 1 / sqrt(v + eps): three roundings; eps is rounded to the format first
4. n = d r; y = n w; y + b

Gradients keep x, m, r and w, and compute n again as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np

from fp16sim.autograd.arithmetic import Arithmetic, Array, format_of, round_array
from fp16sim.autograd.operation import Op, run
from fp16sim.autograd.tensor import Context, Tensor, need_tensor
from fp16sim.emulator.programs import Program, Symbol, program_of

__all__ = ["batch_norm", "group_norm", "layer_norm", "rms_norm"]

Saved = tuple[Any, ...]
Parts = tuple[Array | None, ...]
Observer = Callable[[Array, Array, int], None]


def _deviation_rule(x: Symbol, mean: Symbol) -> tuple[Symbol, ...]:
    d = x - mean
    return d, d * d


_ROOT = program_of(lambda variance, eps, one: (one / (variance + eps).sqrt(),), 1, 2)
_DEVIATION = program_of(_deviation_rule, 2)
_NORMALISED = program_of(lambda x, mean, root: ((x - mean) * root,), 3)


@cache
def _scaled(weight: bool, bias: bool) -> Program:
    """Write down step 4: the deviation and the root, then weight and bias if there are any."""

    def rule(d: Symbol, root: Symbol, *parameters: Symbol) -> tuple[Symbol, ...]:
        y = d * root
        y = y * parameters[0] if weight else y
        return (y + parameters[-1] if bias else y,)

    return program_of(rule, 2 + weight + bias)


def _root(arithmetic: Arithmetic, variance: Array, eps: float) -> Array:
    return arithmetic.perform(_ROOT, variance, constants=(eps, 1.0))[0]


def _deviation(arithmetic: Arithmetic, x: Array, mean: Array | None) -> list[Array]:
    """Give d and its square."""
    if mean is None:
        return [x, arithmetic.multiply(x, x)]
    return arithmetic.perform(_DEVIATION, x, mean)


def _again(context: Context, x: Array, mean: Array | None, root: Array, like: Array, dtype: Any) -> Array:
    """Compute n as forward did, in its format; in a wide backward pass the saved arrays have been widened."""
    arithmetic = context.arithmetic
    x, root = round_array(x, dtype), round_array(root, dtype)
    if mean is None:
        return round_array(arithmetic.multiply(x, root), like.dtype)
    return round_array(arithmetic.perform(_NORMALISED, x, round_array(mean, dtype), root)[0], like.dtype)


def _channels(a: Array, view: tuple[int, ...]) -> Array:
    """Let an array of one number a channel stretch over `view`.

    That is (examples, channels), (examples, channels, places), or (examples, groups, channels of a group, places).
    """
    return a.reshape(view[1], *view[2:3] * (len(view) == 4), *(1,) * (len(view) > 2))


def _rest(view: tuple[int, ...]) -> tuple[int, ...]:
    """Give the axes beside the channels."""
    return (0,) if len(view) == 2 else (0, len(view) - 1)


# ---------------------------------------------------------------------------------------------------- over an example


def _forward(
    arithmetic: Arithmetic,
    x: Array,
    *parameters: Array,
    names: tuple[str, ...],
    rows: tuple[int, int],
    view: tuple[int, ...],
    eps: float | None,
    centred: bool,
) -> tuple[Array, Saved]:
    """Normalise each row of x as `rows`; weight and bias have one number for each channel of `view`."""
    each = x.reshape(rows)
    mean = arithmetic.mean(each, 1, True) if centred else None
    d, square = _deviation(arithmetic, each, mean)
    variance = arithmetic.mean(square, 1, True)
    root = _root(arithmetic, variance, 2.0 ** (1 - format_of(x.dtype).precision) if eps is None else eps)
    stretched = [_channels(parameter, view) for parameter in parameters]
    program = _scaled("weight" in names, "bias" in names)
    (y,) = arithmetic.perform(program, d.reshape(view), _of_rows(root, view), *stretched)
    weight = parameters[0] if "weight" in names else None
    return y.reshape(x.shape), (x, mean, root, weight, names, rows, view, x.dtype)


def _of_rows(a: Array, view: tuple[int, ...]) -> Array:
    """Let an array of one number a row stretch over `view`."""
    return a.reshape(view[0], *(view[1], 1, 1) if len(view) == 4 else (1,))


def _weighted_rule(g: Symbol, n: Symbol, weight: Symbol) -> tuple[Symbol, ...]:
    dn = g * weight
    return dn * n, g * n, dn


_WEIGHTED = program_of(_weighted_rule, 3)


@cache
def _tilted(centred: bool) -> Program:
    """Write down the gradient of a row: what is along n and, if it was centred, along 1 is taken out of it."""

    def rule(dn: Symbol, n: Symbol, along: Symbol, root: Symbol, *level: Symbol) -> tuple[Symbol, ...]:
        dn, tilt = dn - level[0] if centred else dn, n * along
        return ((dn - tilt) * root,)

    return program_of(rule, 4 + centred)


def _gradient(context: Context, gradient: Array) -> Parts:
    x, mean, root, weight, names, rows, view, dtype = context.saved
    arithmetic, needs = context.arithmetic, dict(zip(names, context.needs[1:], strict=True))
    g = gradient.reshape(view)
    parts: list[Array | None] = [None]
    product: Array | None = None
    if context.needs[0] or needs.get("weight"):
        n = _again(context, x.reshape(rows), mean, root, gradient, dtype).reshape(view)
        if weight is None:
            along, dn = arithmetic.multiply(g, n), g
        else:
            along, product, dn = arithmetic.perform(_WEIGHTED, g, n, _channels(weight, view))
        if context.needs[0]:
            dn = dn.reshape(rows)
            levels = [] if mean is None else [arithmetic.mean(dn, 1, True)]
            along = arithmetic.mean(along.reshape(rows), 1, True)
            (part,) = arithmetic.perform(_tilted(mean is not None), dn, n.reshape(rows), along, root, *levels)
            parts[0] = part.reshape(x.shape)
    for name in names:
        terms = g if name == "bias" else product
        if terms is None or not needs[name]:
            parts.append(None)
        else:
            parts.append(arithmetic.sum(terms, _rest(view)).reshape(-1))
    return tuple(parts)


_LAYER_NORM = Op("layer_norm", _forward, _gradient)
_RMS_NORM = Op("rms_norm", _forward, _gradient)
_GROUP_NORM = Op("group_norm", _forward, _gradient)


def _run(op: Op, x: Tensor, weight: Tensor | None, bias: Tensor | None, **options: Any) -> Tensor:
    given = {name: part for name, part in (("weight", weight), ("bias", bias)) if part is not None}
    return run(op, x, *given.values(), names=tuple(given), **options)


def _last_axes(
    name: str, x: Tensor, normalized_shape: int | Sequence[int], **parameters: Tensor | None
) -> Any:
    """Check shapes, and give the rows and the view."""
    need_tensor(x)
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not shape or x.ndim < len(shape) or x.shape[x.ndim - len(shape) :] != shape:
        raise ValueError(
            f"{name} over {shape} of a tensor of shape {x.shape}: its last axes must be those; reshape it, or make "
            "the layer with another normalized_shape"
        )
    for which, parameter in parameters.items():
        if parameter is not None and parameter.shape != shape:
            raise ValueError(f"{name} over {shape} with a {which} of shape {parameter.shape}: pass one alike")
    sizes = prod(x.shape[: x.ndim - len(shape)]), prod(shape)
    return {"rows": sizes, "view": sizes}


def layer_norm(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise over the last axes of each example, as ``torch.nn.functional.layer_norm``.

    Parameters
    ----------
    x : Tensor, shape (..., *normalized_shape)
    normalized_shape : int or tuple of int
    weight, bias : Tensor, shape normalized_shape, optional
    eps : float
        Rounded to the format of the operation: 1e-12 is 0 in float16, so an example without variance gives
        0 * (1 / 0) = NaN.

    Raises
    ------
    ValueError
        If the last axes of x, or the parameters, have another shape.

    Notes
    -----
    The steps forward are those at the head of this module. Gradients, each step rounded, with n computed again::

        h = G w, or G without a weight
        x: (h - mean(h) - n mean(h n)) r, in this order: a = mean(h); p = h n; c = mean(p); q = n c; h - a; less q;
           times r
        w: the sum of G n over the examples; b: the sum of G over the examples

    Source: Ba, Kiros and Hinton, Layer Normalization, arXiv 1607.06450, equations 3 and 4.

    Examples
    --------
    >>> layer_norm(Tensor([[1.0, 3.0]]), 2, eps=0.0).data
    array([[-1.,  1.]], dtype=float32)
    """
    options = _last_axes("layer_norm", x, normalized_shape, weight=weight, bias=bias)
    return _run(
        _LAYER_NORM,
        x,
        _flat(weight),
        _flat(bias),
        **options,
        eps=_checked_eps("layer_norm", eps),
        centred=True,
    )


def rms_norm(
    x: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Divide by the root of the mean square over the last axes, as ``torch.nn.functional.rms_norm``.

    Parameters
    ----------
    x, normalized_shape, weight
        As in :func:`layer_norm`.
    eps : float, optional
        Rounded to the format of the operation. Default: the distance from 1 to the next number of that format.

    Notes
    -----
    The steps forward are those at the head of this module, without m. Gradients as in :func:`layer_norm`, without
    mean(h). A square overflows float16 from a magnitude of 256 on.

    Source: Zhang and Sennrich, Root Mean Square Layer Normalization, arXiv 1910.07467, equation 4. torch takes the
    default eps of float32 for float16 and bfloat16 too, since it computes those in float32.

    Examples
    --------
    >>> rms_norm(Tensor([[3.0, 3.0, 3.0, -3.0]]), 4, eps=0.0).data
    array([[ 1.,  1.,  1., -1.]], dtype=float32)
    """
    options = _last_axes("rms_norm", x, normalized_shape, weight=weight)
    if eps is not None:
        eps = _checked_eps("rms_norm", eps)
    return _run(_RMS_NORM, x, _flat(weight), None, **options, eps=eps, centred=False)


def group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Normalise over each group of channels of each example, as ``torch.nn.functional.group_norm``.

    Parameters
    ----------
    x : Tensor, shape (batch, channels, *spatial)
    num_groups : int
        Divides the number of channels.
    weight, bias : Tensor, shape (channels,), optional
    eps : float
        Rounded to the format of the operation.

    Raises
    ------
    ValueError
        If the groups do not divide the channels, or the parameters do not fit them.

    Notes
    -----
    The steps forward are those at the head of this module; means run over (channel of the group, places). Gradients as
    in :func:`layer_norm`; those of w and b sum over (example, places).

    Source: Wu and He, Group Normalization, arXiv 1803.08494, equations 1 to 3 and 7.

    Examples
    --------
    >>> group_norm(Tensor([[[1.0], [3.0], [5.0], [9.0]]]), 2, eps=0.0).data.ravel()
    array([-1.,  1., -1.,  1.], dtype=float32)
    """
    _check_channels("group_norm", x, weight=weight, bias=bias)
    examples, channels, places = x.shape[0], x.shape[1], prod(x.shape[2:])
    if isinstance(num_groups, bool) or num_groups < 1 or channels % num_groups:
        raise ValueError(
            f"group_norm of {channels} channels in {num_groups} groups: the groups are equal; choose a divisor"
        )
    rows = examples * num_groups, channels // num_groups * places
    view = (examples, num_groups, channels // num_groups, places)
    return _run(
        _GROUP_NORM, x, weight, bias, rows=rows, view=view, eps=_checked_eps("group_norm", eps), centred=True
    )


# ---------------------------------------------------------------------------------------------------- over the batch


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
        mean = arithmetic.mean(each, _rest(view), True)
        d, square = _deviation(arithmetic, each, mean)
        variance = arithmetic.mean(square, _rest(view), True)
        if observe is not None:
            observe(mean.reshape(-1), variance.reshape(-1), x.size // view[1])
    else:
        mean, variance = (_channels(arithmetic.cast(a, x.dtype), view) for a in given)
        d = arithmetic.subtract(each, mean)
    root = _root(arithmetic, variance, eps)
    stretched = [_channels(parameter, view) for parameter in parameters]
    (y,) = arithmetic.perform(_scaled("weight" in names, "bias" in names), d, root, *stretched)
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
        n = _again(context, x.reshape(view), mean, root, gradient, dtype)
        along = arithmetic.sum(arithmetic.multiply(g, n), _rest(view))
    if needs.get("bias") or (to_x and of_batch):
        total = arithmetic.sum(g, _rest(view))
    part = None
    if to_x:
        factor = root if weight is None else arithmetic.multiply(root, _channels(weight, view))
        if n is not None and along is not None and total is not None and of_batch:
            count = arithmetic.constant(x.size // view[1], gradient)
            shares = [_channels(arithmetic.divide(each, count), view) for each in (total, along)]
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
    The steps forward are those at the head of this module; means run over (example, places). Gradients, each step
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
    _check_channels("batch_norm", x, weight=weight, bias=bias)
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
    return _run(
        _BATCH_NORM,
        x,
        weight,
        bias,
        view=view,
        eps=_checked_eps("batch_norm", eps),
        given=statistics,
        observe=observe,
    )


# ---------------------------------------------------------------------------------------------------- checks


def _flat(parameter: Tensor | None) -> Tensor | None:
    return parameter if parameter is None or parameter.ndim == 1 else parameter.reshape(-1)


def _checked_eps(name: str, eps: float) -> float:
    if isinstance(eps, bool) or not isinstance(eps, (int, float, np.number)) or not eps >= 0:
        raise ValueError(f"{name} with eps={eps!r}: it is added to a variance; pass a number from 0 on")
    return float(eps)


def _check_channels(name: str, x: Tensor, **parameters: Tensor | None) -> None:
    need_tensor(x)
    if x.ndim < 2:
        raise ValueError(f"{name} of shape {x.shape}: pass (batch, channels) and any spatial axes")
    for which, parameter in parameters.items():
        if parameter is not None:
            need_tensor(parameter)
            if parameter.shape != (x.shape[1],):
                raise ValueError(
                    f"{name} of {x.shape[1]} channels with a {which} of shape {parameter.shape}: pass one number for "
                    "each channel"
                )
