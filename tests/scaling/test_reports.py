"""Public reports about loss scaling: what the framework's rule does, and that our own does the right thing."""

import math
import re

import numpy as np
import pytest

from fp16sim import scaling
from fp16sim.autograd.policy import Policy
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn import CrossEntropyLoss, Embedding, Linear, Module, Sequential
from fp16sim.optim import SGD
from fp16sim.scaling import Decision, Observation, observe, unscale
from fp16sim.training.fit import fit
from fp16sim.training.step import train_step

LETTERS = {".": Observation(), "o": Observation(overflow=True)}
LARGEST = 65520.0  # from here on float16 is infinite
MIXED = Policy("mixed_float16")


def walk(scaler, history):
    """Give (scale used, decision) of every step, and the scaler at the end."""
    rows = []
    for letter in history:
        scale = scaler.scale
        scaler, decision = scaler.update(LETTERS[letter])
        rows.append((scale, decision))
    return rows, scaler


def end(scaler, history):
    return walk(scaler, history)[1]


def closed_loop(scaler, peak, steps):
    """Give (scale, decision) of steps whose gradients have one peak, and overflow as float16 does."""
    rows = []
    for _ in range(steps):
        overflow = not peak * scaler.scale < LARGEST
        scale = scaler.scale
        scaler, decision = scaler.update(Observation(overflow=overflow, amax=math.inf if overflow else peak))
        rows.append((scale, decision))
        if decision.stop:
            break
    return rows


class Keep:
    """An optimizer that keeps what it is given and moves nothing."""

    def __init__(self, model):
        self.parameters = model.parameters()
        self.found = None

    def step(self, gradients=None):
        self.found = gradients


def total(output, targets):
    return (output * Tensor(targets)).sum()


def one_step(model, scaler, inputs, targets, policy=MIXED, loss=total, **options):
    keep = Keep(model)
    batches = [(inputs, targets)] if not isinstance(inputs, list) else list(zip(inputs, targets, strict=True))
    taken = train_step(1, model, loss, *batches, policy=policy, scaler=scaler, optimizer=keep, **options)
    return taken, keep.found


def single(weight=1.0, dtype="float32"):
    model = Sequential(Linear(1, 1, bias=False))
    model.modules[0].weight.data = np.float32([[weight]])
    return model.to(dtype)


ONE = np.float32([[1.0]])


def test_deepspeed_8588_the_step_that_grows_divides_by_the_new_scale():
    rows, _ = walk(scaling.make("deepspeed", initial_scale_power=2, loss_scale_window=1), "....")
    assert [scale / decision.divide_by for scale, decision in rows] == [1.0, 0.5, 0.5, 0.5]
    rows, _ = walk(scaling.make("robust", init_scale=4.0, growth_interval=1), "....")
    assert [scale / decision.divide_by for scale, decision in rows] == [1.0] * 4
    assert [scale for scale, _ in rows] == [4.0, 8.0, 16.0, 32.0]


@pytest.mark.parametrize("report", [1599, 1958])
def test_deepspeed_overflows_at_the_minimum_are_skipped_for_ever(report):
    rows = closed_loop(scaling.make("deepspeed_unfused", initial_scale_power=4), math.inf, 2000)
    assert len(rows) == 2000
    assert not any(decision.apply or decision.stop for _, decision in rows)
    rows = closed_loop(scaling.make("robust", init_scale=16.0, min_scale=1.0), math.inf, 2000)
    assert len(rows) == 4 + 25
    assert "at the smallest loss scale, 1, 25 steps in a row" in rows[-1][1].stop


def test_deepspeed_8415_a_skipped_step_is_in_the_record():
    for name in ("deepspeed", "robust"):
        model = single()
        run = fit(model, [(ONE, np.float32([[1e9]]))], policy=MIXED, scaler=scaling.make(name), steps=2,
                  optimizer=SGD(model.parameters(), lr=0.1), loss_function=total)  # fmt: skip
        assert [(step.applied, step.overflow) for step in run.history] == [(False, True)] * 2


def test_deepspeed_4986_options_do_not_change_the_default_of_another():
    assert scaling.make("deepspeed").scale == 2.0**16  # of the configuration; the class itself has 2^32
    defaults = scaling.make("robust").framework_state()
    for option, value in {
        "growth_interval": 7,
        "min_scale": 2.0,
        "max_scale": 2.0**20,
        "floor_patience": 3,
    }.items():
        assert scaling.make("robust", **{option: value}).framework_state() == {**defaults, option: value}


