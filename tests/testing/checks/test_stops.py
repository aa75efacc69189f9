"""What scalers do after a stop, and what a skip leaves behind."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from fp16sim_scaler_faults import fault, passes, says_nothing

from fp16sim import scaling
from fp16sim.scaling import Decision, observe
from fp16sim.testing.histories import expanded

ON, SKIP = "goes_on_after_a_stop", "skip_changes_nothing"


@dataclass(frozen=True)
class Stops:
    """Stops at every overflow at its floor of 4, and is as before."""

    scale: float = 8.0
    stopped: bool = False

    def update(self, seen):
        stop = "no smaller scale" if seen.overflowed and self.scale == 4.0 else None
        following = replace(self, scale=4.0 if seen.overflowed else 8.0, stopped=self.stopped or bool(stop))
        return following, Decision(apply=not seen.overflowed, divide_by=self.scale, stop=stop)


class ForGood(Stops):
    def update(self, seen):
        following, decision = super().update(seen)
        return following, replace(decision, stop="it is over") if self.stopped else decision


class Crashes(Stops):
    def update(self, seen):
        following, decision = super().update(seen)
        return following, replace(decision, divide_by=1.0 / (1.0 - self.stopped))


class SaysItCrashed(Stops):
    def update(self, seen):
        following, decision = super().update(seen)
        stop = "KeyError: 'scale'" if self.stopped and seen.overflowed else decision.stop
        return following, replace(decision, stop=stop)


class LeavesInfinity(Stops):
    def update(self, seen):
        following, decision = super().update(seen)
        return (replace(following, scale=float("inf")) if decision.stop else following), decision


@pytest.mark.parametrize(
    ("text", "shortest"),
    [
        ("fairseq,init_scale=1,min_loss_scale=0.5", "oo"),
        ("fairseq,init_scale=2,min_loss_scale=0.5", "ooo"),
        ("fairseq", "o{30}"),
        ("fairseq,scale_window=0", "."),
    ],
)
def test_fairseq_divides_by_zero_after_its_own_error(text, shortest):
    found = fault(ON, lambda: scaling.parse(text))
    assert found.history == expanded(shortest)
    assert "ZeroDivisionError" in found.what


@pytest.mark.parametrize(
    ("kind", "history", "says"),
    [
        (ForGood, "oo.", "training stops on a finite step, after a stop: it is over"),
        (Crashes, "oo.", "the scaler raised ZeroDivisionError: float division by zero"),
        (SaysItCrashed, "ooo", "the scaler crashed, after a stop: KeyError: 'scale'"),
        (LeavesInfinity, "oo", "the scale is inf, after a stop"),
    ],
)
def test_planted_ends_are_caught(kind, history, says):
    found = fault(ON, kind)
    assert (found.history, found.what.partition(" (")[0]) == (history, says)


@pytest.mark.parametrize(
    "make",
    [
        Stops,
        lambda: scaling.parse("robust"),
        lambda: scaling.parse("robust,growth_interval=2,floor_patience=1"),
        lambda: scaling.parse("deepspeed"),
        lambda: scaling.parse("mindspore_manager"),  # after a thousand overflows in a row
    ],
)
def test_those_that_go_on_pass(make):
    passes(ON, make)


@pytest.mark.parametrize("text", ["torch", "static", "apex,init_scale=2**-1074"])
def test_without_a_stop_there_is_nothing_after_it(text):
    says_nothing(ON, lambda: scaling.parse(text), "never stops")


class Advances(Stops):
    def update(self, seen):
        following, decision = super().update(seen)
        return following, replace(decision, advance=True)


class AdvancesOnNaN(Stops):
    def update(self, seen):
        following, decision = super().update(seen)
        return following, replace(decision, advance=seen.nan or None)


class AdvancesAtTheFloor(Stops):
    """Below 8 a skip is counted."""

    def update(self, seen):
        following, decision = super().update(seen)
        return following, replace(decision, stop=None, advance=self.scale < 8.0 or None)


class HandsOnZeros(Stops):
    def observe(self, gradients):
        for gradient in gradients:
            gradient[~np.isfinite(gradient)] = 0.0
        return observe(Stops(), gradients)


@pytest.mark.parametrize("text", ["keras2", "chainer", "guided_diffusion"])
def test_models_whose_counters_move_on_a_skip(text):
    found = fault(SKIP, lambda: scaling.parse(text))
    assert str(found) == '"o": the step was skipped, and the optimizer\'s counters moved by 1'


@pytest.mark.parametrize(
    ("kind", "history"),
    [(Advances, "o"), (AdvancesOnNaN, "n"), (AdvancesAtTheFloor, "oo"), (HandsOnZeros, "o")],
)
def test_planted_skips_are_caught(kind, history):
    assert fault(SKIP, kind).history == history


def test_zeros_are_no_skip():
    assert fault(SKIP, HandsOnZeros).what == "the optimizer was given 0 in place of what is not finite"


@pytest.mark.parametrize("text", ["robust", "robust,growth_interval=2", "torch", "none"])
def test_clean_skips_pass(text):
    """`none` applies overflows, which is the business of another check."""
    passes(SKIP, lambda: scaling.parse(text))
