"""What an operation is, and how one is run: operands converted as the policy says, the forward, a note on the tape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from fp16sim.autograd.arithmetic import DTYPES, Arithmetic, Array, round_array, widest
from fp16sim.autograd.policy import Policy, current_scope
from fp16sim.autograd.tensor import Context, Freed, Node, Tensor, Widened, is_recording, need_tensor

__all__ = ["Op", "cast", "converted", "run"]


@dataclass(frozen=True)
class Op:
    """A row of the table of operations: forward and gradient together.

    A forward takes arrays of one dtype and gives the result with what its gradient needs. A gradient takes the
    gradient of the result and gives one for each parent. Both compute through the
    :class:`~fp16sim.autograd.arithmetic.Arithmetic` that they are handed and nothing else, so every rounding is one
    of its methods; choosing, copying and moving values rounds nothing and may use NumPy.

    Attributes
    ----------
    name : str
        What the lists of `flavours.py` call it.
    forward : callable
        ``(arithmetic, *arrays, **options) -> (array, saved)``.
    gradient : callable
        ``(context, gradient) -> (gradient or None for each parent)``. Saved arrays and the gradient have one dtype,
        which may be wider than that of the forward: constants take the dtype of the gradient.
    """

    name: str
    forward: Callable[..., tuple[Array, tuple[Any, ...]]]
    gradient: Callable[[Context, Array], tuple[Array | None, ...]]


def run(op: Op, *parents: Tensor, **options: Any) -> Tensor:
    """Convert the operands as the policy in force says, compute, and record the operation where it may be needed.

    Raises
    ------
    TypeError
        If an operand is no tensor, or the formats have no common one.
    """
    for parent in parents:
        if type(parent) is not Tensor:
            need_tensor(parent)
    scope = current_scope()
    policy = scope.policy
    rule = policy.rule(op.name) if scope.active else "promote"
    goal = _goal(op.name, policy, rule, parents)
    if rule == "inside" and any(parent._array.dtype != goal for parent in parents):
        return _inside(op, policy, goal, parents, options)
    operands = tuple(parent if parent._array.dtype is goal else converted(parent, goal) for parent in parents)
    return _applied(op, policy.forward, policy.backward, operands, options)


def _goal(name: str, policy: Policy, rule: str, parents: tuple[Tensor, ...]) -> np.dtype[Any]:
    """Find the format in which the operation computes."""
    if rule == "compute":
        return DTYPES[policy.compute]
    dtypes = [parent._array.dtype for parent in parents]
    if rule == "promote" and dtypes.count(dtypes[0]) == len(dtypes):
        return dtypes[0]
    if rule != "promote":
        dtypes.append(DTYPES[policy.wide])
    found = widest(dtypes)
    if found is None:
        names = " and ".join(dict.fromkeys(str(dtype) for dtype in dtypes))
        raise TypeError(
            f"{name} of {names}: neither format holds the values of the other; convert one with x.cast('float32')"
        )
    return found


def _applied(
    op: Op, forward: Arithmetic, backward: Arithmetic, parents: tuple[Tensor, ...], options: dict[str, Any]
) -> Tensor:
    with np.errstate(all="ignore"):
        data, saved = op.forward(forward, *(parent._array for parent in parents), **options)
    result = Tensor.of_result(data)
    needs = tuple([parent.requires_grad for parent in parents])
    if True in needs and is_recording():
        result.requires_grad = True
        kept = [item for item in saved if isinstance(item, np.ndarray)]
        versions = tuple([parent.version if _keeps(kept, parent._array) else -1 for parent in parents])
        result.node = Node(op, parents, Context(backward, saved, needs), versions)
    return result


def _keeps(kept: list[Array], array: Array) -> bool:
    """Whether what was saved is this array or a view of it."""
    if not kept:
        return False
    root = array if array.base is None else array.base
    return any(item is array or item.base is root or item is root for item in kept)


# ---------------------------------------------------------------------------------------------------- inside


def _inside(
    op: Op, policy: Policy, goal: np.dtype[Any], parents: tuple[Tensor, ...], options: dict[str, Any]
) -> Tensor:
    """Compute in `goal` between two conversions, all in one node: nothing wide stays on the tape.

    The roundings are those of a cast, the operation and a cast back. An operand that the operation keeps is kept as it
    was before it was widened, which loses nothing.
    """
    held = tuple([converted(p, goal) if p.requires_grad and p.node is None else p for p in parents])
    arrays = [round_array(p._array, goal) for p in held]
    with np.errstate(all="ignore"):
        data, saved = op.forward(policy.forward, *arrays, **options)
        result = Tensor.of_result(round_array(data, parents[0].dtype))
    needs = tuple([p.requires_grad for p in held])
    if True in needs and is_recording():
        result.requires_grad = True
        pairs = zip(held, arrays, strict=True)
        narrow = {id(array): Widened(p._array, goal) for p, array in pairs if p.dtype != goal}
        kept = tuple([narrow.get(id(item), item) for item in saved])
        plain = [item.array if isinstance(item, Widened) else item for item in kept]
        plain = [item for item in plain if isinstance(item, np.ndarray)]
        versions = tuple([p.version if _keeps(plain, p._array) else -1 for p in held])
        context = Context(policy.backward, (*kept, goal, tuple([p.dtype for p in held])), needs)
        result.node = Node(_between_casts(op), held, context, versions)
    return result


@lru_cache(maxsize=64)
def _between_casts(op: Op) -> Op:
    def gradient(context: Context, gradient: Array) -> tuple[Array | None, ...]:
        *kept, goal, dtypes = context.saved
        arithmetic = context.arithmetic
        saved = [round_array(item.array, item.dtype) if isinstance(item, Widened) else item for item in kept]
        inner = Context(arithmetic, tuple(saved), context.needs)
        parts = op.gradient(inner, arithmetic.cast(gradient, goal))
        return tuple(
            None if part is None else arithmetic.cast(part, dtype)
            for part, dtype in zip(parts, dtypes, strict=True)
        )

    return Op(op.name, op.forward, gradient)


# ---------------------------------------------------------------------------------------------------- cast


def _cast(arithmetic: Arithmetic, a: Array, dtype: np.dtype[Any]) -> tuple[Array, tuple[Any, ...]]:
    return round_array(a, dtype), (a.dtype,)


def _cast_gradient(context: Context, gradient: Array) -> tuple[Array | None, ...]:
    return (context.arithmetic.cast(gradient, context.saved[0]),)


_CAST = Op("cast", _cast, _cast_gradient)


def cast(a: Tensor, dtype: np.dtype[Any]) -> Tensor:
    """Convert to a dtype, rounding once at most; a tensor of that dtype is returned as it is.

    Gradient: converted back the same way.
    """
    if a.dtype == dtype:
        return a
    policy = current_scope().policy
    return _applied(_CAST, policy.forward, policy.backward, (a,), {"dtype": dtype})


def converted(a: Tensor, dtype: np.dtype[Any]) -> Tensor:
    """Convert an operand, a parameter once within the outermost block of `autocast`."""
    if a.dtype == dtype:
        return a
    scope = current_scope()
    if not scope.active or not a.requires_grad or a.node is not None:
        return cast(a, dtype)
    key = (a.number, dtype, is_recording())
    found: Tensor
    version, found = scope.casts.get(key, (-1, a))
    if version != a.version or isinstance(found.node, Freed):
        found = cast(a, dtype)
        scope.casts[key] = a.version, found
    return found
