"""What a case knows of a scaler: its profile, the histories drawn for it, and how claims are read."""

import math
from dataclasses import dataclass, replace
from functools import partial

import pytest
from hypothesis import find, given, settings
from hypothesis.errors import NoSuchExample

from fp16sim.scaling import Decision, make, parse
from fp16sim.testing.case import MOST_FINITE, Case, Profile, as_traits, case_of
from fp16sim.testing.search import quiet
from fp16sim.testing.values import ValueDriver
from fp16sim.testing.walk import Fault, Walk


def profile(text):
    return case_of(lambda: parse(text)).profile


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("torch", Profile(2.0**16, 0.0, 2.0**20, 1, 0.5, 166, 2000)),
        ("robust", Profile(2.0**16, 2.0**-16, 2.0**64, 1, 0.5, 32, 2000)),
        ("robust,growth_interval=1", Profile(2.0**16, 2.0**-16, 2.0**64, 1, 0.5, 32, 1)),
        ("flax,growth_interval=2", Profile(2.0**16, 2.0**-126, 2.0**20, 1, 0.5, 142, 3)),
        ("megatron,growth_interval=2", Profile(2.0**32, 1.0, 2.0**36, 2, 0.5, 33, 2)),
        ("torch,growth_factor=10,backoff_factor=.25,growth_interval=5", None),
        # a scaler that lags is lowered at the second overflow, and once more by the first finite step
        ("mxnet,scale_seq_len=2", Profile(2.0**16, 0.0, 2.0**21, 2, 0.5, 1092, 3)),
        # these start at their floor: the window is from there, and what overflows do shows once the scale has grown
        ("chainer", Profile(1.0, 1.0, 2.0**5, 1, 0.5, 5, 1)),
        ("jmp,loss_scale=1,period=3", Profile(1.0, 1.0, 2.0**5, 1, 0.5, 5, 3)),
        ("openseq2seq_logmax", Profile(1.0, 1.0, 2.0**14, 1, 2.0**-14, 1, 1)),
        # a floor above the start raises the scale to it
        ("keras2,initial_scale=.25,dynamic_growth_steps=2", Profile(0.25, 1.0, 2.0**3, 1, 0.5, 3, 2)),
        # nothing moves
        ("static", Profile(1024.0, 1024.0, 1024.0, 0, 1.0, 0, None)),
        ("none", Profile(1.0, 1.0, 1.0, 0, 1.0, 0, None)),
        ("flax,scale=inf", Profile(math.inf, math.inf, math.inf, 0, 1.0, 0, None)),
        ("torch,growth_interval=0", Profile(2.0**16, 0.0, 2.0**16, 1, 0.5, 166, None)),
        ("torch,init_scale=0", Profile(0.0, 0.0, 0.0, 0, 1.0, 0, None)),
        # grows, and is never lowered: its floor is where it starts
        ("deepspeed,hysteresis=0,loss_scale_window=2", Profile(2.0**16, 2.0**16, 2.0**23, 0, 1.0, 0, 3)),
    ],
)
def test_the_profile_of(text, expected):
    shown = profile(text)
    if expected is None:
        assert (shown.backoff, shown.window, shown.patience) == (0.25, 5, 1)
    else:
        assert shown == expected


@pytest.mark.parametrize(
    ("text", "stops_after"), [("deepspeed", 17), ("fairseq", 28), ("mindspore_manager", 24), ("apex", 1091)]
)
def test_a_scaler_that_stops_shows_its_floor_all_the_same(text, stops_after):
    shown = profile(text)
    assert shown.to_floor == stops_after
    assert shown.window in (1001, 2000)


@dataclass(frozen=True)
class Moving:
    """Halves, and doubles after three finite steps."""

    scale: float = 64.0
    clean: int = 0

    def update(self, seen):
        decision = Decision(apply=not seen.overflowed, divide_by=self.scale)
        if seen.overflowed:
            return replace(self, scale=self.scale / 2, clean=0), decision
        grows = self.clean == 2
        return replace(self, scale=self.scale * (1 + grows), clean=0 if grows else self.clean + 1), decision


