"""The loop over training steps, which saves its state and takes one up again."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np

from fp16sim.autograd.policy import Policy, as_policy
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn import CrossEntropyLoss, Module
from fp16sim.scaling.registry import as_scaler
from fp16sim.scaling.state import check_number, restored_scaler, saved_scaler
from fp16sim.scaling.wording import a_kind
from fp16sim.training.digest import digest, digest_of
from fp16sim.training.files import prepare_folder
from fp16sim.training.results import Step
from fp16sim.training.saving import STATE_FILE, SavedRun, check_settings, fingerprint, read_run, write_run
from fp16sim.training.settings import described
from fp16sim.training.step import Observer, Optimizer, check_batch_values, train_step

__all__ = ["Loop"]


class Loop:
    """Train step by step, giving each :class:`~fp16sim.training.results.Step` as soon as it is taken.

    The parameters are those of :func:`fp16sim.training.fit.fit`, which takes all the steps.

    Attributes
    ----------
    scaler : Scaler
        The scaler after the steps taken so far.
    history : list of Step
        All steps taken so far, those before a resumption included.
    applied : int
        Steps by which the schedule has moved.
    """

    def __init__(
        self,
        model: Module,
        data: Iterable[tuple[Any, Any]],
        *,
        optimizer: Optimizer,
        steps: int,
        policy: Policy | str = "float32",
        scaler: Any = "none",
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
    ) -> None:
        _check_kinds(model, optimizer)
        observers = _functions(observers)
        _check_count("steps", steps, "training takes 1 step or more")
        _check_count("accumulate", accumulate, "a step takes 1 batch or more")
        check_number("loss_factor", loss_factor, above=0)
        for name, limit in (("clip_norm", clip_norm), ("clip_value", clip_value)):
            if limit is not None:
                check_number(name, limit, above=0)
        for name, function in (("loss_function", loss_function), ("schedule", schedule)):
            if function is not None and not callable(function):
                raise TypeError(f"{name} is a {type(function).__name__}: pass a function, or leave it out")
        self.policy = as_policy(policy)
        self.scaler = as_scaler(scaler)
        self.history: list[Step] = []
        self.applied = 0
        _check_own(model, optimizer)
        self.model, self._optimizer, self._steps = model, optimizer, int(steps)
        self._data, self._accumulate, self._schedule = data, int(accumulate), schedule
        self._observers, self._measure, self._factor = observers, bool(measure), loss_factor
        self._clip_norm, self._clip_value = clip_norm, clip_value
        self._loss = loss_function or CrossEntropyLoss()
        self._last_batch: Any = None
        self._inside = False
        if save_to is not None and not str(save_to).strip():
            raise ValueError(f"save_to={save_to!r}: the state goes into a folder; name one, such as 'run'")
        self._folder = None if save_to is None else Path(save_to)
        self._save_every = self._steps
        if save_every is not None:
            _check_count("save_every", save_every, "the state is saved every so many steps")
            self._save_every = int(save_every)
        if self._folder is None and (resume or save_every is not None):
            raise ValueError("save_every and resume need a folder: pass save_to=")
        self._batches = _from(data, 0)
        self._settings: dict[str, Any] = {}
        saved: SavedRun | None = None
        if self._folder is not None:
            prepare_folder(self._folder)
            self._settings = json.loads(json.dumps(self._fixed_settings(), default=_plain))
            saved = self._saved(self._folder, resume)
        # Nothing above has changed the model or the optimizer, and nothing below is refused (but by an optimizer of
        # one's own without check_state).
        model.to(self.policy.parameters)
        if saved is not None:
            model.load_state_dict(saved.model)
            optimizer.load_state_dict(saved.optimizer)  # type: ignore[attr-defined]
            self.history, self.applied = list(saved.history), saved.applied

    def __iter__(self) -> Iterator[Step]:
        return self

    def __next__(self) -> Step:
        taken = len(self.history)
        if taken >= self._steps:
            raise StopIteration
        if not self.model.training:  # whoever evaluated in between left it so
            self.model.train()
        window = []
        for number in range(taken * self._accumulate, (taken + 1) * self._accumulate):
            window.append(_pair(next(self._batches), number))
            check_batch_values(window[-1][0], number)
        if self._schedule is not None:
            self._optimizer.lr = _rate(self._schedule, self.applied)  # type: ignore[attr-defined]
        self._inside = True
        step, self.scaler, advance = train_step(
            taken + 1,
            self.model,
            self._loss,
            *window,
            policy=self.policy,
            scaler=self.scaler,
            optimizer=self._optimizer,
            loss_factor=self._factor,
            clip_norm=self._clip_norm,
            clip_value=self._clip_value,
            measure=self._measure,
            observers=self._observers,
        )
        self._inside = False
        self.history.append(step)
        self.applied += advance
        self._last_batch = window[-1]
        if self._folder is not None and (
            len(self.history) % self._save_every == 0 or len(self.history) == self._steps
        ):
            self.save()
        return step

    # -------------------------------------------------------------------------------- saving and taking up

    def save(self) -> Path:
        """Save the state, as it is between two steps, in the folder `save_to`, and give the path of the file."""
        if self._folder is None:
            raise ValueError("nowhere to save to: pass save_to= when the loop is made")
        if self._inside:
            raise RuntimeError(
                f"step {len(self.history) + 1} was broken off inside, so there is no state between two steps: resume "
                "from the one that was saved before"
            )
        run = SavedRun(
            settings=self._settings,
            steps=self._steps,
            applied=self.applied,
            batches=len(self.history) * self._accumulate,
            last_batch=fingerprint(self._last_batch) if self.history else "",
            scaler=saved_scaler(self.scaler),
            digest=digest(self.model, self.history),
            model=self.model.state_dict(),
            optimizer=self._optimizer.state_dict(),  # type: ignore[attr-defined]
            history=tuple(self.history),
        )
        return write_run(self._folder, run)

    def _fixed_settings(self) -> dict[str, Any]:
        """Name everything in which a run that is taken up may not differ from the saved one."""
        saved_scaler(self.scaler)  # refused before the first step
        for name in ("state_dict", "load_state_dict"):
            if not hasattr(self._optimizer, name):
                raise TypeError(
                    f"a {type(self._optimizer).__name__} has no {name}, so the run cannot be saved: define it, or "
                    "leave out save_to"
                )
        policy = {
            f"policy {field.name}": _text(getattr(self.policy, field.name))
            for field in fields(Policy)
            if field.init
        }
        moving = ("lr",) if self._schedule is not None else ()
        kind = getattr(self.scaler, "name", type(self.scaler).__name__)
        options = {
            f"scaler {name}": getattr(self.scaler, name) for name in getattr(self.scaler, "options", ())
        }
        rates = {
            f"optimizer {name}": getattr(self._optimizer, name)
            for name in getattr(self._optimizer, "hyperparameters", ())
            if name not in moving
        }
        return {
            **policy,
            "scaler": kind,
            **options,
            "optimizer": type(self._optimizer).__name__,
            **rates,
            "loss_factor": self._factor,
            "clip_norm": self._clip_norm,
            "clip_value": self._clip_value,
            "accumulate": self._accumulate,
            "measure": self._measure,
            **described("model", self.model),
            **described("loss_function", self._loss),
        }

    def _saved(self, folder: Path, resume: bool) -> SavedRun | None:
        """Give what the folder holds if it fits in every way; without `resume` refuse to write over an unfinished run.

        The scaler and the data go on from there at once; model and optimizer are only compared.
        """
        if not (folder / STATE_FILE).exists():
            return None
        if not resume:
            saved = _readable(folder)
            if saved is not None and not saved.finished:
                raise FileExistsError(
                    f"{folder} holds a run that was saved at step {len(saved.history)} of {saved.steps}: resume it "
                    "(resume=True), remove it, or name another folder"
                )
            return None
        saved = read_run(folder)
        check_settings(saved.settings, self._settings, folder)
        taken = len(saved.history)
        if taken:  # other data are another run, which more steps would not make this one
            self._batches = _from(self._data, saved.batches - 1)
            self._last_batch = _pair(next(self._batches), saved.batches - 1)
            if fingerprint(self._last_batch) != saved.last_batch:
                raise ValueError(
                    f"batch {saved.batches - 1} of the data is not what the run in {folder} was trained on: pass the "
                    "same data in the same order (the same seed)"
                )
            self._check_schedule(saved)
        if taken > self._steps:
            raise ValueError(
                f"{folder} was saved at step {taken}, and steps={self._steps}: ask for {taken} steps or more"
            )
        try:
            self.model.check_state(saved.model)
            getattr(self._optimizer, "check_state", lambda state: None)(saved.optimizer)
        except ValueError as error:
            raise ValueError(f"{folder}: {error}") from error
        weights = {name: saved.model[name] for name, _ in self.model.named_parameters()}
        if digest_of(weights, saved.history) != saved.digest:
            raise ValueError(
                f"{folder / STATE_FILE} holds other weights or another history than the run of digest "
                f"{saved.digest[:8]} had: take the file that the run wrote, or start the run again in another folder"
            )
        self.scaler = restored_scaler(self.scaler, saved.scaler)
        return saved

    def _check_schedule(self, saved: SavedRun) -> None:
        """Refuse a schedule that does not give the rate of the last step: that of one count less, if it moved."""
        rate = saved.optimizer.get(f"{type(self._optimizer).__name__}.lr")
        if self._schedule is None or rate is None:
            return
        rates = [_rate(self._schedule, applied) for applied in (saved.applied, max(saved.applied - 1, 0))]
        if rate not in rates:
            raise ValueError(
                f"{self._folder} was saved with a rate of {rate!r} at step {len(saved.history)}, and the schedule "
                f"gives {rates[-1]!r}: pass the schedule of the saved run, or start another in another folder"
            )


def _readable(folder: Path) -> SavedRun | None:
    try:
        return read_run(folder)
    except ValueError:
        return None  # damaged or foreign: nothing is lost when it is replaced


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, (np.generic, np.ndarray)) else repr(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


def _check_count(name: str, value: Any, rule: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name}={value!r}: {rule}; pass a positive integer")


def _check_kinds(model: object, optimizer: object) -> None:
    if not isinstance(model, Module):
        raise TypeError(f"the model is {a_kind(model)}: pass a Module, such as fs.nn.Linear(64, 10)")
    if not (hasattr(optimizer, "parameters") and callable(getattr(optimizer, "step", None))):
        what = "a class" if isinstance(optimizer, type) else a_kind(optimizer)
        raise TypeError(f"the optimizer is {what}: pass one such as fs.optim.SGD(model.parameters(), lr=0.1)")


def _functions(observers: Any) -> tuple[Observer, ...]:
    if isinstance(observers, str) or not isinstance(observers, Iterable):
        raise TypeError(f"observers is {a_kind(observers)}: pass a list of functions, such as [print]")
    functions = tuple(observers)
    for observer in functions:
        if not callable(observer):
            raise TypeError(f"an observer is {a_kind(observer)}: pass functions that take what a step showed")
    return functions


def _check_own(model: Module, optimizer: Optimizer) -> None:
    own = {id(parameter) for parameter in model.parameters()}
    for position, parameter in enumerate(optimizer.parameters):
        if id(parameter) not in own:
            raise ValueError(
                f"the optimizer holds parameters of another model (number {position}, of shape {parameter.shape}): "
                "make it with model.parameters()"
            )


def _rate(schedule: Callable[[int], float], applied: int) -> float:
    rate = schedule(applied)
    if not (isinstance(rate, (int, float, np.number)) and math.isfinite(rate) and rate >= 0):
        raise ValueError(
            f"the schedule gave {rate!r} after {applied} applied steps: a rate is finite and not negative; correct it"
        )
    return float(rate)


def _pair(batch: Any, number: int) -> tuple[Any, Any]:
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        what = f"{len(batch)} parts" if isinstance(batch, (tuple, list)) else f"a {type(batch).__name__}"
        raise ValueError(f"batch {number} of the data is {what}: each is a pair (inputs, targets)")
    return batch[0], batch[1]


def _from(data: Iterable[tuple[Any, Any]], first: int) -> Iterator[tuple[Any, Any]]:
    """Give batch number `first` and those after it: by number where the data has ``at``, else by reading on."""
    at = getattr(data, "at", None)
    if callable(at):
        return map(at, count(first))
    if not isinstance(data, Iterable):
        raise TypeError(
            f"the data is a {type(data).__name__}: pass batches (inputs, targets), such as a list of them, or Batches"
        )
    return islice(_cycle(data), first, None)


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
