"""Optimizers. State and arithmetic have the format of the parameters: float32 for master weights.

Around a step, in this order: gradients of several batches are added (:func:`accumulate`), the loss scale is divided
out, they are clipped (:func:`clip_grad_norm`, :func:`clip_grad_value`), the optimizer moves, and a schedule sets the
next rate if it did.
"""

from fp16sim.optim.accumulation import accumulate
from fp16sim.optim.adam import Adam, AdamW
from fp16sim.optim.clipping import clip_grad_norm, clip_grad_norm_, clip_grad_value, clip_grad_value_
from fp16sim.optim.optimizer import Optimizer
from fp16sim.optim.rmsprop import RMSprop
from fp16sim.optim.schedules import (
    Schedule,
    Scheduler,
    constant,
    cosine,
    exponential,
    linear_warmup,
    step_decay,
)
from fp16sim.optim.sgd import SGD

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Optimizer",
    "RMSprop",
    "Schedule",
    "Scheduler",
    "accumulate",
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value",
    "clip_grad_value_",
    "constant",
    "cosine",
    "exponential",
    "linear_warmup",
    "step_decay",
]
