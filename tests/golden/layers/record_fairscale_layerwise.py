"""Record traces of fairscale's LayerwiseGradientScaler, driven as its documentation says.

    pip install --no-deps --no-build-isolation --target FOLDER fairscale==0.4.13
    PYTHONPATH=FOLDER python record_fairscale_layerwise.py

Every case has two layers named in `layer_scale_dict` and one that is not. A step of a history is a letter for each
layer: `.` a true gradient of 3, scaled by the scale; `o` infinity, `n` NaN. What is recorded of a step: the scale of
each layer, what its gradient was divided by (null where it was not finite), and whether the optimizer moved (1 or 0).
The module is loaded by its path, as the package around it need not import under new versions of torch.
"""

import importlib.metadata
import importlib.util
import json
import math
import random
import sys
from pathlib import Path

import torch

CASES, LAYERS = 200, ("a", "b", "c")
HERE = Path(__file__).parent


def load():
    file = next(f for f in importlib.metadata.files("fairscale") if f.name == "layerwise_gradient_scaler.py")
    spec = importlib.util.spec_from_file_location("layerwise_gradient_scaler", file.locate())
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.LayerwiseGradientScaler


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name in LAYERS:
            setattr(self, name, torch.nn.Linear(1, 1, bias=False))


class Moved:
    """An optimizer that says whether it moved."""

    def __init__(self):
        self.moved = False

    def step(self):
        self.moved = True


def divisor(scale, before, after):
    """Give the candidate that explains the gradient after unscaling; the scale itself where none is finite."""
    if not math.isfinite(before):
        return None
    for candidate in (scale, 1.0):
        gradient = torch.tensor([before], dtype=torch.float32)
        gradient.mul_(1.0 / candidate)
        if gradient.item() == after:
            return candidate
    raise AssertionError((scale, before, after))


def run(kind, options, history):
    model = Net()
    others = {key: value for key, value in options.items() if key != "layer_scale_dict"}
    scaler = kind(model, dict(options["layer_scale_dict"]), **others)
    steps = []
    for letters in history:
        scales = {info.layer_name: info.scaling_factor for info in scaler.get_layer_info()}
        scaler.scale()
        before = {}
        for name, letter in zip(LAYERS, letters, strict=True):
            value = {"o": math.inf, "n": math.nan}.get(letter, 3.0 * scales.get(name, 1.0))
            weight = getattr(model, name).weight
            weight.grad = torch.full_like(weight, value)
            before[name] = weight.grad.item()
        scaler.unscale()
        found = [
            divisor(scales.get(name, 1.0), before[name], getattr(model, name).weight.grad.item())
            for name in LAYERS
        ]
        optimizer = Moved()
        for name in LAYERS:  # fairscale tests what is left after unscaling
            assert math.isfinite(before[name]) == math.isfinite(getattr(model, name).weight.grad.item())
        scaler.step(optimizer)
        steps.append([[scales.get(name, 1.0) for name in LAYERS], found, int(optimizer.moved)])
    return {"options": options, "history": history, "steps": steps}


def draw(rng):
    options = {
        "layer_scale_dict": {}
        if rng.random() < 0.05
        else {
            name: 2.0 ** rng.randint(-10, 24) if rng.random() < 0.8 else rng.choice((3.0, 1000.0, 1.0))
            for name in "ab"
        },
        "growth_factor": rng.choice((2.0, 2.0, 2.0, 1.5, 4.0)),
        "backoff_factor": rng.choice((0.5, 0.5, 0.5, 0.25, 0.7)),
        "growth_interval": rng.choice((0, 1, 2, 3, 5, 8)),
    }
    if rng.random() < 0.3:
        options["min_scale"] = rng.choice((1.0, 16.0, 2.0**-4))
    if rng.random() < 0.3:
        options["max_scale"] = rng.choice((2.0**20, 2.0**10, 5000.0))
    rate = rng.choice((0.05, 0.2, 0.5))
    history = [
        "".join("." if rng.random() > rate else rng.choice("oon") for _ in LAYERS)
        for _ in range(rng.randint(1, 40))
    ]
    return options, history


def main():
    rng, kind = random.Random(20260101), load()
    cases = [run(kind, *draw(rng)) for _ in range(CASES)]
    out = {
        "package": "fairscale",
        "version": importlib.metadata.version("fairscale"),
        "recorded_with": {"python": sys.version.split()[0], "torch": torch.__version__},
        "script": "tests/golden/layers/record_fairscale_layerwise.py",
        "cases": cases,
    }
    (HERE / "fairscale_layerwise.json").write_text(
        json.dumps(out, separators=(",", ":"), allow_nan=False) + "\n"
    )


if __name__ == "__main__":
    main()
