"""What to say to those who use a tensor as an array, or by names of torch: the name that it has here."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import ParamSpec, TypeVar

from fp16sim.emulator.formats import nearest_name

__all__ = ["axis_not_dim", "missing", "off_tape"]

P = ParamSpec("P")
R = TypeVar("R")

# Names of torch.Tensor that have no method here.
_TORCH = {
    "add_": "x = x + y, since tensors do not change in place",
    "all": "x.data.all()",
    "any": "x.data.any()",
    "bfloat16": "x.cast('bfloat16')",
    "chunk": "slices, such as x[:2] and x[2:]",
    "contiguous": "nothing: every tensor is",
    "copy_": "x.data = array",
    "cpu": "nothing: every tensor is there",
    "cuda": "nothing: the simulator runs on the CPU",
    "device": "nothing: every tensor is on the CPU",
    "dim": "x.ndim",
    "double": "x.cast('float64')",
    "expand": "fs.autograd.ops.broadcast_to(x, shape)",
    "float": "x.cast('float32')",
    "grad_fn": "x.is_leaf",
    "half": "x.cast('float16')",
    "masked_fill": "fs.autograd.ops.where(mask, value, x)",
    "max": "x.amax(axis), or x.argmax(axis)",
    "min": "x.amin(axis)",
    "mm": "x @ y",
    "mul_": "x = x * y, since tensors do not change in place",
    "mT": "x.swapaxes(-2, -1)",
    "numel": "x.size",
    "requires_grad_": "x.requires_grad = True",
    "retain_grad": "x.register_hook(function)",
    "split": "slices, such as x[:2] and x[2:]",
    "std": "x.variance(axis).sqrt()",
    "t": "x.T",
    "to": "x.cast(dtype)",
    "type": "x.cast(dtype)",
    "var": "x.variance(axis), whose correction is 1 as torch's",
    "zero_": "x.grad = None, or x.data = array",
}  # fmt: skip
_OPERATIONS = {"round_to": "cast", "dot": "matmul", "function": "convolution"}


def missing(name: str, names: list[str]) -> str:
    """End the message about an attribute that a tensor lacks.

    >>> missing("half", []), missing("relu", [])
    ("write x.cast('float16')", 'write fs.autograd.ops.relu(x)')
    """
    if name in _TORCH:
        return f"write {_TORCH[name]}"
    if name in import_module("fp16sim.autograd.ops").__all__:
        return f"write fs.autograd.ops.{name}(x)"
    near = nearest_name(name, names)
    return near if near.startswith("did") else "dir(x) lists the names; more functions are in fs.autograd.ops"


def off_tape() -> str:
    """Say what to use for a tensor where an array is needed; the function is found from the frames that call this.

    >>> off_tape()
    'a tensor is no array, whose arithmetic has no tape: for gradients use fs.autograd.ops; for the values alone pass \
tensor.data'
    """
    frame, name = sys._getframe(2), ""
    while frame is not None and frame.f_globals.get("__name__", "").startswith("fp16sim.emulator."):
        name = frame.f_code.co_name
        if name == "function":  # one of those made from a name
            name = str(frame.f_locals.get("name", name))
        frame = frame.f_back  # type: ignore[assignment]
    operation = _OPERATIONS.get(name, name)
    known = operation in import_module("fp16sim.autograd.ops").__all__
    use = f"fs.autograd.ops.{operation}" if known else "fs.autograd.ops"
    return (
        f"a tensor is no array, whose arithmetic has no tape: for gradients use {use}; for the values alone pass "
        "tensor.data"
    )


def axis_not_dim(method: Callable[P, R]) -> Callable[P, R]:
    """Let a method say that torch's `dim` and `keepdim` go by NumPy's names here."""

    @wraps(method)
    def checked(*args: P.args, **options: P.kwargs) -> R:
        for name, here in (("dim", "axis"), ("keepdim", "keepdims")):
            if name in options:
                raise TypeError(f"{method.__name__}({name}=...): it has NumPy's names; write {here}=")
        return method(*args, **options)

    return checked
