"""The driver of this package's protocol: the loop that it stands for, refusals, groups, saving."""

import json
import math
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import pytest

from fp16sim import scaling
from fp16sim.autograd.policy import Policy
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn import Module
from fp16sim.optim import SGD
from fp16sim.scaling import Decision, Observation, parse
from fp16sim.testing.driver import GRADIENTS, PEAK, Refusal
from fp16sim.testing.values import ValueDriver
from fp16sim.training.step import train_step

LARGEST = float(np.finfo(np.float32).max)
SINGLE = [
    name for name in scaling.names() if name not in ("adaptive", "delayed", "fairscale_layerwise", "unit")
]
ALL, BOTH = "all", ("a", "b")


@dataclass(frozen=True)
class Spy:
    """Says what it is told to, and remembers what it was told."""

    scale: float = 8.0
    apply: bool = True
    stop: str | None = None
    advance: bool | None = None
    told: tuple = ()

    def update(self, observation):
        decision = Decision(apply=self.apply, divide_by=self.scale, stop=self.stop, advance=self.advance)
        return replace(self, told=(*self.told, observation)), decision


class Choosy(Spy):
    """Looks once more, and applies whatever it said then."""

    def accepts(self, gradients):
        return all(gradient is None or np.isfinite(gradient).all() for gradient in gradients)


def stepped(driver, gradients, dtype="float32"):
    """Take a step; give what each group was given, and the reason to stop."""
    driver.zero_grad()
    driver.backward(gradients, dtype)
    return [driver.step(group) for group in driver.groups], driver.update()


class One(Module):
    """A weight of 0 whose gradient is the input."""

    def __init__(self):
        super().__init__()
        self.weight = Tensor(np.zeros(1, np.float32), requires_grad=True)

    def forward(self, inputs):
        return (self.weight * inputs).sum()


@pytest.mark.parametrize(
    "text", ["robust,growth_interval=2", "torch,growth_interval=3", "keras3", "mxnet", "keras2"]
)
def test_it_does_what_a_training_step_does(text):
    driver, scaler = ValueDriver(parse(text)), parse(text)
    for step, gradient in enumerate([1.0, 0.3, LARGEST, -1e-30, LARGEST, LARGEST, 7.0, 1.1, 0.0]):
        model = One()
        taken = train_step(
            step,
            model,
            lambda output, _: output,
            (np.float32([gradient]), None),
            policy=Policy("float32"),
            scaler=scaler,
            optimizer=SGD(list(model.parameters()), lr=1.0),
            measure=False,
        )
        before = driver.counted
        (applied,), stop = stepped(driver, {ALL: np.float64(np.float32([gradient]))})
        scaler = taken.scaler
        assert stop is None
        assert (applied is not None) == taken.step.applied
        assert driver.counted - before == taken.advance
        assert driver.scale(ALL) == scaler.scale
        if applied is not None:
            np.testing.assert_array_equal(-applied, model.weight.data)


@pytest.mark.parametrize("name", SINGLE)
def test_to_be_told_is_as_good_as_a_step_with_gradients(name):
    told, taken = ValueDriver(parse(name)), ValueDriver(parse(name))
    for letter in "..o.n..oo.ooo..n....":
        one = told.tell(letter)
        (applied,), stop = stepped(taken, {ALL: GRADIENTS[letter]})
        assert (one.applied, one.stop) == (applied is not None, stop)
        assert told.scale(ALL) == taken.scale(ALL)
        assert told.counted == taken.counted


def test_to_be_told_ends_a_step_that_was_begun():
    driver = ValueDriver(parse("robust"))
    driver.backward({ALL: GRADIENTS["o"]})
    driver.unscale(ALL)
    assert driver.tell(".").applied
    assert driver.gradient(ALL) is None
    assert driver.scale(ALL) == 2.0**16


def test_a_peak_is_told_of():
    driver = ValueDriver(Spy())
    for letter, peak in (".", 3.0), (".", 3.0), (".", 5.0), ("o", 5.0), ("n", 5.0):
        driver.tell_peak(letter, peak)
    driver.tell(".")
    told = [(one.overflow, one.nan, one.amax) for one in driver.scaler.told]
    assert told == [
        (False, False, 3.0),
        (False, False, 3.0),
        (False, False, 5.0),
        (True, False, math.inf),
        (True, True, math.inf),
        (False, False, PEAK),
    ]


