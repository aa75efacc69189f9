"""A call that a training loop makes on a scaler, as data: it can be made, made again, and written in words.

And what a driver shows between two calls, to be compared bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fp16sim.testing.adapters.looks import is_refusal
from fp16sim.testing.driver import Array, Driver
from fp16sim.testing.raised import text_of
from fp16sim.testing.walk import written

__all__ = ["Call", "Seen", "in_words", "is_clear", "outcome"]


@dataclass(frozen=True)
class Call:
    """One call, on one group or on all.

    Attributes
    ----------
    name : str
        "backward", "unscale", "clip", "put", "step", "update", "zero_grad" or "save and load".
    group : str
        Of unscale, clip, put and step.
    gradients : mapping of group to float
        Of backward: true gradients, each of one number.
    number : float
        The norm of clip; what put writes.
    way : str
        Of save and load.

    Examples
    --------
    >>> Call("backward", gradients={"a": 1.0, "b": 2.0**-16}).words(("a", "b")), Call("step", "all").words(("all",))
    ('backward(a=1, b=2^-16)', 'step')
    """

    name: str
    group: str = ""
    gradients: Mapping[str, float] = field(default_factory=dict)
    number: float = 0.0
    way: str = ""

    def on(self, driver: Driver, made: Callable[[], Any]) -> Any:
        """Make the call, and give what it gives; `made` makes the new scaler that a state is loaded into."""
        match self.name:
            case "backward":
                driver.backward({group: np.array([value]) for group, value in self.gradients.items()})
            case "unscale":
                driver.unscale(self.group)
            case "clip":
                driver.clip(self.group, self.number)
            case "put":
                gradient = driver.gradient(self.group)
                if gradient is not None:
                    driver.put(self.group, np.full_like(gradient, self.number))
            case "step":
                return driver.step(self.group)
            case "update":
                return driver.update()
            case "zero_grad":
                driver.zero_grad()
            case "save and load":
                return driver.restored(self.way, driver.saved()[self.way], made())
        return None

    def words(self, groups: tuple[str, ...]) -> str:
        """Write the call; the name of a group only where there are several."""
        if self.name == "save and load":
            return f"save and load by {self.way}"
        several = len(groups) > 1
        values = {group: written(self.gradients[group]) for group in groups if group in self.gradients}
        given = [f"{group}={value}" for group, value in values.items()] if several else [*values.values()]
        given += [self.group] * (several and bool(self.group))
        given += [written(self.number)] * (self.name in ("clip", "put"))
        return f"{self.name}({', '.join(given)})" if given or self.name == "backward" else self.name


@dataclass(frozen=True)
class Seen:
    """What a driver shows.

    Attributes
    ----------
    scales, factors : mapping of group to float
    gradients : mapping of group to array or None
    counted : int
    """

    scales: Mapping[str, float]
    factors: Mapping[str, float]
    gradients: Mapping[str, Array | None]
    counted: int

    @classmethod
    def of(cls, driver: Driver) -> Seen:
        """Look at a driver."""
        return cls(
            {group: driver.scale(group) for group in driver.groups},
            {group: driver.factor(group) for group in driver.groups},
            {group: driver.gradient(group) for group in driver.groups},
            driver.counted,
        )

    def differences(self, other: Seen) -> Iterator[tuple[str, str, str]]:
        """Give what differs in any bit, how it is here, and how it is there; counters left out."""
        for what, here, there in (
            ("scale", self.scales, other.scales),
            ("factor", self.factors, other.factors),
            ("gradient", self.gradients, other.gradients),
        ):
            for group in here:
                if _bits(here[group]) != _bits(there[group]):
                    of = f" of {group}" * (len(here) > 1)
                    yield f"the {what}{of}", in_words(here[group]), in_words(there[group])


def _bits(value: float | Array | None) -> Any:
    return (value.dtype.name, value.tobytes()) if isinstance(value, np.ndarray) else repr(value)


def in_words(value: float | Array | None) -> str:
    """Write a scale or a gradient.

    >>> in_words(2.0**30), in_words(np.float16([2.0**-16, 3.0])), in_words(None)
    ('2^30', '2^-16, 3 in float16', 'none')
    """
    if value is None:
        return "none"
    if not isinstance(value, np.ndarray):
        return written(value)
    numbers = ", ".join(written(float(number)) for number in value.ravel())
    return numbers if value.dtype == np.float32 else f"{numbers} in {value.dtype}"


def outcome(call: Call, result: Any, error: BaseException | None = None) -> str:
    """Say what a call gave, or that it raised.

    >>> outcome(Call("step"), np.float32([3.0])), outcome(Call("step"), None), outcome(Call("update"), "too low")
    ('applied 3', 'skipped the step', 'stopped: too low')
    """
    if error is not None:
        return f"raised {type(error).__name__}"
    if call.name == "step":
        return "skipped the step" if result is None else f"applied {in_words(result)}"
    return "went on" if result is None else f"stopped: {result}"


def is_clear(error: BaseException) -> bool:
    """Whether an error is a clear one about a call out of order, and no crash.

    >>> is_clear(ValueError("unscale once")), is_clear(ValueError()), is_clear(ZeroDivisionError("division by zero"))
    (True, False, False)
    """
    return isinstance(error, Exception) and is_refusal(error) and bool(text_of(error))
