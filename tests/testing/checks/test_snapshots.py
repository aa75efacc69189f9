from collections import deque
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pytest

from fp16sim.scaling import Observation, parse
from fp16sim.testing.checks.edges import edges
from fp16sim.testing.checks.snapshots import snapshot


class Slotted:
    __slots__ = ("unset", "value")

    def __init__(self, value):
        self.value = value


@dataclass
class Plain:
    value: object


class Bare:
    def __init__(self, value):
        self.value = value


NAN = float("nan")
PAIRS = [
    (1.0, 2.0),
    (0.0, -0.0),
    (1, 1.0),
    (1, True),
    (None, 0),
    ("a", "b"),
    ([1], [1, 2]),
    ([1], (1,)),
    ({"a": 1}, {"a": 2}),
    ({"a": 1}, {"b": 1}),
    ({1}, {2}),
    (np.float32([1.0]), np.float32([2.0])),
    (np.float32([1.0]), np.float64([1.0])),
    (np.zeros((1, 2)), np.zeros((2, 1))),
    (np.float32([0.0]), np.float32([-0.0])),
    (np.float32(1.0), np.float16(1.0)),
    (deque([1]), deque([2])),
    (Plain([1.0]), Plain([2.0])),
    (Bare({"x": Slotted(1)}), Bare({"x": Slotted(2)})),
]


@pytest.mark.parametrize("kind", [Slotted, Plain, Bare])
@pytest.mark.parametrize(("one", "other"), PAIRS, ids=range(len(PAIRS)))
def test_what_differs_is_seen(kind, one, other):
    (difference,) = snapshot(kind(one)).differences(snapshot(kind(other)))
    assert difference.startswith("value was ")
    assert not list(snapshot(kind(one)).differences(snapshot(kind(one))))


@pytest.mark.parametrize(
    "same", [NAN, {"a": 1.0, "b": NAN}, np.float32([NAN, -0.0]), {3, 1, 2}, [[], {}, None]], ids=repr
)
def test_what_is_the_same_is(same):
    assert not list(snapshot(Bare(same)).differences(snapshot(Bare(same))))


def test_the_order_of_a_mapping_and_of_a_set_is_no_matter():
    assert not list(snapshot(Bare({"a": 1, "b": 2})).differences(snapshot(Bare({"b": 2, "a": 1}))))


def test_what_is_changed_in_place_is_seen():
    held = Bare({"list": [1.0], "array": np.zeros(2)})
    before = snapshot(held)
    held.value["array"][1] = 1.0
    assert len(list(before.differences(snapshot(held)))) == 1


def test_what_is_gone_is_seen_and_what_is_new_is_not():
    class Caching(Bare):
        @cached_property
        def double(self):
            return 2 * self.value

    held = Caching(2.0)
    before = snapshot(held)
    assert held.double == 4.0
    assert not list(before.differences(snapshot(held)))
    del held.value
    assert list(before.differences(snapshot(held))) == ["value is gone"]


def test_what_a_subclass_of_a_dataclass_adds_is_seen():
    class More(Plain):
        def __init__(self, seen):
            super().__init__(0)
            self.seen = seen

    assert len(list(snapshot(More(1)).differences(snapshot(More(2))))) == 1


def test_a_scale_that_is_a_property_is_seen():
    state = [2.0]

    class Hidden:
        @property
        def scale(self):
            return state[0]

    before = snapshot(Hidden())
    state[0] = 1.0
    assert list(before.differences(snapshot(Hidden()))) == ["scale was 2.0, then 1.0"]


def test_circles_end():
    held = Bare([])
    held.value.append(held)
    deep = value = []
    for _ in range(10_000):
        value.append([])
        value = value[0]
    assert not list(snapshot(held).differences(snapshot(held)))
    assert not list(snapshot(Bare(deep)).differences(snapshot(Bare(deep))))


def test_a_scaler_and_its_next():
    scaler = parse("robust")
    following, _ = scaler.update(Observation(overflow=True))
    assert list(snapshot(scaler).differences(snapshot(following))) == ["scale was 65536.0, then 32768.0"]


@dataclass
class Holder:
    items: list = field(default_factory=list)


def test_objects_of_the_same_values_are_the_same():
    assert not list(snapshot(Holder([Bare(1)])).differences(snapshot(Holder([Bare(1)]))))


@pytest.mark.parametrize(
    ("history", "whole"),
    [
        ("", ""),
        (".", "1"),
        ("....", "1111"),
        (".....", "11011"),
        ("..o......n", "1111100111"),
    ],
)
def test_edges_of_runs(history, whole):
    assert edges(history) == [letter == "1" for letter in whole]