class Stopping(Moving):
    """Stops at the third overflow, whatever comes before."""

    def update(self, seen):
        following, decision = super().update(seen)
        return following, replace(decision, stop="low" if following.scale < 16 else None)


class StoppingAtOnce(Moving):
    def update(self, seen):
        return self, Decision(apply=False, divide_by=self.scale, stop="no")


class Raising(Moving):
    """Raises at the third overflow."""

    def update(self, seen):
        if self.scale == 16 and seen.overflowed:
            raise KeyError("low")
        return super().update(seen)


class Unreadable(Moving):
    @property
    def scale(self):
        raise AttributeError("no scale yet")

    @scale.setter
    def scale(self, value):
        pass


@dataclass(frozen=True)
class Declaring(Moving):
    min_scale: float = 0.5
    max_scale: float = 2.0**30


@dataclass(frozen=True)
class DeclaringNothingUsable(Moving):
    min_scale: float = 0.0
    max_scale: float = math.inf


@dataclass(frozen=True)
class DeclaringOtherThings(Moving):
    min_scale: bool = True
    max_scale: str = "2**24"


class ByGroup:
    """A scale for each of two groups of its own."""

    def __init__(self, scales=None):
        self.scale = scales or {"encoder": 8.0, "decoder": 4.0}

    def update(self, seen):
        hit = seen.overflow if isinstance(seen.overflow, dict) else dict.fromkeys(self.scale, seen.overflow)
        scales = {group: scale / 2 if hit[group] else scale for group, scale in self.scale.items()}
        return ByGroup(scales), Decision(apply=not seen.overflowed, divide_by=self.scale)


def test_scalers_that_stop():
    assert case_of(Stopping).profile == Profile(64.0, 8.0, 1024.0, 1, 0.5, 3, 3)
    assert case_of(StoppingAtOnce).profile == Profile(64.0, 64.0, 64.0, 0, 1.0, 0, None)


def test_a_scaler_that_raises_shows_what_came_before():
    assert case_of(Raising).profile == Profile(64.0, 16.0, 1024.0, 1, 0.5, 2, 3)


def test_a_factory_that_raises_has_an_unknown_profile():
    def broken():
        raise ValueError("no file")

    unknown = case_of(broken).profile
    assert math.isnan(unknown.start)
    assert replace(unknown, start=0.0, floor=0.0, top=0.0) == Profile(0.0, 0.0, 0.0)
    with pytest.raises(Fault, match="making a scaler raised ValueError: no file"):
        case_of(broken).walk()


def test_what_is_declared_goes_before_what_is_seen():
    assert (case_of(Declaring).profile.floor, case_of(Declaring).profile.top) == (0.5, 2.0**30)
    for other in (DeclaringNothingUsable, DeclaringOtherThings):
        assert (case_of(other).profile.floor, case_of(other).profile.top) == (0.0, 1024.0)


def test_a_scaler_with_a_scale_for_each_group():
    shown = case_of(ByGroup).profile
    assert (shown.start, shown.patience, shown.backoff, shown.window) == (8.0, 1, 0.5, None)


def test_a_profile_is_made_once_for_a_factory():
    made = []

    def counted():
        made.append(1)
        return make("robust", growth_interval=2)

    first = case_of(counted).profile
    calls = len(made)
    assert case_of(counted, ["power_of_two"]).profile is first
    assert len(made) == calls


def test_runs_end_where_something_may_happen():
    lengths = profile("robust,growth_interval=20").lengths
    assert lengths == {".": (19, 20, 21), "o": (1, 2, 32, 33)}
    assert Profile().lengths == {".": (1, 2), "o": (1, 2)}


def test_long_histories_are_few():
    short, long = (case_of(lambda n=n: make("robust", growth_interval=n)) for n in (2, 2000))
    assert (short.examples, long.examples) == (100, 16)
    assert long.most_steps == 64 + 3 * 2000 + 2 * 32
    assert Case(lambda: make("none")).examples == 100


def test_of_a_dear_scaler_there_are_fewer():
    class Dear(ValueDriver):
        cost = 8

    dear, plain = (case_of(lambda kind=kind: kind(make("robust"))) for kind in (Dear, ValueDriver))
    assert (dear.cost, plain.cost) == (8, 1)
    assert (dear.examples, plain.examples) == (6, 16)
    assert [case.examples_of(1000) for case in (dear, plain)] == [12, 100]
    assert [case.examples_of(100_000) for case in (dear, plain)] == [4, 4]


