"""The definition of convolutions: each element is a dot product whose terms stand in a fixed order.

Order of the terms, that is of k, from the slowest index to the fastest:

- forward: channel of the group, then the taps of the kernel (depth, height, width);
- gradient of the input: output channel of the group, then the taps, in the same order as the weight holds them;
- gradient of the weight: image of the batch, then the places of the output (depth, height, width).

Where a term reads padding, or one of the zeros that a stride inserts into the gradient of the output, +0 takes
part like any other number: an infinite weight there gives NaN, and -0 does not stay -0. As a product of matrices
(backends/unfolding.py) the same terms are summed in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

from fp16sim.emulator import reference_dot
from fp16sim.emulator.convolution_geometry import Geometry
from fp16sim.emulator.datapath import Datapath
from fp16sim.emulator.formats import Format

__all__ = ["forward", "input_gradient", "weight_gradient"]

Encodings = Mapping[tuple[int, ...], int]
"""An array as a table from index to encoding. What it lacks is +0, whose encoding is 0 in every format."""


def forward(
    x: Encodings,
    weight: Encodings,
    batch: int,
    channels: tuple[int, int],
    geometry: Geometry,
    fmt: Format,
    datapath: Datapath,
    out_format: Format,
) -> list[reference_dot.Accumulation]:
    """Correlate the input with the weight.

    Parameters
    ----------
    x : mapping
        Encodings of `fmt` at (image, channel, place...).
    weight : mapping
        At (output channel, channel of the group, tap...).
    batch : int
        Number of images.
    channels : (int, int)
        Of the input and of the output.

    Returns
    -------
    list of Accumulation
        For each (image, output channel, place...) in C order.
    """
    each_in, each_out = channels[0] // geometry.groups, channels[1] // geometry.groups
    results = []
    for n, o, *place in _indices(batch, channels[1], *geometry.output):
        first = o // each_out * each_in
        terms = list(_indices(each_in, *geometry.kernel))
        a = [weight[(o, *term)] for term in terms]
        b = [x.get((n, first + c, *_read(geometry, place, tap)), 0) for c, *tap in terms]
        results.append(reference_dot.dot(a, b, 0, fmt, datapath, out_format))
    return results


def input_gradient(
    gradient: Encodings,
    weight: Encodings,
    batch: int,
    channels: tuple[int, int],
    geometry: Geometry,
    fmt: Format,
    datapath: Datapath,
    out_format: Format,
) -> list[reference_dot.Accumulation]:
    """Give the gradient of the input from that of the output, (image, output channel, place...), as `forward`."""
    each_in, each_out = channels[0] // geometry.groups, channels[1] // geometry.groups
    results = []
    for n, channel, *place in _indices(batch, channels[0], *geometry.size):
        first = channel // each_in * each_out
        terms = list(_indices(each_out, *geometry.kernel))
        a = [weight[(first + o, channel % each_in, *tap)] for o, *tap in terms]
        b = [gradient.get((n, first + o, *_wrote(geometry, place, tap)), 0) for o, *tap in terms]
        results.append(reference_dot.dot(a, b, 0, fmt, datapath, out_format))
    return results


def weight_gradient(
    x: Encodings,
    gradient: Encodings,
    batch: int,
    channels: tuple[int, int],
    geometry: Geometry,
    fmt: Format,
    datapath: Datapath,
    out_format: Format,
) -> list[reference_dot.Accumulation]:
    """Give the gradient of the weight from input and gradient of the output, as `forward`."""
    each_in, each_out = channels[0] // geometry.groups, channels[1] // geometry.groups
    results = []
    for o, c, *tap in _indices(channels[1], each_in, *geometry.kernel):
        channel = o // each_out * each_in + c
        terms = list(_indices(batch, *geometry.output))
        a = [gradient[(n, o, *place)] for n, *place in terms]
        b = [x.get((n, channel, *_read(geometry, place, tap)), 0) for n, *place in terms]
        results.append(reference_dot.dot(a, b, 0, fmt, datapath, out_format))
    return results


def _indices(*sizes: int) -> product[tuple[int, ...]]:
    """Count through an array in C order."""
    return product(*map(range, sizes))


def _read(geometry: Geometry, place: list[int], tap: list[int]) -> list[int]:
    """Find the place of the input that a tap reads for a place of the output; outside the input it is padding."""
    return [
        p * stride + t * dilation - before
        for p, t, stride, dilation, (before, _) in zip(
            place, tap, geometry.stride, geometry.dilation, geometry.padding, strict=True
        )
    ]


def _wrote(geometry: Geometry, place: list[int], tap: list[int]) -> list[int]:
    """Find the place of the output for which a tap reads this place of the input; -1 where there is none."""
    found = []
    for p, t, stride, dilation, (before, _) in zip(
        place, tap, geometry.stride, geometry.dilation, geometry.padding, strict=True
    ):
        steps, rest = divmod(p + before - t * dilation, stride)
        found.append(steps if rest == 0 else -1)
    return found
