"""What surrounds a scaler: scaling the loss, looking at gradients, unscaling them."""

import math
import re

import numpy as np
import pytest

from fp16sim import scaling
from fp16sim.autograd.tensor import Tensor
from fp16sim.scaling import (
    Decision,
    NoScaler,
    Observation,
    StaticScaler,
    observe,
    scale_loss,
    unscale,
)
from fp16sim.scaling.protocol import checked_update
from fp16sim.testing import adapt


def test_static_and_none():
    scaler = StaticScaler(8.0)
    for overflow in (False, True):
        following, decision = scaler.update(Observation(overflow=overflow))
        assert following is scaler
        assert decision == Decision(apply=not overflow, divide_by=8.0)
        assert NoScaler().update(Observation(overflow=overflow))[1] == Decision(apply=True, divide_by=1.0)


@pytest.mark.parametrize(
    ("arrays", "overflow", "nan", "amax"),
    [
        ([np.float16([1, -3]), None, np.float32([2])], False, False, 1.5),
        ([np.float32([1, np.inf])], True, False, math.inf),
        ([np.float16([-np.inf])], True, False, math.inf),
        ([np.float32([5]), np.float16([np.nan]), np.float32([7])], True, True, math.inf),
        ([np.float32([3e38, 3e38])], False, False, 1.5e38),
        ([], False, False, 0.0),
        ([np.zeros((0, 2), np.float32)], False, False, 0.0),
    ],
)
def test_observe(arrays, overflow, nan, amax):
    found = observe(StaticScaler(2.0), arrays)
    assert (found.overflow, found.nan, found.checked) == (overflow, nan, True)
    assert found.amax == pytest.approx(amax, rel=1e-6)


def test_observe_and_scale_loss_can_be_the_scalers_own():
    class Own:
        scale = 2.0

        def update(self, observation):
            return self, Decision(True, 2.0)

        def observe(self, gradients):
            return Observation(overflow=True)

        def scale_loss(self, loss):
            return loss * 3.0

    assert observe(Own(), []).overflow
    assert scale_loss(Own(), Tensor([1.0])).data.tolist() == [3]


def test_a_float16_loss_overflows_at_the_default_scale():
    assert scale_loss(StaticScaler(65536), Tensor(np.float16(1))).item() == math.inf
    assert scale_loss(StaticScaler(65536), Tensor(np.float32(1))).item() == 65536


class TestUnscale:
    values = np.float16([1, -3, 65504, 2.0**-24, np.inf, 0.1])

    def test_reciprocal_is_rounded_to_float32(self):
        found = unscale(self.values, Decision(True, 3.0))
        reciprocal = np.float32(1.0 / np.float64(3.0))
        assert found.dtype == np.float32
        assert found.tobytes() == (self.values.astype(np.float32) * reciprocal).tobytes()

    def test_divide(self):
        found = unscale(self.values, Decision(True, 3.0, method="divide"))
        assert found.tobytes() == (self.values.astype(np.float32) / np.float32(3)).tobytes()
        assert found.tobytes() != unscale(self.values, Decision(True, 3.0)).tobytes()

    def test_in_the_format_of_the_tensor(self):
        found = unscale(np.float16([2.0**-10]), Decision(True, 2.0**15, dtype="tensor"))
        assert found.dtype == np.float16
        assert found.tolist() == [0]  # 2^-25 is gone
        assert unscale(np.float16([2.0**-10]), Decision(True, 2.0**15)).tolist() == [2.0**-25]

    def test_a_scale_of_zero_gives_infinities_without_a_warning(self):
        assert unscale(np.float32([1.0]), Decision(True, 0.0)).tolist() == [math.inf]


def test_decisions_check_their_words():
    with pytest.raises(ValueError, match="did you mean 'reciprocal'"):
        Decision(True, 1.0, method="reciprocl")
    with pytest.raises(ValueError, match="did you mean 'tensor'"):
        Decision(True, 1.0, dtype="tensr")


