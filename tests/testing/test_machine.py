"""The state machine finds every fault of order that was reported, planted into a loop that is right without it."""

import subprocess
import sys
import unittest
from collections import Counter

import numpy as np
import pytest
from fp16sim_careful_loop import TWO, Careful
from hypothesis.stateful import run_state_machine_as_test

import fp16sim as fs
from fp16sim.testing import ScalerMachine
from fp16sim.testing.bookkeeping import Books, OrderFault
from fp16sim.testing.driver import ONE_GROUP, Refusal
from fp16sim.testing.walk import Fault


class UnscalesTwice(Careful):
    """pytorch#94060: nothing remembers that unscale was called."""

    def unscale(self, group):
        self.look()
        self.unscaled.add(group)
        self.divide(group)


class StepUnscalesToo(Careful):
    """Lightning#15501: a step that unscales by itself, after an explicit unscale."""

    def step(self, group):
        if group in self.unscaled and group not in self.stepped:
            self.divide(group)
        return super().step(group)


class ClipsScaled(Careful):
    """Pytorch-UNet#468: the norm is that of the scaled gradient."""

    def clip(self, group, norm):
        if group in self.held and group not in self.unscaled:
            length = float(np.abs(self.held[group]).max())
            self.held[group] = self.held[group] * np.float32(norm / length if norm < length < np.inf else 1.0)


class UpdatesEachMicroBatch(Careful):
    """Accumulation: the scale may move between two backward passes, and the first scale divides the sum."""

    window = 1

    def backward(self, gradients, dtype="float32"):
        if self.unscaled:
            raise Refusal("gradients were unscaled already")
        self.add(gradients, dtype)

    def update(self):
        self.look()
        self.move()
        if self.unscaled:
            self.zero_grad()
        self.begin()


class LoadingTakesAStep(Careful):
    """accelerate#4289: what was saved with a tracker of 1 comes back grown, with 0."""

    def restored(self, way, state, fresh):
        loaded = super().restored(way, state, fresh)
        loaded.move()
        return loaded


class ForgetsItsTracker(Careful):
    """metaseq#3: counters are not saved."""

    def saved(self):
        return {"state_dict": {"scale": self.now, "tracker": 0}}


class EachSkipsAlone(Careful):
    """apex#114 and #179: one of two networks skips, the other moves."""

    def step(self, group):
        applied = super().step(group)
        alone = group in self.held and bool(np.isfinite(self.held[group]).all())
        return self.gradient(group) if alone else applied


class TheFirstStepMovesTheScale(Careful):
    """The second optimizer is unscaled by a scale that the first one's step moved already."""

    window = 1

    def step(self, group):
        if group in self.stepped:
            raise Refusal("stepped already")
        self.look()
        self.stepped.add(group)
        if group not in self.unscaled:
            self.unscaled.add(group)
            if group in self.held:
                self.held[group] = self.held[group] / np.float32(self.now)
        if len(self.stepped) == 1:
            self.move()
        return None if self.bad else self.gradient(group)

    def update(self):
        if not self.unscaled:
            raise Refusal("nothing was looked at")
        self.zero_grad()
        self.begin()


class NeedsGradients(Careful):
    """Lightning#7975: an optimizer without gradients."""

    def step(self, group):
        if group not in self.held:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        return super().step(group)


class LooksBeforeUnscalingOnly(Careful):
    """pytorch#97415: what turns bad after unscaling is applied."""

    def step(self, group):
        if group not in self.unscaled:
            return super().step(group)
        if group in self.stepped:
            raise Refusal("stepped already")
        self.stepped.add(group)
        self.moved = not self.bad
        return None if self.bad else self.gradient(group)


class TheScheduleAdvances(Careful):
    """Lightning#18828: a skipped step moves the counters."""

    def update(self):
        self.moved = True
        return super().update()


