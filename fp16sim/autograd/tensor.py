"""Tensors, the tape behind them, and the walk back along it.

Every tensor has a creation number. The walk visits tensors in descending creation order, so gradients that
meet at a tensor are added in one fixed order, with a rounding at each addition: the same bits on every run.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from fp16sim.autograd.arithmetic import Arithmetic, Array, round_array

if TYPE_CHECKING:
    from fp16sim.autograd.ops import Op

__all__ = ["Context", "Hook", "Node", "Tensor", "gradients", "need_tensor", "no_grad"]

Hook = Callable[[Array], Array | None]
_DTYPES = (np.dtype(np.float16), np.dtype(np.float32))
_numbers = itertools.count()
_recording: ContextVar[bool] = ContextVar("fp16sim_recording", default=True)


@contextmanager
def no_grad() -> Iterator[None]:
    """Record no operations inside a ``with`` block.

    >>> weight = Tensor([1.0], requires_grad=True)
    >>> with no_grad():
    ...     (weight + weight).requires_grad
    False
    """
    token = _recording.set(False)
    try:
        yield
    finally:
        _recording.reset(token)


@dataclass(frozen=True)
class Context:
    """What an operation hands from its forward to its gradient rule.

    Attributes
    ----------
    arithmetic : Arithmetic
        The only arithmetic that a rule uses.
    saved : tuple
        Arrays and other values from the forward.
    needs : tuple of bool
        For each parent, whether its gradient is wanted; a rule gives None for the others.
    """

    arithmetic: Arithmetic
    saved: tuple[Any, ...]
    needs: tuple[bool, ...]


@dataclass(frozen=True)
class Node:
    """One entry of the tape: an operation, its parents in order, and its context."""

    op: Op
    parents: tuple[Tensor, ...]
    context: Context


class Tensor:
    """An array of float16 or float32 that remembers how it was made.

    Parameters
    ----------
    data : array_like
        Float16 and float32 arrays are kept as they are. Anything else that is real is rounded to float32,
        once.
    requires_grad : bool
        Whether :meth:`backward` fills `grad`.

    Attributes
    ----------
    data : float16 or float32 array
    grad : array of the same dtype, or None
    dtype, shape
        Of `data`.

    Raises
    ------
    TypeError
        If the data is complex or is not made of numbers.

    Examples
    --------
    >>> x = Tensor([1.0, 2.0], requires_grad=True)
    >>> y = x * 3.0 + x
    >>> y.backward([1.0, 1.0])
    >>> x.grad
    array([4., 4.], dtype=float32)
    """

    __slots__ = ("_hooks", "data", "grad", "node", "number", "requires_grad")

    def __init__(self, data: npt.ArrayLike, requires_grad: bool = False) -> None:
        array = np.asarray(data)
        if array.dtype.kind not in "fiub":
            raise TypeError(
                f"a tensor of dtype {array.dtype}: tensors hold real numbers; pass float16 or float32"
            )
        if array.dtype not in _DTYPES:
            array = array.astype(np.float32)
        self.data: Array = array
        self.requires_grad = requires_grad
        self.grad: Array | None = None
        self.node: Node | None = None
        self.number = next(_numbers)
        self._hooks: list[Hook] = []

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of `data`: float16 or float32."""
        return self.data.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of `data`."""
        return self.data.shape

    def __repr__(self) -> str:
        return f"Tensor({self.data!r}{', requires_grad=True' if self.requires_grad else ''})"

    __array_ufunc__ = None  # np.float64(2) * tensor is then tensor.__rmul__, and np.exp(tensor) a TypeError

    def __array__(self, *_: object, **__: object) -> np.ndarray[Any, Any]:
        # NumPy would compute off the tape, with roundings of its own.
        raise TypeError("a tensor is no NumPy array, whose arithmetic has no tape: pass tensor.data")

    def item(self) -> float:
        """Give the one value as a Python float, exactly."""
        return float(self.data.item())

    def register_hook(self, hook: Hook) -> Callable[[], None]:
        """Call ``hook(gradient)`` in :meth:`backward` once the gradient of this tensor is complete.

        What the hook returns, unless None, replaces the gradient; it must keep the shape and the dtype. Hooks
        run in the order of registration.

        Returns
        -------
        callable
            Call it without arguments to remove the hook.
        """
        if not self.requires_grad:
            raise ValueError(
                "a hook on a tensor without gradient never runs: make it with requires_grad=True"
            )
        self._hooks.append(hook)
        return lambda: self._hooks.remove(hook) if hook in self._hooks else None

    def backward(self, gradient: npt.ArrayLike | None = None) -> None:
        """Add to the `grad` of every tensor that was made with ``requires_grad=True``.

        Parameters
        ----------
        gradient : array_like, optional
            Gradient of the end result with respect to this tensor, rounded to its dtype. Default: 1, for a
            tensor of one element.

        Notes
        -----
        Each gradient has the dtype of its tensor. Where several meet, they are added in descending creation
        order of the results that they come from, rounded at each addition; a gradient that is already in
        `grad` is the first term.
        """
        seed = _seed(self, gradient)
        tape = _tape(self)
        leaves = [tensor for tensor in tape if tensor.node is None and tensor.requires_grad]
        with np.errstate(all="ignore"):
            for leaf, total in zip(leaves, _walk(tape, seed, leaves, wide=False), strict=True):
                if total is not None:
                    leaf.grad = total if leaf.grad is None else Arithmetic().add(leaf.grad, total)

    def __add__(self, other: Tensor) -> Tensor:
        result: Tensor = _ops().add(self, other)
        return result

    def __radd__(self, other: object) -> NoReturn:
        _refuse(other)

    def __mul__(self, constant: float) -> Tensor:
        result: Tensor = _ops().multiply(self, constant)
        return result

    __rmul__ = __mul__

    def __rmatmul__(self, other: object) -> NoReturn:
        _refuse(other)

    def __matmul__(self, other: Tensor) -> Tensor:
        result: Tensor = _ops().matmul(self, other)
        return result


def gradients(
    result: Tensor,
    tensors: Sequence[Tensor],
    gradient: npt.ArrayLike | None = None,
    *,
    wide: bool = False,
) -> list[Array | None]:
    """Give the gradients of `result` with respect to some tensors of its tape, leaving every `grad` as it is.

    Parameters
    ----------
    result : Tensor
    tensors : sequence of Tensor
        Leaves or intermediate results; parts of the tape that lead to none of them are not visited.
    gradient : array_like, optional
        As in :meth:`Tensor.backward`.
    wide : bool
        Take the forward pass as it was, with its roundings, and go back in float32: every gradient is stored
        and accumulated in binary32. It shows what float16 storage took from the gradients. Hooks do not run.

    Returns
    -------
    list
        An array for each tensor, or None where `result` does not depend on it.

    Examples
    --------
    >>> x = Tensor(np.float16([1.0]), requires_grad=True)
    >>> y = x * 2.0**-24 * 2.0**-2
    >>> gradients(y, [x])[0], gradients(y, [x], wide=True)[0]
    (array([0.], dtype=float16), array([1.4901161e-08], dtype=float32))
    """
    seed = _seed(result, gradient)
    with np.errstate(all="ignore"):
        return _walk(_tape(result), round_array(seed, np.float32) if wide else seed, tensors, wide=wide)


def need_tensor(x: object) -> None:
    """Refuse an operand that is no tensor."""
    if not isinstance(x, Tensor):
        _refuse(x)


def _refuse(x: object) -> NoReturn:
    raise TypeError(
        f"the input is a {type(x).__name__}: layers and operations take tensors; pass fs.Tensor(x)"
    )


def apply(op: Op, arithmetic: Arithmetic, *parents: Tensor, **options: Any) -> Tensor:
    """Run an operation and, where a gradient may be wanted, record it."""
    for parent in parents:
        need_tensor(parent)
    with np.errstate(all="ignore"):
        data, saved = op.forward(arithmetic, *(parent.data for parent in parents), **options)
    result = Tensor(data)
    needs = tuple(parent.requires_grad for parent in parents)
    if any(needs) and _recording.get():
        result.requires_grad = True
        result.node = Node(op, parents, Context(arithmetic, saved, needs))
    return result


def _ops() -> Any:
    from fp16sim.autograd import ops  # ops stands on this module

    return ops


def _seed(result: Tensor, gradient: npt.ArrayLike | None) -> Array:
    if not result.requires_grad:
        raise ValueError(
            "backward from a tensor without a tape: make a parameter with requires_grad=True first"
        )
    if gradient is None:
        if result.data.size != 1:
            raise ValueError(
                f"backward from shape {result.shape} needs a gradient of that shape; pass gradient="
            )
        return np.ones(result.shape, result.dtype)
    array = np.asarray(gradient)
    if array.shape != result.shape:
        raise ValueError(
            f"a gradient of shape {array.shape} for a tensor of shape {result.shape}: pass one alike"
        )
    return round_array(array, result.dtype)


def _tape(result: Tensor) -> list[Tensor]:
    """List every tensor that `result` was made from, itself included, newest first."""
    found: dict[int, Tensor] = {}
    waiting = [result]
    while waiting:
        tensor = waiting.pop()
        if tensor.number not in found:
            found[tensor.number] = tensor
            if tensor.node is not None:
                waiting.extend(parent for parent in tensor.node.parents if parent.requires_grad)
    return [found[number] for number in sorted(found, reverse=True)]


def _walk(tape: list[Tensor], seed: Array, targets: Sequence[Tensor], wide: bool) -> list[Array | None]:
    """Carry `seed` back along the tape and give the gradients of the targets."""
    wanted = {target.number for target in targets}
    leading = set(wanted)  # tensors with a target among their ancestors: parents come before their children
    for tensor in reversed(tape):
        if tensor.node is not None and any(parent.number in leading for parent in tensor.node.parents):
            leading.add(tensor.number)
    totals: dict[int, Array] = {tape[0].number: seed}
    for tensor in tape:
        total = totals.get(tensor.number)
        if total is None or tensor.number not in leading:
            continue
        if not wide:
            for hook in tuple(tensor._hooks):
                total = totals[tensor.number] = _hooked(hook, total)
        if tensor.node is None:
            continue
        node = tensor.node
        context = _context(node, leading, wide)
        for parent, part in zip(node.parents, node.op.gradient(context, total), strict=True):
            if part is not None:
                before = totals.get(parent.number)
                totals[parent.number] = part if before is None else context.arithmetic.add(before, part)
        if tensor.number not in wanted:
            del totals[tensor.number]
    return [totals.get(target.number) for target in targets]


def _context(node: Node, leading: set[int], wide: bool) -> Context:
    needs = tuple(parent.number in leading and parent.requires_grad for parent in node.parents)
    if not wide:
        return replace(node.context, needs=needs)
    saved = tuple(
        round_array(item, np.float32) if isinstance(item, np.ndarray) and item.dtype == np.float16 else item
        for item in node.context.saved
    )
    return Context(Arithmetic(wide=True), saved, needs)


def _hooked(hook: Hook, gradient: Array) -> Array:
    replaced = hook(gradient)
    if replaced is None:
        return gradient
    if replaced.shape != gradient.shape or replaced.dtype != gradient.dtype:
        raise ValueError(
            f"a hook turned {gradient.dtype} of shape {gradient.shape} into {replaced.dtype} of shape "
            f"{replaced.shape}: return the same shape and dtype"
        )
    return replaced