def test_its_long_runs_are_left_out():
    dear, plain = (case_of(lambda: make("robust", growth_interval=200), [{"cost": c}]) for c in (200, 1))
    assert (dear.longest_run, plain.longest_run) == (100, 20_000)
    assert (dear.has_long_window, plain.has_long_window) == (True, False)
    assert dear.profile.window == plain.profile.window == 200
    assert (dear.most_steps, plain.most_steps) == (64 + 3 * 100 + 2 * 32, 64 + 3 * 200 + 2 * 32)

    def longest(case):
        try:
            find(case.histories("."), lambda history: len(history) >= 200, settings=quiet(400, shrink=False))
        except NoSuchExample:
            return False
        return True

    assert (longest(dear), longest(plain)) == (False, True)


def test_a_cost_that_is_claimed_comes_before_that_of_the_driver():
    class Dear(ValueDriver):
        cost = 8

    claimed = case_of(lambda: Dear(make("none")), [{"cost": 300}])
    assert (claimed.cost, claimed.walk().driver.cost) == (300, 300)
    before = Walk.spent()
    claimed.walk().tell_all("...")
    assert Walk.spent() - before == 900


def test_a_profile_is_kept_for_each_cost():
    factory = partial(make, "torch", growth_interval=200)
    dear, plain = (case_of(factory, [{"cost": cost}]) for cost in (1000, 1))
    assert (dear.profile.top, plain.profile.top) == (2.0**16, 2.0**20)
    assert case_of(factory, [{"cost": 1000}]).profile is dear.profile


def test_what_cannot_be_made_costs_as_the_others():
    def broken():
        raise ValueError("no")

    assert case_of(broken).cost == 1


def test_histories_keep_within_the_most_steps():
    case = case_of(lambda: make("robust", growth_interval=50))
    longest = []

    @settings(max_examples=200, derandomize=True, database=None, deadline=None)
    @given(case.histories())
    def drawn(history):
        assert set(history) <= set(".on")
        longest.append(len(history))

    drawn()
    assert 3 * 50 <= max(longest) <= case.most_steps


def test_a_window_longer_than_the_search_is_none():
    assert profile(f"torch,growth_interval={MOST_FINITE}").window == MOST_FINITE
    assert profile(f"torch,growth_interval={MOST_FINITE + 1}").window is None


def test_claims():
    assert as_traits("groups") == {"groups": True}
    assert as_traits({"interval": 2000, "hysteresis": 2}) == {"interval": 2000, "hysteresis": 2}
    assert as_traits(["power_of_two", {"interval": 5}]) == {"power_of_two": True, "interval": 5}
    assert as_traits(["power_of_two", "interval=5, groups"]) == {
        "power_of_two": True,
        "interval": 5,
        "groups": True,
    }
    assert as_traits(()) == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("power_of_too", "unknown trait 'power_of_too': did you mean 'power_of_two'"),
        ("interval", "trait 'interval' needs a number, the number of finite steps .*: write interval=2"),
        ({"interval": 0}, "trait 'interval'=0"),
        ({"hysteresis": 2.5}, "trait 'hysteresis'=2.5"),
        ({"hysteresis": True}, "trait 'hysteresis'=True"),
        ({"groups": 3}, "trait 'groups'=3: it is claimed or not; pass 'groups'"),
        ({"groups": False}, "trait 'groups'=False: it is claimed or not"),
    ],
)
def test_claims_that_are_none(given, message):
    with pytest.raises(ValueError, match=message):
        as_traits(given)


def test_an_object_is_no_factory():
    with pytest.raises(
        TypeError, match="a TorchScaler is no factory: pass a function that makes a new scaler"
    ):
        case_of(make("torch"))
    case = Case(Moving)
    assert case_of(case) is case


@pytest.mark.parametrize("traits", [3, None, [["groups"]], [{1}]])
def test_traits_that_are_no_names_are_refused(traits):
    with pytest.raises(TypeError, match=r"^traits?.*: pass .*'interval': 2000"):
        as_traits(traits)
