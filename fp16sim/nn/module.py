"""What layers have in common: parameters with names, and a forward pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fp16sim.autograd.arithmetic import round_array
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn.capture import note_output

__all__ = ["Module"]


class Module:
    """A layer, or a network of layers. Subclasses define ``forward``.

    Attributes that are tensors with ``requires_grad=True`` are parameters; attributes that are modules, or
    lists of modules, are parts. Both count in the order in which they were assigned.

    Examples
    --------
    >>> from fp16sim.nn import Linear, ReLU, Sequential
    >>> model = Sequential(Linear(4, 3), ReLU(), Linear(3, 2))
    >>> [name for name, parameter in model.named_parameters()]
    ['0.weight', '0.bias', '2.weight', '2.bias']
    """

    def __call__(self, *inputs: Any) -> Tensor:
        """Run `forward` and let :func:`capture_outputs` see the result."""
        output = self.forward(*inputs)
        note_output(self, output)
        return output

    def forward(self, *inputs: Any) -> Tensor:
        """Compute the output; each kind of layer defines its own."""
        raise NotImplementedError(f"{type(self).__name__} has no forward: define forward(self, x)")

    def named_parts(self) -> Iterator[tuple[str, Module]]:
        """Give the modules directly inside this one, with their names."""
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield name, value
            elif isinstance(value, (list, tuple)):
                yield from ((str(i), part) for i, part in enumerate(value) if isinstance(part, Module))

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """Give this module and every one inside it, with dotted names; its own name is empty."""
        yield prefix, self
        for name, part in self.named_parts():
            yield from part.named_modules(f"{prefix}.{name}" if prefix else name)

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Give every parameter with its dotted name."""
        for prefix, module in self.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, Tensor) and value.requires_grad:
                    yield (f"{prefix}.{name}" if prefix else name), value

    def parameters(self) -> list[Tensor]:
        """Give every parameter, in the order of :meth:`named_parameters`."""
        return [parameter for _, parameter in self.named_parameters()]

    def zero_grad(self) -> None:
        """Forget the gradients: every parameter's `grad` becomes None, as torch does by default."""
        for parameter in self.parameters():
            parameter.grad = None

    def to(self, dtype: str) -> Module:
        """Convert the parameters in place to ``"float16"`` (each rounded once) or ``"float32"`` (exact)."""
        for parameter in self.parameters():
            parameter.data = round_array(parameter.data, dtype)
            parameter.grad = None
        return self
