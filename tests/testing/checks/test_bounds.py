"""Properties 4, 5 and 7: the scale stays finite and above zero, and no overflow raises it."""

import math
from dataclasses import dataclass, replace

import pytest

from fp16sim.scaling import Decision, parse
from fp16sim.testing.case import case_of
from fp16sim.testing.checks.bounds import (
    overflow_never_raises_the_scale,
    scale_stays_above_zero,
    scale_stays_finite,
)
from fp16sim.testing.histories import shown
from fp16sim.testing.values import ValueDriver
from fp16sim.testing.walk import Fault, NotApplicable

ALL = (scale_stays_finite, scale_stays_above_zero, overflow_never_raises_the_scale)


def fault(check, make):
    with pytest.raises(Fault) as caught:
        check(case_of(make))
    return caught.value


@pytest.mark.parametrize(
    ("check", "text", "history", "what"),
    [
        (4, "megatron,initial_scale=2**127,growth_interval=1", ".", "the scale is inf; cap it"),
        (4, "keras3,initial_scale=2**127,dynamic_growth_steps=1", ".", "the scale is inf; cap it"),
        (4, "paddle,init_loss_scaling=2**127,incr_every_n_steps=1", ".", "the scale is inf; cap it"),
        (4, "torch_fsdp,init_scale=2**127,growth_interval=1", ".", "the scale is inf; cap it"),
        (4, "mindspore_cell,loss_scale_value=2**127,scale_window=1", ".", "the scale is inf; cap it"),
        (
            4,
            "metaseq,init_scale=2**127,scale_window=1",
            ".",
            "the scale is 2^128, infinite in float32; cap it",
        ),
        (4, "deepspeed,loss_scale_window=2", ".{225}", "the scale is 2^128, infinite in float32; cap it"),
        (4, "fairseq,scale_window=2", ".{226}", "the scale is 2^128, infinite in float32; cap it"),
        (4, "flax,scale=inf", "", "the scale is inf"),
        (5, "torch,init_scale=2**-149", "o", "the scale went from 2^-149 to 0; give it a floor"),
        (5, "torch", "o{166}", "the scale went from 2^-149 to 0; give it a floor"),
        (5, "keras3,initial_scale=2**-149", "o", "the scale went from 2^-149 to 0; give it a floor"),
        (5, "paddle,init_loss_scaling=2**-149", "o", "the scale went from 2^-149 to 0; give it a floor"),
        (5, "apex,init_scale=2**-1074", "o", "the scale went from 2^-1074 to 0; give it a floor"),
        (5, "mxnet,loss_scale=2**-1074", "oo", "the scale went from 2^-1074 to 0; give it a floor"),
        (5, "torch,init_scale=0", "", "the scale is 0 at the start"),
        (
            7,
            "keras2,initial_scale=.25",
            "o",
            "the scale rose from 0.25 to 1 on an overflow; clamp with min(old, new)",
        ),
        (
            7,
            "jmp,loss_scale=.25",
            "o",
            "the scale rose from 0.25 to 1 on an overflow; clamp with min(old, new)",
        ),
        (
            7,
            "deepspeed,initial_scale_power=-1,hysteresis=1",
            "o",
            "the scale rose from 0.5 to 1 on an overflow; clamp with min(old, new)",
        ),
        (
            7,
            "mxnet,scale_seq_len=1",
            ".o",
            "the scale rose from 65536 to 131072 on an overflow; clamp with min(old, new)",
        ),
    ],
)
def test_the_models_with_the_fault_are_found(check, text, history, what):
    found = fault(dict(zip((4, 5, 7), ALL, strict=True))[check], lambda: parse(text))
    assert (shown(found.history), found.what) == (history, what)


@pytest.mark.parametrize("text", ["robust,growth_interval=1", "robust,growth_interval=20", "static"])
@pytest.mark.parametrize("check", ALL)
def test_bounded_scalers_pass(check, text):
    check(case_of(lambda: parse(text)))


