"""Overflow looked for in the norm of the gradients, as frameworks do that compute the norm anyway."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fp16sim.autograd.arithmetic import Arithmetic, Array, round_array
from fp16sim.scaling.protocol import Observation

__all__ = ["float32_norm", "observe_norm"]


def float32_norm(gradients: Sequence[Array | None]) -> np.float32:
    """Give the Euclidean norm of all elements in float32.

    Parameters
    ----------
    gradients : sequence of arrays or None
        Each element is rounded to float32 first; arrays in their order, elements in C order.

    Returns
    -------
    float32
        sqrt(sum of g * g), each product, each partial sum and the root rounded. Infinite from a norm of about 1.8e19
        on, although every element may be finite. The order of the sum is the framework's own business, which matters
        only within a few roundings of overflow.

    Examples
    --------
    >>> float32_norm([np.float16([3.0, 4.0]), None]), float32_norm([np.float32([2e19])])
    (np.float32(5.0), np.float32(inf))
    """
    flat, r = _flat(gradients), Arithmetic()
    with np.errstate(all="ignore"):
        return np.float32(r.sqrt(r.sum(r.multiply(flat, flat))))


def observe_norm(gradients: Sequence[Array | None], norm: float, scale: float) -> Observation:
    """Report an overflow if a norm is infinite or NaN.

    Parameters
    ----------
    gradients : sequence of arrays or None
        Scaled. `nan` and `amax` of the observation are of their elements.
    norm : float
        What the framework tests.
    scale : float
        Divides the largest magnitude, in float64.

    Examples
    --------
    >>> found = observe_norm([np.float32([8.0])], math.inf, 2.0)
    >>> found.overflow, found.amax
    (True, 4.0)
    """
    peak = float(np.max(np.abs(_flat(gradients)), initial=0.0))  # NaN if any element is
    nan = math.isnan(peak)
    amax = math.inf if nan or not scale else peak / scale
    return Observation(overflow=not math.isfinite(norm), nan=nan, amax=amax)


def _flat(gradients: Sequence[Array | None]) -> npt.NDArray[np.float32]:
    parts = [round_array(gradient, np.float32).reshape(-1) for gradient in gradients if gradient is not None]
    return np.concatenate([np.zeros(0, np.float32), *parts])
