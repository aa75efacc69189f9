"""Floors and tops that leave other state alone, and those that do not."""

from dataclasses import dataclass, replace

import pytest
from fp16sim_scaler_faults import fault, passes, says_nothing

from fp16sim import scaling
from fp16sim.scaling import Decision

CLAMP = "clamp_leaves_other_state_alone"


@dataclass(frozen=True)
class Clamped:
    """Grows every third clean step, between 1 and 64."""

    scale: float = 8.0
    clean: int = 0
    window: int = 3
    hidden: float = 8.0

    def update(self, seen):
        following = self.overflowed() if seen.overflowed else self.went_well()
        return following, Decision(apply=not seen.overflowed, divide_by=self.scale)

    def went_well(self):
        if self.clean + 1 < self.window:
            return replace(self, clean=self.clean + 1)
        return replace(self, scale=min(self.scale * 2.0, 64.0), clean=0)

    def overflowed(self):
        return replace(self, scale=max(self.scale / 2.0, 1.0), clean=0)


class Shrinks(Clamped):
    """Overflows at the floor make the window longer."""

    def overflowed(self):
        return replace(super().overflowed(), window=self.window + (self.scale == 1.0))


class Winds(Clamped):
    """Goes on doubling behind the top, and comes down from there."""

    def went_well(self):
        following = super().went_well()
        hidden = self.hidden * 2.0 if following.clean == 0 else self.hidden
        return replace(following, hidden=hidden, scale=min(hidden, 64.0))

    def overflowed(self):
        hidden = max(self.hidden / 2.0, 1.0)
        return replace(self, hidden=hidden, scale=min(hidden, 64.0), clean=0)


class WindsDown(Clamped):
    """Goes on halving below the floor, and has to come up from there."""

    def went_well(self):
        following = super().went_well()
        hidden = min(self.hidden * 2.0, 64.0) if following.clean == 0 else self.hidden
        return replace(following, hidden=hidden, scale=max(hidden, 1.0))

    def overflowed(self):
        hidden = self.hidden / 2.0
        return replace(self, hidden=hidden, scale=max(hidden, 1.0), clean=0)


class ThirdTime(Clamped):
    """Only the fourth overflow at the floor does harm."""

    def overflowed(self):
        hidden = 8.0 if self.scale > 1.0 else self.hidden / 2.0
        window = 9 if hidden == 0.5 else self.window
        return replace(super().overflowed(), hidden=hidden, window=window)


@pytest.mark.parametrize(
    ("text", "longest"),
    [
        ("metaseq", 14),
        ("metaseq,init_scale=2**-5", 14),
        ("metaseq,init_scale=2**-5,scale_window=8", 4),
        ("metaseq,init_scale=1,scale_window=64", 14),
    ],
)
def test_metaseq_shrinks_its_window_at_the_minimum(text, longest):
    found = fault(CLAMP, lambda: scaling.parse(text))
    assert len(found.history) <= longest, found


@pytest.mark.slow
def test_logmax_remembers_every_overflow_at_its_minimum():
    assert "oo" in fault(CLAMP, lambda: scaling.parse("openseq2seq_logmax")).history


def test_the_message_says_what_it_would_be():
    found = fault(CLAMP, lambda: scaling.parse("metaseq,init_scale=2**-5,scale_window=8"))
    assert str(found) == (
        '"oo..": the scale is 0.0625; without one of the overflows at the floor, 0.03125, it is 0.03125'
    )


@pytest.mark.parametrize(("kind", "longest"), [(Shrinks, 7), (Winds, 14), (WindsDown, 7), (ThirdTime, 10)])
def test_planted_clamps_are_caught(kind, longest):
    found = fault(CLAMP, kind)
    assert len(found.history) <= longest, found


@pytest.mark.parametrize(
    "make",
    [
        Clamped,
        lambda: scaling.parse("robust"),
        lambda: scaling.parse("robust,growth_interval=1"),
        lambda: scaling.parse("robust,growth_interval=20,min_scale=1,max_scale=2**20"),
        lambda: scaling.parse("robust,init_scale=1,min_scale=1,growth_interval=3"),
        lambda: scaling.parse("tf_v1"),
        lambda: scaling.parse("openseq2seq_backoff,step_window=3"),
        lambda: scaling.parse("chainer"),
        lambda: scaling.parse("colossalai,growth_interval=3"),
    ],
)
def test_clamps_that_leave_alone_pass(make):
    passes(CLAMP, make)


def test_a_count_that_overflows_do_not_reset_is_left_to_another_check():
    class CountsOn(Clamped):
        def overflowed(self):
            return replace(super().overflowed(), clean=self.clean)

    passes(CLAMP, CountsOn)


def test_a_scale_without_bounds_has_no_clamp():
    says_nothing(CLAMP, lambda: scaling.parse("keras3"), "no floor")


class FollowsTheGradients(Clamped):
    """As OpenSeq2Seq's paper does: the highest scale is where the mean of the logarithms came by."""

    def went_well(self):
        return replace(
            self, scale=min(self.scale * 2.0, 64.0) if self.clean % 2 else 48.0, clean=self.clean + 1
        )


class Decays(Clamped):
    """Falls on finite steps, and jumps back; it starts at its highest scale."""

    scale: float = 4096.0

    def went_well(self):
        return replace(self, scale=self.scale * 0.875 if self.scale > 64.0 else 4096.0)


@pytest.mark.parametrize("kind", [FollowsTheGradients, Decays])
def test_a_scale_that_falls_on_finite_steps_has_no_top(kind):
    passes(CLAMP, kind)
