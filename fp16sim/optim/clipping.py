"""Limits for gradients, once the loss scale is divided out of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fp16sim.autograd.arithmetic import Arithmetic, Array, round_array, widest
from fp16sim.autograd.tensor import Tensor

__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value", "clip_grad_value_"]


def clip_grad_norm(
    gradients: Sequence[Array | None],
    max_norm: float,
    *,
    arithmetic: Arithmetic | None = None,
    error_if_nonfinite: bool = False,
) -> tuple[list[Array | None], float]:
    """Shrink all gradients by one factor, so that their common norm is `max_norm` at most.

    Parameters
    ----------
    gradients : sequence of arrays or None
        Of float16, bfloat16, float32 or float64, loss scale divided out.
    max_norm : float
        Above 0; infinity only measures.
    arithmetic : Arithmetic, optional
        Whose `reductions` say how sums accumulate, such as ``policy.backward``. Default: in float32 at least.
    error_if_nonfinite : bool
        Whether a norm that is infinite or NaN is an error.

    Returns
    -------
    clipped : list of arrays or None
        New arrays; those given, if there was nothing to shrink.
    norm : float
        Before clipping.

    Notes
    -----
    In the widest format among the gradients, R(.) being a rounding to it and R'(.) one to the format of g::

        q_i   <- R(sum of R(g g))            over the elements of gradient i, in C order
        norm  <- R(sqrt(R(sum of q_i)))      over the gradients, in their order
        c     <- R(R(max_norm) / R(norm + R(1e-6)))
        g     <- R'(R'(c) g)                 where c < 1 or c is NaN

    If float16 overflows in the norm it is infinite (a 3x3 gradient of 100 has norm 300), c is 0, finite gradients
    become 0 and infinite ones NaN (pytorch#46849). Source: torch 2.13, `torch.nn.utils.clip_grad_norm_`, which takes
    the norm of the gradients' norms.

    Raises
    ------
    ValueError
        If `max_norm` is not above 0.
    FloatingPointError
        If the norm is not finite and that is to be an error.

    Examples
    --------
    >>> clip_grad_norm([np.float32([3.0, 4.0]), None], 1.0)
    ([array([0.5999999 , 0.79999983], dtype=float32), None], 5.0)
    """
    _check_limit("max_norm", max_norm)
    given = _arrays(gradients)
    if all(g is None for g in given):
        return given, 0.0
    r = arithmetic or Arithmetic()
    with np.errstate(all="ignore"):
        norm = _norm(r, [g for g in given if g is not None])
        if error_if_nonfinite and not np.isfinite(norm):
            raise FloatingPointError(
                f"the norm of the gradients is {float(norm)}, by which nothing can be clipped: skip the step, compute "
                "the norm in a wider format, or pass error_if_nonfinite=False"
            )
        c = r.divide(r.constant(max_norm, norm), r.add(norm, r.constant(1e-6, norm)))
        if not c >= 1:
            given = [None if g is None else r.multiply(g, round_array(c, g.dtype)) for g in given]
    return given, float(norm)


def clip_grad_norm_(
    parameters: Sequence[Tensor],
    max_norm: float,
    *,
    arithmetic: Arithmetic | None = None,
    error_if_nonfinite: bool = False,
) -> float:
    """Apply :func:`clip_grad_norm` to the `grad` of parameters, and give the norm before.

    >>> weight = Tensor([1.0], requires_grad=True)
    >>> weight.grad = np.float32([2.0])
    >>> clip_grad_norm_([weight], 1.0), weight.grad
    (2.0, array([0.9999995], dtype=float32))
    """
    clipped, norm = clip_grad_norm(
        _grads(parameters),
        max_norm,
        arithmetic=arithmetic,
        error_if_nonfinite=error_if_nonfinite,
    )
    _assign(parameters, clipped)
    return norm


def clip_grad_value(gradients: Sequence[Array | None], value: float) -> list[Array | None]:
    """Limit every element to [-value, value].

    Parameters
    ----------
    gradients : sequence of arrays or None
        Loss scale divided out.
    value : float
        Above 0, rounded to the format of each gradient once. Otherwise nothing is rounded; NaN stays.

    Examples
    --------
    >>> clip_grad_value([np.float16([-2.0, 0.25, np.inf])], 0.5)
    [array([-0.5 ,  0.25,  0.5 ], dtype=float16)]
    """
    _check_limit("value", value)
    clipped: list[Array | None] = []
    for g in _arrays(gradients):
        if g is not None:
            limit = Arithmetic().constant(value, g)
            g = np.where(g > limit, limit, np.where(g < -limit, -limit, g))
        clipped.append(g)
    return clipped


def clip_grad_value_(parameters: Sequence[Tensor], value: float) -> None:
    """Apply :func:`clip_grad_value` to the `grad` of parameters.

    >>> weight = Tensor([1.0], requires_grad=True)
    >>> weight.grad = np.float32([2.0])
    >>> clip_grad_value_([weight], 0.5)
    >>> weight.grad
    array([0.5], dtype=float32)
    """
    _assign(parameters, clip_grad_value(_grads(parameters), value))


def _check_limit(name: str, value: Any) -> None:
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not (number and value > 0):
        raise ValueError(f"{name}={value!r}: a limit of gradients is a number above 0; pass such as 1.0")


def _norm(arithmetic: Arithmetic, gradients: Sequence[Array]) -> Array:
    dtype = widest([g.dtype for g in gradients]) or np.dtype(np.float32)
    sums = []
    for gradient in gradients:
        g = round_array(gradient, dtype)
        sums.append(arithmetic.sum(arithmetic.multiply(g, g)))
    return arithmetic.sqrt(arithmetic.sum(np.stack(sums)))


def _arrays(gradients: Sequence[Array | None]) -> list[Array | None]:
    given: list[Array | None] = []
    for position, gradient in enumerate(gradients):
        array: Any = gradient
        if array is not None and not isinstance(array, np.ndarray):
            raise TypeError(
                f"gradient {position} is a {type(array).__name__}: pass arrays; for parameters there are "
                "clip_grad_norm_ and clip_grad_value_"
            )
        given.append(array)
    return given


def _grads(parameters: Sequence[Tensor]) -> list[Array | None]:
    if isinstance(parameters, Tensor) or not all(isinstance(parameter, Tensor) for parameter in parameters):
        raise TypeError("clipping in place takes a list of parameters: pass model.parameters(), or [tensor]")
    return [parameter.grad for parameter in parameters]


def _assign(parameters: Sequence[Tensor], gradients: Sequence[Array | None]) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
