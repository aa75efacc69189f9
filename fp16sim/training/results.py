"""What training leaves behind, as plain data: a step, a run, and the result of a run in a comparison.

Record types: they depend on NumPy only (through the histogram), so that reports can read them anywhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from fp16sim.recording.histogram import Histogram, Shares
from fp16sim.training.tables import html_table, power_of_two, text_table

__all__ = ["Run", "RunResult", "RunSpec", "Step", "plain", "results_from_json", "results_to_json"]


@dataclass(frozen=True)
class Step:
    """One training step.

    Attributes
    ----------
    step : int
        Counted from 1.
    loss : float
        Mean loss of the batch, before the loss factor and the loss scale.
    scale : float
        The loss scale that multiplied the loss of this step. Layers may have scales of their own.
    applied : bool
        Whether the optimizer moved; False is a skipped step.
    overflow : bool
        Whether a gradient of a parameter was infinite or NaN.
    zero, flushed, survive : float
        Shares of the activation gradients, as in :class:`fp16sim.recording.histogram.Shares`. Gradients in float32 or
        float64 are not flushed: what binary16 would flush of them at this scale counts. NaN where nothing is measured.
    """

    step: int
    loss: float
    scale: float
    applied: bool
    overflow: bool
    zero: float
    flushed: float
    survive: float


@dataclass(frozen=True, repr=False)
class Run:
    """What :func:`fp16sim.training.fit.fit` returns. It prints as a short table, and shows as one in a notebook.

    Attributes
    ----------
    history : tuple of Step
    digest : str
        SHA-256 of the parameters and of the history, in hexadecimal: the same on every machine.
    model : Module
        The trained model (the one that was passed in).
    scaler : Scaler
        The scaler after the last step.
    """

    history: tuple[Step, ...]
    digest: str
    model: Any
    scaler: Any

    def __str__(self) -> str:
        return text_table(_RUN_HEADER, [self._cells()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(_RUN_HEADER, [self._cells()])

    def _cells(self) -> tuple[str, ...]:
        taken = len(self.history)
        applied = sum(step.applied for step in self.history)
        ends = [f"{step.loss:.6g}" for step in (*self.history[:1], *self.history[-1:])] or ["-", "-"]
        scale = self.scaler.scale
        if isinstance(scale, Mapping):  # of layers: the last that the loss had
            scale = self.history[-1].scale if self.history else math.nan
        counts = str(taken), str(applied), str(taken - applied)
        return *counts, *ends, power_of_two(float(scale)), self.digest[:12]

    def table(self, every: int = 1) -> str:
        """Give the steps as text: the first, every so many after it, and the last.

        Parameters
        ----------
        every : int

        Raises
        ------
        ValueError
            If `every` is no positive integer.

        Examples
        --------
        >>> steps = [Step(n, 2.0 / n, 1024.0, n != 2, n == 2, 0.0, 0.0, 1.0) for n in range(1, 7)]
        >>> print(Run(tuple(steps), "ab", None, None).table(every=4))
        step      loss  scale  applied  overflow
        ----  --------  -----  -------  --------
        1            2   1024      yes        no
        5          0.4   1024      yes        no
        6     0.333333   1024      yes        no
        """
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ValueError(f"every={every!r}: the table has every so many steps; pass a positive integer")
        rows = [
            (
                str(step.step),
                f"{step.loss:.6g}",
                power_of_two(step.scale),
                "yes" if step.applied else "no",
                "yes" if step.overflow else "no",
            )
            for place, step in enumerate(self.history)
            if place % every == 0 or place == len(self.history) - 1
        ]
        return text_table(("step", "loss", "scale", "applied", "overflow"), rows)


_RUN_HEADER = ("steps", "applied", "skipped", "first loss", "last loss", "final scale", "digest")


@dataclass(frozen=True)
class RunSpec:
    """One run of a comparison, as a user writes it.

    Attributes
    ----------
    name : str
        The label in tables and pictures.
    policy : str
        The name of a :class:`fp16sim.Policy`.
    scaler : str
        ``NAME[,key=value...]`` as :func:`fp16sim.scaling.parse` reads it.
    """

    name: str
    policy: str
    scaler: str


@dataclass(frozen=True)
class RunResult:
    """What a comparison keeps of one run.

    Attributes
    ----------
    name, policy, scaler : str
        As in :class:`RunSpec`.
    history : tuple of Step
    accuracy : float
        Share of the test images that the trained network labels correctly.
    shares : Shares
        Of the activation gradients of the float32 run, at `final_scale`. Without a float32 run before this
        one, or with a scale between powers of two: means over the applied steps of this run.
    final_scale : float
        The scale after the last update.
    skipped : int
        Steps that were not applied.
    digest : str
        As in :class:`Run`.
    histogram : Histogram
        Exponents of the activation gradients of the applied steps with the loss scale divided out, as a
        float32 backward pass gives them.
    """

    name: str
    policy: str
    scaler: str
    history: tuple[Step, ...]
    accuracy: float
    shares: Shares
    final_scale: float
    skipped: int
    digest: str
    histogram: Histogram

    def to_dict(self) -> dict[str, Any]:
        """Give plain data: the history by columns, numbers that JSON lacks as text ("NaN", "Infinity")."""
        columns = {
            column.name: [plain(getattr(step, column.name)) for step in self.history]
            for column in fields(Step)
        }
        return {
            "name": self.name,
            "policy": self.policy,
            "scaler": self.scaler,
            "history": columns,
            "accuracy": plain(self.accuracy),
            "shares": {key: plain(value) for key, value in vars(self.shares).items()},
            "final_scale": plain(self.final_scale),
            "skipped": self.skipped,
            "digest": self.digest,
            "histogram": self.histogram.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RunResult:
        """Read what :meth:`to_dict` wrote."""
        try:
            columns = [
                [_read(column.type, value) for value in data["history"][column.name]]
                for column in fields(Step)
            ]
            return cls(
                name=str(data["name"]),
                policy=str(data["policy"]),
                scaler=str(data["scaler"]),
                history=tuple(Step(*row) for row in zip(*columns, strict=True)),
                accuracy=float(data["accuracy"]),
                shares=Shares(*(float(data["shares"][share.name]) for share in fields(Shares))),
                final_scale=float(data["final_scale"]),
                skipped=int(data["skipped"]),
                digest=str(data["digest"]),
                histogram=Histogram.from_dict(data["histogram"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a run result ({error!r}): pass what RunResult.to_dict wrote") from error

    def to_json(self) -> str:
        """Give one JSON object; every float reads back to the same bits."""
        return json.dumps(self.to_dict(), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> RunResult:
        """Read what :meth:`to_json` wrote."""
        return cls.from_dict(json.loads(text))


def results_to_json(results: Sequence[RunResult]) -> str:
    """Give a JSON list of results."""
    return json.dumps([result.to_dict() for result in results], allow_nan=False)


def results_from_json(text: str) -> list[RunResult]:
    """Read what :func:`results_to_json` wrote.

    >>> results_from_json(results_to_json([]))
    []
    """
    return [RunResult.from_dict(data) for data in json.loads(text)]


def plain(value: float | int | bool) -> float | int | bool | str:
    """Replace a float that JSON cannot write by text that float() reads."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _read(kind: Any, value: Any) -> Any:
    """Undo :func:`plain`, given the annotation of the field."""
    return float(value) if kind == "float" else value