def test_pytorch_98828_a_scale_that_grows_on_every_step_reaches_infinity():
    tiny = 2.0**-140
    rows = closed_loop(scaling.make("torch_fsdp", growth_interval=1), tiny, 400)
    assert rows[-1][0] == math.inf
    assert (
        closed_loop(scaling.make("torch", growth_interval=1), tiny, 400)[-1][0] == 2.0**127
    )  # 1 / it is subnormal
    rows = closed_loop(scaling.make("robust", growth_interval=1), tiny, 400)
    assert rows[-1] == (2.0**64, Decision(True, 2.0**64))


def test_pytorch_99640_scaled_valid_unscaled_not():
    huge = np.float32([2.0**120])
    for name, applied in (("torch", True), ("robust", False)):
        scaler = scaling.make(name, init_scale=2.0**-16)
        observation = observe(scaler, [huge])
        assert observation.overflow is False
        _, decision = scaler.update(observation)
        assert decision.apply is applied
        assert np.isinf(unscale(huge, decision)).all()


@pytest.mark.parametrize("report", ["pytorch 94060", "Lightning 15501"])
def test_gradients_are_unscaled_once(report):
    """An unscaling by hand before a step that unscales divides twice; here the step alone does, clipping included."""
    targets = np.float32([[3.0]])
    for name in ("torch", "robust"):
        scaler = scaling.make(name, init_scale=1024.0)
        decision = scaler.update(Observation())[1]
        twice = unscale(unscale(np.float32([3.0 * 1024]), decision), decision)
        assert twice.tolist() == [3.0 / 1024]
        _, found = one_step(single(), scaler, ONE, targets, clip_norm=100.0)
        assert found[0].tolist() == [[3.0]]


def test_pytorch_97415_gradients_that_turn_bad_after_unscaling(monkeypatch):
    def spoiled(steps, norm, **_):
        return [np.full_like(step, np.nan) for step in steps], norm

    monkeypatch.setattr("fp16sim.training.step.clip_grad_norm", spoiled)
    taken, found = one_step(single(), scaling.make("torch", init_scale=8.0), ONE, ONE, clip_norm=1.0)
    assert taken.step.applied
    assert np.isnan(found[0]).all()
    taken, found = one_step(single(), scaling.make("robust", init_scale=8.0), ONE, ONE, clip_norm=1.0)
    assert not taken.step.applied
    assert found is None
    assert taken.scaler.scale == 4.0


class Lookup(Module):
    def __init__(self):
        self.embedding = Embedding(4, 1)

    def forward(self, tokens):
        return self.embedding(tokens)


def test_pytorch_35810_duplicates_that_overflow_once_they_are_added():
    tokens, targets = np.array([2, 2]), np.float32([[40000.0], [40000.0]])
    entries = [np.float16([40000.0]), np.float16([40000.0])]
    for name in ("torch", "robust"):
        scaler = scaling.make(name, init_scale=1.0)
        assert not observe(scaler, entries).overflowed  # entry by entry each is finite
        model = Lookup().to("float16")
        taken, found = one_step(model, scaler, tokens, targets, Policy("float16"))
        assert taken.step.overflow  # the engine adds them before anybody looks
        assert found is None


class Unused(Module):
    def __init__(self):
        self.used, self.unused = Linear(1, 1), Linear(1, 1)

    def forward(self, x):
        return self.used(x)


def test_lightning_7975_an_optimizer_without_gradients():
    for name in ("torch", "robust"):
        model = Unused()
        optimizer = SGD(model.unused.parameters(), lr=0.1)
        before = model.unused.weight.data.tobytes()
        run = fit(model, [(ONE, ONE)], policy=MIXED, scaler=scaling.make(name), optimizer=optimizer, steps=2,
                  loss_function=total)  # fmt: skip
        assert [step.overflow for step in run.history] == [False, False]
        assert model.unused.weight.data.tobytes() == before


