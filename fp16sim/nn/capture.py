"""See, or change, what every layer takes and gives out during a forward pass, without changing the layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from fp16sim.autograd.tensor import Tensor

if TYPE_CHECKING:
    from fp16sim.nn.module import Module

__all__ = ["Gates", "capture_outputs", "current_gates", "gates"]

Captured = list[tuple["Module", Tensor]]
_sink: ContextVar[Captured | None] = ContextVar("fp16sim_capture", default=None)


class Gates(NamedTuple):
    """What stands before and after every module: functions of the module with its inputs, or with its output.

    >>> with gates(lambda module, inputs: inputs, lambda module, output: output):
    ...     isinstance(current_gates(), Gates)
    True
    """

    entering: Callable[[Module, tuple[Any, ...]], tuple[Any, ...]]
    leaving: Callable[[Module, Any], Any]


_gates: ContextVar[Gates | None] = ContextVar("fp16sim_gates", default=None)


@contextmanager
def gates(entering: Callable[..., tuple[Any, ...]], leaving: Callable[..., Any]) -> Iterator[None]:
    """Let every module take ``entering(module, inputs)`` and give ``leaving(module, output)`` inside a ``with`` block.

    A block that is checkpointed runs again without them.

    >>> from fp16sim.nn import ReLU
    >>> with gates(lambda module, inputs: inputs, lambda module, output: output * 2.0):
    ...     ReLU()(Tensor([1.0])).data
    array([2.], dtype=float32)
    """
    token = _gates.set(Gates(entering, leaving))
    try:
        yield
    finally:
        _gates.reset(token)


def current_gates() -> Gates | None:
    """Give the gates of the innermost block, None outside of one."""
    return _gates.get()


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
