"""The walk back along the tape.

It visits tensors in descending creation order, so gradients that meet at a tensor are added in one fixed order, with a
rounding at each addition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.autograd.arithmetic import DTYPES, Arithmetic, Array, round_array
from fp16sim.autograd.tensor import Context, Freed, Hook, Node, Tensor, Widened

__all__ = ["accumulate", "gradients", "saved_bytes", "tape_of"]

_NARROW = (DTYPES["float16"], DTYPES["bfloat16"])


def accumulate(result: Tensor, gradient: npt.ArrayLike | None, retain_graph: bool) -> None:
    """Do what :meth:`fp16sim.Tensor.backward` says."""
    seed = _seed(result, gradient, result.dtype)
    tape = tape_of(result)
    leaves = [tensor for tensor in tape if tensor.node is None and tensor.requires_grad]
    taken = {_owner(seed)}
    with np.errstate(all="ignore"):
        for leaf, total in zip(leaves, _walk(tape, seed, leaves), strict=True):
            if total is None:
                continue
            if (
                leaf.grad is None
            ):  # memory of its own: `seed` is the caller's, and a sum gives both terms one array
                shared = not total.flags.writeable or _owner(total) in taken
                taken.add(_owner(total))
                leaf.grad = total.copy() if shared else total
            else:
                leaf.grad = Arithmetic().add(_alike(leaf.grad, total), total)
    if not retain_graph:
        for tensor in tape:
            if isinstance(tensor.node, Node):
                tensor.node = Freed(tensor.node.op.name)


def _alike(grad: Any, total: Array) -> Array:
    """Refuse to add to a `grad` that was assigned, or that a change of `data` has left behind."""
    if isinstance(grad, np.ndarray) and grad.shape == total.shape and grad.dtype == total.dtype:
        return grad
    what = (
        f"{grad.dtype} of shape {grad.shape}" if isinstance(grad, np.ndarray) else f"a {type(grad).__name__}"
    )
    raise ValueError(
        f"a gradient that is {total.dtype} of shape {total.shape} for a tensor whose grad is {what}: assign "
        "grad = None first, or an array alike"
    )


def gradients(
    result: Tensor,
    tensors: Sequence[Tensor],
    gradient: npt.ArrayLike | None = None,
    *,
    wide: bool = False,
    hooks_of_targets: bool = True,
) -> list[Array | None]:
    """Give the gradients of `result` with respect to some tensors of its tape, leaving every `grad` as it is.

    Parameters
    ----------
    result : Tensor
    tensors : sequence of Tensor
        Leaves or intermediate results; parts of the tape that lead to none of them are not visited. The tape is kept.
    gradient : array_like, optional
        As in :meth:`Tensor.backward`.
    wide : bool
        Take the forward pass as it was, with its roundings, and go back in float32: every gradient is stored
        and accumulated in binary32. It shows what float16 storage took from the gradients. Hooks do not run.
    hooks_of_targets : bool
        Whether the hooks of `tensors` run too, beside those on the way to them.

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
    seed = _seed(result, gradient, np.dtype(np.float32) if wide and result.dtype in _NARROW else result.dtype)
    with np.errstate(all="ignore"):
        return _walk(tape_of(result), seed, tensors, wide, hooks_of_targets)


def tape_of(result: Tensor) -> list[Tensor]:
    """List every tensor with gradient that `result` was made from, itself included, newest first."""
    found: dict[int, Tensor] = {}
    waiting = [result]
    while waiting:
        tensor = waiting.pop()
        if tensor.number not in found:
            found[tensor.number] = tensor
            if isinstance(tensor.node, Node):
                waiting.extend(parent for parent in tensor.node.parents if parent.requires_grad)
            elif isinstance(tensor.node, Freed):
                raise RuntimeError(
                    f"backward through an operation ({tensor.node.name}) that an earlier backward pass has freed: "
                    "pass retain_graph=True to that one, or compute the result again"
                )
    return [found[number] for number in sorted(found, reverse=True)]


def saved_bytes(result: Tensor) -> int:
    """Count the bytes of the arrays that the tape behind `result` keeps for the gradients.

    Leaves and what they were rounded to (the copies of the weights that a mixed policy makes) are not counted; arrays
    that share memory count once.

    >>> x = Tensor(np.ones(1000, np.float16), requires_grad=True)
    >>> saved_bytes((x * 2.0) * (x * 2.0))
    4000
    """
    tape = tape_of(result)
    leaves = {_owner(tensor._array) for tensor in tape if _is_parameter(tensor)}
    owners: dict[int, int] = {}
    for tensor in tape:
        if isinstance(tensor.node, Node):
            for item in tensor.node.context.saved:
                item = item.array if isinstance(item, Widened) else item
                if isinstance(item, np.ndarray) and item.ndim:
                    owners[_owner(item)] = item.nbytes
    return sum(size for owner, size in owners.items() if owner not in leaves)


