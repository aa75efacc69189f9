"""A scaler in a training loop, whatever its interface: the calls that the checks make.

One driver holds one scaler and, for each group (an optimizer, a rank, a layer), the gradient of one parameter.
`values.py` drives the scalers of this package's protocol; `adapters/` drives objects as other frameworks have them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.emulator.formats import nearest_name
from fp16sim.scaling.fields import as_number
from fp16sim.testing.histories import FINITE, NAN, OVERFLOW

__all__ = [
    "GRADIENTS",
    "ONE_GROUP",
    "PEAK",
    "Driver",
    "Refusal",
    "Told",
    "as_groups",
    "clipped",
    "need_group",
    "need_letter",
    "number",
    "scaled",
]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

ONE_GROUP = ("all",)
PEAK = 2.0**-10
"""The true gradient of an open-loop step that is finite."""
GRADIENTS: dict[str, Floats] = {
    FINITE: np.array([PEAK]),
    OVERFLOW: np.array([np.inf]),
    NAN: np.array([np.nan]),
}


class Refusal(Exception):
    """A driver's or a scaler's clear error about a call out of order, such as a second `unscale`."""


@dataclass(frozen=True)
class Told:
    """What a scaler made of a step: whether it was applied (in any group), and a reason to stop."""

    applied: bool
    stop: str | None = None


def as_groups(groups: Iterable[str]) -> tuple[str, ...]:
    """Read the names of groups: one at least, each once.

    Raises
    ------
    TypeError
        If they are one text, no iterable, or hold what is no text.
    ValueError
        If there is none, one has no letter, or one comes twice.

    Examples
    --------
    >>> as_groups(["generator", "critic"])
    ('generator', 'critic')
    >>> as_groups("ab")
    Traceback (most recent call last):
        ...
    TypeError: groups='ab': names of groups come in a tuple; pass ('ab',) for one group, or ('a', 'b')
    """
    if isinstance(groups, str):
        several = f", or {tuple(groups)}" if 1 < len(set(groups)) == len(groups) < 5 else ""
        raise TypeError(
            f"groups={groups!r}: names of groups come in a tuple; pass {(groups or 'all',)} for one group{several}"
        )
    if not isinstance(groups, Iterable):
        raise TypeError(
            f"groups={groups!r}: names of groups come in a tuple; pass ('generator', 'critic'), for example"
        )
    names = tuple(groups)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"groups={names!r}: the name of a group is text; pass {str(name)!r} for {name!r}")
        if not name:
            raise ValueError(f"groups={names!r}: the name of a group has a letter; pass 'all', for example")
    if not names:
        raise ValueError("groups=(): there is one group at least; pass ('all',), or leave it out")
    once = tuple(dict.fromkeys(names))
    if once != names:
        twice = next(name for name in once if names.count(name) > 1)
        raise ValueError(f"groups={names!r}: {twice!r} comes twice, and names are told apart; pass {once!r}")
    return names


def need_group(group: object, groups: tuple[str, ...]) -> None:
    """Refuse the name of a group that a driver has not.

    >>> need_group("critik", ("generator", "critic"))
    Traceback (most recent call last):
        ...
    ValueError: there is no group 'critik': did you mean 'critic'? They are named in adapt(scaler, groups=(...))
    """
    if group not in groups:
        remedy = nearest_name(group, groups)
        remedy = f"{remedy} They" if remedy.startswith("did you mean") else f"{remedy}; they"
        raise ValueError(f"there is no group {group!r}: {remedy} are named in adapt(scaler, groups=(...))")


def need_letter(letter: object) -> None:
    """Refuse what is no step of a history.

    >>> need_letter("oo")
    Traceback (most recent call last):
        ...
    ValueError: a step 'oo': one letter each, '.' for a finite one, 'o' for one with an overflow, 'n' with a NaN
    """
    if letter not in tuple(GRADIENTS):
        raise ValueError(
            f"a step {letter!r}: one letter each, '.' for a finite one, 'o' for one with an overflow, 'n' with a NaN"
        )


def number(value: Any, what: str = "scale") -> float:
    """Read a scale as a scaler shows it: a Python number, or a tensor or an array of one element.

    Raises
    ------
    TypeError, ValueError
        If it is none, or an integer beyond float64.

    Examples
    --------
    >>> number(np.float32(8.0))
    8.0
    >>> number("8")
    Traceback (most recent call last):
        ...
    TypeError: scale is '8', and not a number: give one, such as 1024.0
    """
    if isinstance(value, float):
        return float(value)
    found = as_number(value)
    if found is not None:
        return found
    if isinstance(value, int) and not isinstance(value, bool):
        raise ValueError(
            f"{what} is an integer of {value.bit_length()} bits, beyond float64: keep it below a bound"
        )
    raise TypeError(f"{what} is {repr(value)[:40]}, and not a number: give one, such as 1024.0")


def scaled(gradient: Floats, factor: float, dtype: str = "float32") -> Array:
    """Give the gradient that a backward pass from a loss times `factor` would give: one rounding to `dtype`.

    >>> scaled(np.array([1.0, 2.0**-20]), 1024.0, "float16").tolist()
    [1024.0, 0.0009765625]
    """
    with np.errstate(all="ignore"):
        product: Array = (gradient * factor).astype(dtype)
    return product


def clipped(gradient: Array, norm: float) -> Array:
    """Give a gradient with at most this Euclidean norm, in float64, rounded once; one that is not finite as it is.

    >>> clipped(np.float32([3.0, 4.0]), 2.5).tolist()
    [1.5, 2.0]
    """
    if not np.isfinite(gradient).all():
        return gradient
    wide = gradient.astype(np.float64)
    length = float(np.sqrt(np.square(wide).sum()))
    return gradient if length <= norm else (wide * (norm / length)).astype(gradient.dtype)


class Driver(ABC):
    """A scaler with the gradients of its groups.

    A step is `backward` (several times, to accumulate), then for each group `unscale` and `clip` if wanted and `step`,
    and `update` once. `tell` is a whole step of which only the kind matters.

    Attributes
    ----------
    can : frozenset of str
        What the scaler, or the loop that its framework has around it, can do besides: ``"groups"`` several groups at
        once; ``"rechecks"`` looks at what is about to be applied; ``"unchecked"`` can be asked to update without a
        check; ``"counts"`` shows whether the optimizer's counters moved.
    groups : tuple of str
    counted : int
        By how much counters and schedules of the optimizer have moved.
    cost : int
        Steps of a plain Python scaler, of 5 us each, that take as long as one of this: histories are as many times
        fewer, and the longest of them shorter. No clock is asked, so that the same scaler is looked at in the same way
        on every machine. The trait ``{"cost": 200}`` comes before it.
    """

    can: frozenset[str] = frozenset()
    groups: tuple[str, ...] = ONE_GROUP
    counted: int = 0
    cost: int = 1

    @abstractmethod
    def scale(self, group: str) -> float:
        """Give the scale that the scaler shows for a group."""

    def factor(self, group: str) -> float:
        """Give what a float32 loss of 1 becomes, which is what gradients are multiplied by. Default: the scale."""
        return self.scale(group)

    @abstractmethod
    def backward(self, gradients: Mapping[str, Floats | None], dtype: str = "float32") -> None:
        """Add true gradients, in float64, times the factor and rounded to `dtype`, to those of the groups.

        A group with None, or left out, gets none.
        """

    @abstractmethod
    def gradient(self, group: str) -> Array | None:
        """Give a copy of the gradient of a group as it is now."""

    @abstractmethod
    def put(self, group: str, gradient: Array) -> None:
        """Replace the gradient of a group, as a hook or a clipping by hand does."""

    @abstractmethod
    def unscale(self, group: str) -> None:
        """Divide the scale out of the gradient of a group, before `step` would.

        Raises
        ------
        Refusal
            If the scaler, or its loop, refuses.
        """

    def clip(self, group: str, norm: float) -> None:
        """Clip the gradient of a group by its norm, in float64: by default after unscaling it."""
        self.unscale(group)
        gradient = self.gradient(group)
        if gradient is not None:
            self.put(group, clipped(gradient, norm))

    @abstractmethod
    def step(self, group: str) -> Array | None:
        """Let the optimizer of a group move, and give what it was given; None if the step is skipped.

        Raises
        ------
        Refusal
        """

    @abstractmethod
    def update(self) -> str | None:
        """End the step. Give the reason if the scaler says, or by its error shows, that training stops."""

    @abstractmethod
    def zero_grad(self) -> None:
        """Forget the gradients of all groups."""

    @abstractmethod
    def saved(self) -> dict[str, Any]:
        """Give the state of the scaler by each way that it has of saving it; empty if it has none."""

    @abstractmethod
    def restored(self, way: str, state: Any, fresh: Any) -> Driver:
        """Give a driver of the new scaler `fresh`, into which a state was loaded that `saved` gave by this way."""

    def tell(self, letter: str) -> Told:
        """Take a whole step of the kind that a letter of a history says, in all groups."""
        need_letter(letter)
        self.zero_grad()
        self.backward(dict.fromkeys(self.groups, GRADIENTS[letter]))
        applied = [self.step(group) is not None for group in self.groups]
        return Told(any(applied), self.update())

    def tell_peak(self, letter: str, peak: float) -> Told:
        """Take a whole step as `tell` does, with `peak` as the largest true gradient, for a scaler that looks at it.

        Default: `tell`, for scalers that only learn whether gradients are finite.
        """
        return self.tell(letter)
