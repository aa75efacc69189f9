"""Pooling layers: options and what they refuse."""

import numpy as np
import pytest
from fp16sim_steps import same_bits

from fp16sim import nn
from fp16sim.autograd import ops
from fp16sim.autograd.tensor import Tensor


@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_layers_are_the_operations(d):
    x = Tensor(np.random.default_rng(d).normal(size=(2, 3, *(6,) * d)).astype(np.float32))
    largest = getattr(nn, f"MaxPool{d}d")(3, 2, 1, dilation=1)
    same_bits(largest(x).data, ops.max_pool(x, 3, 2, 1).data)
    average = getattr(nn, f"AvgPool{d}d")(3, 2, 1)
    same_bits(average(x).data, ops.avg_pool(x, 3, 2, 1).data)
    whole = getattr(nn, f"AdaptiveAvgPool{d}d")((1,) * d)
    same_bits(whole(x).data, ops.mean(x, tuple(range(2, d + 2)), keepdims=True).data)
    one = Tensor(x.data[0])
    for layer in (largest, average, whole):
        same_bits(layer(one).data, layer(x).data[0])
        assert layer.parameters() == []


def test_the_stride_is_the_kernel_size():
    assert nn.MaxPool2d((2, 3)).stride == (2, 3)
    assert repr(nn.MaxPool2d((2, 3))) == "MaxPool2d(kernel_size=(2, 3), stride=(2, 3))"
    assert repr(nn.AvgPool1d(3, 2, 1)) == "AvgPool1d(kernel_size=(3,), stride=(2,), padding=(1,))"
    assert (
        repr(nn.MaxPool1d(3, 2, 1, 2))
        == "MaxPool1d(kernel_size=(3,), stride=(2,), padding=(1,), dilation=(2,))"
    )
    assert repr(nn.AdaptiveAvgPool2d(1)) == "AdaptiveAvgPool2d(1)"


def zeros(*shape):
    return Tensor(np.zeros(shape, np.float32))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.MaxPool2d(2, ceil_mode=True), "ceil_mode=True: only windows that fit"),
        (lambda: nn.AvgPool2d(2, ceil_mode=True), "ceil_mode=True"),
        (lambda: nn.AvgPool2d(2, count_include_pad=False), "count_include_pad=False"),
        (lambda: nn.MaxPool2d((2, 2, 2)), "one for each of 2 spatial axes"),
        (lambda: nn.MaxPool2d(0), "kernel_size=0"),
        (lambda: nn.AdaptiveAvgPool2d(7), "output_size=7.*pass 1, or use AvgPool2d"),
        (lambda: nn.AdaptiveAvgPool2d((1, 1, 1)), r"output_size=\(1, 1, 1\)"),
        (
            lambda: nn.MaxPool2d(2)(zeros(4, 4)),
            r"shape \(4, 4\) for MaxPool2d: pass \(batch, channels, height, width",
        ),
        (lambda: nn.AdaptiveAvgPool1d(1)(zeros(1, 1, 4, 4)), "for AdaptiveAvgPool1d"),
        (lambda: nn.Sequential(nn.AvgPool2d(5))(zeros(1, 1, 4, 4)), "layer '0': .*smaller than the kernel"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("size", [2.0, None, np.int64(3), "1", (1, None)])
def test_an_adaptive_pool_gives_one_place(size):
    with pytest.raises(ValueError, match="this layer takes the mean over all places; pass 1"):
        nn.AdaptiveAvgPool2d(size)
