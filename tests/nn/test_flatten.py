"""All axes after the first in one."""

from __future__ import annotations

import numpy as np
import pytest

from fp16sim import nn
from fp16sim.autograd.tensor import Tensor


def test_flatten_keeps_values_and_gradients() -> None:
    x = Tensor(np.arange(24, dtype=np.float16).reshape(2, 3, 4), requires_grad=True)
    y = nn.Flatten()(x)
    assert y.data.tolist() == np.arange(24).reshape(2, 12).tolist()
    y.backward(y.data)
    assert x.grad is not None
    assert x.grad.tolist() == x.data.tolist()
    assert nn.Flatten()(Tensor(np.zeros((0, 3, 2), np.float32))).shape == (0, 6)
    assert nn.Flatten()(Tensor(np.zeros(4, np.float32))).shape == (4, 1)
    with pytest.raises(ValueError, match="a number without axes"):
        nn.Flatten()(Tensor(1.0))
