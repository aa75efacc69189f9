"""Convolutional layers: parameters, initial weights, options, and what they refuse."""

import math

import numpy as np
import pytest
from fp16sim_steps import same_bits

from fp16sim import nn
from fp16sim.autograd import ops
from fp16sim.autograd.backward import gradients
from fp16sim.autograd.policy import autocast
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn.random import manual_seed, normals


def test_he_initialisation():
    manual_seed(5)
    nn.Conv1d(1, 1, 1)  # stream 0
    layer = nn.Conv2d(4, 6, (3, 2), groups=2)
    expected = (normals(5, 72, 1) * math.sqrt(2 / 12)).reshape(6, 2, 3, 2).astype(np.float32)
    same_bits(layer.weight.data, expected)
    assert not layer.bias.data.any()
    assert [name for name, _ in layer.named_parameters()] == ["weight", "bias"]


@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_layer_is_the_operation(d):
    layer = getattr(nn, f"Conv{d}d")(4, 6, 3, stride=2, padding=1, dilation=(2,) * d, groups=2)
    layer.bias.data = np.arange(6, dtype=np.float32)
    x = Tensor(np.random.default_rng(d).normal(size=(2, 4, *(7,) * d)).astype(np.float32))
    with autocast("mixed_float16"):
        y = layer(x)
        z = ops.convolution(x, layer.weight, layer.bias, 2, 1, 2, 2)
    assert y.shape == (2, 6, *(3,) * d)
    same_bits(y.data, z.data)
    assert [g.dtype for g in gradients(y, layer.parameters(), np.ones(y.shape))] == [np.float32] * 2


@pytest.mark.parametrize(("padding", "width"), [("valid", 5), ("same", 8), (2, 9), ((0,), 5)])
def test_padding(padding, width):
    layer = nn.Conv1d(1, 1, 4, padding=padding)
    assert layer(Tensor(np.ones((1, 1, 8), np.float32))).shape == (1, 1, width)


def test_an_example_without_a_batch_axis():
    layer, x = nn.Conv2d(3, 2, 3), np.random.default_rng(0).normal(size=(3, 5, 5)).astype(np.float32)
    same_bits(layer(Tensor(x)).data, layer(Tensor(x[None])).data[0])


@pytest.mark.parametrize(
    "text",
    [
        "Conv1d(1, 2, kernel_size=(3,))",
        "Conv2d(2, 4, kernel_size=(3, 1), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2, bias=False)",
        "Conv3d(1, 2, kernel_size=(2, 2, 2), padding='same')",
    ],
)
def test_reprs_are_calls(text):
    assert repr(eval(f"nn.{text}")) == text


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: nn.Conv2d(3, 4, 3, groups=2),
            "in_channels=3, out_channels=4 and groups=2: groups must divide both",
        ),
        (lambda: nn.Conv2d(0, 4, 3), "in_channels=0"),
        (lambda: nn.Conv2d(3, 4, (3,)), r"kernel_size=\(3,\): pass an integer.*each of 2 spatial axes"),
        (lambda: nn.Conv2d(3, 4, 0), "kernel_size=0: pass an integer from 1 on"),
        (lambda: nn.Conv2d(3, 4, 3, padding=-1), "padding=-1: pass an integer from 0 on"),
        (lambda: nn.Conv2d(3, 4, 3, padding="full"), "unknown padding 'full'"),
        (lambda: nn.Conv2d(3, 4, 3, stride=2, padding="same"), "padding='same' with stride=2"),
        (
            lambda: nn.Conv2d(3, 4, 3)(Tensor(np.ones((2, 4, 5, 5), np.float32))),
            r"shape \(2, 4, 5, 5\) for a Conv2d of 3 channels: pass \(batch, 3, height, width\)",
        ),
        (
            lambda: nn.Sequential(nn.Conv1d(3, 4, 3))(Tensor(np.ones((2, 3, 5, 5), np.float32))),
            r"layer '0': .*Conv1d of 3 channels: pass \(batch, 3, width\)",
        ),
        (
            lambda: nn.Conv1d(1, 1, 5)(Tensor(np.ones((1, 1, 4), np.float32))),
            "smaller than the kernel.*pad more, or take a smaller kernel",
        ),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
