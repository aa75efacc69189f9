"""Convolutions in one, two and three dimensions, and their gradients, accumulated as a datapath says.

Names and arguments are those of ``torch.nn.functional`` and ``torch.nn.grad``. Each element is a dot product from
+0; its terms stand in this order, the last index moving fastest:

- ``conv2d``: (channel of the group, kernel depth, height, width);
- ``conv2d_input``, the gradient of the input: (output channel of the group, kernel depth, height, width), where a
  stride puts zeros between the entries of `grad_output`;
- ``conv2d_weight``, the gradient of the weight: (image, output depth, height, width).

Padding and inserted zeros take part as +0: an infinite weight over padding gives NaN. All functions take

input : array_like, shape (batch, channels, *spatial), or (channels, *spatial) for one image
weight : array_like, shape (output channels, channels / groups, *kernel)
bias : array_like, shape (output channels,), optional
    In the result's format; added to the rounded product, and rounded again.
grad_output : array_like, shape (batch, output channels, *output)
    The gradient of the result.
stride, dilation : int or tuple of int
    Steps from window to window, and from tap to tap.
padding : int, tuple of int, "valid" or "same"
    Zeros on both sides of each axis. ``"same"``, with stride 1 only, keeps the size; an odd zero goes last.
groups : int
    Into how many groups the channels fall; each output channel sees the channels of its own.
datapath : str or Datapath
    How the dot products are accumulated.
out : array, optional
    Where to put the result; it may share memory with the operands.
out_format : Format, str or dtype, optional
    To which accumulators are rounded, once. Default: as `fp16sim.matmul`.

and raise ValueError or TypeError on shapes, steps or formats that do not fit, before any work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fp16sim.emulator import arithmetic, backends
from fp16sim.emulator.arrays import decoded, delivered, encoded, writable
from fp16sim.emulator.backends.base import Encodings
from fp16sim.emulator.convolution_geometry import Geometry
from fp16sim.emulator.datapath import Datapath
from fp16sim.emulator.elementwise import record, watching
from fp16sim.emulator.formats import Format, nearest_name
from fp16sim.emulator.matmul import formats_of

__all__ = [
    "conv1d",
    "conv1d_input",
    "conv1d_weight",
    "conv2d",
    "conv2d_input",
    "conv2d_weight",
    "conv3d",
    "conv3d_input",
    "conv3d_weight",
]

Steps = int | Sequence[int]
Padding = str | int | Sequence[int]
Array = npt.NDArray[Any]


class Forward(Protocol):
    """A convolution."""

    def __call__(
        self,
        input: Any,
        weight: Any,
        bias: Any = None,
        stride: Steps = 1,
        padding: Padding = 0,
        dilation: Steps = 1,
        groups: int = 1,
        *,
        datapath: str | Datapath = "float32",
        out: Array | None = None,
        out_format: Any = None,
    ) -> Any:
        """Convolve."""


class InputGradient(Protocol):
    """The gradient of a convolution's input."""

    def __call__(
        self,
        input_size: Sequence[int],
        weight: Any,
        grad_output: Any,
        stride: Steps = 1,
        padding: Padding = 0,
        dilation: Steps = 1,
        groups: int = 1,
        *,
        datapath: str | Datapath = "float32",
        out: Array | None = None,
        out_format: Any = None,
    ) -> Any:
        """Compute the gradient."""


class WeightGradient(Protocol):
    """The gradient of a convolution's weight."""

    def __call__(
        self,
        input: Any,
        weight_size: Sequence[int],
        grad_output: Any,
        stride: Steps = 1,
        padding: Padding = 0,
        dilation: Steps = 1,
        groups: int = 1,
        *,
        datapath: str | Datapath = "float32",
        out: Array | None = None,
        out_format: Any = None,
    ) -> Any:
        """Compute the gradient."""


def _forward(dimensions: int) -> Forward:
    def function(
        input: Any,
        weight: Any,
        bias: Any = None,
        stride: Steps = 1,
        padding: Padding = 0,
        dilation: Steps = 1,
        groups: int = 1,
        *,
        datapath: str | Datapath = "float32",
        out: Array | None = None,
        out_format: Any = None,
    ) -> Any:
        fmt, path, target = formats_of((input, weight), datapath, None, out_format)
        x, kernel = encoded(input, fmt), encoded(weight, fmt)
        x, lone = _with_batch("input", x, dimensions)
        geometry = _geometry(x.shape, kernel.shape, dimensions, stride, padding, dilation, groups)
        shape = (x.shape[0], kernel.shape[0], *geometry.output)
        added = None if bias is None else _bias(bias, target, shape)
        operands = [x, kernel] if added is None else [x, kernel, encoded(added, target)]
        into = writable(out, target, shape[1:] if lone else shape, operands)
        bits = _convolved("forward", x, kernel, geometry, shape, fmt, path, target)
        if added is not None:
            bits = encoded(arithmetic.add(decoded(bits, target), added, format=target), target)
        return _given(bits, lone, into, target, out)

    _describe(
        function,
        f"conv{dimensions}d",
        f"""Convolve (correlate) in {dimensions}-d: each window of the input with the weight.

    Arguments: see ``help("fp16sim.emulator.convolution")``.

    Examples
    --------
    >>> import numpy as np, fp16sim as fs
    >>> x = np.arange(4, dtype=np.float16).reshape(1, 1{", 1" * (dimensions - 1)}, 4)
    >>> ones = np.ones((1, 1{", 1" * (dimensions - 1)}, 2), np.float16)
    >>> fs.conv{dimensions}d(x, ones).reshape(-1).tolist()
    [1.0, 3.0, 5.0]
    """,
    )
    return function


