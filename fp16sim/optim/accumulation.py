"""Gradients of several small batches, added up before a step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fp16sim.autograd.arithmetic import Arithmetic, Array

__all__ = ["accumulate"]


def accumulate(total: Sequence[Array | None] | None, gradients: Sequence[Array | None]) -> list[Array | None]:
    """Add the gradients of a small batch to those of the ones before.

    Parameters
    ----------
    total : sequence of arrays or None
        What the call for the batch before gave; None for the first one.
    gradients : sequence of arrays or None
        One for each parameter; None adds nothing.

    Returns
    -------
    list of arrays or None
        Each sum rounded to the format of the gradient. For the mean over the batches, the loss of each is divided by
        their number before it is scaled.

    Notes
    -----
    All of a window carry the same loss scale: a sum of gradients of different scales has no scale to be divided by. So
    a scaler is updated once, after the last batch, with the sums.

    Raises
    ------
    ValueError
        If the number of gradients, a shape or a format differs from that of the sums.

    Examples
    --------
    >>> total = accumulate(None, [np.float16([2048.0]), None])
    >>> accumulate(total, [np.float16([1.0]), np.float16([1.0])])
    [array([2.048e+03], dtype=float16), array([1.], dtype=float16)]
    """
    if total is None:
        return list(gradients)
    if len(total) != len(gradients):
        raise ValueError(
            f"{len(gradients)} gradients after {len(total)} of the batch before: pass one for each parameter, or None"
        )
    sums: list[Array | None] = []
    with np.errstate(all="ignore"):
        for position, (before, gradient) in enumerate(zip(total, gradients, strict=True)):
            if before is None or gradient is None:
                sums.append(gradient if before is None else before)
                continue
            if before.shape != gradient.shape or before.dtype != gradient.dtype:
                raise ValueError(
                    f"gradient {position} is {gradient.dtype} of shape {gradient.shape}, and the sum so far "
                    f"{before.dtype} of shape {before.shape}: pass gradients of one model, in one format"
                )
            sums.append(Arithmetic().add(before, gradient))
    return sums
