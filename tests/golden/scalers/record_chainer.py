"""Record chainer's dynamic loss scaling (Optimizer.loss_scaling) on the CPU.

pip install chainer==7.8.1 "numpy<1.24" (Python 3.8); python record_chainer.py
"""

import warnings

import chainer
import numpy as np
from recording import WINDOWS, delivered, divisor, record, same

warnings.simplefilter("ignore")  # chainer warns of every overflow


class WatchedRule(chainer.optimizers.sgd.SGDRule):
    """The rule of SGD that keeps the gradient it was given."""

    seen = None

    def update_core(self, param):
        WatchedRule.seen = float(param.grad)
        super().update_core(param)


class WatchedSGD(chainer.optimizers.SGD):
    def create_update_rule(self):
        return WatchedRule(self.hyperparam)


class Scaled(chainer.Function):
    """A loss of 1 whose scaled gradient is what the case wants; it notes the scale that multiplied it."""

    scale = None

    def __init__(self, kind):
        self.kind = kind

    def forward(self, inputs):
        return (np.ones_like(inputs[0]),)

    def backward(self, inputs, upstream):
        Scaled.scale = float(upstream[0])
        return (np.full_like(inputs[0], delivered(self.kind, Scaled.scale)),)


class Driver:
    """One float32 parameter whose true gradient is 1."""

    def __init__(self, **options):
        self.link = chainer.Link()
        with self.link.init_scope():
            self.link.weight = chainer.Parameter(np.zeros((), np.float32))
        self.optimizer = WatchedSGD(lr=0.5).setup(self.link)
        self.optimizer.loss_scaling(**options)

    def step(self, kind):
        optimizer = self.optimizer
        used = optimizer._loss_scale
        WatchedRule.seen = None
        optimizer.update(lambda: Scaled(kind)(self.link.weight))
        assert Scaled.scale == float(np.float32(used))
        if WatchedRule.seen is None:
            return used, None, False
        gradient = np.array(delivered(kind, Scaled.scale), np.float32)

        def explains(scale):
            quotient = gradient.copy()
            quotient /= scale
            return same(float(quotient), WatchedRule.seen)

        candidates = (used, optimizer._loss_scale)
        return used, divisor(candidates, explains), True

    def state(self):
        """The attributes: chainer's serializer saves `t` and `epoch` only."""
        optimizer = self.optimizer
        return {
            "t": optimizer.t,
            "_loss_scale": optimizer._loss_scale,
            "_loss_scaling_multiplier": optimizer._loss_scaling_multiplier,
            "_loss_scaling_isnan_ever": optimizer._loss_scaling_isnan_ever,
        }


def draw(rng):
    options = {"interval": rng.choice((*WINDOWS, 50, 1000))}
    if rng.random() < 0.1:
        options["interval"] = rng.choice((1.5, 2.5))
    return options, 3


def main():
    record(
        "chainer",
        Driver,
        draw,
        seed=413,
        package="chainer",
        version=chainer.__version__,
        recorded_with={"chainer": chainer.__version__, "numpy": np.__version__},
        script=__file__,
        api="chainer.optimizers.SGD.loss_scaling(interval), update(lossfun)",
        odd=[{"interval": 1000}],
        refused=[{"interval": 0}, {"interval": -1}],
    )


main()
