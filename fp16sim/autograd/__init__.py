"""A tape of operations that round as float16 training does, and its gradients.

The functions of tensors are in ``fs.autograd.ops``: each says every step that it rounds, forward and backward.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fp16sim.autograd import backward, checkpoint, gradcheck, ops, policy, tensor

__all__ = ["backward", "checkpoint", "gradcheck", "ops", "policy", "tensor"]


def __getattr__(name: str) -> Any:
    if name in __all__:  # late, since `ops` is not needed by whoever only asks for a policy
        return import_module(f"fp16sim.autograd.{name}")
    raise AttributeError(f"fp16sim.autograd has no {name!r}: functions of tensors are in fs.autograd.ops")


def __dir__() -> list[str]:
    return sorted(__all__)
