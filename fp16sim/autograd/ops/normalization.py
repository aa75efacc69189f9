"""Normalisations over each example: of layers, of groups of channels, and by the root of the mean square.

Their steps and roundings are those at the head of `normalization_steps.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any

from fp16sim.autograd.arithmetic import Arithmetic, Array, format_of
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
from fp16sim.autograd.tensor import Context, Tensor, need_tensor
from fp16sim.emulator.programs import Program, Symbol, program_of

__all__ = ["group_norm", "layer_norm", "rms_norm"]


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
    d, square = deviation(arithmetic, each, mean)
    variance = arithmetic.mean(square, 1, True)
    root = root_of(arithmetic, variance, 2.0 ** (1 - format_of(x.dtype).precision) if eps is None else eps)
    stretched = [over_channels(parameter, view) for parameter in parameters]
    program = scaled("weight" in names, "bias" in names)
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
        n = normalised_again(context, x.reshape(rows), mean, root, gradient, dtype).reshape(view)
        if weight is None:
            along, dn = arithmetic.multiply(g, n), g
        else:
            along, product, dn = arithmetic.perform(_WEIGHTED, g, n, over_channels(weight, view))
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
            parts.append(arithmetic.sum(terms, rest_of(view)).reshape(-1))
    return tuple(parts)


_LAYER_NORM = Op("layer_norm", _forward, _gradient)
_RMS_NORM = Op("rms_norm", _forward, _gradient)
_GROUP_NORM = Op("group_norm", _forward, _gradient)


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
    The steps forward are those of `normalization_steps.py`. Gradients, each step rounded, with n computed again::

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
    return run_with(
        _LAYER_NORM,
        x,
        _flat(weight),
        _flat(bias),
        **options,
        eps=checked_eps("layer_norm", eps),
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
    The steps forward are those of `normalization_steps.py`, without m. Gradients as in :func:`layer_norm`, without
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
        eps = checked_eps("rms_norm", eps)
    return run_with(_RMS_NORM, x, _flat(weight), None, **options, eps=eps, centred=False)


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
    The steps forward are those of `normalization_steps.py`; means run over (channel of the group, places). Gradients as
    in :func:`layer_norm`; those of w and b sum over (example, places).

    Source: Wu and He, Group Normalization, arXiv 1803.08494, equations 1 to 3 and 7.

    Examples
    --------
    >>> group_norm(Tensor([[[1.0], [3.0], [5.0], [9.0]]]), 2, eps=0.0).data.ravel()
    array([-1.,  1., -1.,  1.], dtype=float32)
    """
    check_channels("group_norm", x, weight=weight, bias=bias)
    examples, channels, places = x.shape[0], x.shape[1], prod(x.shape[2:])
    if isinstance(num_groups, bool) or num_groups < 1 or channels % num_groups:
        raise ValueError(
            f"group_norm of {channels} channels in {num_groups} groups: the groups are equal; choose a divisor"
        )
    rows = examples * num_groups, channels // num_groups * places
    view = (examples, num_groups, channels // num_groups, places)
    return run_with(
        _GROUP_NORM, x, weight, bias, rows=rows, view=view, eps=checked_eps("group_norm", eps), centred=True
    )


def _flat(parameter: Tensor | None) -> Tensor | None:
    return parameter if parameter is None or parameter.ndim == 1 else parameter.reshape(-1)
