"""Attention: which keys a query sees, and the products around the softmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.autograd.arithmetic import DTYPES, Arithmetic, Array, format_of, keep, round_array
from fp16sim.autograd.operation import Op, run
from fp16sim.autograd.ops.activations import softmax
from fp16sim.autograd.ops.elementwise import add, multiply
from fp16sim.autograd.ops.products import matmul, need_same_dtype
from fp16sim.autograd.ops.shapes import transpose
from fp16sim.autograd.tensor import Context, Tensor, need_tensor

__all__ = ["attention", "mask_scores", "merge_heads", "split_heads"]

Saved = tuple[Any, ...]
Parts = tuple[Array | None, ...]


# ---------------------------------------------------------------------------------------------------- heads


def _split_heads(arithmetic: Arithmetic, x: Array, heads: int, part: int, parts: int) -> tuple[Array, Saved]:
    batch, length, width = x.shape
    places = x.reshape(batch, length, parts, heads, width // parts // heads)
    return np.ascontiguousarray(places[:, :, part].transpose(0, 2, 1, 3)), (x.shape, part, parts)


def _split_heads_gradient(context: Context, gradient: Array) -> Parts:
    shape, part, parts = context.saved
    heads, width = gradient.shape[1], gradient.shape[3]
    result = (np.empty if parts == 1 else np.zeros)((*shape[:2], parts, heads, width), gradient.dtype)
    result[:, :, part] = gradient.transpose(0, 2, 1, 3)
    return (result.reshape(shape),)


_SPLIT_HEADS = Op("split_heads", _split_heads, _split_heads_gradient)


def split_heads(x: Tensor, heads: int, part: int = 0, parts: int = 1) -> Tensor:
    """Turn (batch, length, parts * heads * d), of which one part is taken, into (batch, heads, length, d).

    Nothing is rounded. Gradient: back in its place, +0 in the other parts.

    >>> split_heads(Tensor(np.zeros((2, 5, 12))), heads=2, part=1, parts=3).shape
    (2, 2, 5, 2)
    """
    need_tensor(x)
    if x.ndim != 3 or x.shape[2] % (heads * parts) or not 0 <= part < parts:
        raise ValueError(
            f"part {part} of {parts} of shape {x.shape} in {heads} heads: pass (batch, length, parts * heads * d)"
        )
    return run(_SPLIT_HEADS, x, heads=heads, part=part, parts=parts)


def _merge_heads(arithmetic: Arithmetic, x: Array) -> tuple[Array, Saved]:
    batch, heads, length, width = x.shape
    return np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(batch, length, heads * width), (x.shape,)


def _merge_heads_gradient(context: Context, gradient: Array) -> Parts:
    batch, heads, length, width = context.saved[0]
    return (np.ascontiguousarray(gradient.reshape(batch, length, heads, width).transpose(0, 2, 1, 3)),)


_MERGE_HEADS = Op("merge_heads", _merge_heads, _merge_heads_gradient)


def merge_heads(x: Tensor) -> Tensor:
    """Turn (batch, heads, length, d) into (batch, length, heads * d); nothing is rounded.

    >>> merge_heads(Tensor(np.zeros((2, 3, 5, 4)))).shape
    (2, 5, 12)
    """
    need_tensor(x)
    if x.ndim != 4:
        raise ValueError(f"heads of shape {x.shape}: pass (batch, heads, length, d)")
    return run(_MERGE_HEADS, x)


# ---------------------------------------------------------------------------------------------------- masks


def _mask_scores(arithmetic: Arithmetic, scores: Array, mask: Array) -> tuple[Array, Saved]:
    uint = format_of(scores.dtype).uint
    infinite = np.asarray(-np.inf, scores.dtype).view(uint)
    # Encodings: those of visible scores, or that of -inf.
    bits = keep(scores, mask).view(uint) | np.where(mask, np.zeros((), uint), infinite)
    return bits.view(scores.dtype), (mask,)


def _mask_scores_gradient(context: Context, gradient: Array) -> Parts:
    return (keep(gradient, context.saved[0]),)


_MASK_SCORES = Op("mask_scores", _mask_scores, _mask_scores_gradient)


def mask_scores(scores: Tensor, mask: npt.NDArray[np.bool_]) -> Tensor:
    """Put -inf where the mask, which broadcasts to the scores, is False: exact, unlike adding a large number.

    Gradient: +0 there, that of the result elsewhere.

    >>> mask_scores(Tensor([1.0, 2.0]), np.array([True, False])).data
    array([  1., -inf], dtype=float32)
    """
    need_tensor(scores)
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
        found = mask.dtype if isinstance(mask, np.ndarray) else type(mask).__name__
        raise TypeError(f"a mask of {found}: pass a bool array, True where a query may see a key")
    _check_broadcast(mask.shape, scores.shape)
    return run(_MASK_SCORES, scores, mask=mask)


def _check_broadcast(mask: tuple[int, ...], scores: tuple[int, ...]) -> None:
    aligned = zip(reversed(mask), reversed(scores), strict=False)
    if len(mask) > len(scores) or any(m not in (1, n) for m, n in aligned):
        raise ValueError(
            f"a mask of shape {mask} for scores of shape {scores} (batch, heads, queries, keys): pass one that "
            "broadcasts to it, such as padding[:, None, None, :]"
        )


# ---------------------------------------------------------------------------------------------------- attention


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: npt.ArrayLike | None = None,
    causal: bool = False,
    scale_scores_after: bool = False,
    drop: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Scaled dot-product attention: softmax(q k^T / sqrt(d)) v.

    Parameters
    ----------
    query : Tensor, shape (batch, heads, queries, d)
    key, value : Tensor, shape (batch, heads, keys, d)
    mask : array, optional
        Broadcasts to (batch, heads, queries, keys). Bool: True where a query may see a key; the others have the score
        -inf exactly. Floating point: added to the scores, rounded to their format first (-1e9 becomes -inf in float16).
    causal : bool
        Let query i see keys 0 to i only.
    scale_scores_after : bool
        Multiply the scores instead of the queries: in float16 they may overflow before (d = 64, q = k = 32: inf).
    drop : callable, optional
        Applied to the attention weights: dropout.

    Returns
    -------
    Tensor, shape (batch, heads, queries, d)

    Notes
    -----
    Operations in their order, each with its roundings and its policy: :func:`multiply` of the query by 1/sqrt(d), which
    is rounded to the format; :func:`matmul` with the transposed key; :func:`add` of a floating-point mask;
    :func:`mask_scores`; :func:`softmax` over the keys (torch's autocast: in float32); `drop`; :func:`matmul` with the
    value. A query that may see no key gives NaN, as in torch.

    Source: Vaswani et al., arXiv 1706.03762, equation 1; torch 2.13, ``scaled_dot_product_attention``.

    >>> x = Tensor(np.ones((1, 1, 3, 4), np.float32))
    >>> attention(x, x, x, causal=True).data[0, 0, 0]
    array([1., 1., 1., 1.], dtype=float32)
    """
    need_same_dtype("attention", query, key)
    need_same_dtype("attention", key, value)
    shapes = f"query {query.shape}, key {key.shape} and value {value.shape}"
    if any(x.ndim != 4 for x in (query, key, value)) or key.shape[:3] != value.shape[:3]:
        raise ValueError(
            f"attention of {shapes}: pass (batch, heads, length, d), keys and values of one length"
        )
    if query.shape[:2] != key.shape[:2] or query.shape[3] != key.shape[3]:
        raise ValueError(f"attention of {shapes}: batch, heads and d of query and key must be the same")
    scale = 1.0 / math.sqrt(query.shape[3])
    turned = transpose(key, (0, 1, 3, 2))
    if scale_scores_after:
        scores = multiply(matmul(query, turned), scale)
    else:
        scores = matmul(multiply(query, scale), turned)
    scores = _masked(scores, mask, causal)
    weights = softmax(scores, -1)
    return matmul(weights if drop is None else drop(weights), value)


def _masked(scores: Tensor, mask: npt.ArrayLike | None, causal: bool) -> Tensor:
    visible = np.tri(*scores.shape[2:], dtype=np.bool_) if causal else None
    if mask is not None:
        array = np.asarray(mask.data if isinstance(mask, Tensor) else mask)
        if array.dtype == np.bool_:
            _check_broadcast(array.shape, scores.shape)
            visible = array if visible is None else array & visible
        elif array.dtype not in DTYPES.values() and array.dtype.kind != "f":
            raise TypeError(
                f"a mask of {array.dtype}: pass mask.astype(bool), True where a query may see a key, or a float array "
                "to add"
            )
        else:
            _check_broadcast(array.shape, scores.shape)
            if np.isnan(array).any():
                raise ValueError("a mask with NaN: pass 0 where a query may see a key, -inf where not")
            scores = add(scores, Tensor(round_array(array, scores.dtype)))
    return scores if visible is None else mask_scores(scores, visible)
