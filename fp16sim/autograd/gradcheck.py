"""Compare gradients with differences of the function, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import fsum

import numpy as np

from fp16sim.autograd.arithmetic import FLOAT64, Array
from fp16sim.autograd.backward import gradients
from fp16sim.autograd.tensor import Tensor, need_tensor, no_grad

__all__ = ["gradcheck"]

_GOLDEN = 0.6180339887498949


def gradcheck(
    function: Callable[..., Tensor],
    inputs: Sequence[Tensor],
    *,
    step: float = 1e-6,
    rtol: float = 1e-6,
    atol: float = 1e-8,
) -> None:
    """Check the gradient of a function with respect to every element of its inputs.

    Parameters
    ----------
    function : callable
        Called as ``function(*inputs)``; gives a tensor of any shape. It may also read the inputs elsewhere: the
        parameters of a layer, say. Two calls must compute the same thing.
    inputs : sequence of Tensor
        Leaves in float64 with ``requires_grad=True``, away from points where the function has a kink or a jump.
    step : float
        An element x moves by ``step * max(1, |x|)`` to either side.
    rtol, atol : float
        A gradient may differ from its difference quotient by ``atol + rtol * |quotient|``. Central differences with
        the default step err by about 1e-10 times the values and 1e-12 times the third derivatives.

    Raises
    ------
    AssertionError
        If a gradient is missing or wrong, naming the worst element; if the gradient of an input alone differs in a
        bit from the one that is computed along with the others.
    TypeError, ValueError
        If an input is no float64 leaf with gradient, or the result is not float64.

    Notes
    -----
    The result is weighted with fixed numbers from (-1.5, -.5) and (.5, 1.5), no two alike, so that errors in different
    elements do not cancel. All gradients come from one backward pass; each element costs two calls.

    Examples
    --------
    >>> x = Tensor(np.array([1.0, 2.0]), requires_grad=True)
    >>> gradcheck(lambda x: x * x + 3.0, [x])
    """
    for position, x in enumerate(inputs):
        need_tensor(x)
        if x.dtype != FLOAT64 or not x.requires_grad or not x.is_leaf:
            raise ValueError(
                f"input {position} of gradcheck is {x!r}: pass float64 leaves, such as "
                "Tensor(np.float64(array), requires_grad=True)"
            )
    result = function(*inputs)
    need_tensor(result)
    if result.dtype != FLOAT64:
        raise ValueError(
            f"gradcheck of a {result.dtype} result: differences need float64; cast nothing narrower"
        )
    weights = _weights(result.shape)
    found = gradients(result, inputs, weights)
    for position, (x, gradient) in enumerate(zip(inputs, found, strict=True)):
        if gradient is None:
            raise AssertionError(f"the result does not depend on input {position} of shape {x.shape}")
        if gradient.shape != x.shape or gradient.dtype != x.dtype:
            raise AssertionError(
                f"the gradient of input {position} is {gradient.dtype} of shape {gradient.shape}, the input "
                f"{x.dtype} of shape {x.shape}"
            )
        alone = gradients(result, [x], weights)[0]
        if alone is None or alone.tobytes() != gradient.tobytes():
            raise AssertionError(
                f"the gradient of input {position} changes when it is the only one that is wanted"
            )
    for position, (x, gradient) in enumerate(zip(inputs, found, strict=True)):
        if gradient is not None:
            _compare(position, gradient, _quotients(function, inputs, x, weights, step), rtol, atol)


def _weights(shape: tuple[int, ...]) -> Array:
    count = int(np.prod(shape, dtype=np.int64))
    values = [(0.5 + (i + 1) * _GOLDEN % 1.0) * (-1.0) ** (i // 2) for i in range(count)]
    return np.array(values, np.float64).reshape(shape)


def _quotients(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], x: Tensor, weights: Array, step: float
) -> Array:
    """Move each element of `x` to either side and give the weighted differences of the result over the way."""
    original = x.numpy()
    quotients = np.empty_like(original)
    try:
        for index in np.ndindex(original.shape):
            width = step * max(1.0, abs(float(original[index])))
            places, values = [], []
            for sign in (1.0, -1.0):
                moved = original.copy()
                moved[index] += sign * width
                places.append(float(moved[index]))
                x.data = moved
                with no_grad():
                    values.append(function(*inputs).numpy())
            terms = weights * (values[0] - values[1])
            quotients[index] = fsum(terms.reshape(-1).tolist()) / (places[0] - places[1])
    finally:
        x.data = original
    return quotients


def _compare(position: int, gradient: Array, quotients: Array, rtol: float, atol: float) -> None:
    with np.errstate(invalid="ignore"):
        excess = np.abs(gradient - quotients) - (atol + rtol * np.abs(quotients))
    excess = np.where(np.isnan(excess), np.inf, excess)
    if excess.size and excess.max() > 0:
        worst = np.unravel_index(int(np.argmax(excess)), excess.shape)
        index = tuple(int(i) for i in worst)
        raise AssertionError(
            f"the gradient of input {position} at {index} is {float(gradient[worst])!r}, the difference quotient "
            f"{float(quotients[worst])!r}: {np.count_nonzero(excess > 0)} of {excess.size} elements differ"
        )