def test_gradients_are_scaled_and_unscaled_once():
    driver = ValueDriver(Spy(scale=3.0))
    driver.backward({ALL: np.array([1.0, 0.1])})
    driver.backward({ALL: np.array([1.0, 0.2])})
    scaled = np.float32([3.0, 0.1 * 3.0]) + np.float32([3.0, 0.2 * 3.0])
    np.testing.assert_array_equal(driver.gradient(ALL), scaled)
    driver.unscale(ALL)
    unscaled = scaled * np.float32(1.0 / 3.0)
    np.testing.assert_array_equal(driver.gradient(ALL), unscaled)
    np.testing.assert_array_equal(driver.step(ALL), unscaled)
    assert driver.update() is None
    assert driver.gradient(ALL) is None


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_gradients_have_the_dtype_that_is_asked_for(dtype):
    driver = ValueDriver(Spy())
    driver.backward({ALL: np.array([1.0])}, dtype)
    assert driver.gradient(ALL).dtype == dtype
    assert driver.step(ALL).dtype == np.float32


def test_what_is_given_out_or_put_in_is_a_copy():
    driver, put = ValueDriver(Spy()), np.float32([5.0])
    driver.backward({ALL: np.array([1.0])})
    driver.gradient(ALL)[0] = 9.0
    assert driver.gradient(ALL)[0] == 8.0
    driver.put(ALL, put)
    put[0] = 9.0
    driver.unscale(ALL)
    driver.step(ALL)[0] = 9.0
    assert driver.gradient(ALL)[0] == 0.625


@pytest.mark.parametrize("first", ["unscale", "clip", "none"])
def test_a_clipped_gradient_is_unscaled_first_and_once(first):
    driver = ValueDriver(Spy())
    driver.backward({ALL: np.array([3.0, 4.0])})
    if first == "unscale":
        driver.unscale(ALL)
    if first == "clip":
        driver.clip(ALL, 100.0)
    driver.clip(ALL, 2.5)
    assert driver.step(ALL).tolist() == [1.5, 2.0]


class TestRefusals:
    def begun(self, scaler=None, groups=(ALL,)):
        driver = ValueDriver(Spy() if scaler is None else scaler, groups)
        driver.backward(dict.fromkeys(groups, np.array([1.0])))
        return driver

    def test_a_second_unscale(self):
        driver = self.begun()
        driver.unscale(ALL)
        with pytest.raises(Refusal, match="'all' is unscaled already: call update"):
            driver.unscale(ALL)
        assert driver.step(ALL).tolist() == [1.0]

    def test_to_unscale_after_the_step(self):
        driver = self.begun()
        driver.step(ALL)
        with pytest.raises(Refusal, match="unscaled already"):
            driver.unscale(ALL)

    def test_a_second_step(self):
        driver = self.begun()
        driver.step(ALL)
        with pytest.raises(Refusal, match="'all' has stepped already: call update"):
            driver.step(ALL)
        driver.update()
        driver.backward({ALL: np.array([1.0])})
        assert driver.step(ALL).tolist() == [1.0]

    @pytest.mark.parametrize("by", ["unscale", "step"])
    @pytest.mark.parametrize("forget", [False, True])
    def test_a_gradient_that_comes_after_the_look(self, by, forget):
        driver = self.begun(groups=BOTH)
        getattr(driver, by)("a")
        if forget:
            driver.zero_grad()
        with pytest.raises(Refusal, match="looked at already: call update"):
            driver.backward({"b": GRADIENTS["n"]})
        driver.backward({"b": None})
        assert forget or np.isfinite(driver.step("b")).all()

    def test_gradients_of_two_scales(self):
        class Moving:
            scale = 8.0

            def update(self, observation):
                return self, Decision(apply=True, divide_by=self.scale)

        driver = self.begun(Moving(), BOTH)
        driver.scaler.scale = 4.0
        with pytest.raises(Refusal, match="gradients of the scales 8 and 4 cannot be added"):
            driver.backward(dict.fromkeys(BOTH, np.array([1.0])))
        assert driver.gradient("a").tolist() == driver.gradient("b").tolist() == [8.0]

    def test_a_scale_that_is_nan_is_not_refused_for_it(self):
        driver = self.begun(Spy(scale=math.nan))
        driver.backward({ALL: np.array([1.0])})
        assert np.isnan(driver.gradient(ALL)).all()


