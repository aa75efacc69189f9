"""What is applied is finite and has the right size: the models that fail, planted faults, and scalers that pass."""

import math
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest

from fp16sim.scaling import Decision, Observation, parse
from fp16sim.testing.checks import CHECKS
from fp16sim.testing.checks.safety import CHECKS as SAFETY
from fp16sim.testing.histories import expanded
from fp16sim.testing.walk import Fault, NotApplicable

finite, rechecks, right_scale = SAFETY
ROBUST = ("robust", "robust,growth_interval=2", "robust,growth_interval=1,min_scale=2**-126,max_scale=2**126")


def fault_of(check, make, traits=()):
    with pytest.raises(Fault) as raised:
        check(make, traits)
    return raised.value


def test_the_kit_has_them():
    assert {check.name for check in SAFETY} <= {check.name for check in CHECKS}
    assert [check.number for check in SAFETY] == [1, 1, 2]


@pytest.mark.parametrize("text", ROBUST)
@pytest.mark.parametrize("check", SAFETY, ids=lambda check: check.name)
def test_robust_passes(check, text):
    check(lambda: parse(text), ("rechecks",))


@pytest.mark.parametrize(
    ("text", "longest", "given"),
    [
        ("torch,init_scale=2**-149", "o.", "inf"),
        ("torch,init_scale=2**-128", ".", "inf"),
        ("keras3,initial_scale=2**-149", "o.", "inf"),
        ("torch", "o{166}.", "inf"),
        ("apex,init_scale=2**-128", ".", "inf"),
        ("static,scale=2**-128", ".", "inf"),
        ("guided_diffusion,initial_lg_loss_scale=-128", ".", "inf"),
        ("none", "o", "inf"),
        ("fairscale_layerwise", "o", "inf"),
    ],
)
def test_1_models_apply_what_is_not_finite(text, longest, given):
    fault = fault_of(finite, lambda: parse(text))
    assert len(fault.history) <= len(expanded(longest))
    assert f"the optimizer was given {given}" in str(fault)


def test_1_the_message_has_the_numbers():
    assert str(fault_of(finite, lambda: parse("torch,init_scale=2**-128"))) == (
        '".": the optimizer was given inf: a gradient of 1 times the scale 2^-128 is 2.93874e-39, and unscaling made '
        "inf of that; define accepts, or keep the scale at 1 or more"
    )
    assert str(fault_of(finite, lambda: parse("none"))) == (
        '"o": the optimizer was given inf: the scaled gradient was inf, and the step was not skipped'
    )


def test_1_a_scale_below_1_makes_infinity_of_the_largest_gradients():
    """pytorch#99640: what the scaler looks at is finite, what it applies is not."""
    fault = fault_of(finite, lambda: parse("torch"))
    assert fault.history == "o" * 17 + "."
    assert "times the scale 0.5 is 3.40282e+38" in fault.what


def test_1_at_the_scale_0_the_update_is_nan():
    fault = fault_of(finite, lambda: StuckAt(0.0))
    assert fault.history == "."
    assert "given nan: a gradient of 1 times the scale 0 is 0, and unscaling made nan of that" in fault.what


@pytest.mark.parametrize("text", ["keras2", "flax", "jmp", "megatron", "deepspeed", "oneflow", "tf_v1"])
def test_1_models_that_stay_at_1_or_look_at_unscaled_gradients_pass(text):
    finite(lambda: parse(text))


@dataclass(frozen=True)
class Halving:
    """A healthy one: it stays between 1 and 2^20, and looks again."""

    scale: float = 16.0
    clean: int = 0

    def update(self, observation):
        decision = Decision(apply=not observation.overflowed, divide_by=self.scale)
        if observation.overflowed:
            return replace(self, scale=max(self.scale / 2, 1.0), clean=0), decision
        if self.clean == 2:
            return replace(self, scale=min(self.scale * 2, 2.0**20), clean=0), decision
        return replace(self, clean=self.clean + 1), decision

    def accepts(self, gradients):
        return all(gradient is None or np.isfinite(gradient).all() for gradient in gradients)


