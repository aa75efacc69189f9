"""Layers and losses, one kind a file."""

from fp16sim.nn.capture import capture_outputs
from fp16sim.nn.convolution import Conv1d, Conv2d, Conv3d
from fp16sim.nn.linear import Linear
from fp16sim.nn.loss import CrossEntropyLoss
from fp16sim.nn.module import Module
from fp16sim.nn.normalization import BatchNorm1d, BatchNorm2d, BatchNorm3d, GroupNorm, LayerNorm, RMSNorm
from fp16sim.nn.pooling import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
)
from fp16sim.nn.relu import ReLU
from fp16sim.nn.sequential import Sequential

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "CrossEntropyLoss",
    "GroupNorm",
    "LayerNorm",
    "Linear",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "Module",
    "RMSNorm",
    "ReLU",
    "Sequential",
    "capture_outputs",
]
