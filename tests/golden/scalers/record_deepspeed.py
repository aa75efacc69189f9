"""Record DeepSpeed's loss scalers on the CPU: under ZeRO stage 1, and in the optimizers without ZeRO.

pip install torch==2.13.0 numpy setuptools wheel; DS_BUILD_OPS=0 pip install --no-build-isolation deepspeed==0.19.8
python record_deepspeed.py

The options are the keys of DeepSpeed's configuration under "fp16", and `raise_error_at_min_scale`, which only
the constructor of DynamicLossScaler takes. A ZeRO engine is slow to build: one engine serves all cases, each with
a fresh loss scaler built by the call that the engine's optimizer makes itself.
"""

import functools
import logging
import os
import tempfile

os.environ.update(DS_ACCELERATOR="cpu", LOCAL_RANK="0", RANK="0", WORLD_SIZE="1", CUDA_VISIBLE_DEVICES="")
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29531")

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator
from deepspeed.runtime.fp16.fused_optimizer import FP16_Optimizer
from deepspeed.runtime.fp16.loss_scaler import (
    CreateLossScaler,
    LossScaleConfig,
    LossScaleProfile,
)
from deepspeed.runtime.fp16.unfused_optimizer import FP16_UnfusedOptimizer
from deepspeed.runtime.precision_config import DeepSpeedFP16Config
from recording import WINDOWS, divisor, record, same

POWERS = (16, 15, 10, 24, 0, 1, 2, 3, 4, 5, 32, 60, 61, 62, -1, -3)


class Deliver(torch.autograd.Function):
    """A loss of 1 whose scaled gradient is what the case wants; it notes the scale that multiplied the loss."""

    scale = None
    gradient = 1.0

    @staticmethod
    def forward(context, parameter):
        return parameter.detach().float().sum() * 0 + 1.0

    @staticmethod
    def backward(context, upstream):
        Deliver.scale = upstream.item()
        return torch.full((1,), Deliver.gradient, dtype=torch.float16)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self):
        return Deliver.apply(self.weight)


class WatchedSGD(torch.optim.SGD):
    """SGD that keeps the gradient it was stepped with."""

    seen = None

    def step(self, closure=None):
        gradient = self.param_groups[0]["params"][0].grad
        self.seen = None if gradient is None else gradient.flatten()[0].item()
        return super().step(closure)


def config_of(options):
    keys = {key: entry for key, entry in options.items() if key != "raise_error_at_min_scale"}
    return DeepSpeedFP16Config(enabled=True, loss_scale=0, **keys)


def outcome(used, after, seen):
    """Say what divided a scaled gradient of 1: the scale that multiplied the loss, or the updated one."""
    if seen is None:
        return used, None, False
    one = torch.ones(1)

    def explains(scale):
        return same((one * (1.0 / scale)).item(), seen)

    return used, divisor((after, used), explains), True


def prepare(kind):
    Deliver.gradient = {".": 1.0, "o": float("inf"), "n": float("nan")}[kind]


def check_scale(used):
    assert same(Deliver.scale, torch.tensor(float(used), dtype=torch.float32).item())


class Zero:
    """DynamicLossScaler in DeepSpeedZeroOptimizer, stage 1."""

    engine = None

    @classmethod
    def start(cls):
        net = Net().half()
        cls.sgd = WatchedSGD(net.parameters(), lr=2.0**-8)
        cls.engine, cls.optimizer, _, _ = deepspeed.initialize(
            model=net,
            optimizer=cls.sgd,
            config={
                "train_micro_batch_size_per_gpu": 1,
                "fp16": {"enabled": True, "loss_scale": 0},
                "zero_optimization": {"stage": 1},
                "zero_allow_untested_optimizer": True,
                "zero_force_ds_cpu_optimizer": False,
                "gradient_clipping": 0.0,  # 1.0 by default
                "steps_per_print": 10**9,
            },
        )
        assert type(cls.optimizer).__name__ == "DeepSpeedZeroOptimizer"

    def __init__(self, **options):
        arguments = config_of(options).dynamic_loss_scale_args()
        if "raise_error_at_min_scale" in options:
            arguments["raise_error_at_min_scale"] = options["raise_error_at_min_scale"]
        if Zero.engine is None:
            Zero.start()
        self.optimizer.loss_scaler = CreateLossScaler(
            dtype=torch.half, static_loss_scale=0, dynamic_scaling=True, dynamic_loss_args=arguments
        )

    def step(self, kind):
        prepare(kind)
        used = self.optimizer.loss_scale
        self.engine.backward(self.engine())
        check_scale(used)
        self.sgd.seen = None
        try:
            self.engine.step()
        except Exception:
            self.optimizer.zero_grad(set_to_none=True)
            for key in self.optimizer.averaged_gradients:
                self.optimizer.averaged_gradients[key] = None
                self.optimizer.all_grad_tensors[key] = None
            raise
        return outcome(used, self.optimizer.loss_scale, self.sgd.seen)

    def state(self):
        """The loss scaler that the checkpoint holds, as ZeRO's state_dict pickles it."""
        saved = vars(self.optimizer.state_dict()["loss_scaler"])
        return {key: entry for key, entry in saved.items() if key != "dtype"}


