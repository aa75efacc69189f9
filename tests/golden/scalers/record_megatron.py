"""Record megatron.core.optimizer.grad_scaler.DynamicGradScaler in its float16 optimizer, on the CPU.

pip install torch==2.13.0 numpy; pip install --no-deps megatron-core==0.16.1; python record_megatron.py

The package makes its tensors on device "cuda"; the script makes them on the CPU instead.
"""

import math
import tempfile
import warnings
from importlib.metadata import version

import torch
import torch.distributed as dist

warnings.simplefilter("ignore")
torch.cuda.current_device = lambda: "cpu"
_tensor = torch.tensor


def _on_cpu(make):
    def wrapped(*args, **named):
        if named.get("device") in ("cuda", torch.device("cuda")):
            named["device"] = "cpu"
        return make(*args, **named)

    return wrapped


torch.tensor = _on_cpu(torch.tensor)  # before the package is imported

# ruff: noqa: E402
from megatron.core.optimizer.grad_scaler import DynamicGradScaler
from megatron.core.optimizer.optimizer import Float16OptimizerWithFloat16Params
from megatron.core.optimizer.optimizer_config import OptimizerConfig
from recording import EXTREMES, SCALES, WINDOWS, delivered, divisor, record, same

FACTORS = (2.0,) * 6 + (1.5, 3.0, 4.0)
BACKOFFS = (0.5,) * 6 + (0.25, 0.75, 0.1)
DEFAULTS = {  # of Megatron's command line
    "initial_scale": 2.0**32,
    "min_scale": 1.0,
    "growth_factor": 2.0,
    "backoff_factor": 0.5,
    "growth_interval": 1000,
    "hysteresis": 2,
}


class WatchedSGD(torch.optim.SGD):
    """SGD that keeps the gradient it was stepped with."""

    seen = None

    def step(self, closure=None):
        self.seen = self.param_groups[0]["params"][0].grad.item()
        return super().step(closure)


class Driver:
    """One float32 parameter in Float16OptimizerWithFloat16Params."""

    def __init__(self, **options):
        self.scaler = DynamicGradScaler(**{**DEFAULTS, **options})
        self.parameter = torch.nn.Parameter(torch.zeros(()))
        self.inner = WatchedSGD([self.parameter], lr=0.5)
        config = OptimizerConfig(optimizer="sgd", lr=0.5, fp16=True, clip_grad=0.0)
        self.optimizer = make_optimizer(self.inner, config, self.scaler)

    def step(self, kind):
        with torch.no_grad():
            self.parameter.zero_()
        self.parameter.grad = None
        scaled = self.optimizer.scale_loss(self.parameter + 1.0)
        scaled.backward()
        used = self.scaler.scale.item()
        assert same(scaled.item(), used)
        assert same(self.parameter.grad.item(), used)
        gradient = delivered(kind, used)
        self.parameter.main_grad = _tensor(gradient)
        self.inner.seen = None
        success, _, _ = self.optimizer.step()
        assert success == (self.inner.seen is not None)
        if not success:
            return used, None, False

        def explains(scale):
            inverse = _tensor(scale, dtype=torch.float32).double().reciprocal().float()
            return same((_tensor(gradient) * inverse).item(), self.inner.seen)

        return used, divisor((used, self.scaler.scale.item()), explains), True

    def state(self):
        saved = self.scaler.state_dict()
        return {**saved, "scale": saved["scale"].item()}


def make_optimizer(inner, config, scaler):
    """Build the optimizer, which sorts parameters by their CUDA type, with CPU ones."""
    optimizer = Float16OptimizerWithFloat16Params.__new__(Float16OptimizerWithFloat16Params)
    super(Float16OptimizerWithFloat16Params, optimizer).__init__(inner, config, scaler, lambda *_: None)
    parameters = inner.param_groups[0]["params"]
    optimizer.float16_groups, optimizer.fp32_from_float16_groups = [[]], [[]]
    optimizer.fp32_from_fp32_groups = [parameters]
    optimizer.grad_stats_parallel_group = dist.group.WORLD
    optimizer.is_stub_optimizer = False
    return optimizer


def draw(rng):
    options = {"growth_interval": rng.choice(WINDOWS)}
    if rng.random() < 0.9:
        options["initial_scale"] = rng.choice(SCALES if rng.random() < 0.75 else EXTREMES)
        options["min_scale"] = min(
            options["initial_scale"], rng.choice((1.0, 1.0, 1.0, 3.0, 2.0**-20, 2.0**10))
        )
    if rng.random() < 0.85:
        options["hysteresis"] = rng.choice((1, 1, 2, 3))
    if rng.random() < 0.4:
        options["growth_factor"], options["backoff_factor"] = rng.choice(FACTORS), rng.choice(BACKOFFS)
    return options, options["growth_interval"]


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{tempfile.mkdtemp()}/store", rank=0, world_size=1)
    record(
        "megatron",
        Driver,
        draw,
        seed=409,
        package="megatron-core",
        version=version("megatron-core"),
        recorded_with={"megatron-core": version("megatron-core"), "torch": torch.__version__},
        script=__file__,
        api="DynamicGradScaler in Float16OptimizerWithFloat16Params(SGD): scale_loss, step; tensors on the CPU",
        notes=f"The options left out are those of Megatron's command line: {DEFAULTS!r}.",
        odd=[
            {"growth_interval": 2, "initial_scale": math.inf},
            {"growth_interval": 1, "initial_scale": 2.0**127, "hysteresis": 1},
        ],
        refused=[
            {"growth_interval": 0},
            {"growth_factor": 1.0},
            {"backoff_factor": 1.0},
            {"hysteresis": 0},
            {"min_scale": 0.0},
            {"min_scale": 4.0, "initial_scale": 2.0},
            {"initial_scale": 0.0},
        ],
    )
    dist.destroy_process_group()


main()
