"""Property 6: two backoffs for one overflow, at once or a step late, are found; every usual backoff passes."""

from dataclasses import dataclass, replace

import pytest

from fp16sim.scaling import Decision, parse
from fp16sim.testing.case import case_of
from fp16sim.testing.checks.overshoot import one_overflow_one_backoff
from fp16sim.testing.walk import Fault


def fault(make):
    with pytest.raises(Fault) as caught:
        one_overflow_one_backoff(case_of(make))
    return caught.value


@pytest.mark.parametrize("text", ["mxnet", "mxnet,scale_seq_len=2"])
def test_a_lag_of_one_step_overshoots(text):
    found = fault(lambda: parse(text))
    assert found.history == "oo."
    assert found.what == (
        "with gradients that overflow at every scale of 65536 or more, the scale fell on a finite step to 16384, "
        "where one backoff gives 32768 or more"
    )


def test_a_rule_that_remembers_an_overflow_for_long_drops_far():
    found = fault(lambda: parse("openseq2seq_logmax"))
    assert str(found) == '".o": one overflow lowers the scale from 16384 to 1'


@pytest.mark.parametrize(
    "text",
    [
        "robust",
        "robust,growth_interval=1",
        "robust,growth_interval=2",
        "torch,growth_interval=2",
        "torch,growth_interval=1,growth_factor=10,backoff_factor=.1",
        "torch,growth_interval=3,growth_factor=4,backoff_factor=.25",
        "torch,growth_interval=2,growth_factor=1.5,backoff_factor=.9",
        "deepspeed,loss_scale_window=2",
        "deepspeed,loss_scale_window=2,hysteresis=4",
        "deepspeed,hysteresis=0,loss_scale_window=2",
        "megatron,growth_interval=2,hysteresis=3",
        "keras2,initial_scale=.25",
        "keras3,dynamic_growth_steps=2",
        "flax,growth_interval=2",
        "fairseq,scale_window=2,tolerance=.25",
        "fairseq,scale_window=100",
        "paddle,incr_every_n_steps=2,decr_every_n_nan_or_inf=2",
        "colossalai,growth_interval=2",
        "metaseq",
        "chainer",
        "guided_diffusion",
        "static",
        "none",
        "torch,init_scale=2**-149,growth_interval=1",
        "flax,scale=inf",
    ],
)
def test_usual_backoffs_pass(text):
    one_overflow_one_backoff(case_of(lambda: parse(text)))


@dataclass(frozen=True)
class Halving:
    scale: float = 1024.0
    clean: int = 0

    def update(self, seen):
        decision = Decision(apply=not seen.overflowed, divide_by=self.scale)
        if seen.overflowed:
            return replace(self, scale=self.lower(), clean=0), decision
        grows = self.clean == 4
        return replace(
            self, scale=self.scale * (2 if grows else 1), clean=0 if grows else self.clean + 1
        ), decision

    def lower(self):
        return max(self.scale / 2, 0.25)


class StartsByItsFloor(Halving):
    """Its first backoff, from 4 to 3, is cut short; the next ones are not."""

    def lower(self):
        return max(self.scale / 2, 3.0)


def test_a_first_backoff_that_the_floor_cuts_short_is_no_measure() -> None:
    one_overflow_one_backoff(case_of(lambda: StartsByItsFloor(scale=4.0)))


class FallsFar(Halving):
    """Falls to the floor from high scales."""

    def lower(self):
        return super().lower() if self.scale <= 1024 else 1.0


@dataclass(frozen=True)
class TwiceAfterGrowth(Halving):
    """Takes a second backoff if the overflow comes right after growth."""

    def lower(self):
        return max(self.scale / (4 if self.clean == 0 and self.scale > 1024 else 2), 0.25)


@dataclass(frozen=True)
class AgainOnTheNextStep(Halving):
    """Halves once more on the first finite step after an overflow."""

    pending: bool = False

    def update(self, seen):
        following, decision = super().update(seen)
        if self.pending and not seen.overflowed:
            following = replace(following, scale=max(following.scale / 2, 0.25))
        return replace(following, pending=seen.overflowed), decision


class LeapsToItsTop(Halving):
    """Every growth is to 2^20, and a row of overflows the way back."""

    def update(self, seen):
        following, decision = super().update(seen)
        return replace(following, scale=2.0**20) if following.scale > self.scale else following, decision


def test_a_growth_far_beyond_what_overflows_is_found():
    found = fault(LeapsToItsTop)
    assert found.history == "o" * 12 + "....."
    assert found.what == (
        "with gradients that overflow at every scale of 0.5 or more, the scale grew from 0.25 to 2^20"
    )


def test_planted_faults_are_found():
    one_overflow_one_backoff(case_of(Halving))
    assert str(fault(FallsFar)) == '".....o": one overflow lowers the scale from 2048 to 1'
    again = fault(AgainOnTheNextStep)
    assert again.history == "o."
    assert "fell on a finite step to 256, where one backoff gives 512 or more" in again.what
    twice = fault(TwiceAfterGrowth)
    assert twice.history == ".....o"
    assert "where one backoff gives" in twice.what
