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


@dataclass(frozen=True)
class Reports:
    """Halves down to 1, where the third overflow in a row stops, and each after it; doubles every fifth clean step."""

    scale: float = 8.0
    clean: int = 0
    lost: int = 0
    said: bool = False

    def update(self, seen):
        if not seen.overflowed:
            grows = self.clean == 4
            scale = min(self.scale * 2, 64.0) if grows else self.scale
            following = replace(self, scale=scale, clean=0 if grows else self.clean + 1, lost=0)
            return following.after_clean(grows), Decision(True, self.scale)
        lost = self.lost + 1 if self.scale == 1.0 else 0
        following = replace(self, scale=max(self.scale / 2, 1.0), clean=0, lost=lost)
        stop = "no smaller scale" if following.stops(seen) else None
        return replace(following, said=self.said or bool(stop)), Decision(False, self.scale, stop=stop)

    def after_clean(self, grows):
        return self

    def stops(self, seen):
        return self.lost >= 3


class OnceForEver(Reports):
    """Nothing ever forgets that it was said."""

    def stops(self, seen):
        return self.lost >= 3 and not self.said


class OnceForEverOfNaN(Reports):
    def stops(self, seen):
        return self.lost >= 3 and not (self.said and seen.nan)


class UntilSomeGrowth(OnceForEver):
    """Forgets it only where the scale has grown, and the finite steps were more than a window."""

    def after_clean(self, grows):
        return replace(self, said=self.said and self.scale <= 4.0)


class OnceInARow(OnceForEver):
    """Healthy: the next finite step forgets."""

    def after_clean(self, grows):
        return replace(self, said=False)


class OnceUntilItGrows(OnceForEver):
    """Healthy: growth forgets."""

    def after_clean(self, grows):
        return replace(self, said=self.said and not grows)


class AtTheThird(Reports):
    """Healthy: equal, not at least."""

    def stops(self, seen):
        return self.lost == 3


@pytest.mark.parametrize(
    ("kind", "history", "steps"),
    [
        (OnceForEver, "oooooo.o", "overflows"),
        (OnceForEverOfNaN, "nnnnnn.n", "steps with NaN"),
        (UntilSomeGrowth, "oooooo.o", "overflows"),
    ],
)
def test_silence_about_a_second_row_of_overflows_is_caught(kind, history, steps):
    assert str(fault(ON, kind)) == (
        f'"{history}": after a stop, and finite steps, the scale stays 1, and 2503 {steps} in a row bring no second '
        "reason to stop; forget the first on a finite step"
    )


class GrowthSilences(OnceForEver):
    """A finite step at the floor forgets; whatever has grown never says anything again."""

    def after_clean(self, grows):
        return replace(self, said=grows or (self.said and self.scale > 1.0))


def test_where_one_finite_step_shows_nothing_more_than_a_window_do():
    assert fault(ON, GrowthSilences).history == "oooooo" + "......" + "oo"


@pytest.mark.parametrize("kind", [Reports, OnceInARow, OnceUntilItGrows, AtTheThird])
def test_a_stop_may_be_said_once_in_a_row(kind):
    passes(ON, kind)


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
