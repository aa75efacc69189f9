"""See what every layer gives out during a forward pass, without changing the layers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from fp16sim.autograd.tensor import Tensor

if TYPE_CHECKING:
    from fp16sim.nn.module import Module

__all__ = ["capture_outputs"]

Captured = list[tuple["Module", Tensor]]
_sink: ContextVar[Captured | None] = ContextVar("fp16sim_capture", default=None)


@contextmanager
def capture_outputs() -> Iterator[Captured]:
    """Collect (module, output) pairs inside a ``with`` block, in the order in which the modules finish.

    >>> from fp16sim.nn import Linear
    >>> with capture_outputs() as outputs:
    ...     y = Linear(2, 3)(Tensor([[1.0, 2.0]]))
    >>> [(type(module).__name__, output.shape) for module, output in outputs]
    [('Linear', (1, 3))]
    """
    captured: Captured = []
    token = _sink.set(captured)
    try:
        yield captured
    finally:
        _sink.reset(token)


def note_output(module: Module, output: object) -> None:
    """Add a pair to the innermost block, if there is one; called by every module. Each tensor of a tuple is a pair."""
    sink = _sink.get()
    if sink is None:
        return
    if isinstance(output, Tensor):
        sink.append((module, output))
    elif isinstance(output, tuple):
        for part in output:
            note_output(module, part)
