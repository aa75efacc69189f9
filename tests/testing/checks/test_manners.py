"""Steps without gradients, and what a scaler may not change: models and planted faults."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from fp16sim.scaling import Decision, Observation, parse
from fp16sim.scaling.protocol import need_check
from fp16sim.testing.checks import CHECKS
from fp16sim.testing.checks.manners import CHECKS as MANNERS
from fp16sim.testing.driver import Driver, Refusal
from fp16sim.testing.values import ValueDriver
from fp16sim.testing.walk import Fault, NotApplicable

no_gradients, zero_gradients, unchecked, new_each_time, changes_nothing = MANNERS
CLAIMED = ("checked",)


def fault_of(check, make, traits=CLAIMED):
    with pytest.raises(Fault) as raised:
        check(make, traits)
    return raised.value


def test_the_kit_has_them():
    assert {check.name for check in MANNERS} <= {check.name for check in CHECKS}
    assert all(check.number is None for check in MANNERS)


@pytest.mark.parametrize(
    "text", ["robust", "robust,growth_interval=2", "torch", "keras2", "mxnet", "deepspeed"]
)
@pytest.mark.parametrize("check", MANNERS, ids=lambda check: check.name)
def test_models_pass(check, text):
    check(lambda: parse(text), CLAIMED)


@dataclass(frozen=True)
class Healthy:
    scale: float = 16.0
    clean: int = 0

    def update(self, observation):
        need_check(observation)
        decision = Decision(apply=not observation.overflowed, divide_by=self.scale)
        if observation.overflowed:
            return replace(self, scale=max(self.scale / 2, 1.0), clean=0), decision
        if self.clean == 2:
            return replace(self, scale=min(self.scale * 2, 2.0**20), clean=0), decision
        return replace(self, clean=self.clean + 1), decision


@pytest.mark.parametrize("check", MANNERS, ids=lambda check: check.name)
def test_a_healthy_scaler_passes(check):
    check(Healthy, CLAIMED)


class CrashesOnNothing(Healthy):
    def observe(self, gradients):
        return Observation(overflow=not np.isfinite(np.concatenate(gradients)).all())


class TakesNothingForAnOverflow(Healthy):
    def observe(self, gradients):
        return Observation(overflow=not gradients or not all(np.isfinite(g).all() for g in gradients))


class StopsOnNothing(Healthy):
    def observe(self, gradients):
        finite = all(np.isfinite(gradient).all() for gradient in gradients)
        return Observation(overflow=not finite, amax=1.0 if gradients else None)

    def update(self, observation):
        following, decision = super().update(observation)
        return following, replace(decision, stop="no gradients" if observation.amax is None else None)


class FollowsThePeak(Healthy):
    """1 over 0 is caught, and taken for an overflow."""

    def update(self, observation):
        nothing = observation.amax == 0.0
        return super().update(replace(observation, overflow=True) if nothing else observation)


class SkipsZeros(Healthy):
    """Zeros are not counted, so the scale never grows out of underflow."""

    def update(self, observation):
        following, decision = super().update(observation)
        return (self, decision) if observation.amax == 0.0 else (following, decision)


class TakesAnything(Healthy):
    def update(self, observation):
        return super().update(replace(observation, checked=True))


class CrashesUnchecked(Healthy):
    def update(self, observation):
        if not observation.checked:
            return super().update(None.overflow)
        return super().update(observation)


@dataclass
class MovesBeforeItLooks:
    scale: float = 16.0

    def update(self, observation):
        self.scale = self.scale * 2 if self.scale < 1024 else 16.0
        need_check(observation)
        return self, Decision(apply=not observation.overflowed, divide_by=self.scale)


@dataclass
class MovesItself:
    scale: float = 16.0

    def update(self, observation):
        decision = Decision(apply=not observation.overflowed, divide_by=self.scale)
        if observation.overflowed:
            self.scale = max(self.scale / 2, 1.0)
        return self, decision


class CountsInADict(Healthy):
    """Frozen, and yet: what it holds is not."""

    def __init__(self, scale=16.0, clean=0, seen=None):
        for name, value in (("scale", scale), ("clean", clean), ("seen", {"o": 0} if seen is None else seen)):
            object.__setattr__(self, name, value)

    def update(self, observation):
        self.seen["o"] += observation.overflowed
        apply = not observation.overflowed
        return CountsInADict(self.scale, 0, self.seen), Decision(apply=apply, divide_by=self.scale)


@dataclass(frozen=True)
class FillsAList(Healthy):
    seen: list = field(default_factory=list)

    def update(self, observation):
        self.seen.append(observation.overflowed)
        return super().update(observation)


class ForgetsTheGroups(Healthy):
    def update(self, observation):
        result = super().update(observation)
        if isinstance(observation.overflow, dict):
            observation.overflow.clear()
        return result


class ForcesTheObservation(Healthy):
    def update(self, observation):
        result = super().update(observation)
        object.__setattr__(observation, "amax", 0.0)
        return result


class ZeroesWhatIsBad(Healthy):
    def observe(self, gradients):
        overflow = False
        for gradient in gradients:
            if gradient is not None and not np.isfinite(gradient).all():
                overflow = True
                gradient[~np.isfinite(gradient)] = 0.0
        return Observation(overflow=overflow)


class ClipsAtTheLastMoment(Healthy):
    def accepts(self, gradients):
        for gradient in gradients:
            if gradient is not None:
                np.clip(gradient, 0.0, 1.0, out=gradient)
        return True


class KeepsTheGradients(Healthy):
    """What `observe` was shown, `update` writes into."""

    seen: list = []  # noqa: RUF012  # shared, as the fault has it

    def observe(self, gradients):
        KeepsTheGradients.seen = [gradient for gradient in gradients if gradient is not None]
        overflow = any(not np.isfinite(gradient).all() for gradient in self.seen)
        return Observation(overflow=overflow)

    def update(self, observation):
        for gradient in self.seen:
            gradient[:] = 0.0
        return super().update(observation)


class IsDifferentEachTime(Healthy):
    calls: list = []  # noqa: RUF012  # shared, as the fault has it

    def update(self, observation):
        following, decision = super().update(observation)
        self.calls.append(1)
        return replace(following, scale=2.0 ** (len(self.calls) % 3)), decision


@pytest.mark.parametrize(
    ("check", "planted", "history", "what"),
    [
        (
            no_gradients,
            CrashesOnNothing,
            ".",
            "without any gradient the scaler raised ValueError: need at least",
        ),
        (
            no_gradients,
            TakesNothingForAnOverflow,
            ".",
            "without any gradient the scale became 8; after a usual finite step it is 16",
        ),
        (no_gradients, StopsOnNothing, ".", "without any gradient the scaler stopped training: no gradients"),
        (zero_gradients, FollowsThePeak, ".", "all gradients are zero, and the step was skipped"),
        (
            zero_gradients,
            SkipsZeros,
            "...",
            "where all gradients are zero the scale became 16; after a usual finite step it is 32",
        ),
        (unchecked, TakesAnything, ".", "an update without a check was taken: nobody had looked"),
        (
            unchecked,
            CrashesUnchecked,
            ".",
            "an update without a check is no clear error: the scaler raised Attrib",
        ),
        (
            unchecked,
            MovesBeforeItLooks,
            ".",
            "an update without a check was refused, and the scale went from 16 to 32 all the same",
        ),
        (
            changes_nothing,
            MovesItself,
            "o",
            "called on: scale was 16.0, then 8.0; give the next one as a new object",
        ),
        (
            changes_nothing,
            CountsInADict,
            "o",
            "update changed the scaler that it was called on: seen was {'o': 0}, then {'o': 1}",
        ),
        (changes_nothing, FillsAList, ".", "seen was [], then [False]; give"),
        (changes_nothing, ForgetsTheGroups, ".", "given: overflow was {'a': False, 'b': False}, then {}"),
        (
            changes_nothing,
            ForcesTheObservation,
            ".",
            "update changed the observation that it was given: amax was",
        ),
        (changes_nothing, ZeroesWhatIsBad, "o", "observe wrote into a gradient: [inf] became [0.0]"),
        (changes_nothing, ClipsAtTheLastMoment, ".", "accepts wrote into a gradient: "),
        (changes_nothing, KeepsTheGradients, ".", "update wrote into a gradient: "),
        (changes_nothing, IsDifferentEachTime, ".", "the same update twice gave two scalers: scale was"),
    ],
)
def test_a_planted_fault_is_found(check, planted, history, what):
    fault = fault_of(check, planted)
    assert fault.history == history
    assert what in fault.what


def test_logmax_goes_to_nan_where_there_is_nothing():
    for check, where in (
        (no_gradients, "without any gradient"),
        (zero_gradients, "where all gradients are zero"),
    ):
        fault = fault_of(check, lambda: parse("openseq2seq_logmax"))
        assert str(fault) == f'".": {where} the scale became nan; after a usual finite step it is 16384'


@pytest.mark.parametrize("text", ["none", "static"])
def test_those_that_need_no_check_take_an_unchecked_update(text):
    assert "was taken" in fault_of(unchecked, lambda: parse(text)).what
    with pytest.raises(NotApplicable, match="'checked' is not claimed"):
        unchecked(lambda: parse(text))


class Unable(ValueDriver):
    def __init__(self, scaler, groups=("all",)):
        super().__init__(scaler, groups)
        self.can = frozenset()


def test_a_driver_that_cannot_be_asked_without_a_check():
    with pytest.raises(NotApplicable, match="cannot be asked"):
        unchecked(lambda: Unable(Healthy()), CLAIMED)


class RefusesNothing(ValueDriver):
    def step(self, group):
        if self.gradient(group) is None:
            raise Refusal("there is no gradient")
        return super().step(group)


def test_a_refusal_of_a_step_without_gradients_is_no_crash():
    no_gradients(lambda: RefusesNothing(Healthy()))


class Zeroes(ValueDriver):
    def step(self, group):
        applied = super().step(group)
        return None if applied is None else applied + np.float32(0.5)


def test_zeros_are_applied_as_zeros():
    fault = fault_of(zero_gradients, lambda: Zeroes(Healthy()))
    assert str(fault) == '".": all gradients are zero, and the optimizer was given 0.5'


def test_the_same_object_twice():
    shared, frozen = MovesItself(), Healthy()
    fault = fault_of(new_each_time, lambda: shared)
    assert str(fault) == "the factory gave the same MovesItself twice: make a new one at each call"
    new_each_time(lambda: frozen)


def test_new_objects_that_share_what_they_hold():
    state = {"o": 0}

    @dataclass(frozen=True)
    class Shares(Healthy):
        def update(self, observation):
            state["o"] += observation.overflowed
            following, decision = super().update(observation)
            return replace(following, scale=16.0 / 2.0 ** min(state["o"], 3)), decision

    fault = fault_of(new_each_time, Shares)
    assert fault.history in ("o", "n", ".")
    assert "made before it took a step, is" in fault.what


def test_a_factory_that_remembers():
    last = [16.0]

    class Remembers(Healthy):
        def update(self, observation):
            following, decision = super().update(observation)
            last[0] = following.scale
            return following, decision

    def make():
        return Remembers(scale=last[0])

    fault = fault_of(new_each_time, make)
    assert "made after that" in fault.what


def test_objects_of_other_frameworks_may_change():
    methods = dict.fromkeys(Driver.__abstractmethods__)
    another = type("Another", (Driver,), methods)
    with pytest.raises(NotApplicable, match="its update changes it"):
        changes_nothing(another)


@pytest.mark.parametrize("check", [no_gradients, zero_gradients, unchecked, new_each_time, changes_nothing])
def test_a_scaler_that_raises_is_a_fault_not_an_error(check):
    class Raises(Healthy):
        def update(self, observation):
            if self.clean == 1:
                raise KeyError("lost")
            return super().update(observation)

    assert "the scaler raised KeyError: 'lost'" in fault_of(check, Raises).what
