"""How frameworks look for an overflow where it is not element by element on the scaled gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from fp16sim.autograd.arithmetic import Arithmetic, Array, round_array
from fp16sim.autograd.tensor import Tensor
from fp16sim.scaling.protocol import Decision, Observation, unscale

__all__ = ["in_float32", "observe_sums", "observe_unscaled"]


def observe_sums(gradients: Sequence[Array | None], scale: float) -> Observation:
    """Test the float32 sum of each scaled gradient, as ``float(gradient.float().sum())`` does.

    An infinity or NaN among the elements always shows; finite elements whose sum overflows are flagged as well. The
    sum is taken in the order of the elements, each partial sum rounded to float32; the framework's order is its own,
    which matters only within a rounding of overflow. `amax` is that of the elements.

    >>> observe_sums([np.float32([3e38, 3e38])], 1.0).overflow
    True
    """
    r, overflow = Arithmetic(), False
    for gradient in gradients:
        if gradient is not None and gradient.size:
            with np.errstate(all="ignore"):
                total = float(r.sum(round_array(gradient, np.float32).reshape(-1)))
            overflow = overflow or not math.isfinite(total)
    amax, nan = _peak(gradients)
    return Observation(overflow=overflow, nan=nan, amax=_over(amax, scale))


def observe_unscaled(gradients: Sequence[Array | None], decision: Decision) -> Observation:
    """Test every element of the gradients after they are unscaled as `decision` says, which may itself overflow.

    Parameters
    ----------
    gradients : sequence of array or None
        Scaled.
    decision : Decision
        With one scale.

    Returns
    -------
    Observation
        `amax` is the largest scaled magnitude divided by the scale, in float64.

    Examples
    --------
    >>> observe_unscaled([np.float32([1.0])], Decision(True, 2.0**-128)).overflow
    True
    """
    unscaled = [None if gradient is None else unscale(gradient, decision) for gradient in gradients]
    largest, nan = _peak(unscaled)
    scale = decision.divide_by
    amax = math.inf if isinstance(scale, Mapping) else _over(_peak(gradients)[0], scale)
    return Observation(overflow=math.isinf(largest), nan=nan, amax=amax)


def in_float32(loss: Tensor, scale: float) -> Tensor:
    """Multiply a loss by the scale in float32 (in float64 if that is its format).

    >>> in_float32(Tensor(np.float16(1)), 65536.0).item()
    65536.0
    """
    wide = loss if loss.dtype == np.float64 else loss.cast("float32")
    scaled: Tensor = wide * scale
    return scaled


def _peak(gradients: Sequence[Array | None]) -> tuple[float, bool]:
    """Give the largest magnitude, infinite if any element is NaN, and whether one is."""
    largest, nan = 0.0, False
    for gradient in gradients:
        if gradient is not None and gradient.size:
            peak = float(np.max(np.abs(gradient)))
            nan = nan or math.isnan(peak)
            largest = max(largest, math.inf if math.isnan(peak) else peak)
    return largest, nan


def _over(largest: float, scale: float) -> float:
    return largest / scale if scale else math.inf
