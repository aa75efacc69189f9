"""Convolutions, their gradients, and softmax and norms of exact sums, held to torch 2.13 on a CPU.

On small integers every product and sum is exact in both programs, so orders do not matter and all bits must agree:
what is compared is which elements meet which, with every option.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fp16sim as fs

pytestmark = pytest.mark.oracle

PROBLEMS = [
    # dimensions, images, channels, outputs, size, kernel, stride, padding, dilation, groups
    (1, 3, 4, 6, (11,), (3,), (2,), (1,), (2,), 2),
    (1, 1, 1, 1, (5,), (1,), (3,), (4,), (1,), 1),
    (2, 2, 3, 4, (9, 7), (3, 2), (2, 1), (1, 3), (1, 2), 1),
    (2, 3, 6, 9, (6, 8), (2, 3), (3, 2), (0, 2), (3, 1), 3),
    (2, 1, 4, 4, (5, 5), (5, 5), (1, 1), (2, 2), (1, 1), 4),
    (3, 2, 2, 4, (4, 5, 6), (2, 3, 2), (2, 1, 2), (1, 0, 2), (1, 2, 1), 2),
]


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("name", ["float32", "float16", "a100"])
def test_convolutions_are_those_of_torch(torch: Any, problem: tuple[Any, ...], name: str) -> None:
    d, images, channels, outputs, size, kernel, stride, padding, dilation, groups = problem
    rng = np.random.Generator(np.random.PCG64(list(size)))
    x = rng.integers(-3, 4, (images, channels, *size)).astype(np.float16)
    w = rng.integers(-3, 4, (outputs, channels // groups, *kernel)).astype(np.float16)
    steps = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    first, second = torch.from_numpy(x.astype(np.float64)), torch.from_numpy(w.astype(np.float64))
    theirs = getattr(torch.nn.functional, f"conv{d}d")(first, second, **steps)
    g = rng.integers(-3, 4, tuple(theirs.shape)).astype(np.float16)
    gradient = torch.from_numpy(g.astype(np.float64))
    pairs = [
        (getattr(fs, f"conv{d}d")(x, w, **steps, datapath=name), theirs),
        (
            getattr(fs, f"conv{d}d_input")(x.shape, w, g, **steps, datapath=name),
            getattr(torch.nn.grad, f"conv{d}d_input")(first.shape, second, gradient, **steps),
        ),
        (
            getattr(fs, f"conv{d}d_weight")(x, w.shape, g, **steps, datapath=name),
            getattr(torch.nn.grad, f"conv{d}d_weight")(first, second.shape, gradient, **steps),
        ),
    ]
    for ours, other in pairs:
        assert np.array_equal(ours.astype(np.float64), other.numpy())


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")
@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
@pytest.mark.parametrize("dilation", [1, 2])
def test_same_padding_is_that_of_torch(torch: Any, kernel: int, dilation: int) -> None:
    x = np.arange(24, dtype=np.float16).reshape(1, 2, 12)
    w = np.arange(4 * kernel, dtype=np.float16).reshape(2, 2, kernel)
    bias = np.float16([3, -5])
    theirs = torch.nn.functional.conv1d(
        *(torch.from_numpy(a.astype(np.float64)) for a in (x, w, bias)), padding="same", dilation=dilation
    )
    assert np.array_equal(fs.conv1d(x, w, bias, padding="same", dilation=dilation), theirs.numpy())


def test_softmax_stays_within_its_roundings(torch: Any) -> None:
    """Three roundings to binary16 (difference, exponential, sum) and a last one: a few ulps of a result below 1."""
    x = np.random.Generator(np.random.PCG64(2)).standard_normal((200, 50)).astype(np.float16) * np.float16(4)
    exact = torch.softmax(torch.from_numpy(x.astype(np.float64)), 1).numpy()
    single = fs.softmax(x.astype(np.float32))
    assert np.abs(single / exact - 1).max() < 64 * 2.0**-24  # a difference below 32 is rounded by up to 2^-20
    half = fs.softmax(x).astype(np.float64)
    # |difference| < 32 is rounded by at most 2^-7; below 2^-14 the result's last place is 2^-24.
    assert (np.abs(half - exact) <= exact * (2.0**-7 + 4 * 2.0**-11) + 2.0**-24).all()
    assert (np.abs(half - exact) > exact * 2.0**-11).any()  # float32 inside would be this close
