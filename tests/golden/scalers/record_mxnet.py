"""Record mxnet's amp LossScaler under gluon.Trainer, on the CPU.

pip install mxnet==1.9.1 numpy==1.23.5 (Python 3.8); python record_mxnet.py

The class takes no arguments; the script sets the attributes that its constructor sets.
"""

import logging

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.contrib import amp
from mxnet.contrib.amp.loss_scaler import LossScaler
from recording import EXTREMES, SCALES, WINDOWS, delivered, divisor, record, same

ATTRIBUTES = {"scale_seq_len": "_scale_seq_len", "max_loss_scale": "_max_loss_scale"}


@mx.optimizer.Optimizer.register
class WatchedSGD(mx.optimizer.SGD):
    """SGD that keeps the gradient that it was given, rescaled as the optimizer rescales it."""

    seen = None

    def update(self, index, weight, grad, state):
        first = grad[0] if isinstance(grad, (list, tuple)) else grad
        rescaled = first * self.rescale_grad
        self.seen = float(np.ravel(rescaled.asnumpy())[0])
        super().update(index, weight, grad, state)

    update_multi_precision = update


class Driver:
    """One float32 parameter whose true gradient is 1, under gluon.Trainer."""

    def __init__(self, **options):
        self.parameter = gluon.Parameter("weight", shape=(1,))
        self.parameter.initialize(mx.init.Zero())
        self.optimizer = WatchedSGD(learning_rate=0.5)
        self.trainer = gluon.Trainer([self.parameter], self.optimizer, kvstore=None)
        amp.init_trainer(self.trainer)
        self.scaler = LossScaler()
        self.trainer._amp_loss_scaler = self.scaler
        if "loss_scale" in options:
            self.scaler._loss_scale = self.scaler._next_loss_scale = options["loss_scale"]
        for option, attribute in ATTRIBUTES.items():
            if option in options:
                setattr(self.scaler, attribute, options[option])

    def step(self, kind):
        self.parameter.set_data(mx.nd.zeros((1,)))
        used = self.scaler.loss_scale
        with autograd.record():
            loss = self.parameter.data() + 1.0
            with amp.scale_loss(loss, self.trainer) as scaled:
                autograd.backward(scaled)
        assert same(scaled.asscalar(), float(np.float32(used)))
        gradient = delivered(kind, float(np.float32(used)))
        self.parameter.grad()[:] = gradient
        if not np.isfinite(gradient):  # the assignment of a constant keeps infinities and NaN
            assert not np.isfinite(self.parameter.grad().asscalar())
        self.optimizer.seen = None
        self.trainer.step(1)
        if self.optimizer.seen is None:
            return used, None, False

        def explains(scale):
            with np.errstate(all="ignore"):
                inverse = 1.0 / scale if scale else float("inf")
            return same(float((mx.nd.array([gradient]) * inverse).asscalar()), self.optimizer.seen)

        return used, divisor((used, self.scaler.loss_scale), explains), True

    def state(self):
        """The attributes: mxnet saves none of them."""
        names = ("_loss_scale", "_next_loss_scale", "_unskipped")
        return {name: getattr(self.scaler, name) for name in names}


def draw(rng):
    options = {"scale_seq_len": rng.choice(WINDOWS)}
    if rng.random() < 0.9:
        options["loss_scale"] = rng.choice(SCALES if rng.random() < 0.75 else EXTREMES)
    if rng.random() < 0.2:
        options["max_loss_scale"] = rng.choice((2.0**16, 2.0**20, 1000.0, 2.0**126))
    return options, options["scale_seq_len"]


def main():
    logging.disable(logging.CRITICAL)
    amp.init()
    record(
        "mxnet",
        Driver,
        draw,
        seed=412,
        package="mxnet",
        version=mx.__version__,
        recorded_with={"mxnet": mx.__version__, "numpy": np.__version__},
        script=__file__,
        api="mxnet.contrib.amp: init_trainer, scale_loss, gluon.Trainer.step with LossScaler",
        notes="loss_scale sets _loss_scale and _next_loss_scale; the others set the attribute of their name.",
        raises=(ZeroDivisionError, mx.base.MXNetError),
        odd=[{"scale_seq_len": 0}, {"scale_seq_len": -1}, {"scale_seq_len": 2, "loss_scale": float("inf")}],
    )


main()
