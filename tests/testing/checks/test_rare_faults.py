"""Faults that show only late, in one place, or for one kind of gradient: each is found by a check that is named."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from fp16sim.scaling import Decision, Observation
from fp16sim.testing import Fault, check_scaler, scaler_checks

CHECKS = dict(scaler_checks())
WINDOW = 20
CLAIMED = ("power_of_two", {"interval": WINDOW}, {"hysteresis": 1}, "groups")


@dataclass(frozen=True)
class Healthy:
    low: ClassVar[float] = 2.0**-10
    high: ClassVar[float] = 2.0**30
    scale: float = 2.0**16
    clean: int = 0
    lost: int = 0
    steps: int = 0

    def update(self, observation):
        decision = Decision(apply=not observation.overflowed, divide_by=self.scale)
        following = replace(self, clean=0, lost=0, steps=self.steps + 1)
        if observation.overflowed:
            lost = self.lost + 1 if self.scale == self.low else 0
            stop = "overflows at the floor" if lost == 10 else None
            lower = replace(following, scale=max(self.scale / 2, self.low), lost=lost % 10)
            return lower, replace(decision, stop=stop)
        if self.clean + 1 < WINDOW:
            return replace(following, clean=self.clean + 1), decision
        return replace(following, scale=min(self.scale * 2, self.high)), decision

    def accepts(self, gradients):
        return all(gradient is None or np.isfinite(gradient).all() for gradient in gradients)


class AtLeastOne(Healthy):
    """Nothing that it unscales becomes infinite, so that it need not look again."""

    low = 1.0
    accepts = property()


@dataclass(frozen=True)
class WrongDivisorAfterThreeGrowths(Healthy):
    def update(self, observation):
        following, decision = super().update(observation)
        return following, replace(decision, divide_by=self.scale * (2 if self.scale >= 2.0**19 else 1))


@dataclass(frozen=True)
class WrongDivisorAtTheTop(Healthy):
    def update(self, observation):
        following, decision = super().update(observation)
        return following, replace(decision, divide_by=self.scale * (2 if self.scale == self.high else 1))


@dataclass(frozen=True)
class SkipsWhereItGrows(Healthy):
    def update(self, observation):
        following, decision = super().update(observation)
        return following, replace(decision, apply=decision.apply and following.scale <= self.scale)


@dataclass(frozen=True)
class StopsOnAFiniteStep(Healthy):
    def update(self, observation):
        following, decision = super().update(observation)
        return following, replace(decision, stop="enough" if self.scale == 2.0**19 else decision.stop)


@dataclass(frozen=True)
class AppliesOneOverflowInAThousand(AtLeastOne):
    def update(self, observation):
        following, decision = super().update(observation)
        return following, replace(decision, apply=decision.apply or following.steps % 1000 == 0)


class Observes(AtLeastOne):
    def observe(self, gradients):
        return Observation(overflow=any(map(self.is_bad, gradients)), amax=1.0)

    def is_bad(self, gradient):
        return gradient is not None and not np.isfinite(gradient).all()


class SeesNoMinusInfinity(Observes):
    def is_bad(self, gradient):
        return gradient is not None and bool((np.isnan(gradient) | (gradient == math.inf)).any())


class SeesNoFloat16(Observes):
    def is_bad(self, gradient):
        return super().is_bad(gradient) and gradient.dtype != np.float16


class SeesTheFirstElement(Observes):
    def is_bad(self, gradient):
        return gradient is not None and not np.isfinite(gradient.ravel()[0])


class SeesTheFirstGradient(Observes):
    def observe(self, gradients):
        return Observation(overflow=self.is_bad(gradients[0]) if gradients else False, amax=1.0)


@dataclass(frozen=True)
class ForgetsOverflowsAWindowApart(Healthy):
    last: int = -1

    def update(self, observation):
        following, decision = super().update(observation)
        if not observation.overflowed:
            return following, decision
        missed = self.last >= 0 and self.steps - self.last == WINDOW
        return replace(following, last=self.steps, scale=self.scale if missed else following.scale), decision


@dataclass(frozen=True)
class SavesNoCounterAfterAGrowth(Healthy):
    def state_dict(self):
        return {"scale": self.scale, "clean": self.clean * (self.scale <= 2.0**16), "lost": self.lost}

    def load_state_dict(self, state):
        return type(self)(**state)


@dataclass(frozen=True)
class SavesTheScaleWithSixDigits(Healthy):
    def state_dict(self):
        return {"scale": f"{self.scale:.6g}", "clean": self.clean, "lost": self.lost}

    def load_state_dict(self, state):
        return type(self)(**{**state, "scale": float(state["scale"])})


@dataclass(frozen=True)
class KeepsTheCounterOnNan(Healthy):
    def update(self, observation):
        following, decision = super().update(observation)
        return replace(following, clean=self.clean if observation.nan else following.clean), decision


@dataclass(frozen=True)
class ThirdWindowIsShort(Healthy):
    def update(self, observation):
        following, decision = super().update(observation)
        return replace(following, clean=following.clean + (following.scale > self.scale == 2.0**17)), decision


@dataclass(frozen=True)
class KeepsTheCounterAtTheTop(Healthy):
    def update(self, observation):
        following, decision = super().update(observation)
        kept = observation.overflowed and self.scale == self.high
        return replace(following, clean=WINDOW - 1 if kept else following.clean), decision


@dataclass(frozen=True)
class IsStuckHighUp(Healthy):
    def update(self, observation):
        following, decision = super().update(observation)
        return replace(
            following, scale=max(following.scale, self.scale if self.scale >= 2.0**22 else 0)
        ), decision


@dataclass(frozen=True)
class ReportsNoNan(Healthy):
    def update(self, observation):
        following, decision = super().update(observation)
        return following, replace(decision, stop=None if observation.nan else decision.stop)


@dataclass(frozen=True)
class SkipsAfterAStop(Healthy):
    stopped: bool = False

    def update(self, observation):
        following, decision = super().update(observation)
        stopped = self.stopped or decision.stop is not None
        return replace(following, stopped=stopped), replace(
            decision, apply=decision.apply and not self.stopped
        )


def test_the_scaler_that_they_are_made_of_has_none():
    check_scaler(Healthy, traits=CLAIMED)


@pytest.mark.parametrize("make", [AtLeastOne, Observes])
def test_those_who_need_not_look_again_have_none(make):
    check_scaler(make, traits=CLAIMED)


@pytest.mark.parametrize(
    ("make", "check", "message"),
    [
        (
            WrongDivisorAfterThreeGrowths,
            "unscales_by_the_scale_that_scaled",
            '".{61}": the gradient was multiplied by 524288, divided by 2^20',
        ),
        (
            WrongDivisorAtTheTop,
            "unscales_by_the_scale_that_scaled",
            '".{281}": the gradient was multiplied by 2^30, divided by 2^31',
        ),
        (
            SkipsWhereItGrows,
            "finite_steps_are_applied",
            '".{20}": a finite step at the scale 65536 was skipped',
        ),
        (
            StopsOnAFiniteStep,
            "finite_steps_are_applied",
            '".{61}": training stops on a finite step at the scale 524288: enough',
        ),
        (
            AppliesOneOverflowInAThousand,
            "applies_only_finite_updates",
            '".{999}o": the optimizer was given inf: the scaled gradient was inf, and the step was not skipped',
        ),
        (SeesNoMinusInfinity, "applies_only_finite_updates", '"o": the optimizer was given -inf'),
        (SeesNoFloat16, "applies_only_finite_updates", "the scaled float16 gradient was inf, and"),
        (SeesTheFirstElement, "applies_only_finite_updates", "the scaled gradient was [64.0, inf], and"),
        (
            SeesTheFirstGradient,
            "applies_only_finite_updates",
            "the scaled gradients were [0.0009765625], [inf], and the step was not skipped",
        ),
        (
            ForgetsOverflowsAWindowApart,
            "hysteresis_counts_consecutive_overflows",
            '"o.{19}o": the scale stays at 32768 on overflow 1 in a row',
        ),
        (
            SavesNoCounterAfterAGrowth,
            "checkpoint_round_trip",
            '".{21}|.{19}": after saving and loading by state_dict the scale is 131072; without that it is 262144',
        ),
        (
            SavesTheScaleWithSixDigits,
            "checkpoint_round_trip",
            '"o{25}|": after saving and loading by state_dict the scale is 0.00195312; it was 2^-9',
        ),
        (KeepsTheCounterOnNan, "exact_window", '".{19}n.": the scale grew from 32768 to 65536'),
        (ThirdWindowIsShort, "exact_window", '".{59}": the scale grew from 262144 to 524288'),
        (KeepsTheCounterAtTheTop, "exact_window", '".{280}o.": the scale grew from 2^29 to 2^30'),
        (IsStuckHighUp, "recovers_from_overflows", '".{280}o": with gradients that overflow at'),
        (
            ReportsNoNan,
            "endless_overflows_are_reported",
            '"n{27}": the scale stays 2^-10, and 2526 steps with NaN in a row bring no reason to stop; '
            'give Decision(stop="why")',
        ),
        (SkipsAfterAStop, "goes_on_after_a_stop", '"o{36}.": a finite step is skipped, after a stop'),
    ],
)
def test_a_fault_that_seldom_shows_is_found(make, check, message):
    with pytest.raises(Fault) as caught:
        CHECKS[check](make, CLAIMED)
    assert message in str(caught.value)


def test_an_error_of_several_lines_is_told_in_one():
    def make():
        raise RuntimeError("no card\nin this machine")

    with pytest.raises(
        Fault, match=r"^making a scaler raised RuntimeError: no card in this machine \(\S+, line \d+\)$"
    ):
        CHECKS["scale_stays_finite"](make)


def test_a_reason_to_stop_that_is_no_text_is_named():
    @dataclass(frozen=True)
    class StopsByNumber(Healthy):
        def update(self, observation):
            following, decision = super().update(observation)
            return following, replace(decision, stop=1 if decision.stop else None)

    with pytest.raises(Fault, match=r"decided stop=1: it is None, or text that says why"):
        CHECKS["goes_on_after_a_stop"](StopsByNumber)


def test_a_scaler_with_groups_of_its_own_is_called_in_any_order_with_these():
    class OfGroups:
        def __init__(self, scale=None):
            self.scale = scale or {"encoder": 2.0**8, "decoder": 2.0**4}

        def update(self, observation):
            factor = 0.5 if observation.overflowed else 1.0
            lower = {group: max(scale * factor, 1.0) for group, scale in self.scale.items()}
            return OfGroups(lower), Decision(apply=not observation.overflowed, divide_by=self.scale)

    CHECKS["any_order_of_calls"](OfGroups, ["any_order"])
