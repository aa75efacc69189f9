"""Convolutions as products of matrices: what each window reads becomes a column.

The order of the terms is that of `reference_convolution.py`. Columns are made for some images, or for the gradient of
the weight for some channels, at a time, so they stay small; each element of a result is still one dot product,
summed from its first term to its last. Images that go together lie side by side, the image moving fastest: then what
a tap reads is one long run of memory, however small the images are.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from fp16sim.emulator.backends import threads
from fp16sim.emulator.convolution_geometry import Geometry

__all__ = ["forward", "input_gradient", "weight_gradient"]

Encodings = npt.NDArray[Any]
Counts = npt.NDArray[np.int64] | None
_WORTH_THREADS = 1 << 25
"""Multiply-accumulates from which on images go to several threads; below, a slow product divides its own result."""
_TOGETHER = 1 << 18
"""Elements of the columns up to which images go together."""
_COLUMNS = 1 << 24
"""Elements of the columns that are made at once for the gradient of the weight, unless one channel has more."""


class Matmul(Protocol):
    """Fill `out`, (m, n), with the product of (m, k) and (k, n) from +0, and give the counts if they are wanted."""

    def __call__(self, a: Encodings, b: Encodings, out: Encodings) -> Counts:
        """Multiply."""


def forward(matmul: Matmul, x: Encodings, weight: Encodings, geometry: Geometry, out: Encodings) -> Counts:
    """Correlate the input (images, channels, ...) with the weight (output channels, channels of a group, ...)."""
    each_in, each_out = x.shape[1] // geometry.groups, weight.shape[0] // geometry.groups
    terms, places = prod(weight.shape[1:]), prod(geometry.output)
    rows = weight.reshape(weight.shape[0], terms)

    def some(images: slice, group: int) -> Counts:
        channels = x[images, group * each_in : (group + 1) * each_in]
        sizes = [n + sum(pair) for n, pair in zip(geometry.size, geometry.padding, strict=True)]
        inside = [slice(b, b + n) for n, (b, _) in zip(geometry.size, geometry.padding, strict=True)]
        buffer = _beside(channels, sizes, tuple(inside))
        columns = _windows(buffer, geometry.output, geometry.kernel, geometry.stride, geometry.dilation, 1)
        outputs = slice(group * each_out, (group + 1) * each_out)
        return _multiplied(
            matmul, rows[outputs], _gathered(columns, terms, places * buffer.shape[-1]), out[images, outputs]
        )

    return _each(some, x.shape[0], geometry.groups, terms * places, out.size * terms)


def input_gradient(
    matmul: Matmul, gradient: Encodings, weight: Encodings, geometry: Geometry, out: Encodings
) -> Counts:
    """Give the gradient of the input (images, channels, ...) from that of the output."""
    each_in, each_out = weight.shape[1], weight.shape[0] // geometry.groups
    taps, places = prod(geometry.kernel), prod(geometry.size)
    terms = each_out * taps
    # Zeros stand between the entries of the gradient where the stride is not 1. Tap t of place p reads the entry
    # p + before - t * dilation: in a buffer that starts (kernel - 1) * dilation - before entries earlier it is
    # p + (kernel - 1 - t) * dilation.
    sizes = [n + window - 1 for n, window in zip(geometry.size, geometry.extent, strict=True)]
    kept, inside = [], []
    for length, entries, step, window, (before, _) in zip(
        sizes, geometry.output, geometry.stride, geometry.extent, geometry.padding, strict=True
    ):
        first = window - 1 - before
        skipped = max(0, -(first // step))  # windows that see nothing but padding
        start = first + skipped * step
        count = min(entries - skipped, (length - 1 - start) // step + 1) if start < length else 0
        kept.append(slice(skipped, skipped + max(0, count)))
        inside.append(slice(start, start + max(0, count) * step, step) if count > 0 else slice(0, 0))
    reverse = (slice(None), *[slice(None, None, -1)] * len(sizes))  # the last tap first

    def some(images: slice, group: int) -> Counts:
        outputs = slice(group * each_out, (group + 1) * each_out)
        buffer = _beside(gradient[(images, outputs, *kept)], sizes, tuple(inside))
        columns = _windows(buffer, geometry.size, geometry.kernel, (1,) * len(sizes), geometry.dilation, 1)
        rows = weight[outputs].reshape(each_out, each_in, taps).transpose(1, 0, 2)
        return _multiplied(
            matmul,
            rows.reshape(each_in, terms),
            _gathered(columns[reverse], terms, places * buffer.shape[-1]),
            out[images, group * each_in : (group + 1) * each_in],
        )

    return _each(some, gradient.shape[0], geometry.groups, terms * places, out.size * terms)


def weight_gradient(
    matmul: Matmul, x: Encodings, gradient: Encodings, geometry: Geometry, out: Encodings
) -> Counts:
    """Give the gradient of the weight (output channels, channels of a group, ...)."""
    each_in, each_out = out.shape[1], out.shape[0] // geometry.groups
    terms, taps = x.shape[0] * prod(geometry.output), prod(geometry.kernel)
    step = max(1, min(each_in, _COLUMNS // max(1, terms * taps)))
    total: Counts = None
    for group in range(geometry.groups):
        outputs = slice(group * each_out, (group + 1) * each_out)
        rows = gradient[:, outputs].swapaxes(0, 1).reshape(each_out, terms)
        for first in range(0, each_in, step):
            some = slice(first, min(first + step, each_in))
            channels = _padded(x[:, group * each_in + some.start : group * each_in + some.stop], geometry)
            windows = _windows(channels, geometry.output, geometry.kernel, geometry.stride, geometry.dilation)
            # (image, channel, taps, places): the transpose of the columns is what lies in memory.
            across = (some.stop - some.start) * taps
            last = 2 + len(geometry.kernel)
            order = *range(1, last), 0, *range(last, windows.ndim)
            columns = _gathered(windows.transpose(order), across, terms).T
            part = np.empty((each_out, across), out.dtype)
            total = _plus(total, matmul(rows, columns, part))
            out[outputs, some] = part.reshape(out[outputs, some].shape)
    return total


def _padded(x: Encodings, geometry: Geometry) -> Encodings:
    """Put zeros around the spatial axes, where there is any padding."""
    if not any(map(any, geometry.padding)):
        return x
    sizes = [n + sum(pair) for n, pair in zip(geometry.size, geometry.padding, strict=True)]
    inside = [
        slice(before, before + n) for n, (before, _) in zip(geometry.size, geometry.padding, strict=True)
    ]
    return _placed(x, sizes, tuple(inside))


def _placed(x: Encodings, sizes: list[int], inside: tuple[slice, ...]) -> Encodings:
    """Put the spatial axes, the last ones, into zeros."""
    lead = x.shape[: x.ndim - len(sizes)]
    buffer = np.zeros((*lead, *sizes), x.dtype)
    place: tuple[Any, ...] = (..., *inside)
    buffer[place] = x
    return buffer


def _beside(x: Encodings, sizes: list[int], inside: tuple[slice, ...]) -> Encodings:
    """Put (images, channels, spatial axes) into zeros, (channels, sizes, images)."""
    buffer = np.zeros((x.shape[1], *sizes, x.shape[0]), x.dtype)
    buffer[(slice(None), *inside)] = x.transpose(*range(1, x.ndim), 0)
    return buffer


def _multiplied(matmul: Matmul, rows: Encodings, columns: Encodings, out: Encodings) -> Counts:
    """Multiply into (images, channels, spatial axes) by columns of (places, images)."""
    images, channels, *spatial = out.shape
    if images == 1:
        return matmul(rows, columns, out[0].reshape(channels, columns.shape[1]))
    part = np.empty((channels, columns.shape[1]), out.dtype)
    counts = matmul(rows, columns, part)
    out[...] = part.reshape(channels, *spatial, images).transpose(-1, *range(out.ndim - 1))
    return counts


def _gathered(windows: Encodings, rows: int, columns: int) -> Encodings:
    """Copy windows into a matrix.

    Runs of the last axis, such as a row of a small image, move as wholes: several times as fast as element by element.
    """
    run = windows.shape[-1] if windows.ndim else 0
    if run < 2 or windows.size == 0 or windows.strides[-1] != windows.itemsize:
        return windows.reshape(rows, columns)
    wholes = windows.view(f"V{run * windows.itemsize}")
    return np.ascontiguousarray(wholes).view(windows.dtype).reshape(rows, columns)


def _windows(
    x: Encodings,
    places: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    after: int = 0,
) -> Encodings:
    """View (..., spatial axes) as (..., taps, places), both with `after` more axes; nothing is copied."""
    end = x.ndim - after
    lead = end - len(places)
    spatial = x.strides[lead:end]
    shape = (*x.shape[:lead], *kernel, *places, *x.shape[end:])
    strides = (
        *x.strides[:lead],
        *(bytes_ * d for bytes_, d in zip(spatial, dilation, strict=True)),
        *(bytes_ * s for bytes_, s in zip(spatial, stride, strict=True)),
        *x.strides[end:],
    )
    if x.flags.c_contiguous and 0 not in shape:  # several times as fast as as_strided, and checked
        return np.ndarray(shape, x.dtype, x, strides=strides)
    return as_strided(x, shape, strides, writeable=False)


def _each(some: Callable[[slice, int], Counts], images: int, groups: int, columns: int, work: int) -> Counts:
    """Do all images, as many at once as `columns` elements each allow, of every group, and add the counts.

    On several threads if there are enough of them.
    """
    workers = threads.threads() if work >= _WORTH_THREADS else 1
    if images * groups < workers:
        workers = 1  # the product of each divides its own result
    most = max(1, min(_TOGETHER // max(1, columns), -(-images * groups // workers)))
    starts = range(0, images, most)
    pairs = [(slice(start, min(start + most, images)), group) for start in starts for group in range(groups)]
    ends = [len(pairs) * i // workers for i in range(workers + 1)]
    pieces = [pairs[start:stop] for start, stop in zip(ends, ends[1:], strict=False)]

    def each(piece: list[tuple[slice, int]]) -> Counts:
        total: Counts = None
        for part, group in piece:
            total = _plus(total, some(part, group))
        return total

    total: Counts = None
    for counts in threads.run([lambda piece=piece: each(piece) for piece in pieces]):  # type: ignore[misc]
        total = _plus(total, counts)
    return total


def _plus(total: Counts, counts: Counts) -> Counts:
    return counts if total is None else total if counts is None else total + counts
