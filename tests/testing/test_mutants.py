"""Mutants of `robust`: each has one fault, and exactly the check that is named for it fails."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from fp16sim.scaling import Decision, RobustScaler
from fp16sim.testing.case import Case, as_traits
from fp16sim.testing.checking import examined
from fp16sim.testing.checks import CHECKS

WINDOW = 4
OPTIONS: dict[str, Any] = {
    "growth_interval": WINDOW,
    "min_scale": 2.0**-8,
    "max_scale": 2.0**24,
    "floor_patience": 5,
}
CLAIMED = ("power_of_two", {"interval": WINDOW, "hysteresis": 1}, "groups", "rechecks", "checked")


class Unbounded(RobustScaler):
    """Robust without the checks of its numbers, which some mutants leave."""

    def __post_init__(self) -> None:
        if self.scale is None:
            object.__setattr__(self, "scale", self.init_scale)


@dataclass(frozen=True)
class Late(Unbounded):
    """Off by one: the counter is compared before it is raised."""

    def _after_clean_step(self) -> RobustScaler:
        if self.clean_steps < self.growth_interval:
            return replace(self, clean_steps=self.clean_steps + 1, overflows_at_floor=0)
        return replace(self, scale=min(self.scale * 2.0, self.max_scale), clean_steps=0, overflows_at_floor=0)


@dataclass(frozen=True)
class ForgetsToReset(RobustScaler):
    """An overflow leaves the counter of clean steps alone, but for one at the largest scale."""

    def _after_overflow(self) -> RobustScaler:
        kept = self.clean_steps if self.scale < self.max_scale else 0
        return replace(super()._after_overflow(), clean_steps=kept)


@dataclass(frozen=True)
class GrowsOnOverflow(RobustScaler):
    """At the end of a window the scale grows, whatever the step showed."""

    def _after_overflow(self) -> RobustScaler:
        following = super()._after_overflow()
        if self.clean_steps + 1 == self.growth_interval and self.scale < self.max_scale:
            return replace(following, scale=self.scale * 2.0)
        return following


@dataclass(frozen=True)
class DropsAField(RobustScaler):
    """The counter of clean steps is not saved."""

    def framework_state(self) -> dict[str, Any]:
        return super().framework_state() | {"clean_steps": 0}


@dataclass(frozen=True)
class DividesByTheNewScale(RobustScaler):
    """The scale is updated before the gradients are unscaled."""

    def update(self, observation: Any) -> Any:
        following, decision = super().update(observation)
        return following, replace(decision, divide_by=following.scale)


@dataclass(frozen=True)
class ZeroBelowOne(Unbounded):
    """The half of 1 is taken as an integer, 0; the step after that is skipped and finds the way back."""

    def update(self, observation: Any) -> Any:
        if self.scale == 0.0 and observation.checked:
            return replace(self, scale=0.5), Decision(False, 1.0)
        return super().update(observation)

    def _after_overflow(self) -> RobustScaler:
        following = super()._after_overflow()
        return replace(following, scale=0.0) if self.scale == 1.0 else following


@dataclass(frozen=True)
class NoMaximum(Unbounded):
    """From the largest scale on it grows to infinity, where the next overflow finds its way back."""

    def _after_clean_step(self) -> RobustScaler:
        following = super()._after_clean_step()
        grew = following.clean_steps == 0
        return replace(following, scale=math.inf) if grew and self.scale == self.max_scale else following

    def _after_overflow(self) -> RobustScaler:
        return (
            replace(self, scale=self.max_scale, clean_steps=0)
            if self.scale == math.inf
            else super()._after_overflow()
        )


@dataclass(frozen=True)
class FiveHalvings(RobustScaler):
    """One overflow lowers the scale five times."""

    def _after_overflow(self) -> RobustScaler:
        return replace(super()._after_overflow(), scale=max(self.scale / 32.0, self.min_scale))


@dataclass(frozen=True)
class GrowsByThree(Unbounded):
    """The scale grows by a factor that is no power of two."""

    def _after_clean_step(self) -> RobustScaler:
        following = super()._after_clean_step()
        grew = following.scale > self.scale
        return replace(following, scale=min(self.scale * 3.0, self.max_scale)) if grew else following


@dataclass(frozen=True)
class AppliesNaN(RobustScaler):
    """NaN is applied: only infinities are skipped."""

    def update(self, observation: Any) -> Any:
        following, decision = super().update(observation)
        return following, replace(decision, apply=True) if observation.nan else decision

    @property
    def accepts(self) -> Any:  # type: ignore[override]
        """It has no such method: a second look would find them."""
        raise AttributeError("accepts")


@dataclass(frozen=True)
class DoesNotLookAgain(RobustScaler):
    """What became infinite after unscaling is applied."""

    def accepts(self, gradients: Any) -> bool:
        return True


@dataclass(frozen=True)
class NeverStops(RobustScaler):
    """Overflows at the smallest scale are skipped for ever."""

    def _reason(self, nan: bool) -> str | None:
        return None


@dataclass(frozen=True)
class CannotLeaveTheFloor(RobustScaler):
    """From the smallest scale there is no growth."""

    def _after_clean_step(self) -> RobustScaler:
        following = super()._after_clean_step()
        return replace(following, scale=self.scale) if self.scale == self.min_scale else following


@dataclass(frozen=True)
class EverySecond(RobustScaler):
    """Every second overflow lowers the scale, in a row or not."""

    waiting: bool = False

    def _after_overflow(self) -> RobustScaler:
        following = super()._after_overflow()
        if self.waiting or self.scale == self.min_scale:
            return replace(following, waiting=False)
        return replace(following, scale=self.scale, waiting=True)

    def _after_clean_step(self) -> RobustScaler:
        return replace(super()._after_clean_step(), waiting=self.waiting)


@dataclass(frozen=True)
class OnlyInARow(EverySecond):
    """Two overflows in a row lower the scale; o.o.o. never does."""

    def _after_clean_step(self) -> RobustScaler:
        return replace(super()._after_clean_step(), waiting=False)


@dataclass(frozen=True)
class AdvancesOnASkip(RobustScaler):
    """The schedule moves on a skipped step."""

    def update(self, observation: Any) -> Any:
        following, decision = super().update(observation)
        return following, replace(decision, advance=True)


@dataclass(frozen=True)
class LeapsFromTheFloor(RobustScaler):
    """Three overflows in a row at the smallest scale, and the next growth is by 16."""

    leaps: bool = False

    def _after_overflow(self) -> RobustScaler:
        following = super()._after_overflow()
        return replace(following, leaps=self.leaps or following.overflows_at_floor > 2)

    def _after_clean_step(self) -> RobustScaler:
        following = super()._after_clean_step()
        if self.leaps and following.scale > self.scale:
            return replace(following, scale=self.scale * 16.0, leaps=False)
        return following


@dataclass(frozen=True)
class CrashesAfterAStop(RobustScaler):
    """Who catches the stop and goes on divides by zero."""

    def update(self, observation: Any) -> Any:
        1 / (self.overflows_at_floor < self.floor_patience)
        return super().update(observation)


@dataclass(frozen=True)
class ReportsOnce(RobustScaler):
    """A stop that was said is never said again."""

    said: bool = False

    def update(self, observation: Any) -> Any:
        following, decision = super().update(observation)
        stop = None if self.said else decision.stop
        return replace(following, said=self.said or bool(stop)), replace(decision, stop=stop)


@dataclass(frozen=True)
class SavesIntoOneDict(RobustScaler):
    """Each saving writes into the dict that the saving before it gave."""

    saved: ClassVar[dict[str, Any]] = {}

    def framework_state(self) -> dict[str, Any]:
        self.saved.update(super().framework_state())
        return self.saved


@dataclass(frozen=True)
class TakesOutWhatItLoads(RobustScaler):
    """A state has no counter any more once it was loaded."""

    def load_framework_state(self, state: Any) -> RobustScaler:
        clean = state.pop("clean_steps", 0)
        return super().load_framework_state(state | {"clean_steps": clean})


@dataclass(frozen=True)
class NeedsThePeak(RobustScaler):
    """It compares `amax`, known or not."""

    def update(self, observation: Any) -> Any:
        return super().update(
            replace(observation, overflow=observation.overflowed or observation.amax > 1e30)
        )


@dataclass(frozen=True)
class EachForItself(RobustScaler):
    """A group without an overflow moves while another skips."""

    def update(self, observation: Any) -> Any:
        following, decision = super().update(observation)
        overflow = observation.overflow
        if isinstance(overflow, dict) and any(overflow.values()):
            decision = replace(decision, apply={group: not found for group, found in overflow.items()})
        return following, decision


@dataclass(frozen=True)
class TakesWhatNobodyChecked(RobustScaler):
    """An update without a check counts as a clean step."""

    def update(self, observation: Any) -> Any:
        return super().update(replace(observation, checked=True))


@dataclass(frozen=True)
class TakesZeroForTrouble(RobustScaler):
    """All-zero gradients count as an overflow."""

    def update(self, observation: Any) -> Any:
        bad = observation.amax == 0 and self.scale > self.min_scale
        return super().update(replace(observation, overflow=True) if bad else observation)

    def observe(self, gradients: Any) -> Any:
        from fp16sim.scaling.protocol import observe

        seen = observe(RobustScaler(scale=self.scale, min_scale=self.min_scale), gradients)
        return seen if any(gradient is not None for gradient in gradients) else replace(seen, amax=None)


@dataclass(frozen=True)
class NeedsAGradient(RobustScaler):
    """No gradients at all are an error."""

    def observe(self, gradients: Any) -> Any:
        from fp16sim.scaling.protocol import observe

        max(gradients, key=id)
        return observe(RobustScaler(scale=self.scale, min_scale=self.min_scale), gradients)


@dataclass(frozen=True)
class WaitsAStep(RobustScaler):
    """The first finite step after an overflow is skipped."""

    waiting: bool = False

    def update(self, observation: Any) -> Any:
        following, decision = super().update(observation)
        apply = decision.apply and not self.waiting
        return replace(following, waiting=observation.overflowed), replace(decision, apply=apply)


@dataclass(frozen=True)
class CountsNothing(RobustScaler):
    """The schedule stands still."""

    def update(self, observation: Any) -> Any:
        following, decision = super().update(observation)
        return following, replace(decision, advance=False)


@dataclass(frozen=True)
class CleansUp(RobustScaler):
    """Whoever observes also clips, in place."""

    def observe(self, gradients: Any) -> Any:
        from fp16sim.scaling.protocol import observe

        seen = observe(RobustScaler(scale=self.scale, min_scale=self.min_scale), gradients)
        for gradient in gradients:
            if gradient is not None and seen.overflowed:
                gradient[:] = 0
        return seen


@dataclass(frozen=True)
class ScalesByNothing(RobustScaler):
    """It shows a scale, and the loss is multiplied by 0."""

    def scale_loss(self, loss: Any) -> Any:
        return loss * 0.0


@dataclass(frozen=True)
class GoesByThePeak(RobustScaler):
    """An overflow is one if `amax` is infinite, whatever it is told: a step that it refuses itself is none."""

    def update(self, observation: Any) -> Any:
        infinite = not (observation.amax or 0.0) < math.inf
        return super().update(replace(observation, overflow=infinite))


@dataclass(frozen=True)
class TakesOneForAll(RobustScaler):
    """One finite gradient is enough to accept all."""

    def accepts(self, gradients: Any) -> bool:
        present = [gradient for gradient in gradients if gradient is not None]
        return not present or any(bool(np.isfinite(gradient).all()) for gradient in present)


@dataclass(frozen=True)
class StopsAtOnce(RobustScaler):
    """Every overflow is a reason to stop, though it lowers the scale."""

    def _reason(self, nan: bool) -> str | None:
        return "an overflow"


@dataclass(frozen=True)
class ForgetsNoOverflow(RobustScaler):
    """Finite steps at the smallest scale do not end the row of overflows there."""

    def _after_clean_step(self) -> RobustScaler:
        return replace(super()._after_clean_step(), overflows_at_floor=self.overflows_at_floor)


@dataclass(frozen=True)
class SilentAtTheFloor(RobustScaler):
    """Counts on the way down, and no more at the smallest scale."""

    def _after_overflow(self) -> RobustScaler:
        counted = self.overflows_at_floor + 1 if self.scale > self.min_scale else 0
        return replace(super()._after_overflow(), overflows_at_floor=counted)


@dataclass(frozen=True)
class LeapsToTheTop(RobustScaler):
    """Every growth is to the largest scale."""

    def _after_clean_step(self) -> RobustScaler:
        following = super()._after_clean_step()
        return replace(following, scale=self.max_scale) if following.scale > self.scale else following


MUTANTS: dict[type[RobustScaler], str] = {
    Late: "exact_window",
    ForgetsToReset: "exact_window",
    GrowsOnOverflow: "overflow_never_raises_the_scale",
    DropsAField: "checkpoint_round_trip",
    DividesByTheNewScale: "unscales_by_the_scale_that_scaled",
    ZeroBelowOne: "scale_stays_above_zero",
    NoMaximum: "scale_stays_finite",
    FiveHalvings: "one_overflow_one_backoff",
    GrowsByThree: "power_of_two_transparency",
    AppliesNaN: "applies_only_finite_updates",
    DoesNotLookAgain: "rechecks_after_unscaling",
    NeverStops: "endless_overflows_are_reported",
    CannotLeaveTheFloor: "recovers_from_overflows",
    EverySecond: "hysteresis_counts_consecutive_overflows",
    OnlyInARow: "repeated_overflows_lower_the_scale",
    AdvancesOnASkip: "skip_changes_nothing",
    LeapsFromTheFloor: "clamp_leaves_other_state_alone",
    SavesIntoOneDict: "checkpoint_round_trip",
    TakesOutWhatItLoads: "checkpoint_round_trip",
    CrashesAfterAStop: "goes_on_after_a_stop",
    ReportsOnce: "goes_on_after_a_stop",
    EachForItself: "groups_agree",
    TakesWhatNobodyChecked: "unchecked_update_is_refused",
    TakesZeroForTrouble: "zero_gradients_are_finite",
    NeedsAGradient: "no_gradients_are_no_event",
    CleansUp: "changes_nothing_it_is_given",
    WaitsAStep: "finite_steps_are_applied",
    NeedsThePeak: "finite_steps_are_applied",
    CountsNothing: "finite_steps_are_applied",
    ScalesByNothing: "unscales_by_the_scale_that_scaled",
    GoesByThePeak: "applies_only_finite_updates",
    TakesOneForAll: "rechecks_after_unscaling",
    StopsAtOnce: "recovers_from_overflows",
    ForgetsNoOverflow: "endless_overflows_are_reported",
    SilentAtTheFloor: "endless_overflows_are_reported",
    LeapsToTheTop: "one_overflow_one_backoff",
}


UNCLAIMED: dict[type[RobustScaler], set[str]] = {
    ZeroBelowOne: {"interval"},
    AppliesNaN: {"rechecks"},
    CannotLeaveTheFloor: {"interval"},
    OnlyInARow: {"hysteresis"},
}
"""Claims that a mutant does not make, since its fault breaks them as well."""


@dataclass(frozen=True)
class Few(Case):
    """With few drawn histories: for the checks that find nothing."""

    def examples_of(self, steps: int) -> int:
        return min(super().examples_of(steps), 15)

    @property
    def examples(self) -> int:
        return 15


def failing(make: Callable[[], Any], traits: Any, case_of: type[Case], named: str = "") -> dict[str, str]:
    """Give what fails; the check that is named has all its histories."""
    case, full = case_of(make, as_traits(traits)), Case(make, as_traits(traits))
    verdicts = [
        examined(check, full if check.name == named else case)
        for check in CHECKS
        if check.trait is None or check.trait in case.traits
    ]
    return {verdict.check: verdict.what for verdict in verdicts if verdict.status == "failed"}


@pytest.mark.parametrize("case_of", [Few, pytest.param(Case, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_exactly_the_check_named_for_it_catches_a_mutant(
    mutant: type[RobustScaler], case_of: type[Case]
) -> None:
    traits = as_traits(CLAIMED) | ({"hysteresis": 2} if issubclass(mutant, EverySecond) else {})
    traits = {name: value for name, value in traits.items() if name not in UNCLAIMED.get(mutant, ())}
    found = failing(lambda: mutant(**OPTIONS), traits, case_of, MUTANTS[mutant])
    assert list(found) == [MUTANTS[mutant]], found


def test_the_scaler_that_they_are_made_of_passes() -> None:
    assert failing(lambda: RobustScaler(**OPTIONS), CLAIMED, Case) == {}


def test_every_check_catches_a_mutant() -> None:
    """But one that is about the factory, and one whose faults are about the order of calls."""
    others = {"makes_a_new_scaler_each_time", "any_order_of_calls"}
    assert {check.name for check in CHECKS} - others == set(MUTANTS.values())
