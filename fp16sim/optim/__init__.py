"""Optimizers. State and arithmetic have the format of the parameters: float32 for master weights."""

from fp16sim.optim.adam import Adam, AdamW
from fp16sim.optim.optimizer import Optimizer
from fp16sim.optim.rmsprop import RMSprop
from fp16sim.optim.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "RMSprop"]