@dataclass(frozen=True)
class StuckAt:
    scale: float

    def update(self, observation):
        return self, Decision(apply=not observation.overflowed, divide_by=self.scale)


class SeesNoNan(Halving):
    """A peak that is compared loses NaNs: every comparison with one is false."""

    accepts = property()  # an AttributeError: it has none

    def observe(self, gradients):
        return Observation(overflow=any((np.abs(gradient) == np.inf).any() for gradient in gradients))


class GoesByThePeak(Halving):
    """What it is told of overflow is nothing to it, so that a refusal by accepts is none."""

    def update(self, observation):
        return super().update(replace(observation, overflow=observation.amax == math.inf))


class NeedsThePeak(Halving):
    """Without a peak it raises, as it may."""

    def update(self, observation):
        math.frexp(observation.amax)
        return super().update(observation)


class SkipsOneTooFew(Halving):
    """The second overflow in a row is applied."""

    accepts = property()

    def update(self, observation):
        following, decision = super().update(observation)
        at_once = observation.overflowed and self.clean == 0 and self.scale == 8.0
        return following, replace(decision, apply=decision.apply or at_once)


class HasNoFloor(Halving):
    accepts = property()

    def update(self, observation):
        following, decision = super().update(observation)
        return (replace(following, scale=self.scale / 2) if observation.overflowed else following), decision


class LooksTheOtherWay(Halving):
    def accepts(self, gradients):
        return True


class LooksForNanOnly(Halving):
    def accepts(self, gradients):
        return not any(gradient is not None and np.isnan(gradient).any() for gradient in gradients)


class LooksAtTheFirst(Halving):
    def accepts(self, gradients):
        return gradients[0] is None or bool(np.isfinite(gradients[0][0]))


class TakesOneForAll(Halving):
    def accepts(self, gradients):
        return any(gradient is not None and np.isfinite(gradient).all() for gradient in gradients)


class DividesByTheNext(Halving):
    """DeepSpeed#8588."""

    def update(self, observation):
        following, decision = super().update(observation)
        return following, replace(decision, divide_by=following.scale)


class DividesByTheFirst(Halving):
    def update(self, observation):
        following, decision = super().update(observation)
        return following, replace(decision, divide_by=16.0)


class IsALittleOff(Halving):
    """By 2^-19, twice of what is put down to rounding."""

    def update(self, observation):
        following, decision = super().update(observation)
        return following, replace(decision, divide_by=self.scale * (1 + 2.0**-19))


class TurnsTheSign(Halving):
    def update(self, observation):
        following, decision = super().update(observation)
        return following, replace(decision, divide_by=-self.scale)


class ForgetsTheLoss(Halving):
    """It shows a scale, and multiplies by 0: nothing is left of any gradient."""

    def scale_loss(self, loss):
        return loss * 0.0


@pytest.mark.parametrize("check", SAFETY, ids=lambda check: check.name)
def test_a_healthy_scaler_passes(check):
    check(Halving, ("rechecks",))
    check(NeedsThePeak, ("rechecks",))


@pytest.mark.parametrize(
    ("check", "planted", "history", "what"),
    [
        (finite, SeesNoNan, "n", "the scaled gradient was nan, and the step was not skipped"),
        (finite, GoesByThePeak, "o", "told of an overflow without amax, the scaler says to apply the step"),
        (finite, SkipsOneTooFew, "oo", "the scaled gradient was inf, and the step was not skipped"),
        (finite, HasNoFloor, "ooooo.", "times the scale 0.5 is 3.40282e+38, and unscaling made inf of that"),
        (rechecks, LooksTheOtherWay, ".", "nan was written into the unscaled gradient"),
        (rechecks, LooksForNanOnly, ".", "inf was written into the unscaled gradient"),
        (rechecks, LooksAtTheFirst, ".", "nan was written into the unscaled gradient"),
        (
            rechecks,
            TakesOneForAll,
            ".",
            "the unscaled gradients were [0.0009765625], [nan], and accepts let them pass",
        ),
        (right_scale, DividesByTheNext, "...", "multiplied by 16, divided by 32: the update is 0.5 times"),
        (right_scale, DividesByTheFirst, "o.", "multiplied by 8, divided by 16: the update is 0.5 times"),
        (right_scale, IsALittleOff, ".", "multiplied by 16, divided by 16: the update is 0.999998 times"),
        (right_scale, ForgetsTheLoss, ".", "the scale is 16, and a loss of 1 becomes 0"),
        (right_scale, TurnsTheSign, ".", "multiplied by 16, divided by -16: the update is -1 times"),
    ],
)
def test_a_planted_fault_is_found_and_by_the_check_for_it(check, planted, history, what):
    fault = fault_of(check, planted)
    assert fault.history == history
    assert what in fault.what
    for other in SAFETY:
        if other is not check and "accepts" not in vars(planted):
            other(planted)


