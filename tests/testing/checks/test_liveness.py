"""Property 3 in three parts: each finds the models that have the fault, and a scaler with just that fault."""

from dataclasses import dataclass, replace

import pytest

from fp16sim.scaling import Decision, parse
from fp16sim.testing.case import case_of
from fp16sim.testing.checks.liveness import CHECKS
from fp16sim.testing.histories import shown
from fp16sim.testing.walk import Fault

CHECK = {check.name: check for check in CHECKS}
RECOVERS, REPEATED, ENDLESS = (
    "recovers_from_overflows",
    "repeated_overflows_lower_the_scale",
    "endless_overflows_are_reported",
)


def fault(name, make, traits=()):
    with pytest.raises(Fault) as caught:
        CHECK[name](make, traits)
    return caught.value


def failing(make, traits=()):
    """Give the names of the checks that fail."""
    case, failed = case_of(make, traits), set()
    for name, check in CHECK.items():
        try:
            check(case)
        except Fault:
            failed.add(name)
    return failed


@pytest.mark.parametrize(
    ("name", "text", "history", "says"),
    [
        (RECOVERS, "deepspeed,hysteresis=0", "o", "no overflow ever lowers it"),
        (RECOVERS, "static", "o", "no overflow ever lowers it"),
        (RECOVERS, "flax,scale=inf", "o", "the scale is inf, and no overflow ever lowers it"),
        (
            RECOVERS,
            "torch,growth_interval=2",
            "o{166}",
            "the scale is 0, and 736 steps more give no usable one",
        ),
        (RECOVERS, "torch,init_scale=2**-148,growth_interval=2", "oo", "the scale is 0"),
        (RECOVERS, "keras3,dynamic_growth_steps=2", "o{165}", "the scale is 0"),
        (RECOVERS, "torch,growth_interval=0", "o", "32768, below its top, and does not grow in 20000 finite"),
        (RECOVERS, "torch_fsdp,init_scale=2**127,growth_interval=1", ".", "the scale is inf"),
        (RECOVERS, "megatron,initial_scale=2**127,growth_interval=1", ".", "the scale is inf"),
        (RECOVERS, "keras3,initial_scale=2**127,dynamic_growth_steps=1", ".", "the scale is inf"),
        (RECOVERS, "paddle,init_loss_scaling=2**127,incr_every_n_steps=1", ".", "the scale is inf"),
        (RECOVERS, "mindspore_cell,loss_scale_value=2**127,scale_window=1", ".", "the scale is inf"),
        (RECOVERS, "apex,scale_window=2", "o{1091}.", "the scale is 0 where training stops (apex divides"),
        (RECOVERS, "mxnet,scale_seq_len=2", "o{1091}.", "the scale is 0 where training stops (mxnet"),
        (RECOVERS, "openseq2seq_logmax", ".o.", "the scale is 1, below its top, and does not grow in 68"),
        (REPEATED, "deepspeed,hysteresis=0", "o", "no overflow ever lowers it"),
        (
            REPEATED,
            "deepspeed,consecutive_hysteresis=true",
            "o.o.o.",
            "72 times 'o.' leave the scale at 65536",
        ),
        (REPEATED, "paddle,decr_every_n_nan_or_inf=2", "o.o.o.", "72 times 'o.' leave the scale at 65536"),
        (ENDLESS, "deepspeed,hysteresis=0", "o", "the scale stays 65536, and 2500 overflows in a row bring"),
        (ENDLESS, "fairseq,threshold=16384", "oo", "the scale stays 16384"),
        (ENDLESS, "none", "o", "the scale stays 1"),
        (ENDLESS, "jmp", "o{16}", "the scale stays 1, and 2515 overflows in a row bring no reason to stop"),
        (ENDLESS, "flax", "o{143}", "the scale stays 2^-126"),
        (ENDLESS, "metaseq", "oooooooo", "the scale stays 0.03125"),
        (ENDLESS, "colossalai", "o{18}", "the scale stays 1"),
    ],
)
def test_the_models_with_the_fault_are_found(name, text, history, says):
    found = fault(name, lambda: parse(text))
    assert shown(found.history) == history
    assert says in found.what