@pytest.mark.slow
@pytest.mark.parametrize("check", ALL)
def test_robust_passes_as_it_is(check):
    check(case_of(lambda: parse("robust")))


@dataclass(frozen=True)
class Halving:
    scale: float = 1024.0
    clean: int = 0

    def update(self, seen):
        decision = Decision(apply=not seen.overflowed, divide_by=self.scale)
        if seen.overflowed:
            return replace(self, scale=self.lower(), clean=0), decision
        if self.clean < 4:
            return replace(self, clean=self.clean + 1), decision
        return replace(self, scale=self.raise_(), clean=0), decision

    def lower(self):
        return max(self.scale / 2, 0.25)

    def raise_(self):
        return min(self.scale * 2, 2.0**20)


class Negative(Halving):
    def lower(self):
        return self.scale - 1000.0


class NotANumber(Halving):
    def raise_(self):
        return self.scale * 2 if self.scale < 4096 else math.nan


class TooLargeForFloat32(Halving):
    def raise_(self):
        return self.scale * 2.0**60


class Rises(Halving):
    def lower(self):
        return 0.5 if self.scale == 0.25 else super().lower()


@pytest.mark.parametrize(
    ("make", "failing", "message"),
    [
        (Negative, 5, '"oo": the scale went from 24 to -976; give it a floor'),
        (NotANumber, 4, '".{15}": the scale is nan'),
        (TooLargeForFloat32, 4, '".{10}": the scale is 2^130, infinite in float32; cap it'),
        (Rises, 7, '"o{13}": the scale rose from 0.25 to 0.5 on an overflow; clamp with min(old, new)'),
    ],
)
def test_each_planted_fault_fails_its_own_check(make, failing, message):
    for number, check in zip((4, 5, 7), ALL, strict=True):
        if number == failing:
            assert str(fault(check, make)) == message
        else:
            check(case_of(make))


@pytest.mark.parametrize("check", ALL)
def test_a_healthy_scaler_passes(check):
    check(case_of(Halving))


class Dear(ValueDriver):
    cost = 500


@pytest.mark.parametrize("text", ["torch,growth_interval=100", "robust,growth_interval=100"])
def test_a_scale_that_still_grows_at_the_end_of_the_steps_has_not_passed(text):
    with pytest.raises(NotApplicable) as caught:
        scale_stays_finite(case_of(lambda: Dear(parse(text))))
    assert str(caught.value) == (
        "the scale is 2^21 after 500 finite steps, and still grows: make it with a shorter window, or a higher first "
        "scale, to see where that ends"
    )


@pytest.mark.parametrize("text", ["static", "robust,growth_interval=100,max_scale=2**17"])
def test_one_that_is_at_its_top_before_has(text):
    assert scale_stays_finite(case_of(lambda: Dear(parse(text)))) is None


def test_a_dear_scaler_whose_window_is_longer_than_the_steps_has_not_passed():
    with pytest.raises(
        NotApplicable, match="the scale is 65536 after 500 finite steps, and will grow: make it"
    ):
        scale_stays_finite(case_of(lambda: Dear(parse("robust,growth_interval=2000"))))


def test_a_dear_scaler_that_never_grows_again_is_not_followed_for_ever():
    """One overflow takes it to 0, where it stays, so that no window is known; finite steps take it to its top."""

    class Less(ValueDriver):
        cost = 40

    assert (
        scale_stays_finite(case_of(lambda: Less(parse("torch,init_scale=2**-149,growth_interval=2")))) is None
    )


def test_a_dear_scaler_is_followed_down_to_zero():
    """Few histories are drawn of it, and none of these has 277 overflows."""
    found = fault(
        scale_stays_above_zero, lambda: Dear(parse("torch_fsdp,init_scale=2**127,growth_interval=2"))
    )
    assert shown(found.history) == "o{277}"
