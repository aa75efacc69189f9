"""Drivers of scalers as other frameworks have them, and the choice between them by what an object looks like.

Nothing of the frameworks is imported here: an object of one brings its own, and look-alikes need none.
"""

from __future__ import annotations

from typing import Any

from fp16sim.testing.driver import ONE_GROUP, Driver
from fp16sim.testing.values import ValueDriver

__all__ = ["adapt"]


def adapt(scaler: Any, groups: tuple[str, ...] = ONE_GROUP) -> Driver:
    """Give a driver of a scaler, chosen by the methods that it has.

    Parameters
    ----------
    scaler : object
        One of this package's protocol (`scale`, and `update` that takes an observation), or a driver already.
    groups : tuple of str
        Names of the optimizers, ranks or layers that share it.

    Raises
    ------
    TypeError
        If it looks like none of these.
    """
    if isinstance(scaler, Driver):
        return scaler
    if hasattr(scaler, "scale") and hasattr(scaler, "update") and not callable(scaler.scale):
        return ValueDriver(scaler, groups)
    raise TypeError(
        f"a {type(scaler).__name__} is no scaler: pass a factory of objects with `scale` and `update`"
    )