REPORTED = {
    UnscalesTwice: (
        ONE_GROUP,
        "backward(1), unscale, unscale, step",
        "applied 2^-16 where the gradient was 1",
    ),
    StepUnscalesToo: (ONE_GROUP, "backward(1), unscale, step", "applied 2^-16 where the gradient was 1"),
    ClipsScaled: (ONE_GROUP, "backward(1), clip(1), step", "applied 2^-16 where the gradient was 1"),
    UpdatesEachMicroBatch: (
        ONE_GROUP,
        "backward(1), update, backward(1), step",
        "applied 3 where the gradient was 2",
    ),
    LoadingTakesAStep: (
        ONE_GROUP,
        "step, update, save and load by state_dict",
        "the scale is 131072, and without saving and loading 65536",
    ),
    ForgetsItsTracker: (
        ONE_GROUP,
        "step, update, save and load by state_dict, step, update",
        "the scale is 65536, and without saving and loading 131072",
    ),
    EachSkipsAlone: (TWO, "backward(a=1, b=inf), step(a), step(b)", "was skipped"),
    TheFirstStepMovesTheScale: (
        TWO,
        "backward(b=1), step(a), step(b)",
        "applied 0.5 where the gradient was 1",
    ),
    NeedsGradients: (ONE_GROUP, "step", "No inf checks were recorded for this optimizer."),
    LooksBeforeUnscalingOnly: (
        ONE_GROUP,
        "backward(1), unscale, put(nan), step",
        "where the gradient was nan",
    ),
    TheScheduleAdvances: (
        ONE_GROUP,
        "backward(inf), step, update",
        "counters moved by 1 in a step that was skipped",
    ),
}
"""Groups, a list of calls, what they show: what is found is no longer, and shows the same."""


def machine(make, **options):
    return ScalerMachine.of(make, **{"traits": ("groups",), **options})


def found(make, **options):
    with pytest.raises(OrderFault) as caught:
        machine(make, **options).TestCase().debug()
    return caught.value


@pytest.mark.parametrize("faulty", REPORTED, ids=lambda kind: kind.__name__)
def test_a_reported_fault_is_found_with_few_calls(faulty):
    groups, calls, shows = REPORTED[faulty]
    fault = found(lambda: faulty(groups))
    print(fault)
    assert len(fault.calls) <= calls.count(", ") + 1
    assert fault.what.startswith(", ".join(call.words(groups) for call in fault.calls) + ": ")
    assert shows in fault.what


def test_the_example_of_the_documentation_is_found_to_the_letter():
    says = "backward(1), unscale, unscale, step: applied 2^-16 where the gradient was 1"
    says += (
        ": multiplied by 65536, divided by 2^32; refuse unscale, which is out of order, or be right after it"
    )
    assert str(found(UnscalesTwice)) == says
    assert found(UnscalesTwice).history == ""  # letters say whole steps only


TestCareful = machine(Careful).TestCase
TestCarefulWithTwo = machine(lambda: Careful(TWO)).TestCase
TestRobustWithTwo = machine(
    lambda: fs.scaling.make("robust", growth_interval=2), groups=TWO, examples=100
).TestCase


@pytest.mark.parametrize("groups", [ONE_GROUP, TWO])
@pytest.mark.parametrize(
    "text", ["robust", "torch", "torch,growth_interval=1", "jmp,period=2", "static", "apex"]
)
def test_a_healthy_model_passes(text, groups):
    """Where one optimizer skips, torch's other one does not: `groups` is not claimed here."""
    machine(lambda: fs.scaling.parse(text), groups=groups, traits=(), examples=50).TestCase().debug()


def test_a_scale_that_is_no_power_of_two_may_round():
    machine(lambda: fs.scaling.make("torch", init_scale=3.0), examples=50).TestCase().debug()


def test_nothing_out_of_order_is_called_without_misuse():
    class Fragile(Careful):
        def unscale(self, group):
            assert group in self.held
            assert group not in self.unscaled
            super().unscale(group)

        def update(self):
            assert self.stepped
            super().update()

    machine(Fragile, misuse=False).TestCase().debug()
    assert "raised AssertionError" in found(Fragile).what


def test_hypothesis_runs_it_too():
    with pytest.raises(OrderFault, match="applied"):
        run_state_machine_as_test(machine(UnscalesTwice), settings=machine(UnscalesTwice).TestCase.settings)


def test_the_test_case_is_one_of_unittest():
    result = unittest.TestResult()
    machine(NeedsGradients).TestCase().run(result)
    ((_, trace),) = result.failures
    assert "step: raised AssertionError: No inf checks" in trace


def test_the_same_is_found_every_time():
    assert str(found(ForgetsItsTracker)) == str(found(ForgetsItsTracker))


def test_a_scaler_that_draws_lots_is_found_out():
    made = []

    class Fickle(Careful):
        def __init__(self):
            super().__init__()
            made.append(self)

        def step(self, group):
            applied = super().step(group)
            return None if len(made) % 7 == 0 else applied

    with pytest.raises(Fault, match=r"skipped the step though nothing overflowed.*otherwise the second time"):
        machine(Fickle).TestCase().debug()


def test_a_machine_without_a_scaler_says_what_to_do():
    with pytest.raises(TypeError, match=r"ScalerMachine\.of\(make\)"):
        ScalerMachine()


