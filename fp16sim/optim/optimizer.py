"""What optimizers have in common: parameters, a rate, a step, and a state that is saved and taken over."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from fp16sim.autograd.arithmetic import Arithmetic, Array, round_array
from fp16sim.autograd.tensor import Tensor, need_state
from fp16sim.emulator.formats import nearest_name

__all__ = ["Optimizer", "RepeatedProduct", "check_flag", "check_rate"]


class Optimizer(ABC):
    """Base of the optimizers. State and arithmetic have the format of each parameter.

    A subclass names its numbers in `hyperparameters` and its lists in `buffers` and `counts`, and defines
    :meth:`moved`.

    Parameters
    ----------
    parameters : sequence of Tensor
        Each once. One that is frozen (``requires_grad=False``) gets no gradient, so it does not move.
    lr : float
        Learning rate, finite and not negative.

    Attributes
    ----------
    parameters : list of Tensor
    lr : float
        May be assigned between steps; schedules do that.

    Raises
    ------
    ValueError
        If there are no parameters, none takes a gradient, one occurs twice or is a result, or `lr` cannot be a rate.

    Examples
    --------
    >>> class SignDescent(Optimizer):  # moves by lr, whatever the size of the gradient
    ...     def moved(self, position, weight, gradient, arithmetic):
    ...         rate = arithmetic.constant(self.lr, weight)
    ...         return arithmetic.subtract(weight, np.copysign(rate, gradient))
    >>> weight = Tensor([1.0, 1.0], requires_grad=True)
    >>> SignDescent([weight], lr=0.25).step([np.float32([3.0, -0.1])])
    >>> weight.data
    array([0.75, 1.25], dtype=float32)
    """

    hyperparameters: ClassVar[tuple[str, ...]] = ("lr",)
    """Attributes that are numbers: shown, saved, and taken over."""

    buffers: ClassVar[tuple[str, ...]] = ()
    """Attributes that are lists with an array or None for each parameter."""

    counts: ClassVar[tuple[str, ...]] = ()
    """Attributes that are lists with an integer for each parameter."""

    def __init__(self, parameters: Sequence[Tensor], lr: float) -> None:
        if isinstance(parameters, Tensor) or not isinstance(parameters, Iterable):
            raise TypeError(
                f"parameters is a {type(parameters).__name__}: pass model.parameters(), or a list such as [tensor]"
            )
        self.parameters = list(parameters)
        if not self.parameters:
            raise ValueError("no parameters: pass model.parameters() of a model that has some")
        for position, parameter in enumerate(self.parameters):
            if not isinstance(parameter, Tensor):
                raise TypeError(
                    f"parameter {position} is a {type(parameter).__name__}: pass model.parameters()"
                )
            if not parameter.is_leaf:
                raise ValueError(
                    f"parameter {position} is the result of an operation, and moving it changes nothing: pass what "
                    "it was made from"
                )
        if not any(parameter.requires_grad for parameter in self.parameters):
            raise ValueError("no parameter takes a gradient: make those that move with requires_grad=True")
        if len({id(parameter) for parameter in self.parameters}) < len(self.parameters):
            raise ValueError("a parameter occurs twice: it would move twice a step; pass each once")
        self.lr = lr
        for name in self.buffers:
            setattr(self, name, [None] * len(self.parameters))
        for name in self.counts:
            setattr(self, name, [0] * len(self.parameters))

    def __setattr__(self, name: str, value: Any) -> None:
        # NumPy's numbers would compute in their own format: 1 - np.float32(0.9) is no binary64 number.
        super().__setattr__(name, value.item() if isinstance(value, np.generic) else value)

    @property
    def lr(self) -> float:
        """The learning rate, a binary64 number; each step rounds what it makes of it to the format once."""
        return self._lr

    @lr.setter
    def lr(self, lr: float) -> None:
        check_rate("lr", lr, "a learning rate is finite and not negative; try 0.05")
        self._lr = lr

    def __repr__(self) -> str:
        count = len(self.parameters)
        shown = ", ".join(f"{name}={value!r}" for name, value in self.shown().items())
        return f"{type(self).__name__}({count} parameter{'s' * (count > 1)}, {shown})"

    def shown(self) -> dict[str, Any]:
        """Give what the repr lists."""
        return {name: getattr(self, name) for name in self.hyperparameters}

    @abstractmethod
    def moved(self, position: int, weight: Array, gradient: Array, arithmetic: Arithmetic) -> Array:
        """Give the new value of a parameter, and update the state at its position.

        Both arrays have the dtype of the parameter.
        """

    def zero_grad(self) -> None:
        """Forget the gradients: every parameter's `grad` becomes None, as torch does by default."""
        for parameter in self.parameters:
            parameter.grad = None

    def step(self, gradients: Sequence[Array | None] | None = None) -> None:
        """Move every parameter.

        Parameters
        ----------
        gradients : sequence of arrays, optional
            One for each parameter, loss scale divided out, rounded to the format of its parameter; None leaves a
            parameter and its state alone. Default: their `grad`.

        Raises
        ------
        ValueError
            If the number of gradients or a shape differs from the parameters'; nothing has moved then.
        """
        if gradients is None:
            gradients = [parameter.grad for parameter in self.parameters]
        if len(gradients) != len(self.parameters):
            raise ValueError(
                f"{len(gradients)} gradients for {len(self.parameters)} parameters: pass one for each, or None"
            )
        given = [None if gradient is None else np.asarray(gradient) for gradient in gradients]
        for position, (parameter, array) in enumerate(zip(self.parameters, given, strict=True)):
            if array is not None and array.shape != parameter.shape:
                raise ValueError(
                    f"gradient {position} has shape {array.shape} and its parameter {parameter.shape}: "
                    "pass gradients in the order of the parameters"
                )
        arithmetic = Arithmetic()
        with np.errstate(all="ignore"):
            for position, (parameter, array) in enumerate(zip(self.parameters, given, strict=True)):
                if array is None:
                    continue
                for name in self.buffers:  # a parameter that was converted takes its state along
                    buffer = getattr(self, name)
                    if buffer[position] is not None:
                        buffer[position] = round_array(buffer[position], parameter.dtype)
                gradient = round_array(array, parameter.dtype)
                parameter.data = self.moved(position, parameter._array, gradient, arithmetic)

    # ------------------------------------------------------------------------------------------------ saving

    def state_dict(self) -> dict[str, Any]:
        """Give all that a later run needs to go on with the same bits, the parameters excepted.

        Returns
        -------
        dict
            Numbers and copies of arrays. Names begin with the kind of the optimizer; what belongs to a parameter ends
            with its position: ``"SGD.lr"``, ``"SGD.velocity.0"``.
        """
        kind = type(self).__name__
        state: dict[str, Any] = {f"{kind}.{name}": getattr(self, name) for name in self.hyperparameters}
        for position, parameter in enumerate(self.parameters):
            state[f"{kind}.shape.{position}"] = np.array(parameter.shape, np.int64)
            for name in self.counts:
                state[f"{kind}.{name}.{position}"] = getattr(self, name)[position]
            for name in self.buffers:
                array = getattr(self, name)[position]
                if array is not None:
                    state[f"{kind}.{name}.{position}"] = array.copy()
        return state

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` of an optimizer of the same kind gave, hyperparameters included.

        Raises
        ------
        ValueError
            If it belongs to another kind of optimizer or to other parameters: their number, their shapes; or if a
            number in it cannot be. Nothing has changed then.
        """
        for name, value in self._read(saved).items():
            setattr(self, name, value)

    def check_state(self, saved: Mapping[str, Any]) -> None:
        """Refuse what :meth:`load_state_dict` refuses, and change nothing."""
        self._read(saved)

    def _read(self, saved: Mapping[str, Any]) -> dict[str, Any]:
        """Check a state, and give the attributes that it becomes."""
        need_state(saved)
        kind = type(self).__name__
        for name in saved:
            if name.partition(".")[0] != kind:
                raise ValueError(
                    f"the state of another optimizer: it has {name!r} and this is {kind}; load it into one of the "
                    "kind that saved it"
                )
        count = sum(name.startswith(f"{kind}.shape.") for name in saved)
        if count != len(self.parameters):
            raise ValueError(
                f"the state of another model: it has {count} parameters and this optimizer "
                f"{len(self.parameters)}; make the model as it was when saved"
            )
        read = {name: _number(saved, f"{kind}.{name}") for name in self.hyperparameters}
        expected = {f"{kind}.{name}" for name in self.hyperparameters}
        lists: dict[str, list[Any]] = {name: [] for name in (*self.counts, *self.buffers)}
        for position, parameter in enumerate(self.parameters):
            shape = tuple(int(n) for n in _entry(saved, f"{kind}.shape.{position}"))
            if shape != parameter.shape:
                raise ValueError(
                    f"the state of another model: parameter {position} has shape {shape} there and "
                    f"{parameter.shape} here; make the model with the sizes that it was saved with"
                )
            for name in self.counts:
                lists[name].append(_count(saved, f"{kind}.{name}.{position}"))
            for name in self.buffers:
                array = saved.get(f"{kind}.{name}.{position}")
                if array is not None and np.shape(array) != shape:
                    raise ValueError(
                        f"{name} {position} has shape {np.shape(array)} and its parameter {shape}: "
                        "pass all of state_dict() unchanged"
                    )
                lists[name].append(None if array is None else round_array(np.array(array), parameter.dtype))
            expected |= {f"{kind}.{name}.{position}" for name in ("shape", *self.counts, *self.buffers)}
        for name in saved:
            if name not in expected:
                raise ValueError(f"{kind} has no state {name!r}; {nearest_name(name, sorted(expected))}")
        self.check(read)
        return read | lists

    def check(self, values: Mapping[str, Any]) -> None:
        """Refuse hyperparameters that cannot be; the constructor and :meth:`load_state_dict` call it."""
        check_rate("lr", values["lr"], "a learning rate is finite and not negative; try 0.05")


class RepeatedProduct:
    """beta^t by t - 1 multiplications, each rounded to binary64: the same bits on every machine.

    >>> RepeatedProduct()(0.5, 3)
    0.125
    """

    def __init__(self) -> None:
        self._base, self._count, self._value = math.nan, 0, 1.0

    def __call__(self, base: float, count: int) -> float:
        """Continue from the last call where that is possible."""
        if base != self._base or count < self._count:
            self._base, self._count, self._value = base, 0, 1.0
        while self._count < count:
            self._value *= base
            self._count += 1
        return self._value


def check_flag(name: str, value: Any) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name}={value!r}: it is on or off; pass True or False")


def check_rate(name: str, value: Any, rule: str, below: float = math.inf) -> None:
    """Refuse what is no number in [0, below)."""
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not (number and 0 <= value < below):
        raise ValueError(f"{name}={value!r}: {rule}")


def _entry(saved: Mapping[str, Any], name: str) -> Any:
    if name not in saved:
        raise ValueError(f"the state lacks {name!r}: pass all of state_dict()")
    return saved[name]


def _number(saved: Mapping[str, Any], name: str) -> Any:
    return np.asarray(_entry(saved, name)).item()


def _count(saved: Mapping[str, Any], name: str) -> int:
    value = _number(saved, name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(
            f"{name}={value!r} in the state: it counts steps, from 0 on; pass state_dict() unchanged"
        )
    return value