def decided(**fields):
    """A scaler whose update decides so."""

    class Own:
        scale = 8.0

        def update(self, observation):
            return self, Decision(**{"apply": True, "divide_by": 8.0} | fields)

    return Own()


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"apply": None}, "apply=None: it is True or False, whether the optimizer moves; pass apply=not"),
        ({"apply": "yes"}, "apply='yes': it is True or False"),
        ({"apply": {"a": True, "b": None}}, "apply={'a': True, 'b': None}: it is True or False"),
        ({"divide_by": None}, "divide_by=None: a scale is a number above 0; give one, such as 1024.0"),
        ({"divide_by": "2"}, "divide_by='2': a scale is a number above 0"),
        ({"divide_by": {"a": "2"}}, "divide_by={'a': '2'}: a scale is a number above 0"),
        ({"divide_by": 10**400}, f"divide_by=1{'0' * 39}: a scale is a number above 0"),
        ({"stop": True}, "stop=True: it is None, or text that says why; pass stop='too low'"),
        ({"stop": ""}, "stop='': it is None, or text that says why; pass stop='too low'"),
        ({"advance": "x"}, "advance='x': it is True or False, whether counters move, or None"),
    ],
)  # fmt: skip
def test_a_decision_of_something_else_is_refused_where_it_is_given(fields, says):
    with pytest.raises(TypeError, match=re.escape(f"Own.update decided {says}")):
        checked_update(decided(**fields), Observation())
    with pytest.raises(TypeError, match=re.escape(f"Own.update decided {says}")):
        adapt(decided(**fields)).tell(".")


@pytest.mark.parametrize(
    "fields",
    [
        {"apply": np.bool_(False), "divide_by": np.float32(2.0), "advance": True, "stop": "too low"},
        {"apply": np.array([True]), "divide_by": 2},
        {"apply": {"a": True}, "divide_by": {"a": 2.0}},
        {"divide_by": math.nan},
        {"divide_by": -1.0},
    ],
)
def test_decisions_of_numbers_and_bools_of_any_kind_are_given_on(fields):
    scaler = decided(**fields)
    following, decision = checked_update(scaler, Observation())
    assert following is scaler
    assert vars(decision) | fields == vars(decision)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"overflow": "x"}, "overflow='x': it is True or False, whether a scaled gradient was infinite or NaN; pass"),
        ({"overflow": None}, "overflow=None: it is True or False"),
        ({"overflow": {"a": 1.5}}, "overflow={'a': 1.5}: it is True or False"),
        ({"nan": 3}, "nan=3: it is True or False, whether a scaled gradient was NaN"),
        ({"checked": None}, "checked=None: it is True or False, whether anybody looked"),
        ({"amax": "x"}, "amax='x': it is the largest magnitude of the unscaled gradients; pass a number, or None"),
        ({"amax": {"a": "x"}}, "amax={'a': 'x'}: it is the largest"),
    ],
)  # fmt: skip
def test_an_observation_of_something_else_is_refused(fields, says):
    with pytest.raises(TypeError, match=re.escape(f"Observation {says}")):
        Observation(**fields)


def test_observations_of_numbers_and_bools_of_any_kind_are_made():
    Observation(overflow=np.bool_(True), nan=np.array(False), amax=np.float32(3.0))
    Observation(overflow=1.0, nan=0, checked=np.int32(1))
    Observation(overflow={"a": True, "b": np.bool_(False)}, amax={"a": 3, "b": math.inf})


@pytest.mark.parametrize("name", scaling.names())
def test_an_update_takes_an_observation(name):
    scaler = scaling.make(name)
    with pytest.raises(TypeError, match=r"update\(True\): .*Observation\(overflow=True\)"):
        scaler.update(True)
    with pytest.raises(TypeError, match=r"update\(a list\)"):
        scaler.update([])


def test_overflow_by_group():
    assert Observation(overflow={"a": False, "b": True}).overflowed
    assert not Observation(overflow={"a": False}).overflowed


def test_a_gradient_that_is_missing_stays_missing():
    assert unscale(None, Decision(True, 8.0)) is None


def test_an_observation_has_no_truth_value() -> None:
    """`if not found_inf` of one would skip nothing, ever."""
    with pytest.raises(TypeError, match="neither true nor false"):
        bool(Observation())
