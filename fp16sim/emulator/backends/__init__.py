"""Where the loops run: ``cpu`` (numba kernels, the default) or ``reference`` (the definition, slow)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache

from fp16sim.emulator.backends.base import Backend
from fp16sim.emulator.datapath import Datapath, as_datapath
from fp16sim.emulator.formats import Format, as_format, nearest_name

__all__ = ["Backend", "compilations", "current", "is_fast", "use_backend"]

_NAMES = ("cpu", "reference")
_chosen: ContextVar[str] = ContextVar("fp16sim_backend", default="cpu")


@cache
def _make(name: str) -> Backend:
    if name == "reference":
        return Backend()
    from fp16sim.emulator.backends.cpu import CpuBackend

    return CpuBackend()


def current() -> Backend:
    """Give the backend that operations of this context run on."""
    return _make(_chosen.get())


def use_backend(name: str) -> AbstractContextManager[Backend]:
    """Run the operations of a block on another backend.

    Parameters
    ----------
    name : {"cpu", "reference"}

    Raises
    ------
    ValueError
        At the call, if there is no such backend.

    >>> import fp16sim as fs
    >>> with use_backend("reference"):
    ...     print(float(fs.add(2048.0, 1.0)))
    2048.0
    """
    if name not in _NAMES:
        raise ValueError(f"unknown backend {name!r}: {nearest_name(name, _NAMES)}")
    return _using(name)


@contextmanager
def _using(name: str) -> Iterator[Backend]:
    token = _chosen.set(name)
    try:
        yield current()
    finally:
        _chosen.reset(token)


def is_fast(datapath: str | Datapath, operands: str | Format) -> bool:
    """Say whether a kernel of its own computes products of such operands on this datapath.

    All others go through the one kernel that knows every way, in integers, which takes hundreds of times longer.

    Parameters
    ----------
    datapath : str or Datapath
    operands : str or Format

    Raises
    ------
    ValueError
        If a name is unknown.
    TypeError
        If the datapath does not take such operands.

    >>> is_fast("a100", "binary16"), is_fast("exact", "binary16")
    (True, False)
    """
    from fp16sim.emulator.backends.products import fast_kind

    fmt = operands if isinstance(operands, Format) else as_format(operands)  # which does not know binary64
    return fast_kind(fmt, as_datapath(datapath).for_operands(fmt)) != ""


@contextmanager
def compilations(announce: Callable[[str], None]) -> Iterator[None]:
    """Call `announce` with the name of each kernel that has to be compiled inside the block.

    Compiled kernels are kept on disk, so this happens once for each kernel and processor.

    >>> with compilations(print):
    ...     pass
    """
    from fp16sim.emulator.kernels.jit import watch_compilation

    with watch_compilation(announce):
        yield
