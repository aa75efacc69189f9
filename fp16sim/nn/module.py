"""What layers have in common: parameters with names, state, and a forward pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fp16sim.autograd.arithmetic import DTYPES, Array, round_array
from fp16sim.autograd.policy import Policy, autocast
from fp16sim.autograd.tensor import Tensor, need_state
from fp16sim.emulator.formats import nearest_name
from fp16sim.nn.capture import current_gates, note_output

__all__ = ["Module"]

Self = TypeVar("Self", bound="Module")
_running: ContextVar[tuple[Any, ...]] = ContextVar("fp16sim_running", default=())  # modules, outermost first


class Module:
    """A layer, or a network of layers. Subclasses define ``forward``.

    Attributes that are tensors are parameters, frozen ones (``requires_grad=False``) too; attributes that are modules
    are parts. Both may be in lists, tuples and dicts, which may hold further ones, and then go by their places and
    keys: ``layers.0``, ``heads.left.weight``. Attributes that are NumPy arrays, or whose names stand in `state`, are
    the rest of the state. All count in the order in which they were assigned.

    What is kept from a forward pass to look at is no parameter: the result of an operation; a tensor without gradient
    that `forward` assigns; and one in a container that was not made with ``requires_grad=True``.

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
        token = _running.set((*_running.get(), self))
        try:
            if self.policy is None:
                output = self.forward(*inputs, **options)
            else:
                with autocast(self.policy):
                    output = self.forward(*inputs, **options)
        except (ValueError, TypeError) as error:
            _locate(error, self)
            raise
        finally:
            _running.reset(token)
        if around is not None:
            output = around.leaving(self, output)
        note_output(self, output)
        return output

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Compute the output; each kind of layer defines its own."""
        raise NotImplementedError(f"{type(self).__name__} has no forward: define forward(self, x)")

    def __setattr__(self, name: str, value: Any) -> None:
        _check_name(name, value)
        passing = isinstance(value, Tensor) and any(module is self for module in _running.get())
        if passing:
            self.__dict__.setdefault("_passing", set()).add(name)
        else:
            self.__dict__.get("_passing", set()).discard(name)
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        options = [
            f"{name}={value!r}"
            for name, value in vars(self).items()
            if isinstance(value, (bool, int, float, str)) and name != "training" and not name.startswith("_")
        ]
        start = f"{type(self).__name__}({', '.join(options)}"
        parts = [f"({name}): {part!r}".replace("\n", "\n  ") for name, part in self.named_parts()]
        return "\n  ".join([start, *parts]) + ("\n)" if parts else ")")

    if not TYPE_CHECKING:  # type checkers see the names that are there

        def __getattr__(self, name: str) -> Any:
            kind = type(self).__name__
            if name.startswith("_"):
                raise AttributeError(f"{kind} has no {name!r}")
            advice = _HERE.get(name, "assign it in __init__")  # to name and obj Python adds the nearest
            raise AttributeError(f"{kind} has no {name!r}: {advice}", name=name, obj=self)

    def children(self) -> Iterator[Module]:
        """Give the modules directly inside this one."""
        return (part for _, part in self.named_parts())

    def named_parts(self) -> Iterator[tuple[str, Module]]:
        """Give the modules directly inside this one, with their names."""
        for name, value in self._named_values():
            if isinstance(value, Module):
                yield name, value

    def own_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Give the parameters that belong to this module itself and to none of its parts, with their names."""
        passing = self.__dict__.get("_passing", ())
        for name, value in self._named_values():
            if isinstance(value, Tensor) and value.is_leaf:
                lasting = value.trainable or (name in vars(self) and name not in passing)
                if lasting or value.requires_grad:
                    yield name, value

    def _named_values(self) -> Iterator[tuple[str, Any]]:
        """Give every attribute, and what stands in lists, tuples and dicts one by one, with dotted names."""
        for name, value in vars(self).items():
            single = name == "modules"  # the parts of a Sequential go by their positions
            yield from _spread("" if single else name, value)

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """Give this module and every one inside it, with dotted names; its own name is empty.

        Raises
        ------
        ValueError
            If a module is inside itself.
        """
        yield from _walk(prefix, self, ())

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Give every parameter with its dotted name, frozen or not; one that is shared, under its first name only."""
        seen: set[int] = set()
        for prefix, module in self.named_modules():
            for name, value in module.own_parameters():
                if id(value) not in seen:
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
            array = value.data if isinstance(value, Tensor) else value
            if not isinstance(array, np.ndarray) or array.dtype == dtype or array.dtype.kind in "iub":
                continue
            if isinstance(value, Tensor):
                value.data, value.grad = round_array(array, dtype), None
            else:
                setattr(module, name, round_array(array, dtype))
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
        return {name: np.array(_bare(value)) for name, _, _, value in self._named_state()}

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
        for array, (_, module, attribute, old) in zip(self._converted(saved), own, strict=True):
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
            if np.shape(saved[name]) != np.shape(_bare(value)):
                raise ValueError(
                    f"the state of another model: {name!r} has shape {np.shape(saved[name])} there and "
                    f"{np.shape(_bare(value))} here; make the model with the sizes that it was saved with"
                )
        return [_as_kept(name, saved[name], np.asarray(_bare(value))) for name, _, _, value in own]

    def _named_state(self) -> Iterator[tuple[str, Module, str, Any]]:
        """Give each tensor, array and counter: its dotted name, its module, its name there, and itself."""
        seen: set[int] = set()
        for prefix, module in self.named_modules():
            parameters = dict(module.own_parameters())
            for name, value in module._named_values():
                if name in parameters:
                    kept = id(value) not in seen
                    seen.add(id(value))
                else:
                    kept = name in module.state or (isinstance(value, np.ndarray) and name in vars(module))
                if kept:
                    yield (f"{prefix}.{name}" if prefix else name), module, name, value


# Names of torch.nn.Module that are others here.
_HERE = {
    "add_module": "assign it: setattr(self, name, module)",
    "apply": "write a loop over named_modules()",
    "buffers": "assign an array, self.name = array, and state_dict() has it",
    "cuda": "the simulator runs on the CPU; leave it out",
    "double": "write to('float64')",
    "float": "write to('float32')",
    "half": "write to('float16')",
    "modules": "write named_modules(), which gives names too",
    "named_buffers": "assign an array, self.name = array, and state_dict() has it",
    "named_children": "write named_parts()",
    "register_buffer": "assign an array: self.name = array",
    "register_forward_hook": "use fs.nn.capture_outputs()",
    "register_parameter": "assign a tensor: self.name = fs.Tensor(array, requires_grad=True)",
    "requires_grad_": "assign requires_grad of each of parameters()",
}


def _check_name(name: str, value: Any) -> None:
    """Refuse an attribute that would take the place of what every module has."""
    if name == "training":
        taken = None if isinstance(value, bool) else "True or False, which train() and eval() set"
    elif name == "policy":
        good = value is None or isinstance(value, (Policy, str))
        taken = None if good else "the policy of the layer: fs.Policy, its name, or None"
    elif name == "state":
        good = isinstance(value, tuple) and all(isinstance(each, str) for each in value)
        taken = None if good else "a tuple with names of counters that are saved"
    elif callable(getattr(Module, name, None)):  # a function may take its place, a part may not
        good = callable(value) and not isinstance(value, Module)
        taken = None if good else "a method of every module"
    else:
        return
    if taken is not None:
        raise TypeError(
            f"the attribute {name!r} of a module is {taken}, and cannot be a {type(value).__name__}: take another "
            f"name, such as {name}_"
        )


def _spread(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, (list, tuple, dict)):
        yield name, value
        return
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _spread(f"{name}.{key}" if name else str(key), part)


def _bare(value: Any) -> Any:
    return value.data if isinstance(value, Tensor) else value


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
