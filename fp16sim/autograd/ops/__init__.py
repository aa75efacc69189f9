"""The operations, a row each: forward and gradient together. One kind a file; `operation.py` says what a row is."""

from fp16sim.autograd.ops.activations import relu
from fp16sim.autograd.ops.convolutions import convolution
from fp16sim.autograd.ops.elementwise import add, cast, divide, multiply, negative, subtract
from fp16sim.autograd.ops.losses import cross_entropy
from fp16sim.autograd.ops.pooling import adaptive_avg_pool, avg_pool, max_pool
from fp16sim.autograd.ops.products import linear, matmul
from fp16sim.autograd.ops.reductions import mean, sum
from fp16sim.autograd.ops.shapes import reshape, transpose

__all__ = [
    "adaptive_avg_pool",
    "add",
    "avg_pool",
    "cast",
    "convolution",
    "cross_entropy",
    "divide",
    "linear",
    "matmul",
    "max_pool",
    "mean",
    "multiply",
    "negative",
    "relu",
    "reshape",
    "subtract",
    "sum",
    "transpose",
]