@pytest.mark.parametrize(
    "text",
    [
        "robust",
        "robust,growth_interval=1",
        "robust,growth_interval=2",
        "robust,growth_interval=20,min_scale=1,max_scale=65536",
        "deepspeed,loss_scale_window=2",
        "deepspeed,loss_scale_window=20,hysteresis=5",
        "fairseq",
        "fairseq,scale_window=2",
        "fairseq,scale_window=100,tolerance=0.25",
        "fairseq,scale_window=2,tolerance=0.5",
        "fairseq,scale_factor=10,scale_window=3",
        "mindspore_manager,scale_window=2",
        "mindspore_manager,scale_factor=4,scale_window=20",
    ],
)
def test_scalers_that_stop_at_their_floor_pass(text):
    assert failing(lambda: parse(text)) == set()


@pytest.mark.parametrize(
    "text",
    [
        "jmp,period=2",
        "keras2,initial_scale=.25",
        "tf_v1",
        "flax,growth_interval=1",
        "oneflow,growth_interval=1,init_scale=2**127",
        "megatron,growth_interval=2,hysteresis=3",
        "colossalai,growth_interval=2",
        "chainer",
        "openseq2seq_backoff,step_window=2",
        "metaseq",
        "mindspore_amp,scale_window=2",
    ],
)
def test_a_scaler_that_only_never_says_so_fails_only_that(text):
    assert failing(lambda: parse(text)) == {ENDLESS}


@pytest.mark.parametrize("text", ["robust", "robust,growth_interval=1"])
def test_robust_passes_with_every_claim(text):
    assert failing(lambda: parse(text), ["power_of_two", {"hysteresis": 1}, "groups", "rechecks"]) == set()


def test_a_claimed_hysteresis_need_not_answer_to_fewer():
    def make():
        return parse("deepspeed,consecutive_hysteresis=true,loss_scale_window=20")

    assert failing(make) == {REPEATED}
    assert failing(make, {"hysteresis": 2}) == set()


@dataclass(frozen=True)
class Healthy:
    """Halves on overflow, doubles after four finite steps, and stops after five overflows at its floor."""

    scale: float = 1024.0
    clean: int = 0
    at_floor: int = 0
    bursts: int = 0

    def update(self, seen):
        following = self.lowered() if seen.overflowed else self.raised()
        decision = Decision(apply=not seen.overflowed, divide_by=self.scale, stop=following.reason())
        return following, decision

    def lowered(self):
        at_floor = self.at_floor + 1 if self.scale == 0.25 else 0
        bursts = self.bursts + (self.clean > 0)
        return replace(self, scale=max(self.scale / 2, 0.25), clean=0, at_floor=at_floor, bursts=bursts)

    def raised(self):
        if self.clean < 3:
            return replace(self, clean=self.clean + 1, at_floor=0)
        return replace(self, scale=min(self.scale * 2, 2.0**20), clean=0, at_floor=0)

    def reason(self):
        return "five overflows at the floor" if self.at_floor >= 5 else None


class GivesUpLowering(Healthy):
    """Lowers no more after the second burst."""

    def lowered(self):
        return super().lowered() if self.bursts < 2 else replace(self, clean=0)


class StaysDown(Healthy):
    """Never leaves its floor again."""

    def raised(self):
        return replace(self, at_floor=0) if self.scale == 0.25 else super().raised()


class SkipsForEver(Healthy):
    """Skips every step after five overflows in a row."""

    def update(self, seen):
        following, decision = super().update(seen)
        if self.scale <= 32.0:
            decision = replace(decision, apply=False)
        return following, decision


@dataclass(frozen=True)
class CountsInARow(Healthy):
    """Lowers only at the second of two overflows in a row."""

    waiting: bool = False

    def lowered(self):
        return replace(super().lowered() if self.waiting else self, clean=0, waiting=not self.waiting)

    def raised(self):
        return replace(super().raised(), waiting=False)


class Silent(Healthy):
    """Never says that it is at its floor."""

    def reason(self):
        return None


