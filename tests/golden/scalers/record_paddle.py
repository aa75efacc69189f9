"""Record paddle.amp.GradScaler and paddle.amp.AmpScaler in eager mode, on the CPU.

pip install paddlepaddle==3.3.1 "numpy<2.3"; python record_paddle.py

Both classes disable themselves on a CPU and outside float16 autocast; the script tells them that they are on a GPU
and in float16. Everything else is theirs, and their kernels run on the CPU.
"""

import types

import numpy as np
import paddle
from paddle.amp import grad_scaler
from recording import EXTREMES, SCALES, WINDOWS, delivered, divisor, record, same

grad_scaler.print = lambda *_: None  # it prints every overflow
place = types.SimpleNamespace(is_gpu_place=lambda: True)
grad_scaler._dygraph_tracer = lambda: types.SimpleNamespace(_expected_place=place)
grad_scaler.amp_global_state().amp_dtype = "float16"


def flush(number):
    """Flush a subnormal to zero, as the kernel that unscales does on a CPU."""
    return number * np.float32(0.0) if abs(number) < np.finfo(np.float32).tiny else number


class WatchedSGD(paddle.optimizer.SGD):
    """SGD that keeps the gradient it was stepped with."""

    seen = None

    def _append_optimize_op(self, block, param_and_grad):
        self.seen = float(param_and_grad[1])
        return super()._append_optimize_op(block, param_and_grad)


class Driver:
    """One float32 parameter whose true gradient is 1."""

    def __init__(self, kind, **options):
        self.amp = kind is paddle.amp.AmpScaler
        self.scaler = kind(**options)
        assert self.scaler.is_enable()
        self.parameter = paddle.create_parameter(
            [1], "float32", default_initializer=paddle.nn.initializer.Constant(0.0)
        )
        self.optimizer = WatchedSGD(0.5, parameters=[self.parameter])

    def step(self, kind):
        scaler, optimizer = self.scaler, self.optimizer
        self.parameter.set_value(np.zeros(1, np.float32))
        optimizer.clear_grad()
        scaled = scaler.scale((self.parameter + 1.0).sum())
        scaled.backward()
        used = float(scaler._scale)
        assert same(float(scaled), used)
        assert same(float(self.parameter.grad), used)
        gradient = np.float32(delivered(kind, used))
        self.parameter.grad.set_value(np.array([gradient], np.float32))
        optimizer.seen = None
        if self.amp:
            scaler.minimize(optimizer, scaled)
        else:
            scaler.step(optimizer)
            scaler.update()
        if optimizer.seen is None:
            return used, None, False

        def explains(scale):
            with np.errstate(all="ignore"):
                inverse = np.float32(1.0) / flush(np.float32(scale))
                return same(float(flush(flush(gradient) * flush(inverse))), optimizer.seen)

        return used, divisor((used, float(scaler._scale)), explains), True

    def state(self):
        saved = self.scaler.state_dict()
        return {**saved, "scale": float(saved["scale"][0])}


def draw(rng):
    options = {"incr_every_n_steps": rng.choice(WINDOWS)}
    if rng.random() < 0.9:
        options["init_loss_scaling"] = rng.choice(SCALES if rng.random() < 0.7 else EXTREMES)
    if rng.random() < 0.7:
        options["decr_every_n_nan_or_inf"] = rng.choice((1, 1, 2, 3))
    if rng.random() < 0.4:
        options["incr_ratio"] = rng.choice((2.0, 1.5, 3.0, 10.0))
        options["decr_ratio"] = rng.choice((0.5, 0.25, 0.75, 0.1))
    return options, options["incr_every_n_steps"]


def main():
    common = {
        "package": "paddlepaddle",
        "version": paddle.__version__,
        "recorded_with": {"paddlepaddle": paddle.__version__, "numpy": np.__version__},
        "script": __file__,
        "notes": "The kernel that unscales flushes subnormal numbers, a scale below 2**-126 included, to zero; "
        "the scale itself does not.",
        "odd": [
            {"incr_every_n_steps": 0},
            {"incr_every_n_steps": -1},
            {"incr_every_n_steps": 2, "decr_every_n_nan_or_inf": 0},
            {"incr_every_n_steps": 2, "decr_ratio": 0.0},
            {"incr_every_n_steps": 2, "init_loss_scaling": 0.0},
            {"incr_every_n_steps": 2, "init_loss_scaling": float("inf")},
        ],
        "refused": [{"incr_ratio": 1.0}, {"incr_ratio": 0.5}, {"decr_ratio": 1.0}, {"decr_ratio": 2.0}],
    }
    record(
        "paddle",
        lambda **options: Driver(paddle.amp.GradScaler, **options),
        draw,
        seed=414,
        api="paddle.amp.GradScaler: scale, step, update",
        **common,
    )
    record(
        "paddle_amp",
        lambda **options: Driver(paddle.amp.AmpScaler, **options),
        draw,
        seed=415,
        api="paddle.amp.AmpScaler: scale, minimize",
        **common,
    )


main()
