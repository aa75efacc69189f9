"""The training loop, for users."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from fp16sim.autograd.policy import Policy
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn import Module
from fp16sim.training.digest import digest
from fp16sim.training.interrupts import deferred_interrupt
from fp16sim.training.loop import Loop
from fp16sim.training.results import Run
from fp16sim.training.step import Observer, Optimizer

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
    loss_function: Callable[[Any, Any], Tensor] | None = None,
    loss_factor: float = 1.0,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    accumulate: int = 1,
    schedule: Callable[[int], float] | None = None,
    measure: bool = True,
    save_to: str | Path | None = None,
    save_every: int | None = None,
    resume: bool = False,
) -> Run:
    """Train a model for a number of steps.

    Parameters
    ----------
    model : Module
        Trained in place, in training mode. Its parameters are first converted to the policy's format for them.
    data : iterable of (inputs, targets)
        Batches; read again from the start when it ends early. Data with a method ``at(number)`` is asked for batches
        by number, from 0. Integer arrays (tokens) are handed to the model as they are, other inputs as tensors, the
        elements of a tuple (sequences, lengths) one by one.
    policy : Policy or str
    scaler : Scaler, TensorScaler or str
        A string is read by :func:`fp16sim.scaling.parse`. Scales of layers are put in and taken out where layers begin
        and end on the way back; layers are the modules with parameters of their own, by their dotted names.
    optimizer : Optimizer
        Made with ``model.parameters()``.
    steps : int
        Of the whole run; skipped steps count.
    observers : sequence of callables
        Each is called with an :class:`~fp16sim.training.step.Observed` after every step that is taken now.
    loss_function : callable, optional
        ``(output, targets) -> Tensor``. Default: cross-entropy.
    loss_factor : float
        Multiplies the loss before the loss scale does. A small power of two stands for a network whose
        gradients are that much smaller.
    clip_norm, clip_value : float, optional
        To which the norm of all gradients together, and each of their elements, is limited, after the scale is
        divided out: :func:`fp16sim.optim.clipping.clip_grad_norm` and `clip_grad_value`, elements first.
    accumulate : int
        Batches to a step. The loss of the step is their mean: each is divided by their number, rounded to its format
        once, and their gradients are added in order, each sum rounded to the format of the parameter. The scale stays
        while they are added; the scaler sees the sums, once.
    schedule : callable, optional
        ``(applied_steps) -> rate``, such as those of :mod:`fp16sim.optim.schedules`, asked before
        every step; a step that is skipped does not count (unless the scaler's `Decision.advance` says so).
    measure : bool
        Whether to measure what becomes of the gradients of activations, which takes another backward pass. Without,
        the shares of each step are NaN and observers see no gradients. Layers inside of :func:`fp16sim.checkpoint`
        are not measured, so that shares, and with them the digest, differ from those without checkpointing.
    save_to : path, optional
        The folder in which the state is saved after the last step, and when Ctrl-C stops the run (then after the step
        that it finds). A finished run that it holds is replaced, without a word, once this one is saved; an unfinished
        one is refused.
    save_every : int, optional
        Save it every so many steps as well: a process that is killed resumes from there.
    resume : bool
        Go on from what `save_to` holds, with the same bits as without the interruption; begin if it holds nothing.

    Returns
    -------
    Run

    Raises
    ------
    ValueError
        If an option cannot be; if the inputs of a batch hold NaN or infinity; if what `save_to` holds is damaged, or
        was saved with other settings, another model (the kinds and options of its layers count) or other data.
    FileExistsError
        If `save_to` holds an unfinished run and `resume` is not set.

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
    >>> print(run)
    steps  applied  skipped  first loss  last loss  final scale        digest
    -----  -------  -------  ----------  ---------  -----------  ------------
    3            3        0     2.75289    2.35752         1024  defe49e6994d
    """
    loop = fit_steps(
        model,
        data,
        policy=policy,
        scaler=scaler,
        optimizer=optimizer,
        steps=steps,
        observers=observers,
        loss_function=loss_function,
        loss_factor=loss_factor,
        clip_norm=clip_norm,
        clip_value=clip_value,
        accumulate=accumulate,
        schedule=schedule,
        measure=measure,
        save_to=save_to,
        save_every=save_every,
        resume=resume,
    )
    waiting: AbstractContextManager[Callable[[], bool]] = deferred_interrupt()
    with nullcontext(lambda: False) if save_to is None else waiting as interrupted:
        for step in loop:
            if interrupted():
                loop.save()
                raise KeyboardInterrupt(f"saved at step {step.step} in {save_to}: go on with resume=True")
    return Run(tuple(loop.history), digest(model, loop.history), model, loop.scaler)


fit_steps = Loop
"""Train as :func:`fit` does, giving each step as soon as it is taken."""
