"""Products of matrices: accumulated as the policy says, forward by `matmul` and backward by `gradients`."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from fp16sim.autograd.arithmetic import Arithmetic, Array
from fp16sim.autograd.operation import Op, converted, run
from fp16sim.autograd.ops.elementwise import add
from fp16sim.autograd.policy import current_scope
from fp16sim.autograd.tensor import Context, Tensor, need_tensor

__all__ = ["linear", "matmul"]

Saved = tuple[Any, ...]
Parts = tuple[Array | None, ...]


def _matmul(arithmetic: Arithmetic, a: Array, b: Array) -> tuple[Array, Saved]:
    return arithmetic.matmul(a, b), (a, b)


def _matmul_gradient(context: Context, gradient: Array) -> Parts:
    a, b = context.saved
    arithmetic = context.arithmetic
    return (
        arithmetic.sum_to(arithmetic.matmul(gradient, _swapped(b)), a.shape) if context.needs[0] else None,
        arithmetic.sum_to(arithmetic.matmul(_swapped(a), gradient), b.shape) if context.needs[1] else None,
    )


_MATMUL = Op("matmul", _matmul, _matmul_gradient)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """Multiply matrices (..., m, k) and (..., k, n), whose leading axes broadcast; the result is rounded once.

    Gradients: G b^T, with its sum over n, and a^T G, with its sum over m; accumulated and rounded alike, then summed
    over axes that broadcast.

    >>> matmul(Tensor([[1.0, 2.0]]), Tensor([[3.0], [4.0]])).data
    array([[11.]], dtype=float32)
    """
    need_same_dtype("matmul", a, b)
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2] or not _broadcast(a.shape[:-2], b.shape[:-2]):
        raise ValueError(
            f"matmul of shapes {a.shape} and {b.shape}: it takes (..., m, k) and (..., k, n); reshape first"
        )
    return run(_MATMUL, a, b)


def _linear(arithmetic: Arithmetic, x: Array, weight: Array) -> tuple[Array, Saved]:
    rows = x.reshape(prod(x.shape[:-1]), x.shape[-1])
    return arithmetic.matmul(rows, weight.T).reshape(*x.shape[:-1], len(weight)), (x, weight)


def _linear_gradient(context: Context, gradient: Array) -> Parts:
    x, weight = context.saved
    rows = gradient.reshape(prod(gradient.shape[:-1]), gradient.shape[-1])
    first = context.arithmetic.matmul(rows, weight).reshape(x.shape) if context.needs[0] else None
    second = None
    if context.needs[1]:
        second = context.arithmetic.matmul(rows.T, x.reshape(len(rows), x.shape[-1]))
    return first, second


_LINEAR = Op("linear", _linear, _linear_gradient)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute ``x W^T + b`` for x (..., inputs), W (outputs, inputs) and b (outputs,).

    The product is rounded once, and so is its sum with the bias. Gradients: G W, with its sum over the outputs; G^T x,
    with its sum over the examples in C order; that of the bias is the sum of G over the examples.

    >>> linear(Tensor([[1.0, 2.0]]), Tensor([[3.0, 4.0]]), Tensor([0.5])).data
    array([[11.5]], dtype=float32)
    """
    need_same_dtype("linear", x, weight)
    if x.ndim < 1 or weight.ndim != 2 or x.shape[-1] != weight.shape[1]:
        raise ValueError(
            f"linear of an input of shape {x.shape} and a weight of shape {weight.shape}: pass (..., inputs) and "
            "(outputs, inputs)"
        )
    if bias is not None:
        need_tensor(bias)
        if bias.shape != weight.shape[:1]:
            raise ValueError(
                f"linear with a bias of shape {bias.shape} and a weight of shape {weight.shape}: pass one of shape "
                f"{weight.shape[:1]}"
            )
    product = run(_LINEAR, x, weight)
    return product if bias is None else add(product, converted(bias, product.dtype))


def _swapped(a: Array) -> Array:
    return np.swapaxes(a, -1, -2)


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(reversed(a), reversed(b), strict=False))


def need_same_dtype(name: str, a: Tensor, b: Tensor) -> None:
    """Refuse two formats where no policy converts them."""
    for operand in (a, b):
        need_tensor(operand)
    if a.dtype != b.dtype and not current_scope().active:
        raise TypeError(
            f"{name} of {a.dtype} and {b.dtype}: a product has one format; convert one, such as x.cast('float32'), or "
            "compute inside `with fs.autocast(policy)`"
        )
