"""Clipping by norm and by value: each rounding, overflow of the norm, what is left alone, refusals."""

import math

import numpy as np
import pytest
from fp16sim_steps import BFLOAT16, FLOAT16, FLOAT32, Steps, same_bits

from fp16sim.autograd.arithmetic import Arithmetic
from fp16sim.autograd.tensor import Tensor
from fp16sim.optim import clip_grad_norm, clip_grad_norm_, clip_grad_value, clip_grad_value_


def draw(seed, shape, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32).astype(dtype)


@pytest.mark.parametrize(
    ("dtype", "accumulator"),
    [(FLOAT32, FLOAT32), (FLOAT16, FLOAT16), (FLOAT16, FLOAT32), (BFLOAT16, FLOAT32)],
    ids=str,
)
@pytest.mark.parametrize("max_norm", [0.5, 100.0])
def test_every_step_against_scalars(dtype, accumulator, max_norm):
    gradients = [draw(0, (3, 2), dtype), None, draw(1, (5,), dtype), draw(2, (), dtype)]
    found, norm = clip_grad_norm(gradients, max_norm, arithmetic=Arithmetic(reductions=accumulator.name))
    m = Steps(dtype)
    sums = [m.sum([m.multiply(x, x) for x in g.reshape(-1)], accumulator) for g in gradients if g is not None]
    expected = m.sqrt(m.sum(sums, accumulator))
    assert norm == float(expected)
    c = m.divide(m.number(max_norm), m.add(expected, m.number(1e-6)))
    assert (c < 1) == (max_norm < 1)
    for before, after in zip(gradients, found, strict=True):
        if before is None:
            assert after is None
        elif max_norm > 1:
            assert after is before
        else:
            same_bits(after, np.array([m.multiply(c, x) for x in before.reshape(-1)]).reshape(before.shape))


def test_two_formats_meet_in_the_wider_one():
    (narrow, wide), norm = clip_grad_norm([np.float16([3.0]), np.float32([4.0])], 1.0)
    assert norm == 5.0
    c = np.float32(1.0) / (np.float32(5.0) + np.float32(1e-6))
    same_bits(narrow, np.float16([3.0]) * np.float16(c))
    same_bits(wide, np.float32([4.0]) * c)


def test_a_norm_overflows_in_float16():
    """A 3x3 gradient of 100: each square is 10000, their sum 90000; the norm is infinite, and 300 is right."""
    ones = np.full((3, 3), 100.0, np.float32)
    for reductions in ("float16", "float32"):
        narrow, norm = clip_grad_norm(
            [ones.astype(np.float16)], 1.0, arithmetic=Arithmetic(reductions=reductions)
        )
        assert norm == math.inf
        assert not narrow[0].any()
    wide, norm = clip_grad_norm([ones], 1.0)
    assert norm == 300.0
    assert wide[0] == pytest.approx(1 / 3, rel=1e-6)


def test_an_infinite_norm_clears_finite_gradients_and_spoils_infinite_ones():
    """torch does the same (pytorch#46849), so a check for overflow comes before clipping."""
    (first, second), norm = clip_grad_norm([np.float32([1.0, -2.0]), np.float32([math.inf, 3.0])], 1.0)
    assert norm == math.inf
    same_bits(first, np.float32([0.0, -0.0]))
    assert np.isnan(second[0])
    assert second[1] == 0
    (spoiled,), norm = clip_grad_norm([np.float32([math.nan, 1.0])], 1.0)
    assert math.isnan(norm)
    assert np.isnan(spoiled).all()
    for bad in (math.inf, math.nan):
        with pytest.raises(FloatingPointError, match=f"gradients is {bad}.*skip the step"):
            clip_grad_norm([np.float32([bad])], 1.0, error_if_nonfinite=True)


def test_nothing_to_clip():
    assert clip_grad_norm([], 1.0) == ([], 0.0)
    assert clip_grad_norm([None], 1.0) == ([None], 0.0)
    zero, norm = clip_grad_norm([np.zeros(2, np.float32)], 1.0)
    assert norm == 0.0
    assert not zero[0].any()
    given = [np.float32([3.0, 4.0])]
    measured, norm = clip_grad_norm(given, math.inf)
    assert norm == 5.0
    assert measured[0] is given[0]


def test_values_are_limited_and_nothing_else_is_touched():
    given = np.float32([-3.0, -0.1, -0.0, 0.0, 0.1, 3.0, np.inf, -np.inf, np.nan])
    (found, nothing) = clip_grad_value([given, None], 0.1)
    limit = np.float32(0.1)
    expected = np.float32([-limit, -limit, -0.0, 0.0, limit, limit, limit, -limit, np.nan])
    same_bits(found, expected)
    assert nothing is None
    (narrow,) = clip_grad_value([given.astype(np.float16)], 1e-8)  # which is 0 in float16
    assert not narrow[:8].any()


def test_the_gradients_of_parameters():
    own = [Tensor([1.0, 1.0], requires_grad=True), Tensor([1.0], requires_grad=True)]
    own[0].grad = np.float32([3.0, 4.0])
    assert clip_grad_norm_(own, 1.0) == 5.0
    assert own[0].grad == pytest.approx([0.6, 0.8], rel=1e-6)
    assert own[1].grad is None
    clip_grad_value_(own, 0.5)
    assert own[0].grad.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("limit", [0.0, -1.0, math.nan, True, "1"])
def test_limits_that_cannot_be(limit):
    with pytest.raises(ValueError, match=r"max_norm=.*above 0"):
        clip_grad_norm([np.ones(1, np.float32)], limit)
    with pytest.raises(ValueError, match=r"value=.*above 0"):
        clip_grad_value([np.ones(1, np.float32)], limit)


def test_parameters_where_gradients_are_wanted():
    with pytest.raises(TypeError, match=r"gradient 0 is a Tensor.*clip_grad_norm_"):
        clip_grad_norm([Tensor([1.0])], 1.0)


@pytest.mark.parametrize("given", [Tensor([1.0], requires_grad=True), [np.float32([1.0])]])
def test_clipping_in_place_takes_a_list_of_parameters(given):
    """The rows of one tensor have no gradients, and would be clipped in vain."""
    for call in (clip_grad_norm_, clip_grad_value_):
        with pytest.raises(TypeError, match="takes a list of parameters"):
            call(given, 1.0)
