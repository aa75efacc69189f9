"""Ctrl-C between two steps instead of in the middle of one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["deferred_interrupt"]


@contextmanager
def deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Take note of the first Ctrl-C inside a ``with`` block; a second one interrupts at once, as usual.

    Gives a function that says whether there was one. Outside of the main thread, where no signal arrives, and where
    Ctrl-C is ignored, nothing changes.

    >>> with deferred_interrupt() as interrupted:
    ...     interrupted()
    False
    """
    noted = False
    before = signal.getsignal(signal.SIGINT)

    def note(*_: Any) -> None:
        nonlocal noted
        noted = True
        signal.signal(signal.SIGINT, before)

    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield lambda: False
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: noted
    finally:
        signal.signal(signal.SIGINT, before)
