"""A chain of modules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import overload

from fp16sim.autograd.tensor import Tensor
from fp16sim.nn.module import Module

__all__ = ["Sequential"]


class Sequential(Module):
    """Modules applied one after the other; their names are their positions, and they are indexed by them.

    >>> from fp16sim.nn import Linear, ReLU
    >>> Sequential(ReLU(), ReLU())(Tensor([-1.0])).data
    array([0.], dtype=float32)
    >>> Sequential(Linear(8, 8), ReLU(), Linear(8, 8))
    Sequential(Linear(8, 8), ReLU(), Linear(8, 8))
    >>> model = Sequential(Linear(8, 8), ReLU(), Linear(8, 2))
    >>> len(model), model[-1], model[:2]
    (3, Linear(8, 2), Sequential(Linear(8, 8), ReLU()))
    """

    def __init__(self, *modules: Module) -> None:
        for position, module in enumerate(modules):
            if not isinstance(module, Module):
                raise TypeError(
                    f"part {position} is a {type(module).__name__}: pass modules, such as fs.nn.ReLU()"
                )
        self.modules = list(modules)

    def __repr__(self) -> str:
        return f"Sequential({', '.join(map(repr, self.modules))})"

    def __len__(self) -> int:
        return len(self.modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self.modules)

    @overload
    def __getitem__(self, place: int) -> Module: ...

    @overload
    def __getitem__(self, place: slice) -> Sequential: ...

    def __getitem__(self, place: int | slice) -> Module:
        return Sequential(*self.modules[place]) if isinstance(place, slice) else self.modules[place]

    def forward(self, x: Tensor) -> Tensor:
        """Apply every module in turn."""
        for module in self.modules:
            x = module(x)
        return x
