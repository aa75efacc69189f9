"""The books of one list of calls: what is right passes, and each rule has a planted fault that it catches."""

import math
import re

import numpy as np
import pytest
from fp16sim_careful_loop import TWO, Careful

import fp16sim as fs
from fp16sim.testing.bookkeeping import Books, OrderFault
from fp16sim.testing.calls import Call
from fp16sim.testing.case import Case
from fp16sim.testing.driver import ONE_GROUP
from fp16sim.testing.walk import Walk


def calls(text, groups=ONE_GROUP):
    """Read `backward(1) unscale(b) put(nan) save` as calls."""
    found = []
    for word in text.split():
        name, _, rest = word.rstrip(")").partition("(")
        group, number = groups[0], {"clip": 1.0}.get(name, 0.0)
        gradients = {}
        for part in rest.split(",") if rest else ():
            key, equals, value = part.partition("=")
            if equals:
                gradients[key] = float(value)
            elif key in groups:
                group = key
            elif name == "backward":
                gradients[group] = float(key)
            else:
                number = float(key)
        if name == "save":
            found.append(Call("save and load", way="state_dict"))
        elif name in ("update", "zero_grad"):
            found.append(Call(name))
        else:
            found.append(Call(name, "" if gradients else group, gradients, number))
    return found


def books_of(make, text, groups=ONE_GROUP, traits=()):
    books = Books(Case(make, dict.fromkeys(traits, True)), groups)
    for call in calls(text, groups):
        books.make(call)
    return books


def fault_of(make, text, groups=ONE_GROUP, traits=()):
    with pytest.raises(OrderFault) as caught:
        books_of(make, text, groups, traits)
    return caught.value


REFUSED = "; refuse before anything is changed"
KEEP = "; keep it positive and finite in float32"


def shown(make, text, groups=ONE_GROUP, traits=()):
    what = re.sub(rf" \({re.escape(__file__)}, line \d+\)", "", fault_of(make, text, groups, traits).what)
    return what.rpartition(": ")[2]


IN_ORDER = [
    "backward(1) step update",
    "backward(1) step zero_grad update backward(2) step update",
    "backward(1) unscale clip(1) step update zero_grad",
    "backward(3) clip(1) step update",
    "backward(1) backward(2) backward(-3) step update",
    "backward(0) step update",
    "step update",
    "unscale step update",
    "backward(inf) step update backward(nan) unscale step update",
    "backward(inf) zero_grad backward(1) step update",
    "backward(1) unscale put(nan) step update",
    "backward(inf) backward(-inf) step update",
    "save backward(1) step update save save backward(1) step update backward(inf) step update",
]
OUT_OF_ORDER = [
    "update update",
    "backward(1) unscale unscale step update",
    "backward(1) step step update",
    "backward(1) unscale backward(1) step update",
    "backward(1) update step update",
    "backward(1) unscale zero_grad backward(2) step update",
    "backward(1) unscale update backward(1) step",
    "backward(1) step unscale clip(1) update",
]


@pytest.mark.parametrize("text", IN_ORDER + OUT_OF_ORDER)
def test_a_careful_loop_and_the_drivers_of_this_package_are_right(text):
    for make in (Careful, lambda: fs.scaling.make("robust"), lambda: fs.scaling.make("torch")):
        books = books_of(make, text.replace("save", "") if make is not Careful else text)
        assert len(books.calls) >= len(calls(text)) - text.count("put") - text.count("save")


@pytest.mark.parametrize(
    "text",
    [
        "backward(a=1,b=2) step(a) step(b) update",
        "backward(a=1,b=2) unscale(a) clip(a,1) step(a) unscale(b) clip(b,1) step(b) update",
        "backward(a=1,b=inf) step(b) step(a) update backward(b=1) step(a) step(b) update",
        "backward(a=1) step(a) backward(b=1) step(b) update",
        "backward(a=1) backward(b=inf) step(b) update backward(a=1) step(a) update",
        "backward(a=1,b=1) unscale(b) step(a) put(b,nan) step(b) update",
    ],
)
def test_two_optimizers_are_right(text):
    books_of(lambda: Careful(TWO), text, TWO, ("groups",))
    books_of(lambda: fs.scaling.make("robust"), text, TWO, ("groups",))
    books_of(lambda: fs.scaling.make("torch"), text, TWO)


