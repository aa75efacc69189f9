"""The training loop."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from fp16sim.autograd.policy import Policy, as_policy
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn import CrossEntropyLoss, Module
from fp16sim.scaling.registry import as_scaler
from fp16sim.scaling.state import check_number
from fp16sim.training.results import Run, Step
from fp16sim.training.step import Observer, Optimizer, train_step

__all__ = ["digest", "fit", "fit_steps"]


def fit(
    model: Module,
    data: Iterable[tuple[Any, Any]],
    *,
    policy: Policy | str = "float32",
    scaler: Any = "none",
    optimizer: Optimizer,
    steps: int,
    observers: Sequence[Observer] = (),
    loss_function: Callable[[Tensor, Any], Tensor] | None = None,
    loss_factor: float = 1.0,
) -> Run:
    """Train a model for a number of steps.

    Parameters
    ----------
    model : Module
        Trained in place. Its parameters are first converted to the policy's format for them.
    data : iterable of (inputs, labels)
        Batches; read again from the start when it ends early.
    policy : Policy or str
    scaler : Scaler or str
        A string is read by :func:`fp16sim.scaling.parse`.
    optimizer : Optimizer
        Made with ``model.parameters()``.
    steps : int
        Skipped steps count.
    observers : sequence of callables
        Each is called with an :class:`~fp16sim.training.step.Observed` after every step.
    loss_function : callable, optional
        ``(output, labels) -> Tensor``. Default: cross-entropy.
    loss_factor : float
        Multiplies the loss before the loss scale does. A small power of two stands for a network whose
        gradients are that much smaller.

    Returns
    -------
    Run

    Examples
    --------
    >>> from fp16sim.optim import SGD
    >>> from fp16sim.training.data import Batches, digits
    >>> from fp16sim.training.models import mlp
    >>> model = mlp(hidden=16, layers=1)
    >>> batches = Batches(digits()[0], 64)
    >>> run = fit(model, batches, policy="mixed_float16", scaler="static,scale=1024",
    ...           optimizer=SGD(model.parameters(), lr=0.1), steps=3)
    >>> [step.applied for step in run.history]
    [True, True, True]
    """
    loop = Loop(model, data, policy, scaler, optimizer, steps, observers, loss_function, loss_factor)
    history = tuple(loop)
    return Run(history, digest(model, history), model, loop.scaler)


def fit_steps(
    model: Module,
    data: Iterable[tuple[Any, Any]],
    *,
    policy: Policy | str = "float32",
    scaler: Any = "none",
    optimizer: Optimizer,
    steps: int,
    observers: Sequence[Observer] = (),
    loss_function: Callable[[Tensor, Any], Tensor] | None = None,
    loss_factor: float = 1.0,
) -> Loop:
    """Train as :func:`fit` does, giving each step as soon as it is taken.

    Returns
    -------
    Loop
        An iterator of :class:`~fp16sim.training.results.Step`, with the current `scaler` as an attribute.
    """
    return Loop(model, data, policy, scaler, optimizer, steps, observers, loss_function, loss_factor)


class Loop:
    """An iterator over training steps. See :func:`fit` for the parameters.

    Attributes
    ----------
    scaler : Scaler
        The scaler after the steps taken so far.
    """

    def __init__(
        self,
        model: Module,
        data: Iterable[tuple[Any, Any]],
        policy: Policy | str,
        scaler: Any,
        optimizer: Optimizer,
        steps: int,
        observers: Sequence[Observer] = (),
        loss_function: Callable[[Tensor, Any], Tensor] | None = None,
        loss_factor: float = 1.0,
    ) -> None:
        if isinstance(steps, bool) or not isinstance(steps, (int, np.integer)) or steps < 1:
            raise ValueError(f"steps={steps!r}: training takes 1 step or more; pass a positive integer")
        check_number("loss_factor", loss_factor, above=0)
        self.policy = as_policy(policy)
        self.scaler = as_scaler(scaler)
        own = {id(parameter) for parameter in model.parameters()}
        if not all(id(parameter) in own for parameter in optimizer.parameters):
            raise ValueError(
                "the optimizer holds parameters of another model: make it with model.parameters()"
            )
        model.to(self.policy.parameters)
        self._model, self._data, self._optimizer = model, data, optimizer
        self._steps, self._observers, self._factor = int(steps), tuple(observers), loss_factor
        self._loss = loss_function or CrossEntropyLoss()
        self._batches = _cycle(data)
        self._taken = 0

    def __iter__(self) -> Iterator[Step]:
        return self

    def __next__(self) -> Step:
        if self._taken == self._steps:
            raise StopIteration
        step, self.scaler = train_step(
            self._taken + 1,
            self._model,
            self._loss,
            next(self._batches),
            policy=self.policy,
            scaler=self.scaler,
            optimizer=self._optimizer,
            loss_factor=self._factor,
            observers=self._observers,
        )
        self._taken += 1
        return step


def digest(model: Module, history: Sequence[Step]) -> str:
    """Give the SHA-256 of a model's parameters and of a history, in hexadecimal.

    Parameters count with name, dtype, shape and bits, little-endian; steps with every field. A NaN counts as
    one value, since its sign differs between processors.
    """
    state = hashlib.sha256()
    for name, parameter in model.named_parameters():
        array = parameter.data
        array = np.where(np.isnan(array), array.dtype.type(np.nan), array)
        state.update(f"{name} {array.dtype.name} {array.shape}\n".encode())
        state.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes())
    for step in history:
        for value in (step.loss, step.scale, step.zero, step.flushed, step.survive):
            state.update(struct.pack("<d", math.nan if math.isnan(value) else value))
        state.update(struct.pack("<q??", step.step, step.applied, step.overflow))
    return state.hexdigest()


def _cycle(data: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    while True:
        empty = True
        for batch in data:
            empty = False
            yield batch
        if empty:
            raise ValueError(
                "the data ran out of batches: pass an iterable that can be read again, such as a list"
            )