@pytest.mark.parametrize("report", ["Lightning 18828", "transformers 11106"])
def test_the_schedule_waits_for_a_skipped_step(report):
    moved = {}
    for name, option in (("keras2", "initial_scale"), ("torch", "init_scale"), ("robust", "init_scale")):
        model, asked = single(), []
        big, small = (ONE, np.float32([[60000.0]])), (ONE, np.float32([[1.0]]))
        fit(model, [small, big, small, small], policy=MIXED, scaler=scaling.make(name, **{option: 4.0}), steps=4,
            optimizer=SGD(model.parameters(), lr=0.1), loss_function=total,
            schedule=lambda applied, asked=asked: asked.append(applied) or 0.0)  # fmt: skip
        moved[name] = asked
    assert moved == {"keras2": [0, 1, 2, 3], "torch": [0, 1, 1, 2], "robust": [0, 1, 1, 2]}


def test_accelerate_4289_a_loaded_state_is_the_saved_one():
    """There a step between loading and saving turned 1024 with 1 counted into 2048 with 0."""
    torch = end(scaling.make("torch", init_scale=1024.0, growth_interval=2), ".")
    moved = end(torch, ".")
    assert (moved.scale, moved.growth_tracker) == (2048.0, 0)
    loaded = scaling.make("torch").load_framework_state(torch.framework_state())
    assert (loaded.scale, loaded.growth_tracker) == (1024.0, 1)
    robust = end(scaling.make("robust", init_scale=1024.0, growth_interval=2), ".")
    loaded = scaling.make("robust").load_framework_state(robust.framework_state())
    assert (loaded.scale, loaded.clean_steps) == (1024.0, 1)
    assert loaded == robust == scaling.from_json(robust.to_json())


def test_apex_834_endless_overflows_end_in_a_division_by_zero():
    rows = closed_loop(scaling.make("apex"), math.inf, 2000)
    assert rows[-1][0] == 0.0
    assert "ZeroDivisionError" in rows[-1][1].stop
    rows = closed_loop(scaling.make("robust"), math.inf, 2000)
    assert len(rows) == 32 + 25
    assert rows[-1][0] == 2.0**-16
    assert "smallest loss scale" in rows[-1][1].stop


@pytest.mark.parametrize("report", [114, 179])
def test_apex_two_networks_skip_together(report):
    """With a scaler for each optimizer one skips and the other steps; one that is told of both skips for both."""
    generator, discriminator = scaling.make("apex"), scaling.make("apex")
    _, first = generator.update(Observation(overflow=True))
    _, second = discriminator.update(Observation())
    assert (first.apply, second.apply) == (False, True)
    both = Observation(overflow={"generator": True, "discriminator": False})
    assert scaling.make("robust").update(both)[1].apply is False


def test_flax_2547_an_infinite_scale_stays():
    flax = scaling.make("flax", scale=math.inf)
    assert end(flax, "o" * 50).scale == math.inf
    with pytest.raises(ValueError, match="init_scale=inf: it must be a finite number above 0"):
        scaling.make("robust", init_scale=math.inf)
    assert end(scaling.make("robust", growth_interval=1), "." * 500).scale == 2.0**64


@pytest.mark.parametrize(
    ("report", "name"), [("tensorflow 38357", "tf_v1"), ("tf-keras 644", "keras2"), ("jmp 18", "jmp")]
)
def test_a_network_that_needs_a_scale_below_1_is_stuck_at_1(report, name):
    peak = LARGEST * 10  # fits at 2^-4
    rows = closed_loop(scaling.make(name), peak, 200)
    assert rows[-1][0] == 1.0
    assert not any(decision.apply for _, decision in rows)
    rows = closed_loop(scaling.make("robust"), peak, 200)
    assert rows[-1] == (2.0**-4, Decision(True, 2.0**-4))
    assert closed_loop(scaling.make("robust", min_scale=1.0), peak, 200)[-1][1].stop is not None


def test_metaseq_3_a_restart_forgets_the_counters():
    for name, options, forgets in (
        ("metaseq", {"scale_window": 2}, True),
        ("robust", {"growth_interval": 2}, False),
    ):
        scaler = end(scaling.make(name, **options), ".")
        restarted = scaling.make(name, **options).load_framework_state(scaler.framework_state())
        assert (end(restarted, ".").scale != end(scaler, ".").scale) is forgets


def test_metaseq_4_the_window_changes_with_the_scale():
    def windows(scaler):
        found, steps = [], 0
        while len(found) < 3:
            before, steps = scaler.scale, steps + 1
            scaler, _ = scaler.update(Observation())
            if scaler.scale != before:
                found.append(steps)
                steps = 0
        return found

    assert windows(scaling.make("metaseq", scale_window=4)) == [
        4,
        4,
        8,
    ]  # windows of 4, 8 and 16 from the start
    assert windows(scaling.make("robust", growth_interval=4)) == [4, 4, 4]