class LooksAtOneVariable:
    """An optimizer as Keras 3 has them: of the unscaled gradients it looks at the first."""

    dynamic_scale = 0.5

    def __init__(self):
        self.inner_optimizer = SimpleNamespace(apply=None)

    def build(self, variables):
        pass

    def scale_loss(self, loss):
        return loss * np.float32(self.dynamic_scale)

    def apply(self, gradients, variables):
        unscaled = [gradient / np.float32(self.dynamic_scale) for gradient in gradients]
        if all(np.isfinite(gradient).all() for gradient in [*gradients, unscaled[0]]):
            self.inner_optimizer.apply(unscaled, variables)


def test_1_each_of_several_gradients_may_be_the_one_that_unscaling_makes_infinite():
    fault = fault_of(finite, LooksAtOneVariable)
    assert str(fault) == (
        '".": the optimizer was given inf: a gradient of 6.80565e+38 times the scale 0.5 is 3.40282e+38, and '
        "unscaling made inf of that; keep the scale at 1 or more"
    )


def test_1_nothing_becomes_infinite_at_1():
    class AtOne(LooksAtOneVariable):
        dynamic_scale = 1.0

    finite(AtOne)


def test_1b_is_for_scalers_that_look_again_or_claim_to():
    with pytest.raises(NotApplicable, match="does not look at unscaled gradients"):
        rechecks(lambda: parse("torch"))
    fault = fault_of(rechecks, lambda: parse("torch"), ("rechecks",))
    assert str(fault) == '".": nan was written into the unscaled gradient, and the optimizer was given it'


@pytest.mark.parametrize(
    ("text", "longest", "what"),
    [
        ("deepspeed,initial_scale_power=2,loss_scale_window=1", "..", "multiplied by 4, divided by 8"),
        ("deepspeed", ".{1001}", "multiplied by 65536, divided by 131072"),
        (
            "deepspeed_unfused,initial_scale_power=2,loss_scale_window=1",
            "..",
            "multiplied by 4, divided by 8",
        ),
        ("colossalai,growth_interval=1", ".", "multiplied by 65536, divided by 131072"),
        ("fairscale_layerwise,init_scale=8,growth_interval=9", "o.", "multiplied by 4, divided by 1"),
    ],
)
def test_2_models_divide_by_another_scale(text, longest, what):
    fault = fault_of(right_scale, lambda: parse(text))
    assert len(fault.history) <= len(expanded(longest))
    assert what in fault.what


@pytest.mark.parametrize(
    "text", ["chainer", "torch,init_scale=3", "keras3", "static,scale=0.1", "oneflow", "mxnet"]
)
def test_2_rounding_is_no_fault(text):
    right_scale(lambda: parse(text))


@pytest.mark.parametrize(
    "scale", [0.0, math.inf, 2.0**-149, 2.0**-160, 2.0**127, 2.0**300, 1.7 * 2.0**127, 2.0**-1074]
)
def test_2_says_nothing_of_scales_at_the_ends_of_float32(scale):
    right_scale(lambda: StuckAt(scale))


def test_what_a_scaler_raises_is_a_fault_with_its_history():
    @dataclass(frozen=True)
    class Raises(Halving):
        def update(self, observation):
            if self.clean == 1:
                raise KeyError("lost")
            return super().update(observation)

    for check in SAFETY:
        fault = fault_of(check, Raises)
        assert fault.history == ".."
        assert "the scaler raised KeyError: 'lost'" in fault.what
