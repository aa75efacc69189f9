"""Gradient checkpointing: keep a block's inputs instead of its tape, and compute the block again on the way back.

Source: Chen et al., Training Deep Nets with Sublinear Memory Cost, arXiv 1604.06174; torch.utils.checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from fp16sim.autograd.arithmetic import Arithmetic, Array
from fp16sim.autograd.backward import gradients, tape_of
from fp16sim.autograd.operation import Op
from fp16sim.autograd.policy import Policy, autocast, current_scope
from fp16sim.autograd.tensor import Context, Node, Tensor, is_recording, need_tensor, recording

__all__ = ["checkpoint", "in_checkpoint", "remembered"]

Value = TypeVar("Value")
_memory: ContextVar[Iterator[Any] | list[Any] | None] = ContextVar("fp16sim_memory", default=None)


def remembered(compute: Callable[[], Value]) -> Value:
    """Compute a value that a repetition must find again: a counter that advances, a statistic that is updated.

    Inside a checkpointed block the first pass computes and keeps the value; the repetition takes it from there.
    """
    memory = _memory.get()
    if memory is None:
        return compute()
    if isinstance(memory, list):
        memory.append(compute())
        found: Value = memory[-1]
        return found
    return next(memory)  # type: ignore[no-any-return]


def in_checkpoint() -> bool:
    """Whether this runs inside a checkpointed block, which will run again or does.

    >>> in_checkpoint()
    False
    """
    return _memory.get() is not None


def checkpoint(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """Compute ``function(*inputs)`` and keep only the inputs: the block runs again during the backward pass.

    Parameters
    ----------
    function : callable
        Takes tensors and gives one. What it computes may depend on its arguments and on parameters only; dropout draws
        the same mask again, and batch normalisation updates its statistics once.
    *inputs : Tensor

    Returns
    -------
    Tensor
        The same bits as without checkpointing. So are the gradients, unless an input of the block is used several times
        inside it and again outside, or a parameter is shared with other blocks: their parts then meet in another order.

    Notes
    -----
    The layers inside have no outputs on the tape that is kept, so the shares of a step that :func:`fp16sim.fit`
    measures, and observers of it, leave them out. They are a part of the history: it, and the digest of the run, differ
    from those without checkpointing, though all weights are the same. With ``measure=False`` both are the same.

    Examples
    --------
    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> checkpoint(lambda x: x * x * x, x).backward([1.0, 1.0])
    >>> x.grad
    array([ 3., 12.], dtype=float32)
    """
    for x in inputs:
        need_tensor(x)
    if not is_recording():
        return function(*inputs)
    scope = current_scope()
    repeating = not isinstance(_memory.get(), (list, type(None)))
    values: list[Any] = remembered(list)  # a block around this one hands them out again when it is repeated
    block = _Block(function, inputs, scope.policy if scope.active else None, values)
    result, copies = block.run(iter(values) if repeating else values)
    if not result.requires_grad:
        return result
    own = {copy.number for copy in copies}
    leaves = tuple(t for t in tape_of(result) if t.is_leaf and t.number not in own)
    parents = (*inputs, *leaves)
    output = Tensor(result._array, requires_grad=True)
    needs = tuple(parent.requires_grad for parent in parents)
    context = Context(scope.policy.backward, (block, leaves), needs)
    output.node = Node(_CHECKPOINT, parents, context, tuple(parent.version for parent in parents))
    return output


@dataclass(frozen=True)
class _Block:
    """What is needed to run a block again."""

    function: Callable[..., Tensor]
    inputs: tuple[Tensor, ...]
    policy: Policy | None
    values: list[Any]

    def run(self, memory: Any) -> tuple[Tensor, list[Tensor]]:
        """Give the result with its tape, and the stand-ins of the inputs that the tape ends at."""
        copies = [Tensor(x._array, requires_grad=x.requires_grad) for x in self.inputs]
        with recording(), _using(memory), nullcontext() if self.policy is None else autocast(self.policy):
            result = self.function(*copies)
        if not isinstance(result, Tensor):
            raise TypeError(
                f"a checkpointed function gave a {type(result).__name__}: it gives one tensor; checkpoint its parts, "
                "or concatenate them"
            )
        return result, copies


@contextmanager
def _using(memory: Any) -> Iterator[None]:
    token = _memory.set(memory)
    try:
        yield
    finally:
        _memory.reset(token)


def _forward(arithmetic: Arithmetic, *arrays: Array) -> tuple[Array, tuple[Any, ...]]:
    raise NotImplementedError("a checkpointed block runs its function")


def _gradient(context: Context, gradient: Array) -> tuple[Array | None, ...]:
    block, leaves = context.saved
    result, copies = block.run(iter(block.values))
    targets = [*copies, *leaves]
    wanted = [target for target, needed in zip(targets, context.needs, strict=True) if needed]
    # The hooks of parameters run where the outer walk reaches them.
    found = iter(gradients(result, wanted, gradient, wide=context.arithmetic.wide, hooks_of_targets=False))
    return tuple(next(found) if needed else None for needed in context.needs)


_CHECKPOINT = Op("checkpoint", _forward, _gradient)
