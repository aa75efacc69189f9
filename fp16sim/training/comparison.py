"""The same network trained several times side by side, under different policies and loss scalers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from fp16sim.autograd.policy import Policy
from fp16sim.nn import Module
from fp16sim.nn.random import uniform_integers
from fp16sim.optim import SGD
from fp16sim.recording.histogram import Histogram, Shares
from fp16sim.scaling.registry import parse
from fp16sim.scaling.state import check_number
from fp16sim.training.data import Batches, Split, digits
from fp16sim.training.evaluation import accuracy_on
from fp16sim.training.fit import digest, fit_steps
from fp16sim.training.layer_scales import loss_scale_of
from fp16sim.training.models import mlp
from fp16sim.training.results import RunResult, RunSpec, Step
from fp16sim.training.step import Observed

__all__ = ["DEFAULT_RUNS", "accuracy", "compare", "compare_runs"]

LOSS_FACTOR = 2.0**-17
"""Stands for a network whose gradients are that much smaller than this one's, as those of SSD are."""

DEFAULT_RUNS = (
    RunSpec("float32", "float32", "none"),
    RunSpec("float16 unscaled", "mixed_float16", "none"),
    RunSpec("static 8", "mixed_float16", "static,scale=8"),
    RunSpec("dynamic", "mixed_float16", "torch,init_scale=2**40,growth_interval=30"),
)
"""Float32, and float16 with float32 master weights: without a loss scale, with 8, and with torch's rule."""

Progress = Callable[[RunSpec, Step, int], None]


def compare(
    runs: Sequence[RunSpec] = DEFAULT_RUNS,
    *,
    epochs: int = 12,
    batch_size: int = 64,
    learning_rate: float = 0.05,
    momentum: float = 0.9,
    loss_factor: float = LOSS_FACTOR,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[RunResult]:
    """Train the digit classifier once for each run and give the results, in order.

    Parameters
    ----------
    runs : sequence of RunSpec
    epochs, batch_size : int
        Over 1,400 images, shuffled; the other 397 measure accuracy.
    learning_rate : float
        Divided by `loss_factor` for the optimizer, so that training goes as without the factor.
    momentum : float
    loss_factor : float
        Multiplies the loss. A power of two changes no bit of a float32 run beyond its exponents.
    seed : int
        Fixes the initial weights and the order of examples: the same for every run.
    progress : callable, optional
        Called as ``progress(spec, step, steps)`` after every step.

    Returns
    -------
    list of RunResult

    Examples
    --------
    >>> result, = compare([RunSpec("short", "float32", "none")], epochs=1)
    >>> len(result.history), result.skipped
    (22, 0)
    """
    return list(
        compare_runs(
            runs,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            momentum=momentum,
            loss_factor=loss_factor,
            seed=seed,
            progress=progress,
        )
    )


def compare_runs(
    runs: Sequence[RunSpec] = DEFAULT_RUNS,
    *,
    epochs: int = 12,
    batch_size: int = 64,
    learning_rate: float = 0.05,
    momentum: float = 0.9,
    loss_factor: float = LOSS_FACTOR,
    seed: int = 0,
    progress: Progress | None = None,
) -> Iterator[RunResult]:
    """Give each result of :func:`compare` as soon as its run ends: what is finished survives an interruption.

    Every policy and scaler is checked before the first run starts.
    """
    for spec in runs:
        Policy(spec.policy)
        parse(spec.scaler)
    check_number("loss_factor", loss_factor, above=0)
    uniform_integers(seed, 0)  # refuses an impossible seed
    if isinstance(epochs, bool) or not isinstance(epochs, (int, np.integer)) or epochs < 1:
        raise ValueError(f"epochs={epochs!r}: training takes 1 epoch or more; pass a positive integer")
    training, test = digits()
    batches = Batches(training, batch_size, seed)
    rate = learning_rate / loss_factor
    return _results(runs, batches, test, epochs * batches.per_epoch, rate, momentum, loss_factor, progress)


def accuracy(model: Module, split: Split, policy: Policy | str) -> float:
    """Give the share of a split that a model labels correctly under a policy; NaN is never correct."""
    return accuracy_on(model, [(split.images, split.labels)], policy)


def _results(
    runs: Sequence[RunSpec],
    batches: Batches,
    test: Split,
    steps: int,
    rate: float,
    momentum: float,
    loss_factor: float,
    progress: Progress | None,
) -> Iterator[RunResult]:
    baseline: Histogram | None = None
    for spec in runs:
        model = mlp(seed=batches.seed)
        histogram = Histogram()
        loop = fit_steps(
            model,
            batches,
            policy=spec.policy,
            scaler=spec.scaler,
            optimizer=SGD(model.parameters(), lr=rate, momentum=momentum),
            steps=steps,
            observers=[_collector(histogram)],
            loss_factor=loss_factor,
        )
        history = []
        for step in loop:
            history.append(step)
            if progress is not None:
                progress(spec, step, steps)
        if baseline is None and spec.policy == "float32":
            baseline = histogram
        final_scale = loss_scale_of(loop.scaler, history)
        yield RunResult(
            name=spec.name,
            policy=spec.policy,
            scaler=spec.scaler,
            history=tuple(history),
            accuracy=accuracy(model, test, spec.policy),
            shares=_shares(baseline, final_scale, history),
            final_scale=final_scale,
            skipped=sum(not step.applied for step in history),
            digest=digest(model, history),
            histogram=histogram,
        )


def _collector(histogram: Histogram) -> Callable[[Observed], None]:
    def collect(observed: Observed) -> None:
        if observed.step.applied:
            histogram.add(np.concatenate([array.ravel() for array in observed.exact.values()]))

    return collect


def _shares(baseline: Histogram | None, scale: float, history: Sequence[Step]) -> Shares:
    """Give the shares of the float32 run's gradients at a scale, or else what the steps themselves saw."""
    if baseline is not None and math.isfinite(scale) and math.frexp(scale)[0] == 0.5:
        return baseline.shares(scale)
    applied = [step for step in history if step.applied]
    if not applied:
        return Shares(math.nan, math.nan, math.nan)
    count = len(applied)
    return Shares(
        sum(step.zero for step in applied) / count,
        sum(step.flushed for step in applied) / count,
        sum(step.survive for step in applied) / count,
    )
