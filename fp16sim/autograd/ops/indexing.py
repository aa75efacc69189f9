"""Parts of tensors and tensors made of parts: nothing is rounded forward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fp16sim.autograd.arithmetic import Arithmetic, Array
from fp16sim.autograd.operation import Op, run
from fp16sim.autograd.ops.elementwise import is_number
from fp16sim.autograd.ops.shapes import axis_of
from fp16sim.autograd.tensor import Context, Tensor, need_tensor

__all__ = ["concatenate", "getitem", "pad", "stack"]

Saved = tuple[Any, ...]
Parts = tuple[Array | None, ...]
Key = tuple[Any, ...]

# ---------------------------------------------------------------------------------------------------- getitem


def _getitem(arithmetic: Arithmetic, a: Array, key: Key) -> tuple[Array, Saved]:
    return np.asarray(a[key]), (a.shape, key)


def _getitem_gradient(context: Context, gradient: Array) -> Parts:
    shape, key = context.saved
    if not any(_is_integers(item) for item in key):  # no element is taken twice
        result = np.zeros(shape, gradient.dtype)
        result[key] = gradient
        return (result,)
    if len(key) == 1:  # rows
        index, inner = key[0].reshape(-1) % max(shape[0], 1), shape[1:]
        rows = gradient.reshape(index.size, int(np.prod(inner, dtype=np.int64)))
        return (context.arithmetic.index_sum(rows, index, shape[0]).reshape(shape),)
    size = int(np.prod(shape, dtype=np.int64))
    places = np.arange(size).reshape(shape)[key].reshape(-1)
    return (context.arithmetic.index_sum(gradient.reshape(-1, 1), places, size).reshape(shape),)


_GETITEM = Op("getitem", _getitem, _getitem_gradient)


def getitem(a: Tensor, key: Any) -> Tensor:
    """Take elements by integers, slices, None, ``...``, arrays of integers and arrays of bool, as NumPy does.

    Gradient: +0 where nothing was taken. Where an array of integers takes an element several times, its gradients
    are added in C order of the result, accumulated as the policy's reduction says and rounded once.

    Raises
    ------
    TypeError
        If the key holds anything else.
    IndexError
        If an index is out of range, or there are too many.

    Examples
    --------
    >>> x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    >>> x[[0, 2, 2]].backward([1.0, 10.0, 100.0])
    >>> x.grad
    array([  1.,   0., 110.], dtype=float32)
    """
    need_tensor(a)
    checked = tuple([_index(item) for item in (key if isinstance(key, tuple) else (key,))])
    views = not any(isinstance(item, np.ndarray) for item in checked)
    try:
        (a._array if views else np.broadcast_to(np.int8(0), a.shape))[checked]
    except IndexError as error:
        raise IndexError(f"an index into a tensor of shape {a.shape}: {error}") from None
    return run(_GETITEM, a, key=checked)


def _index(item: Any) -> Any:
    """Copy arrays: the gradient must find what the forward pass saw."""
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if isinstance(item, (int, np.integer)) and not isinstance(item, bool):
        return int(item)
    if isinstance(item, (list, np.ndarray)):
        array = np.array(item)
        if array.dtype == np.bool_ and array.ndim:
            return array
        if array.dtype.kind in "iu" or not array.size:
            return array.astype(np.int64)
        kind = f"an array of {array.dtype}"
    else:
        kind = f"a {type(item).__name__}"
    raise TypeError(
        f"an index that is {kind}: pass integers, slices, None, ... or arrays of integers or bool"
    )


def _is_integers(item: Any) -> bool:
    return isinstance(item, np.ndarray) and item.dtype != np.bool_


# -------------------------------------------------------------------------------------------- concatenate, stack


def _concatenate(arithmetic: Arithmetic, *arrays: Array, axis: int) -> tuple[Array, Saved]:
    return np.concatenate(arrays, axis), (axis, tuple(array.shape[axis] for array in arrays))


def _concatenate_gradient(context: Context, gradient: Array) -> Parts:
    axis, lengths = context.saved
    ends = np.cumsum(lengths)
    before = (slice(None),) * axis
    return tuple(
        gradient[(*before, slice(int(end) - length, int(end)))] if needed else None
        for end, length, needed in zip(ends, lengths, context.needs, strict=True)
    )


_CONCATENATE = Op("concatenate", _concatenate, _concatenate_gradient)


def concatenate(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Join tensors along an axis; the other lengths are equal. Gradients: the parts of G.

    >>> concatenate([Tensor([1.0]), Tensor([2.0, 3.0])]).data
    array([1., 2., 3.], dtype=float32)
    """
    shapes = _shapes("concatenate", tensors)
    place = axis_of("concatenate", axis, len(shapes[0]), shapes[0])
    if any(_without(shape, place) != _without(shapes[0], place) for shape in shapes):
        raise ValueError(
            f"concatenate of shapes {_listed(shapes)} along axis {axis}: all other lengths must be equal; reshape "
            "or pad"
        )
    return run(_CONCATENATE, *tensors, axis=place)