def _is_parameter(tensor: Tensor) -> bool:
    """Whether a tensor is a leaf, or a leaf converted."""
    node = tensor.node
    return node is None or (
        isinstance(node, Node) and node.op.name == "cast" and node.parents[0].node is None
    )


def _owner(array: Array) -> int:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return id(array)


def _seed(result: Tensor, gradient: npt.ArrayLike | None, dtype: np.dtype[Any]) -> Array:
    if not result.requires_grad:
        raise ValueError(
            "backward from a tensor without a tape: make a parameter with requires_grad=True first"
        )
    if gradient is None:
        if result.size != 1:
            raise ValueError(
                f"backward from shape {result.shape} needs a gradient of that shape: pass gradient=, or reduce the "
                "result to one number, such as result.sum()"
            )
        return np.ones(result.shape, dtype)
    array = np.asarray(gradient)
    if array.shape != result.shape:
        raise ValueError(
            f"a gradient of shape {array.shape} for a tensor of shape {result.shape}: pass one alike"
        )
    return round_array(array, dtype)


def _walk(
    tape: list[Tensor],
    seed: Array,
    targets: Sequence[Tensor],
    wide: bool = False,
    hooks_of_targets: bool = True,
) -> list[Array | None]:
    """Carry `seed` back along the tape and give the gradients of the targets."""
    wanted = {target.number for target in targets}
    leading = set(wanted)  # tensors with a target among their ancestors: parents come before their children
    for tensor in reversed(tape):
        if isinstance(tensor.node, Node):
            for parent in tensor.node.parents:
                if parent.number in leading:
                    leading.add(tensor.number)
                    break
    pruned = len(leading) < len(tape)
    totals: dict[int, Array] = {tape[0].number: seed}
    for tensor in tape:
        total = totals.get(tensor.number)
        if total is None or tensor.number not in leading:
            continue
        if tensor._hooks and not wide and (hooks_of_targets or tensor.number not in wanted):
            for hook in tuple(tensor._hooks):
                total = totals[tensor.number] = _hooked(hook, total)
        node = tensor.node
        if not isinstance(node, Node):
            continue
        _check_versions(node)
        context = _context(node, leading, wide) if pruned or wide else node.context
        for parent, part in zip(node.parents, node.op.gradient(context, total), strict=True):
            if part is not None:
                before = totals.get(parent.number)
                totals[parent.number] = part if before is None else context.arithmetic.add(before, part)
        if tensor.number not in wanted:
            del totals[tensor.number]
    return [totals.get(target.number) for target in targets]


def _check_versions(node: Node) -> None:
    for parent, version in zip(node.parents, node.versions, strict=True):
        if version >= 0 and version != parent.version:
            raise RuntimeError(
                f"a tensor of shape {parent.shape} was changed after {node.op.name} used it, and its gradient needs "
                "the old values: run backward first, or compute the result again"
            )


def _context(node: Node, leading: set[int], wide: bool) -> Context:
    needs = tuple(parent.number in leading and parent.requires_grad for parent in node.parents)
    if not wide:
        return node.context._replace(needs=needs)
    saved = tuple(
        round_array(item, np.float32) if isinstance(item, np.ndarray) and item.dtype in _NARROW else item
        for item in node.context.saved
    )
    return Context(Arithmetic(wide=True), saved, needs)


def _hooked(hook: Hook, gradient: Array) -> Array:
    shown = gradient.view()
    shown.flags.writeable = False  # other tensors may have the same array for their gradient
    replaced = hook(shown)
    if replaced is None:
        return gradient
    if not isinstance(replaced, np.ndarray):
        raise TypeError(
            f"a hook gave a {type(replaced).__name__}: return an array, or None to change nothing"
        )
    if replaced.shape != gradient.shape or replaced.dtype != gradient.dtype:
        raise ValueError(
            f"a hook turned {gradient.dtype} of shape {gradient.shape} into {replaced.dtype} of shape "
            f"{replaced.shape}: return the same shape and dtype"
        )
    return replaced if replaced.flags.writeable else replaced.copy()