class Raises(Careful):
    def step(self, group):
        raise RuntimeError("not today")


class NeedsGradients(Careful):
    """Lightning#7975."""

    def step(self, group):
        if group not in self.held:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        return super().step(group)


class Crashes(Careful):
    def unscale(self, group):
        return {}["found_inf"] if group in self.unscaled else super().unscale(group)


class SaysNothing(Careful):
    def update(self):
        if not self.unscaled:
            raise AssertionError
        super().update()


class Exits(Careful):
    def update(self):
        raise SystemExit(0)


class DividesThenRefuses(Careful):
    def unscale(self, group):
        self.divide(group)
        super().unscale(group)


class CountsThenRefuses(Careful):
    def update(self):
        self.counted += not self.unscaled
        super().update()


class SkipsThree(Careful):
    def step(self, group):
        self.bad = self.bad or float(self.held[group][0]) == 3 * self.now
        return super().step(group)


class Stops(Careful):
    def update(self):
        super().update()
        return "enough"


class MovesTwice(Careful):
    def step(self, group):
        return self.gradient(group) if group in self.stepped else super().step(group)


class AppliesWithoutGradients(Careful):
    def step(self, group):
        super().step(group)
        return np.float32([1.0])


class AppliesZerosForOverflows(Careful):
    def step(self, group):
        applied = super().step(group)
        return np.float32([0.0]) if applied is None else applied


class AppliesOverflows(Careful):
    def look(self):
        pass


class KeepsGradients(Careful):
    def zero_grad(self):
        if not hasattr(self, "held"):
            super().zero_grad()


class TakesMore(Careful):
    def backward(self, gradients, dtype="float32"):
        self.add(gradients, dtype)


class Scales(Careful):
    at = 0.0

    def move(self):
        super().move()
        self.now = self.at


class Infinite(Scales):
    at = 2.0**128


class Hides(Careful):
    def scale(self, group):
        if self.tracker:
            raise KeyError(group)
        return self.now


class LosesALoad(Careful):
    def restored(self, way, state, fresh):
        raise KeyError("_growth_tracker")


