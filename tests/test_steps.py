"""The comparison of bits that the tests of operations make their assertions with."""

import numpy as np
import pytest
from fp16sim_steps import same_bits


@pytest.mark.parametrize(
    "other",
    [
        np.float16([1.0, -0.0]),
        np.float16([np.nextafter(np.float16(1), np.float16(2)), 0.0]),
        np.float32([1.0, 0.0]),
        np.float16([[1.0, 0.0]]),
    ],
    ids=["sign of zero", "last bit", "dtype", "shape"],
)
def test_any_difference_is_an_error(other):
    same_bits(np.float16([1.0, 0.0]), np.float16([1.0, 0.0]))
    with pytest.raises(AssertionError):
        same_bits(np.float16([1.0, 0.0]), other)