def test_a_decision_outlives_the_gradients():
    """Loops forget the gradients before the update, or after it."""
    driver = ValueDriver(parse("robust"))
    driver.backward({ALL: GRADIENTS["o"]})
    assert driver.step(ALL) is None
    driver.zero_grad()
    assert driver.update() is None
    assert driver.scale(ALL) == 2.0**15


def test_an_update_without_a_check_says_so():
    driver = ValueDriver(Spy())
    driver.update()
    assert [one.checked for one in driver.scaler.told] == [False]
    with pytest.raises(ValueError, match="checked=False"):
        ValueDriver(parse("robust")).update()


def test_no_gradients_are_observed_as_none():
    driver = ValueDriver(Spy())
    assert stepped(driver, {}) == ([None], None)
    assert driver.scaler.told == (Observation(overflow=False, amax=0.0),)


def test_nothing_is_applied_or_counted_at_a_stop():
    driver = ValueDriver(Spy(stop="enough", advance=True))
    assert stepped(driver, {ALL: np.array([1.0])}) == ([None], "enough")
    told = driver.tell(".")
    assert (told.applied, told.stop) == (False, "enough")
    assert driver.counted == 0


@pytest.mark.parametrize(
    ("apply", "advance", "counted"),
    [(True, None, 1), (False, None, 0), (False, True, 1), (True, False, 0)],
)
def test_what_counts(apply, advance, counted):
    spy = Spy(apply=apply, advance=advance)
    for driver in (ValueDriver(spy), ValueDriver(spy)):
        stepped(driver, {ALL: np.array([1.0])})
        assert driver.counted == counted
        driver.tell(".")
        assert driver.counted == 2 * counted


def test_an_optimizer_that_was_not_asked_to_step_does_not_count():
    driver = ValueDriver(Spy())
    driver.backward({ALL: np.array([1.0])})
    driver.unscale(ALL)
    driver.update()
    assert driver.counted == 0


class TestToLookOnceMore:
    def spoiled(self, scaler, groups=(ALL,)):
        driver = ValueDriver(scaler, groups)
        driver.backward(dict.fromkeys(groups, np.array([2.0])))
        driver.unscale(groups[-1])
        driver.put(groups[-1], np.float32([np.nan]))
        return driver

    def test_only_a_scaler_that_has_the_method_does(self):
        assert "rechecks" not in ValueDriver(Spy()).can
        assert "rechecks" in ValueDriver(Choosy()).can
        assert np.isnan(self.spoiled(Spy()).step(ALL)).all()

    def test_what_is_refused_is_skipped_whatever_update_says(self):
        driver = self.spoiled(Choosy())
        assert driver.step(ALL) is None
        driver.update()
        assert driver.counted == 0

    def test_the_observation_is_that_of_the_scaled_gradients(self):
        driver = self.spoiled(Choosy())
        driver.step(ALL)
        driver.update()
        assert driver.scaler.told == (Observation(overflow=True, nan=False, amax=2.0),)

    def test_robust_halves(self):
        driver = self.spoiled(parse("robust"))
        assert driver.step(ALL) is None
        driver.update()
        assert driver.scale(ALL) == 2.0**15

    def test_of_two_neither_moves_if_it_is_seen_in_time(self):
        driver = self.spoiled(parse("robust"), BOTH)
        assert [driver.step(group) for group in BOTH] == [None, None]

    def test_what_is_spoiled_after_the_first_has_moved_is_not_applied(self):
        driver = ValueDriver(parse("robust"), BOTH)
        driver.backward(dict.fromkeys(BOTH, np.array([2.0])))
        assert driver.step("a").tolist() == [2.0]
        driver.unscale("b")
        driver.put("b", np.float32([np.inf]))
        assert driver.step("b") is None
        driver.update()
        assert driver.scale("a") == 2.0**15

    def test_a_group_that_does_not_move_is_not_looked_at(self):
        @dataclass(frozen=True)
        class Each(Choosy):
            def update(self, observation):
                following, decision = super().update(observation)
                apply = {group: not overflow for group, overflow in observation.overflow.items()}
                return following, replace(decision, apply=apply)

        driver = ValueDriver(Each(), BOTH)
        applied, _ = stepped(driver, {"a": np.array([1.0]), "b": GRADIENTS["o"]})
        assert applied[0].tolist() == [1.0]
        assert applied[1] is None