class SilentWithGaps(Healthy):
    """Says nothing if it has ever seen a finite step followed by an overflow."""

    def reason(self):
        return None if self.bursts else super().reason()


class SilentAtTheFloor(Healthy):
    """Counts on the way down, and no more at its floor: whoever comes there step by step is told nothing."""

    def lowered(self):
        return replace(super().lowered(), at_floor=self.at_floor + 1 if self.scale > 0.25 else 0)


class ForgetsNoOverflow(Healthy):
    """A finite step at its floor does not end the row of overflows."""

    def raised(self):
        return replace(super().raised(), at_floor=self.at_floor)


class SlowlyOut(Healthy):
    """Stays at its floor, without a word, through 2,000 finite steps where the window is 4."""

    def raised(self):
        if self.scale == 0.25 and self.clean < 2000:
            return replace(self, clean=self.clean + 1, at_floor=0)
        return super().raised() if self.scale > 0.25 else replace(self, scale=0.5, clean=0)


def test_a_healthy_scaler_passes():
    assert failing(Healthy) == set()


@pytest.mark.parametrize(
    ("make", "failed"),
    [
        (StaysDown, {RECOVERS}),
        (SlowlyOut, {RECOVERS}),
        (SkipsForEver, {RECOVERS}),
        (CountsInARow, {REPEATED}),
        (Silent, {ENDLESS}),
        (SilentWithGaps, {ENDLESS}),
        (SilentAtTheFloor, {ENDLESS}),
        (ForgetsNoOverflow, {ENDLESS}),
    ],
)
def test_each_planted_fault_fails_its_own_part(make, failed):
    assert failing(make) == failed


def test_planted_faults_come_with_their_shortest_history():
    down = fault(RECOVERS, StaysDown)
    assert shown(down.history) == "o{12}."
    assert down.what == "the scale is 0.25, below its top, and does not grow in 80 finite steps"
    skips = fault(RECOVERS, SkipsForEver)
    assert "a finite step is skipped, as are all in" in skips.what
    assert len(skips.history) <= 7
    assert fault(REPEATED, CountsInARow).history == "o.o.o."
    assert fault(ENDLESS, SilentWithGaps).history.startswith(".o")
    assert fault(ENDLESS, SilentAtTheFloor).history == "oooo.oooo.ooooo"
    single = fault(ENDLESS, ForgetsNoOverflow)
    assert shown(single.history) == "o{13}(...o){4}"
    assert single.what == (
        "training stops (five overflows at the floor), with 3 finite steps before each of the overflows at the floor, "
        "0.25, of which it takes 5 in a row"
    )


def test_a_scaler_that_lowers_no_more_is_found():
    assert RECOVERS in failing(GivesUpLowering)


def test_a_scaler_that_stops_at_the_first_overflow_is_no_loss_scaler():
    @dataclass(frozen=True)
    class Timid:
        scale: float = 8.0

        def update(self, seen):
            stop = "an overflow" if seen.overflowed else None
            return self, Decision(apply=not seen.overflowed, divide_by=self.scale, stop=stop)

    found = fault(RECOVERS, Timid)
    assert str(found) == '"o": training stops (an overflow) with the scale still 8, never lowered'
    assert failing(Timid) == {RECOVERS, REPEATED}


def test_a_scaler_that_lowers_its_scale_and_stops_at_once_is_found():
    class Hasty(Healthy):
        def reason(self):
            return "an overflow" if self.clean == 0 and self.scale < 1024.0 else None

    found = fault(RECOVERS, Hasty)
    assert str(found) == (
        '".o": training stops (an overflow), and going on lowers the scale further: it is 512, then 256'
    )
    assert failing(Hasty) == {RECOVERS}


def test_what_the_scaler_raises_comes_before_what_it_does_not_do():
    @dataclass(frozen=True)
    class Raises:
        scale: float = 8.0
        seen: int = 0

        def update(self, seen):
            if self.seen == 2:
                raise KeyError("third")
            return replace(self, seen=self.seen + 1), Decision(apply=True, divide_by=8.0)

    for name in (RECOVERS, REPEATED):
        assert "the scaler raised KeyError: 'third'" in fault(name, Raises).what