def _stack(arithmetic: Arithmetic, *arrays: Array, axis: int) -> tuple[Array, Saved]:
    return np.stack(arrays, axis), (axis, len(arrays))


def _stack_gradient(context: Context, gradient: Array) -> Parts:
    axis, count = context.saved
    before = (slice(None),) * axis
    return tuple(
        np.asarray(gradient[(*before, i)]) if needed else None
        for i, needed in zip(range(count), context.needs, strict=True)
    )


_STACK = Op("stack", _stack, _stack_gradient)


def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Join tensors of one shape along a new axis. Gradients: the parts of G.

    >>> stack([Tensor([1.0, 2.0]), Tensor([3.0, 4.0])], 1).data
    array([[1., 3.],
           [2., 4.]], dtype=float32)
    """
    shapes = _shapes("stack", tensors)
    place = axis_of("stack", axis, len(shapes[0]) + 1, shapes[0])
    if len(set(shapes)) > 1:
        raise ValueError(f"stack of shapes {_listed(shapes)}: all must be equal; reshape, pad or concatenate")
    return run(_STACK, *tensors, axis=place)


def _shapes(name: str, tensors: Sequence[Tensor]) -> list[tuple[int, ...]]:
    if isinstance(tensors, Tensor) or not tensors:
        raise ValueError(
            f"{name} of {'one tensor' if len(tensors) else 'no tensors'}: pass a list of tensors"
        )
    for tensor in tensors:
        need_tensor(tensor)
    return [tensor.shape for tensor in tensors]


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


def _listed(shapes: Sequence[tuple[int, ...]]) -> str:
    return " and ".join(str(shape) for shape in dict.fromkeys(shapes))


# ---------------------------------------------------------------------------------------------------- pad


def _pad(
    arithmetic: Arithmetic, a: Array, widths: tuple[tuple[int, int], ...], value: float
) -> tuple[Array, Saved]:
    inside = tuple(slice(before, before + n) for (before, _), n in zip(widths, a.shape, strict=True))
    shape = tuple(before + n + after for (before, after), n in zip(widths, a.shape, strict=True))
    result = np.full(shape, arithmetic.constant(value, a))
    result[inside] = a
    return result, (inside,)


def _pad_gradient(context: Context, gradient: Array) -> Parts:
    return (gradient[context.saved[0]],)


_PAD = Op("pad", _pad, _pad_gradient)


def pad(a: Tensor, widths: Sequence[Sequence[int]], value: float = 0.0) -> Tensor:
    """Put constants around: (before, after) for each axis, as ``np.pad`` has them. Gradient: the part inside.

    The value is rounded to the dtype.

    >>> pad(Tensor([1.0, 2.0]), [(1, 2)]).data
    array([0., 1., 2., 0., 0.], dtype=float32)
    """
    need_tensor(a)
    pairs = tuple(tuple(int(n) for n in pair) for pair in widths)
    if len(pairs) != a.ndim or any(len(pair) != 2 or min(pair) < 0 for pair in pairs):
        raise ValueError(
            f"pad of a tensor of shape {a.shape} by {widths}: pass (before, after), neither negative, for each of its "
            f"{a.ndim} axes"
        )
    if not is_number(value):
        raise TypeError(f"pad with a {type(value).__name__}: pass a number")
    return run(_PAD, a, widths=pairs, value=float(value))
