"""The dropout layer: masks that are functions of seed, layer and call."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fp16sim import nn
from fp16sim.autograd.checkpoint import checkpoint
from fp16sim.autograd.policy import autocast
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn.random import streams, uniform_integers


def ones(*shape: int) -> Tensor:
    return Tensor(np.ones(shape, np.float32))


def test_masks_are_those_of_the_counter() -> None:
    with streams(11):
        nn.Linear(1, 1)
        layer = nn.Dropout(0.3)
    for call in range(3):
        y = layer(ones(5, 7)).data
        kept = uniform_integers(11, 35, layer=1, step=call).reshape(5, 7) >= math.ceil(0.3 * 2**24)
        assert np.array_equal(y, np.where(kept, np.float32(1 / 0.7), np.float32(0)))
    assert layer.calls == 3


def test_the_share_that_is_dropped() -> None:
    with streams(0):
        layer = nn.Dropout(0.25)
    y = layer(ones(100_000)).data
    # Four standard deviations of a count: .0055.
    assert abs((y == 0).mean() - 0.25) < 0.0055
    assert set(np.unique(y).tolist()) == {0.0, float(np.float32(1 / 0.75))}


def test_layers_draw_apart_and_calls_draw_anew() -> None:
    with streams(0):
        first, second = nn.Dropout(), nn.Dropout()
    masks = [layer(ones(64)).data.tobytes() for layer in (first, first, second)]
    assert len(set(masks)) == 3


def test_without_training_or_with_p_0_the_input_comes_back() -> None:
    x = ones(4)
    layer = nn.Dropout(0.5).eval()
    assert layer(x) is x
    assert nn.Dropout(0.0)(x) is x
    assert layer.calls == 0


def test_a_restored_counter_draws_the_same_masks() -> None:
    with streams(0):
        layer = nn.Sequential(nn.Dropout(0.5))
    layer(ones(64))
    saved = layer.state_dict()
    expected = [layer(ones(64)).data.tobytes() for _ in range(2)]
    assert saved["0.calls"] == 1
    layer.load_state_dict(saved)
    assert [layer(ones(64)).data.tobytes() for _ in range(2)] == expected


def test_a_checkpointed_block_draws_its_mask_once() -> None:
    with streams(0):
        plain, again = nn.Dropout(0.5), nn.Dropout(0.5)
    again._stream = plain._stream
    gradients = []
    for layer, wrapped in ((plain, False), (again, True)):
        x = Tensor(np.arange(1, 65, dtype=np.float32), requires_grad=True)

        def block(t: Tensor, layer: nn.Dropout = layer) -> Tensor:
            dropped: Tensor = layer(t)
            return dropped * dropped

        y = checkpoint(block, x) if wrapped else block(x)
        y.sum().backward()
        assert x.grad is not None
        gradients.append(x.grad.tobytes())
        assert layer.calls == 1
    assert gradients[0] == gradients[1]


def test_t5_overflows_in_dropout() -> None:
    """mT5: 6.27e4 comes out of a layer, and dropout of .1 divides it by .9."""
    with streams(0):
        layer = nn.Dropout(0.1)
    x = Tensor(np.full(64, 6.27e4, np.float16))
    with autocast("mixed_float16"):
        y = layer(x)
    assert y.dtype == np.float16
    assert set(y.data.tolist()) == {0.0, math.inf}
    assert np.isfinite(layer(Tensor(np.full(64, 6.27e4, np.float32))).data).all()


@pytest.mark.parametrize("p", [-0.1, 1.5, "half", math.nan, True])
def test_what_is_no_share_is_refused(p: object) -> None:
    with pytest.raises(ValueError, match="the share of dropped values"):
        nn.Dropout(p)  # type: ignore[arg-type]
    assert repr(nn.Dropout(0.2)) == "Dropout(0.2)"
