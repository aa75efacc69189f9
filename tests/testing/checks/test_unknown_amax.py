"""Scalers that look at the largest gradient, and are told of steps in which nobody knows it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any

import pytest
from fp16sim_scaler_faults import fault, passes

from fp16sim import scaling
from fp16sim.scaling import Decision, Observation, RobustScaler

APPLIED = "finite_steps_are_applied"
WINDOW = 20


@dataclass(frozen=True)
class Looks:
    """Halves, doubles every twentieth clean step, and looks at `amax`, where it is known."""

    scale: float = 1024.0
    clean: int = 0
    last: float | None = 0.0

    def headroom(self, seen: Observation) -> bool:
        return seen.amax is None or seen.amax * self.scale < 2.0**100  # type: ignore[operator]

    def update(self, seen: Observation) -> Any:
        decision = Decision(apply=not seen.overflowed, divide_by=self.scale)
        if seen.overflowed:
            return replace(self, scale=max(self.scale / 2, 1.0), clean=0), decision
        if self.clean + 1 < WINDOW or not self.headroom(seen):
            return replace(self, clean=self.clean + 1), decision
        return replace(self, scale=min(self.scale * 2, 2.0**20), clean=0), decision


class Compares(Looks):
    """Its first look at every step is at `amax`."""

    def update(self, seen: Observation) -> Any:
        return super().update(replace(seen, overflow=seen.overflowed or seen.amax > 2.0**90))  # type: ignore[operator]


class ComparesOnOverflow(Looks):
    def update(self, seen: Observation) -> Any:
        if seen.overflowed and seen.amax < 1:  # type: ignore[operator]
            return self, Decision(False, self.scale)
        return super().update(seen)


class ComparesWhereItGrows(Looks):
    def headroom(self, seen: Observation) -> bool:
        return seen.amax * self.scale < 2.0**100  # type: ignore[operator]


class ComparesAtTheFloor(Looks):
    def update(self, seen: Observation) -> Any:
        if seen.overflowed and self.scale == 1.0:
            math.isinf(seen.amax)  # type: ignore[arg-type]
        return super().update(seen)


class Remembers(Looks):
    """What was None is added to in the step after."""

    def update(self, seen: Observation) -> Any:
        following, decision = super().update(seen)
        trend = None if seen.amax is None else self.last * 0.9 + 0.1 * seen.amax  # type: ignore[operator]
        return replace(following, last=trend), decision


class ValuesItself(Looks):
    """The error names `amax`, and is a crash all the same."""

    def update(self, seen: Observation) -> Any:
        return seen.amax.amax  # type: ignore[union-attr]


class Refuses(Looks):
    kind: type[Exception] = ValueError

    def update(self, seen: Observation) -> Any:
        if seen.amax is None:
            raise self.kind("amax=None: the trend needs it; observe the gradients")
        return super().update(seen)


class RefusesTheType(Refuses):
    kind = TypeError


@pytest.mark.parametrize(
    ("kind", "history", "says"),
    [
        (Compares, ".", "where amax is None the scaler raised TypeError: '>' not supported"),
        (ComparesOnOverflow, "o", "where amax is None the scaler raised TypeError: '<' not supported"),
        (ComparesWhereItGrows, "." * WINDOW, "where amax is None the scaler raised TypeError: unsupported operand"),
        (ComparesAtTheFloor, "o" * 11, "where amax is None the scaler raised TypeError: must be real number"),
        (Remembers, "..", "after a step with amax=None the scaler raised TypeError: unsupported operand"),
        (ValuesItself, ".", "the scaler raised AttributeError: 'float' object has no attribute 'amax'"),
    ],
)  # fmt: skip
def test_a_scaler_that_takes_it_for_granted_is_caught(kind: Any, history: str, says: str) -> None:
    found = fault(APPLIED, kind)
    assert (found.history, found.what[: len(says)]) == (history, says)


def test_the_message_has_the_place_and_the_remedy() -> None:
    line = Compares.update.__code__.co_firstlineno + 1
    says = re.escape(f"({__file__}, line {line}); None is unknown; do without it, or raise ValueError('amax=")
    assert re.search(says, str(fault(APPLIED, Compares)))


class CrashesOnNone(Looks):
    def update(self, seen: Observation) -> Any:
        if seen.amax is None:
            raise AttributeError("amax")
        return super().update(seen)


class RefusesInOtherWords(Refuses):
    def update(self, seen: Observation) -> Any:
        if seen.amax is None:
            raise ValueError("math domain error")
        return super().update(seen)


@pytest.mark.parametrize("kind", [CrashesOnNone, RefusesInOtherWords])
def test_what_is_no_clear_refusal_is_a_crash(kind: Any) -> None:
    assert fault(APPLIED, kind).what.startswith("where amax is None the scaler raised ")


@pytest.mark.parametrize(
    "make",
    [
        Looks,
        Refuses,
        RefusesTheType,
        RobustScaler,
        lambda: scaling.make("openseq2seq_logmax"),  # it refuses
        lambda: scaling.make("fairscale_layerwise"),  # it has a scale for each group
    ],
)
def test_those_that_do_without_or_refuse_pass(make: Any) -> None:
    passes(APPLIED, make)