def test_fairseq_4555_a_norm_overflows_where_no_gradient_does():
    gradients = [np.full(4, 1e19, np.float32)]
    assert scaling.make("fairseq", init_scale=1.0).observe(gradients).overflowed
    scaler = scaling.make("robust", init_scale=1.0)
    observation = observe(scaler, gradients)
    assert not observation.overflowed
    assert scaler.update(observation)[1].apply


def test_pytorch_unet_468_gradients_are_clipped_after_they_are_unscaled():
    targets = np.float32([[3.0]])
    for name in ("torch", "robust"):
        found = [
            one_step(single(), scaling.make(name, init_scale=scale), ONE, targets, clip_norm=1.0)[1][
                0
            ].tobytes()
            for scale in (1.0, 1024.0)
        ]
        assert found[0] == found[1]  # clipped before, the gradient would be 1/1024 of that
        assert np.frombuffer(found[0], np.float32)[0] == pytest.approx(1.0, rel=1e-5)  # torch's norm + 1e-6


@pytest.mark.parametrize("report", ["LLaVA 363", "bitsandbytes 945"])
def test_a_float16_gradient_is_unscaled_into_float32(report):
    """torch's unscale_ refuses float16 gradients, which underflow when the scale is divided out; float32 keeps them."""
    gradient = np.float16([2.0**-10])
    for name in ("torch", "robust"):
        scaler = scaling.make(name, init_scale=65536.0)
        found = unscale(gradient, scaler.update(Observation())[1])
        assert found.dtype == np.float32
        assert found[0] == 2.0**-26
    assert unscale(gradient, Decision(True, 65536.0, dtype="tensor"))[0] == 0.0


@pytest.mark.parametrize("report", ["horovod 1699", "pytorch 57410", "pytorch 78774"])
def test_float16_gradients_are_divided_before_they_are_added(report):
    parts = [np.float16([40000.0]), np.float16([40000.0])]
    with np.errstate(over="ignore"):
        assert np.isinf(parts[0] + parts[1]).all()  # the sum overflows where the mean does not
    targets = [np.float32([[40000.0]])] * 2
    for name in ("torch", "robust"):
        scaler = scaling.make(name, init_scale=1.0)
        taken, found = one_step(single(dtype="float16"), scaler, [ONE, ONE], targets, Policy("float16"))
        assert taken.step.applied
        assert found[0].tolist() == [[40000.0]]


def test_transformer_engine_786_a_tiny_amax_gives_an_infinite_scale():
    delayed, _ = scaling.make("delayed", fp8_format="E4M3").update(Observation(amax={"x": 2.0**-140}))
    with np.errstate(over="ignore"):
        assert np.float32(448) / np.float32(2.0**-140) == np.inf  # what the formula alone would give
    assert delayed.scale["x"] == float(np.finfo(np.float32).max)
    scaler = scaling.make("robust", growth_interval=1)
    for _ in range(200):
        scaler, _ = scaler.update(Observation(amax=2.0**-140))
    assert scaler.scale == 2.0**64


def test_cross_entropy_of_a_confident_network_is_no_special_case():
    """All gradients are zero: torch and ours count the step, and nothing is divided by zero."""
    model = single(0.0)
    for name in ("torch", "robust"):
        loss = lambda output, targets: CrossEntropyLoss()(output, np.array([0]))  # noqa: E731
        taken, found = one_step(model, scaling.make(name), ONE, ONE, loss=loss)
        assert taken.step.applied
        assert found[0].tolist() == [[0.0]]


def test_every_report_of_the_list_is_here():
    """A report that is dropped by mistake is missed: the names of these tests hold the numbers."""
    from pathlib import Path

    text = Path(__file__).read_text()
    numbers = (
        8588,
        1599,
        1958,
        8415,
        4986,
        98828,
        99640,
        94060,
        15501,
        97415,
        35810,
        7975,
        18828,
        11106,
        4289,
        834,
        114,
    )
    numbers += (179, 2547, 38357, 644, "metaseq_3", "metaseq_4", 4555, 468, 363, 945, 1699, 57410, 78774, 786)
    listed = text[: text.index("def test_every_report")]
    assert [number for number in numbers if not re.search(rf"(?<!\d){number}(?!\d)", listed)] == []
