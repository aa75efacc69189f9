"""Pooling: the largest element or the mean of each window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from fp16sim.autograd.arithmetic import Arithmetic, Array
from fp16sim.autograd.operation import Op, run
from fp16sim.autograd.ops.reductions import spread
from fp16sim.autograd.tensor import Context, Tensor, need_tensor
from fp16sim.emulator.convolution import Steps
from fp16sim.emulator.convolution_geometry import Geometry

__all__ = ["adaptive_avg_pool", "avg_pool", "max_pool"]

Saved = tuple[Any, ...]
Parts = tuple[Array | None, ...]


# ---------------------------------------------------------------------------------------------------- windows


def _entries(name: str, value: Steps, dimensions: int) -> tuple[int, ...]:
    entries: tuple[Any, ...] = tuple(value) if isinstance(value, Sequence) else (value,) * dimensions
    whole = all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in entries)
    if len(entries) != dimensions or not whole:
        raise ValueError(f"{name}={value!r}: pass an integer, or one for each of {dimensions} spatial axes")
    return tuple(int(n) for n in entries)


def _windows(
    name: str, x: Tensor, kernel_size: Steps, stride: Steps | None, padding: Steps, dilation: Steps
) -> Geometry:
    """Check sizes and steps against each other."""
    need_tensor(x)
    dimensions = len(kernel_size) if isinstance(kernel_size, Sequence) else x.ndim - 2
    if dimensions not in (1, 2, 3) or x.ndim not in (dimensions + 1, dimensions + 2):
        raise ValueError(
            f"{name} with kernel_size={kernel_size!r} of shape {x.shape}: pass (batch, channels) and one to three "
            "spatial axes, as many as kernel_size has entries"
        )
    kernel = _entries("kernel_size", kernel_size, dimensions)
    around = _entries("padding", padding, dimensions)
    geometry = Geometry(
        x.shape[x.ndim - dimensions :],
        kernel,
        _entries("stride", kernel if stride is None else stride, dimensions),
        _entries("dilation", dilation, dimensions),
        tuple((n, n) for n in around),
        1,
    )
    if any(n > size // 2 for n, size in zip(around, geometry.extent, strict=True)):
        raise ValueError(
            f"{name} with padding={padding!r} and windows of {geometry.extent}: padding is at most half a window, so "
            "that none lies outside of the input; pad less"
        )
    return geometry


def _taps(geometry: Geometry) -> list[tuple[tuple[int, ...], tuple[Any, ...]]]:
    """List the places of a window in C order, each with the slice of the padded input that holds it."""
    axes = list(zip(geometry.output, geometry.stride, geometry.dilation, strict=True))
    return [
        (
            tap,
            (
                ...,
                *(slice(k * d, k * d + (n - 1) * s + 1, s) for k, (n, s, d) in zip(tap, axes, strict=True)),
            ),
        )
        for tap in np.ndindex(geometry.kernel)
    ]


def _padded(a: Array, geometry: Geometry, value: Any) -> Array:
    if not any(before for before, _ in geometry.padding):
        return a
    lead = a.shape[: a.ndim - len(geometry.size)]
    sizes = zip(geometry.size, geometry.padding, strict=True)
    result = np.full((*lead, *(n + before + after for n, (before, after) in sizes)), value, a.dtype)
    result[_inside(geometry)] = a
    return result


def _inside(geometry: Geometry) -> tuple[Any, ...]:
    sizes = zip(geometry.size, geometry.padding, strict=True)
    return (..., *(slice(before, before + n) for n, (before, _) in sizes))


def _gathered(
    arithmetic: Arithmetic,
    part: Callable[[int], Array],
    dtype: np.dtype[Any],
    geometry: Geometry,
    lead: tuple[int, ...],
) -> Array:
    """Sum what the windows give to each element of the input; ``part(t)`` is what each gives to its place t.

    An element at `p` is place k of the window o = (p - k dilation) / stride. Places with the same
    floor(k dilation / stride) never share an element, and that number falls as o rises: so there is one layer for each
    such number, and the sum runs over layers from the last to the first, which is by increasing window.
    """
    counts = tuple(
        (k - 1) * d // s + 1
        for k, d, s in zip(geometry.kernel, geometry.dilation, geometry.stride, strict=True)
    )
    sizes = zip(geometry.size, geometry.padding, strict=True)
    layers = np.zeros((prod(counts), *lead, *(n + b + a for n, (b, a) in sizes)), dtype)
    for t, (tap, places) in enumerate(_taps(geometry)):
        number = tuple(k * d // s for k, d, s in zip(tap, geometry.dilation, geometry.stride, strict=True))
        layers[prod(counts) - 1 - int(np.ravel_multi_index(number, counts))][places] = part(t)
    return np.ascontiguousarray(arithmetic.sum(layers, 0)[_inside(geometry)])


# ---------------------------------------------------------------------------------------------------- the largest


# Bits are chosen by masks: np.where is ten times as slow on conditions that look random.


def _bits(a: Array) -> Array:
    return np.ascontiguousarray(a).view(f"i{a.dtype.itemsize}")


def _where(condition: Array, bits: Array) -> Array:
    """Keep bits where a condition holds, and give 0 elsewhere."""
    return np.asarray(bits & -condition.astype(bits.dtype))


def _ordered(bits: Array, infinity: Array) -> Array:
    """Give integers that are ordered as the values are: -0 = +0, and NaN above all."""
    largest = np.iinfo(bits.dtype).max
    magnitude = bits & largest
    negative = bits >> (8 * bits.dtype.itemsize - 1)  # all ones, or 0
    signed = (magnitude ^ negative) - negative
    if magnitude.max(initial=0) > infinity:
        signed[magnitude > infinity] = largest
    return np.asarray(signed)


def _max_pool(arithmetic: Arithmetic, x: Array, geometry: Geometry) -> tuple[Array, Saved]:
    lead = x.shape[: x.ndim - len(geometry.size)]
    infinity = _bits(np.full(1, np.inf, x.dtype))
    bits = _bits(x)
    keys = _ordered(bits, infinity)
    # Padding is below -inf: a window that reaches the input chooses there.
    keys = _padded(keys, geometry, np.iinfo(keys.dtype).min)
    bits = _padded(bits, geometry, _bits(np.full(1, -np.inf, x.dtype))[0])
    slices = [places for _, places in _taps(geometry)]
    best = keys[slices[0]].copy()
    for places in slices[1:]:
        np.maximum(best, keys[places], out=best)
    kind = np.min_scalar_type(len(slices) - 1)
    chosen = np.full(best.shape, np.iinfo(kind).max, kind)
    for t, places in enumerate(slices):  # the smallest number of those that are equal to the best
        other = (keys[places] == best).astype(kind) - kind.type(1)  # 0, or all ones
        np.minimum(chosen, other | kind.type(t), out=chosen)
    result = np.zeros(best.shape, bits.dtype)
    for t, places in enumerate(slices):
        result |= _where(chosen == t, bits[places])
    return result.view(x.dtype), (chosen, geometry, lead)


def _max_pool_gradient(context: Context, gradient: Array) -> Parts:
    chosen, geometry, lead = context.saved
    bits = _bits(gradient)

    def part(t: int) -> Array:
        return _where(chosen == t, bits).view(gradient.dtype)

    return (_gathered(context.arithmetic, part, gradient.dtype, geometry, lead),)


_MAX_POOL = Op("max_pool", _max_pool, _max_pool_gradient)


def max_pool(
    x: Tensor,
    kernel_size: Steps,
    stride: Steps | None = None,
    padding: Steps = 0,
    dilation: Steps = 1,
) -> Tensor:
    """Choose the largest element of each window; nothing is rounded.

    Parameters
    ----------
    x : Tensor, shape (batch, channels, *spatial)
        One to three spatial axes; without a batch axis if `kernel_size` is a tuple.
    kernel_size, stride, dilation : int or tuple of int
        Size of a window, step from window to window (default: `kernel_size`), and step within one.
    padding : int or tuple of int
        Elements on both sides that are never chosen, at most half a window.

    Returns
    -------
    Tensor, shape (batch, channels, *places)
        NaN where a window holds one; windows that do not fit in whole are left out.

    Raises
    ------
    ValueError
        On sizes that do not fit.

    Notes
    -----
    Gradient: that of a window goes to the first of its largest elements in C order (-0 and +0 are equal; the first NaN
    before all numbers). Each element's gradient is the sum from +0 over the windows that reach it, in increasing C
    order, +0 for those that chose another, by the policy's reduction.

    As ``torch.nn.functional.max_pool2d``, except that torch gives the gradient of a window with several NaN to the last
    of them.

    Examples
    --------
    >>> x = Tensor([[[1.0, 3.0, 2.0, 3.0, 0.0]]], requires_grad=True)
    >>> y = max_pool(x, 3, stride=1)
    >>> y.data
    array([[[3., 3., 3.]]], dtype=float32)
    >>> y.sum().backward()
    >>> x.grad
    array([[[0., 2., 0., 1., 0.]]], dtype=float32)
    """
    return run(_MAX_POOL, x, geometry=_windows("max_pool", x, kernel_size, stride, padding, dilation))


# ---------------------------------------------------------------------------------------------------- the mean


def _avg_pool(arithmetic: Arithmetic, x: Array, geometry: Geometry) -> tuple[Array, Saved]:
    lead = x.shape[: x.ndim - len(geometry.size)]
    padded = _padded(x, geometry, 0)
    return arithmetic.mean(np.stack([padded[places] for _, places in _taps(geometry)]), 0), (geometry, lead)


def _avg_pool_gradient(context: Context, gradient: Array) -> Parts:
    geometry, lead = context.saved
    arithmetic = context.arithmetic
    part = arithmetic.divide(gradient, arithmetic.constant(prod(geometry.kernel), gradient))
    return (_gathered(arithmetic, lambda t: part, part.dtype, geometry, lead),)


_AVG_POOL = Op("avg_pool", _avg_pool, _avg_pool_gradient)


def avg_pool(x: Tensor, kernel_size: Steps, stride: Steps | None = None, padding: Steps = 0) -> Tensor:
    """Take the mean of each window, zeros of the padding included.

    Parameters
    ----------
    x, kernel_size, stride, padding
        As in :func:`max_pool`; the padding consists of zeros.

    Notes
    -----
    The elements of a window are summed in C order from +0 by the policy's reduction; the quotient by their number is
    rounded to the accumulator's format, and to that of x last.

    Gradient: q = G / number, the number rounded to the format first, then the quotient; each element's is the sum of q
    from +0 over the windows that reach it, in increasing C order, by the policy's reduction.

    Source: ``torch.nn.functional.avg_pool2d`` with ``count_include_pad=True``, its default.

    Examples
    --------
    >>> avg_pool(Tensor([[[1.0, 3.0, 2.0, 4.0]]]), 2).data
    array([[[2., 3.]]], dtype=float32)
    """
    return run(_AVG_POOL, x, geometry=_windows("avg_pool", x, kernel_size, stride, padding, 1))


def _adaptive(arithmetic: Arithmetic, x: Array, axes: tuple[int, ...]) -> tuple[Array, Saved]:
    return arithmetic.mean(x, axes, True), (x.shape, axes)


def _adaptive_gradient(context: Context, gradient: Array) -> Parts:
    shape, axes = context.saved
    count = context.arithmetic.constant(prod(shape[i] for i in axes), gradient)
    return (spread(context.arithmetic.divide(gradient, count), shape, axes),)


_ADAPTIVE = Op("adaptive_avg_pool", _adaptive, _adaptive_gradient)


def adaptive_avg_pool(x: Tensor, dimensions: int = 2) -> Tensor:
    """Take the mean over the last axes, which stay with length 1.

    Parameters
    ----------
    x : Tensor, shape (..., *spatial)
    dimensions : int
        The number of spatial axes.

    Notes
    -----
    The sum in C order from +0 by the policy's reduction; the quotient by the number of terms rounded to the
    accumulator's format, and to that of x last. Gradient: G / number, rounded once, repeated.

    Examples
    --------
    >>> adaptive_avg_pool(Tensor([[[[1.0, 2.0], [3.0, 4.0]]]])).data
    array([[[[2.5]]]], dtype=float32)
    """
    need_tensor(x)
    if not 1 <= dimensions <= x.ndim or not prod(x.shape[x.ndim - dimensions :]):
        raise ValueError(
            f"adaptive_avg_pool over {dimensions} axes of a tensor of shape {x.shape}: pass (batch, channels) and "
            f"{dimensions} spatial axes that are not empty"
        )
    return run(_ADAPTIVE, x, axes=tuple(range(x.ndim - dimensions, x.ndim)))
