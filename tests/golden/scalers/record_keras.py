"""Record keras.optimizers.LossScaleOptimizer of Keras 3 with the torch backend, on the CPU.

pip install keras==3.15.1 torch==2.13.0 numpy; python record_keras.py
"""

import os

os.environ["KERAS_BACKEND"] = "torch"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import math

import keras
import torch
from recording import EXTREMES, SCALES, WINDOWS, delivered, divisor, record, same


class WatchedSGD(keras.optimizers.SGD):
    """SGD that keeps the gradient it was stepped with."""

    seen = None

    def apply(self, grads, trainable_variables=None):
        self.seen = grads[0].item()
        return super().apply(grads, trainable_variables)


class Driver:
    """One float32 variable whose true gradient is 1."""

    def __init__(self, **options):
        self.inner = WatchedSGD(0.5)
        self.optimizer = keras.optimizers.LossScaleOptimizer(self.inner, **options)
        self.variable = keras.Variable(0.0)
        self.optimizer.build([self.variable])

    def step(self, kind):
        optimizer = self.optimizer
        self.variable.assign(0.0)
        self.variable.value.grad = None
        scaled = optimizer.scale_loss(self.variable.value + 1.0)
        scaled.backward()
        used = scaled.item()
        assert same(used, optimizer.dynamic_scale.numpy().item())
        assert same(used, self.variable.value.grad.item())
        gradient = torch.tensor(delivered(kind, used))
        self.inner.seen = None
        optimizer.apply([gradient], [self.variable])
        if self.inner.seen is None:
            return used, None, False

        def explains(scale):
            return same((gradient / torch.tensor(scale)).item(), self.inner.seen)

        return used, divisor((used, optimizer.dynamic_scale.numpy().item()), explains), True

    def state(self):
        optimizer = self.optimizer
        return {
            "step_counter": int(optimizer.step_counter.numpy()),
            "dynamic_scale": optimizer.dynamic_scale.numpy().item(),
            "iterations": int(optimizer.iterations.numpy()),
        }


def draw(rng):
    options = {"dynamic_growth_steps": rng.choice(WINDOWS)}
    if rng.random() < 0.95:
        options["initial_scale"] = rng.choice(SCALES if rng.random() < 0.7 else EXTREMES)
    return options, options["dynamic_growth_steps"]


def main():
    torch.set_num_threads(1)
    record(
        "keras3",
        Driver,
        draw,
        seed=408,
        package="keras",
        version=keras.__version__,
        recorded_with={"keras": keras.__version__, "torch": torch.__version__},
        script=__file__,
        api="keras.optimizers.LossScaleOptimizer(SGD), torch backend: scale_loss, apply",
        odd=[
            {"dynamic_growth_steps": 0},
            {"dynamic_growth_steps": -1},
            {"dynamic_growth_steps": 2, "initial_scale": 0.0},
            {"dynamic_growth_steps": 2, "initial_scale": math.inf},
        ],
        refused=[{"dynamic": False}],
    )


main()
