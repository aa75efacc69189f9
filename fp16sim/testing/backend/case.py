"""A backend under test: what of it is examined, and what it turned out not to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fp16sim.emulator.backends.base import Backend
from fp16sim.emulator.datapath import Datapath
from fp16sim.emulator.formats import Format
from fp16sim.testing.walk import NotApplicable

__all__ = ["DEFINITION", "BackendCase"]

DEFINITION = Backend()


@dataclass
class BackendCase:
    """A backend under test.

    Attributes
    ----------
    backend : Backend
    formats : tuple of Format
    datapaths : tuple of Datapath or None
        None: those that have names, and drawn ones.
    examples : int
        How many inputs are drawn for each kind of call.
    quick : bool
        Whether flags, counts, parts and other threads are left out.
    done : int
        Calls that were made.
    undone : dict
        Kinds of call that raised NotImplementedError, in their order.
    """

    backend: Any
    formats: tuple[Format, ...]
    datapaths: tuple[Datapath, ...] | None = None
    examples: int = 16
    quick: bool = False
    done: int = 0
    undone: dict[str, None] = field(default_factory=dict)
    _pool: ThreadPoolExecutor | None = None

    def method(self, name: str) -> Callable[..., Any]:
        """Find a method.

        Raises
        ------
        NotApplicable
            If the backend has none of that name.
        """
        found = getattr(self.backend, name, None)
        if not callable(found):
            raise NotApplicable(f"the backend has no method {name!r}")
        return found  # type: ignore[no-any-return]

    def is_plain(self, name: str) -> bool:
        """Whether a method is the definition's own, which is slow."""
        return getattr(type(self.backend), name, None) is getattr(Backend, name)

    def pool(self) -> ThreadPoolExecutor:
        """Give a thread that is not the caller's, until `close`."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "fp16sim-check")
        return self._pool

    @contextmanager
    def quickly(self, quick: bool = True) -> Iterator[None]:
        """Be quick for a while."""
        before, self.quick = self.quick, quick
        try:
            yield
        finally:
            self.quick = before

    def close(self) -> None:
        """End that thread."""
        if self._pool is not None:
            self._pool.shutdown()
        self._pool = None
