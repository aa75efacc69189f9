"""A scale for each layer in the engine: exactness on every shape of network, and what one scale for all loses."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from fp16sim import scaling
from fp16sim.autograd import ops
from fp16sim.autograd.checkpoint import checkpoint
from fp16sim.autograd.policy import Policy
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn import CrossEntropyLoss, Embedding, LayerNorm, Linear, Module, ReLU, Sequential
from fp16sim.nn.random import streams
from fp16sim.optim import SGD
from fp16sim.scaling import Decision, Observation, Scales
from fp16sim.training import layer_scales
from fp16sim.training.fit import fit
from fp16sim.training.layer_scales import loss_scale_of, multiplied
from fp16sim.training.recipes import RECIPES
from fp16sim.training.step import train_step

GENERATOR = np.random.default_rng(7)
X = GENERATOR.standard_normal((6, 8)).astype(np.float32)
LABELS = np.array([0, 1, 2, 3, 4, 5])
POWERS = (2.0**3, 2.0**-2, 2.0**7, 2.0**5, 2.0**-4, 2.0, 2.0**9)


@dataclass(frozen=True)
class Fixed:
    """Given scales; keeps what it was told."""

    scale: dict
    apply: object = True
    seen: list = None

    def update(self, observation):
        if self.seen is not None:
            self.seen.append(observation)
        return self, Decision(self.apply, dict(self.scale))


class Keep:
    """An optimizer that keeps the gradients of its last step and moves nothing."""

    def __init__(self, model):
        self.parameters = model.parameters()
        self.found = None

    def step(self, gradients=None):
        self.found = gradients


class Residual(Module):
    """Two layers that take the same input, and a sum that feeds two more."""

    def __init__(self):
        self.one, self.two, self.three, self.four = Linear(8, 8), Linear(8, 8), Linear(8, 8), Linear(8, 8)

    def forward(self, x):
        h = self.one(x)
        h = h + self.two(ReLU()(h))
        return self.three(h) + self.four(h) * 0.5


class Shared(Module):
    """A layer that is called twice, and a weight that an embedding shares with the head."""

    def __init__(self):
        self.inner, self.embedding, self.norm = Linear(8, 8), Embedding(8, 8), LayerNorm(8)

    def forward(self, x):
        h = self.embedding(LABELS) + self.inner(self.inner(x))
        return ops.linear(self.norm(h), self.embedding.weight)


class Nested(Module):
    """Parameters of its own between two parts, one of them in a checkpointed block."""

    def __init__(self):
        self.first, self.last, self.gain = Linear(8, 8), Linear(8, 8), Tensor(np.float32([1.5] * 8), True)

    def forward(self, x):
        return self.last(checkpoint(lambda x: ReLU()(self.first(x)), x * 1.0) * self.gain)


def chain():
    return Sequential(Linear(8, 8), ReLU(), Linear(8, 8), ReLU(), Linear(8, 8))


NETWORKS = (chain, Residual, Shared, Nested)


def stepped(model, scaler, policy="float32", batches=((X, LABELS),), **options):
    keep = Keep(model)
    taken = train_step(
        1,
        model,
        CrossEntropyLoss(),
        *batches,
        policy=Policy(policy),
        scaler=scaler,
        optimizer=keep,
        **options,
    )
    return keep.found, taken


def made(network):
    with streams(3):
        return network()


def groups(model):
    return [name for name, part in model.named_modules() if layer_scales.has_own_parameters(part)]


def bits(arrays):
    return [array.tobytes() for array in arrays]


@pytest.mark.parametrize("batches", [1, 3])
@pytest.mark.parametrize("network", NETWORKS)
def test_powers_of_two_change_no_bit_of_a_float32_gradient(network, batches):
    model = made(network)
    scales = dict(zip(groups(model), POWERS, strict=False))
    data = [(X * (k + 1), LABELS) for k in range(batches)]
    plain, _ = stepped(model, scaling.NoScaler(), batches=data)
    found, _ = stepped(model, Fixed(scales), batches=data)
    assert bits(found) == bits(plain)


@pytest.mark.parametrize("network", NETWORKS)
def test_a_hook_that_does_not_convert_is_caught(network, monkeypatch):
    model = made(network)
    scales = dict(zip(groups(model), POWERS, strict=False))
    plain, _ = stepped(model, scaling.NoScaler())
    monkeypatch.setattr(layer_scales, "multiplied", lambda gradient, factor: gradient)
    found, _ = stepped(model, Fixed(scales))
    assert bits(found) != bits(plain)


def test_each_gradient_carries_the_scale_of_its_layer():
    model, seen, shown = made(chain), [], []
    scales = {"0": 2.0**10, "2": 2.0**-3, "4": 2.0**6}
    _, taken = stepped(model, Fixed(scales, seen=seen), observers=[shown.append])
    (observed,) = shown
    assert observed.scales == scales
    assert taken.step.scale == scales["4"]  # the loss has that of the layer before it
    for name, gradient in observed.gradients.items():
        assert gradient.tobytes() == (observed.exact[name] * np.float32(scales[name])).tobytes()
    (observation,) = seen
    assert observation.overflow == {"0": False, "2": False, "4": False}
    assert observation.scales is None
    plain, _ = stepped(model, scaling.NoScaler())
    for group, position in (("0", 0), ("2", 2), ("4", 4)):
        peak = max(float(np.abs(gradient).max()) for gradient in plain[position : position + 2])
        assert observation.amax[group] == max(peak, float(np.abs(observed.exact[group]).max()))


def test_an_overflow_is_that_of_its_layer_and_those_before_it():
    model, seen = made(chain), []
    scales = {"0": 2.0**60, "2": 2.0**120, "4": 1.0}
    loss = lambda output, labels: CrossEntropyLoss()(output, labels) * 2.0**15  # noqa: E731
    train_step(1, model, loss, (X, LABELS), policy=Policy("float32"), scaler=Fixed(scales, False, seen),
               optimizer=Keep(model))  # fmt: skip
    assert seen[0].overflow == {"0": True, "2": True, "4": False}
    assert math.isinf(seen[0].amax["2"])


def test_groups_may_be_skipped_one_by_one():
    model = made(chain)
    before = [parameter.data.copy() for parameter in model.parameters()]
    scales = dict.fromkeys(("0", "2", "4"), 8.0)
    run = fit(model, [(X, LABELS)], scaler=Fixed(scales, {"0": True, "2": False, "4": True}),
              optimizer=SGD(model.parameters(), lr=0.1), steps=1)  # fmt: skip
    moved = [bool((a != b.data).any()) for a, b in zip(before, model.parameters(), strict=True)]
    assert moved == [True, True, False, False, True, True]
    assert run.history[0].applied


def test_a_group_without_a_scale_has_1():
    model = made(chain)
    plain, _ = stepped(model, scaling.NoScaler())
    found, _ = stepped(model, Fixed({"2": 4.0}))
    assert bits(found) == bits(plain)


def test_multiplication_is_that_of_torch_with_a_number():
    tiny = np.float16([2.0**-24, 3 * 2.0**-24])
    assert multiplied(tiny, 2.0**30).tolist() == [64.0, 192.0]  # the factor itself is infinite in float16
    assert multiplied(np.float32([3.0]), 0.1).tobytes() == (np.float32([3.0]) * np.float32(0.1)).tobytes()
    third = np.float16([1.001])
    product = third.astype(np.float32) * np.float32(1 / 3)
    assert multiplied(third, 1 / 3).tobytes() == product.astype(np.float16).tobytes()
    assert multiplied(third, 1.0) is third


def test_the_scale_of_the_loss_is_recorded_for_a_scaler_of_layers():
    model = made(chain)
    scaler = scaling.make("fairscale_layerwise", init_scale=16.0)
    run = fit(model, [(X, LABELS)], scaler=scaler, optimizer=SGD(model.parameters(), lr=0.1), steps=2)
    assert [step.scale for step in run.history] == [16.0, 16.0]
    assert loss_scale_of(run.scaler, run.history) == 16.0
    assert math.isnan(loss_scale_of(scaler, ()))
    assert loss_scale_of(scaling.make("static", scale=8), ()) == 8.0


def test_adaptive_keeps_its_scales_over_micro_batches_and_unscales_by_them():
    model, plain_model = made(chain), made(chain)
    data = [(X, LABELS), (X * 64, LABELS)]
    bounds = {"scale_upper_bound": 2.0**20, "accum_upper_bound": 2.0**30, "u_min": 2.0**-18}
    scaler = scaling.make("adaptive", init_scale=2.0**-10, **bounds)
    shown = []
    found, taken = stepped(model, scaler, "mixed_float16", data, observers=[shown.append])
    plain, _ = stepped(plain_model, scaling.NoScaler(), batches=data)
    scales = shown[0].scales
    assert {scales[f"{k}#2"] for k in "024"} == {scales[k] for k in "024"}
    assert scales["0"] > taken.step.scale == 2.0**-10
    for a, b in zip(found, plain, strict=True):  # in float16, at 2^-10 partly subnormal: 2^-25 against 2^-12
        assert np.abs(a - b).max() <= 2.0**-6 * np.abs(b).max()


def test_a_layerwise_run_is_saved_and_resumed_with_the_same_bits(tmp_path):
    options = {"policy": "mixed_float16", "scaler": "fairscale_layerwise,init_scale=2**14,growth_interval=1"}
    data = [(X, LABELS), (X * 2, LABELS)]
    runs = []
    for steps in ((6,), (3, 6)):
        folder = tmp_path / str(len(steps))
        for number in steps:
            model = made(chain)
            optimizer = SGD(model.parameters(), lr=0.1)
            run = fit(model, data, optimizer=optimizer, steps=number, save_to=folder, resume=True, **options)
        runs.append(run)
    assert runs[0].digest == runs[1].digest
    assert runs[0].scaler == runs[1].scaler


# --- two layers whose gradients differ by 2^20


def weighted(output, targets):
    return (output * Tensor(targets)).sum()


def deep():
    """Five layers of permutations over 32, so that a gradient falls by 2^5 at each: 2^20 from the last to the first.

    The last layer's inputs are 4096, so its weight's gradient, a sum over 256 rows, is 2^20 times that of its output.
    """
    model = Sequential(*(Linear(32, 32) for _ in range(5)))
    for k, layer in enumerate(model.modules):
        layer.weight.data = np.roll(np.eye(32, dtype=np.float32), k + 1, 0) * np.float32(2.0**-5)
        layer.bias.data = np.full(32, 4096.0 if k == 3 else 0.0, np.float32)
    return model


def survivors(scaler, steps):
    """Give the shares of the nonzero gradients that are neither flushed nor infinite, at the last applied step."""
    rows = np.random.default_rng(1).standard_normal((256, 32)).astype(np.float32) + np.float32(1)
    model, shown = deep(), []
    optimizer = SGD(model.parameters(), lr=0.0)
    data = [(np.ones((256, 32), np.float32), rows)]
    fit(model, data, policy="mixed_float16", scaler=scaler, optimizer=optimizer, steps=steps,
        loss_function=weighted, observers=[shown.append])  # fmt: skip
    applied = [observed for observed in shown if observed.step.applied]
    if not applied:
        return None
    exact, got = applied[-1].exact, applied[-1].gradients
    ratio = np.abs(exact["4"]).max() / np.abs(exact["0"]).max()
    assert ratio == 2.0**20
    return tuple(float((np.isfinite(got[k]) & (got[k] != 0))[exact[k] != 0].mean()) for k in ("4", "0"))


def test_one_scale_loses_a_layer_that_layerwise_and_adaptive_scales_keep(capsys):
    shares = {}
    for exponent in (-6, -5, -4):
        shares[f"static 2^{exponent}"] = survivors(scaling.StaticScaler(2.0**exponent), 1)
    shares["torch"] = survivors("torch,init_scale=2**-12,growth_interval=1", 12)
    shares["fairscale_layerwise"] = survivors("fairscale_layerwise,init_scale=2**-12,growth_interval=1", 40)
    shares["adaptive"] = survivors(
        "adaptive,init_scale=2**-5,scale_upper_bound=2**10,accum_upper_bound=2**40", 1
    )
    with capsys.disabled():
        print("\nshare of the gradients that survives: scaler, last layer, first layer")
        for name, found in shares.items():
            last, first = ("skipped", "skipped") if found is None else (f"{share:.2%}" for share in found)
            print(f"  {name:20} {last:>8} {first:>8}")
    assert shares["static 2^-4"] is None  # the weight of the last layer overflows: nothing is applied
    for name in ("static 2^-6", "static 2^-5", "torch"):
        last, first = shares[name]
        assert last > 0.999
        assert first < 0.6
    for name in ("fairscale_layerwise", "adaptive"):
        assert min(shares[name]) > 0.998  # adaptive is asked for 1e-3 of the products


def test_scales_gives_a_default():
    scales = Scales({"a": 2.0}, 8.0)
    assert (scales["a"], scales["other"], list(scales), len(scales)) == (2.0, 8.0, ["a"], 1)
    assert Observation(scales=scales).scales is scales


# --- the models that ship with the package


@pytest.mark.parametrize("name", ["mlp", "vgg", "resnet", "gpt", "bert", "gru"])
def test_powers_of_two_change_no_bit_of_a_real_model(name):
    recipe = RECIPES[name]
    batch, found = recipe.data(0).at(0), []
    for scaled in (False, True):
        model = recipe.build(0)
        scales = {group: 2.0 ** ((7 * k) % 11 - 5) for k, group in enumerate(groups(model))}
        keep = Keep(model)
        train_step(
            1,
            model,
            recipe.loss_function or CrossEntropyLoss(),
            batch,
            policy=Policy("float32"),
            scaler=Fixed(scales) if scaled else scaling.NoScaler(),
            optimizer=keep,
            measure=False,
        )
        found.append(bits(gradient for gradient in keep.found if gradient is not None))
    assert len(found[0]) >= 8
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["vgg", "resnet", "gpt", "bert", "gru"])
@pytest.mark.parametrize(
    "scaler",
    [
        "adaptive,u_min=2**-12,scale_upper_bound=2**8,accum_upper_bound=2**12",
        "delayed,fp8_format=binary16,margin=3,amax_compute_algo=most_recent",
        "fairscale_layerwise,init_scale=2**10,growth_interval=1",
    ],
)
def test_real_models_train_in_float16_under_scales_of_layers(name, scaler):
    recipe, shown = RECIPES[name], []
    model = recipe.build(0)
    run = fit(model, recipe.data(0), policy="mixed_float16", scaler=scaler, optimizer=recipe.optimizer(model), steps=3,
              loss_function=recipe.loss_function, observers=[shown.append])  # fmt: skip
    assert all(np.isfinite(parameter.data).all() for parameter in model.parameters())
    assert sum(step.applied for step in run.history) >= 2
    if "fairscale" not in scaler and name != "gru":  # the layers of the one start alike, the other has two
        assert len(set(shown[-1].scales.values())) > 1


def test_delayed_scales_put_the_peak_of_every_layer_where_the_margin_says():
    model, shown = made(chain), []
    scaler = scaling.make("delayed", fp8_format="binary16", margin=2, amax_compute_algo="most_recent")
    run = fit(model, [(X, LABELS)], policy="mixed_float16", scaler=scaler, steps=3,
              optimizer=SGD(model.parameters(), lr=0.0), observers=[shown.append])  # fmt: skip
    assert all(step.applied for step in run.history)
    for group, amax in run.scaler.amax_history.items():
        # The same gradients again, which float16 kept to eleven bits, in the first step some subnormal.
        assert amax[-1] * shown[-1].scales[group] == pytest.approx(65504 / 4, rel=2.0**-8)
        assert shown[0].scales[group] == 1.0
