"""Finite steps that are skipped, or stop training, and scalers that skip or stop for a reason."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from fp16sim_scaler_faults import fault, passes

from fp16sim.scaling import Decision, parse

APPLIED = "finite_steps_are_applied"
OTHERS = ("unscales_by_the_scale_that_scaled", "no_gradients_are_no_event", "goes_on_after_a_stop")


@dataclass(frozen=True)
class Healthy:
    """Between 1 and 64; it grows every third finite step, looks again, and stops at the fifth overflow at 1."""

    scale: float = 16.0
    clean: int = 0
    lost: int = 0

    def applies(self):
        return True

    def stops(self):
        return None

    def update(self, seen):
        if seen.overflowed:
            lost = self.lost + 1 if self.scale == 1.0 else 0
            following = replace(self, scale=max(self.scale / 2, 1.0), clean=0, lost=lost)
            return following, Decision(False, self.scale, stop="lost" if lost > 4 else None)
        following = replace(self, clean=self.clean + 1, lost=0)
        if following.clean == 3:
            following = replace(self, scale=min(self.scale * 2, 64.0), clean=0, lost=0)
        return following, Decision(self.applies(), self.scale, stop=self.stops())

    def accepts(self, gradients):
        return all(gradient is None or np.isfinite(gradient).all() for gradient in gradients)


class EverySecond(Healthy):
    def applies(self):
        return self.clean % 2 == 0


class AfterAnOverflow(Healthy):
    def applies(self):
        return self.clean > 0 or self.scale >= 16.0


class AtTheFloor(Healthy):
    def applies(self):
        return self.scale > 1.0


class AtTheTop(Healthy):
    def applies(self):
        return self.scale < 64.0


class WhereItGrows(Healthy):
    def applies(self):
        return self.clean < 2


class Never(Healthy):
    def applies(self):
        return False


class StopsAtTheTop(Healthy):
    def stops(self):
        return "done" if self.scale == 64.0 else None


class Rejects(Healthy):
    def accepts(self, gradients):
        return False


class RejectsLargeOnes(Healthy):
    def accepts(self, gradients):
        return all(np.abs(gradient).max() < 1.0 for gradient in gradients if gradient is not None)


class AfterLoading(Healthy):
    def state_dict(self):
        return {"scale": self.scale}

    def load_state_dict(self, state):
        return AfterLoading(scale=state["scale"], clean=-1)

    def applies(self):
        return self.clean >= 0


class CountsNothing(Healthy):
    def update(self, seen):
        following, decision = super().update(seen)
        return following, replace(decision, advance=False)


class CountsNothingWhereItGrows(Healthy):
    def update(self, seen):
        following, decision = super().update(seen)
        return following, replace(decision, advance=False if following.scale > self.scale else None)


@pytest.mark.parametrize(
    ("kind", "history", "what"),
    [
        (EverySecond, "..", "a finite step at the scale 16 was skipped"),
        (AfterAnOverflow, "o.", "a finite step at the scale 8 was skipped"),
        (AtTheFloor, "oooo.", "a finite step at the scale 1 was skipped"),
        (AtTheTop, ".......", "a finite step at the scale 64 was skipped"),
        (WhereItGrows, "...", "a finite step at the scale 16 was skipped"),
        (Never, ".", "a finite step at the scale 16 was skipped"),
        (StopsAtTheTop, ".......", "training stops on a finite step at the scale 64: done"),
        (Rejects, ".", "a finite step at the scale 16 was skipped by its check of unscaled gradients"),
        (
            RejectsLargeOnes,
            "oooo.",
            "a finite step at the scale 1 was skipped by its check of unscaled gradients",
        ),
        (AfterLoading, "|.", "a finite step at the scale 16 was skipped"),
        (
            CountsNothing,
            ".",
            "a finite step at the scale 16 was applied, and the optimizer's counters did not move",
        ),
        (
            CountsNothingWhereItGrows,
            "...",
            "a finite step at the scale 16 was applied, and the optimizer's counters did not move",
        ),
    ],
)
def test_planted_faults_are_found_and_by_no_other_check(kind, history, what):
    found = fault(APPLIED, kind)
    assert (found.history, found.what) == (history, what)
    if kind is not StopsAtTheTop:
        for other in OTHERS:
            passes(other, kind)


@pytest.mark.parametrize(
    "text",
    [
        "robust",
        "robust,growth_interval=1,min_scale=2**-126,max_scale=2**126",
        "torch",
        "torch,init_scale=2**-149",
        "flax",
        "flax,scale=inf",
        "mxnet",
        "fairseq",
        "megatron",
        "deepspeed,hysteresis=0",
        "static,scale=0.1",
    ],
)
def test_models_apply_finite_steps_at_usable_scales(text):
    passes(APPLIED, lambda: parse(text))


def test_a_healthy_scaler_passes():
    passes(APPLIED, Healthy)


def test_a_step_that_nothing_can_unscale_may_be_skipped():
    @dataclass(frozen=True)
    class Tiny(Healthy):
        scale: float = 2.0**-140

        def applies(self):
            return self.scale > 2.0**-126

    passes(APPLIED, Tiny)
