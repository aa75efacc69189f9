"""Sums along axes, and what is built on them: each in the order and in the format that a datapath says.

NumPy adds pairwise, hardware and plain loops one after another; the bits differ. All functions here take

x : array_like
    Of one format that the datapath takes.
axis : int or tuple of int, optional
    Over which to reduce; several in C order. Default: all.
datapath : str or Datapath
    Whose accumulator each partial sum is rounded to, and in which order terms are added.
keepdims : bool
    Whether reduced axes stay with length 1.
out : array, optional
    Where to put the result; it may share memory with `x`.
out_format : Format, str or dtype, optional
    To which the result is rounded, once, at the end. Default: the datapath's own for a tensor core, otherwise that
    of `x`.
format : Format, str or dtype, optional
    That of a float32 carrier, such as ``"tf32"``.

and raise ValueError or TypeError on an axis that is not there, formats that do not fit, or an `out` that cannot
take the result, before any work.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fp16sim.emulator import arithmetic, backends, float32_functions, functions
from fp16sim.emulator.arrays import decoded, delivered, encoded, writable
from fp16sim.emulator.backends.base import Encodings
from fp16sim.emulator.datapath import Datapath
from fp16sim.emulator.elementwise import record, watching
from fp16sim.emulator.formats import Format, binary16, binary32, binary64
from fp16sim.emulator.matmul import formats_of
from fp16sim.emulator.rounding import Rounding

__all__ = ["cumsum", "index_sum", "mean", "norm", "softmax", "sum"]

Axis = int | tuple[int, ...] | None


def sum(
    x: Any,
    axis: Axis = None,
    datapath: str | Datapath = "float32",
    *,
    keepdims: bool = False,
    out: npt.NDArray[Any] | None = None,
    out_format: Any = None,
    format: Any = None,
) -> Any:
    """Sum from +0, by default in increasing C-order index.

    Arguments: see ``help("fp16sim.emulator.reductions")``.

    Examples
    --------
    >>> import numpy as np, fp16sim as fs
    >>> ones = np.ones(4096, np.float16)
    >>> float(fs.sum(ones, datapath="float16")), float(fs.sum(ones)), float(fs.sum(ones, datapath="pairwise"))
    (2048.0, 4096.0, 4096.0)
    """
    fmt, path, target = formats_of((x,), datapath, format, out_format)
    bits = encoded(x, fmt)
    view = _reduced(bits.shape, axis, keepdims)
    writable(out, target, view.shape, (bits,))
    return delivered(_sum(view.cube(bits), fmt, path, target), None, target, view.shape, out)


def mean(
    x: Any,
    axis: Axis = None,
    datapath: str | Datapath = "float32",
    *,
    keepdims: bool = False,
    out: npt.NDArray[Any] | None = None,
    out_format: Any = None,
    format: Any = None,
) -> Any:
    """Divide the sum by the number of terms.

    Arguments: see ``help("fp16sim.emulator.reductions")``.

    The sum stays in the accumulator's format (an exact one is rounded to binary32); the number of terms is rounded
    to that format, as is the quotient, which is rounded to the result's format last. No terms give NaN. A NaN is the
    canonical one, also on tensor cores, whose sums have a NaN of their own. In binary64 the sum's events are counted,
    those of the division are not.

    Examples
    --------
    >>> import numpy as np, fp16sim as fs
    >>> x = np.full(1000, 100, np.float16)
    >>> float(fs.mean(x)), float(fs.mean(x, datapath="float16"))  # the sum is 100000
    (100.0, inf)
    """
    fmt, path, target = formats_of((x,), datapath, format, out_format)
    bits = encoded(x, fmt)
    view = _reduced(bits.shape, axis, keepdims)
    writable(out, target, view.shape, (bits,))
    inner = _inner(path)
    total = decoded(_sum(view.cube(bits), fmt, path, inner), inner)
    if inner == binary64:
        with np.errstate(all="ignore"):
            quotient = total / np.float64(view.terms)
        quotient[np.isnan(quotient)] = np.nan  # 0 / 0 has the processor's NaN, on x86 a negative one
    else:
        count = arithmetic.round_to(float(view.terms), inner)  # inf in binary16 from 65520 terms on
        quotient = arithmetic.divide(total, count, format=inner)
    return _rounded(quotient, inner, target, view.shape, out)


def norm(
    x: Any,
    axis: Axis = None,
    datapath: str | Datapath = "float32",
    *,
    keepdims: bool = False,
    out: npt.NDArray[Any] | None = None,
    out_format: Any = None,
    format: Any = None,
) -> Any:
    """Take the square root of the sum of squares, the Euclidean norm.

    Arguments: see ``help("fp16sim.emulator.reductions")``.

    The sum is the dot product of `x` with itself, in the accumulator's format (an exact one is rounded to
    binary32); its square root is rounded to that format and then to the result's. A NaN is the canonical one, also on
    tensor cores, whose dot products have a NaN of their own. In binary64 the sum's events are counted, those of the
    root are not.

    Examples
    --------
    >>> import numpy as np, fp16sim as fs
    >>> x = np.float16([300, 400])
    >>> float(fs.norm(x)), float(fs.norm(x, datapath="float16"))  # 300^2 is beyond float16
    (500.0, inf)
    """
    fmt, path, target = formats_of((x,), datapath, format, out_format)
    bits = encoded(x, fmt)
    view = _reduced(bits.shape, axis, keepdims)
    writable(out, target, view.shape, (bits,))
    inner = _inner(path)
    outcome = backends.current().sum_of_squares(view.cube(bits), fmt, path, inner, watching())
    record("norm", outcome)
    squares = decoded(outcome.bits.reshape(-1), inner)
    if inner == binary64:
        with np.errstate(all="ignore"):
            root = np.sqrt(squares)
    else:
        root = functions.sqrt(squares, format=inner)
    return _rounded(root, inner, target, view.shape, out)


def cumsum(
    x: Any,
    axis: int | None = None,
    datapath: str | Datapath = "float32",
    *,
    out: npt.NDArray[Any] | None = None,
    out_format: Any = None,
    format: Any = None,
) -> Any:
    """Sum the elements up to each one; without an axis `x` is flattened first.

    Arguments: see ``help("fp16sim.emulator.reductions")``; `axis` is one integer.

    Element i is ``sum`` of elements 0 to i, bit for bit. In order of k that takes one pass; in any other order each
    sum is made anew.

    Examples
    --------
    >>> import numpy as np, fp16sim as fs
    >>> fs.cumsum(np.float16([2047, 1, 1, 1]), datapath="float16").tolist()
    [2047.0, 2048.0, 2048.0, 2048.0]
    """
    if isinstance(axis, tuple):
        raise TypeError(f"axis={axis}: sums up to each element run along one axis; pass an integer or None")
    fmt, path, target = formats_of((x,), datapath, format, out_format)
    bits = encoded(x, fmt)
    shape = (bits.size,) if axis is None else bits.shape
    bits = bits.reshape(shape)
    view = _reduced(shape, 0 if axis is None else axis, False)
    writable(out, target, shape, (bits,))
    outcome = backends.current().cumulative_sum(view.cube(bits), fmt, path, target, watching())
    record("cumsum", outcome)
    return delivered(np.ascontiguousarray(outcome.bits).reshape(shape), None, target, shape, out)


def index_sum(
    x: Any,
    index: npt.ArrayLike,
    size: int,
    datapath: str | Datapath = "float32",
    *,
    out_format: Any = None,
    format: Any = None,
) -> Any:
    """Sum the elements of `x` along its first axis that have the same index: the gradient of looking rows up.

    Parameters
    ----------
    x : array_like
        Of shape (n, ...) and one format that the datapath takes.
    index : array_like of int
        Of shape (n,): to which element of the result each one is added, from 0 to ``size - 1``.
    size : int
        The length of the result.
    datapath, out_format, format
        As in `sum`.

    Returns
    -------
    array
        Of shape (size, ...). Element r is ``sum`` along the first axis of the elements with index r, bit for bit: from
        +0, by default in their order, each partial sum rounded as the datapath says. Where an index does not occur
        it is +0.

    Raises
    ------
    ValueError, TypeError
        If an index lies outside, shapes or formats do not fit; before any work.

    Examples
    --------
    The gradient of an embedding of 3 words, 2 numbers each, of which a text has word 2 twice and word 0 once:

    >>> import numpy as np, fp16sim as fs
    >>> gradient = np.float16([[1, 2], [10, 20], [100, 200]])
    >>> index_sum(gradient, [2, 0, 2], 3).tolist()
    [[10.0, 20.0], [0.0, 0.0], [101.0, 202.0]]

    A word that occurs 12501 times: in binary16 the sum stays at 32, whose neighbour is 1/32 away.

    >>> many = np.float16([1.0] + [0.01] * 12500)
    >>> [float(index_sum(many, np.zeros(12501, int), 1, path)[0]) for path in ("float16", "float32")]
    [32.0, 126.0]
    """
    fmt, path, target = formats_of((x,), datapath, format, out_format)
    bits = encoded(x, fmt)
    if bits.ndim == 0:
        raise ValueError("a single number: index_sum adds along the first axis; pass an array that has one")
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 0:
        raise ValueError(f"size={size!r}: it is the length of the result; pass an integer of at least 0")
    rows = _rows_named(index, len(bits))
    shape = (int(size), *bits.shape[1:])
    outcome = backends.current().index_sum(
        bits.reshape(len(bits), prod(shape[1:])), rows, shape[0], fmt, path, target, watching()
    )
    record("index_sum", outcome)
    return delivered(outcome.bits, None, target, shape, None)


def _rows_named(index: npt.ArrayLike, n: int) -> npt.NDArray[np.int64]:
    """Give an index as the backend takes it."""
    given = np.asarray(index)
    if given.size == 0 and not isinstance(index, np.ndarray):
        given = given.astype(np.int64)  # NumPy takes [] for float64
    if given.dtype.kind not in "iu":
        raise TypeError(f"index of {given.dtype}: it holds integers; pass index.astype(int) if that is meant")
    if given.shape != (n,):
        raise ValueError(
            f"index of shape {given.shape}: there is one for each of {n} elements; pass shape ({n},)"
        )
    return np.ascontiguousarray(given, np.int64)


def softmax(
    x: Any,
    axis: int = -1,
    datapath: str | Datapath = "float32",
    *,
    out: npt.NDArray[Any] | None = None,
) -> Any:
    """Divide exponentials by their sum, in binary16 or binary32.

    Each step is rounded to the format of `x`: the largest element is subtracted; exponentials (`fp16sim.exp`, or
    `float32_functions.exp` for float32, which counts no events); their sum, accumulated as the datapath says; the
    quotients. A NaN, a positive infinity, or nothing but negative infinities make the whole axis NaN.

    Parameters
    ----------
    x : array_like
    axis : int
        Along which the results sum to about 1.
    datapath : str or Datapath
        Of the sum.
    out : array, optional
        Where to put the result; it may be `x`.

    Examples
    --------
    >>> import numpy as np, fp16sim as fs
    >>> fs.softmax(np.float16([0, 0, -20])).tolist()
    [0.5, 0.5, 0.0]
    """
    fmt, path, _ = formats_of((x,), datapath, None, None)
    if fmt not in (binary16, binary32):
        raise TypeError(
            f"{fmt.name} argument: softmax computes in binary16 or binary32; convert with "
            "fp16sim.round_to(x, 'binary16')"
        )
    bits = encoded(x, fmt)
    if bits.ndim == 0:
        raise ValueError("a single number: softmax takes an array with at least one axis; reshape it")
    view = _reduced(bits.shape, axis, True)
    writable(out, fmt, bits.shape, (bits,))
    values = decoded(np.ascontiguousarray(bits), fmt)
    if not values.size:
        return delivered(bits, None, fmt, bits.shape, out)
    largest = np.max(values, axis=view.axes[0], keepdims=True)  # chooses, NaN first: nothing is rounded
    shifted = arithmetic.subtract(values, largest)
    exponentials = functions.exp(shifted) if fmt == binary16 else float32_functions.exp(shifted)
    total = sum(exponentials, view.axes[0], path, keepdims=True, out_format=fmt)
    return arithmetic.divide(exponentials, total, out=out)


class _Reduced(NamedTuple):
    """Which axes of an array are reduced, and what is left."""

    axes: tuple[int, ...]
    terms: int
    shape: tuple[int, ...]

    def cube(self, bits: Encodings) -> Encodings:
        """Give a contiguous (outer, terms, inner) whose inner axis is the fastest where that costs no copy."""
        first, last = (self.axes[0], self.axes[-1]) if self.axes else (0, -1)
        if last - first + 1 == len(self.axes):  # neighbours
            sizes = prod(bits.shape[:first]), self.terms, prod(bits.shape[last + 1 :])
            return np.ascontiguousarray(bits).reshape(sizes)
        moved = np.moveaxis(bits, self.axes, range(-len(self.axes), 0))
        rest = prod(n for i, n in enumerate(bits.shape) if i not in self.axes)
        return np.ascontiguousarray(moved).reshape(rest, self.terms, 1)


def _reduced(shape: tuple[int, ...], axis: Axis, keepdims: bool) -> _Reduced:
    if isinstance(axis, str):
        raise TypeError(
            f"axis={axis!r}: an axis is an integer; name a datapath by keyword, as in datapath='float16'"
        )
    if keepdims not in (True, False):
        raise ValueError(f"keepdims={keepdims!r}: axes stay or not; pass True or False")
    dimensions = len(shape)
    given = range(dimensions) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    for n in given:
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or not -dimensions <= n < dimensions:
            raise ValueError(f"axis={axis}: an array of shape {shape} has {dimensions} axes, named from 0 on")
    axes = tuple(sorted(int(n) % dimensions for n in given))
    if len(set(axes)) < len(axes):
        raise ValueError(f"axis={axis}: an axis is named twice; name each once")
    left = tuple(1 if i in axes else n for i, n in enumerate(shape) if keepdims or i not in axes)
    return _Reduced(axes, prod(shape[i] for i in axes), left)


def _sum(cube: Encodings, fmt: Format, path: Datapath, target: Format) -> Encodings:
    outcome = backends.current().sum(cube, fmt, path, target, watching())
    record("sum", outcome)
    return outcome.bits.reshape(-1)


def _inner(path: Datapath) -> Format:
    """Give the format in which a mean is divided and a root taken."""
    return path.accumulator or binary32


def _rounded(
    values: npt.NDArray[Any],
    inner: Format,
    target: Format,
    shape: tuple[int, ...],
    out: npt.NDArray[Any] | None,
) -> Any:
    """Round the last step to the result's format."""
    flat = encoded(np.asarray(values), inner).reshape(-1)
    if inner != target:
        outcome = backends.current().convert(flat, inner, target, Rounding(), watch=watching())
        record("round_to", outcome)
        flat = outcome.bits
    return delivered(flat, None, target, shape, out)
