"""Layers and losses, one kind a file."""

import sys
from typing import NoReturn

from fp16sim.nn.activations import (
    GELU,
    LeakyReLU,
    LogSoftmax,
    ReLU,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Tanh,
)
from fp16sim.nn.attention import MultiheadAttention
from fp16sim.nn.capture import capture_outputs
from fp16sim.nn.convolution import Conv1d, Conv2d, Conv3d
from fp16sim.nn.dropout import Dropout
from fp16sim.nn.embedding import Embedding
from fp16sim.nn.flatten import Flatten, Identity
from fp16sim.nn.linear import Linear
from fp16sim.nn.loss import BCEWithLogitsLoss, CrossEntropyLoss, MSELoss, NLLLoss
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
from fp16sim.nn.recurrent import GRU, LSTM
from fp16sim.nn.sequential import Sequential
from fp16sim.nn.transformer import TransformerBlock

__all__ = [
    "GELU",
    "GRU",
    "LSTM",
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "Flatten",
    "GroupNorm",
    "Identity",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LogSoftmax",
    "MSELoss",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "Module",
    "MultiheadAttention",
    "NLLLoss",
    "RMSNorm",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Tanh",
    "TransformerBlock",
    "capture_outputs",
]

_HERE = {  # names of torch.nn that are others here
    "L1Loss": "(x - y).abs().mean()",
    "ModuleDict": "a dict of modules, assigned to an attribute",
    "ModuleList": "a list of modules, assigned to an attribute",
    "Parameter": "fs.Tensor(array, requires_grad=True)",
    "ParameterList": "a list of tensors with requires_grad=True, assigned to an attribute",
    "functional": "fs.autograd.ops",
    "init": "fs.nn.initial",
    "utils": "fs.optim.clip_grad_norm_",
}


def __getattr__(name: str) -> NoReturn:
    hint = f"use {_HERE[name]}" if name in _HERE else "dir(fs.nn) lists the layers"
    raise AttributeError(f"fp16sim.nn has no {name!r}: {hint}", name=name, obj=sys.modules[__name__])
