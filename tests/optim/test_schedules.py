"""Schedules: their values, the same bits everywhere, and that a skipped step holds them."""

import math

import numpy as np
import pytest

from fp16sim.autograd.tensor import Tensor
from fp16sim.optim import SGD, Scheduler, constant, cosine, exponential, linear_warmup, step_decay


def optimizer():
    return SGD([Tensor([1.0], requires_grad=True)], lr=1.0)


def test_values():
    assert [step_decay(0.1, 3)(t) for t in (0, 2, 3, 6)] == [0.1, 0.1, 0.1 * 0.1, 0.1 * (0.1 * 0.1)]
    assert [exponential(0.5, 0.25)(t) for t in range(3)] == [0.5, 0.125, 0.03125]
    assert [constant(0.3)(t) for t in (0, 10**9)] == [0.3, 0.3]
    assert [linear_warmup(0.8, 2)(t) for t in range(3)] == [0.4, 0.8, 0.8]
    assert linear_warmup(0.8, 0)(0) == 0.8


def test_a_cosine_falls_from_the_rate_to_the_end():
    schedule = cosine(0.9, 110, warmup=10, final=0.1)
    assert [schedule(t) for t in (0, 9, 10)] == [0.9 * (1 / 10), 0.9, 0.9]
    assert schedule(60) == 0.1 + (0.9 - 0.1) * 1.0 / 2.0
    assert [schedule(t) for t in (110, 111, 10**6)] == [0.1, 0.1, 0.1]
    values = [schedule(t) for t in range(10, 111)]
    assert values == sorted(values, reverse=True)
    for t, value in enumerate(values):
        assert value == pytest.approx(0.1 + 0.8 * (1 + math.cos(math.pi * t / 100)) / 2, abs=1e-15)


BITS = ["0x1.f4be9c700744dp-5", "0x1.0e3a12d3271edp-13", "0x1.aa011c6a91a9ap-48", "0x1.4f8b588e368f4p-17"]


def test_rates_are_the_bits_that_they_were():
    """Recorded here: a rate that goes through a library's cosine or power may differ elsewhere."""
    found = [
        cosine(0.1, 7)(3),
        cosine(1e-3, 1000, 10, 1e-5)(777),
        exponential(0.1, 0.97)(1000),
        step_decay(0.1, 2)(9),
    ]
    assert [value.hex() for value in found] == BITS


def test_a_skipped_step_holds_the_schedule():
    own = optimizer()
    scheduler = Scheduler(own, step_decay(1.0, 2, 0.5))
    rates = []
    for applied in (True, False, False, True, True, False, True):
        rates.append(own.lr)
        if applied:
            scheduler.advance()
    assert rates == [1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5]
    assert own.lr == 0.25


def test_a_scheduler_is_taken_up_again():
    scheduler = Scheduler(optimizer(), cosine(1.0, 10))
    for _ in range(4):
        scheduler.advance()
    other = Scheduler(optimizer(), cosine(1.0, 10))
    other.load_state_dict({name: np.asarray(value) for name, value in scheduler.state_dict().items()})
    assert other.applied == 4
    assert other.optimizer.lr == scheduler.optimizer.lr == cosine(1.0, 10)(4)
    for wrong in ({}, {"applied": 1, "lr": 2.0}):
        with pytest.raises(ValueError, match="'applied' alone"):
            other.load_state_dict(wrong)
    with pytest.raises(ValueError, match="applied=-1"):
        other.load_state_dict({"applied": -1})
    assert other.applied == 4


def test_any_function_is_a_schedule():
    own = optimizer()
    Scheduler(own, lambda step: 0.25 + step).advance()
    assert own.lr == 1.25


def test_what_it_prints_as():
    assert repr(cosine(0.1, 10, 2)) == "cosine(lr=0.1, total=10, warmup=2, final=0.0)"
    assert repr(Scheduler(optimizer(), constant(0.5))) == "Scheduler(constant(lr=0.5), applied=0)"
    assert cosine(0.1, 10) == cosine(0.1, 10) != cosine(0.1, 11)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: constant(-1.0), "lr=-1.0"),
        (lambda: exponential(0.1, math.nan), "gamma=nan"),
        (lambda: step_decay(0.1, 0), "step_size=0: a number of steps, 1 or more"),
        (lambda: cosine(0.1, 5, warmup=5), "total=5: a number of steps, 6 or more"),
        (lambda: cosine(0.1, 5, final=-1.0), "final=-1.0"),
        (lambda: linear_warmup(0.1, 2.5), "warmup=2.5"),
        (lambda: constant(0.1)(-1), "step=-1"),
        (lambda: constant(0.1)(0.5), "step=0.5"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_scheduler_takes_a_function_and_a_state():
    optimizer = SGD([Tensor([1.0], requires_grad=True)], lr=0.1)
    with pytest.raises(TypeError, match="the schedule is a NoneType: pass a function"):
        Scheduler(optimizer, None)
    with pytest.raises(TypeError, match="the state is a NoneType"):
        Scheduler(optimizer, constant(0.1)).load_state_dict(None)
