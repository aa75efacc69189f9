"""Powers of two: the models that leave them, planted scalers that do, and those that stay."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from fp16sim.scaling import Decision, parse
from fp16sim.testing.checks import CHECKS
from fp16sim.testing.checks.transparency import CHECKS as TRANSPARENCY, _normal
from fp16sim.testing.driver import Refusal
from fp16sim.testing.histories import expanded
from fp16sim.testing.values import ValueDriver
from fp16sim.testing.walk import Fault, NotApplicable

(transparent,) = TRANSPARENCY
CLAIMED = ("power_of_two",)


def fault_of(make):
    with pytest.raises(Fault) as raised:
        transparent(make, CLAIMED)
    return raised.value


def test_the_kit_has_it_for_those_that_claim_it():
    assert transparent.name in {check.name for check in CHECKS}
    assert transparent.number == 8
    with pytest.raises(NotApplicable, match="'power_of_two' is not claimed"):
        transparent(lambda: parse("chainer"))


@pytest.mark.parametrize(
    "text",
    [
        "robust",
        "robust,growth_interval=2",
        "robust,growth_interval=1,min_scale=2**-126,max_scale=2**126",
        "torch",
        "torch,growth_interval=1",
        "keras3,dynamic_growth_steps=2",
        "jmp,loss_scale=2**15",
        "mxnet",
        "static",
        "none",
    ],
)
def test_those_that_stay_at_powers_of_two_pass(text):
    transparent(lambda: parse(text), CLAIMED)


@pytest.mark.parametrize(
    ("text", "longest", "what"),
    [
        ("torch,init_scale=3", "", "the scale is 3, no power of two"),
        ("chainer", "o.", "the scale is 1.000693387, no power of two"),
        ("guided_diffusion", ".", "the scale is 1049303.069, no power of two"),
        ("flax,scale=2**127,growth_interval=0", ".", "the scale is 3.402823466e+38, no power of two"),
        ("oneflow,init_scale=2**127,growth_interval=1", ".", "the scale is 3.402823466e+38, no power of two"),
        ("deepspeed,min_loss_scale=3", "o{17}", "the scale is 3, no power of two"),
        ("deepspeed,min_loss_scale=3,initial_scale_power=2,hysteresis=1", "o", "the scale is 3, no power"),
        ("tf_v1,multiplier=3", "o", "the scale is 10922.66699, no power of two"),
        ("openseq2seq_logmax", "..", "no power of two"),
        ("keras2,initial_scale=2**25", ".", "from the scale 2^25"),
        ("mindspore_amp,scale_value=2**25", ".", "from the scale 2^25"),
    ],
)
def test_models_leave_them(text, longest, what):
    fault = fault_of(lambda: parse(text))
    assert len(fault.history) <= len(expanded(longest))
    assert what in fault.what


def test_a_top_that_is_no_power_of_two_is_climbed_to():
    fault = fault_of(lambda: parse("flax,growth_interval=20"))
    assert fault.history == "." * 21 * 112  # from 2^16 to 2^127, and once more
    assert "3.402823466e+38" in fault.what


@dataclass(frozen=True)
class Healthy:
    scale: float = 2.0**16
    clean: int = 0

    def update(self, observation):
        decision = Decision(apply=not observation.overflowed, divide_by=self.scale)
        if observation.overflowed:
            return replace(self, scale=max(self.scale / 2, 2.0**-14), clean=0), decision
        if self.clean == 2:
            return replace(self, scale=min(self.scale * 2, 2.0**30), clean=0), decision
        return replace(self, clean=self.clean + 1), decision


class GrowsByHalf(Healthy):
    def update(self, observation):
        following, decision = super().update(observation)
        grown = following.scale > self.scale
        return (replace(following, scale=self.scale * 1.5) if grown else following), decision


class StopsAtAHundred(Healthy):
    def update(self, observation):
        following, decision = super().update(observation)
        return replace(following, scale=max(following.scale, 100.0)), decision


class HasAnOddTop(Healthy):
    def update(self, observation):
        following, decision = super().update(observation)
        return replace(following, scale=min(following.scale, 2.0**30 - 1.0)), decision


class UnscalesInFloat16(Healthy):
    """1 over a scale of 2^25 and more is 0 there, and over one of 2^-16 and less infinite."""

    def update(self, observation):
        following, decision = super().update(observation)
        return following, replace(decision, dtype="tensor")


class RoundsToFloat16(Healthy):
    """What it divides by is right, up to the eleventh digit of a float16: no scale shows it."""

    def update(self, observation):
        following, decision = super().update(observation)
        return following, replace(decision, divide_by=self.scale * (1.0 + 2.0**-11))


class DividesByTheNext(Healthy):
    def update(self, observation):
        following, decision = super().update(observation)
        return following, replace(decision, divide_by=following.scale)


class StartsJustBesideOne(Healthy):
    def __init__(self, scale=1.0 + 2.0**-40, clean=0):
        object.__setattr__(self, "scale", scale)
        object.__setattr__(self, "clean", clean)


def test_a_healthy_scaler_passes():
    transparent(Healthy, CLAIMED)


@pytest.mark.parametrize(
    ("planted", "history", "what"),
    [
        (GrowsByHalf, "...", "the scale is 98304, no power of two"),
        (StopsAtAHundred, "o" * 10, "the scale is 100, no power of two"),
        (HasAnOddTop, "." * 42, "the scale is 1073741823, no power of two"),
        (UnscalesInFloat16, "." * 29, "from the scale 2^25"),
        (RoundsToFloat16, ".", "gradient of"),
        (StartsJustBesideOne, "", "the scale is 1.0000000000009095, no power of two"),
    ],
)
def test_a_planted_fault_is_found(planted, history, what):
    fault = fault_of(planted)
    assert len(fault.history) <= len(history)
    assert what in fault.what


def test_another_power_of_two_is_the_business_of_property_2():
    transparent(DividesByTheNext, CLAIMED)


def test_the_message_shows_the_digits():
    fault = fault_of(lambda: parse("keras2,initial_scale=2**25"))
    assert (
        str(fault) == '".": a float16 gradient of 0.0003254413604736328 came back as 0.0 from the scale 2^25'
    )


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("exponent", [-20, -1, 0, 16, 28])
@pytest.mark.parametrize("place", range(5))
def test_the_gradients_are_normal_before_and_after(dtype, exponent, place):
    factor, tiny = math.ldexp(1.0, exponent), {"float16": 2.0**-14, "float32": 2.0**-126}[dtype]
    (gradient,) = _normal(dtype, 2**23 - 1, place, factor)
    for value in (gradient, gradient * factor):
        assert tiny <= value
        assert float(np.array(value).astype(dtype)) == value


class RefusesFloat16(ValueDriver):
    def unscale(self, group):
        gradient = self.gradient(group)
        if gradient is not None and gradient.dtype == np.float16:
            raise Refusal("float16 gradients are not unscaled")
        super().unscale(group)

    def step(self, group):
        if group not in self.asked:
            self.unscale(group)
        return super().step(group)


def test_a_driver_that_refuses_float16_is_checked_with_float32():
    transparent(lambda: RefusesFloat16(UnscalesInFloat16()), CLAIMED)
    with pytest.raises(Fault, match=r"float32 gradient of 1\.\d+e-12 came back"):
        transparent(lambda: RefusesFloat16(RoundsToFloat16()), CLAIMED)
