"""What layers have in common: parameters with names, state, and a forward pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from fp16sim.autograd.arithmetic import DTYPES, Array, round_array
from fp16sim.autograd.policy import Policy, autocast
from fp16sim.autograd.tensor import Tensor, need_state
from fp16sim.emulator.formats import nearest_name
from fp16sim.nn.capture import current_gates, note_output

__all__ = ["Module"]

Self = TypeVar("Self", bound="Module")


class Module:
    """A layer, or a network of layers. Subclasses define ``forward``.

    Attributes that are tensors with ``requires_grad=True`` are parameters; attributes that are NumPy arrays, or whose
    names stand in `state`, are the rest of the state; attributes that are modules, or lists of modules, are parts. All
    count in the order in which they were assigned.

    Attributes
    ----------
    training : bool
        Whether dropout drops and batch normalisation uses the batch; :meth:`train` and :meth:`eval` set it.
    policy : Policy or None
        The policy of this layer, as Keras has one for each layer; None: that of the block around it.
    state : tuple of str
        Names of attributes that are integers and are saved, such as a counter.

    Examples
    --------
    >>> from fp16sim.nn import Linear, ReLU, Sequential
    >>> model = Sequential(Linear(4, 3), ReLU(), Linear(3, 2))
    >>> [name for name, parameter in model.named_parameters()]
    ['0.weight', '0.bias', '2.weight', '2.bias']
    """

    training: bool = True
    policy: Policy | None = None
    state: tuple[str, ...] = ()

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Run `forward`, between the :func:`gates` if there are any, and let :func:`capture_outputs` see the result."""
        around = current_gates()
        if around is not None:
            inputs = around.entering(self, inputs)
        try:
            if self.policy is None:
                output = self.forward(*inputs, **options)
            else:
                with autocast(self.policy):
                    output = self.forward(*inputs, **options)
        except (ValueError, TypeError) as error:
            _locate(error, self)
            raise
        if around is not None:
            output = around.leaving(self, output)
        note_output(self, output)
        return output

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Compute the output; each kind of layer defines its own."""
        raise NotImplementedError(f"{type(self).__name__} has no forward: define forward(self, x)")

    def named_parts(self) -> Iterator[tuple[str, Module]]:
        """Give the modules directly inside this one, with their names."""
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield name, value
            elif isinstance(value, (list, tuple)):
                single = name == "modules"  # the parts of a Sequential go by their positions
                yield from (
                    (str(i) if single else f"{name}.{i}", part)
                    for i, part in enumerate(value)
                    if isinstance(part, Module)
                )

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """Give this module and every one inside it, with dotted names; its own name is empty.

        Raises
        ------
        ValueError
            If a module is inside itself.
        """
        yield from _walk(prefix, self, ())

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Give every parameter with its dotted name; one that is shared, under its first name only."""
        seen: set[int] = set()
        for prefix, module in self.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, Tensor) and value.requires_grad and id(value) not in seen:
                    seen.add(id(value))
                    yield (f"{prefix}.{name}" if prefix else name), value

    def parameters(self) -> list[Tensor]:
        """Give every parameter, in the order of :meth:`named_parameters`."""
        return [parameter for _, parameter in self.named_parameters()]

    def zero_grad(self) -> None:
        """Forget the gradients: every parameter's `grad` becomes None, as torch does by default."""
        for parameter in self.parameters():
            parameter.grad = None

    def to(self: Self, dtype: str) -> Self:
        """Convert parameters and arrays of the state in place to a format of tensors, each rounded once at most."""
        for _, module, name, value in list(self._named_state()):
            if (
                getattr(value, "dtype", dtype) == dtype
                or not isinstance(value, np.ndarray)
                or value.dtype.kind in "iub"
            ):
                continue
            owner = getattr(module, name)
            if isinstance(owner, Tensor):
                owner.data, owner.grad = round_array(value, dtype), None
            else:
                setattr(module, name, round_array(value, dtype))
        return self

    def train(self: Self, mode: bool = True) -> Self:
        """Set `training` here and in every part."""
        for _, module in self.named_modules():
            module.training = mode
        return self

    def eval(self: Self) -> Self:
        """Unset `training` here and in every part."""
        return self.train(False)

    def state_dict(self) -> dict[str, Array]:
        """Give a copy of every parameter, array and counter, by dotted name."""
        return {name: np.array(value) for name, _, _, value in self._named_state()}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` of a model like this one gave.

        Raises
        ------
        TypeError
            If `saved` maps no names to values.
        ValueError
            If a name is missing or unknown, or a shape or a kind of number differs; nothing has changed then. Another
            format is converted, rounding once at most.
        """
        own = list(self._named_state())
        for array, (_, module, attribute, _) in zip(self._converted(saved), own, strict=True):
            old = getattr(module, attribute)
            if isinstance(old, Tensor):
                old.data = array
            else:
                setattr(module, attribute, array if isinstance(old, np.ndarray) else int(array))

    def check_state(self, saved: Mapping[str, Any]) -> None:
        """Refuse what :meth:`load_state_dict` refuses, and change nothing."""
        self._converted(saved)

    def _converted(self, saved: Mapping[str, Any]) -> list[Array]:
        """Check a state, and give its arrays in the order and the formats of this model."""
        need_state(saved)
        own = list(self._named_state())
        names = [name for name, *_ in own]
        for name in saved:
            if name not in names:
                raise ValueError(f"the state of another model: it has {name!r}; {nearest_name(name, names)}")
        for name, _, _, value in own:
            if name not in saved:
                raise ValueError(f"the state of another model: it lacks {name!r}; pass all of state_dict()")
            if np.shape(saved[name]) != np.shape(value):
                raise ValueError(
                    f"the state of another model: {name!r} has shape {np.shape(saved[name])} there and "
                    f"{np.shape(value)} here; make the model with the sizes that it was saved with"
                )
        return [_as_kept(name, saved[name], np.asarray(value)) for name, _, _, value in own]

    def _named_state(self) -> Iterator[tuple[str, Module, str, Any]]:
        seen: set[int] = set()
        for prefix, module in self.named_modules():
            for name, value in vars(module).items():
                kept = isinstance(value, np.ndarray) or name in module.state
                if isinstance(value, Tensor) and value.requires_grad and id(value) not in seen:
                    seen.add(id(value))
                    value, kept = value.data, True
                if kept and not isinstance(value, Tensor):
                    yield (f"{prefix}.{name}" if prefix else name), module, name, value


def _walk(prefix: str, module: Module, around: tuple[Module, ...]) -> Iterator[tuple[str, Module]]:
    yield prefix, module
    for name, part in module.named_parts():
        path = f"{prefix}.{name}" if prefix else name
        if part is module or any(part is outer for outer in around):
            raise ValueError(
                f"module {path!r} is a {type(part).__name__} that it is inside of: its parameters would have no end of "
                "names; remove that attribute, or keep it in a function"
            )
        yield from _walk(path, part, (*around, module))


def _as_kept(name: str, given: Any, kept: Array) -> Array:
    """Copy an array of a saved state into the dtype of the one that it replaces."""
    array = np.array(given)
    real = (array.dtype.kind in "fiub" or array.dtype in DTYPES.values()) and kept.dtype in DTYPES.values()
    if not real and array.dtype.kind != kept.dtype.kind:
        raise ValueError(
            f"the state of another model: {name!r} is {array.dtype} there and {kept.dtype} here; pass all of "
            "state_dict() unchanged"
        )
    return round_array(array, kept.dtype) if real else array.astype(kept.dtype)


def _locate(error: Exception, module: Module) -> None:
    """Put the dotted name of the layer that failed in front of the message, as the error passes through its parents."""
    path, inner, message = getattr(error, "fp16sim_path", ([], None, str(error)))
    if inner is module:
        return
    if inner is not None:
        path = [next((name for name, part in module.named_parts() if part is inner), "?"), *path]
    error.fp16sim_path = path, module, message  # type: ignore[attr-defined]
    where = ".".join(path)
    error.args = (f"layer {where!r}: {message}" if where else f"{message}",)