def _input_gradient(dimensions: int) -> InputGradient:
    def function(
        input_size: Sequence[int],
        weight: Any,
        grad_output: Any,
        stride: Steps = 1,
        padding: Padding = 0,
        dilation: Steps = 1,
        groups: int = 1,
        *,
        datapath: str | Datapath = "float32",
        out: Array | None = None,
        out_format: Any = None,
    ) -> Any:
        shape = _size("input_size", input_size, dimensions)
        fmt, path, target = formats_of((weight, grad_output), datapath, None, out_format)
        kernel, gradient = encoded(weight, fmt), encoded(grad_output, fmt)
        lone = len(shape) == dimensions + 1
        full = (1, *shape) if lone else shape
        geometry = _geometry(full, kernel.shape, dimensions, stride, padding, dilation, groups)
        gradient, _ = _with_batch("grad_output", gradient, dimensions)
        _check_gradient(gradient.shape, (full[0], kernel.shape[0], *geometry.output))
        into = writable(out, target, shape, [kernel, gradient])
        bits = _convolved("input_gradient", gradient, kernel, geometry, full, fmt, path, target)
        return _given(bits, lone, into, target, out)

    _describe(
        function,
        f"conv{dimensions}d_input",
        f"""Give the gradient of the input of `conv{dimensions}d`, of shape `input_size`.

    Arguments: see ``help("fp16sim.emulator.convolution")``.

    Examples
    --------
    >>> import numpy as np, fp16sim as fs
    >>> ones = np.ones((1, 1{", 1" * (dimensions - 1)}, 2), np.float16)
    >>> gradient = np.ones((1, 1{", 1" * (dimensions - 1)}, 3), np.float16)
    >>> fs.conv{dimensions}d_input((1, 1{", 1" * (dimensions - 1)}, 4), ones, gradient).reshape(-1).tolist()
    [1.0, 2.0, 2.0, 1.0]
    """,
    )
    return function


def _weight_gradient(dimensions: int) -> WeightGradient:
    def function(
        input: Any,
        weight_size: Sequence[int],
        grad_output: Any,
        stride: Steps = 1,
        padding: Padding = 0,
        dilation: Steps = 1,
        groups: int = 1,
        *,
        datapath: str | Datapath = "float32",
        out: Array | None = None,
        out_format: Any = None,
    ) -> Any:
        shape = _size("weight_size", weight_size, dimensions)
        fmt, path, target = formats_of((input, grad_output), datapath, None, out_format)
        x, gradient = encoded(input, fmt), encoded(grad_output, fmt)
        x, _ = _with_batch("input", x, dimensions)
        gradient, _ = _with_batch("grad_output", gradient, dimensions)
        geometry = _geometry(x.shape, shape, dimensions, stride, padding, dilation, groups)
        _check_gradient(gradient.shape, (x.shape[0], shape[0], *geometry.output))
        into = writable(out, target, shape, [x, gradient])
        bits = _convolved("weight_gradient", x, gradient, geometry, shape, fmt, path, target)
        return _given(bits, False, into, target, out)

    _describe(
        function,
        f"conv{dimensions}d_weight",
        f"""Give the gradient of the weight of `conv{dimensions}d`, of shape `weight_size`.

    Arguments: see ``help("fp16sim.emulator.convolution")``.

    Examples
    --------
    >>> import numpy as np, fp16sim as fs
    >>> x = np.arange(4, dtype=np.float16).reshape(1, 1{", 1" * (dimensions - 1)}, 4)
    >>> gradient = np.ones((1, 1{", 1" * (dimensions - 1)}, 3), np.float16)
    >>> fs.conv{dimensions}d_weight(x, (1, 1{", 1" * (dimensions - 1)}, 2), gradient).reshape(-1).tolist()
    [3.0, 6.0]
    """,
    )
    return function


def _describe(function: Any, name: str, doc: str) -> None:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc


def _convolved(
    which: str,
    a: Encodings,
    b: Encodings,
    geometry: Geometry,
    shape: tuple[int, ...],
    fmt: Format,
    path: Datapath,
    target: Format,
) -> Encodings:
    operands = np.ascontiguousarray(a), np.ascontiguousarray(b)
    outcome = backends.current().convolve(which, *operands, geometry, shape, fmt, path, target, watching())
    record("convolution" if which == "forward" else f"convolution_{which}", outcome)
    return outcome.bits