class TestGroups:
    @pytest.mark.parametrize(
        ("text", "moves"), [("torch", [True, False]), ("robust", [False, False]), ("none", [True, True])]
    )
    def test_each_is_told_of(self, text, moves):
        driver = ValueDriver(parse(text), BOTH)
        applied, _ = stepped(driver, {"a": np.array([1.0]), "b": GRADIENTS["o"]})
        assert [each is not None for each in applied] == moves

    def test_the_observation_of_several(self):
        driver = ValueDriver(Spy(), BOTH)
        stepped(driver, {"a": np.array([1.0, -3.0]), "b": GRADIENTS["n"]})
        stepped(driver, {"a": np.array([1.0])})
        first, second = driver.scaler.told
        assert first == Observation(overflow={"a": False, "b": True}, nan=True, amax=math.inf)
        assert second == Observation(overflow={"a": False, "b": False}, amax=1.0)
        assert driver.tell("o").applied
        assert driver.scaler.told[-1].overflow == {"a": True, "b": True}

    def test_one_may_be_unscaled_and_clipped_after_another_has_moved(self):
        driver = ValueDriver(Spy(), BOTH)
        driver.backward(dict.fromkeys(BOTH, np.array([4.0])))
        assert driver.step("a").tolist() == [4.0]
        driver.unscale("b")
        driver.clip("b", 2.0)
        assert driver.step("b").tolist() == [2.0]


@dataclass(frozen=True)
class Layers:
    """A scale for each of two layers."""

    w: float = 8.0
    v: float = 2.0

    @property
    def scale(self):
        return MappingProxyType({"w": self.w, "v": self.v})

    def update(self, observation):
        overflow = observation.overflow
        following = replace(self, **{k: x / 2 if overflow[k] else x for k, x in self.scale.items()})
        return following, Decision(apply=not observation.overflowed, divide_by=dict(self.scale))


class TestAScaleForEachGroup:
    def test_its_own_groups_are_taken(self):
        driver = ValueDriver(Layers())
        assert driver.groups == ("w", "v")
        assert [driver.factor(group) for group in driver.groups] == [8.0, 2.0]
        driver.backward(dict.fromkeys(driver.groups, np.array([3.0])))
        assert [driver.gradient(group).tolist() for group in driver.groups] == [[24.0], [6.0]]
        assert [driver.step(group).tolist() for group in driver.groups] == [[3.0], [3.0]]

    def test_others_may_be_asked_for_where_it_has_a_scale_for_all(self):
        driver = ValueDriver(parse("fairscale_layerwise,init_scale=4"), BOTH)
        assert driver.groups == BOTH
        stepped(driver, {"a": GRADIENTS["o"], "b": np.array([1.0])})
        assert [driver.scale(group) for group in BOTH] == [2.0, 4.0]
        assert ValueDriver(parse("fairscale_layerwise,init_scale=4")).groups == (ALL,)

    def test_to_be_told(self):
        driver = ValueDriver(Layers())
        assert not driver.tell("o").applied
        assert (driver.scale("w"), driver.scale("v")) == (4.0, 1.0)

    def test_the_largest_of_each_is_observed(self):
        seen = []

        class Seeing(Layers):
            def update(self, observation):
                seen.append(observation)
                return super().update(observation)

        stepped(ValueDriver(Seeing()), {"w": np.array([3.0]), "v": GRADIENTS["o"]})
        assert seen == [Observation(overflow={"w": False, "v": True}, amax={"w": 3.0, "v": math.inf})]


