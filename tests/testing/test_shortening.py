"""Shorter histories: steps are left out for as long as a fault is found, within so many steps, the same each time."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from fp16sim.scaling import Decision, parse
from fp16sim.testing import Fault, scaler_checks
from fp16sim.testing.case import case_of
from fp16sim.testing.checking import verdicts
from fp16sim.testing.checks.check import Check
from fp16sim.testing.histories import expanded, shown
from fp16sim.testing.search import search
from fp16sim.testing.shortening import shortened, shortest_crash, shortest_found
from fp16sim.testing.walk import Walk

CHECKS = dict(scaler_checks())
LOW, HIGH = 2.0**-10, 2.0**40


def looks(rule):
    """Give an examination that finds a fault in the first steps that obey a rule."""

    def examine(history):
        for length in range(len(history) + 1):
            if rule(history[:length]):
                raise Fault(history[:length], "found")

    return examine


def shorter(rule, history):
    return shown(shortened(Fault(expanded(history), "found"), looks(rule)).history)


@pytest.mark.parametrize(
    ("rule", "history", "shortest"),
    [
        (lambda steps: steps.endswith(".o" + "." * 99), "o{27}.o.{99}", ".o.{99}"),
        (lambda steps: "." * 99 + "|." in steps, "o.{99}|.", ".{99}|."),
        (lambda steps: len(steps) == 137, "(.o){618}", "o{137}"),
        (lambda steps: steps.count("o") + steps.count("n") == 137, "(.n){618}", "o{137}"),
        (lambda steps: steps.count("o") > 4 and steps.endswith("." * 50), "(.o){20}.{300}", "ooooo.{50}"),
        (lambda steps: steps.endswith("nn"), ".nnn.", "nn"),
        (lambda steps: steps.endswith("no"), "..no", "no"),
        (lambda steps: True, "(.o){618}", ""),
    ],
)
def test_a_history_becomes_as_short_and_as_simple_as_it_can(rule, history, shortest):
    assert shorter(rule, history) == shortest


def test_what_cannot_be_shorter_stays_and_ends():
    calls = []

    def never(history):
        calls.append(history)

    fault = Fault(".o" * 8, "found")
    assert shortened(fault, never) is fault
    assert len(set(calls)) == len(calls) < 40


def test_a_longer_fault_and_an_error_are_no_shorter_history():
    def examine(history):
        if "|" not in history:
            raise LookupError(history)
        raise Fault(history + "." * 9, "longer")

    assert shortened(Fault("o.|.", "found"), examine).history == "o.|."


def test_it_ends_after_so_many_steps_and_is_the_same_each_time():
    make = case_of(lambda: parse("torch,growth_interval=0"))

    def examine(history):
        walk = make.walk()
        walk.tell_all("." * 25_000)
        if history.count("o") > 3:
            raise Fault(history, "four overflows")

    found = []
    for _ in range(2):
        begun = Walk.spent()
        found.append(shortened(Fault("..ooo" * 40, "found"), examine).history)
        assert Walk.spent() - begun == 75_000  # the third passes the 60,000
    assert found[0] == found[1]
    assert 4 <= len(found[0]) < 200


def test_the_cause_of_the_shorter_one_comes_with_it():
    def examine(history):
        try:
            raise KeyError(len(history))
        except KeyError as error:
            raise Fault(history, "inner") from error

    with pytest.raises(Fault) as caught, shortest_found(examine):
        examine("oo.n")
    assert caught.value.history == ""
    assert repr(caught.value.__cause__) == "KeyError(0)"


def test_a_search_ends_with_it_for_histories_and_what_begins_with_one():
    from hypothesis import strategies as st

    def of(history):
        if len(history) >= 300 and "o" in history:
            raise Fault(history, "long")

    def of_pair(pair):
        of(pair[0])

    long = st.sampled_from((".o" * 400, "n" * 300))  # which Hypothesis cannot make smaller
    for strategy, examine in ((long, of), (st.tuples(long, st.just(3)), of_pair)):
        with pytest.raises(Fault) as caught:
            search(strategy, examine, 5)
        assert shown(caught.value.history) == "o{300}"


@dataclass(frozen=True)
class Plain:
    """A window of 100, a floor, a top, and a stop at the floor."""

    scale: float = 2.0**16
    clean: int = 0
    lost: int = 0

    def update(self, seen):
        if seen.overflowed:
            lost = self.lost + 1 if self.scale == LOW else 0
            stop = "20 in a row at the floor" if lost >= 20 else None
            lower = type(self)(max(self.scale / 2, LOW), lost=lost)
            return lower, Decision(apply=False, divide_by=self.scale, stop=stop)
        following = replace(self, clean=self.clean + 1, lost=0)
        if following.clean == 100:
            following = type(self)(min(self.scale * 2, HIGH))
        return following, Decision(apply=True, divide_by=self.scale)

    def accepts(self, gradients):
        return all(each is None or np.isfinite(each).all() for each in gradients)


class NoReset(Plain):
    """An overflow does not begin the window anew."""

    def update(self, seen):
        following, decision = super().update(seen)
        return replace(following, clean=self.clean) if seen.overflowed else following, decision


class SavesSixBits(Plain):
    def state_dict(self):
        return {"scale": self.scale, "clean": self.clean % 64, "lost": self.lost}

    def load_state_dict(self, state):
        return type(self)(**state)


@pytest.mark.parametrize(
    ("make", "check", "history"),
    [(NoReset, "exact_window", ".o.{99}"), (SavesSixBits, "checkpoint_round_trip", ".{99}|.")],
)
def test_checks_show_no_steps_that_do_not_matter(make, check, history):
    with pytest.raises(Fault) as caught:
        CHECKS[check](make, {"interval": 100})
    assert shown(caught.value.history) == history


class Divides(Plain):
    """It divides by a scale that becomes 0 after 1091 overflows, whatever other steps come between."""

    def update(self, seen):
        1.0 / self.scale
        decision = Decision(apply=not seen.overflowed, divide_by=self.scale)
        return Divides(self.scale / 2 if seen.overflowed else self.scale), decision


def crash(history):
    with pytest.raises(Fault) as caught:
        case_of(Divides).walk().tell_all(history)
    return caught.value


def test_the_shortest_history_of_a_crash_is_looked_for_once():
    case, known = case_of(Divides), {}
    first = shortest_crash(crash(".o" * 1200), case.walk, known)
    assert shown(first.history) == "o{1092}"
    assert isinstance(first.__cause__, ZeroDivisionError)
    begun = Walk.spent()
    later = crash("oo." * 600)
    spent = Walk.spent() - begun
    assert shortest_crash(later, case.walk, known) is first
    assert Walk.spent() - begun == spent


def test_a_crash_that_plain_steps_do_not_show_keeps_its_history():
    fault = Fault(".o.", "with gradients")
    fault.__cause__ = ValueError("of a step with gradients")
    assert shortest_crash(fault, case_of(Plain).walk, {}) is fault
    restarted = Fault("o|", "after a restart")
    restarted.__cause__ = crash("o" * 1100).__cause__
    assert shortest_crash(restarted, case_of(Divides).walk, {}) is restarted


def test_every_check_that_an_exception_ends_shows_the_shortest_history():
    picked = ("scale_stays_finite", "overflow_never_raises_the_scale", "zero_gradients_are_finite")
    found = list(verdicts(Divides, only=picked))
    assert {(verdict.status, shown(verdict.history)) for verdict in found} == {("failed", "o{1092}")}
    assert len({verdict.raised for verdict in found}) == 1


def test_a_check_shortens_crashes_of_plain_steps_on_its_own():
    def examine(case):
        case.walk().tell_all(".o" * 1200)

    with pytest.raises(Fault) as caught:
        Check("told", None, examine)(Divides)
    assert shown(caught.value.history) == "o{1092}"
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