@pytest.mark.parametrize(
    ("faulty", "text", "shows"),
    [
        (Raises, "backward(1) step", "not today"),
        (Crashes, "backward(1) unscale unscale", "'found_inf'"),
        (SaysNothing, "update", "raised AssertionError"),
        (Exits, "backward(1) step update", "0"),
        (
            DividesThenRefuses,
            "backward(1) unscale unscale",
            "unscaled already), and yet the gradient went from 2^-16 to 2^-32" + REFUSED,
        ),
        (CountsThenRefuses, "update", "nothing was looked at), and yet counters moved" + REFUSED),
        (SkipsThree, "backward(3) step", "skipped the step though nothing overflowed"),
        (Stops, "backward(1) step update", "enough"),
        (
            MovesTwice,
            "backward(1) step step",
            "moved twice; refuse a second step before update, as torch does",
        ),
        (
            AppliesWithoutGradients,
            "step",
            "applied 1 where there was no gradient; skip an optimizer without gradients",
        ),
        (
            AppliesZerosForOverflows,
            "backward(nan) step",
            "applied 0 where the gradient was nan; skip such a step",
        ),
        (AppliesOverflows, "backward(inf) step", "applied inf where the gradient was inf; skip such a step"),
        (KeepsGradients, "backward(1) zero_grad", "zero_grad left the gradient 65536"),
        (
            TakesMore,
            "backward(1) unscale backward(1) step",
            "applied 65537 where the gradient was 2; refuse backward(1), which is out of order, or be right after it",
        ),
        (Scales, "backward(1) step update", "the scale is 0" + KEEP),
        (Infinite, "backward(1) step update", "the scale is 2^128" + KEEP),
        (Hides, "backward(1) step update", "'all'"),
        (LosesALoad, "save", "'_growth_tracker'"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_planted_fault_is_caught(faulty, text, shows):
    assert shown(faulty, text) == shows


LEFT_OUT = "; skip an optimizer without gradients, or leave such steps out: "
LEFT_OUT += "ScalerMachine.of(make, misuse=False)"


@pytest.mark.parametrize(
    ("groups", "text"), [(ONE_GROUP, "step"), (TWO, "backward(a=1) step(a) step(b)")], ids=["one", "two"]
)
def test_a_step_without_gradients_that_is_refused_is_a_fault_and_the_way_out_is_named(groups, text):
    found = fault_of(lambda: NeedsGradients(groups), text, groups)
    assert "raised AssertionError: No inf checks were recorded for this optimizer" in found.what
    assert found.what.endswith(LEFT_OUT)
    left_out = Books(Case(lambda: NeedsGradients(groups)), groups, misuse=False)
    for call in calls(text, groups):
        left_out.make(call)
    assert len(left_out.calls) == len(calls(text, groups)) - 1
    books_of(lambda: Careful(groups), text, groups)


def test_a_fault_of_a_step_with_gradients_names_no_way_out():
    assert "misuse" not in fault_of(Raises, "backward(1) step").what


def test_one_skips_where_another_moves_only_if_groups_are_claimed():
    torch = lambda: fs.scaling.make("torch")  # noqa: E731
    text = "backward(a=1,b=inf) step(a) step(b) update"
    books_of(torch, text, TWO)
    assert shown(torch, text, TWO, ("groups",)) == "a moved where b was skipped; skip all or none"


def test_gradients_that_turn_bad_are_for_those_who_look_again():
    text = "backward(1) unscale put(inf) step"
    assert [call.name for call in books_of(lambda: fs.scaling.make("torch"), text).calls] == [
        "backward",
        "unscale",
        "step",
    ]
    what = shown(lambda: fs.scaling.make("torch"), text, traits=("rechecks",))
    assert what == "applied inf where the gradient was inf; skip such a step"


def test_letters_say_whole_steps():
    assert fault_of(Infinite, "backward(inf) step update").history == "o"
    deepspeed = lambda: fs.scaling.make("deepspeed", initial_scale_power=2, loss_scale_window=1)  # noqa: E731
    assert fault_of(deepspeed, "backward(1) step update zero_grad backward(1) step").history == ".."
    assert fault_of(deepspeed, "backward(1) step update backward(1) unscale step").history == ""
    assert fault_of(LosesALoad, "backward(1) step update save").history in (".", ".|")


def test_a_stop_after_an_overflow_ends_the_books():
    books = books_of(lambda: fs.scaling.make("robust", min_scale=2.0**16, floor_patience=1), "backward(inf)")
    for call in calls("step update backward(1) step"):
        books.make(call)
    assert books.ended
    assert [call.name for call in books.calls] == ["backward", "step", "update"]


def test_rounding_is_allowed_where_a_scale_is_no_power_of_two():
    books_of(lambda: fs.scaling.make("torch", init_scale=3.0), "backward(1) backward(0.5) step update")


def test_what_underflows_is_not_judged():
    books_of(lambda: fs.scaling.make("torch", init_scale=2.0**-120), "backward(1) step update")
    tiny = Call("backward", gradients={"all": 2.0**-40})
    books = Books(Case(lambda: fs.scaling.make("torch", init_scale=2.0**-120)))
    for call in (tiny, *calls("step update")):
        books.make(call)


def test_nothing_is_saved_amid_a_step_or_by_who_cannot():
    books = books_of(Careful, "backward(1) save step save update save")
    assert [call.name for call in books.calls] == ["backward", "step", "update", "save and load"]

    class Unsavable(Careful):
        def saved(self):
            raise NotImplementedError

    assert Books(Case(Unsavable)).save_and_load(3) == []
    assert [call.way for call in Books(Case(lambda: fs.scaling.make("torch"))).save_and_load(1)] == [
        "to_json"
    ]


def test_the_walk_that_runs_is_the_scaler_s_not_its_twin_s():
    books = books_of(Careful, "backward(1) step update save backward(1) step")
    assert Walk.current is books.walk


class NeverClips(Careful):
    def clip(self, group, norm):
        self.unscale(group)


@pytest.mark.parametrize("value", [1.0, -1.0, 3.0, 0.5])
def test_clipping_is_by_the_norm_of_the_true_sum(value):
    text = f"backward({value}) backward({value}) clip(1) step"
    books_of(Careful, text)
    if abs(value) > 0.5:
        clipped = math.copysign(1.0, value)
        total = 2 * value
        what = f"applied {total:g} where the gradient was {total:g}, clipped {clipped:g}"
        assert shown(NeverClips, text) == what
    else:
        books_of(NeverClips, text)
