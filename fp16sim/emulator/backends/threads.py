"""The threads that kernels run on: how many, and one pool for all operations.

Work is divided over elements of a result, never over the terms of one, so every number of threads gives the same
bits.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

__all__ = ["run", "set_threads", "threads"]

T = TypeVar("T")


def _processors() -> int:
    """Count the processors that this process may run on."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return len(affinity(0)) if affinity else os.cpu_count() or 1


_count = _processors()
_pool: ThreadPoolExecutor | None = None
_lock = threading.Lock()


class _Here(threading.local):
    inside = False
    """Whether this thread is one of the pool."""


_here = _Here()


def set_threads(n: int | None = None) -> int:
    """Choose how many threads products of matrices and convolutions run on; the bits do not depend on it.

    Parameters
    ----------
    n : int, optional
        At least 1. Default: as many as there are processors, which is also what holds before any call.

    Returns
    -------
    int
        The number that held before.

    Raises
    ------
    ValueError
        If `n` is no positive integer.

    Examples
    --------
    >>> import fp16sim as fs
    >>> before = fs.set_threads(1)
    >>> fs.set_threads(before)
    1
    """
    global _count, _pool
    chosen = _processors() if n is None else n
    if isinstance(chosen, bool) or not isinstance(chosen, int) or chosen < 1:
        raise ValueError(f"n={n!r}: pass a number of threads of at least 1, or nothing for one a processor")
    with _lock:
        before, _count = _count, chosen
        if before != chosen and _pool is not None:
            _pool.shutdown(wait=False)  # what it has begun it finishes
            _pool = None
    return before


def threads() -> int:
    """Give the number of threads that work may be divided among: 1 inside a thread of the pool."""
    return 1 if _here.inside else _count


def run(tasks: Sequence[Callable[[], T]]) -> list[T]:
    """Run tasks that do not depend on each other; give their results in their order."""
    if len(tasks) < 2 or threads() == 1:
        return [task() for task in tasks]
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(_count, "fp16sim", initializer=_enter)
        waiting = [_pool.submit(task) for task in tasks[1:]]
    _here.inside = True  # the first is done here, while the others wake up
    try:
        first = tasks[0]()
    finally:
        _here.inside = False
        wait(waiting)  # no task outlives the call
    return [first, *(task.result() for task in waiting)]


def _enter() -> None:
    _here.inside = True


def _forget() -> None:
    """Begin anew in a forked process, which has no thread but one."""
    global _pool, _lock
    _pool, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