@pytest.mark.parametrize("groups", [ONE_GROUP, TWO])
def test_every_call_is_made_often(groups, monkeypatch):
    every = []
    make = Books.__init__

    def remembered(self, *given):
        make(self, *given)
        every.append(self)

    monkeypatch.setattr(Books, "__init__", remembered)
    machine(lambda: Careful(groups)).TestCase().debug()
    names = [[call.name for call in books.calls] for books in every]
    share = Counter(name for each in names for name in set(each))
    assert set(share) == {
        "backward",
        "unscale",
        "clip",
        "put",
        "step",
        "update",
        "zero_grad",
        "save and load",
    }
    # 9% to 13% of the lists have the rarest call: which are drawn depends on the modules that are loaded.
    assert min(share.values()) >= 0.05 * len(every), share
    assert np.median([len(each) for each in names]) >= 10
    for micro_batches in ("backward backward backward", "backward update backward update"):
        assert np.mean([micro_batches in " ".join(each) for each in names]) >= 0.1


class LooksLikeTorch:
    """A scaler of one's own, with the methods of torch's: a backward pass onto unscaled gradients cannot be refused."""

    def __init__(self):
        self.now, self.unscaled, self.bad = 2.0**16, {}, False

    def scale(self, loss):
        return loss * np.float32(self.now)

    def get_scale(self):
        return self.now

    def unscale_(self, optimizer):
        if id(optimizer) in self.unscaled:
            raise RuntimeError(
                "unscale_() has already been called on this optimizer since the last update()."
            )
        self.unscaled[id(optimizer)] = False
        self.divide(optimizer)

    def divide(self, optimizer):
        for parameter in optimizer.param_groups[0]["params"]:
            if parameter.grad is not None:
                bad = not np.isfinite(parameter.grad).all()
                self.unscaled[id(optimizer)] |= bad
                self.bad = self.bad or bad
                parameter.grad = parameter.grad / np.float32(self.now)

    def step(self, optimizer):
        if id(optimizer) not in self.unscaled:
            self.unscale_(optimizer)
        if not self.unscaled[id(optimizer)]:
            optimizer.step()

    def update(self):
        self.now = self.now / 2 if self.bad else self.now
        self.unscaled, self.bad = {}, False

    def state_dict(self):
        return {"scale": self.now}

    def load_state_dict(self, state):
        self.now = state["scale"]


class StepUnscalesAlways(LooksLikeTorch):
    """Lightning#15501 again."""

    def step(self, optimizer):
        self.unscaled.setdefault(id(optimizer), False)
        self.divide(optimizer)
        if not self.unscaled[id(optimizer)]:
            optimizer.step()


@pytest.mark.parametrize("groups", [ONE_GROUP, TWO])
def test_an_object_that_looks_like_torch_s_is_right_in_order(groups):
    machine(LooksLikeTorch, groups=groups, traits=(), misuse=False, examples=100).TestCase().debug()


def test_an_object_that_looks_like_torch_s_is_condemned():
    says = "backward(1), unscale, step: applied 2^-16 where the gradient was 1"
    says += ": multiplied by 65536, divided by 2^32"
    assert str(found(StepUnscalesAlways, traits=(), misuse=False)) == says
    assert found(LooksLikeTorch, traits=()).calls


SHOWN = """
import fp16sim as fs
from fp16sim.scaling import Decision


class Late:
    def __init__(self, scale=8.0):
        self.scale = scale

    def update(self, observation):
        if observation.overflowed:
            return self.lowered()
        return Late(self.scale * 2), Decision(True, self.scale * 2)

    def lowered(self):
        raise KeyError("lower")


class Early(Late):
    def update(self, observation):
        return self.lowered()


TestLate = fs.testing.ScalerMachine.of(Late).TestCase
TestEarly = fs.testing.ScalerMachine.of(Early).TestCase
"""


def test_pytest_shows_the_calls_and_the_users_own_error_and_nothing_of_the_kit(tmp_path):
    (tmp_path / "test_shown.py").write_text(SHOWN)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--color=no", "-p", "no:cacheprovider"],
        cwd=tmp_path, env={"PATH": "", "PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    late, early = done.stdout.split("runTest ___")[1:]
    says = 'OrderFault: ".": backward(1), step: applied 0.5 where the gradient was 1: multiplied by 8, divided by 16\n'
    assert says + "    rule: Calls in any order are right, or refused; " in late
    assert "update: raised KeyError: 'lower' (" in early
    assert "rule: " not in early
    assert "def lowered(self):" in early
    for text in (late, early):
        assert "fp16sim/testing" not in text
        assert "state machine" not in text
