"""Whether two saved runs are the same, bit for bit, and where they first part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fp16sim.autograd.arithmetic import Array
from fp16sim.training.results import Step
from fp16sim.training.saving import SavedRun

__all__ = ["Difference", "difference"]


@dataclass(frozen=True)
class Difference:
    """Where two runs first part.

    Attributes
    ----------
    step : int or None
        The first step that differs, or that only one of the runs has taken; None if all steps are the same and only
        the state of the models differs.
    values : mapping of str to pair
        What differs there, and its two values; for arrays the numbers of elements that differ and of all.
    """

    step: int | None
    values: Mapping[str, tuple[Any, Any]]

    def __str__(self) -> str:
        if self.step is None:
            name, (count, total) = next(iter(self.values.items()))
            more = f", and {len(self.values) - 1} other arrays differ" if len(self.values) > 1 else ""
            return f"every step is the same, but {name} differs in {count} of {total} elements{more}"
        if "steps" in self.values:
            first, second = self.values["steps"]
            return f"the same for {self.step - 1} steps, but one has {first} steps and the other {second}"
        pairs = [
            f"{name} {_shown(first)} and {_shown(second)}" for name, (first, second) in self.values.items()
        ]
        return f"first difference at step {self.step}: {', '.join(pairs)}"


def difference(first: SavedRun, second: SavedRun) -> Difference | None:
    """Compare the steps of two runs, then the states of their models: None if every bit is the same.

    A NaN equals a NaN. Settings are not compared: two datapaths may well give the same bits.
    """
    for one, other in zip(first.history, second.history, strict=False):
        values = {
            field.name: (getattr(one, field.name), getattr(other, field.name))
            for field in fields(Step)
            if not _same(getattr(one, field.name), getattr(other, field.name))
        }
        if values:
            return Difference(one.step, values)
    lengths = len(first.history), len(second.history)
    if lengths[0] != lengths[1]:
        return Difference(min(lengths) + 1, {"steps": lengths})
    arrays = {
        name: counts
        for name in {**first.model, **second.model}
        if (counts := _differing(first.model.get(name), second.model.get(name)))[0]
    }
    return Difference(None, arrays) if arrays else None


def _same(a: float, b: float) -> bool:
    """Compare bits, so that zeros have signs; every NaN is one value."""
    return (a != a and b != b) or (a == b and str(a) == str(b))


def _differing(a: Array | None, b: Array | None) -> tuple[int, int]:
    """Count the elements that differ, and all of them."""
    if a is None or b is None or a.dtype != b.dtype or a.shape != b.shape:
        size = max(0 if x is None else x.size for x in (a, b))
        return max(size, 1), max(size, 1)
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    same = np.ascontiguousarray(a).view(unsigned) == np.ascontiguousarray(b).view(unsigned)
    if a.dtype.kind not in "iub":
        same |= np.isnan(a) & np.isnan(b)
    return int((~same).sum()), a.size


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value!r}"