class WithoutZero:
    """FP16_Optimizer or FP16_UnfusedOptimizer around a small optimizer."""

    def __init__(self, kind, profile, **options):
        plain = options.pop("no_arguments", False)
        arguments = None if plain else config_of(options).dynamic_loss_scale_args()
        self.parameter = torch.nn.Parameter(torch.zeros(1, dtype=torch.float16))
        self.sgd = WatchedSGD([self.parameter], lr=2.0**-8)
        self.optimizer = kind(
            self.sgd,
            loss_scale_config=LossScaleConfig(
                low_precision_dtype=torch.float16,
                dynamic_loss_scale=True,
                static_loss_scale=0,
                dynamic_loss_args=arguments,
                profile=profile,
            ),
            verbose=False,
        )

    def step(self, kind):
        prepare(kind)
        used = self.optimizer.loss_scale
        self.optimizer.zero_grad()
        self.optimizer.backward(Deliver.apply(self.parameter))
        check_scale(used)
        self.sgd.seen = None
        self.optimizer.step()
        return outcome(used, self.optimizer.loss_scale, self.sgd.seen)

    def state(self):
        kept = (
            "dynamic_loss_scale",
            "cur_scale",
            "cur_iter",
            "last_overflow_iter",
            "scale_factor",
            "scale_window",
        )
        saved = self.optimizer.state_dict()
        return {key: saved[key] for key in kept}


def draw_plain(rng):
    options = {"loss_scale_window": rng.choice(WINDOWS)}
    if rng.random() < 0.9:
        options["initial_scale_power"] = rng.choice(POWERS)
    if rng.random() < 0.4:
        options["min_loss_scale"] = rng.choice((1, 2, 3, 8, 128))
    return options, options["loss_scale_window"] + rng.randint(0, 1)


def draw_zero(rng):
    options, window = draw_plain(rng)
    if rng.random() < 0.8:
        options["hysteresis"] = rng.choice((1, 1, 2, 3))
    if rng.random() < 0.4:
        options["consecutive_hysteresis"] = True
    if rng.random() < 0.6:
        options["raise_error_at_min_scale"] = False
    return options, window


def main():
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    accelerator = type(get_accelerator())
    accelerator.is_fp16_supported = lambda self: True
    accelerator.supported_dtypes = lambda self: [torch.float, torch.bfloat16, torch.float16]
    deepspeed.init_distributed("gloo", init_method=f"file://{tempfile.mkdtemp()}/store", rank=0, world_size=1)
    refused = [
        {"loss_scale_window": 0},
        {"loss_scale_window": -1},
        {"min_loss_scale": 0},
        {"min_loss_scale": 0.5},
    ]
    common = {
        "package": "deepspeed",
        "version": deepspeed.__version__,
        "recorded_with": {"deepspeed": deepspeed.__version__, "torch": torch.__version__},
        "script": __file__,
        "raises": (Exception,),
    }
    small = {"initial_scale_power": 3, "loss_scale_window": 2}
    record(
        "deepspeed",
        Zero,
        draw_zero,
        seed=405,
        api="deepspeed.initialize, ZeRO stage 1: engine.backward, engine.step with DynamicLossScaler",
        notes="An integer scale of 2**64 or more cannot multiply a tensor. "
        "A step that raises leaves cur_iter alone; the recording goes on with the next step.",
        odd=[
            {"hysteresis": 0, **small},
            {"hysteresis": -1, **small},
            {"initial_scale_power": -4, "loss_scale_window": 2, "hysteresis": 1},
            {"initial_scale_power": 2, "loss_scale_window": 1, "min_loss_scale": 8, "hysteresis": 1},
            {"initial_scale_power": 1024, "loss_scale_window": 1, "hysteresis": 1},
            {"initial_scale_power": 64, "loss_scale_window": 1, "hysteresis": 1},
            {"initial_scale_power": 63, "loss_scale_window": 1, "hysteresis": 1},
        ],
        refused=refused,
        **common,
    )
    for name, kind, profile, seed in (
        ("deepspeed_unfused", FP16_UnfusedOptimizer, LossScaleProfile.UNFUSED, 406),
        ("deepspeed_fused", FP16_Optimizer, LossScaleProfile.FUSED, 407),
    ):
        record(
            name,
            functools.partial(WithoutZero, kind, profile),
            draw_plain,
            seed=seed,
            api=f"{kind.__name__}(SGD): backward, step",
            notes="no_arguments: dynamic_loss_args is None, so the class' own defaults hold.",
            odd=[
                {"no_arguments": True},
                {"initial_scale_power": -4, "loss_scale_window": 2},
                {"initial_scale_power": 2, "loss_scale_window": 1, "min_loss_scale": 8},
                {"initial_scale_power": 1024, "loss_scale_window": 1},
                {"initial_scale_power": 64, "loss_scale_window": 1},
                {"initial_scale_power": 63, "loss_scale_window": 1},
            ],
            refused=refused,
            **common,
        )


main()
