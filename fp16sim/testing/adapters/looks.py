"""What an object looks like, what it is made of, and what its errors mean."""

from __future__ import annotations

import re
import sys
from types import ModuleType
from typing import Any

from fp16sim.testing.driver import Refusal

__all__ = ["CRASHES", "has_methods", "is_refusal", "made_of", "stop_of", "worded"]

CRASHES: tuple[type[Exception], ...] = (
    ZeroDivisionError,
    OverflowError,
    TypeError,
    AttributeError,
    LookupError,
    NameError,
    AssertionError,
    ImportError,
    NotImplementedError,
    RecursionError,
    MemoryError,
)
"""Errors that nobody raises to say that training cannot go on."""


def has_methods(scaler: Any, *names: str) -> bool:
    """Whether all of these are methods.

    >>> has_methods([], "append", "pop"), has_methods([], "__doc__")
    (True, False)
    """
    return all(callable(getattr(scaler, name, None)) for name in names)


def made_of(scaler: Any, package: str) -> bool:
    """Whether a class of the object is of that package, or of a module that imported something of it.

    >>> import numpy as np
    >>> made_of(np.zeros(1), "numpy"), made_of([], "numpy")
    (True, False)
    """
    for kind in type(scaler).__mro__:
        if _root(kind.__module__) == package:
            return True
        module = sys.modules.get(kind.__module__)
        names = list(vars(module).values()) if module is not None and kind is not object else []
        if any(_package(value) == package for value in names):
            return True
    return False


def is_refusal(error: Exception) -> bool:
    """Whether an error, in a call out of order, is one that refuses the call, as torch's assertions do.

    >>> is_refusal(AssertionError("No inf checks were recorded")), is_refusal(KeyError("all"))
    (True, False)
    """
    clear = (Refusal, RuntimeError, AssertionError, ValueError)
    return isinstance(error, clear) and not isinstance(error, (RecursionError, NotImplementedError))


def worded(error: Exception) -> str:
    """Give the text of an error in one line, without codes of a terminal.

    >>> worded(ValueError("\x1b[1mNo gradients\x1b[0m\\n"))
    'No gradients'
    """
    return " ".join(re.sub("\x1b\\[[0-9;]*m", "", str(error)).split()) or type(error).__name__


def stop_of(error: Exception, overflow: bool) -> str:
    """Give the reason to stop training that an error of a scaler is; raise any other again.

    Parameters
    ----------
    error : Exception
    overflow : bool
        Whether the step had an overflow. On a finite step no error is a reason to stop.

    Examples
    --------
    >>> stop_of(RuntimeError("Minimum loss scale reached"), overflow=True)
    'Minimum loss scale reached'
    >>> stop_of(ZeroDivisionError("float division by zero"), overflow=True)
    Traceback (most recent call last):
        ...
    ZeroDivisionError: float division by zero
    """
    if not overflow or isinstance(error, CRASHES):
        raise error
    return worded(error)


def _package(value: Any) -> str:
    if isinstance(value, ModuleType):
        return _root(value.__name__)
    module = getattr(value, "__module__", None) if isinstance(value, type) or callable(value) else None
    return _root(module) if isinstance(module, str) else ""


def _root(module: str) -> str:
    return module.partition(".")[0]
