"""Exact windows and hysteresis: the models that miss them, planted faults, and scalers that keep them."""

from dataclasses import dataclass, replace

import pytest
from fp16sim_scaler_faults import fault, passes, says_nothing

from fp16sim import scaling
from fp16sim.scaling import Decision
from fp16sim.testing.histories import expanded

WINDOW, HYSTERESIS = "exact_window", "hysteresis_counts_consecutive_overflows"


@dataclass(frozen=True)
class Plain:
    """Grows on the third clean step in a row, and is lowered by the second overflow in a row."""

    scale: float = 1024.0
    clean: int = 0
    bad: int = 0

    def update(self, seen):
        following = self.overflowed() if seen.overflowed else self.went_well()
        return following, Decision(apply=not seen.overflowed, divide_by=self.scale)

    def went_well(self):
        if self.clean < 2:
            return replace(self, clean=self.clean + 1, bad=0)
        return replace(self, scale=min(self.scale * 2.0, 2.0**20), clean=0, bad=0)

    def overflowed(self):
        if self.bad < 1:
            return replace(self, clean=0, bad=1)
        return replace(self, scale=max(self.scale / 2.0, 1.0), clean=0, bad=0)


class CountsOn(Plain):
    """An overflow does not end the row of clean steps."""

    def overflowed(self):
        return replace(super().overflowed(), clean=self.clean)


class GrowsAgain(Plain):
    """After growth the count goes on from 2."""

    def went_well(self):
        following = super().went_well()
        return replace(following, clean=2) if following.clean == 0 else following


class FirstIsLonger(Plain):
    """Only the window at the start is a step longer: a count that begins at -1."""

    def went_well(self):
        late = self.clean == 2 and self.scale == 1024.0 and not self.bad
        return replace(self, clean=3) if late else super().went_well()


class LongerAtTheFloor(Plain):
    def overflowed(self):
        following = super().overflowed()
        return replace(following, clean=-1) if following.scale == 1.0 else following


class CountsAll(Plain):
    """A clean step between does not end the row of overflows."""

    def went_well(self):
        return replace(super().went_well(), bad=self.bad)


class ThirdOnly(Plain):
    def overflowed(self):
        return replace(self, clean=0, bad=self.bad + 1) if self.bad < 2 else super().overflowed()


@pytest.mark.parametrize(
    ("text", "interval", "shortest"),
    [
        ("flax", 2000, ".{2000}"),
        ("flax,growth_interval=2", 2, ".."),
        ("deepspeed", 1000, ".{1000}"),
        ("deepspeed_unfused,loss_scale_window=3", 3, "..."),
        ("mxnet,scale_seq_len=2", 2, ".."),
        ("metaseq,scale_window=4", 4, "o.."),
        ("chainer", 1000, "."),
        ("torch", 2, ".."),
        ("torch,growth_interval=3", 4, "..."),
    ],
)
def test_models_with_another_window(text, interval, shortest):
    found = fault(WINDOW, lambda: scaling.parse(text), [{"interval": interval}])
    assert len(found.history) <= len(expanded(shortest)), found


def test_the_message_says_the_step_and_the_claim():
    found = fault(WINDOW, lambda: scaling.parse("torch,growth_interval=2"), [{"interval": 3}])
    assert str(found) == (
        '"..": the scale grew from 65536 to 131072 on finite step 2 in a row; the interval that is claimed is 3'
    )


@pytest.mark.parametrize(
    ("kind", "history"),
    [(CountsOn, ".oo.."), (GrowsAgain, "...."), (FirstIsLonger, "..."), (LongerAtTheFloor, "o{20}...")],
)
def test_planted_windows_are_caught(kind, history):
    found = fault(WINDOW, kind, [{"interval": 3}])
    assert len(found.history) <= len(expanded(history)), found


@pytest.mark.parametrize(
    ("text", "interval"),
    [
        ("robust", 2000),
        ("robust,growth_interval=1", 1),
        ("robust,growth_interval=20", 20),
        ("torch,init_scale=2**127,growth_interval=2", 2),
        ("torch", 2000),
        ("openseq2seq_backoff,step_window=5", 5),
        ("colossalai,growth_interval=3", 3),
        ("fairseq,scale_window=6", 6),
    ],
)
def test_exact_windows_pass(text, interval):
    passes(WINDOW, lambda: scaling.parse(text), [{"interval": interval}])


def test_a_scale_that_never_moves_has_no_window():
    says_nothing(WINDOW, lambda: scaling.parse("static"), "never moves", [{"interval": 2}])


def test_a_scale_that_cannot_leave_its_floor_is_left_to_another_check():
    class Stays(Plain):
        def went_well(self):
            return self if self.scale == 1.0 else super().went_well()

    passes(WINDOW, Stays, [{"interval": 3}])


@pytest.mark.parametrize(
    ("text", "hysteresis", "longest"),
    [
        ("megatron", 2, 3),
        ("deepspeed", 2, 3),
        ("colossalai", 2, 3),
        ("megatron,hysteresis=3", 3, 4),
        ("torch", 2, 1),
        ("paddle,decr_every_n_nan_or_inf=3", 2, 2),
    ],
)
def test_models_that_count_otherwise(text, hysteresis, longest):
    found = fault(HYSTERESIS, lambda: scaling.parse(text), [{"hysteresis": hysteresis}])
    assert len(found.history) <= longest, found


@pytest.mark.parametrize(("kind", "history"), [(CountsAll, "o.o"), (ThirdOnly, "oo")])
def test_planted_hysteresis_is_caught(kind, history):
    assert fault(HYSTERESIS, kind, [{"hysteresis": 2}]).history == history


def test_the_message_says_the_overflow_and_the_claim():
    found = fault(HYSTERESIS, ThirdOnly, [{"hysteresis": 2}])
    assert str(found) == '"oo": the scale stays at 1024 on overflow 2 in a row, the number that is claimed'


@pytest.mark.parametrize(
    ("make", "hysteresis"),
    [
        (Plain, 2),
        (lambda: scaling.parse("robust"), 1),
        (lambda: scaling.parse("robust,growth_interval=2"), 1),
        (lambda: scaling.parse("paddle,decr_every_n_nan_or_inf=3"), 3),
        (lambda: scaling.parse("deepspeed,consecutive_hysteresis=true"), 2),
        (lambda: scaling.parse("deepspeed,hysteresis=1,loss_scale_window=2"), 1),
    ],
)
def test_overflows_in_a_row_pass(make, hysteresis):
    passes(HYSTERESIS, make, [{"hysteresis": hysteresis}])


def test_nothing_to_count_where_overflows_lower_nothing():
    says_nothing(HYSTERESIS, lambda: scaling.parse("static"), "lower", [{"hysteresis": 2}])
