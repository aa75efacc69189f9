"""Record torch.amp.GradScaler and the FSDP ShardedGradScaler, on the CPU.

pip install torch==2.13.0 numpy; python record_torch.py
"""

import tempfile
import warnings

import torch
import torch.distributed as dist
from recording import EXTREMES, FACTORS, SCALES, WINDOWS, delivered, divisor, record, same
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

BACKOFFS = (0.5,) * 7 + (0.25, 0.75, 0.1, 0.9)


class WatchedSGD(torch.optim.SGD):
    """SGD that keeps the gradient it was stepped with."""

    seen = None

    def step(self, closure=None):
        self.seen = self.param_groups[0]["params"][0].grad.item()
        return super().step(closure)


class Driver:
    """One scaler, one float32 parameter whose true gradient is 1."""

    def __init__(self, kind, **options):
        self.scaler = kind(device="cpu", **options)
        self.parameter = torch.nn.Parameter(torch.tensor(0.0))
        self.optimizer = WatchedSGD([self.parameter], lr=0.5)

    def step(self, kind):
        scaler, optimizer = self.scaler, self.optimizer
        optimizer.zero_grad()
        with torch.no_grad():
            self.parameter.zero_()
        scaled_loss = scaler.scale(self.parameter + 1.0)  # the loss is 1, its gradient 1
        scaled_loss.backward()
        used = scaler._scale.item()
        assert same(self.parameter.grad.item(), used)
        assert same(scaled_loss.item(), used)
        gradient = delivered(kind, used)
        self.parameter.grad.fill_(gradient)
        optimizer.seen = None
        scaler.step(optimizer)
        scaler.update()
        if optimizer.seen is None:
            assert self.parameter.item() == 0.0
            return used, None, False
        wide = torch.tensor(gradient, dtype=torch.float32)

        def explains(scale):
            inverse = torch.tensor(scale, dtype=torch.float32).double().reciprocal().float()
            return same((wide * inverse).item(), optimizer.seen)

        return used, divisor((used, scaler._scale.item()), explains), True

    def state(self):
        return self.scaler.state_dict()


def draw(rng):
    options = {}
    if rng.random() < 0.95:
        options["init_scale"] = rng.choice(SCALES if rng.random() < 0.7 else EXTREMES)
    options["growth_interval"] = rng.choice(WINDOWS)
    if rng.random() < 0.5:
        options["growth_factor"] = rng.choice(FACTORS)
        options["backoff_factor"] = rng.choice(BACKOFFS)
    return options, options["growth_interval"]


def main():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    store = tempfile.mkdtemp()
    dist.init_process_group("gloo", init_method=f"file://{store}/store", rank=0, world_size=1)
    common = {
        "package": "torch",
        "version": torch.__version__.split("+")[0],
        "recorded_with": {"torch": torch.__version__},
        "script": __file__,
        "odd": [
            {"growth_interval": 0},
            {"growth_interval": -1},
            {"growth_interval": 2, "backoff_factor": 0.0},
            {"growth_interval": 2, "init_scale": 0.0},
            {"growth_interval": 2, "init_scale": float("inf")},
            {"growth_interval": 2, "init_scale": float("nan")},
        ],
        "refused": [
            {"growth_factor": 1.0},
            {"growth_factor": 0.5},
            {"backoff_factor": 1.0},
            {"backoff_factor": 2.0},
        ],
    }
    record(
        "torch",
        lambda **options: Driver(torch.amp.GradScaler, **options),
        draw,
        seed=401,
        api="torch.amp.GradScaler(device='cpu'): scale, step, update",
        **common,
    )
    record(
        "torch_fsdp",
        lambda **options: Driver(ShardedGradScaler, **options),
        draw,
        seed=402,
        api="torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler(device='cpu'), one gloo rank",
        **common,
    )
    dist.destroy_process_group()


main()