class TestSaving:
    def test_the_ways_of_a_model(self):
        assert set(ValueDriver(parse("robust")).saved()) == {"framework_state", "to_json"}

    @pytest.mark.parametrize("way", ["framework_state", "to_json"])
    def test_it_goes_on(self, way):
        driver = ValueDriver(parse("robust,growth_interval=3"))
        for letter in "..o..":
            driver.tell(letter)
        restored = driver.restored(way, driver.saved()[way], parse("robust,growth_interval=3"))
        assert restored.scaler == driver.scaler
        assert restored.counted == driver.counted == 4

    def test_a_dataclass_has_a_way_without_a_method(self):
        driver = ValueDriver(Layers())
        driver.tell("o")
        state = driver.saved()["to_json"]
        assert json.loads(state) == {"scaler": "Layers", "w": 4.0, "v": 1.0}
        assert driver.restored("to_json", state, Layers()).scaler == Layers(4.0, 1.0)

    def test_one_that_fit_refuses_to_save_has_none(self):
        @dataclass(frozen=True)
        class Held(Spy):
            held: object = None

        assert ValueDriver(Held(held=object())).saved() == {}

        class Half(Layers):
            def to_json(self):
                return "{}"

        assert ValueDriver(Half()).saved() == {}

    def test_state_dict(self):
        class Plain:
            def __init__(self):
                self.scale = 8.0

            def update(self, observation):
                self.scale /= 2
                return self, Decision(apply=True, divide_by=self.scale)

            def state_dict(self):
                return {"scale": self.scale}

            def load_state_dict(self, state):
                self.scale = state["scale"]

        driver = ValueDriver(Plain())
        driver.tell(".")
        assert driver.saved() == {"state_dict": {"scale": 4.0}}
        assert driver.restored("state_dict", {"scale": 4.0}, Plain()).scale(ALL) == 4.0


@pytest.mark.parametrize("given", [None, (), (1, 2), (1, 2, 3), [1, 2], "ab"], ids=repr)
def test_what_is_no_answer_of_update_is_refused(given):
    class Careless:
        scale = 8.0

        def update(self, observation):
            return given

    driver = ValueDriver(Careless())
    with pytest.raises(
        TypeError, match=r"Careless\.update gave .*a scaler gives the next one and a decision"
    ):
        driver.tell(".")
    driver.backward({ALL: np.array([1.0])})
    with pytest.raises(TypeError, match=r"Careless\.update gave"):
        driver.step(ALL)


def test_another_class_may_follow():
    @dataclass(frozen=True)
    class Second:
        scale: float = 2.0

        def update(self, observation):
            return self, Decision(apply=True, divide_by=self.scale)

    @dataclass(frozen=True)
    class First(Second):
        def update(self, observation):
            return Second(), Decision(apply=True, divide_by=self.scale)

    driver = ValueDriver(First(8.0))
    assert driver.tell(".").applied
    assert driver.scale(ALL) == 2.0


class Bad:
    scale = 8.0

    def update(self, observation):
        return self, Decision(apply=True, divide_by=self.scale)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"scale": None}, "scale is None, and not a number"),
        ({"scale": "8"}, "scale is '8', and not a number"),
        (
            {"observe": lambda self, gradients: True},
            "observe gave a bool: it gives an fs.scaling.Observation",
        ),
        ({"observe": lambda self, gradients: None}, "observe gave a NoneType"),
        ({"scale_loss": lambda self, loss: 8.0}, "scale_loss gave a float: it gives the loss"),
        ({"scale": {"w": 8.0, "v": None}}, "scale is None, and not a number"),
        ({"scale": {}}, "nothing for the group 'all' among those that it has: none"),
        (
            {"update": lambda self, observation: (self, Decision(apply={"x": True}, divide_by=8.0))},
            "nothing for the group 'all' among those that it has: 'x'",
        ),
    ],
)
def test_what_cannot_be_used_is_named(attributes, message):
    driver = ValueDriver(type("Named", (Bad,), attributes)())
    with pytest.raises(TypeError, match=message):
        stepped(driver, dict.fromkeys(driver.groups, np.array([1.0])))
