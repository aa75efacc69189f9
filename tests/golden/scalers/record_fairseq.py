"""Record fairseq's loss scaler: the class alone, driven as its FP16Optimizer drives it.

pip download --no-deps --only-binary :all: --python-version 3.8 --platform manylinux1_x86_64 fairseq==0.12.2
unzip fairseq-*.whl fairseq/optim/dynamic_loss_scaler.py
pip install torch==2.13.0; python record_fairseq.py fairseq/optim/dynamic_loss_scaler.py

The wheel does not install beside a current Python, but this file of it imports nothing.
"""

import importlib.util
import math
import sys

import torch
from recording import SCALES, WINDOWS, delivered, divisor, record

VERSION = "0.12.2"


class Optimizer:
    """zero_grad, backward, clip_grad_norm and step of FP16Optimizer, as far as they touch the scaler."""

    def __init__(self, **options):
        self.scaler = loaded.DynamicLossScaler(**options)

    def step(self, kind):
        factor = 1.0 / float(self.scaler.loss_scale)
        used = self.scaler.scale(1.0)
        gradient = torch.tensor([delivered(kind, used), 0.0], dtype=torch.float32)
        norm = factor * torch.norm(gradient, p=2, dtype=torch.float32)  # as utils.clip_grad_norm_ computes it
        try:
            self.scaler.check_overflow(norm)
        except OverflowError:  # the trainer skips the step
            return used, None, False
        self.scaler.update()
        return used, divisor((used, self.scaler.loss_scale), lambda scale: 1.0 / scale == factor), True

    def state(self):
        return {"loss_scale": self.scaler.loss_scale}


def draw(rng):
    options = {"scale_window": rng.choice(WINDOWS), "init_scale": rng.choice(SCALES)}
    if rng.random() < 0.3:
        options["scale_factor"] = rng.choice((1.5, 3.0, 4.0))
    if rng.random() < 0.4:
        options["tolerance"] = rng.choice((0.05, 0.25, 0.5, 1.0))
    if rng.random() < 0.3:
        options["threshold"] = rng.choice((1.0, 2.0, 0.25))
    if rng.random() < 0.5:
        options["min_loss_scale"] = rng.choice((1.0, 0.25, 2.0**-5, 2.0**-30))
    return options, options["scale_window"]


def main():
    record(
        "fairseq",
        Optimizer,
        draw,
        seed=412,
        package="fairseq",
        version=VERSION,
        recorded_with={"fairseq": VERSION, "torch": torch.__version__},
        script=__file__,
        api="fairseq.optim.dynamic_loss_scaler.DynamicLossScaler: scale, check_overflow, update",
        notes="After an error the recording goes on with the next step.",
        raises=(FloatingPointError, ZeroDivisionError),
        odd=[
            {"scale_window": 0},
            {"scale_window": -2, "init_scale": 4.0},
            {"scale_window": 2, "scale_factor": 0.5, "init_scale": 4.0},
            {"scale_window": 2, "scale_factor": 1.0},
            {"scale_window": 2, "init_scale": math.inf},
            {"scale_window": 2, "init_scale": 1e-5},
        ],
    )


spec = importlib.util.spec_from_file_location("loaded", sys.argv[1])
loaded = importlib.util.module_from_spec(spec)
spec.loader.exec_module(loaded)
main()
