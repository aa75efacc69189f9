"""The functions of float32 and float64 values held to torch 2.13 on a CPU, gradients by torch's own autograd.

A tolerance is what torch's library allows itself; ours are within an ulp of MPFR (the tests beside the definitions).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fp16sim.emulator import backends
from fp16sim.emulator.float32_functions import FLOAT32_FUNCTIONS

pytestmark = pytest.mark.oracle

SIZE = 20_000


def forward(torch: Any, name: str) -> Callable[[Any], Any]:
    functional = torch.nn.functional
    if name == "gelu_tanh":
        return lambda x: functional.gelu(x, approximate="tanh")
    found: Callable[[Any], Any] = getattr(torch, name, None) or getattr(functional, name)
    return found


def expected(torch: Any, name: str, x: np.ndarray) -> np.ndarray:
    tensor = torch.from_numpy(x)
    if not name.endswith("_derivative"):
        return forward(torch, name)(tensor).numpy()
    tensor.requires_grad_()
    forward(torch, name.removesuffix("_derivative"))(tensor).sum().backward()
    return tensor.grad.numpy()


def arguments(name: str, dtype: Any) -> np.ndarray:
    """Draw within reach of float16: between 2^-14 and 16 in magnitude."""
    rng = np.random.default_rng(13)
    x = (rng.standard_normal(SIZE) * 2.0 ** rng.uniform(-12, 2, SIZE)).astype(dtype)
    return np.abs(x) if name.startswith("log") else x


# Relative to |result| + |x| / 2 + floor: torch computes gelu as x/2 (1 + erf(x / sqrt 2)), and log near 1, sin and
# cos near their roots from rounded parts, so that its error is one of a term, not of the result.
FLOOR = dict.fromkeys(
    ("log", "sin", "cos", "silu_derivative", "gelu_derivative", "gelu_tanh_derivative"), 1.0
)


@pytest.mark.parametrize("name", FLOAT32_FUNCTIONS)
@pytest.mark.parametrize(("dtype", "bound"), [(np.float64, 1e-15), (np.float32, 5e-7)])
def test_functions_agree_with_torch(torch: Any, name: str, dtype: Any, bound: float) -> None:
    x = arguments(name, dtype)
    ours = backends.current().real_function(name, x).astype(np.float64)
    theirs = expected(torch, name, x).astype(np.float64)
    size = np.abs(ours) + np.abs(x) / 2 + FLOOR.get(name, 0.0)
    assert (np.abs(ours - theirs) / size).max() < bound
    off = ours * (1 + 8 * bound)  # the tolerance notices what is a few times as large
    assert (np.abs(off - theirs) / size).max() > bound


@pytest.mark.parametrize(("dtype", "bound"), [(np.float64, 1e-15), (np.float32, 5e-7)])
def test_powers_agree_with_torch(torch: Any, dtype: Any, bound: float) -> None:
    rng = np.random.default_rng(14)
    x = np.abs(rng.standard_normal(SIZE) * 3).astype(dtype)
    y = (rng.standard_normal(SIZE) * 3).astype(dtype)
    ours = backends.current().real_function("pow", x, y)
    theirs = torch.pow(torch.from_numpy(x), torch.from_numpy(y)).numpy()
    assert np.abs(ours / theirs - 1).max() < bound


def test_torch_gives_nan_where_ours_is_the_limit(torch: Any) -> None:
    """The one difference: torch multiplies infinity by zero."""
    x = np.float32([-np.inf])
    for name in ("silu", "gelu"):
        assert np.isnan(expected(torch, name, x)).all()
        ours = backends.current().real_function(name, x)
        assert ours.view(np.uint32).tolist() == [0x80000000]