def _given(bits: Encodings, lone: bool, into: Encodings | None, target: Format, out: Array | None) -> Any:
    return delivered(bits, into, target, bits.shape[1:] if lone else bits.shape, out)


def _with_batch(name: str, x: Encodings, dimensions: int) -> tuple[Encodings, bool]:
    """Give (batch, channels, spatial axes), and whether the batch axis was lacking."""
    if x.ndim not in (dimensions + 1, dimensions + 2):
        raise ValueError(
            f"{name} has shape {x.shape}: a convolution in {dimensions}-d takes (batch, channels), or "
            f"(channels) of one image, and then {dimensions} spatial axes; reshape it"
        )
    lone = x.ndim == dimensions + 1
    return (x[np.newaxis] if lone else x), lone


def _size(name: str, size: Sequence[int], dimensions: int) -> tuple[int, ...]:
    if not isinstance(size, (Sequence, np.ndarray)) or not all(
        isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in size
    ):
        order = {"input_size": "input(input_size, weight", "weight_size": "weight(input, weight_size"}[name]
        given = f"an array of shape {size.shape}" if isinstance(size, np.ndarray) else repr(size)
        raise TypeError(
            f"{name} is {given}: it is a tuple of integers, and the order is conv{dimensions}d_{order}, grad_output); "
            f"pass the shape of the {name.removesuffix('_size')}"
        )
    shape = tuple(int(n) for n in size)
    allowed = (dimensions + 2,) if name == "weight_size" else (dimensions + 1, dimensions + 2)
    if len(shape) not in allowed or min(shape) < 0:
        raise ValueError(
            f"{name}={shape}: pass the shape of the {name.removesuffix('_size')} of a convolution in {dimensions}-d"
        )
    return shape


def _geometry(
    x: tuple[int, ...],
    weight: tuple[int, ...],
    dimensions: int,
    stride: Steps,
    padding: Padding,
    dilation: Steps,
    groups: int,
) -> Geometry:
    """Check shapes and steps against each other."""
    if len(weight) != dimensions + 2:
        raise ValueError(
            f"weight has shape {weight}: a convolution in {dimensions}-d takes (output channels, channels / groups) "
            f"and {dimensions} kernel axes; reshape it"
        )
    steps = _entries("stride", stride, dimensions)
    taps = _entries("dilation", dilation, dimensions)
    geometry = Geometry(x[2:], weight[2:], steps, taps, _padding(padding, weight[2:], steps, taps), groups)
    if x[1] != weight[1] * groups or weight[0] % groups:
        raise ValueError(
            f"input with {x[1]} channels, weight {weight} and groups={groups}: the weight's second axis times groups "
            "must be the number of channels, and groups must divide its first; reshape the weight or change groups"
        )
    return geometry


def _entries(name: str, value: Steps, dimensions: int) -> tuple[int, ...]:
    entries = tuple(value) if isinstance(value, Sequence) else (value,) * dimensions
    if len(entries) != dimensions or not all(
        isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in entries
    ):
        raise ValueError(f"{name}={value!r}: pass an integer, or one for each of {dimensions} spatial axes")
    return tuple(int(n) for n in entries)


def _padding(
    padding: Padding, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[tuple[int, int], ...]:
    if not isinstance(padding, str):
        return tuple((n, n) for n in _entries("padding", padding, len(kernel)))
    if padding not in ("valid", "same"):
        raise ValueError(f"unknown padding {padding!r}: {nearest_name(padding, ('valid', 'same'))}")
    if padding == "valid":
        return ((0, 0),) * len(kernel)
    if any(n != 1 for n in stride):
        raise ValueError(
            f"padding='same' with stride={stride}: the size changes; pass the padding as integers"
        )
    return tuple(
        (d * (k - 1) // 2, d * (k - 1) - d * (k - 1) // 2) for k, d in zip(kernel, dilation, strict=True)
    )


def _bias(bias: Any, target: Format, shape: tuple[int, ...]) -> Array:
    """Give the bias in the result's format, with axes that stretch over places."""
    values = decoded(encoded(bias, target), target)
    if values.shape != shape[1:2]:
        raise ValueError(f"bias has shape {values.shape}: there are {shape[1]} output channels; pass as many")
    return values.reshape(-1, *(1,) * (len(shape) - 2))


def _check_gradient(found: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if found != expected:
        raise ValueError(
            f"grad_output has shape {found}: the result of this convolution has {expected}; check stride, padding "
            "and dilation"
        )


conv1d, conv2d, conv3d = (_forward(n) for n in (1, 2, 3))
conv1d_input, conv2d_input, conv3d_input = (_input_gradient(n) for n in (1, 2, 3))
conv1d_weight, conv2d_weight, conv3d_weight = (_weight_gradient(n) for n in (1, 2, 3))
