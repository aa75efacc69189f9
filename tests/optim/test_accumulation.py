"""Gradients of small batches added up: in order, rounded at each sum, in their own format."""

import numpy as np
import pytest
from fp16sim_steps import NARROW_AND_SINGLE, Steps, same_bits

from fp16sim.optim import accumulate


@pytest.mark.parametrize("dtype", NARROW_AND_SINGLE, ids=str)
def test_each_sum_is_rounded(dtype):
    rng = np.random.default_rng(0)
    batches = [rng.normal(size=6).astype(np.float32).astype(dtype) for _ in range(5)]
    total, m = None, Steps(dtype)
    expected = list(batches[0])
    for number, batch in enumerate(batches):
        total = accumulate(total, [batch, None])
        if number:
            expected = [m.add(a, b) for a, b in zip(expected, batch, strict=True)]
    same_bits(total[0], np.array(expected, dtype))
    assert total[1] is None


def test_it_stalls_in_float16():
    """4096 gradients of 1 add up to 2048."""
    found = {}
    for dtype in (np.float16, np.float32):
        total = None
        for _ in range(4096):
            total = accumulate(total, [np.ones(1, dtype)])
        found[dtype] = float(total[0][0])
    assert found == {np.float16: 2048.0, np.float32: 4096.0}


def test_nothing_given_is_changed():
    first, second = np.float32([1.0]), np.float32([2.0])
    total = accumulate(accumulate(None, [first, None]), [second, second])
    assert [array.tolist() for array in total] == [[3.0], [2.0]]
    assert (first.tolist(), second.tolist()) == ([1.0], [2.0])


@pytest.mark.parametrize(
    ("gradients", "message"),
    [
        ([None], "1 gradients after 2"),
        ([np.ones(2, np.float16), None], r"gradient 0 is float16 of shape \(2,\)"),
        ([np.ones(3, np.float32), None], r"sum so far float32 of shape \(2,\)"),
    ],
)
def test_refusals(gradients, message):
    with pytest.raises(ValueError, match=message):
        accumulate([np.ones(2, np.float32), None], gradients)
