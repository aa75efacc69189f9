"""Calls in words, what a driver shows between two, and what counts as a clear refusal."""

import math

import numpy as np
import pytest

from fp16sim.scaling import make
from fp16sim.testing.adapters import adapt
from fp16sim.testing.calls import Call, Seen, in_words, is_clear, outcome
from fp16sim.testing.driver import Refusal

ONE, TWO = ("all",), ("a", "b")


@pytest.mark.parametrize(
    ("call", "groups", "words"),
    [
        (Call("backward", gradients={"all": 0.5}), ONE, "backward(0.5)"),
        (Call("backward", gradients={"b": math.inf, "a": -1.0}), TWO, "backward(a=-1, b=inf)"),
        (Call("backward"), ONE, "backward()"),
        (Call("unscale", "all"), ONE, "unscale"),
        (Call("unscale", "b"), TWO, "unscale(b)"),
        (Call("clip", "all", number=1.0), ONE, "clip(1)"),
        (Call("clip", "b", number=1.0), TWO, "clip(b, 1)"),
        (Call("put", "all", number=math.nan), ONE, "put(nan)"),
        (Call("step", "a"), TWO, "step(a)"),
        (Call("update"), TWO, "update"),
        (Call("zero_grad"), ONE, "zero_grad"),
        (Call("save and load", way="to_json"), TWO, "save and load by to_json"),
    ],
)
def test_a_call_in_words(call, groups, words):
    assert call.words(groups) == words


def test_calls_are_made_on_a_driver():
    def made():
        return make("torch", init_scale=4.0)

    driver = adapt(made())
    assert Call("put", "all", number=8.0).on(driver, made) is None
    assert driver.gradient("all") is None  # there is none to replace
    Call("backward", gradients={"all": 3.0}).on(driver, made)
    assert driver.gradient("all").tolist() == [12.0]
    Call("clip", "all", number=1.0).on(driver, made)
    assert driver.gradient("all").tolist() == [1.0]
    Call("put", "all", number=8.0).on(driver, made)
    assert Call("step", "all").on(driver, made).tolist() == [8.0]
    assert Call("update").on(driver, made) is None
    assert driver.counted == 1
    Call("backward", gradients={"all": 3.0}).on(driver, made)
    Call("zero_grad").on(driver, made)
    assert driver.gradient("all") is None
    ways = driver.saved()
    assert "to_json" in ways
    for way in ways:
        again = Call("save and load", way=way).on(driver, made)
        assert again is not driver
        assert (again.scale("all"), again.counted) == (4.0, 1)


def seen(gradient, scale=4.0, factor=4.0, group="a"):
    return Seen({"a": 1.0, "b": 1.0, group: scale}, {"a": 4.0, "b": 4.0, group: factor}, {group: gradient}, 0)


def test_what_differs_in_any_bit_is_told():
    zero, nan = np.float32([0.0]), np.float32([np.nan])
    assert list(seen(zero).differences(seen(zero.copy()))) == []
    assert list(seen(nan, math.nan).differences(seen(nan.copy(), math.nan))) == []
    assert list(seen(zero).differences(seen(-zero))) == [("the gradient", "0", "-0")]
    assert list(seen(None).differences(seen(zero))) == [("the gradient", "none", "0")]
    assert list(seen(zero).differences(seen(zero.astype(np.float16)))) == [
        ("the gradient", "0", "0 in float16")
    ]
    assert list(seen(zero, 2.0**30, 8.0, "b").differences(seen(zero, group="b"))) == [
        ("the scale of b", "2^30", "4"),
        ("the factor of b", "8", "4"),
    ]
    driver = adapt(make("torch", init_scale=4.0))
    assert Seen.of(driver) == Seen({"all": 4.0}, {"all": 4.0}, {"all": None}, 0)


def test_what_a_call_gave():
    assert outcome(Call("step"), np.float32([3.0])) == "applied 3"
    assert outcome(Call("step"), None) == "skipped the step"
    assert outcome(Call("update"), None) == outcome(Call("zero_grad"), None) == "went on"
    assert outcome(Call("update"), "too low") == "stopped: too low"
    assert outcome(Call("step"), None, KeyError("a")) == "raised KeyError"
    assert in_words(np.float16([1.0, 2.0**-20])) == "1, 2^-20 in float16"


@pytest.mark.parametrize(
    ("error", "clear"),
    [
        (Refusal("once"), True),
        (RuntimeError("once"), True),
        (AssertionError("once"), True),
        (ValueError("  "), False),
        (NotImplementedError("once"), False),
        (RecursionError("once"), False),
        (KeyError("once"), False),
        (SystemExit("once"), False),
    ],
)
def test_a_clear_refusal(error, clear):
    assert is_clear(error) is clear
